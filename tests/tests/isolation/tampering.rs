//! A pod that is root in its namespace changes its interface.

use std::net::IpAddr;

use agent_common::addr::{GATEWAY_MAC, MacAddr};
use agent_common::drop::DropReason;
use netdev::{Address, LinkChange};
use testbed::frame::marker;
use testbed::{Pod, Port, traffic, wait};

use super::scene::{NOBODY, Scene};

/// A pod that changes its MAC is silenced: everything it sends is spoofed.
#[test]
fn a_changed_mac_silences_the_pod() {
    let node = testbed::node!();
    let scene = Scene::set(&node, "blue", "red");
    let mine = scene.mallory.mac;
    for (mac, reason) in [(NOBODY, Some(DropReason::SpoofedMac)), (mine, None)] {
        let mut netlink = testbed::host::connection(&scene.mallory.netns);
        let ifindex = scene
            .mallory
            .link()
            .expect("the interface is there")
            .ifindex;
        let change = LinkChange {
            mac: Some(mac.0),
            ..LinkChange::default()
        };
        netlink
            .reconfigure(ifindex, &change)
            .expect("its own MAC is the pod's");
        let Some(reason) = reason else { continue };
        let before = node.drops().of("blue", reason);
        let alice = scene.alice.tap();
        let mark = marker();
        let to = (scene.alice.v4(), 9).into();
        traffic::shout(&scene.mallory, scene.mallory.v4().into(), to, &mark).expect("a datagram");
        wait::until_true("the drop to be counted", || {
            node.drops().of("blue", reason) > before
        });
        assert_eq!(alice.count(&mark), 0);
    }
    scene.close();
}

/// An address of somebody else's on the pod's own interface.
#[test]
fn a_stolen_address_does_not_work() {
    let node = testbed::node!();
    for (network, beside) in [("blue", "red"), ("green", "lime")] {
        let scene = Scene::set(&node, network, beside);
        let mut netlink = testbed::host::connection(&scene.mallory.netns);
        let ifindex = scene
            .mallory
            .link()
            .expect("the interface is there")
            .ifindex;
        for stolen in [IpAddr::from(scene.bob.v4()), scene.bob.v6().into()] {
            let length = if stolen.is_ipv4() { 24 } else { 64 };
            let address = Address::new(stolen, length);
            netlink
                .add_address(ifindex, address)
                .expect("its interface is the pod's");
            let reason = DropReason::SpoofedIp;
            let before = node.drops().of(network, reason);
            let alice = scene.alice.tap();
            let mark = marker();
            let to = if stolen.is_ipv4() {
                (IpAddr::from(scene.alice.v4()), 9)
            } else {
                (scene.alice.v6().into(), 9)
            };
            traffic::shout(&scene.mallory, stolen, to.into(), &mark).expect("a datagram");
            wait::until_true("the drop to be counted", || {
                node.drops().of(network, reason) > before
            });
            assert_eq!(alice.count(&mark), 0);
            // What is for Bob still goes to Bob.
            let bob = scene.bob.tap();
            let thief = scene.mallory.tap();
            let mark = marker();
            let to = (stolen, 9).into();
            let alices: IpAddr = if stolen.is_ipv4() {
                scene.alice.v4().into()
            } else {
                scene.alice.v6().into()
            };
            traffic::shout(&scene.alice, alices, to, &mark).expect("a datagram");
            bob.wait_marker("Bob's datagram", &mark);
            assert_eq!(thief.count(&mark), 0);
        }
        for port in [&scene.alice, &scene.bob, &scene.mallory, &scene.other] {
            node.gc(&port.network, &[]).silent();
        }
        drop(scene);
    }
    node.assert_empty();
}

fn removed(pod: &Pod<'_>, port: &Port) {
    let deleted = pod.netlink().delete_by_name(&port.ifname);
    assert!(deleted.expect("its own interface is the pod's"));
}

