//! Test the flow log of ports of every type: counts, verdicts and limits.

use std::io::Write as _;

use serde_json::Value;
use testbed::capture::Capture;
use testbed::flow_log::FlowLog;
use testbed::frame::{ethernet, udp4};
use testbed::{MemifApp, Node, Port, Setup, traffic, wait};

use crate::{conf, setup};

const IPV4: u16 = 0x0800;
/// Bytes of the headers of UDP in IPv4 on Ethernet.
const HEADERS: u64 = 14 + 20 + 8;

fn sum(lines: &[Value], field: &str) -> u64 {
    lines.iter().filter_map(|line| line[field].as_u64()).sum()
}

/// Sends datagrams of 100 bytes, and returns the ports of sender and receiver.
fn send(from: &Port, to: &Port, count: usize) -> [u16; 2] {
    let (here, there) = (
        traffic::udp(from, from.v4().into()),
        traffic::udp(to, to.v4().into()),
    );
    let address = there.local_addr().expect("an address");
    for _ in 0..count {
        here.send_to(&[7; 100], address).expect("sent");
        there.recv_from(&mut [0; 200]).expect("received");
    }
    [
        here.local_addr().expect("an address").port(),
        address.port(),
    ]
}

fn is_between(from: &Port, to: &Port, [source, destination]: [u16; 2]) -> impl Fn(&Value) -> bool {
    let (from, to) = (from.v4().to_string(), to.v4().to_string());
    move |line| {
        line["source"] == from.as_str()
            && line["destination"] == to.as_str()
            && line["protocol"] == "udp"
            && line["sourcePort"] == source
            && line["destinationPort"] == destination
    }
}

/// Asserts that both ports have a flow with the right numbers.
fn assert_logged(log: &FlowLog, from: &Port, to: &Port) {
    let ports = send(from, to, 7);
    for (port, direction) in [(from, "egress"), (to, "ingress")] {
        let lines = log.wait_for(port, direction, 7, is_between(from, to, ports));
        for field in ["samples", "packets"] {
            assert_eq!(sum(&lines, field), 7, "{direction}: {lines:?}");
        }
        assert_eq!(
            sum(&lines, "bytes"),
            7 * (HEADERS + 100),
            "{direction}: {lines:?}"
        );
        for line in &lines {
            assert_eq!(line["verdict"], "forwarded");
            assert_eq!(
                (&line["oneOf"], &line["node"]),
                (&1.into(), &"scratch".into())
            );
            let time = |field: &str| line[field].as_str().map(str::to_owned);
            assert!(time("firstSeen") <= time("lastSeen"), "{line}");
            assert!(time("lastSeen") <= time("time"), "{line}");
        }
    }
}

/// Asserts that a forged packet is logged as dropped, and not as forwarded.
fn assert_drop_logged(log: &FlowLog, port: &Port, other: &Port, source: u16) {
    let forged = udp4(other.v4(), other.v4(), (source, 4002), b"forged");
    let tap = port.tap();
    tap.send(&ethernet(other.mac, port.mac, IPV4, &forged));
    let is_forged = is_between(other, other, [source, 4002]);
    let lines = log.wait_for(port, "egress", 1, &is_forged);
    assert_eq!(sum(&lines, "packets"), 1, "{lines:?}");
    let line = &lines[0];
    assert_eq!(line["verdict"], "dropped", "{line}");
    assert_eq!(line["reason"], "spoofed_ip", "{line}");
    assert_eq!(
        log.flows(other, "ingress")
            .into_iter()
            .filter(is_forged)
            .count(),
        0
    );
}

#[test]
fn the_flow_log_counts_packets_of_veths_and_says_why_one_was_dropped() {
    let log = FlowLog::default();
    let node = testbed::node!(log.of(setup(), 1));
    let pods = ["one", "two"].map(|name| node.pod(name));
    for (network, known) in [("blue", 2), ("green", 4)] {
        let ifname = format!("net-{network}");
        let [one, two] = [&pods[0], &pods[1]].map(|pod| pod.attach(network, &ifname));
        FlowLog::wait_for_ports(&node, known);
        assert_logged(&log, &one, &two);
        assert_logged(&log, &two, &one);
        let lines = log.flows(&one, "egress");
        assert!(
            lines.iter().all(|line| line["network"] == network),
            "{lines:?}"
        );
        if network == "blue" {
            assert_drop_logged(&log, &one, &two, 4001);
        }
    }
    proof::of!("PAIN-OBS-1");
}

