//! ATT-03 and ATT-13: one pod and the switch that it shares with all others.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::time::Instant;

use memif::{Address, Client, ClientConfig, Event, Text};
use testbed::traffic::assert_reaches;
use testbed::{MemifApp, Network, Node, Port, Setup, wait};

/// Returns the standard networks, with memif attachments to blue and 10 MiB a pod.
fn setup() -> Setup {
    let mut networks = Network::standard().into_iter();
    let blue = networks
        .find(|network| network.name == "blue")
        .expect("a standard network");
    let text = testbed::manifest::attachment("memif", &blue.name, "{interface: {type: Memif}}");
    Setup::default()
        .file("memif.yaml", &text)
        .env("PODNET_SWITCH_POD_MEMORY", "10")
}

fn attach(node: &Node, pod: &testbed::Pod<'_>, ifname: &str) -> Port {
    pod.attach_conf(&node.attachment_conf("blue", "default/memif"), ifname)
}

/// Connects a client with 1024 buffers of this size each way; returns the refusal.
fn lend(port: &Port, buffer_size: u32) -> Result<(Client, memif::Port), String> {
    let name = Address::Abstract(format!("podnet/{}", port.ifname).into_bytes());
    let netns = port.netns.clone();
    let connect = move || netns.run_in(|| name.connect()).expect("entered");
    let config = ClientConfig {
        buffer_size,
        ..ClientConfig::new(Text::new("app").expect("a short name"))
    };
    let client = Client::connecting_by(Box::new(connect), config, Instant::now());
    let mut client = client.expect("a usual node");
    let mut answer = None;
    wait::until_true("the switch to answer", || {
        answer = match client.poll(Instant::now()) {
            Ok(Event::Connected(rings)) => Some(Ok(rings)),
            Ok(Event::Closed(why)) => Some(Err(why.to_string())),
            Ok(Event::Nothing) | Err(_) => None,
        };
        answer.is_some()
    });
    answer
        .expect("it has answered")
        .map(|rings| (client, rings))
}

/// ATT-03a: a pod with many memif ports lends no more than its limit.
///
/// The refusal names the limit, and other pods are served all the time.
#[test]
fn a_pod_with_many_memif_ports_lends_no_more_than_a_pod_may() {
    let node = testbed::node!(setup());
    let pods = ["greedy", "good1", "good2"].map(|name| node.pod(name));
    let ports: Vec<Port> = (0..9)
        .map(|nth| attach(&node, &pods[0], &format!("net{nth}")))
        .collect();
    let good = [
        attach(&node, &pods[1], "net1"),
        attach(&node, &pods[2], "net1"),
    ];
    let _apps = [MemifApp::start(&good[0]), MemifApp::start(&good[1])];
    let mut connected = Vec::new();
    let mut refused = Vec::new();
    for port in &ports {
        let why = lend(port, 32768)
            .map(|_| ())
            .expect_err("64 MiB for a queue");
        assert!(why.contains("memory of this port would be"), "{why}");
        match lend(port, 2048) {
            Ok(client) => connected.push(client),
            Err(why) => refused.push(why),
        }
    }
    assert_eq!((connected.len(), refused.len()), (2, 7), "{refused:?}");
    for why in refused {
        assert!(why.contains("memory of this pod would be"), "{why}");
    }
    assert_reaches(&good[0], &good[1]);
    // What it leaves is free.
    connected.clear();
    wait::until_true("the memory to be free", || lend(&ports[8], 2048).is_ok());
    assert_reaches(&good[0], &good[1]);
    proof::of!("ATT-03a");
}

