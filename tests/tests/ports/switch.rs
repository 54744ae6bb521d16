//! The switch outlives the agent, and is replaced or mended under its ports.

use std::os::fd::AsFd as _;

use testbed::stream::Stream;
use testbed::traffic::{assert_reaches, tcp_round_trip};
use testbed::{MemifApp, Node, wait};

use crate::{conf, setup};

/// Finds the process that answers at the switch's socket, by its command line.
pub(crate) fn switch(node: &Node) -> Option<rustix::process::Pid> {
    let socket = node.switch_socket();
    let socket = socket.to_str().expect("a path of letters").to_owned();
    let processes = std::fs::read_dir("/proc").expect("proc").flatten();
    processes
        .filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            let line = std::fs::read(entry.path().join("cmdline")).ok()?;
            let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
            let is_it = words.contains(&socket.as_bytes()) && words.contains(&&b"switch"[..]);
            is_it.then(|| rustix::process::Pid::from_raw(pid)).flatten()
        })
        .next()
}

/// Starts a switch next to the agent's, as somebody else does.
pub(crate) fn start(node: &Node) -> std::process::Child {
    let agent = node.binaries().agent.clone();
    let socket = node.switch_socket();
    let started = node.netns().run_in(move || {
        std::process::Command::new(agent)
            .arg("switch")
            .arg("--socket")
            .arg(socket)
            .spawn()
    });
    started.expect("entered").expect("a switch can be started")
}

#[test]
fn restarts_of_the_agent_lose_nothing_at_memif_ports() {
    let node = testbed::node!(setup());
    let pods = ["fast1", "fast2", "plain"].map(|name| node.pod(name));
    let a = pods[0].attach_conf(&conf(&node, "blue"), "net1");
    let b = pods[1].attach_conf(&conf(&node, "blue"), "net1");
    let plain = pods[2].attach("blue", "net1");
    let apps = [MemifApp::start(&a), MemifApp::start(&b)];
    assert_reaches(&a, &plain);
    assert_reaches(&a, &b);
    let streams = [
        Stream::start(&a, a.v4().into(), &b, b.v4().into()),
        Stream::start(&plain, plain.v4().into(), &a, a.v4().into()),
    ];
    let before = switch(&node);
    assert!(before.is_some(), "a switch runs");
    for graceful in [false, true] {
        if graceful {
            node.terminate();
        } else {
            node.kill_9();
        }
        streams.iter().for_each(Stream::progress);
        node.start_agent();
        streams.iter().for_each(Stream::progress);
    }
    for stream in streams {
        stream.assert_nothing_lost();
    }
    assert_eq!(switch(&node), before, "it is the same");
    assert!(apps.iter().all(|app| app.connections() == 1));
    for (pod, port) in pods.iter().zip([&a, &b]) {
        let mut conf = conf(&node, "blue");
        conf["prevResult"] = port.result.clone();
        pod.call("CHECK", "net1").conf(&conf).run().silent();
    }
}

/// Clients that connect again find their ports.
#[test]
fn a_switch_that_dies_is_started_again_and_gets_its_ports_back() {
    let node = testbed::node!(setup());
    let pods = ["fast", "plain"].map(|name| node.pod(name));
    let fast = pods[0].attach_conf(&conf(&node, "green"), "net1");
    let plain = pods[1].attach("green", "net1");
    let app = MemifApp::start(&fast);
    assert_reaches(&fast, &plain);
    let before = switch(&node).expect("a switch runs");
    rustix::process::kill_process(before, rustix::process::Signal::KILL).expect("killed");
    wait::until_true("the client to be connected again", || {
        app.connections() >= 2
    });
    // The device has its carrier again, and the kernel starts its queue some moments later: what is
    // lost meanwhile TCP repeats.
    let tcp = tcp_round_trip(&plain, &fast, fast.v4().into(), 1000);
    assert!(tcp.is_ok(), "{tcp:?}");
    assert_reaches(&plain, &fast);
    assert_reaches(&fast, &plain);
    assert_ne!(switch(&node), Some(before));
    pods[0].del("green", "net1").silent();
}