#[test]
fn the_flow_log_has_frames_of_memif_ports_that_would_pass_the_kernel_by() {
    let log = FlowLog::default();
    let node = testbed::node!(log.of(setup(), 1));
    let pods = ["one", "two"].map(|name| node.pod(name));
    let [one, two] = [&pods[0], &pods[1]].map(|pod| pod.attach_conf(&conf(&node, "blue"), "net1"));
    let _apps = [MemifApp::start(&one), MemifApp::start(&two)];
    FlowLog::wait_for_ports(&node, 2);
    assert_logged(&log, &one, &two);
    assert_drop_logged(&log, &one, &two, 4001);
    // A capture of the port has its packets, and its end leaves the port in the flow log.
    let capture = Capture::start(&node, &one, &[]);
    send(&one, &two, 1);
    capture.wait_for("a packet", |packet| packet.is_from_pod);
    capture.stop();
    assert_logged(&log, &two, &one);
    assert_drop_logged(&log, &one, &two, 4003);
}

#[test]
fn the_flow_log_follows_ports_that_come_and_go_and_an_agent_that_is_killed() {
    let log = FlowLog::default();
    let node = testbed::node!(log.of(setup(), 1));
    let pods = ["one", "two", "three"].map(|name| node.pod(name));
    let [one, two] = [&pods[0], &pods[1]].map(|pod| pod.attach("blue", "net1"));
    FlowLog::wait_for_ports(&node, 2);
    assert_logged(&log, &one, &two);
    pods[1].detach("blue", "net1");
    FlowLog::wait_for_ports(&node, 1);
    let three = pods[2].attach("blue", "net1");
    FlowLog::wait_for_ports(&node, 2);
    assert_logged(&log, &three, &one);
    node.kill_9();
    node.start_agent();
    FlowLog::wait_for_ports(&node, 2);
    assert_logged(&log, &one, &three);
    assert_drop_logged(&log, &one, &three, 4001);
}

/// A pod that makes flows at random fills its own share.
#[test]
fn a_pod_that_makes_flows_at_random_takes_no_room_of_others() {
    let log = FlowLog::default();
    let node = testbed::node!(log.of(Setup::default(), 1));
    let pods = ["one", "two", "hostile"].map(|name| node.pod(name));
    let [one, two, hostile] = [&pods[0], &pods[1], &pods[2]].map(|pod| pod.attach("blue", "net1"));
    FlowLog::wait_for_ports(&node, 3);
    let tap = hostile.tap();
    let flood = |count: u16| {
        for port in 0..count {
            let packet = udp4(hostile.v4(), one.v4(), (port, 9), b"random");
            tap.send(&ethernet(one.mac, hostile.mac, IPV4, &packet));
        }
    };
    let overflowed = "podnet_flow_log_samples_total{outcome=\"overflow\"}";
    wait::until_true("the share of the pod to be full", || {
        flood(5000);
        FlowLog::metric(&node, overflowed).is_some_and(|count| count > 0)
    });
    flood(5000);
    let ports = send(&two, &one, 7);
    let lines = log.wait_for(&two, "egress", 7, is_between(&two, &one, ports));
    assert_eq!(sum(&lines, "packets"), 7, "{lines:?}");
    let rest = |line: &Value, port: &Port| {
        line["kind"] == "rest" && line["container"] == port.container.as_str()
    };
    let lines = log.lines();
    assert!(
        lines
            .iter()
            .any(|line| rest(line, &hostile) && line["packets"] != 0)
    );
    assert!(!lines.iter().any(|line| rest(line, &two)));
    // An interval has the share of the port and no more.
    let mut by_interval = std::collections::BTreeMap::new();
    for line in log.flows(&hostile, "egress") {
        *by_interval.entry(line["time"].to_string()).or_insert(0) += 1;
    }
    assert!(
        by_interval.values().all(|count| *count <= 512),
        "{by_interval:?}"
    );
}

