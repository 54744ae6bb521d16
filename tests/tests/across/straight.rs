//! Test tunnels that programs encapsulate themselves, and the device as a fallback.

use std::net::{IpAddr, Ipv4Addr};

use netdev::{Connection, Netns, Route, VethSpec};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_XFRM};
use testbed::host::{UPLINK, connection, remove_clsact};
use testbed::stream::Stream;
use testbed::{Fabric, Node, talk, traffic, wait};

use super::scene::{L2, L3, Nodes, Pair, Underlay, assert_meet};

const DEVICE: &str = "podnet-vxlan";

/// Returns the packets that the tunnel device of a node has sent.
///
/// Received ones say less: 5.10 has no flag to decapsulate a packet of one family from a header of the
/// other, and leaves these to the device.
fn by_device(node: &Node) -> u64 {
    sent_by(node, DEVICE)
}

/// Waits until packets of `pair` between two nodes go by the device, or do not.
#[track_caller]
fn wait_for(nodes: &Nodes, pair: &Pair<'_>, device: bool) {
    let way = if device { "by the device" } else { "straight" };
    for node in &nodes.nodes[..2] {
        wait::until_true(&format!("packets of {} to go {way}", node.name()), || {
            let before = by_device(node);
            traffic::assert_reaches(&pair.a, &pair.b);
            (by_device(node) != before) == device
        });
    }
}

#[test]
fn packets_between_nodes_pass_without_the_device() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    for underlay in [Underlay::V4, Underlay::V6] {
        let nodes = Nodes::start(2, underlay);
        for network in [L2[0], L3[0]] {
            let pair = Pair::attach(&nodes, network);
            let (a, b) = (&pair.a, &pair.b);
            // What is asked for all goes by the device.
            assert_meet(a, b);
            wait::until_true("packets to go straight", || {
                let sent = || by_device(&nodes.nodes[0]) + by_device(&nodes.nodes[1]);
                let before = sent();
                for (here, there) in traffic::pairs(a, b) {
                    traffic::udp_round_trip(a, here, b, there).expect("a round trip");
                    traffic::tcp_round_trip(a, b, there, 1 << 20).expect("whole megabytes");
                }
                sent() == before
            });
            let moved = [&nodes.nodes[0], &nodes.nodes[1]].map(|node| {
                let rows = node.get("attachments");
                rows[0]["toPod"]["bytes"].clone()
            });
            for bytes in moved {
                assert!(bytes.as_u64() > Some(2 << 20), "not counted: {bytes}");
            }
            pair.detach();
        }
    }
}

/// While the node has an IPsec policy, all tunnel packets go by the device.
///
/// A packet that bypasses the node's stack would meet no policy.
#[test]
fn with_ipsec_policies_all_goes_by_the_device() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    if Socket::new(NETLINK_XFRM).is_err() {
        testbed::skip::skip(testbed::test_name!(), "needs xfrm_user");
        return;
    }
    let nodes = Nodes::start(2, Underlay::V4);
    let pair = Pair::attach(&nodes, L2[0]);
    wait_for(&nodes, &pair, false);
    let (here, there) = traffic::pairs(&pair.a, &pair.b)[0];
    let stream = Stream::start(&pair.a, here, &pair.b, there);
    for node in &nodes.nodes {
        policy(node.netns(), XFRM_MSG_NEWPOLICY);
    }
    wait_for(&nodes, &pair, true);
    for node in &nodes.nodes {
        policy(node.netns(), XFRM_MSG_DELPOLICY);
    }
    wait_for(&nodes, &pair, false);
    stream.progress();
    stream.assert_nothing_lost();
    pair.detach();
}

