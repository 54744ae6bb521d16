//! Test the commands for people: `get`, `explain`, `cleanup`.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Every table has a form for people and one for programs.
#[test]
fn every_table_can_be_had_both_ways() {
    let node = testbed::node!();
    let pod = node.pod("a");
    let port = pod.attach("blue", "net1");
    let socket = node.socket();
    let socket = socket.to_str().expect("UTF-8");
    for what in ["networks", "attachments", "endpoints", "drops"] {
        node.get(what);
        let output = node.agent_command(&["get", what, "--socket", socket]);
        assert!(output.status.success(), "{what}: {output:?}");
    }
    let networks = node.get("networks");
    let names: Vec<_> = networks.iter().map(|row| row["name"].clone()).collect();
    for name in ["blue", "red", "green", "lime"] {
        assert!(names.contains(&Value::from(name)), "{names:?}");
    }
    let row = node.get("attachments").remove(0);
    assert_eq!(row["mac"], port.mac.to_string());
    assert_eq!(row["network"], "blue");
    pod.detach("blue", "net1");
}

/// `explain` names the decisions, and takes the beginning of a container's ID.
#[test]
fn explain_tells_why_an_attachment_is_as_it_is() {
    let node = testbed::node!();
    let pod = node.pod("a0b1c2");
    let port = pod.attach("blue", "net1");
    let socket = node.socket();
    let socket = socket.to_str().expect("UTF-8");
    let explain = |args: &[&str]| {
        let mut all = vec!["explain", "--socket", socket];
        all.extend(args);
        node.agent_command(&all)
    };
    for args in [
        &["--container", "a0b"][..],
        &["--container", "a0b", "--ifname", "net1"],
    ] {
        let output = explain(args);
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("blue"), "{text}");
        assert!(text.contains(&port.v4().to_string()), "{text}");
    }
    assert!(!explain(&["--container", "stranger"]).status.success());
    assert!(
        !explain(&["--container", "a0b", "--ifname", "net9"])
            .status
            .success()
    );
    pod.detach("blue", "net1");
}

/// Without an agent the commands say so instead of hanging.
#[test]
fn commands_without_an_agent_say_so() {
    let node = testbed::node!();
    node.terminate();
    let socket = node.socket();
    let socket = socket.to_str().expect("UTF-8");
    let output = node.agent_command(&["get", "networks", "--socket", socket]);
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains(socket), "{text}");
    node.start_agent();
}

/// `cleanup` of a node removes all live attachments, and a dry run nothing.
///
/// `cleanup --dry-run` says what it would do.
#[test]
fn cleanup_removes_everything_and_a_dry_run_nothing() {
    let node = testbed::node!();
    let pod = node.pod("a");
    pod.attach("blue", "net1");
    node.terminate();
    let links = node.links().len();
    let output = node.cleanup(&["--dry-run"]);
    assert!(output.status.success(), "{output:?}");
    assert!(!output.stdout.is_empty(), "it says what it would remove");
    assert_eq!(node.links().len(), links);
    assert_eq!(pod.links(), ["net1"]);
    let output = node.cleanup(&[]);
    assert!(output.status.success(), "{output:?}");
    assert!(pod.links().is_empty());
    testbed::residue::assert_none(&node);
}

/// PAIN-BOOT-3: `cleanup` as the pod of a DaemonSet stays until it is told to end.
#[test]
fn cleanup_can_stay_until_it_is_told_to_end() {
    let node = testbed::node!();
    let pod = node.pod("a");
    pod.attach("blue", "net1");
    node.terminate();
    let mut command = Command::new(&node.binaries().agent);
    command
        .args(["cleanup", "--stay", "--socket"])
        .arg(node.socket())
        .arg("--state-dir")
        .arg(node.path("state"))
        .arg("--bpffs")
        .arg(node.bpffs())
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let child = node.netns().run_in(|| command.spawn());
    let child = child.expect("the node's namespace can be entered");
    let mut child = child.expect("podnet-agent can be executed");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let said = lines.find(|line| line.as_ref().is_ok_and(|line| line.contains("is clean")));
    assert!(said.is_some(), "it ended: {:?}", child.wait());
    assert!(pod.links().is_empty());
    assert_eq!(child.try_wait().expect("it is our child"), None);
    kill_process(Pid::from_child(&child), Signal::TERM).expect("it can be signalled");
    let ended = child.wait().expect("it is our child");
    assert!(ended.success(), "{ended}");
    proof::of!("PAIN-BOOT-3");
}

/// Changed manifests are read again, and a broken one does not hide the others.
#[test]
fn manifests_are_read_again_when_they_change() {
    let node = testbed::node!();
    let pod = node.pod("a");
    let later = testbed::Network::l2("later", &["10.30.0.0/24"]);
    node.write_manifest("broken.yaml", "kind: PodNetwork\nmetadata: {name: [}\n");
    node.write_manifest("later.yaml", &later.yaml());
    testbed::wait::until_true("the new network", || pod.add("later", "net1").success);
    pod.detach("later", "net1");
    pod.attach("blue", "net1");
    pod.detach("blue", "net1");
    node.assert_empty();
}
