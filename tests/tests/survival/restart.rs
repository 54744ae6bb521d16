//! A restart of the agent that runtimes do not notice (CNI-ST-05).

use std::fs;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};
use testbed::{Node, Schedule, Setup, skip, wait};

/// Pods that are made while the agent is restarted.
const PODS: usize = 20;

/// A restart that takes longer is out of the time that a lease has.
const RESTART_MAX: Duration = Duration::from_secs(25);

/// Seconds that an operator gives a restart, as the manifests leave it.
const LEASE: &str = "30";

fn leased() -> Setup {
    Setup::default().args(&["--restart-lease", LEASE])
}

/// Asks the agent to end, and returns at once.
fn signal(node: &Node) {
    kill_process(node.agent_pid(), Signal::TERM).expect("the agent can be signalled");
}

/// Runs `upheaval` while 20 pods are attached, and asks for `STATUS` all the time.
///
/// Returns the time without an agent.
fn under_load(node: &Node, round: usize, upheaval: impl FnOnce()) -> Duration {
    let pods: Vec<_> = (0..PODS)
        .map(|n| node.pod(&format!("r{round}-{n}")))
        .collect();
    let conf = node.conf("blue");
    let (done, answers) = (AtomicBool::new(false), AtomicUsize::new(0));
    let gap = thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                node.cni("STATUS").conf(&conf).run().silent();
                answers.fetch_add(1, Ordering::Release);
            }
        });
        let adds = pods
            .iter()
            .map(|pod| scope.spawn(|| pod.add("blue", "net1")));
        let adds: Vec<_> = adds.collect();
        let began = Instant::now();
        upheaval();
        let gap = began.elapsed();
        for add in adds {
            add.join().expect("ADD ends").result();
        }
        let asked = answers.load(Ordering::Acquire);
        wait::until_true("another STATUS", || answers.load(Ordering::Acquire) > asked);
        done.store(true, Ordering::Release);
        gap
    });
    assert_eq!(node.attachments().len(), PODS);
    for pod in &pods {
        assert_eq!(pod.links(), ["net1"]);
        pod.detach("blue", "net1");
    }
    node.assert_empty();
    gap
}

/// CNI-ST-05, PAIN-UPG-1: No `ADD` and no `STATUS` of 20 pods fails in a restart.
#[test]
fn no_add_and_no_status_fails_while_the_agent_is_restarted() {
    let node = testbed::node!(leased());
    let blue = node.conf("blue");
    node.cni("STATUS").conf(&blue).run().silent();
    let began = Instant::now();
    node.terminate();
    node.start_agent();
    if began.elapsed() > RESTART_MAX {
        let test = testbed::test_name!();
        skip::skip(test, "a restart here takes longer than a lease lasts");
        return;
    }
    // In the middle of requests, and with no agent before the first one comes.
    under_load(&node, 0, || {
        node.terminate();
        node.start_agent();
    });
    under_load(&node, 1, || {
        node.kill_9();
        node.start_agent();
    });
    node.terminate();
    under_load(&node, 2, || node.start_agent());
    proof::of!("CNI-ST-05", "PAIN-UPG-1");
}

/// CNI-ST-05: `DEL` and `CHECK` wait as well, and `DEL` leaves no tombstone.
#[test]
fn del_and_check_wait_for_the_next_agent() {
    let node = testbed::node!(leased());
    let (a, b) = (node.pod("a"), node.pod("b"));
    let (port, _) = (a.attach("blue", "net1"), b.attach("blue", "net1"));
    node.terminate();
    let mut conf = node.conf("blue");
    let del = b.call("DEL", "net1").conf(&conf).spawn(Stdio::piped());
    conf["prevResult"] = port.result.clone();
    let check = a.call("CHECK", "net1").conf(&conf).spawn(Stdio::piped());
    node.start_agent();
    for child in [del, check] {
        let output = child.wait_with_output().expect("podnet ends");
        assert!(output.status.success(), "{output:?}");
    }
    assert_eq!(node.tombstones(), [""; 0]);
    let log = node.log();
    assert!(!log.contains("a DEL that waited is served"), "{log}");
    assert_eq!(
        (a.links(), b.links()),
        (vec!["net1".to_owned()], Vec::new())
    );
    a.detach("blue", "net1");
    node.assert_empty();
    proof::of!("CNI-ST-05");
}

