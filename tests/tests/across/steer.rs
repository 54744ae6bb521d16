//! Test XDP on the uplink that steers tunnelled frames to ports that are sockets.
//!
//! The program takes them out of their tunnel and gives them to the port's link. The fabric's ends give
//! finished frames, as a wire does.

use agent_common::addr::MacAddr;
use agent_common::drop::DropReason;
use netdev::Offloads;
use testbed::afxdp::{Echo, open};
use testbed::frame::{ethernet, marker, tagged, udp4};
use testbed::host::{UPLINK, connection};
use testbed::manifest::attachment;
use testbed::stream::Stream;
use testbed::tap::contains;
use testbed::{Fabric, MemifApp, Node, Pod, Port, Tap, limit, traffic, wait};
use xsk::Verdict;

use super::forged::{BLUE, Judge, RED, forge, inner};
use super::scene::{L2, L3, Nodes, Underlay, assert_meet, introduce, wait_uplinks};

const PORT: u16 = 4242;
/// Kinds of ports that are sockets.
const SOCKETS: [&str; 2] = ["AFXDP", "Memif"];
const STEERED: [&str; 4] = ["--xdp", "native", "--xdp-steer", "always"];

/// Two nodes whose links to each other show frames as they are on a wire.
fn nodes(underlay: Underlay, args: &[&str]) -> Nodes {
    let nodes = Nodes::start_by(2, underlay, |setup| {
        let mut setup = setup.args(args);
        for kind in SOCKETS {
            for network in [L2[0], L3[0]] {
                let (name, spec) = (
                    object(kind, network),
                    format!("{{interface: {{type: {kind}}}}}"),
                );
                setup = setup.file(&format!("{name}.yaml"), &attachment(&name, network, &spec));
            }
        }
        setup
    });
    let fabric = nodes.fabric.netns();
    let mut offloads = fabric
        .run_in(Offloads::open)
        .expect("entered")
        .expect("a socket");
    for number in [1, 2] {
        let link = connection(fabric).by_name(&Fabric::link(number));
        let link = link.expect("links").expect("an end");
        offloads
            .finish_packets(link.ifindex)
            .expect("a feature that may be changed");
    }
    nodes
}

fn object(kind: &str, network: &str) -> String {
    format!("{kind}-{network}").to_lowercase()
}