/// Programs follow the routes of the node when another daemon changes them.
///
/// The first time nothing is sent before the link has its program: a kernel without TCX stops a link
/// for a moment when it gets its clsact qdisc.
#[test]
fn ways_follow_the_routes_of_the_node() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let nodes = Nodes::start(2, Underlay::V4);
    let pair = Pair::attach(&nodes, L2[0]);
    wait_for(&nodes, &pair, false);
    let second = second_link(&nodes, 1);
    let to = Route::new(Fabric::v4(2), 32, Some(SECOND_ROUTER.into()), second);
    let mut node = connection(nodes.nodes[0].netns());
    let goes_by_second = || {
        let before = sent_by(&nodes.nodes[0], "second");
        traffic::assert_reaches(&pair.a, &pair.b);
        sent_by(&nodes.nodes[0], "second") != before
    };
    let mut stream = None;
    for _ in 0..2 {
        node.add_route(&to).expect("a route");
        wait::until_true("the program on the other link", || {
            has_program(&nodes.nodes[0], &mut node, second)
        });
        wait::until_true("packets by the other link", goes_by_second);
        wait_for(&nodes, &pair, false);
        let (here, there) = traffic::pairs(&pair.a, &pair.b)[0];
        stream.get_or_insert_with(|| Stream::start(&pair.a, here, &pair.b, there));
        assert!(node.remove_route(&to).expect("no route"));
        wait::until_true("packets by the first link again", || !goes_by_second());
        wait_for(&nodes, &pair, false);
    }
    let stream = stream.expect("it was started");
    stream.progress();
    stream.assert_nothing_lost();
    assert!(node.delete(second).expect("links"));
    pair.detach();
}

/// Where the program is a filter, which others can take away.
#[test]
fn a_program_that_somebody_took_off_an_uplink_is_put_back() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let nodes = Nodes::start(2, Underlay::V4);
    let pair = Pair::attach(&nodes, L2[0]);
    wait_for(&nodes, &pair, false);
    let node = &nodes.nodes[0];
    let mut there = connection(node.netns());
    let uplink = there.by_name(UPLINK).expect("links").expect("the uplink");
    // One by a link is nobody's but ours, and no qdisc came to the node's interface.
    assert!(has_program(node, &mut there, uplink.ifindex));
    if !node.link_pin(uplink.ifindex).exists() {
        remove_clsact(node.netns(), uplink.ifindex);
        wait::until_true("the program", || {
            has_program(node, &mut there, uplink.ifindex)
        });
    }
    wait_for(&nodes, &pair, false);
    pair.detach();
}

/// Uninstalled, podnet leaves the node's interfaces as they were.
#[test]
fn cleanup_takes_the_program_off_the_uplink() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let nodes = Nodes::start(2, Underlay::V4);
    let pair = Pair::attach(&nodes, L2[0]);
    wait_for(&nodes, &pair, false);
    pair.detach();
    let node = &nodes.nodes[0];
    let mut there = connection(node.netns());
    let uplink = there.by_name(UPLINK).expect("links").expect("the uplink");
    node.terminate();
    let removed = node.cleanup(&[]);
    let removed = String::from_utf8_lossy(&removed.stdout).into_owned();
    let (filter, pin) = ("filter d_uplink of uplink", node.link_pin(uplink.ifindex));
    let named = |what: &str| removed.lines().any(|line| line.ends_with(what));
    assert!(
        named(filter) || named(&pin.display().to_string()),
        "{removed}"
    );
    assert_eq!(there.ingress_filters(uplink.ifindex).expect("filters"), []);
    assert!(!pin.exists());
}

/// The audit sees it too, while the agent runs.
#[test]
fn a_tunnel_device_that_is_removed_is_made_again() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let nodes = Nodes::start(2, Underlay::V4);
    let pair = Pair::attach(&nodes, L2[0]);
    let node = &nodes.nodes[0];
    let mut there = connection(node.netns());
    let gone = there.by_name(DEVICE).expect("links").expect("the device");
    there.delete(gone.ifindex).expect("removed");
    wait::until_true("the device", || {
        there.by_name(DEVICE).expect("links").is_some()
    });
    assert_meet(&pair.a, &pair.b);
    pair.detach();
}

