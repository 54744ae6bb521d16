//! Test traffic of AF_XDP ports.

use std::collections::BTreeSet;
use std::net::IpAddr;

use agent_common::drop::DropReason;
use testbed::frame::{ethernet, marker, udp4};
use testbed::manifest::Network;
use testbed::{Setup, traffic, wait};

use super::scene::{Echo, attach, conf, open, setup};

const IP: u16 = 0x0800;
/// No socket of the kernel is there.
const PORT: u16 = 4242;

/// An unprivileged program and a kernel pod exchange datagrams of all sizes.
///
/// They come whole and with finished checksums. Before and after the program the pod's own stack has
/// the interface.
#[test]
fn an_unprivileged_program_and_a_kernel_pod_exchange_datagrams() {
    for (network, object) in [("blue", "fast-blue"), ("green", "fast-green")] {
        let node = testbed::node!(setup());
        let (fast, plain) = (node.pod("fast"), node.pod("plain"));
        let (pf, pp) = (
            attach(&node, &fast, network, object),
            plain.attach(network, "net1"),
        );
        traffic::assert_reaches(&pf, &pp);
        traffic::assert_reaches(&pp, &pf);

        let echo = Echo::start(vec![open(&pf, 0)]);
        let socket = traffic::udp(&pp, pp.v4().into());
        let mut buffer = [0; 2048];
        for length in (0..=1472).step_by(32) {
            let sent: Vec<u8> = (0..=u8::MAX)
                .cycle()
                .skip(length / 32)
                .take(length)
                .collect();
            socket.send_to(&sent, (pf.v4(), PORT)).expect("sent");
            let (came, from) = socket.recv_from(&mut buffer).expect("an answer");
            assert_eq!((&buffer[..came], from), (&sent[..], (pf.v4(), PORT).into()));
        }
        assert_eq!(echo.stop(), 47);
        traffic::assert_reaches(&pf, &pp);
        traffic::assert_reaches(&pp, &pf);
        fast.call("CHECK", "net1")
            .conf(&{
                let mut conf = conf(&node, network, object);
                conf["prevResult"] = pf.result.clone();
                conf
            })
            .run()
            .silent();
        fast.detach(network, "net1");
        plain.detach(network, "net1");
        node.assert_empty();
    }
}

/// Sockets on all queues together get every packet, of whatever flow.
#[test]
fn a_port_with_queues_has_a_socket_for_each() {
    let node = testbed::node!(setup());
    let (wide, plain) = (node.pod("wide"), node.pod("plain"));
    let (pw, pp) = (
        attach(&node, &wide, "blue", "wide-blue"),
        plain.attach("blue", "net1"),
    );
    let echo = Echo::start((0..4).map(|queue| open(&pw, queue)).collect());
    let mut buffer = [0; 64];
    for flow in 0..64_u8 {
        let socket = traffic::udp(&pp, pp.v4().into());
        socket.send_to(&[flow; 20], (pw.v4(), PORT)).expect("sent");
        let (came, _) = socket.recv_from(&mut buffer).expect("an answer");
        assert_eq!(buffer[..came], [flow; 20]);
    }
    assert_eq!(echo.stop(), 64);
    wide.detach("blue", "net1");
    plain.detach("blue", "net1");
    node.assert_empty();
}

/// Two programs reach each other over the node's datapath, without a kernel stack.
#[test]
fn two_programs_reach_each_other() {
    let node = testbed::node!(setup());
    let (a, b) = (node.pod("a"), node.pod("b"));
    let (pa, pb) = (
        attach(&node, &a, "blue", "fast-blue"),
        attach(&node, &b, "blue", "fast-blue"),
    );
    let mut here = open(&pa, 0);
    let echo = Echo::start(vec![open(&pb, 0)]);
    let packet = |number: u8| udp4(pa.v4(), pb.v4(), (PORT, PORT), &[number; 100]);
    let mut back = BTreeSet::new();
    for number in 0..100 {
        assert!(here.send(&ethernet(pb.mac, pa.mac, IP, &packet(number))));
        here.flush().expect("sent");
        wait::until_true("the answer", || {
            let _ = here.wait(wait::PATIENCE).expect("the port is there");
            here.receive(64, |bytes| {
                if bytes.ends_with(&[number; 100]) && bytes[..6] == pa.mac.0 {
                    back.insert(number);
                }
                xsk::Verdict::Done
            });
            back.contains(&number)
        });
    }
    assert_eq!(echo.stop(), 100);
    a.detach("blue", "net1");
    b.detach("blue", "net1");
    node.assert_empty();
}

