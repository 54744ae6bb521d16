//! Test the answers of L3 networks with an uplink to ARP and neighbour discovery.
//!
//! Hosts beyond the uplink ask, and find pods.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};

use agent_common::addr::{GATEWAY_V4, MacAddr};
use agent_common::drop::DropReason;
use netdev::{Netns, Route};
use testbed::frame::{Arp, ethernet, marker, neighbour_solicitation, tagged, udp4};
use testbed::host::{UPLINK, connection};
use testbed::netlink::make_vlan;
use testbed::{Network, Node, Port, Tap, wait};

use super::scene::assert_meet;
use super::segment::{Judge, Segment, as_port, assert_carries, give, l2, l3};

const TAG: u16 = 0x8100;
/// VLAN of the routed network, and of an L2 network with other subnets.
const GREEN: u16 = 200;
const BLUE: u16 = 100;
const HOST: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x66]);
const HOST4: Ipv4Addr = Ipv4Addr::new(10, 20, 0, 9);
/// More than a pod sends by itself while they are asked.
const ASKED: u64 = 20;
/// Start of an ARP reply, after the Ethernet header.
const ARP_REPLY: [u8; 8] = [0, 1, 8, 0, 6, 4, 0, 2];

fn on_vlans(number: u8) -> Vec<Network> {
    vec![
        l3("green", 20, number).id(2003).vlan(GREEN),
        l2("blue", 10, number).id(2001).vlan(BLUE),
    ]
}

fn untagged(number: u8) -> Vec<Network> {
    vec![l3("green", 20, number).id(2003).native()]
}

/// Has the nodes know a host as a member, as a slice by hand does.
fn introduce_host(all: &Segment, host: &Port) {
    let ips: Vec<String> = host.ips.iter().map(|(ip, _)| ip.to_string()).collect();
    let slice = serde_json::json!({
        "apiVersion": "podnet.dev/v1alpha1",
        "kind": "PodNetworkEndpointSlice",
        "metadata": {"name": "green.router.0"},
        "spec": {
            "network": "green", "networkID": 2003, "node": "router", "vteps": ["10.98.0.9"],
            "endpoints": [{
                "mac": host.mac.to_string(), "ips": ips, "since": "2026-01-02T03:04:05Z",
            }],
        },
    });
    let (new, there) = (
        all.directory().join(".router"),
        all.directory().join("router.yaml"),
    );
    fs::write(&new, slice.to_string()).expect("written");
    fs::rename(new, there).expect("renamed");
}

/// Collects the answers to questions for IPv4 addresses, until `last` is answered.
///
/// Returns the addresses, and the MAC addresses in the answers.
fn answers(tap: &Tap, last: Ipv4Addr) -> Vec<(Ipv4Addr, MacAddr)> {
    let found = std::cell::RefCell::new(Vec::new());
    tap.wait("an answer to the last question", |frame| {
        let Some(answer) = frame.get(14..42).filter(|it| it[..8] == ARP_REPLY) else {
            return false;
        };
        let mac = MacAddr(answer[8..14].try_into().expect("six bytes"));
        let ip: [u8; 4] = answer[14..18].try_into().expect("four bytes");
        assert_eq!(frame[..6], HOST.0, "to who has asked");
        assert_eq!(frame[6..12], mac.0, "from the address that is answered");
        assert_eq!(answer[18..24], HOST.0);
        found.borrow_mut().push((ip.into(), mac));
        Ipv4Addr::from(ip) == last
    });
    found.into_inner()
}

fn question(target: Ipv4Addr) -> Vec<u8> {
    Arp::request((HOST, HOST4), target).frame(MacAddr::BROADCAST, HOST, &[0; 18])
}

/// Returns the packets that a node counts for its only attachment: sent, received.
fn counted(node: &Node, container: &str) -> [u64; 2] {
    let rows = node.get("attachments");
    let mut rows = rows.iter();
    let row = rows.find(|row| row["container"] == container);
    let row = row.expect("the attachment");
    ["fromPod", "toPod"].map(|way| row[way]["packets"].as_u64().expect("a number"))
}

