//! Test egress by a network's uplink: pods have their own addresses outside.
//!
//! They are found there.

use std::net::IpAddr;

use agent_common::addr::{GATEWAY_MAC, MacAddr};
use agent_common::drop::DropReason;
use netdev::Route;
use testbed::frame::{Ipv4, ethernet, marker, udp4, udp6};
use testbed::host::{UPLINK, WORLD, connection};
use testbed::stream::Stream;
use testbed::{Network, Node, Port, Setup, Tap, traffic, wait};

use super::scene::{BEYOND, NODE, SUBNETS, attached, call, ip, settle_world};

const IPV4: u16 = 0x0800;
/// Of a network on the same uplink, and without egress.
const CLOSED: [&str; 2] = ["10.41.0.0/24", "fd41:41::/64"];

fn setup() -> Setup {
    Setup::empty()
        .args(&["--vtep", NODE[0], "--vtep", NODE[1]])
        .network(&open())
        .network(&Network::l3("closed", &CLOSED).id(2002).native())
}

fn open() -> Network {
    let open = Network::l3("open", &SUBNETS).id(2001);
    open.native().egress_by_uplink()
}

/// The world with routes back, as routers outside have to have.
fn settle(node: &Node) {
    settle_world(node);
    let (mut world, link) = node.host().world();
    for (subnets, via) in [SUBNETS, CLOSED]
        .into_iter()
        .flat_map(|it| it.into_iter().zip(NODE))
    {
        let (first, length) = subnets.split_once('/').expect("a prefix");
        let length = length.parse().expect("a length");
        let route = Route::new(ip(first), length, Some(ip(via)), link);
        world.add_route(&route).expect("a route back");
    }
}

/// The world as tests see pods.
fn world(node: &Node) -> Port {
    let outside = node.host().outside();
    let link = connection(outside).by_name(WORLD).expect("links");
    Port {
        netns: outside.clone(),
        container: "the world".to_owned(),
        network: String::new(),
        ifname: WORLD.to_owned(),
        mac: MacAddr(link.expect("the link").mac.expect("a MAC address")),
        ips: BEYOND.map(ip).into_iter().zip([24, 64]).collect(),
        result: serde_json::Value::Null,
    }
}

#[test]
fn the_world_sees_a_pods_own_address_and_reaches_it() {
    let node = testbed::node!(setup());
    settle(&node);
    let ((pa, a), (pb, b)) = (attached(&node, "a", "open"), attached(&node, "b", "open"));
    let world = world(&node);
    for (here, there) in traffic::pairs(&a, &world) {
        let seen = call(&a.netns, &world.netns, there, 8080);
        assert_eq!(seen, here, "no address is translated");
        let moved = traffic::tcp_round_trip(&a, &world, there, 20 << 20);
        assert!(moved.is_ok(), "{there}: {moved:?}");
    }
    traffic::assert_reaches(&a, &world);
    traffic::assert_reaches(&world, &a);
    traffic::assert_reaches(&a, &b);
    let tap = Tap::on(&world.netns, WORLD);
    let word = marker();
    traffic::shout(&a, a.v4().into(), (ip(BEYOND[0]), 9).into(), &word).expect("sent");
    let frame = tap.wait_marker("a packet of the pod", &word);
    assert_eq!(frame[..6], world.mac.0, "to the router");
    assert_eq!(frame[22], 63, "a hop less");
    assert!(
        super::scene::gateway_links(&node).is_empty(),
        "no namespace is on the way"
    );
    for pod in [&pa, &pb] {
        pod.detach("open", "eth0");
    }
    node.assert_empty();
}

