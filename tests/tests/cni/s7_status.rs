//! CNI SPEC section 4, STATUS.

use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};

use testbed::{Network, Setup, wait};

/// CNI-ST-01: silent success when an ADD would be served.
#[test]
fn status_ready() {
    let node = testbed::node!();
    node.cni("STATUS").conf(&node.conf("blue")).run().silent();
    proof::of!("CNI-ST-01");
}

/// CNI-ST-03, CNI-ENV-06: as libcni calls it, with empty variables.
#[test]
fn status_no_containerid() {
    let node = testbed::node!();
    let call = node.cni("STATUS").conf(&node.conf("blue"));
    let call = call.env("CNI_CONTAINERID", "").env("CNI_NETNS", "");
    call.env("CNI_IFNAME", "").run().silent();
    proof::of!("CNI-ST-03", "CNI-ENV-06");
}

/// CNI-ST-01.
#[test]
fn status_50_agent_down() {
    let node = testbed::node!();
    let conf = node.conf("blue");
    node.terminate();
    let failure = node.cni("STATUS").conf(&conf).run().fails_with(50);
    failure.names(&["podnet-agent"]);
    node.start_agent();
    node.cni("STATUS").conf(&conf).run().silent();
    proof::of!("CNI-ST-01");
}

/// CNI-ST-01: a network without a free address fails its ADDs alone.
///
/// The kubelet would start no pod there at all, and its controller would evict those that run.
#[test]
fn status_ready_in_spite_of_a_full_pool() {
    let tiny = Network::l2("tiny", &["10.3.0.0/30"]);
    let setup = Setup::default().network(&tiny);
    let node = testbed::node!(setup.args(&["--default-network", "podnetwork:tiny"]));
    let (a, b, late) = (node.pod("a"), node.pod("b"), node.pod("late"));
    a.attach("tiny", "net1");
    b.attach("tiny", "net1");
    late.add("tiny", "net1")
        .fails_with(100)
        .names(&["tiny", "no free IPv4 address"]);
    for conf in [node.conf("tiny"), node.disk_conf(), node.conf("blue")] {
        node.cni("STATUS").conf(&conf).run().silent();
    }
    a.detach("tiny", "net1");
    late.attach("tiny", "net1");
    for pod in [&b, &late] {
        pod.detach("tiny", "net1");
    }
    proof::of!("CNI-ST-01");
}

/// CNI-ST-01: the network is missing or disabled.
#[test]
fn status_50_network_missing() {
    let off = Network::l2("off", &["10.9.0.0/24"]).disabled();
    let node = testbed::node!(Setup::default().network(&off));
    for name in ["nowhere", "off"] {
        let call = node.cni("STATUS").conf(&node.conf(name));
        call.run().fails_with(50).names(&[name]);
    }
    proof::of!("CNI-ST-01");
}

/// CNI-ST-01: STATUS reports impaired pods until the agent has repaired them.
///
/// An audit finds them, and a GC without a list asks for one.
#[test]
fn status_51_dataplane_down() {
    let node = testbed::node!();
    let pod = node.pod("a");
    let port = pod.attach("blue", "net1");
    let host = port.host_ifindex();
    let mut netlink = testbed::host::connection(node.netns());
    let down = netdev::LinkChange::updown(false);
    netlink
        .reconfigure(host, &down)
        .expect("the host end goes down");
    let conf = node.conf("blue");
    node.cni("GC").conf(&conf).run().silent();
    node.cni("STATUS").conf(&conf).run().fails_with(51);
    netlink.set_up(host).expect("the host end goes up");
    wait::until_true("STATUS to recover", || {
        node.cni("GC").conf(&conf).run().silent();
        node.cni("STATUS").conf(&conf).run().success
    });
    pod.detach("blue", "net1");
    proof::of!("CNI-ST-01");
}

/// CNI-ERR-08.
#[test]
fn status_lt_110_code1() {
    let node = testbed::node!();
    for version in ["0.4.0", "1.0.0"] {
        let mut conf = node.conf("blue");
        conf["cniVersion"] = version.into();
        node.cni("STATUS").conf(&conf).run().fails_with(1);
    }
    proof::of!("CNI-ERR-08");
}

/// CNI-ST-06: ADD, CHECK and DEL work while STATUS fails.
#[test]
fn add_and_del_work_while_status_fails() {
    let node = testbed::node!();
    let conf = node.conf("nowhere");
    node.cni("STATUS").conf(&conf).run().fails_with(50);
    let pod = node.pod("a");
    let port = pod.attach("blue", "net1");
    pod.check("blue", "net1", &port.result).silent();
    pod.detach("blue", "net1");
    proof::of!("CNI-ST-06");
}

/// CNI-ST-04 ("status_latency" without a clock): STATUS does not wait for ADDs.
#[test]
fn status_is_answered_while_adds_run() {
    let node = testbed::node!();
    let conf = node.conf("blue");
    let answers = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let busy = scope.spawn(|| {
            let enough = || answers.load(Ordering::Relaxed) > 10;
            let rounds = (0..500).take_while(|round| *round < 10 || !enough());
            for round in rounds {
                let pod = node.pod(&format!("p{round}"));
                pod.attach("blue", "net1");
                pod.detach("blue", "net1");
            }
            assert!(enough(), "no answers during 500 attachments");
        });
        while !busy.is_finished() {
            node.cni("STATUS").conf(&conf).run().silent();
            answers.fetch_add(1, Ordering::Relaxed);
        }
        busy.join().expect("no ADD fails");
    });
    proof::of!("CNI-ST-04");
}

/// The admin address agrees with STATUS, and forgets nothing it is asked for.
#[test]
fn the_admin_address_answers() {
    let node = testbed::node!();
    let pod = node.pod("a");
    pod.attach("blue", "net1");
    for path in ["/livez", "/readyz", "/metrics", "/debug/state"] {
        let (status, said) = node.http(path).expect("the admin address answers");
        assert_eq!(status, 200, "{path}: {said}");
    }
    let (_, metrics) = node.http("/metrics").expect("metrics");
    assert!(metrics.contains("podnet_"), "{metrics}");
    assert!(metrics.contains("blue"), "{metrics}");
    let (_, state) = node.http("/debug/state").expect("state");
    let state: serde_json::Value = serde_json::from_str(&state).expect("JSON");
    assert_eq!(state["attachments"][0]["container"], "a", "{state}");
    let (status, _) = node.http("/nonsense").expect("an answer");
    assert_eq!(status, 404);
    pod.detach("blue", "net1");
}

/// A second agent on the same socket does not disturb the first.
#[test]
fn a_second_agent_is_refused() {
    let node = testbed::node!();
    let manifests = node.path("manifests");
    let (socket, state) = (node.socket(), node.path("state"));
    let text = |path: &std::path::Path| path.to_str().expect("UTF-8").to_owned();
    let args = [
        "run".to_owned(),
        "--standalone".to_owned(),
        text(&manifests),
        "--socket".to_owned(),
        text(&socket),
        "--state-dir".to_owned(),
        text(&state),
        "--bpffs".to_owned(),
        text(node.bpffs()),
        "--admin".to_owned(),
        "127.0.0.1:9465".to_owned(),
    ];
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    let output = node.agent_command(&args);
    assert!(!output.status.success());
    assert!(!output.stderr.is_empty(), "it says why");
    let pod = node.pod("a");
    pod.attach("blue", "net1");
    pod.detach("blue", "net1");
    assert!(fs::exists(node.socket()).expect("the directory is there"));
}