#[test]
fn a_host_of_a_vlan_finds_pods_of_a_routed_network_by_asking() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let all = Segment::start(2, on_vlans);
    let (netns, uplink) = all.stranger(9);
    if !make_vlan(&netns, uplink, "vlan", GREEN) {
        testbed::skip::skip(testbed::test_name!(), "needs 8021q");
        return;
    }
    let ips: [(IpAddr, u8); 2] = [
        (HOST4.into(), 24),
        ("fd10:20::9".parse().expect("an address"), 64),
    ];
    let vlan = connection(&netns).by_name("vlan").expect("links");
    give(&netns, vlan.expect("the interface").ifindex, &ips);
    let host = as_port(&netns, "vlan", &ips);
    introduce_host(&all, &host);
    for node in &all.nodes {
        let pod = node.pod("a");
        let port = pod.attach("green", "net1");
        assert_meet(&port, &host);
        assert_carries(&host, &port);
        pod.detach("green", "net1");
    }
    for node in &all.nodes {
        node.assert_empty();
    }
}

/// Each of two nodes answers for its own pod only.
///
/// Neither answers for missing addresses, on another VLAN, for another network's address or for the
/// virtual gateway's.
#[test]
fn the_node_of_a_pod_answers_for_it_on_its_vlan_and_nobody_else_does() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let all = Segment::start(2, on_vlans);
    let pods = [all.nodes[0].pod("a"), all.nodes[1].pod("b")];
    let [a, b] = [0, 1].map(|index| pods[index].attach("green", "net1"));
    let other = all.nodes[0].pod("other");
    let blue = other.attach("blue", "net1");
    let (outside, _) = all.stranger(9);
    let wire = Tap::on(&outside, UPLINK);
    for frame in [
        tagged(&question(a.v4()), TAG, GREEN + 1),
        tagged(&question(a.v4()), TAG, BLUE),
        question(a.v4()),
        tagged(&question(blue.v4()), TAG, GREEN),
        tagged(&question(GATEWAY_V4), TAG, GREEN),
        tagged(&question([10, 20, 0, 250].into()), TAG, GREEN),
        tagged(&question(a.v4()), TAG, GREEN),
    ] {
        wire.send(&frame);
    }
    assert_eq!(answers(&wire, a.v4()), [(a.v4(), a.mac)]);
    // Had both answered for one, the answer of the wrong one would be before one of its own.
    wire.send(&tagged(&question(b.v4()), TAG, GREEN));
    assert_eq!(answers(&wire, b.v4()), [(b.v4(), b.mac)]);
    wire.send(&tagged(&question(a.v4()), TAG, GREEN));
    assert_eq!(answers(&wire, a.v4()), [(a.v4(), a.mac)]);
    // What has left is answered for no more.
    pods[0].detach("green", "net1");
    wire.send(&tagged(&question(a.v4()), TAG, GREEN));
    wire.send(&tagged(&question(b.v4()), TAG, GREEN));
    assert_eq!(answers(&wire, b.v4()), [(b.v4(), b.mac)]);
    pods[1].detach("green", "net1");
    other.detach("blue", "net1");
}