/// A program's forbidden packets are dropped and counted as from any pod.
///
/// They have met no stack. No pod gets them, neither on the program's network nor on another one with
/// the same addresses.
#[test]
fn what_a_program_may_not_send_is_dropped_and_counted() {
    let node = testbed::node!(setup());
    let (fast, plain, other) = (node.pod("fast"), node.pod("plain"), node.pod("other"));
    let pf = attach(&node, &fast, "blue", "fast-blue");
    let (pp, po) = (plain.attach("blue", "net1"), other.attach("red", "net1"));
    let taps = [pp.tap(), po.tap()];
    let mut port = open(&pf, 0);
    let mark = marker();
    let to_plain = |from| udp4(from, pp.v4(), (PORT, PORT), &mark);
    let spoofed_mac = ethernet(pp.mac, po.mac, IP, &to_plain(pf.v4()));
    let spoofed_ip = ethernet(
        pp.mac,
        pf.mac,
        IP,
        &to_plain("10.10.0.200".parse().expect("an address")),
    );
    let elsewhere = udp4(pf.v4(), po.v4(), (PORT, PORT), &mark);
    let elsewhere = ethernet(po.mac, pf.mac, IP, &elsewhere);
    for (what, frame, reason) in [
        ("another's MAC address", spoofed_mac, DropReason::SpoofedMac),
        ("another's IP address", spoofed_ip, DropReason::SpoofedIp),
        (
            "a pod of another network",
            elsewhere,
            DropReason::NoEndpoint,
        ),
    ] {
        let before = node.drops().of("blue", reason);
        assert!(port.send(&frame), "{what}");
        port.flush().expect("sent");
        wait::until_true(what, || node.drops().of("blue", reason) > before);
    }
    // What follows comes, so what came before would have.
    let mark_of_honest = marker();
    let honest = udp4(pf.v4(), pp.v4(), (PORT, PORT), &mark_of_honest);
    assert!(port.send(&ethernet(pp.mac, pf.mac, IP, &honest)));
    port.flush().expect("sent");
    taps[0].wait_marker("an honest frame", &mark_of_honest);
    for tap in &taps {
        assert_eq!(tap.count(&mark), 0);
    }
    drop(port);
    for (pod, network) in [(&fast, "blue"), (&plain, "blue"), (&other, "red")] {
        pod.detach(network, "net1");
    }
    node.assert_empty();
}

/// A broadcast on one network reaches the program there and none on the other.
#[test]
fn a_program_sees_its_own_network_only() {
    let node = testbed::node!(setup());
    let pods = ["ab", "ar", "plain"].map(|name| node.pod(name));
    let blue = attach(&node, &pods[0], "blue", "fast-blue");
    let red = attach(&node, &pods[1], "red", "fast-red");
    let plain = pods[2].attach("blue", "net1");
    let (mut on_blue, mut on_red) = (open(&blue, 0), open(&red, 0));
    let mark = marker();
    let everybody = agent_common::addr::MacAddr([0xff; 6]);
    let to_all = "10.10.0.255".parse().expect("an address");
    let packet = udp4(plain.v4(), to_all, (PORT, PORT), &mark);
    plain
        .tap()
        .send(&ethernet(everybody, plain.mac, IP, &packet));
    let sees = |port: &mut xsk::Port| {
        let mut seen = false;
        port.receive(64, |bytes| {
            seen |= testbed::tap::contains(bytes, &mark);
            xsk::Verdict::Done
        });
        seen
    };
    wait::until_true("the broadcast", || sees(&mut on_blue));
    assert!(!sees(&mut on_red));
    drop((on_blue, on_red));
    for (pod, network) in pods.iter().zip(["blue", "red", "blue"]) {
        pod.detach(network, "net1");
    }
    node.assert_empty();
}

/// Packets that programs send and receive are in the counters of their port.
#[test]
fn ports_of_programs_are_counted_as_all_are() {
    let node = testbed::node!(setup());
    let (fast, plain) = (node.pod("fast"), node.pod("plain"));
    let (pf, pp) = (
        attach(&node, &fast, "blue", "fast-blue"),
        plain.attach("blue", "net1"),
    );
    let count = || {
        let attachments = node.get("attachments");
        let ours = attachments.iter().find(|it| it["container"] == "fast");
        let counters = ours.expect("it is listed");
        let packets = |name: &str| counters[name]["packets"].as_u64().expect("a number");
        (packets("fromPod"), packets("toPod"))
    };
    let echo = Echo::start(vec![open(&pf, 0)]);
    let before = count();
    let socket = traffic::udp(&pp, IpAddr::from(pp.v4()));
    for _ in 0..10 {
        socket.send_to(b"count me", (pf.v4(), PORT)).expect("sent");
        let _ = socket.recv_from(&mut [0; 64]).expect("an answer");
    }
    let after = count();
    assert!(
        after.0 >= before.0 + 10 && after.1 >= before.1 + 10,
        "{before:?} {after:?}"
    );
    echo.stop();
    fast.detach("blue", "net1");
    plain.detach("blue", "net1");
    node.assert_empty();
}

/// A network with packets beyond one page of XDP is refused with the largest MTU.
#[test]
fn a_network_whose_packets_do_not_fit_is_refused_with_the_largest_mtu() {
    let jumbo = Network::l2("jumbo", &["10.44.0.0/24"]).mtu(9000);
    let fast = testbed::manifest::attachment("fast-jumbo", "jumbo", "{interface: {type: AFXDP}}");
    let node = testbed::node!(
        Setup::default()
            .network(&jumbo)
            .file("fast-jumbo.yaml", &fast)
    );
    let pod = node.pod("a");
    let outcome = pod.add_conf(&conf(&node, "jumbo", "fast-jumbo"), "net1");
    outcome
        .error()
        .names(&["jumbo", "9000", "3506", "spec.mtu"]);
    node.assert_empty();
}