/// A pod that deletes its interface leaves the network at once.
///
/// Neither broadcast nor unicast may go to whatever gets the freed index next.
#[test]
fn a_deleted_interface_leaves_the_network() {
    let node = testbed::node!();
    let (a, b, c) = (node.pod("a"), node.pod("b"), node.pod("c"));
    let ports = [a.attach("blue", "net1"), b.attach("blue", "net1")];
    removed(&b, &ports[1]);
    wait::until_true("the endpoint to go", || {
        !node
            .get("endpoints")
            .iter()
            .any(|row| row["container"] == "b")
    });
    let tap = ports[0].tap();
    let before = node.drops().of("blue", DropReason::NoEndpoint);
    let mark = marker();
    let packet = testbed::frame::udp4(ports[0].v4(), ports[1].v4(), (5000, 9), &mark);
    let to_b = testbed::frame::ethernet(ports[1].mac, ports[0].mac, 0x0800, &packet);
    tap.send(&to_b);
    wait::until_true("the drop to be counted", || {
        node.drops().of("blue", DropReason::NoEndpoint) > before
    });
    let newcomer = c.attach("red", "net1");
    let watch = testbed::Watch::over(&node, &[&newcomer]);
    let before = node.drops().of("blue", DropReason::NoEndpoint);
    tap.send(&to_b);
    wait::until_true("the drop to be counted", || {
        node.drops().of("blue", DropReason::NoEndpoint) > before
    });
    watch.assert_unseen("a frame to a pod that was", &mark);
    for (pod, network) in [(&a, "blue"), (&b, "blue"), (&c, "red")] {
        pod.del(network, "net1").silent();
    }
    node.assert_empty();
}

/// The host end is no neighbour, from the moment the link comes up.
///
/// The node's stack has no address there and says nothing by it.
#[test]
fn the_node_says_nothing_into_a_pod() {
    let node = testbed::node!();
    let (a, b) = (node.pod("a"), node.pod("b"));
    for (network, routed) in [("blue", false), ("green", true)] {
        let ear = testbed::Tap::everything(a.netns());
        let (pa, pb) = (a.attach(network, "net1"), b.attach(network, "net1"));
        traffic::assert_reaches(&pa, &pb);
        // Loopback frames have no address at all.
        let known = [MacAddr([0; 6]), if routed { GATEWAY_MAC } else { pb.mac }];
        while let Some(frame) = ear.next() {
            let from = frame.get(6..12).unwrap_or_default();
            let fine = known.iter().any(|mac| mac.0 == from);
            assert!(fine, "{network}: from {from:02x?}: {frame:02x?}");
        }
        let host = pa.host_ifindex();
        let mut netlink = testbed::host::connection(node.netns());
        let addresses = netlink.addresses(host).expect("addresses can be read");
        assert!(addresses.is_empty(), "{addresses:?}");
        let name = netlink.by_index(host).expect("links can be read");
        let name = name.expect("the host end is there").name;
        let disabled = node.netns().run_in(|| {
            std::fs::read_to_string(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"))
        });
        let disabled = disabled.expect("the node's namespace can be entered");
        assert_eq!(
            disabled.expect("IPv6 is there").trim(),
            "1",
            "{name} speaks IPv6"
        );
        a.detach(network, "net1");
        b.detach(network, "net1");
    }
    node.assert_empty();
}

/// After DEL no packet goes to the pod's old place, and its address is free.
#[test]
fn a_detached_pod_hears_nothing_more() {
    let node = testbed::node!();
    let (a, b) = (node.pod("a"), node.pod("b"));
    let (pa, pb) = (a.attach("blue", "net1"), b.attach("blue", "net1"));
    traffic::assert_reaches(&pa, &pb);
    b.detach("blue", "net1");
    let tap = pa.tap();
    let before = node.drops().of("blue", DropReason::NoEndpoint);
    let packet = testbed::frame::udp4(pa.v4(), pb.v4(), (5000, 9), b"anybody?");
    tap.send(&testbed::frame::ethernet(pb.mac, pa.mac, 0x0800, &packet));
    wait::until_true("the drop to be counted", || {
        node.drops().of("blue", DropReason::NoEndpoint) > before
    });
    a.detach("blue", "net1");
    node.assert_empty();
}
