//! Fill the disk of the node's records for a while.
//!
//! A pod that writes faster than it is evicted, or a log, is enough for that.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use serde_json::{Value, json};
use testbed::{Node, Outcome, Pod, Setup};

/// Directories of records: of those that a reboot ends, and of the others.
const OF_BOOT: &str = "run/records";
const LASTING: &str = "state";

/// A small file system in the place of a directory of records.
struct Disk {
    path: PathBuf,
}

impl Disk {
    /// Mounts it, for an agent that is not started yet.
    fn under(node: &Node, directory: &str) -> Self {
        let path = node.path(directory);
        fs::create_dir_all(&path).expect("a directory");
        mount(
            "podnet-test-disk",
            &path,
            "tmpfs",
            MountFlags::empty(),
            c"size=4m",
        )
        .expect("a file system of its own");
        Self { path }
    }

    /// Writes until there is no room for another byte.
    fn fill(&self) {
        let mut file = fs::File::create(self.path.join("hostile")).expect("a file");
        for size in [4096, 1] {
            let chunk = vec![b'x'; size];
            while file.write_all(&chunk).is_ok() {}
        }
    }

    /// Gives the room back.
    fn free(&self) {
        fs::remove_file(self.path.join("hostile")).expect("the file was there");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // The agent may still have its store open there.
        let _ = unmount(&self.path, UnmountFlags::DETACH);
    }
}

/// Starts a node with a disk of its own for its records.
///
/// The argument is the number of seconds that the disk may fail until `/livez` does.
macro_rules! node_with_disk {
    ($patience:expr) => {
        node_with_disk!($patience, OF_BOOT)
    };
    ($patience:expr, $directory:expr) => {{
        let node = testbed::node!(
            Setup::default()
                .env("PODNET_STORE_PATIENCE", $patience)
                .stopped()
        );
        let disk = Disk::under(&node, $directory);
        node.start_agent();
        (node, disk)
    }};
}

/// Asks for an audit at once, by a `GC` without a list.
fn audit(node: &Node) {
    node.cni("GC").conf(&node.conf("blue")).run().silent();
}

/// Attaches pods until the first that fails, which has the last place.
fn attach_until_full<'a>(
    node: &'a Node,
    make: impl Fn(&Pod<'a>) -> Outcome,
) -> (Vec<Pod<'a>>, Outcome) {
    let mut pods = Vec::new();
    for number in 0..500 {
        let pod = node.pod(&format!("p{number}"));
        let outcome = make(&pod);
        let failed = !outcome.success;
        pods.push(pod);
        if failed {
            return (pods, outcome);
        }
    }
    unreachable!("500 records found room on a full disk");
}

fn metric(node: &Node, name: &str) -> String {
    let (_, text) = node.http("/metrics").expect("the agent answers");
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_default().trim().to_owned()
}

/// ATT-05: a full disk stops the node only until there is room.
///
/// An `ADD` says which disk is full, and a `DEL` succeeds and hits nothing that comes later. When there
/// is room the next audit goes on, without a new start, with exactly the acknowledged state.
#[test]
fn a_full_disk_stops_the_node_only_until_there_is_room() {
    let (node, disk) = node_with_disk!("60");
    let (a, b) = (node.pod("a"), node.pod("b"));
    a.attach("blue", "net1");
    let kept = b.attach("blue", "net1");
    disk.fill();
    let (pods, refused) = attach_until_full(&node, |pod| pod.add("blue", "net1"));
    let (last, made) = pods.split_last().expect("one has failed");
    let path = disk.path.to_str().expect("a path in UTF-8");
    refused.fails_with(11).names(&[
        "attachments.redb",
        &format!("podnet-test-disk mounted at {path}"),
        "No space left on device",
        "os error 28",
    ]);
    assert!(last.links().is_empty(), "{:?}", last.links());

    // It is said wherever somebody looks, and nobody is told to start the agent anew yet.
    let status = |path| node.http(path).expect("the agent answers").0;
    assert_eq!((status("/readyz"), status("/livez")), (503, 200));
    assert_eq!(metric(&node, "podnet_store_failed "), "1");
    node.cni("STATUS")
        .conf(&node.conf("blue"))
        .run()
        .fails_with(50);
    b.check("blue", "net1", &kept.result).silent();

    // A DEL is remembered, and an ADD of the same key is not answered with what it shall remove.
    a.del("blue", "net1").silent();
    a.del("blue", "net1").silent();
    assert_eq!(node.tombstones(), ["a-net1"]);
    a.add("blue", "net1")
        .fails_with(11)
        .names(&["earlier DEL of a/net1"]);
    // An audit does not take a disk that is still full for one with room, and loses nothing.
    audit(&node);
    assert_eq!(status("/readyz"), 503);
    assert_eq!(node.tombstones(), ["a-net1"]);
    last.add("blue", "net1").fails_with(11);
    last.del("blue", "net1").silent();

    disk.free();
    audit(&node);
    assert_eq!((status("/readyz"), status("/livez")), (200, 200));
    assert_eq!(metric(&node, "podnet_store_failed "), "0");
    assert_eq!(metric(&node, "podnet_store_failures_total "), "1");
    assert!(node.tombstones().is_empty(), "{:?}", node.tombstones());
    assert!(a.links().is_empty(), "{:?}", a.links());
    let mut expected: Vec<_> = made
        .iter()
        .chain([&b])
        .map(|pod| (pod.container().to_owned(), "net1".to_owned()))
        .collect();
    expected.sort();
    assert_eq!(node.attachments(), expected);
    // What is made now stays: no removal of before hits it.
    let again = a.attach("blue", "net1");
    audit(&node);
    a.check("blue", "net1", &again.result).silent();
    b.check("blue", "net1", &kept.result).silent();
    a.detach("blue", "net1");
    // The disk has what the agent says.
    node.restart();
    assert_eq!(node.attachments(), expected);
    for pod in made.iter().chain([&b]) {
        pod.detach("blue", "net1");
    }
    node.assert_empty();
    proof::of!("ATT-05");
}

