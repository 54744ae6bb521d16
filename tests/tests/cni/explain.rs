//! Compare `explain --from … --to …` with the fate of real packets.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use agent_common::addr::{GATEWAY_MAC, MacAddr};
use agent_common::drop::DropReason;
use testbed::frame::{Ipv4, ethernet, icmp_echo, marker, udp4};
use testbed::{Node, Port, pins, traffic, wait};

const IP: u16 = 0x0800;
/// Ports of the datagrams.
const UDP: [&str; 2] = ["--proto", "udp:5000:9"];

/// `CONTAINER/IFNAME`.
fn name(port: &Port) -> String {
    format!("{}/{}", port.container, port.ifname)
}

/// Packets a port has received, as the datapath counts them.
fn received(node: &Node, port: &Port) -> u64 {
    let rows = node.get("attachments");
    let row = rows.iter().find(|row| row["container"] == port.container);
    let count = row.expect("the attachment is shown")["toPod"]["packets"].as_u64();
    count.expect("a number")
}

/// Waits until the node has dropped more packets for this reason than `before`.
#[track_caller]
fn wait_drop(node: &Node, network: &str, reason: DropReason, before: u64) {
    wait::until_true(&format!("a drop for {reason}"), || {
        node.drops().of(network, reason) > before
    });
}

#[test]
fn what_is_told_to_be_delivered_is_delivered_as_told() {
    let node = testbed::node!();
    let (pa, pb) = (node.pod("a"), node.pod("b"));
    for network in ["blue", "green"] {
        let (a, b) = (pa.attach(network, "net1"), pb.attach(network, "net1"));
        // A pod that is new tells its multicast groups now and then.
        wait::until_true("an explanation that sends nothing", || {
            let before = received(&node, &b);
            for (_, to) in traffic::pairs(&a, &b) {
                let told = node.explain(&name(&a), &to.to_string(), &UDP);
                told.assert_is("delivered", "");
                assert_eq!(told.detail("container"), "b");
                assert_eq!(told.disagreements(), "[]");
                let question = if to.is_ipv4() { "arp |" } else { "nd |" };
                told.assert_tells(&[question, "the datapath answers", "bpf_redirect_peer"]);
            }
            received(&node, &b) == before
        });
        let before = received(&node, &b);
        for (from, to) in traffic::pairs(&a, &b) {
            let told = node.explain(&name(&a), &to.to_string(), &UDP);
            let (mark, tap) = (marker(), b.tap());
            traffic::shout(&a, from, (to, 9).into(), &mark).expect("sent");
            let frame = tap.wait_marker("the datagram", &mark);
            let head = told.head();
            let receiver = if network == "blue" {
                b.mac
            } else {
                GATEWAY_MAC
            };
            assert_eq!(head[..6], receiver.0, "the frame that the pod sends");
            if network == "blue" {
                assert_eq!(head[..14], frame[..14], "it arrives as it was sent");
            }
            let addresses = if to.is_ipv4() { 26..34 } else { 22..54 };
            assert_eq!(head[addresses.clone()], frame[addresses]);
        }
        assert!(received(&node, &b) > before);
        // The same by name, by MAC address, and from an address of the network.
        told_alike(&node, &a, &b, network);
        pa.detach(network, "net1");
        pb.detach(network, "net1");
    }
    node.assert_empty();
}

fn told_alike(node: &Node, a: &Port, b: &Port, network: &str) {
    let by_address = format!("{network}/{}", a.v4());
    let by_mac = format!("{network}/{}", a.mac);
    for from in [&name(a), &by_address, &by_mac, "a"] {
        node.explain(from, &name(b), &["--proto", "tcp:443"])
            .assert_is("delivered", "");
    }
    let told = node.explain("a", &b.mac.to_string(), &[]);
    if network == "blue" {
        told.assert_is("delivered", "");
    } else {
        told.assert_is("dropped", "no_endpoint");
    }
    let text = node.explain_text("a", &name(b), &[]);
    let last = text.lines().last().unwrap_or_default();
    assert_eq!(
        last, "DELIVERED: delivered to b/net1 on this node",
        "{text}"
    );
}

