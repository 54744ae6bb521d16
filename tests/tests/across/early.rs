//! Test XDP on the uplink: unwanted tunnel packets are dropped before the stack.
//!
//! Everything else passes as if there were no program.

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use agent_common::addr::{GATEWAY_MAC, MacAddr};
use agent_common::drop::DropReason;
use netdev::{Netns, XdpPrograms};
use testbed::frame::{ethernet, marker, udp4};
use testbed::host::{UPLINK, connection};
use testbed::wait::{self, PATIENCE};
use testbed::{Fabric, Node, Tap, talk, traffic};

use super::forged::{BLUE, GREEN, Judge, forge, inner};
use super::scene::{L2, L3, Nodes, Pair, Underlay, assert_meet};

/// Each option that says where, and what comes of it on a veth.
const MODES: [(&str, &str); 4] = [
    ("native", "native"),
    ("generic", "generic"),
    ("off", "tc"),
    ("auto", "tc"),
];

/// The XDP programs of a node's uplink.
fn programs(node: &Node) -> XdpPrograms {
    let mut there = connection(node.netns());
    let uplink = there.by_name(UPLINK).expect("links can be read");
    let ifindex = uplink.expect("the uplink").ifindex;
    there.xdp_programs(ifindex).expect("programs can be read")
}

/// Returns where the node's uplink drops packets, and the reason for that place.
fn said(node: &Node) -> (String, String) {
    let rows = node.get("uplinks");
    let [row] = &rows[..] else {
        unreachable!("one uplink, not {rows:?}")
    };
    assert_eq!(row["interface"], UPLINK);
    let text = |key: &str| row[key].as_str().expect("a text").to_owned();
    (text("mode"), text("because"))
}

/// Waits until the node says so.
#[track_caller]
fn wait_mode(node: &Node, mode: &str) {
    wait::until_true(&format!("{mode} to be said"), || {
        let rows = node.get("uplinks");
        rows.first().is_some_and(|row| row["mode"] == mode)
    });
}

/// Returns the packets from tunnels that a node has dropped.
fn unwanted(node: &Node) -> u64 {
    let drops = node.drops();
    let reasons = [
        DropReason::UnknownNode,
        DropReason::UnknownNetwork,
        DropReason::Malformed,
        DropReason::SpoofedMac,
        DropReason::SpoofedIp,
    ];
    let networks = ["", L2[0], L3[0]];
    let each = networks
        .iter()
        .flat_map(|network| reasons.map(|it| drops.of(network, it)));
    each.sum()
}

