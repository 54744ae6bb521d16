use std::process::{Command, Stdio};

use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use pcap_file::pcapng::blocks::interface_statistics::InterfaceStatisticsOption;
use pcap_file::pcapng::{Block, PcapNgReader};

use super::*;
use crate::join::Frame;

fn judged(direction: Direction, verdict: Verdict) -> Judged {
    Judged {
        frame: Frame {
            time_ns: 500,
            cpu: 0,
            direction,
            length: 1_000,
            segments: 1,
            bytes: (0..61).collect(),
        },
        verdict,
    }
}

/// A file with a packet for each verdict.
fn file() -> Vec<u8> {
    let named = Named {
        interface: "net1".to_owned(),
        description: "default/web, network blue".to_owned(),
        application: "podnet-agent 0.1.0".to_owned(),
    };
    let mut file = File::begin(&named, 256, 1_700_000_000_000_000_000);
    let mac = DropReason::SpoofedMac as u32;
    for (direction, verdict) in [
        (Direction::ToPod, Verdict::Delivered),
        (Direction::FromPod, Verdict::Accepted),
        (Direction::FromPod, Verdict::Dropped(mac)),
        (Direction::FromPod, Verdict::DroppedUnseen(mac)),
        (Direction::FromPod, Verdict::Dropped(63)),
        (Direction::FromPod, Verdict::Unknown),
    ] {
        file.add(&judged(direction, verdict));
    }
    file.end(9_000, 3);
    assert_eq!(file.packets(), 6);
    let all = file.take();
    assert_eq!(file.take(), [0; 0], "a piece is taken once");
    all
}

#[test]
fn each_packet_has_its_direction_and_its_verdict() {
    let bytes = file();
    let mut reader = PcapNgReader::new(bytes.as_slice()).unwrap();
    let mut packets = Vec::new();
    let mut statistics = 0;
    while let Some(block) = reader.next_block() {
        match block.unwrap() {
            Block::EnhancedPacket(packet) => packets.push(packet.into_owned()),
            Block::InterfaceStatistics(block) => {
                statistics += 1;
                assert_eq!(
                    block.options,
                    [
                        InterfaceStatisticsOption::IsbIfRecv(9),
                        InterfaceStatisticsOption::IsbIfDrop(3)
                    ]
                );
            }
            _ => {}
        }
    }
    assert_eq!(statistics, 1);
    let found: Vec<(String, u32, bool)> = packets
        .iter()
        .map(|packet| {
            assert_eq!(packet.original_len, 1_000);
            assert_eq!(packet.data.len(), 61);
            assert_eq!(packet.timestamp.as_nanos(), 1_700_000_000_000_000_500);
            let mut found = (String::new(), 0, false);
            for option in &packet.options {
                match option {
                    EnhancedPacketOption::Comment(text) => found.0 = text.to_string(),
                    EnhancedPacketOption::Flags(flags) => found.1 = *flags,
                    EnhancedPacketOption::Unknown(option) => {
                        assert_eq!((option.code, option.value.len()), (7, 9));
                        found.2 = true;
                    }
                    other => panic!("{other:?}"),
                }
            }
            found
        })
        .collect();
    let meaning = "The source MAC address is not the port's.";
    let expected = [
        ("to the pod: delivered".to_owned(), 1, false),
        ("from the pod: accepted".to_owned(), 2, false),
        (
            format!("from the pod: dropped: spoofed_mac: {meaning}"),
            2,
            true,
        ),
        (
            format!(
                "from the pod: dropped: spoofed_mac: {meaning} (the first bytes only: seen where it was dropped)"
            ),
            2,
            true,
        ),
        (
            "from the pod: dropped: reason 63, of another version of podnet".to_owned(),
            2,
            true,
        ),
        (
            "from the pod: verdict unknown: records of drops were lost".to_owned(),
            2,
            false,
        ),
    ];
    assert_eq!(found, expected);
}

/// Runs a reader of others on a file; none where it is not installed.
fn read_by(program: &str, arguments: &[&str]) -> Option<String> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("capture.pcapng");
    std::fs::write(&path, file()).unwrap();
    let output = Command::new(program)
        .args(arguments)
        .arg(&path)
        .stdin(Stdio::null())
        .output()
        .ok()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}", text(&output.stderr));
    Some(text(&output.stdout))
}

#[test]
fn tshark_reads_comments_and_verdicts() {
    let fields = [
        "-T",
        "fields",
        "-e",
        "frame.comment",
        "-e",
        "frame.packet_flags_direction",
    ];
    let arguments = [&fields[..], &["-r"]].concat();
    let Some(text) = read_by("tshark", &arguments) else {
        println!("SKIP: needs tshark");
        return;
    };
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 6, "{text}");
    assert!(lines[0].starts_with("to the pod: delivered"), "{text}");
    assert!(lines[2].contains("dropped: spoofed_mac"), "{text}");
}

#[test]
fn tcpdump_reads_all_packets() {
    let Some(text) = read_by("tcpdump", &["-n", "-tt", "-r"]) else {
        println!("SKIP: needs tcpdump");
        return;
    };
    let packets = text.lines().filter(|line| line.contains(" > "));
    assert_eq!(packets.count(), 6, "{text}");
    assert!(text.starts_with("1700000000.000000"), "{text}");
}