/// CNI-ST-01, CNI-ST-05: the lease ends, and then the node is not ready.
#[test]
fn status_fails_when_the_lease_has_ended() {
    let node = testbed::node!(Setup::default().args(&["--restart-lease", "1"]));
    let conf = node.conf("blue");
    node.cni("STATUS").conf(&conf).run().silent();
    node.terminate();
    let ended = wait::until("the lease to end", || {
        let outcome = node.cni("STATUS").conf(&conf).run();
        (!outcome.success).then_some(outcome)
    });
    ended.fails_with(50).names(&["podnet-agent is not running"]);
    let pod = node.pod("late");
    pod.add("blue", "net1").fails_with(11);
    pod.del("blue", "net1").silent();
    assert_eq!(node.tombstones(), ["late-net1"]);
    node.start_agent();
    wait::until_true("the tombstone to be served", || {
        node.tombstones().is_empty()
    });
    proof::of!("CNI-ST-01", "CNI-ST-05");
}

/// CNI-ST-05: a network that was not ready is not ready because its agent is away.
#[test]
fn status_of_a_network_that_was_not_ready_fails_during_a_restart() {
    let node = testbed::node!(leased());
    let (there, nowhere) = (node.conf("blue"), node.conf("nowhere"));
    node.cni("STATUS").conf(&there).run().silent();
    node.cni("STATUS").conf(&nowhere).run().fails_with(50);
    node.terminate();
    node.cni("STATUS").conf(&there).run().silent();
    node.cni("STATUS").conf(&nowhere).run().fails_with(50);
    // Never asked about.
    let green = node.conf("green");
    node.cni("STATUS").conf(&green).run().fails_with(50);
    node.start_agent();
    proof::of!("CNI-ST-05");
}

/// CNI-ST-05: an agent that starts has the answers of the one before.
///
/// It makes its lease no longer.
#[test]
fn a_start_that_is_not_over_has_the_answers_of_the_agent_before() {
    let held = tempfile::tempdir().expect("a directory");
    let path = held.path().to_str().expect("a path in UTF-8");
    let node = testbed::node!(leased().env("PODNET_PAUSE_IN", path));
    let schedule = Schedule::new(held.path());
    let conf = node.conf("blue");
    let pod = node.pod("a");
    pod.attach("blue", "net1");
    node.cni("STATUS").conf(&conf).run().silent();
    let lease = node.path("run").join("lease");
    for has_lease in [true, false] {
        node.terminate();
        if !has_lease {
            fs::remove_file(&lease).expect("the agent left a lease");
        }
        let before = fs::read_to_string(&lease).unwrap_or_default();
        schedule.pause("start.recover");
        node.launch_agent();
        schedule.wait_held("start.recover");
        let outcome = node.cni("STATUS").conf(&conf).run();
        if has_lease {
            outcome.silent();
        } else {
            outcome.fails_with(50);
        }
        assert_eq!(fs::read_to_string(&lease).unwrap_or_default(), before);
        schedule.release("start.recover");
        node.wait_ready();
        node.cni("STATUS").conf(&conf).run().silent();
    }
    pod.detach("blue", "net1");
    node.assert_empty();
    proof::of!("CNI-ST-05");
}

/// An agent that is told to end serves what has come.
#[test]
fn an_agent_that_stops_finishes_the_requests_that_it_has() {
    let held = tempfile::tempdir().expect("a directory");
    let path = held.path().to_str().expect("a path in UTF-8");
    let node = testbed::node!(leased().env("PODNET_PAUSE_IN", path));
    let schedule = Schedule::new(held.path());
    let (a, b) = (node.pod("a"), node.pod("b"));
    schedule.pause("tables.read");
    let blue = node.conf("blue");
    let first = a.call("ADD", "net1").conf(&blue).spawn(Stdio::piped());
    schedule.wait_held("tables.read");
    signal(&node);
    wait::until_true("the socket to go", || !node.socket().exists());
    let second = b.call("ADD", "net1").conf(&blue).spawn(Stdio::piped());
    schedule.release("tables.read");
    let output = first.wait_with_output().expect("podnet ends");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(node.terminate().code(), Some(0));
    assert_eq!(
        (a.links(), b.links()),
        (vec!["net1".to_owned()], Vec::new())
    );
    node.start_agent();
    let output = second.wait_with_output().expect("podnet ends");
    assert!(output.status.success(), "{output:?}");
    for pod in [&a, &b] {
        pod.detach("blue", "net1");
    }
    node.assert_empty();
}