/// ATT-08: the switch runs as an unprivileged user, with a directory of its own.
///
/// That is so also where the agent starts it.
#[test]
fn the_switch_is_not_root_and_serves() {
    let node = testbed::node!(setup());
    let pods = ["good1", "good2"].map(|name| node.pod(name));
    let good = [
        attach(&node, &pods[0], "net1"),
        attach(&node, &pods[1], "net1"),
    ];
    let _apps = [MemifApp::start(&good[0]), MemifApp::start(&good[1])];
    assert_reaches(&good[0], &good[1]);
    let socket = node.switch_socket();
    let processes = fs::read_dir("/proc").expect("proc").flatten();
    let switch = processes
        .map(|entry| entry.path())
        .find(|process| {
            let line = fs::read(process.join("cmdline")).unwrap_or_default();
            let mut words = line.split(|byte| *byte == 0);
            words.any(|word| Some(word) == socket.to_str().map(str::as_bytes))
        })
        .expect("a switch runs");
    let status = fs::read_to_string(switch.join("status")).expect("its status");
    let has = |name: &str, value: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let words: Vec<&str> = line.unwrap_or_default().split_whitespace().collect();
        assert!(
            !words.is_empty() && words.iter().all(|word| *word == value),
            "{name} {words:?}"
        );
    };
    has("Uid:", "60900");
    has("Gid:", "60900");
    assert!(!status.contains("\nGroups:\t0"), "{status}");
    for set in ["CapEff:", "CapPrm:", "CapAmb:"] {
        has(set, "0000000000000000");
    }
    has("NoNewPrivs:", "1");
    for (path, mode) in [
        (socket.parent().expect("a directory"), 0o700),
        (&socket, 0o600),
    ] {
        let found = fs::metadata(path).expect("it is there");
        assert_eq!(
            (found.uid(), found.mode() & 0o777),
            (60900, mode),
            "{}",
            path.display()
        );
    }
    proof::of!("ATT-08");
}

/// ATT-03c: a half-open handshake never keeps the pod's own client out.
#[test]
fn a_half_open_handshake_in_a_pod_locks_nobody_out() {
    let node = testbed::node!(setup());
    let pod = node.pod("p");
    let port = attach(&node, &pod, "net1");
    let idle: Vec<_> = (0..20)
        .map(|_| {
            let name = Address::Abstract(b"podnet/net1".to_vec());
            let mut connected = None;
            wait::until_true("a place to wait in", || {
                let connect = || name.connect();
                connected = port.netns.run_in(connect).expect("entered").ok();
                connected.is_some()
            });
            connected.expect("it is")
        })
        .collect();
    let client = lend(&port, 2048);
    assert_eq!(client.err(), None, "with {} idle ones", idle.len());
    proof::of!("ATT-03c");
}

/// ATT-13: a client that reconnects is logged a few times a second.
///
/// The other lines are counted.
#[test]
fn a_memif_client_that_reconnects_fills_no_log() {
    const CONNECTIONS: usize = 60;
    let node = testbed::node!(setup());
    let pods = ["churn", "good1", "good2"].map(|name| node.pod(name));
    let port = attach(&node, &pods[0], "net1");
    let good = [
        attach(&node, &pods[1], "net1"),
        attach(&node, &pods[2], "net1"),
    ];
    let apps = [MemifApp::start(&good[0]), MemifApp::start(&good[1])];
    for _ in 0..CONNECTIONS {
        // The switch may not have seen yet that the last one is gone.
        drop(wait::until("the client to come again", || {
            lend(&port, 2048).ok()
        }));
    }
    assert_reaches(&good[0], &good[1]);
    assert!(apps.iter().all(|app| app.connections() == 1));
    let log = fs::read_to_string(node.path("agent.log")).expect("a log");
    for cause in ["a client is connected", "a client is gone"] {
        let of_port = |line: &&str| line.contains(cause) && line.contains(&port.container);
        let lines: Vec<&str> = log.lines().filter(of_port).collect();
        // By the log's own clock.
        let second = |line: &str| line.chars().take(19).collect::<String>();
        let seconds: std::collections::BTreeSet<String> =
            lines.iter().map(|line| second(line)).collect();
        assert!(!lines.is_empty(), "{cause}");
        assert!(
            lines.len() <= 2 * seconds.len() && lines.len() < CONNECTIONS / 2,
            "{CONNECTIONS} connections, {} lines: {lines:#?}",
            lines.len()
        );
    }
    proof::of!("ATT-13");
}