#[test]
fn what_is_told_to_be_dropped_is_dropped_for_that_reason() {
    let node = testbed::node!();
    let (pa, pb) = (node.pod("a"), node.pod("b"));
    let (a, b) = (pa.attach("blue", "net1"), pb.attach("blue", "net1"));
    let (tap, seen) = (a.tap(), b.tap());
    let stranger: IpAddr = [10, 10, 0, 250].into();
    let told = node.explain("a", &stranger.to_string(), &UDP);
    told.assert_is("dropped", "no_endpoint");
    told.assert_tells(&["arp | ENDPOINTS[blue, 10.10.0.250] | nothing"]);
    assert!(told.0["outcome"]["meaning"].is_string() && told.0["outcome"]["advice"].is_string());
    let before = node.drops().of("blue", DropReason::NoEndpoint);
    traffic::shout(&a, a.v4().into(), (stranger, 9).into(), b"?").expect("sent");
    wait_drop(&node, "blue", DropReason::NoEndpoint, before);
    let mark = marker();
    let lie = [10, 10, 0, 99].into();
    let packet = udp4(lie, b.v4(), (5000, 9), &mark);
    let arp = [&["--source", "10.10.0.99"][..], &UDP].concat();
    for (reason, more, frame) in [
        (
            DropReason::SpoofedIp,
            &arp[..],
            ethernet(b.mac, a.mac, IP, &packet),
        ),
        (
            DropReason::SpoofedMac,
            &["--source", "02:00:00:00:66:66"],
            ethernet(b.mac, MacAddr([2, 0, 0, 0, 0x66, 0x66]), IP, &packet),
        ),
        (
            DropReason::Dhcp,
            &["--proto", "udp:68:67"],
            ethernet(b.mac, a.mac, IP, &udp4(a.v4(), b.v4(), (68, 67), &mark)),
        ),
        (
            DropReason::VlanTag,
            &["--proto", "ether:0x8100"],
            ethernet(b.mac, a.mac, 0x8100, &[0, 5, 8, 0, 1, 2]),
        ),
    ] {
        let told = node.explain("a", &name(&b), more);
        told.assert_is("dropped", reason.label());
        let before = node.drops().of("blue", reason);
        tap.send(&frame);
        wait_drop(&node, "blue", reason, before);
    }
    assert_eq!(seen.count(&mark), 0);
    node.explain("a", &name(&b), &["--size", "1500"])
        .assert_is("delivered", "");
    node.explain("a", &name(&b), &["--size", "1501"])
        .assert_is("dropped", "too_big");
    node.explain("a", &name(&a), &[])
        .assert_is("dropped", "hairpin");
    pa.detach("blue", "net1");
    pb.detach("blue", "net1");
}

#[test]
fn the_gateway_answers_what_it_is_told_to_answer() {
    let node = testbed::node!();
    let pod = node.pod("a");
    let port = pod.attach("green", "net1");
    let gateway: IpAddr = [10, 20, 0, 1].into();
    let told = node.explain("a", &gateway.to_string(), &[]);
    told.assert_is("answered", "");
    let tap = port.tap();
    let mark = marker();
    let packet = Ipv4::new(port.v4(), [10, 20, 0, 1].into(), 1).packet(&icmp_echo(&mark));
    tap.send(&ethernet(GATEWAY_MAC, port.mac, IP, &packet));
    let answer = tap.wait_marker("the answer", &mark);
    assert_eq!(answer[..12], [port.mac.0, GATEWAY_MAC.0].concat());
    let mac = GATEWAY_MAC.to_string();
    for (to, proto) in [("10.20.0.1", "arp"), ("fe80::1", "nd")] {
        let told = node.explain("a", to, &["--proto", proto]);
        told.assert_is("answered", "");
        assert_eq!(*told.detail("mac"), mac);
    }
    node.explain("a", "10.20.0.1", &["--proto", "tcp:80"])
        .assert_is("dropped", "gateway");
    node.explain("a", "224.0.0.251", &["--proto", "udp:5353"])
        .assert_is("dropped", "multicast");
    pod.detach("green", "net1");
}

