use super::super::guard::{Guard, Packets};
use super::super::{Cidr, TABLE};
use super::*;

fn cidr(ip: &str, length: u8) -> Cidr {
    Cidr(ip.parse().expect("an address"), length)
}

/// A rule has the bytes that `nft --debug=netlink` and strace show.
///
/// The command is `nft add rule inet podnet leaving ip daddr 10.0.0.0/9 return`; bytes are little-endian
/// as netlink's own numbers are there.
#[test]
#[cfg(target_endian = "little")]
fn a_rule_is_the_bytes_that_the_kernel_knows() {
    let mut batch = Batch::new(6, TABLE);
    batch.add_rule(&Rule::To(cidr("10.0.0.0", 9)));
    let bytes = batch.into_bytes();
    let (begin, rule) = bytes.split_at(20);
    assert_eq!(
        begin,
        [
            20, 0, 0, 0, 0x10, 0, 1, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10
        ]
    );
    let length = u32::try_from(rule.len())
        .expect("a short rule")
        .to_le_bytes();
    assert_eq!(rule[..4], length);
    // NFT_MSG_NEWRULE of nf_tables; request, create, append; number 8; family inet.
    assert_eq!(
        rule[4..20],
        [6, 10, 1, 0x0c, 8, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]
    );
    assert_eq!(&rule[20..32], b"\x0b\0\x01\0podnet\0\0");
    assert_eq!(&rule[32..44], b"\x0c\0\x02\0leaving\0");
    let expressions = [
        // meta load nfproto => reg 1
        &b"\x24\0\x01\x80\x09\0\x01\0meta\0\0\0\0\x14\0\x02\x80\x08\0\x01\0\0\0\0\x01\x08\0\x02\0\0\0\0\x0f"[..],
        // cmp eq reg 1 0x02
        b"\x2c\0\x01\x80\x08\0\x01\0cmp\0\x20\0\x02\x80\x08\0\x01\0\0\0\0\x01\x08\0\x02\0\0\0\0\0\x0c\0\x03\x80\x05\0\x01\0\x02\0\0\0",
        // payload load 4b @ network header + 16 => reg 1
        b"\x34\0\x01\x80\x0c\0\x01\0payload\0\x24\0\x02\x80\x08\0\x01\0\0\0\0\x01\x08\0\x02\0\0\0\0\x01\x08\0\x03\0\0\0\0\x10\x08\0\x04\0\0\0\0\x04",
        // bitwise reg 1 = (reg 1 & 0xff800000) ^ 0
        b"\x44\0\x01\x80\x0c\0\x01\0bitwise\0\x34\0\x02\x80\x08\0\x01\0\0\0\0\x01\x08\0\x02\0\0\0\0\x01\x08\0\x03\0\0\0\0\x04\x0c\0\x04\x80\x08\0\x01\0\xff\x80\0\0\x0c\0\x05\x80\x08\0\x01\0\0\0\0\0",
        // cmp eq reg 1 10.0.0.0
        b"\x2c\0\x01\x80\x08\0\x01\0cmp\0\x20\0\x02\x80\x08\0\x01\0\0\0\0\x01\x08\0\x02\0\0\0\0\0\x0c\0\x03\x80\x08\0\x01\0\x0a\0\0\0",
        // immediate reg 0 return
        b"\x30\0\x01\x80\x0e\0\x01\0immediate\0\0\0\x1c\0\x02\x80\x08\0\x01\0\0\0\0\0\x10\0\x02\x80\x0c\0\x02\x80\x08\0\x01\0\xff\xff\xff\xfb",
    ]
    .concat();
    let inside = &rule[44..44 + 4 + expressions.len()];
    assert_eq!(inside[2..4], [4, 0x80]);
    assert_eq!(inside[4..], expressions);
    let comment = &rule[44 + 4 + expressions.len()..];
    assert_eq!(&comment[2..6], b"\x07\0\0\x12");
    assert_eq!(&comment[6..], b"not to 10.0.0.0/9\0");
}