fn forged_ends(underlay: Underlay, (option, mode): (&str, &str)) {
    let nodes = Nodes::start_with(2, underlay, &["--xdp", option]);
    let (here, there) = (&nodes.nodes[0], &nodes.nodes[1]);
    let target = match underlay {
        Underlay::V4 => Fabric::v4(2),
        Underlay::V6 => Fabric::v6(2),
    };
    let named = [(L2[0], ["a", "b"]), (L3[0], ["c", "d"])];
    let pairs = named.map(|(network, names)| Pair::named(&nodes, network, names));
    let uplink = Tap::on(there.netns(), UPLINK);
    let fabric = nodes.fabric.netns();
    let nobody = MacAddr([2, 0, 0, 0, 0, 0x66]);
    let [(a, b), (c, d)] = pairs.each_ref().map(|pair| (&pair.a, &pair.b));
    let word = marker();
    let l2 = |from: MacAddr, to: MacAddr| inner(from, to, a, b, &word);
    let l3 = |source| {
        ethernet(
            d.mac,
            GATEWAY_MAC,
            0x0800,
            &udp4(source, d.v4(), (9, 9), &word),
        )
    };
    let cases: [(&Netns, u32, Vec<u8>, &str, DropReason); 6] = [
        (fabric, BLUE, l2(a.mac, b.mac), "", DropReason::UnknownNode),
        (
            here.netns(),
            0x00ff_ffff,
            l2(a.mac, b.mac),
            "",
            DropReason::UnknownNetwork,
        ),
        (
            here.netns(),
            BLUE,
            l2(nobody, b.mac),
            L2[0],
            DropReason::SpoofedMac,
        ),
        (
            here.netns(),
            BLUE,
            l2(a.mac, nobody),
            L2[0],
            DropReason::NoEndpoint,
        ),
        (
            here.netns(),
            GREEN,
            l3(d.v4()),
            L3[0],
            DropReason::SpoofedIp,
        ),
        (
            here.netns(),
            GREEN,
            l3([10, 20, 0, 250].into()),
            L3[0],
            DropReason::SpoofedIp,
        ),
    ];
    let (taps, total) = ([b.tap(), d.tap()], cases.len());
    for (netns, vni, frame, network, reason) in cases {
        let judge = Judge::new(there, network, reason);
        forge(netns, target, vni, &frame);
        judge.assert_dropped(&[&taps[0], &taps[1]], &word);
    }
    // XDP comes before who listens at the interface, and a filter behind.
    let seen = uplink.count(&word);
    assert_eq!(seen, if mode == "tc" { total } else { 0 }, "{option}");
    let (said, because) = said(there);
    assert_eq!(said, mode, "{because}");
    let programs = programs(there);
    assert_eq!(programs.native.is_some(), mode == "native", "{programs:?}");
    assert_eq!(
        programs.generic.is_some(),
        mode == "generic",
        "{programs:?}"
    );
    // What is legal passes, in both directions, whole.
    let count = || [here, there].map(unwanted);
    let before = count();
    for (from, to) in [(a, b), (c, d)] {
        traffic::assert_reaches(from, to);
        for (_, address) in traffic::pairs(from, to) {
            let moved = traffic::tcp_round_trip(from, to, address, 4 << 20);
            assert!(
                moved.is_ok(),
                "{option}, {underlay:?}, {address}: {moved:?}"
            );
        }
    }
    assert_eq!(count(), before, "{option}");
    let (status, metrics) = there.http("/metrics").expect("metrics");
    let line = format!("podnet_uplink_drop_mode{{interface=\"{UPLINK}\",mode=\"{mode}\"}} 1");
    assert!(status == 200 && metrics.contains(&line), "{metrics}");
    let (_, state) = there.http("/debug/state").expect("state");
    assert!(state.contains(&because), "{state}");
}

#[test]
fn forged_tunnels_end_at_the_uplink_in_every_mode_and_legal_ones_pass() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    for mode in MODES {
        forged_ends(Underlay::V4, mode);
    }
}

#[test]
fn forged_tunnels_over_ipv6_end_at_the_uplink_in_every_mode_and_legal_ones_pass() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    for mode in MODES {
        forged_ends(Underlay::V6, mode);
    }
}

/// A datagram to `to` in `there`, whole, from wherever `here` is.
#[track_caller]
fn assert_datagram(here: &Netns, there: &Netns, to: SocketAddr, payload: &[u8]) {
    let any: IpAddr = if to.is_ipv4() {
        [0; 4].into()
    } else {
        [0_u16; 8].into()
    };
    let sink = talk::bound(there, || UdpSocket::bind(to)).expect("a socket");
    sink.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let source = here
        .run_in(|| UdpSocket::bind((any, 0)))
        .expect("entered")
        .expect("a socket");
    source.send_to(payload, to).expect("sent");
    let mut buffer = [0; 8192];
    let length = sink.recv(&mut buffer).expect("a datagram");
    assert_eq!(&buffer[..length], payload, "{to}");
}

/// ICMP says that there is no listener.
#[track_caller]
fn assert_unreachable(here: &Netns, to: SocketAddr) {
    let any: IpAddr = if to.is_ipv4() {
        [0; 4].into()
    } else {
        [0_u16; 8].into()
    };
    let socket = here
        .run_in(|| UdpSocket::bind((any, 0)))
        .expect("entered")
        .expect("a socket");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    socket.connect(to).expect("connected");
    socket.send(b"anybody").expect("sent");
    let refused = socket.recv(&mut [0; 8]).expect_err("nobody answers");
    assert_eq!(
        refused.kind(),
        ErrorKind::ConnectionRefused,
        "{to}: {refused}"
    );
}

