//! Test reboots: the store is there, but no pins, links or namespaces.

use std::fs;

use serde_json::json;
use testbed::{Network, Node, Pod, Setup, residue};

/// Removes what a reboot removes.
///
/// The boot's id lies next to the store, so that the agent notices; the kernel's own cannot be changed.
fn reboot(node: &Node, pods: &mut [Pod<'_>]) {
    node.kill_9();
    for pod in pods {
        pod.remove_netns();
    }
    let mut netlink = testbed::host::connection(node.netns());
    for link in node.links() {
        if link.name != "lo" && link.name != testbed::host::UPLINK {
            // Its other end may have taken it along already.
            netlink.delete(link.ifindex).expect("links can be removed");
        }
    }
    fs::remove_dir_all(node.bpffs()).expect("pins can be removed");
    let _ = fs::remove_dir_all(node.path("run"));
    fs::create_dir(node.path("run")).expect("a directory");
    let id = node.path("state").join("boot-id");
    if id.exists() {
        fs::write(id, "00000000-0000-0000-0000-000000000000").expect("a file");
    }
}

/// Nothing is left, every lease is free, and the node serves as before.
#[test]
fn a_reboot_leaks_nothing() {
    let tiny = Network::l2("tiny", &["10.3.0.0/30"]);
    let node = testbed::node!(Setup::default().network(&tiny));
    let mut pods: Vec<_> = (0..4).map(|n| node.pod(&format!("p{n}"))).collect();
    let networks = ["tiny", "tiny", "blue", "green"];
    for (pod, network) in pods.iter().zip(networks) {
        pod.attach(network, "net1");
    }
    reboot(&node, &mut pods);
    node.start_agent();
    node.assert_empty();
    let again: Vec<_> = (0..2).map(|n| node.pod(&format!("q{n}"))).collect();
    for pod in &again {
        pod.attach("tiny", "net1");
    }
    for pod in &again {
        pod.detach("tiny", "net1");
    }
    // The runtime still sends its DELs for what was before (MEAS-12).
    for (pod, network) in pods.iter().zip(networks) {
        pod.del(network, "net1").silent();
    }
    node.assert_empty();
    proof::of!("RT-CD-08", "PAIN-IP-1");
}

/// Static addresses can be had again at once.
#[test]
fn a_static_address_is_free_after_a_reboot() {
    let node = testbed::node!();
    let mut pods = vec![node.pod("a")];
    let mut conf = node.conf("blue");
    conf["runtimeConfig"] = json!({"ips": ["10.10.0.42"], "mac": "02:00:00:00:00:2a"});
    pods[0].attach_conf(&conf, "net1");
    reboot(&node, &mut pods);
    node.start_agent();
    let next = node.pod("b");
    next.attach_conf(&conf, "net1");
    next.detach("blue", "net1");
    node.assert_empty();
}

/// A pod that vanished while the agent was away leaks nothing.
///
/// Its attachment got no DEL, and there was no reboot: nothing will ever use it again.
#[test]
fn a_pod_that_vanished_while_the_agent_was_away_leaks_nothing() {
    let node = testbed::node!();
    let mut pod = node.pod("a");
    let kept = node.pod("b");
    pod.attach("blue", "net1");
    let port = kept.attach("blue", "net1");
    node.kill_9();
    pod.remove_netns();
    testbed::wait::until_true("the kernel to remove the link", || {
        let endpoint = port.host_ifindex();
        let aliases = node.links().into_iter().filter_map(|link| {
            let alias = link.alias.filter(|alias| alias.contains("a/net1"));
            alias.filter(|_| link.ifindex != endpoint)
        });
        aliases.count() == 0
    });
    node.start_agent();
    testbed::wait::until_true("the lost attachment to be removed", || {
        node.attachments() == [("b".to_owned(), "net1".to_owned())]
    });
    kept.detach("blue", "net1");
    node.assert_empty();
    proof::of!("RT-CD-06", "PAIN-IP-1");
}

/// Lost pins are repaired by a restart, while pods live.
///
/// An administrator unmounted the BPF file system.
#[test]
fn lost_pins_are_repaired_by_a_restart() {
    let node = testbed::node!();
    let (a, b) = (node.pod("a"), node.pod("b"));
    let (pa, pb) = (a.attach("blue", "net1"), b.attach("blue", "net1"));
    node.kill_9();
    fs::remove_dir_all(node.bpffs()).expect("pins can be removed");
    node.start_agent();
    testbed::traffic::assert_reaches(&pa, &pb);
    a.check("blue", "net1", &pa.result).silent();
    a.detach("blue", "net1");
    b.detach("blue", "net1");
    node.assert_empty();
    assert_eq!(residue::links_of_pod(a.netns()).len(), 0);
}
