//! Test what is not reached: the node, other networks, and pods from outside.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use agent_common::addr::GATEWAY_MAC;
use agent_common::drop::DropReason;
use netdev::{Netns, Route};
use testbed::frame::{ethernet, marker, udp4};
use testbed::{Node, Port, Tap, Watch, nat, talk, traffic, wait};

use super::scene::{BEYOND, NODE, assert_gets_out, attached, ip, settle_world, setup};

/// A socket in a namespace.
fn socket(netns: &Netns, at: SocketAddr) -> UdpSocket {
    let bound = netns.run_in(|| UdpSocket::bind(at));
    bound.expect("entered").expect("a socket")
}

/// Sends to `to` from a pod, then to the world, and waits for the second.
///
/// When the world has it, the first was processed.
#[track_caller]
fn shout_and_wait(node: &Node, from: &Port, to: SocketAddr, mark: &[u8]) {
    let source = if to.is_ipv4() {
        from.v4().into()
    } else {
        from.v6().into()
    };
    // The kernel may know of an error already; that is as good as an end.
    let _ = traffic::shout(from, source, to, mark);
    let beyond = ip(BEYOND[usize::from(to.is_ipv6())]);
    let world = socket(node.host().outside(), SocketAddr::new(beyond, 0));
    world
        .set_read_timeout(Some(wait::PATIENCE))
        .expect("a timeout");
    let at = world.local_addr().expect("an address");
    traffic::shout(from, source, at, b"after that").expect("sent");
    world.recv(&mut [0; 64]).expect("the world hears the pod");
}

#[track_caller]
fn assert_silent(heard: &UdpSocket, what: &str) {
    heard.set_nonblocking(true).expect("a setting");
    let got = heard.recv_from(&mut [0; 64]);
    assert!(got.is_err(), "{what} heard {got:?}");
}

#[test]
fn a_pod_reaches_no_address_of_its_node_by_its_way_out() {
    let node = testbed::node!(setup());
    settle_world(&node);
    let (_white, served) = attached(&node, "w", "white");
    let (pod, port) = attached(&node, "a", "amber");
    let own: Vec<IpAddr> = NODE.map(ip).into_iter().chain(transit(&node)).collect();
    assert_eq!(own.len(), 4, "the uplink's and those towards the gateway");
    for address in own {
        let heard = socket(node.netns(), SocketAddr::new(address, 0));
        let to = heard.local_addr().expect("an address");
        shout_and_wait(&node, &port, to, &marker());
        assert_silent(&heard, "the node");
    }
    // What the node routes to is not outside either.
    for address in [served.v4().into(), served.v6().into()] {
        let heard = socket(&served.netns, SocketAddr::new(address, 0));
        let to = heard.local_addr().expect("an address");
        shout_and_wait(&node, &port, to, &marker());
        assert_silent(&heard, "a pod of the node's own network");
    }
    pod.detach("amber", "eth0");
}

/// The node's addresses towards the gateways.
fn transit(node: &Node) -> Vec<IpAddr> {
    let mut here = testbed::host::connection(node.netns());
    let mut found = Vec::new();
    for link in node.links() {
        if link.name.starts_with("podnet-e") {
            let addresses = here.addresses(link.ifindex).expect("a list");
            found.extend(addresses.into_iter().map(|address| address.ip));
        }
    }
    found
}

#[test]
fn a_service_of_the_node_is_not_reached_by_a_way_out() {
    let node = testbed::node!(setup());
    settle_world(&node);
    let (_pod, port) = attached(&node, "a", "amber");
    let beyond = ip(BEYOND[0]);
    let heard = socket(node.host().outside(), SocketAddr::new(beyond, 0));
    let behind = heard.local_addr().expect("an address");
    let service = SocketAddr::new(ip("198.51.100.9"), 53);
    nat::service(node.netns(), service, behind);
    shout_and_wait(&node, &port, service, &marker());
    assert_silent(&heard, "who is behind a Service");
}

#[test]
fn a_pod_reaches_no_pod_of_another_network_by_its_way_out() {
    let node = testbed::node!(setup());
    settle_world(&node);
    let ((_pa, a), (_pb, b)) = (attached(&node, "a", "amber"), attached(&node, "b", "ochre"));
    let (_pc, c) = attached(&node, "c", "ochre");
    let (_pd, d) = attached(&node, "d", "island");
    assert_eq!(a.ips, b.ips);
    let watch = Watch::over(&node, &[&b, &c, &d]);
    // An address that on this network nobody has, and on the other one a pod.
    for target in [c.v4().into(), c.v6().into()] {
        let mark = marker();
        let to = SocketAddr::new(target, 9);
        let before = node.drops().of("amber", DropReason::NoEndpoint);
        let source = if to.is_ipv4() {
            a.v4().into()
        } else {
            a.v6().into()
        };
        traffic::shout(&a, source, to, &mark).expect("sent");
        // The way out sends it back, where it ends and is counted.
        wait::until_true("the drop to be counted", || {
            node.drops().of("amber", DropReason::NoEndpoint) > before
        });
        watch.assert_unseen("what was for nobody", &mark);
    }
}

