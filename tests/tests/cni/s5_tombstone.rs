//! Test DEL without an agent (CNI-DEL-05): it is not lost, and blocks no request.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};

use testbed::wait;

/// CNI-DEL-05: kept next to the socket, carried out at the next start.
#[test]
fn del_agent_down_tombstone() {
    let node = testbed::node!();
    let pod = node.pod("a");
    pod.attach("blue", "net1");
    node.terminate();
    pod.del("blue", "net1").silent();
    assert_eq!(node.tombstones(), ["a-net1"]);
    let mode = fs::metadata(node.path("run").join("pending-del"));
    let mode = mode.expect("the directory is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o700, "only root may leave tombstones");
    node.start_agent();
    wait::until_true("the tombstone to be served", || {
        node.tombstones().is_empty() && pod.links().is_empty()
    });
    node.assert_empty();
    proof::of!("CNI-DEL-05");
}

/// CNI-DEL-05: the address is free as soon as the agent is ready, or soon after.
#[test]
fn a_tombstone_releases_the_address() {
    let node = testbed::node!();
    let (pod, next) = (node.pod("a"), node.pod("b"));
    let mut conf = node.conf("blue");
    conf["runtimeConfig"] = serde_json::json!({"ips": ["10.10.0.50/24"]});
    pod.attach_conf(&conf, "net1");
    node.kill_9();
    pod.del("blue", "net1").silent();
    node.start_agent();
    wait::until_true("the address to be free", || {
        next.add_conf(&conf, "net1").success
    });
    next.detach("blue", "net1");
    proof::of!("CNI-DEL-05");
}

/// CNI-DEL-05: DEL twice while the agent is away is one tombstone.
///
/// A DEL of something that never was is served like any other.
#[test]
fn tombstones_are_idempotent() {
    let node = testbed::node!();
    let (pod, other) = (node.pod("a"), node.pod("never"));
    pod.attach("blue", "net1");
    node.terminate();
    pod.del("blue", "net1").silent();
    pod.del("blue", "net1").silent();
    other.del("blue", "net1").silent();
    let mut names = node.tombstones();
    names.sort();
    assert_eq!(names, ["a-net1", "never-net1"]);
    node.start_agent();
    wait::until_true("the tombstones to be served", || {
        node.tombstones().is_empty()
    });
    node.assert_empty();
    proof::of!("CNI-DEL-05");
}

/// CNI-DEL-05: two attachments with similar names have two tombstones.
#[test]
fn tombstones_of_names_that_look_alike_are_two() {
    let node = testbed::node!();
    let (one, two) = (node.pod("a"), node.pod("a-b"));
    one.attach("blue", "b-c");
    two.attach("blue", "c");
    node.terminate();
    one.del("blue", "b-c").silent();
    two.del("blue", "c").silent();
    assert_eq!(node.tombstones().len(), 2);
    node.start_agent();
    wait::until_true("the tombstones to be served", || {
        node.tombstones().is_empty()
    });
    assert!(one.links().is_empty() && two.links().is_empty());
    node.assert_empty();
    proof::of!("CNI-DEL-05");
}

/// CNI-DEL-05: a tombstone that cannot be written is no success.
#[test]
fn a_tombstone_that_cannot_be_written_is_code_11() {
    let node = testbed::node!();
    let pod = node.pod("a");
    pod.attach("blue", "net1");
    node.terminate();
    let dir = node.path("run").join("pending-del");
    let _ = fs::remove_dir_all(&dir);
    fs::write(&dir, "in the way").expect("a file in the way");
    pod.del("blue", "net1").fails_with(11);
    fs::remove_file(&dir).expect("the file can be removed");
    node.start_agent();
    pod.detach("blue", "net1");
    proof::of!("CNI-DEL-05");
}

/// "del_corrupt_cache": an unreadable tombstone stops neither the agent nor others.
#[test]
fn del_corrupt_cache() {
    let node = testbed::node!();
    let pod = node.pod("a");
    pod.attach("blue", "net1");
    node.terminate();
    let dir = node.path("run").join("pending-del");
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder.create(&dir).expect("a directory");
    for (name, text) in [
        ("0-empty", ""),
        ("1-half", "{\"v\":1,\"cni\""),
        ("2-other", "{\"v\":1}"),
    ] {
        fs::write(dir.join(name), text).expect("a broken tombstone");
    }
    pod.del("blue", "net1").silent();
    node.start_agent();
    wait::until_true("the good tombstone to be served", || pod.links().is_empty());
    wait::until_true("the broken ones to go", || node.tombstones().is_empty());
    node.assert_empty();
}

/// CNI-DEL-05: a tombstone does not hit a later attachment.
///
/// The runtime's next ADD comes as soon as there is an agent again. A tombstone is older than the ADD
/// that follows it, and must not take the new attachment away, however many tombstones there are to be
/// served first.
#[test]
fn a_tombstone_does_not_hit_a_later_attachment() {
    let node = testbed::node!();
    let (crowd, pod): (Vec<_>, _) = (
        (0..20).map(|n| node.pod(&format!("p{n}"))).collect(),
        node.pod("z"),
    );
    for pod in crowd.iter().chain([&pod]) {
        pod.attach("blue", "net1");
    }
    node.terminate();
    for pod in crowd.iter().chain([&pod]) {
        pod.del("blue", "net1").silent();
    }
    node.start_agent();
    let port = pod.attach("blue", "net1");
    wait::until_true("the tombstones to be served", || {
        node.tombstones().is_empty()
    });
    assert!(port.link().is_some(), "the new attachment is gone");
    pod.check("blue", "net1", &port.result).silent();
    pod.detach("blue", "net1");
    node.assert_empty();
    proof::of!("CNI-DEL-05");
}
