//! Captures of ports of every type: both directions, each packet with its verdict.

use std::process::Command;

use agent_common::addr::MacAddr;
use testbed::capture::{Capture, Captured};
use testbed::frame::{Ipv4, Marker, ethernet, icmp_echo, marker};
use testbed::tap::contains;
use testbed::{MemifApp, Node, Port, wait};

use crate::{conf, setup};

const IPV4: u16 = 0x0800;

/// An echo request, as a frame.
fn ping(from: &Port, to: &Port, mac: MacAddr, word: &Marker) -> Vec<u8> {
    let packet = Ipv4::new(from.v4(), to.v4(), 1).packet(&icmp_echo(word));
    ethernet(to.mac, mac, IPV4, &packet)
}

/// Sends an echo request from one pod to another, and waits for the answer.
fn ping_until_answered(from: &Port, to: &Port) -> Marker {
    let word = marker();
    let tap = from.tap();
    tap.send(&ping(from, to, from.mac, &word));
    tap.wait("the answer to a ping", |frame| {
        contains(frame, &word) && frame.starts_with(&from.mac.0)
    });
    word
}

fn with(word: &Marker, is_from_pod: bool) -> impl Fn(&Captured) -> bool {
    move |packet| packet.is_from_pod == is_from_pod && contains(&packet.bytes, word)
}

/// A ping both ways at a port, and a frame that it forges.
fn assert_seen(node: &Node, port: &Port, other: &Port) {
    let capture = Capture::start(node, port, &[]);
    let out = ping_until_answered(port, other);
    let back = ping_until_answered(other, port);
    let forged = marker();
    let packet = Ipv4::new(other.v4(), other.v4(), 1).packet(&icmp_echo(&forged));
    let tap = port.tap();
    tap.send(&ethernet(other.mac, port.mac, IPV4, &packet));
    tap.send(&ping(port, other, other.mac, &forged));
    // When the last is in the file, the others are, too.
    let last = ping_until_answered(port, other);
    capture.wait_for("the last answer", with(&last, false));
    let packets = capture.stop();
    let comments = |wanted: &dyn Fn(&Captured) -> bool| -> Vec<String> {
        let found = packets.iter().filter(|packet| wanted(packet));
        found.map(|packet| packet.comment.clone()).collect()
    };
    for word in [&out, &back, &last] {
        assert_eq!(comments(&with(word, true)), ["from the pod: accepted"]);
        assert_eq!(comments(&with(word, false)), ["to the pod: delivered"]);
    }
    let dropped = comments(&with(&forged, true));
    assert_eq!(dropped.len(), 2, "{dropped:?}");
    assert!(
        dropped[0].starts_with("from the pod: dropped: spoofed_ip: "),
        "{dropped:?}"
    );
    assert!(
        dropped[1].starts_with("from the pod: dropped: spoofed_mac: "),
        "{dropped:?}"
    );
    for packet in &packets {
        assert_eq!(packet.is_dropped, packet.comment.contains("dropped"));
        assert!(usize::try_from(packet.length).is_ok_and(|length| length == packet.bytes.len()));
    }
}

/// Packets that go into a pod by `bpf_redirect_peer` are seen at the pod's end.
#[test]
fn a_capture_of_a_veth_has_both_directions_and_the_reason_of_a_drop() {
    let node = testbed::node!(setup());
    let pods = ["one", "two"].map(|name| node.pod(name));
    for network in ["blue", "green"] {
        let ifname = format!("net-{network}");
        let [one, two] = [&pods[0], &pods[1]].map(|pod| pod.attach(network, &ifname));
        if network == "blue" {
            assert_seen(&node, &one, &two);
        } else {
            assert_routed(&node, &one, &two);
        }
    }
}

/// Asserts that a routed packet is captured as the pod has sent it.
///
/// The program writes new addresses after the tap has seen the frame.
fn assert_routed(node: &Node, port: &Port, other: &Port) {
    let capture = Capture::start(node, port, &["--snaplen", "64"]);
    testbed::traffic::udp_round_trip(port, port.v4().into(), other, other.v4().into())
        .expect("the pods reach each other");
    let is_udp = |packet: &Captured| packet.bytes.get(23) == Some(&17);
    capture.wait_for("the answer", |packet| is_udp(packet) && !packet.is_from_pod);
    let packets = capture.stop();
    let udp: Vec<&Captured> = packets.iter().filter(|packet| is_udp(packet)).collect();
    assert_eq!(udp.len(), 2, "{packets:?}");
    assert_eq!(udp[0].comment, "from the pod: accepted");
    assert_eq!(udp[1].comment, "to the pod: delivered");
    assert!(udp.iter().all(|packet| packet.bytes.len() <= 64));
}