#[test]
fn messages_of_a_batch_follow_one_another_and_the_last_change_is_acknowledged() {
    let mut batch = Batch::new(0, TABLE);
    batch.add_table();
    batch.add_postrouting_chain("postrouting");
    batch.add_rule(&Rule::Out);
    let last = batch.close();
    let bytes = batch.into_bytes();
    let read: Vec<_> = wire::messages(&bytes)
        .map(|message| (message.kind, message.flags & NLM_F_ACK, message.sequence))
        .collect();
    let acknowledged = (kind(NFT_MSG_NEWRULE), NLM_F_ACK, 4);
    assert_eq!(
        read,
        [
            (NFNL_MSG_BATCH_BEGIN, 0, 1),
            (kind(NFT_MSG_NEWTABLE), 0, 2),
            (kind(NFT_MSG_NEWCHAIN), 0, 3),
            acknowledged,
            (NFNL_MSG_BATCH_END, 0, 5),
        ]
    );
    assert_eq!(last, 4);
}

#[test]
fn a_rule_is_read_back_with_its_comment_and_one_of_another_table_is_not() {
    for rule in [
        Rule::From(cidr("fd00:10::", 64)),
        Rule::To(cidr("10.0.0.0", 8)),
        Rule::Out,
    ] {
        let mut batch = Batch::new(0, TABLE);
        batch.add_rule(&rule);
        let bytes = batch.into_bytes();
        let message = wire::messages(&bytes).nth(1).expect("the rule");
        let read = parse_rule(message.body, TABLE).expect("a rule of ours");
        let expected = Listed {
            chain: rule.chain().to_owned(),
            comment: rule.to_string(),
            packets: None,
        };
        assert_eq!(read, expected);
        let other: Vec<u8> = message
            .body
            .iter()
            .map(|byte| match byte {
                b'p' => b'q',
                other => *other,
            })
            .collect();
        assert_eq!(parse_rule(&other, TABLE), None);
    }
}

#[test]
fn an_announcement_says_which_table_it_is_about() {
    let mut batch = Batch::new(0, TABLE);
    batch.add_table();
    batch.add_chain(LEAVING);
    batch.add_rule(&Rule::Out);
    batch.remove_table();
    let bytes = batch.into_bytes();
    let tables: Vec<_> = wire::messages(&bytes).map(table_of).collect();
    let ours = Some(TABLE.to_owned());
    assert_eq!(
        tables,
        [None, ours.clone(), ours.clone(), ours.clone(), ours]
    );
}

#[test]
fn what_a_guard_has_stopped_is_read_from_its_rule() {
    let guard = Guard::stop(Bound::Here, &[Packets::UdpTo(4789)]);
    let mut batch = Batch::new(0, TABLE);
    batch.add_rule(&Rule::Guard(guard));
    let bytes = batch.into_bytes();
    let message = wire::messages(&bytes).nth(1).expect("the rule");
    let read = parse_rule(message.body, TABLE).expect("a rule of ours");
    assert_eq!(read.packets, Some(0));
    let mut counted = message.body.to_vec();
    // NFTA_COUNTER_PACKETS, which is big-endian.
    let at = counted
        .windows(4)
        .position(|window| window == b"\x0c\0\x02\0")
        .expect("a count of packets");
    counted[at + 4..at + 12].copy_from_slice(&7_u64.to_be_bytes());
    assert_eq!(
        parse_rule(&counted, TABLE).expect("a rule").packets,
        Some(7)
    );
}

/// The largest table of mapped ports is one datagram of a default buffer.
///
/// The kernel refuses a datagram above `net.core.wmem_default`, 212992 bytes less 32.
#[test]
fn sixty_four_ports_of_both_families_fit_in_one_datagram() {
    use super::super::{Bound, PortForward, PortProtocol};
    let mut batch = Batch::new(0, "podnet-ports");
    for port in 0..64 {
        for to in ["169.254.127.254", "fd70:6f64:6e65:7400:1111:2222:3333:4444"] {
            let to: std::net::IpAddr = to.parse().expect("an address");
            batch.add_rule(&Rule::Forward(PortForward {
                protocol: PortProtocol::Tcp,
                at: Some(to),
                port: 65_000 + port,
                to,
                to_port: Some(65_000 + port),
                mark: Some(0x7fff_0000 + u32::from(port)),
            }));
        }
        // Of as many pods.
        let packets = [Packets::Marked(0x7fff_0000 + u32::from(port))];
        batch.add_rule(&Rule::Guard(Guard::pass(Bound::Elsewhere, &packets)));
    }
    let length = batch.into_bytes().len();
    // What is left is for chains, and rules that are always there.
    assert!(length < 212_992 - 8192, "{length} bytes");
}