/// A kernel's port on the first node, and one of this kind on the second.
fn attach<'a>(nodes: &'a Nodes, kind: &str, network: &str) -> ([Pod<'a>; 2], [Port; 2]) {
    let [here, there] = [&nodes.nodes[0], &nodes.nodes[1]];
    let pods = [here.pod("a"), there.pod("fast")];
    let conf = there.attachment_conf(network, &object(kind, network));
    let ports = [
        pods[0].attach(network, "net1"),
        pods[1].attach_conf(&conf, "net1"),
    ];
    wait_uplinks(&nodes.nodes[..2]);
    (pods, ports)
}

/// Packets that a port was given.
fn given(node: &Node, port: &Port) -> u64 {
    let rows = node.get("attachments");
    let row = rows
        .iter()
        .find(|row| row["container"] == port.container.as_str());
    let packets = &row.expect("its row")["toPod"]["packets"];
    packets.as_u64().expect("a number")
}

#[track_caller]
fn wait_steers(node: &Node, steers: bool) {
    wait::until_true(&format!("steering to be {steers}"), || {
        let rows = node.get("uplinks");
        rows.first().is_some_and(|row| row["steers"] == steers)
    });
}

/// Sends datagrams of all sizes to an echo; returns those seen by the node's stack.
#[track_caller]
fn seen_of_echoed(nodes: &Nodes, from: &Port, fast: &Port) -> usize {
    let uplink = Tap::on(nodes.nodes[1].netns(), UPLINK);
    let echo = Echo::start(vec![open(fast, 0)]);
    let socket = traffic::udp(from, from.v4().into());
    let (word, mut buffer) = (marker(), [0; 2048]);
    let before = given(&nodes.nodes[1], fast);
    for length in LENGTHS {
        let payload: Vec<u8> = word.iter().copied().cycle().take(length).collect();
        socket.send_to(&payload, (fast.v4(), PORT)).expect("sent");
        let (came, _) = socket.recv_from(&mut buffer).expect("an answer");
        assert_eq!(buffer[..came], payload[..]);
    }
    assert_eq!(echo.stop(), LENGTHS.len() as u64);
    wait::until_true("each to be counted once", || {
        given(&nodes.nodes[1], fast) == before + LENGTHS.len() as u64
    });
    uplink.count(&word)
}

/// The largest is that of a network with the MTU that fits the fabric.
const LENGTHS: [usize; 4] = [12, 100, 999, 1400];

#[test]
fn frames_for_an_af_xdp_port_go_past_the_nodes_stack() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    for underlay in [Underlay::V4, Underlay::V6] {
        let nodes = nodes(underlay, &STEERED);
        for network in [L2[0], L3[0]] {
            let (pods, [a, fast]) = attach(&nodes, "AFXDP", network);
            wait_steers(&nodes.nodes[1], true);
            // As long as no program has the queue, the pod's own stack does.
            assert_meet(&a, &fast);
            assert_eq!(
                seen_of_echoed(&nodes, &a, &fast),
                0,
                "{underlay:?} {network}"
            );
            let from = format!("{network}/{}", a.v4());
            let told = nodes.nodes[1].explain(&from, "fast", &["--proto", "udp:5000:9"]);
            told.assert_is("delivered", "");
            told.assert_tells(&["xdp_uplink on uplink"]);
            pods[0].detach(network, "net1");
            pods[1].detach(network, "net1");
        }
    }
}

/// Kernel ports and ports with a rate are not steered to, and work as before.
///
/// The queue of a rate has to see the packets.
#[test]
fn ports_with_a_rate_and_kernel_ports_are_not_steered_to() {
    if testbed::skip::without_root(testbed::test_name!())
        || testbed::skip::without_shaping(testbed::test_name!())
    {
        return;
    }
    let nodes = nodes(Underlay::V4, &STEERED);
    let node = &nodes.nodes[1];
    let pods = [nodes.nodes[0].pod("a"), node.pod("plain"), node.pod("slow")];
    let (a, plain) = (pods[0].attach(L2[0], "net1"), pods[1].attach(L2[0], "net1"));
    let slow = limit::attach_by_manifest(node, &pods[2], "AFXDP", 100_000_000);
    wait_steers(node, true);
    assert_meet(&a, &plain);
    introduce(&a, &slow);
    assert_eq!(seen_of_echoed(&nodes, &a, &slow), LENGTHS.len());
    assert_meet(&a, &plain);
    for pod in &pods {
        pod.detach(L2[0], "net1");
    }
}

/// Frames and TCP for a memif port bypass the node's stack; restarts lose none.
///
/// The program's stack checks the checksums of TCP. Agents stop and start meanwhile.
#[test]
fn frames_for_a_memif_port_go_past_the_nodes_stack_and_restarts_lose_none() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let nodes = nodes(Underlay::V4, &STEERED);
    let node = &nodes.nodes[1];
    for network in [L2[0], L3[0]] {
        let (pods, [a, fast]) = attach(&nodes, "Memif", network);
        let app = MemifApp::start(&fast);
        wait_steers(node, true);
        assert_meet(&a, &fast);
        let uplink = Tap::on(node.netns(), UPLINK);
        let word = marker();
        for (here, there) in traffic::pairs(&a, &fast) {
            let sent = traffic::shout(&a, here, (there, PORT).into(), &word);
            sent.expect("sent");
            let moved = traffic::tcp_round_trip(&a, &fast, there, 1 << 20);
            assert!(moved.is_ok(), "{there}: {moved:?}");
        }
        assert_eq!(uplink.count(&word), 0, "{network}");
        if network == L2[0] {
            let (here, there) = traffic::pairs(&a, &fast)[0];
            let stream = Stream::start(&a, here, &fast, there);
            stream.through_restarts(&nodes.nodes);
            stream.assert_nothing_lost();
            wait_steers(node, true);
        }
        drop(app);
        pods[0].detach(network, "net1");
        // The program's own interface has the name of the port's.
        pods[1].del(network, "net1").silent();
    }
}