#[test]
fn a_question_from_the_wire_is_counted_and_told_and_a_lie_is_dropped() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let all = Segment::start(1, on_vlans);
    let node = &all.nodes[0];
    let pod = node.pod("a");
    let a = pod.attach("green", "net1");
    let (wire, unseen) = (all.tap(1), a.tap());
    let (host, own) = (format!("green/{HOST}"), HOST4.to_string());
    for (proto, source) in [("arp", own.as_str()), ("nd", "fd10:20::9")] {
        let told = node.explain(&host, "a", &["--proto", proto, "--source", source]);
        told.assert_is("answered", "");
        assert_eq!(*told.detail("mac"), a.mac.to_string());
    }
    let before = counted(node, "a");
    for _ in 0..ASKED {
        wire.send(&tagged(&question(a.v4()), TAG, GREEN));
        answers(&wire, a.v4());
    }
    wait::until_true("the count", || {
        let now = counted(node, "a").into_iter().zip(before);
        { now }.all(|(now, before)| now >= before + ASKED)
    });
    // An announcement of the pod's address, and a question in its name.
    let lie = a.v4().to_string();
    let told = node.explain(&host, "a", &["--proto", "arp", "--source", &lie]);
    told.assert_is("dropped", "spoofed_arp");
    let judge = Judge::new(node, "green", DropReason::SpoofedArp);
    let word = marker();
    let frame = Arp::request((HOST, a.v4()), a.v4()).frame(MacAddr::BROADCAST, HOST, &word);
    wire.send(&tagged(&frame, TAG, GREEN));
    judge.assert_dropped(&[&unseen], &word);
    let told = node.explain(
        &host,
        "a",
        &["--proto", "nd", "--source", &a.v6().to_string()],
    );
    told.assert_is("dropped", "spoofed_nd");
    let judge = Judge::new(node, "green", DropReason::SpoofedNd);
    let lie = neighbour_solicitation(a.v6(), a.v6(), a.v6(), HOST, &[]);
    wire.send(&tagged(&ethernet(a.mac, HOST, 0x86dd, &lie), TAG, GREEN));
    judge.assert_dropped(&[&unseen], &word);
    // Who is no member is answered, and brings no packets.
    let udp = ["--proto", "udp:9:9", "--source", &own];
    node.explain(&host, "a", &udp)
        .assert_is("dropped", "spoofed_ip");
    let judge = Judge::new(node, "green", DropReason::SpoofedIp);
    let word = marker();
    let packet = udp4(HOST4, a.v4(), (9, 9), &word);
    wire.send(&tagged(&ethernet(a.mac, HOST, 0x0800, &packet), TAG, GREEN));
    judge.assert_dropped(&[&unseen], &word);
    let gateway = format!("green/{GATEWAY_V4}");
    let told = node.explain(&host, &gateway, &["--proto", "arp", "--source", &own]);
    told.assert_is("node", "");
    pod.detach("green", "net1");
}

/// A router with a route to the subnet on the link, as it has for hosts there.
#[test]
fn nodes_of_a_routed_segment_answer_for_pods_with_their_own_mac_address() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let all = Segment::start(2, untagged);
    let pods = [all.nodes[0].pod("a"), all.nodes[1].pod("b")];
    let [a, b] = [0, 1].map(|index| pods[index].attach("green", "net1"));
    let (outside, _) = all.stranger(9);
    let wire = Tap::on(&outside, UPLINK);
    let node = |index: usize| link_mac(all.nodes[index].netns());
    wire.send(&tagged(&question(a.v4()), TAG, GREEN));
    wire.send(&question([10, 20, 0, 250].into()));
    for (index, port) in [&a, &b, &a].into_iter().enumerate() {
        wire.send(&question(port.v4()));
        assert_eq!(answers(&wire, port.v4()), [(port.v4(), node(index % 2))]);
    }
    // Its packets arrive, over both families.
    let mut there = connection(&outside);
    let link = there.by_name(UPLINK).expect("links").expect("the uplink");
    for (prefix, length) in [("10.20.0.0", 24), ("fd10:20::", 64)] {
        let prefix = prefix.parse().expect("an address");
        let route = Route::new(prefix, length, None, link.ifindex);
        there.add_route(&route).expect("a route");
    }
    let ips = testbed::Fabric::on_segment(9);
    let host = as_port(&outside, UPLINK, &ips.map(|ip| (ip, 24)));
    for port in [&a, &b] {
        let tap = port.tap();
        for (from, to) in testbed::traffic::pairs(&host, port) {
            let word = marker();
            testbed::traffic::shout(&host, from, (to, 9).into(), &word).expect("sent");
            tap.wait_marker("a packet of the router", &word);
        }
    }
    let told = all.nodes[0].explain(
        &format!("green/{HOST}"),
        "a",
        &["--proto", "arp", "--source", "10.98.0.9"],
    );
    told.assert_is("answered", "");
    assert_eq!(*told.detail("mac"), node(0).to_string());
    for pod in &pods {
        pod.detach("green", "net1");
    }
}

fn link_mac(netns: &Netns) -> MacAddr {
    let link = connection(netns).by_name(UPLINK).expect("links");
    let mac = link.expect("the uplink").mac;
    MacAddr(mac.expect("a MAC address"))
}