/// ATT-05: records that a reboot ends need no room on the disk.
///
/// The number of a network does, which other nodes know, so that its first pod here is refused.
#[test]
fn pods_of_known_networks_need_no_room_on_the_disk() {
    let (node, disk) = node_with_disk!("60", LASTING);
    let a = node.pod("a");
    a.attach("blue", "net1");
    disk.fill();
    let b = node.pod("b");
    b.attach("blue", "net1");
    a.detach("blue", "net1");
    let path = disk.path.to_str().expect("a path in UTF-8");
    a.add("green", "net1").fails_with(11).names(&[
        "attachments.redb",
        &format!("podnet-test-disk mounted at {path}"),
        "No space left on device",
    ]);
    disk.free();
    audit(&node);
    a.attach("green", "net1");
    node.restart();
    for (pod, network) in [(&a, "green"), (&b, "blue")] {
        pod.detach(network, "net1");
    }
    node.assert_empty();
    proof::of!("ATT-05");
}

fn conf_of_lists(node: &Node) -> Value {
    let list = json!([{"name": "blue"}, {"name": "green"}]).to_string();
    node.pod_conf(&json!({"podnet.dev/networks": list}))
}

/// ATT-05: pods with lists are whole or gone after a full disk.
///
/// An attachment that was begun when the disk got full goes with the audit, though its runtime has been
/// told that its `DEL` is done.
#[test]
fn pods_with_lists_are_whole_or_gone_after_a_full_disk() {
    let (node, disk) = node_with_disk!("60");
    let conf = conf_of_lists(&node);
    let call = |command: &str, pod: &Pod<'_>| {
        let args = format!(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME={}",
            pod.container()
        );
        node.cni(command)
            .container(pod.container())
            .netns(pod.path())
            .ifname("eth0")
            .env("CNI_ARGS", &args)
            .conf(&conf)
            .run()
    };
    let a = node.pod("a");
    call("ADD", &a).result();
    disk.fill();
    let (pods, refused) = attach_until_full(&node, |pod| call("ADD", pod));
    refused
        .fails_with(11)
        .names(&["attachments.redb", "os error 28"]);
    let (last, made) = pods.split_last().expect("one has failed");
    call("ADD", last).fails_with(11);
    call("DEL", &a).silent();
    disk.free();
    audit(&node);
    let links = |pod: &Pod<'_>| {
        let mut links = pod.links();
        links.sort();
        links
    };
    assert!(links(&a).is_empty() && links(last).is_empty());
    for pod in made {
        assert_eq!(links(pod).len(), 2, "{}", pod.container());
    }
    assert_eq!(node.attachments().len(), 2 * made.len());
    for pod in [&a, last] {
        call("ADD", pod).result();
        assert_eq!(links(pod).len(), 2);
    }
    node.restart();
    for pod in pods.iter().chain([&a]) {
        assert_eq!(links(pod).len(), 2);
        call("DEL", pod).silent();
    }
    node.assert_empty();
    proof::of!("ATT-05");
}

/// ATT-05: `/livez` fails when the records cannot be written for too long.
#[test]
fn livez_fails_when_the_store_does_for_too_long() {
    let (node, disk) = node_with_disk!("0");
    disk.fill();
    let (pods, _) = attach_until_full(&node, |pod| pod.add("blue", "net1"));
    let (status, text) = node.http("/livez").expect("the agent answers");
    assert_eq!(status, 503, "{text}");
    assert!(text.contains("No space left on device"), "{text}");
    disk.free();
    audit(&node);
    assert_eq!(node.http("/livez").expect("the agent answers").0, 200);
    for pod in &pods {
        pod.detach("blue", "net1");
    }
    node.assert_empty();
    proof::of!("ATT-05");
}

/// ATT-05: an agent that starts on a full disk keeps its attachments.
#[test]
fn an_agent_that_starts_on_a_full_disk_keeps_what_it_had() {
    let (node, disk) = node_with_disk!("60");
    let a = node.pod("a");
    let port = a.attach("blue", "net1");
    disk.fill();
    let (pods, _) = attach_until_full(&node, |pod| pod.add("blue", "net1"));
    let before = node.attachments();
    for _ in 0..2 {
        node.restart();
        a.check("blue", "net1", &port.result).silent();
    }
    let held = node.attachments();
    // Of the one that has failed nothing can be written, and nothing stays.
    let (last, made) = pods.split_last().expect("one has failed");
    assert!(held.len() == made.len() + 1, "{before:?}, then {held:?}");
    disk.free();
    audit(&node);
    for pod in made.iter().chain([&a, last]) {
        pod.detach("blue", "net1");
    }
    node.assert_empty();
    proof::of!("ATT-05");
}