/// Frames between memif ports pass an interface while one is under capture.
#[test]
fn a_capture_of_a_memif_port_has_what_its_switch_would_carry_past_the_kernel() {
    let node = testbed::node!(setup());
    let pods = ["one", "two", "plain"].map(|name| node.pod(name));
    let one = pods[0].attach_conf(&conf(&node, "blue"), "net1");
    let two = pods[1].attach_conf(&conf(&node, "blue"), "net1");
    let plain = pods[2].attach("blue", "net1");
    let _apps = [MemifApp::start(&one), MemifApp::start(&two)];
    testbed::traffic::assert_reaches(&one, &two);
    assert!(fast(&node) > 0, "they have a way of their own");
    assert_seen(&node, &one, &two);
    assert_seen(&node, &one, &plain);
    // The way of their own is back.
    let before = fast(&node);
    wait::until_true("frames to go past the kernel again", || {
        ping_until_answered(&one, &two);
        fast(&node) > before
    });
    // CHECK finds nothing wrong, neither then nor during a capture.
    let capture = Capture::start(&node, &one, &[]);
    let mut conf = conf(&node, "blue");
    conf["prevResult"] = one.result.clone();
    pods[0].call("CHECK", "net1").conf(&conf).run().silent();
    drop(capture);
}

/// Packets that the switch has carried past the kernel.
fn fast(node: &Node) -> u64 {
    let (_, page) = node.http("/metrics").expect("the agent answers");
    page.lines()
        .filter(|line| line.starts_with("podnet_memif_packets_total{"))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
        .sum()
}

/// Nothing of a capture is left when its client is killed, and when its agent is.
#[test]
fn nothing_is_left_of_a_capture_when_its_client_or_its_agent_is_killed() {
    let node = testbed::node!(setup());
    let pods = ["one", "two"].map(|name| node.pod(name));
    let one = pods[0].attach_conf(&conf(&node, "blue"), "net1");
    let two = pods[1].attach_conf(&conf(&node, "blue"), "net1");
    let _apps = [MemifApp::start(&one), MemifApp::start(&two)];
    testbed::traffic::assert_reaches(&one, &two);
    for of_agent in [false, true] {
        let capture = Capture::start(&node, &one, &[]);
        let word = ping_until_answered(&one, &two);
        capture.wait_for("the ping", with(&word, true));
        assert_ne!(taps(&node), 0);
        let refused = Capture::refusal(&node, &one, &[]);
        assert!(
            refused.contains("a capture of this port is running"),
            "{refused}"
        );
        if of_agent {
            node.kill_9();
            node.start_agent();
            drop(capture);
        } else {
            capture.kill_9();
        }
        wait::until_true("the taps to be gone", || taps(&node) == 0);
        let before = fast(&node);
        wait::until_true("the fast way to be back", || {
            ping_until_answered(&one, &two);
            fast(&node) > before
        });
        // A drop is no capture's any more, and the next capture gets the port.
        one.tap().send(&ping(&one, &two, two.mac, &marker()));
        let again = Capture::start(&node, &one, &[]);
        let word = ping_until_answered(&one, &two);
        again.wait_for("the ping", with(&word, true));
        let packets = again.stop();
        assert!(
            packets.iter().all(|packet| !packet.is_dropped),
            "{packets:?}"
        );
    }
}

/// Packet sockets of the node's namespace.
fn taps(node: &Node) -> usize {
    let read = || std::fs::read_to_string("/proc/thread-self/net/packet");
    let list = node.netns().run_in(read).expect("entered");
    list.expect("a list").lines().skip(1).count()
}

#[test]
fn a_capture_ends_by_itself_at_the_number_of_packets_that_was_asked_for() {
    let node = testbed::node!();
    let pods = ["one", "two"].map(|name| node.pod(name));
    let [one, two] = [&pods[0], &pods[1]].map(|pod| pod.attach("blue", "net1"));
    let mut capture = Capture::start(&node, &one, &["--packets", "3"]);
    for _ in 0..4 {
        ping_until_answered(&one, &two);
    }
    assert!(capture.wait().success());
    assert_eq!(capture.packets().len(), 3);
    for (options, said) in [
        (["--snaplen", "5"], "--snaplen 5: write a number"),
        (["--network", "red"], "no attachment of this node is meant"),
    ] {
        let refused = Capture::refusal(&node, &one, &options);
        assert!(refused.contains(said), "{refused}");
    }
    // A reader of others takes it, too.
    let mut tcpdump = Command::new("tcpdump");
    tcpdump.args(["-n", "-r"]).arg(capture.file());
    match tcpdump.output() {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(
                output.status.success() && text.contains("ICMP echo"),
                "{output:?}"
            );
        }
        Err(_) => testbed::skip::skip(testbed::test_name!(), "tcpdump is not installed"),
    }
}
