//! Attack with idle connections, and with a process that has no descriptor left.

use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, prlimit};
use testbed::{Node, Setup, wait};

/// The agent's admin address.
const ADMIN: &str = "127.0.0.1:9464";
/// Descriptors that the agent may have.
const LIMIT: u64 = 600;

/// Says how many descriptors the agent may have; how many that were.
fn limit(node: &Node, current: u64) -> Rlimit {
    let set = Rlimit {
        current: Some(current),
        // The agent has raised the one to the other: what it may have is what this test may have.
        maximum: getrlimit(Resource::Nofile).maximum,
    };
    prlimit(Some(node.agent_pid()), Resource::Nofile, set).expect("the agent's limit can be set")
}

fn lines(node: &Node) -> usize {
    std::fs::read_to_string(node.path("agent.log"))
        .unwrap_or_default()
        .lines()
        .count()
}

/// Waits until the agent has opened all files it keeps: only connections fail then.
fn wait_until_all_is_open(node: &Node) {
    let process = format!("/proc/{}", node.agent_pid().as_raw_nonzero());
    let watches = || {
        let descriptors = std::fs::read_dir(format!("{process}/fd")).expect("the agent runs");
        let targets = descriptors
            .flatten()
            .filter_map(|it| std::fs::read_link(it.path()).ok());
        targets
            .filter(|it| it.as_os_str() == "anon_inode:inotify")
            .count()
    };
    // Netlink sockets of rtnetlink (0) and nf_tables (12) that listen to what is multicast.
    let listening = |protocol: &str| {
        let sockets = std::fs::read_to_string(format!("{process}/net/netlink")).unwrap_or_default();
        let columns = sockets
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>());
        columns
            .filter(|it| it.get(1) == Some(&protocol) && it.get(3) != Some(&"00000000"))
            .count()
    };
    wait::until_true("the agent to follow files, links, ways and tables", || {
        watches() >= 2 && listening("0") >= 3 && listening("12") >= 1
    });
}

/// ATT-12: idle connections to the admin address leave room for other connections.
#[test]
fn idle_connections_leave_room_for_cni_and_probes() {
    let node = testbed::node!();
    limit(&node, LIMIT);
    let before = lines(&node);
    let idle: Vec<TcpStream> = (0..650)
        .map(|_| {
            let connected = node.netns().run_in(|| TcpStream::connect(ADMIN));
            connected
                .expect("the namespace can be entered")
                .expect("a connection")
        })
        .collect();
    let pod = node.pod("a");
    pod.attach("blue", "net1");
    let (status, _) = node.http("/livez").expect("the agent answers");
    assert_eq!(status, 200);
    let (status, _) = node.http("/metrics").expect("the agent answers");
    assert_eq!(status, 200);
    pod.detach("blue", "net1");
    let more = lines(&node) - before;
    assert!(more < 50, "{more} lines:\n{}", node.log());
    drop(idle);
    node.assert_empty();
    proof::of!("ATT-12");
}

/// ATT-12: without a descriptor the agent waits, logs it rarely, and serves later.
///
/// It serves the connection as soon as there is a descriptor.
#[test]
fn a_failed_accept_does_not_fill_the_log() {
    let node = testbed::node!();
    wait_until_all_is_open(&node);
    let before = lines(&node);
    // Fewer than it has: the next one is refused.
    let had = limit(&node, 3).current.unwrap_or(LIMIT);
    let waiting = node.netns().run_in(|| UnixStream::connect(node.socket()));
    let waiting = waiting
        .expect("the namespace can be entered")
        .expect("a place in the backlog");
    let said = || node.log().matches("not accepted").count();
    wait::until_true("the agent to say three times that it cannot", || {
        said() >= 3
    });
    let more = lines(&node) - before;
    assert!(more <= 6, "{more} lines");
    limit(&node, had);
    drop(waiting);
    let pod = node.pod("a");
    pod.attach("blue", "net1");
    pod.detach("blue", "net1");
    node.assert_empty();
    proof::of!("ATT-12");
}

/// ATT-12: an audit without descriptors removes no pod.
///
/// It took each pod that lists its networks for gone, and removed its interfaces while it ran.
#[test]
fn an_audit_without_descriptors_removes_no_pod() {
    let node = testbed::node!(Setup::default().args(&["--default-network", "podnetwork:blue"]));
    let pod = node.pod("a");
    let conf = node.pod_conf(&serde_json::json!({}));
    let ask = |command: &str| {
        let call = node.cni(command).container(pod.container());
        call.netns(pod.path()).ifname("eth0").conf(&conf).run()
    };
    ask("ADD").result();
    let links = pod.links();
    wait_until_all_is_open(&node);
    let had = limit(&node, 3).current.unwrap_or(LIMIT);
    let audited = || node.log().contains("the audit is incomplete");
    // Audits are as far apart as one wait is long.
    let end = Instant::now() + 3 * wait::PATIENCE;
    while !audited() {
        assert!(Instant::now() < end, "no audit:\n{}", node.log());
        std::thread::sleep(Duration::from_millis(50));
    }
    limit(&node, had);
    assert_eq!(pod.links(), links, "{}", node.log());
    ask("DEL").silent();
    node.assert_empty();
    proof::of!("ATT-12");
}