/// Two networks with the same addresses never meet, by either's explanation.
#[test]
fn networks_never_meet_and_explain_says_so() {
    let node = testbed::node!();
    let pods = ["a", "b", "c"].map(|name| node.pod(name));
    let a = pods[0].attach("blue", "net1");
    let [_, c] = [1, 2].map(|n: usize| pods[n].attach("red", "net1"));
    let told = node.explain("a", &name(&c), &UDP);
    told.assert_is("dropped", "no_endpoint");
    told.assert_tells(&[
        "networks never meet",
        "not on red",
        "on red it is c/net1 on this node",
    ]);
    let (mark, tap) = (marker(), c.tap());
    let before = node.drops().of("blue", DropReason::NoEndpoint);
    traffic::shout(&a, a.v4().into(), (c.v4(), 9).into(), &mark).expect("sent");
    wait_drop(&node, "blue", DropReason::NoEndpoint, before);
    assert_eq!(tap.count(&mark), 0);
    for (pod, network) in pods.iter().zip(["blue", "red", "red"]) {
        pod.detach(network, "net1");
    }
}

#[test]
fn a_broadcast_is_told_with_everybody_who_gets_a_copy() {
    let node = testbed::node!();
    let pods = ["a", "b", "c", "other"].map(|name| node.pod(name));
    let networks = ["blue", "blue", "blue", "red"];
    let ports: Vec<Port> = pods
        .iter()
        .zip(networks)
        .map(|(pod, network)| pod.attach(network, "net1"))
        .collect();
    for to in ["10.10.0.255", "255.255.255.255", "224.0.0.251", "ff02::fb"] {
        let told = node.explain("a", to, &["--proto", "udp:9"]);
        told.assert_is("replicated", "");
        assert_eq!(
            *told.detail("ports"),
            serde_json::json!(["b/net1", "c/net1"]),
            "{to}"
        );
        assert_eq!(*told.detail("nodes"), serde_json::json!([]));
    }
    let taps: Vec<_> = ports.iter().map(Port::tap).collect();
    let mark = marker();
    let to = ([10, 10, 0, 255], 9).into();
    traffic::shout(&ports[0], ports[0].v4().into(), to, &mark).expect("sent");
    for tap in &taps[1..3] {
        tap.wait_marker("the broadcast", &mark);
    }
    assert_eq!(taps[3].count(&mark), 0);
    // Until its bucket is empty: then it is a storm.
    let frame = ethernet(MacAddr::BROADCAST, ports[0].mac, 0x88b5, &[0; 46]);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                taps[0].send(&frame);
            }
        });
        wait::until_true("a storm", || {
            let told = node.explain("a", "10.10.0.255", &[]);
            let storm = told.reason() == "storm";
            done.fetch_or(storm, Ordering::Relaxed);
            storm
        });
    });
    assert!(node.drops().of("blue", DropReason::Storm) > 0);
    for (pod, network) in pods.iter().zip(networks) {
        pod.detach(network, "net1");
    }
}