/// One of a hundred is sampled, and the numbers are those of all.
#[test]
fn the_flow_log_states_the_rate_that_it_samples_by() {
    let log = FlowLog::default();
    let node = testbed::node!(log.of(Setup::default(), 10));
    let pods = ["one", "two"].map(|name| node.pod(name));
    let [one, two] = [&pods[0], &pods[1]].map(|pod| pod.attach("blue", "net1"));
    FlowLog::wait_for_ports(&node, 2);
    let mut sent = 0;
    let flows = wait::until("a sample", || {
        send(&one, &two, 100);
        sent += 100;
        let flows = log.flows(&one, "egress");
        (!flows.is_empty()).then_some(flows)
    });
    for line in &flows {
        assert_eq!(line["oneOf"], 10);
        assert_eq!(
            line["packets"].as_u64(),
            line["samples"].as_u64().map(|it| it * 10)
        );
    }
    assert!(sum(&flows, "samples") < sent, "not every frame is a sample");
}

/// True while the thread of the flow log waits for a reader of its pipe.
fn is_blocked(node: &Node) -> bool {
    let tasks = format!("/proc/{}/task", node.agent_pid().as_raw_nonzero());
    let tasks = std::fs::read_dir(tasks).expect("the agent lives");
    let read = |task: &std::path::Path, file: &str| {
        std::fs::read_to_string(task.join(file)).unwrap_or_default()
    };
    let mut tasks = tasks.map(|task| task.expect("an entry").path());
    tasks.any(|task| {
        read(&task, "comm").trim() == "podnet-flows" && read(&task, "wchan").contains("pipe_write")
    })
}

/// Neither pods nor the end of the agent wait for a reader of the flow log.
#[test]
fn a_reader_of_stdout_that_does_not_read_costs_lines_and_a_bounded_number_of_ports() {
    let node = testbed::node!();
    // Before: what pods send when they come must not block a write until both are sampled.
    let pods = ["one", "two"].map(|name| node.pod(name));
    let [one, two] = [&pods[0], &pods[1]].map(|pod| pod.attach("blue", "net1"));
    node.terminate();
    let (_unread, mut stdout) = std::io::pipe().expect("a pipe");
    // As large as a pipe is.
    stdout.write_all(&[b'.'; 65_536]).expect("filled");
    let on = ["--flow-log", "-", "--flow-sample", "1"];
    node.start_agent_writing_to(stdout, &[&on[..], &["--flow-interval", "1"]].concat());
    FlowLog::wait_for_ports(&node, 2);
    send(&one, &two, 1);
    wait::until_true("a write to block", || is_blocked(&node));
    let more: Vec<_> = (0..40).map(|n| node.pod(&format!("more-{n}"))).collect();
    let more: Vec<_> = more.iter().map(|pod| pod.attach("blue", "net1")).collect();
    wait::until_true("the flow log to take no more ports", || {
        node.log().contains("the flow log takes no more ports")
    });
    assert!(taps(&node) <= 2 + 32 + 1, "{}", taps(&node));
    send(&one, &more[39], 1);
    assert!(node.terminate().success(), "{}", node.log());
}

/// Packet sockets of the node's namespace.
fn taps(node: &Node) -> usize {
    let read = || std::fs::read_to_string("/proc/thread-self/net/packet");
    let list = node.netns().run_in(read).expect("entered");
    list.expect("a list").lines().skip(1).count()
}

#[test]
fn nothing_is_at_a_port_without_the_flow_log() {
    let node = testbed::node!();
    let pods = ["one", "two"].map(|name| node.pod(name));
    let [one, two] = [&pods[0], &pods[1]].map(|pod| pod.attach("blue", "net1"));
    send(&one, &two, 1);
    assert_off(&node);
    let path = node.path("flows.jsonl");
    let on = ["--flow-log", path.to_str().expect("a path in UTF-8")];
    for is_killed in [false, true] {
        node.terminate();
        node.start_agent_with(&on);
        FlowLog::wait_for_ports(&node, 2);
        assert_eq!(taps(&node), 2);
        if is_killed {
            node.kill_9();
        } else {
            node.terminate();
        }
        node.start_agent();
        send(&one, &two, 1);
        assert_off(&node);
    }
}

/// Asserts that nothing is left of a flow log: tap, pin and metric.
fn assert_off(node: &Node) {
    assert_eq!(taps(node), 0);
    assert_eq!(FlowLog::metric(node, "podnet_flow_log_ports"), None);
    let generations = std::fs::read_dir(node.bpffs()).expect("the pins");
    for generation in generations {
        let pin = generation.expect("an entry").path().join("SAMPLED");
        assert!(!pin.exists(), "{}", pin.display());
    }
}