#[track_caller]
fn assert_tcp(here: &Netns, there: &Netns, to: SocketAddr) {
    let bytes: Vec<u8> = (0..=u8::MAX).cycle().take(2 << 20).collect();
    let listener = there
        .run_in(|| TcpListener::bind(to))
        .expect("entered")
        .expect("a listener");
    thread::scope(|scope| {
        let echo = scope.spawn(|| {
            let (mut stream, _) = listener.accept().expect("a connection");
            stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
            let mut received = vec![0; bytes.len()];
            stream.read_exact(&mut received).expect("what was sent");
            stream.write_all(&received).expect("written");
        });
        let stream = here.run_in(|| TcpStream::connect_timeout(&to, PATIENCE));
        let mut stream = stream.expect("entered").expect("connected");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.write_all(&bytes).expect("written");
        let mut received = vec![0; bytes.len()];
        stream.read_exact(&mut received).expect("what came back");
        assert!(received == bytes, "{to}: other bytes");
        echo.join().expect("the echo thread does not panic");
    });
}

/// Issue 5: it never touches the node's own traffic.
#[test]
fn the_nodes_own_traffic_is_not_touched() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    for option in ["native", "generic"] {
        let nodes = Nodes::start_with(2, Underlay::V4, &["--xdp", option]);
        let pair = Pair::attach(&nodes, L2[0]);
        let (node, world) = (&nodes.nodes[1], nodes.fabric.netns());
        wait_mode(node, option);
        let (a, b) = (&pair.a, &pair.b);
        let header = [8, 0, 0, 0, 0, 0, 0x42, 0];
        let foreign = [&header[..], &inner(a.mac, b.mac, a, b, &marker())[..]].concat();
        for own in [Fabric::v4(2), Fabric::v6(2)] {
            let at = |port| SocketAddr::new(own, port);
            assert_tcp(world, node.netns(), at(2222));
            assert_datagram(world, node.netns(), at(5353), b"a question");
            // The same bytes on the port of somebody else's VXLAN.
            assert_datagram(world, node.netns(), at(8472), &foreign);
            // In fragments, of which only the first has a port.
            assert_datagram(world, node.netns(), at(5353), &[7; 4000]);
            assert_datagram(
                node.netns(),
                world,
                SocketAddr::new(gateway(own), 5353),
                &[7; 4000],
            );
            assert_unreachable(world, at(9));
            assert_unreachable(node.netns(), SocketAddr::new(gateway(own), 9));
        }
        assert_eq!(unwanted(node), 0);
        assert_meet(a, b);
        pair.detach();
    }
}

/// The fabric's address on the link of node 2.
fn gateway(own: IpAddr) -> IpAddr {
    match own {
        IpAddr::V4(it) => {
            let [a, b, c, _] = it.octets();
            [a, b, c, 254].into()
        }
        IpAddr::V6(it) => {
            let [a, b, c, d, ..] = it.segments();
            [a, b, c, d, 0, 0, 0, 0xfe].into()
        }
    }
}

/// Between two forged packets.
const PACE: Duration = Duration::from_micros(500);

/// Sends forged packets until it is told to stop, and says how many.
fn forge_until(stop: &AtomicBool, sent: &AtomicU64, fabric: &Netns, frame: &[u8]) {
    while !stop.load(Ordering::Relaxed) {
        forge(fabric, Fabric::v4(2), BLUE, frame);
        sent.fetch_add(1, Ordering::Relaxed);
        // The link's own queue, of 256 frames, must not be what loses them.
        thread::sleep(PACE);
    }
}

