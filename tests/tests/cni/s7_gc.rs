//! CNI SPEC section 4, GC.

use serde_json::json;
use testbed::{Node, Pod, wait};

fn pods<'a>(node: &'a Node, names: &[&str]) -> Vec<Pod<'a>> {
    let pods = names.iter().map(|name| {
        let pod = node.pod(name);
        pod.attach("blue", "net1");
        pod
    });
    pods.collect()
}

fn held(node: &Node) -> Vec<String> {
    let keys = node.attachments().into_iter();
    keys.map(|(container, ifname)| format!("{container}/{ifname}"))
        .collect()
}

/// CNI-GC-01: what is not in the list goes, what is in it stays.
#[test]
fn gc_removes_what_the_runtime_does_not_know() {
    let node = testbed::node!();
    let pods = pods(&node, &["a", "b", "c"]);
    node.gc("blue", &[("b", "net1"), ("stranger", "net1")])
        .silent();
    assert_eq!(held(&node), ["b/net1"]);
    assert!(pods[0].links().is_empty() && pods[2].links().is_empty());
    assert_eq!(pods[1].links(), ["net1"]);
    pods[1].detach("blue", "net1");
    node.assert_empty();
    proof::of!("CNI-GC-01");
}

/// CNI-GC-02: `[]` says that nothing is valid.
#[test]
fn gc_empty() {
    let node = testbed::node!();
    let pods = pods(&node, &["a", "b"]);
    node.gc("blue", &[]).silent();
    assert!(pods.iter().all(|pod| pod.links().is_empty()));
    node.assert_empty();
    proof::of!("CNI-GC-02");
}

/// CNI-GC-02: `null` is how Go writes an empty list.
#[test]
fn gc_null() {
    let node = testbed::node!();
    let pods = pods(&node, &["a"]);
    let mut conf = node.conf("blue");
    conf["cni.dev/valid-attachments"] = json!(null);
    node.cni("GC").conf(&conf).run().silent();
    assert!(pods[0].links().is_empty());
    node.assert_empty();
    proof::of!("CNI-GC-02");
}

/// CNI-GC-02: an absent list removes only attachments without a pod.
///
/// It is no information, not "remove all".
#[test]
fn gc_absent() {
    let node = testbed::node!();
    let mut pods = pods(&node, &["alive", "dead"]);
    let mut dead = pods.pop().expect("two pods");
    dead.remove_netns();
    let conf = node.conf("blue");
    wait::until_true("the dead pod to be collected", || {
        node.cni("GC").conf(&conf).run().silent();
        held(&node) == ["alive/net1"]
    });
    pods[0].detach("blue", "net1");
    node.assert_empty();
    proof::of!("CNI-GC-02");
}

/// CNI-GC-01: the legacy key counts when the other is absent, and only then.
#[test]
fn gc_legacy_key() {
    let node = testbed::node!();
    let pods = pods(&node, &["a", "b"]);
    let entry = |id: &str| json!([{"containerID": id, "ifname": "net1"}]);
    let mut conf = node.conf("blue");
    conf["cni.dev/attachments"] = entry("a");
    conf["cni.dev/valid-attachments"] = json!([
        {"containerID": "a", "ifname": "net1"},
        {"containerID": "b", "ifname": "net1"},
    ]);
    node.cni("GC").conf(&conf).run().silent();
    assert_eq!(held(&node), ["a/net1", "b/net1"]);
    let mut conf = node.conf("blue");
    conf["cni.dev/attachments"] = entry("a");
    node.cni("GC").conf(&conf).run().silent();
    assert_eq!(held(&node), ["a/net1"]);
    pods[0].detach("blue", "net1");
    node.assert_empty();
    proof::of!("CNI-GC-01");
}

/// CNI-GC-03: the scope is the `name` of the configuration.
#[test]
fn gc_other_network_untouched() {
    let node = testbed::node!();
    let pod = node.pod("a");
    pod.attach("blue", "net1");
    pod.attach("red", "net2");
    node.gc("blue", &[]).silent();
    assert_eq!(held(&node), ["a/net2"]);
    assert_eq!(pod.links(), ["net2"]);
    pod.detach("red", "net2");
    node.assert_empty();
    proof::of!("CNI-GC-03");
}