#[test]
fn the_world_reaches_neither_pods_nor_gateways_whatever_routes_it_has() {
    let node = testbed::node!(setup());
    settle_world(&node);
    let (_pod, port) = attached(&node, "a", "amber");
    assert_gets_out(&node, &port);
    let (mut world, link) = node.host().world();
    for (prefix, length, by) in [
        ("10.40.0.0", 24, NODE[0]),
        ("169.254.0.0", 16, NODE[0]),
        ("fd40:40::", 64, NODE[1]),
        ("fd70:6f64:6e65:7400::", 64, NODE[1]),
    ] {
        let route = Route::new(ip(prefix), length, Some(ip(by)), link);
        world.add_route(&route).expect("a route");
    }
    let inside = Tap::everything(&port.netns);
    let mut targets: Vec<IpAddr> = vec![port.v4().into(), port.v6().into()];
    for address in transit(&node) {
        // The gateway is beside the node.
        targets.push(match address {
            IpAddr::V4(v4) => IpAddr::V4((u32::from(v4) + 1).into()),
            IpAddr::V6(v6) => IpAddr::V6((u128::from(v6) + 1).into()),
        });
    }
    assert_eq!(targets.len(), 4);
    for target in targets {
        let v4 = target.is_ipv4();
        let own = socket(
            node.host().outside(),
            SocketAddr::new(ip(BEYOND[usize::from(!v4)]), 0),
        );
        let mark = marker();
        own.send_to(&mark, SocketAddr::new(target, 9))
            .expect("sent");
        // A later conversation over the same links: the datagram has been dealt with.
        assert_gets_out(&node, &port);
        assert_eq!(inside.count(&mark), 0, "{target} was reached");
        assert_silent(&own, "the world of an answer");
    }
}

/// Strangers that answer for a connection that no pod has.
#[test]
fn only_answers_to_what_a_pod_has_asked_come_in() {
    let node = testbed::node!(setup());
    settle_world(&node);
    let (_pod, port) = attached(&node, "a", "amber");
    let client = traffic::udp(&port, port.v4().into());
    let world = socket(node.host().outside(), SocketAddr::new(ip(BEYOND[0]), 0));
    let at = world.local_addr().expect("an address");
    client.send_to(b"question", at).expect("sent");
    world
        .set_read_timeout(Some(wait::PATIENCE))
        .expect("a timeout");
    let (_, from) = world.recv_from(&mut [0; 64]).expect("a question");
    assert_eq!(from.ip(), ip(NODE[0]));
    let stranger = socket(node.host().outside(), SocketAddr::new(ip(BEYOND[0]), 0));
    stranger.send_to(b"not asked", from).expect("sent");
    world.send_to(b"answer", from).expect("sent");
    let mut buffer = [0; 64];
    let (length, _) = client.recv_from(&mut buffer).expect("an answer");
    assert_eq!(&buffer[..length], b"answer");
    assert_silent(&client, "the pod of a stranger");
}

#[test]
fn a_pod_leaves_with_no_address_but_its_own_and_not_to_link_local_ones() {
    let node = testbed::node!(setup());
    settle_world(&node);
    let ((_pa, a), (_pb, b)) = (attached(&node, "a", "amber"), attached(&node, "b", "amber"));
    let watch = Watch::over(&node, &[&b]);
    for (source, to, reason) in [
        (b.v4(), BEYOND[0], DropReason::SpoofedIp),
        (a.v4(), "169.254.169.254", DropReason::LinkLocal),
        (a.v4(), "127.0.0.1", DropReason::NoEndpoint),
    ] {
        let mark = marker();
        let to = to.parse().expect("an address");
        let packet = udp4(source, to, (5000, 9), &mark);
        let before = node.drops().of("amber", reason);
        a.tap().send(&ethernet(GATEWAY_MAC, a.mac, 0x0800, &packet));
        wait::until_true("the drop to be counted", || {
            node.drops().of("amber", reason) > before
        });
        watch.assert_unseen("the frame", &mark);
    }
}

#[test]
fn a_pod_of_a_network_without_egress_gets_nowhere_beside_one_that_has_it() {
    let node = testbed::node!(setup());
    settle_world(&node);
    let ((_pa, a), (_pd, d)) = (
        attached(&node, "a", "amber"),
        attached(&node, "d", "island"),
    );
    assert_gets_out(&node, &a);
    let before = node.drops().of("island", DropReason::NoEndpoint);
    let to = SocketAddr::new(ip(BEYOND[0]), 9);
    traffic::shout(&d, d.v4().into(), to, &marker()).expect("sent");
    wait::until_true("the drop to be counted", || {
        node.drops().of("island", DropReason::NoEndpoint) > before
    });
}

/// By which the node does not reach the world either.
#[test]
fn without_a_default_route_on_the_node_nobody_gets_out_and_nobody_else_is_reached() {
    let node = testbed::node!(setup());
    settle_world(&node);
    let mut here = testbed::host::connection(node.netns());
    let uplink = here.by_name(testbed::host::UPLINK).expect("a look");
    let uplink = uplink.expect("the uplink").ifindex;
    for v4 in [true, false] {
        here.remove_default_routes(uplink, v4).expect("removed");
    }
    let (_pod, port) = attached(&node, "a", "amber");
    let heard = socket(node.host().outside(), SocketAddr::new(ip(BEYOND[0]), 0));
    let at = heard.local_addr().expect("an address");
    // On the link of the uplink still, but the node calls no link its uplink.
    traffic::shout(&port, port.v4().into(), at, &marker()).expect("sent");
    let refused = talk::tcp(node.netns(), at, node.host().outside(), at);
    assert!(refused.is_ok(), "the node itself reaches it: {refused:?}");
    assert_silent(&heard, "the world");
}