#[test]
fn restarts_and_upgrades_leave_no_gap() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let nodes = Nodes::start_with(2, Underlay::V4, &["--xdp", "native"]);
    let pair = Pair::attach(&nodes, L2[0]);
    let node = &nodes.nodes[1];
    wait_mode(node, "native");
    let attached = programs(node);
    let word = marker();
    let (a, b) = (&pair.a, &pair.b);
    let frame = inner(a.mac, b.mac, a, b, &word);
    let uplink = Tap::on(node.netns(), UPLINK);
    let unknown = || node.drops().of("", DropReason::UnknownNode);
    let before = unknown();
    let (stop, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let more = || {
        let now = sent.load(Ordering::Relaxed);
        wait::until_true("more forged packets", || {
            sent.load(Ordering::Relaxed) > now + 20
        });
    };
    thread::scope(|scope| {
        scope.spawn(|| forge_until(&stop, &sent, nodes.fabric.netns(), &frame));
        more();
        node.kill_9();
        more();
        node.start_agent();
        more();
        node.terminate();
        more();
        node.start_agent();
        more();
        stop.store(true, Ordering::Relaxed);
    });
    wait::until_true("each to be counted", || {
        unknown() == before + sent.load(Ordering::Relaxed)
    });
    assert_eq!(programs(node), attached);
    // Maps of another layout are other programs behind the same dispatcher.
    stop.store(false, Ordering::Relaxed);
    thread::scope(|scope| {
        scope.spawn(|| forge_until(&stop, &sent, nodes.fabric.netns(), &frame));
        more();
        node.kill_9();
        node.start_agent_with(&["--max-ports", "100"]);
        more();
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(programs(node), attached);
    assert_eq!(uplink.count(&word), 0, "the stack has seen some");
    assert_meet(a, b);
    pair.detach();
}

/// Another mode replaces the one before, and a removed pin is made again.
#[test]
fn the_mode_follows_the_option() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let nodes = Nodes::start(2, Underlay::V4);
    let pair = Pair::attach(&nodes, L2[0]);
    let node = &nodes.nodes[1];
    let (mode, because) = said(node);
    assert!(
        mode == "tc" && because.contains("veth"),
        "{mode}: {because}"
    );
    for mode in ["native", "generic", "native", "off"] {
        node.terminate();
        node.start_agent_with(&["--xdp", mode]);
        wait_mode(node, if mode == "off" { "tc" } else { mode });
        let there = programs(node);
        assert_eq!(there.native.is_some(), mode == "native", "{there:?}");
        assert_eq!(there.generic.is_some(), mode == "generic", "{there:?}");
        assert_meet(&pair.a, &pair.b);
        if mode == "native" {
            let links = fs::read_dir(node.bpffs().join("links")).expect("pins");
            let paths = links.map(|it| it.expect("a pin").path());
            let pins: Vec<_> = paths
                .filter(|it| it.to_string_lossy().contains("xdp-"))
                .collect();
            assert_eq!(pins.len(), 1, "{pins:?}");
            node.terminate();
            fs::remove_file(&pins[0]).expect("removed");
            wait::until_true("the kernel to take it off", || {
                programs(node).any().is_none()
            });
            node.start_agent_with(&["--xdp", mode]);
            wait_mode(node, mode);
            assert!(programs(node).native.is_some());
        }
    }
    pair.detach();
}

/// Pins that this agent does not know belong to others, and so do their programs.
#[test]
fn a_program_of_somebody_else_stays_and_the_filter_drops_instead() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    // No link in front of the filters of pods: that would stay with its pin, too.
    let nodes = Nodes::start_with(2, Underlay::V4, &["--tcx-after", "3600"]);
    let pair = Pair::attach(&nodes, L2[0]);
    let node = &nodes.nodes[1];
    node.terminate();
    node.start_agent_with(&["--xdp", "native"]);
    wait_mode(node, "native");
    let foreign = programs(node);
    let mut elsewhere = node.bpffs().as_os_str().to_owned();
    elsewhere.push("-foreign");
    node.terminate();
    fs::rename(node.bpffs(), &elsewhere).expect("pins that move");
    for mode in ["native", "generic"] {
        node.start_agent_with(&["--xdp", mode]);
        wait_mode(node, "tc");
        let (_, because) = said(node);
        assert!(because.contains("another XDP program"), "{because}");
        assert_eq!(programs(node), foreign);
        node.terminate();
    }
    node.start_agent_with(&["--xdp", "native"]);
    assert_meet(&pair.a, &pair.b);
    // Nor does an end of podnet end it.
    node.terminate();
    let cleaned = node.cleanup(&[]);
    assert!(cleaned.status.success(), "{cleaned:?}");
    assert_eq!(programs(node), foreign);
    fs::remove_dir_all(&elsewhere).expect("pins that go");
    wait::until_true("the kernel to take it off", || {
        programs(node).any().is_none()
    });
}
