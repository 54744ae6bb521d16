//! ATT-16: what two threads write of one network, the older of what they know last.

use std::path::Path;
use std::{fs, thread};

use testbed::{Fabric, Network, Node, Schedule, Setup, skip, wait};

/// Writes the file of node-9, with this member of network blue and no other.
fn say(directory: &Path, last: u8) {
    let vtep = Fabric::v4(2);
    let text = format!(
        "apiVersion: podnet.dev/v1alpha1\nkind: PodNetworkEndpointSlice\n\
         metadata: {{name: blue.node-9.0}}\n\
         spec:\n  network: blue\n  networkID: 2001\n  node: node-9\n  vteps: [{vtep}]\n  endpoints:\n    \
         - {{mac: \"02:00:00:00:00:{last:02x}\", ips: [10.10.0.{last}], since: \"2026-01-02T03:04:05Z\"}}\n"
    );
    let hidden = directory.join(".node-9.yaml");
    fs::write(&hidden, text).expect("a file");
    fs::rename(hidden, directory.join("node-9.yaml")).expect("a file");
}

/// Returns what the node's tables do with a packet to an address.
fn becomes(node: &Node, last: u8) -> String {
    let to = format!("10.10.0.{last}");
    let told = node.explain("a", &to, &["--proto", "udp:5000:9"]);
    told.verdict().to_owned()
}

/// ATT-16: earlier reads of other nodes' members do not overwrite later ones.
///
/// An `ADD` has read the state of other nodes when a member there is gone and another has come.
/// Whatever the two threads do then, the tables end with the latest state.
#[test]
fn what_was_read_earlier_is_not_written_over_what_was_read_later() {
    if skip::without_root(testbed::test_name!()) {
        return;
    }
    let (shared, held) = (tempfile::tempdir(), tempfile::tempdir());
    let (shared, held) = (shared.expect("a directory"), held.expect("a directory"));
    let path = |of: &tempfile::TempDir| of.path().to_str().expect("a path in UTF-8").to_owned();
    let fabric = Fabric::create();
    let _other = fabric.host(2);
    let blue = Network::l3("blue", &["10.10.0.0/24"]).exclude(&["10.10.0.128/25"]);
    let vtep = Fabric::v4(1).to_string();
    let setup = Setup::empty()
        .named("node-1")
        .args(&["--vtep", &vtep, "--endpoints", &path(&shared)])
        .env("PODNET_PAUSE_IN", &path(&held))
        .network(&blue.id(2001).vxlan());
    let node = Node::start_on(setup, fabric.host(1));
    let schedule = Schedule::new(held.path());
    let (a, b) = (node.pod("a"), node.pod("b"));
    say(shared.path(), 200);
    a.add("blue", "net1").result();
    wait::until_true("the member to be in the tables", || {
        becomes(&node, 200) == "tunnelled"
    });

    schedule.pause("tables.read");
    // Before the ADD: what follows members may already wait for it when it is held.
    schedule.forget(&["tables.busy", "tables.written"]);
    thread::scope(|scope| {
        let added = scope.spawn(|| b.add("blue", "net1").result());
        schedule.wait_held("tables.read");
        say(shared.path(), 201);
        wait::until_true("the other member to be known", || {
            let rows = node.get("endpoints");
            let mut remote = rows.iter().filter(|row| row["place"] == "remote");
            remote.any(|row| row["ips"][0] == "10.10.0.201")
        });
        // It has written, or waits for the one that has read.
        schedule.wait_passed(&["tables.busy", "tables.written"]);
        schedule.release("tables.read");
        added.join().expect("the pod is attached");
    });
    wait::until_true("the tables to say what is known", || {
        becomes(&node, 201) == "tunnelled" && becomes(&node, 200) != "tunnelled"
    });
    b.detach("blue", "net1");
    a.detach("blue", "net1");
    proof::of!("ATT-16");
}