/// Returns whether podnet's program is on an interface, by a TCX link or a filter.
fn has_program(node: &Node, there: &mut Connection, ifindex: u32) -> bool {
    let filters = there.ingress_filters(ifindex).expect("filters");
    node.link_pin(ifindex).exists() || !filters.is_empty()
}

const SECOND_ROUTER: Ipv4Addr = Ipv4Addr::new(10, 98, 0, 254);

/// Another link between a node and the fabric; its index at the node.
fn second_link(nodes: &Nodes, number: u8) -> u32 {
    let node = nodes.nodes[usize::from(number) - 1].netns();
    let mut here = connection(node);
    let mut spec = VethSpec::new("second", "second-far");
    spec.peer_netns = Some(nodes.fabric.netns().clone());
    let pair = here.create_veth(&spec).expect("a link");
    let mut there = connection(nodes.fabric.netns());
    let far = there.by_name("second-far").expect("links").expect("an end");
    there.set_up(far.ifindex).expect("up");
    let address = |ip: Ipv4Addr| netdev::Address::new(IpAddr::from(ip), 24);
    there
        .add_address(far.ifindex, address(SECOND_ROUTER))
        .expect("an address");
    here.set_up(pair.host_ifindex).expect("up");
    here.add_address(pair.host_ifindex, address(Ipv4Addr::new(10, 98, 0, 1)))
        .expect("an address");
    talk::wait_for_host(node, SECOND_ROUTER);
    pair.host_ifindex
}

/// Packets that an interface of a node has sent.
fn sent_by(node: &Node, name: &str) -> u64 {
    let read = || std::fs::read_to_string("/proc/thread-self/net/dev");
    let table = node.netns().run_in(read).expect("entered");
    let table = table.expect("a table of devices");
    let line = table
        .lines()
        .find_map(|it| it.trim().strip_prefix(&format!("{name}:")))
        .expect("the device");
    let sent = line.split_whitespace().nth(9).expect("a column");
    sent.parse().expect("a number")
}

// linux/xfrm.h
const XFRM_MSG_NEWPOLICY: u16 = 0x13;
const XFRM_MSG_DELPOLICY: u16 = 0x14;

/// Adds or removes an IPsec policy that allows packets to 203.0.113.0/24.
///
/// No packet is sent to that network (RFC 5737).
fn policy(netns: &Netns, kind: u16) {
    // struct xfrm_selector, which both messages begin with.
    let mut body = vec![0; 56];
    body[..4].copy_from_slice(&[203, 0, 113, 0]);
    body[40..42].copy_from_slice(&2_u16.to_ne_bytes());
    body[42] = 24;
    if kind == XFRM_MSG_NEWPOLICY {
        // struct xfrm_userpolicy_info: no lifetimes, direction out.
        body.resize(168, 0);
        body[160] = 1;
    } else {
        // struct xfrm_userpolicy_id: index, direction.
        body.resize(64, 0);
        body[60] = 1;
    }
    let length = u32::try_from(16 + body.len()).expect("short");
    let mut message = length.to_ne_bytes().to_vec();
    message.extend(kind.to_ne_bytes());
    // NLM_F_REQUEST, NLM_F_ACK, and to add: NLM_F_CREATE.
    let create = if kind == XFRM_MSG_NEWPOLICY { 0x400 } else { 0 };
    message.extend((5_u16 | create).to_ne_bytes());
    message.extend([0; 8]);
    message.extend(body);
    let socket = netns.run_in(|| Socket::new(NETLINK_XFRM));
    let socket = socket.expect("entered").expect("a socket");
    let kernel = SocketAddr::new(0, 0);
    socket.send_to(&message, &kernel, 0).expect("sent");
    let (answer, _) = socket.recv_from_full().expect("an answer");
    let code = answer.get(16..20).expect("an error code");
    assert_eq!(code, [0; 4], "refused");
}