/// CNI-GC-03: two configurations over one PodNetwork are two CNI networks.
#[test]
fn gc_other_configuration_of_the_same_podnetwork_untouched() {
    let node = testbed::node!();
    let pod = node.pod("a");
    pod.attach("blue", "net1");
    let mut conf = node.conf("blue");
    conf["name"] = "also-blue".into();
    pod.attach_conf(&conf, "net2");
    node.gc("blue", &[]).silent();
    assert_eq!(held(&node), ["a/net2"]);
    pod.call("DEL", "net2").conf(&conf).run().silent();
    node.assert_empty();
    proof::of!("CNI-GC-03");
}

/// CNI-GC-03: interfaces of one container are separate attachments.
#[test]
fn gc_live_secondary_untouched() {
    let node = testbed::node!();
    let pod = node.pod("a");
    pod.attach("blue", "net1");
    pod.attach("blue", "net2");
    node.gc("blue", &[("a", "net2")]).silent();
    assert_eq!(held(&node), ["a/net2"]);
    assert_eq!(pod.links(), ["net2"]);
    pod.detach("blue", "net2");
    node.assert_empty();
    proof::of!("CNI-GC-03");
}

/// CNI-GC-07: attachments in any state of decay do not stop the others'.
#[test]
fn gc_continue_on_error() {
    let node = testbed::node!();
    let mut pods = pods(&node, &["a", "b", "c", "d"]);
    let host = node.links().iter().filter(|link| link.name != "lo").count();
    assert!(host >= 4);
    let removed = pods[0].netlink().delete_by_name("net1");
    assert!(removed.expect("links can be removed"));
    pods[1].remove_netns();
    node.gc("blue", &[("d", "net1")]).silent();
    assert_eq!(held(&node), ["d/net1"]);
    assert!(pods[2].links().is_empty());
    pods[3].detach("blue", "net1");
    node.assert_empty();
    proof::of!("CNI-GC-07");
}

/// CNI-ERR-08.
#[test]
fn gc_lt_110_code1() {
    let node = testbed::node!();
    let pods = pods(&node, &["a"]);
    for version in ["0.4.0", "1.0.0"] {
        let mut conf = node.conf("blue");
        conf["cniVersion"] = version.into();
        conf["cni.dev/valid-attachments"] = json!([]);
        node.cni("GC").conf(&conf).run().fails_with(1);
    }
    assert_eq!(held(&node), ["a/net1"]);
    pods[0].detach("blue", "net1");
    proof::of!("CNI-ERR-08");
}

/// A list that cannot be read must not be taken for an empty one.
#[test]
fn gc_with_a_list_that_cannot_be_read_removes_nothing() {
    let node = testbed::node!();
    let pods = pods(&node, &["a"]);
    for list in [
        json!("a"),
        json!({}),
        json!([{"containerID": 7}]),
        json!(["a"]),
    ] {
        let mut conf = node.conf("blue");
        conf["cni.dev/valid-attachments"] = list;
        node.cni("GC").conf(&conf).run().fails_with(7);
    }
    assert_eq!(held(&node), ["a/net1"]);
    pods[0].detach("blue", "net1");
}

/// CNI-GC-06: GC during ADD removes the unlisted attachments only.
///
/// A listed one is left alone in whatever state GC meets it.
#[test]
fn gc_racing_add() {
    let node = testbed::node!();
    let stale = node.pod("stale");
    stale.attach("blue", "net1");
    let name = |thread: usize, round: usize| format!("p{thread}-{round}");
    let ids: Vec<_> = (0..4)
        .flat_map(|thread| (0..6).map(move |round| name(thread, round)))
        .collect();
    let valid: Vec<_> = ids.iter().map(|id| (id.as_str(), "net1")).collect();
    std::thread::scope(|scope| {
        let adders: Vec<_> = (0..4)
            .map(|thread| {
                let node = &node;
                scope.spawn(move || {
                    for round in 0..6 {
                        let pod = node.pod(&name(thread, round));
                        let port = pod.attach("blue", "net1");
                        pod.check("blue", "net1", &port.result).silent();
                        pod.detach("blue", "net1");
                    }
                })
            })
            .collect();
        while !adders
            .iter()
            .all(std::thread::ScopedJoinHandle::is_finished)
        {
            node.gc("blue", &valid).silent();
        }
    });
    assert!(stale.links().is_empty());
    node.assert_empty();
    proof::of!("CNI-GC-06");
}