/// The explanation reads the kernel's maps, with the records next to them.
///
/// An entry that somebody removed is missing in it, as it is for packets.
#[test]
fn what_somebody_removed_from_the_maps_is_told() {
    let node = testbed::node!();
    let (pa, pb) = (node.pod("a"), node.pod("b"));
    let (a, b) = (pa.attach("blue", "net1"), pb.attach("blue", "net1"));
    let to = b.v4().to_string();
    node.explain("a", &to, &UDP).assert_is("delivered", "");
    pins::remove::<12, 24>(&node, "FDB", pins::station(1001, b.mac));
    let told = node.explain("a", &to, &UDP);
    // The port is found by its IP address.
    told.assert_is("delivered", "");
    told.assert_tells(&[
        "arp | who has",
        "packet | FDB[blue",
        "the member's MAC address",
    ]);
    assert!(
        told.disagreements().contains("FDB has nothing"),
        "{}",
        told.0
    );
    let (tap, mark) = (a.tap(), marker());
    let frame = |mark: &[u8]| {
        let packet = udp4(a.v4(), b.v4(), (5000, 9), mark);
        ethernet(b.mac, a.mac, IP, &packet)
    };
    let receiver = b.tap();
    tap.send(&frame(&mark));
    receiver.wait_marker("a packet to the port that FDB does not have", &mark);
    pins::remove::<20, 24>(&node, "ENDPOINTS", pins::endpoint(1001, b.v4().into()));
    let before = node.drops().of("blue", DropReason::NoEndpoint);
    tap.send(&frame(&marker()));
    wait_drop(&node, "blue", DropReason::NoEndpoint, before);
    let told = node.explain("a", &to, &UDP);
    told.assert_is("dropped", "no_endpoint");
    told.assert_tells(&["arp | ENDPOINTS[blue, "]);
    assert!(
        told.disagreements().contains("ENDPOINTS has nothing"),
        "{}",
        told.0
    );
    pins::remove::<4, 72>(&node, "PORTS", a.host_ifindex().to_ne_bytes());
    let told = node.explain("a", &to, &UDP);
    told.assert_is("dropped", "no_port");
    assert!(
        told.disagreements().contains("PORTS has no right entry"),
        "{}",
        told.0
    );
    let before = node.drops().of("", DropReason::NoPort);
    tap.send(&ethernet(
        b.mac,
        a.mac,
        IP,
        &udp4(a.v4(), b.v4(), (5000, 9), b"?"),
    ));
    wait_drop(&node, "", DropReason::NoPort, before);
    node.restart();
    let told = node.explain("a", &to, &UDP);
    told.assert_is("delivered", "");
    assert_eq!(told.disagreements(), "[]");
    traffic::assert_reaches(&a, &b);
    pa.detach("blue", "net1");
    pb.detach("blue", "net1");
}

#[test]
fn what_cannot_be_followed_is_refused_with_the_option_and_what_to_write() {
    let node = testbed::node!();
    let pod = node.pod("a");
    pod.attach("blue", "net1");
    pod.attach("green", "net2");
    for (from, to, more, words) in [
        (
            "a",
            "10.10.0.3",
            &[][..],
            &["--from a is several", "a/net1", "a/net2"][..],
        ),
        ("b", "10.10.0.3", &[], &["--from b", "a/net1"]),
        ("a/net9", "10.10.0.3", &[], &["--from a/net9", "a/net1"]),
        (
            "10.10.0.2",
            "10.10.0.3",
            &[],
            &["--from 10.10.0.2", "NETWORK/ADDRESS"],
        ),
        ("pink/10.10.0.2", "10.10.0.3", &[], &["no network", "blue"]),
        ("a/net1", "nobody", &[], &["--to nobody", "a/net1"]),
        (
            "a/net1",
            "10.10.0.3",
            &["--proto", "sctp"],
            &["--proto sctp", "tcp["],
        ),
        ("a/net1", "10.10.0.3", &["--size", "20"], &["--size 20"]),
        (
            "a/net1",
            "10.10.0.3",
            &["--source", "fd10::1"],
            &["--to", "family"],
        ),
        (
            "blue/10.10.0.77",
            "10.10.0.2",
            &[],
            &["--from blue/10.10.0.77", "--arrive-from"],
        ),
        (
            "blue/10.10.0.77",
            "10.10.0.2",
            &["--arrive-from", "node-9"],
            &["NETWORK/MAC"],
        ),
    ] {
        let error = node.explain_error(from, to, more);
        for word in words {
            assert!(error.contains(word), "{from} {to}: {error}");
        }
    }
    let usage = node.agent_command(&["explain", "--from", "a/net1"]);
    assert!(
        String::from_utf8_lossy(&usage.stderr).contains("--to"),
        "{usage:?}"
    );
    pod.detach("blue", "net1");
    pod.detach("green", "net2");
}