/// Packets for inner addresses, and those of isolated pods, do not leave.
#[test]
fn what_is_not_for_the_outside_does_not_leave() {
    let node = testbed::node!(setup());
    settle(&node);
    let ((pa, a), (pc, c)) = (attached(&node, "a", "open"), attached(&node, "c", "closed"));
    let outside = Tap::on(node.host().outside(), WORLD);
    let to = |ip: [u8; 4], word: &[u8]| udp4(a.v4(), ip.into(), (9, 9), word);
    let v6 = |ip: &str, word: &[u8]| udp6(a.v6(), ip.parse().expect("an address"), (9, 9), word);
    let spent = |word: &[u8]| {
        let ip = Ipv4 {
            ttl: 1,
            ..Ipv4::new(a.v4(), [192, 0, 2, 2].into(), 17)
        };
        ip.packet(&udp4(a.v4(), [192, 0, 2, 2].into(), (9, 9), word)[20..])
    };
    let own = a.tap();
    type Of<'a> = Box<dyn Fn(&[u8]) -> Vec<u8> + 'a>;
    let lies: [(&str, DropReason, u16, Of<'_>); 7] = [
        (
            "a free address",
            DropReason::NoEndpoint,
            IPV4,
            Box::new(|it| to([10, 40, 0, 99], it)),
        ),
        (
            "the same",
            DropReason::NoEndpoint,
            0x86dd,
            Box::new(|it| v6("fd40:40::99", it)),
        ),
        (
            "this link",
            DropReason::LinkLocal,
            IPV4,
            Box::new(|it| to([169, 254, 7, 7], it)),
        ),
        (
            "a group",
            DropReason::Multicast,
            IPV4,
            Box::new(|it| to([224, 0, 0, 9], it)),
        ),
        (
            "itself",
            DropReason::NoEndpoint,
            IPV4,
            Box::new(|it| to([127, 0, 0, 1], it)),
        ),
        ("no hop left", DropReason::Ttl, IPV4, Box::new(spent)),
        (
            "another's address",
            DropReason::SpoofedIp,
            IPV4,
            Box::new(|it| udp4([10, 40, 0, 99].into(), [192, 0, 2, 2].into(), (9, 9), it)),
        ),
    ];
    for (what, reason, ether_type, packet) in lies {
        let (word, before) = (marker(), node.drops().of("open", reason));
        own.send(&ethernet(GATEWAY_MAC, a.mac, ether_type, &packet(&word)));
        wait::until_true(&format!("{what} to be dropped as {reason}"), || {
            node.drops().of("open", reason) > before
        });
        assert_eq!(outside.count(&word), 0, "{what}");
    }
    let before = node.drops().of("closed", DropReason::NoEndpoint);
    let word = marker();
    traffic::shout(&c, c.v4().into(), (ip(BEYOND[0]), 9).into(), &word).expect("sent");
    wait::until_true("the drop", || {
        node.drops().of("closed", DropReason::NoEndpoint) > before
    });
    assert_eq!(outside.count(&word), 0, "a network without egress");
    let told = node.explain("a", "10.40.0.99", &[]);
    told.assert_is("dropped", "no_endpoint");
    let told = node.explain("a", BEYOND[0], &[]);
    told.assert_is("wired", "");
    assert_eq!(*told.detail("router"), BEYOND[0]);
    assert_eq!(*told.detail("uplink"), UPLINK);
    let told = node.explain("a", BEYOND[1], &["--proto", "udp:9"]);
    assert_eq!(*told.detail("router"), BEYOND[1]);
    pa.detach("open", "eth0");
    pc.detach("closed", "eth0");
}

/// The way is that of the node's default routes, and follows them.
#[test]
fn a_default_route_that_goes_or_comes_is_followed() {
    let node = testbed::node!(setup());
    settle(&node);
    let (pod, a) = attached(&node, "a", "open");
    let mut here = connection(node.netns());
    let link = here.by_name(UPLINK).expect("links").expect("the uplink");
    let removed = here.remove_default_routes(link.ifindex, true);
    assert_eq!(removed.expect("removed"), 1);
    let shout = |word: &[u8]| {
        let sent = traffic::shout(&a, a.v4().into(), (ip(BEYOND[0]), 9).into(), word);
        sent.expect("sent");
    };
    wait::until_true("packets to be dropped for want of a router", || {
        let before = node.drops().of("open", DropReason::NoUplink);
        shout(b"lost");
        node.drops().of("open", DropReason::NoUplink) > before
    });
    node.explain("a", BEYOND[0], &[])
        .assert_is("dropped", "no_uplink");
    let seen = call(&a.netns, node.host().outside(), ip(BEYOND[1]), 8080);
    assert_eq!(seen, IpAddr::from(a.v6()), "the other family goes on");
    let route = Route::default_via(ip(BEYOND[0]), link.ifindex);
    here.add_route(&route).expect("a default route");
    let tap = Tap::on(node.host().outside(), WORLD);
    wait::until_true("a packet outside", || {
        let word = marker();
        shout(&word);
        tap.count(&word) > 0
    });
    pod.detach("open", "eth0");
    node.assert_empty();
}

#[test]
fn restarts_under_traffic_to_the_outside_lose_nothing() {
    let node = testbed::node!(setup());
    settle(&node);
    let (pod, a) = attached(&node, "a", "open");
    let world = world(&node);
    for (here, there) in traffic::pairs(&a, &world) {
        let stream = Stream::start(&a, here, &world, there);
        stream.through_restarts(std::slice::from_ref(&node));
        stream.assert_nothing_lost();
    }
    pod.detach("open", "eth0");
}

/// `Masquerade` on a network with an uplink uses the node's own route and address.
#[test]
fn pods_of_networks_with_an_uplink_get_out_as_the_node_where_that_is_asked_for() {
    let vlan = Network::l3("vlan", &SUBNETS).id(2001).vlan(100).egress();
    let native = Network::l3("native", &CLOSED).id(2002).native().egress();
    let node = testbed::node!(
        Setup::empty()
            .args(&["--vtep", NODE[0], "--vtep", NODE[1]])
            .network(&vlan)
            .network(&native)
    );
    settle_world(&node);
    for network in ["vlan", "native"] {
        let (pod, port) = attached(&node, network, network);
        super::scene::assert_gets_out(&node, &port);
        pod.detach(network, "eth0");
    }
    node.assert_empty();
    super::scene::assert_closed(&node);
}

#[test]
fn egress_by_an_uplink_that_leads_no_packets_back_is_refused_by_its_field() {
    let over = |name| Network::l3(name, &SUBNETS).egress_by_uplink();
    let node = testbed::node!(
        Setup::empty()
            .args(&["--vtep", NODE[0]])
            .network(&over("local").id(2001))
            .network(&over("vxlan").id(2002).vxlan())
            .network(&over("vlan").id(2003).vlan(100))
            .network(
                &Network::l2("flat", &SUBNETS)
                    .id(2004)
                    .native()
                    .egress_by_uplink()
            )
    );
    for (network, words) in [
        (
            "local",
            ["spec.egress", "transport Native", "this is Local"],
        ),
        (
            "vxlan",
            ["spec.egress", "transport Native", "this is VXLAN"],
        ),
        (
            "vlan",
            ["spec.egress", "transport Native", "mode L2 with a router"],
        ),
        ("flat", ["spec.egress", "mode L3", "routing Isolated"]),
    ] {
        let failure = node.pod(network).add(network, "eth0").error();
        failure.names(&words);
    }
    node.assert_empty();
}