/// A new version takes over: clients of DPDK would not come back.
#[test]
fn a_switch_is_replaced_under_traffic_and_its_clients_know_nothing() {
    let node = testbed::node!(setup());
    let pods = ["fast1", "fast2", "plain"].map(|name| node.pod(name));
    let a = pods[0].attach_conf(&conf(&node, "blue"), "net1");
    let b = pods[1].attach_conf(&conf(&node, "blue"), "net1");
    let plain = pods[2].attach("blue", "net1");
    let apps = [MemifApp::start(&a), MemifApp::start(&b)];
    assert_reaches(&a, &plain);
    assert_reaches(&a, &b);
    let streams = [
        Stream::start(&a, a.v4().into(), &b, b.v4().into()),
        Stream::start(&a, a.v4().into(), &plain, plain.v4().into()),
    ];
    streams.iter().for_each(Stream::progress);
    let before = switch(&node).expect("a switch runs");
    let mut new = start(&node);
    wait::until_true("the old switch to end", || {
        rustix::process::test_kill_process(before).is_err() || switch(&node) != Some(before)
    });
    streams.iter().for_each(Stream::progress);
    for stream in streams {
        stream.assert_nothing_lost();
    }
    assert!(
        apps.iter().all(|app| app.connections() == 1),
        "nobody noticed"
    );
    // The agent found it: what is asked now is asked of the new one.
    let more = node.pod("more");
    let more = more.attach_conf(&conf(&node, "blue"), "net1");
    let _app = MemifApp::start(&more);
    assert_reaches(&more, &a);
    assert!(new.try_wait().expect("a child").is_none(), "it serves");
    drop(apps);
    // The node is taken down with it; it must not be left as a child that nobody waited for.
    std::thread::spawn(move || new.wait());
}

/// Ports of the switch that no record names go when the agent starts.
///
/// A state directory was lost, or a store was mended: the switch knows more than the agent.
#[test]
fn ports_of_the_switch_that_no_record_names_go_when_the_agent_starts() {
    let node = testbed::node!(setup());
    let pods = ["fast1", "fast2"].map(|name| node.pod(name));
    let a = pods[0].attach_conf(&conf(&node, "blue"), "net1");
    let socket = node.switch_socket();
    let mut client = uswitch::control::Client::connect(&socket).expect("the switch answers");
    let mut known = client.list().expect("a list").remove(0).config;
    known.key = "lost/net1".to_owned();
    known.port_id += 1;
    let devices = std::os::unix::net::UnixDatagram::pair().expect("a device");
    let address = memif::Address::Path(node.path("lost.sock"));
    let listener = address.listen().expect("a socket");
    client
        .add(&known, (devices.0.as_fd(), false), &[listener.as_fd()])
        .expect("added");
    node.restart();
    wait::until_true("the port that is lost to be removed", || {
        let keys = client.list().expect("a list").into_iter();
        keys.map(|port| port.config.key)
            .eq(["fast1/net1".to_owned()])
    });
    let _app = MemifApp::start(&a);
    let b = pods[1].attach_conf(&conf(&node, "blue"), "net1");
    let _other = MemifApp::start(&b);
    assert_reaches(&a, &b);
}

/// Where somebody else sees to the switch.
#[test]
fn without_a_switch_an_add_says_so_and_a_del_needs_none() {
    let node = testbed::node!(setup().args(&["--start-switch=false"]));
    let (pod, conf) = (node.pod("fast"), conf(&node, "blue"));
    pod.add_conf(&conf, "net1")
        .error()
        .names(&["podnet-agent switch"]);
    assert!(node.get("attachments").is_empty(), "nothing is left");
    let mut switch = start(&node);
    let port = wait::until("the switch to answer", || {
        let added = pod.add_conf(&conf, "net1");
        added.success.then(|| added.result())
    });
    let port = pod.port("blue", "net1", port);
    drop(MemifApp::start(&port));
    switch.kill().expect("killed");
    switch.wait().expect("waited for");
    pod.del("blue", "net1").silent();
    assert!(node.get("attachments").is_empty());
}