/// Forged frames reach no socket, and are counted with the same reason as without.
#[test]
fn nothing_forged_is_steered() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let nodes = nodes(Underlay::V4, &STEERED);
    let (here, there) = (&nodes.nodes[0], &nodes.nodes[1]);
    let (pods, [a, fast]) = attach(&nodes, "AFXDP", L2[0]);
    wait_steers(there, true);
    assert_meet(&a, &fast);
    let mut socket = open(&fast, 0);
    let nobody = MacAddr([2, 0, 0, 0, 0, 0x66]);
    let word = marker();
    let fabric = nodes.fabric.netns();
    let legal = inner(a.mac, fast.mac, &a, &fast, &word);
    let large = udp4(a.v4(), fast.v4(), (9, 9), &[7; 1430]);
    let cases = [
        (fabric, BLUE, legal.clone(), "", DropReason::UnknownNode),
        (
            here.netns(),
            0x00ff_ffff,
            legal.clone(),
            "",
            DropReason::UnknownNetwork,
        ),
        (
            here.netns(),
            RED,
            legal.clone(),
            "",
            DropReason::UnknownNetwork,
        ),
        (
            here.netns(),
            BLUE,
            inner(nobody, fast.mac, &a, &fast, &word),
            L2[0],
            DropReason::SpoofedMac,
        ),
        (
            here.netns(),
            BLUE,
            tagged(&legal, 0x8100, 5),
            L2[0],
            DropReason::VlanTag,
        ),
        (
            here.netns(),
            BLUE,
            ethernet(fast.mac, a.mac, 0x0800, &large),
            L2[0],
            DropReason::TooBig,
        ),
    ];
    for (from, vni, frame, network, reason) in cases {
        let judge = Judge::new(there, network, reason);
        forge(from, Fabric::v4(2), vni, &frame);
        judge.assert_dropped(&[], &word);
    }
    // Behind all of them, so none of them is on its way any more.
    forge(here.netns(), Fabric::v4(2), BLUE, &legal);
    let mut frames = Vec::new();
    wait::until_true("the legal one", || {
        socket.wait(wait::PATIENCE).expect("the port is there");
        socket.receive(64, |bytes| {
            frames.push(bytes.to_vec());
            Verdict::Done
        });
        frames.contains(&legal)
    });
    let marked = frames.iter().filter(|it| contains(it, &word)).count();
    assert_eq!(marked, 1, "{frames:02x?}");
    drop(socket);
    for pod in &pods {
        pod.detach(L2[0], "net1");
    }
}

/// On a veth not by itself, and where it is not, all is as ever.
#[test]
fn where_frames_may_be_unfinished_none_is_steered_unless_somebody_says_so() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    for (args, because) in [
        (&["--xdp", "native"][..], "a veth may show"),
        (&["--xdp", "native", "--xdp-steer", "never"], "never"),
        (&["--xdp", "generic", "--xdp-steer", "always"], "no native"),
    ] {
        let nodes = nodes(Underlay::V4, args);
        let node = &nodes.nodes[1];
        let (pods, [a, fast]) = attach(&nodes, "AFXDP", L2[0]);
        assert_meet(&a, &fast);
        wait_steers(node, false);
        let rows = node.get("uplinks");
        let said = rows[0]["steersBecause"].as_str().expect("a reason");
        assert!(said.contains(because), "{said}");
        seen_of_echoed(&nodes, &a, &fast);
        for pod in &pods {
            pod.detach(L2[0], "net1");
        }
    }
}
