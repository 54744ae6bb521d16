//! Test deaths of the agent while a pod has several networks made or removed.
//!
//! Afterwards record, kernel and the plugins of others agree: the pod has everything or nothing.

use serde_json::{Value, json};
use testbed::plugins::Plugins;
use testbed::{Node, Setup, wait};

use super::scene::{K8sPod, definition, held, setup};

fn scene() -> Setup {
    let lan = json!({"cniVersion": "1.0.0", "name": "lan", "type": "alpha"});
    setup()
        .file("lan.json", &definition("lan", &lan))
        .file("red-nad.json", &definition("red", &Value::Null))
}

fn pod<'a>(node: &'a Node, plugins: &Plugins) -> K8sPod<'a> {
    let pod = K8sPod::new(node, "a").path(&plugins.path());
    pod.npwg(&json!("red,lan,red"))
}

const ALL: [&str; 4] = ["a/eth0 blue", "a/net1 red", "a/net2 lan", "a/net3 red"];

/// NPWG-7.2, PAIN-IP-1: a half-made pod is removed at start, and can be made again.
#[test]
fn an_add_that_died_half_way_leaves_nothing() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    // The plugin was told ADD, and so is told DEL; before that, DEL does no harm.
    for point in [
        "pod.recorded",
        "add.recorded",
        "pod.member",
        "pod.delegated",
    ] {
        let plugins = Plugins::new(&["alpha"]);
        let node = Node::start(scene());
        let pod = pod(&node, &plugins);
        node.terminate();
        node.start_agent_to_crash_at(point);
        pod.add().fails_with(11);
        node.wait_dead();
        node.start_agent();
        wait::until_true("the rest to be removed", || held(&node).is_empty());
        assert_eq!(pod.pod.links(), Vec::<String>::new(), "{point}");
        let calls = plugins.calls();
        let adds = calls.iter().filter(|call| call.contains("ADD")).count();
        assert_eq!(
            adds,
            usize::from(point == "pod.delegated"),
            "{point}: {calls:?}"
        );
        assert_eq!(
            calls.last().map(String::as_str),
            Some("alpha DEL net2"),
            "{point}"
        );
        pod.attach();
        assert_eq!(held(&node), ALL, "{point}");
        pod.detach();
        node.assert_empty();
    }
    proof::of!("NPWG-7.2", "PAIN-IP-1");
}

/// CNI-ADD-06: committed but not told: the runtime's next call gets what it must.
#[test]
fn an_add_that_died_before_its_answer_is_answered_again_or_removed() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    for point in ["pod.committed", "add.replied"] {
        for again in [false, true] {
            let plugins = Plugins::new(&["alpha"]);
            let node = Node::start(scene());
            let pod = pod(&node, &plugins);
            node.terminate();
            node.start_agent_to_crash_at(point);
            pod.add();
            node.wait_dead();
            node.start_agent();
            assert_eq!(held(&node), ALL, "{point}");
            if again {
                let result = pod.attach();
                pod.check(&result).silent();
            }
            pod.detach();
            let mut calls = plugins.calls();
            calls.retain(|call| !call.contains("CHECK"));
            assert_eq!(calls, ["alpha ADD net2", "alpha DEL net2"], "{point}");
            node.assert_empty();
        }
    }
    proof::of!("CNI-ADD-06");
}

/// CNI-DEL-02: a removal that was begun is finished.
#[test]
fn a_del_that_died_half_way_is_finished() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    for point in [
        "pod.deleting",
        "pod.member-gone",
        "del.torn-down",
        "pod.forgotten",
    ] {
        let plugins = Plugins::new(&["alpha"]);
        let node = Node::start(scene());
        let pod = pod(&node, &plugins);
        pod.attach();
        node.terminate();
        node.start_agent_to_crash_at(point);
        pod.del();
        node.wait_dead();
        node.start_agent();
        wait::until_true("the rest to be removed", || {
            held(&node).is_empty() && node.tombstones().is_empty()
        });
        assert_eq!(pod.pod.links(), Vec::<String>::new(), "{point}");
        assert_eq!(
            plugins.calls().last().map(String::as_str),
            Some("alpha DEL net2")
        );
        pod.detach();
        node.assert_empty();
    }
    proof::of!("CNI-DEL-02");
}

/// CNI-ADD-06: an answer that no runtime hears is taken back.
///
/// The plugin of another is slow, and the runtime goes away: it does not know of the pod.
#[test]
fn cni_add_06_an_answer_nobody_hears_is_taken_back() {
    let plugins = Plugins::new(&["alpha"]);
    let node = testbed::node!(scene());
    let go = plugins.dir().join("go");
    let run = format!("while ! [ -e {} ]; do sleep 0.05; done", go.display());
    plugins.on("alpha", "ADD", &run);
    let pod = pod(&node, &plugins);
    let mut child = pod
        .call("ADD", &pod.conf())
        .spawn(std::process::Stdio::null());
    wait::until_true("the plugin to run", || !plugins.calls().is_empty());
    child.kill().expect("podnet can be killed");
    child.wait().expect("podnet is our child");
    std::fs::write(&go, "").expect("a file");
    wait::until_true("the pod to be taken back", || {
        plugins.calls().len() == 2 && held(&node).is_empty()
    });
    assert_eq!(plugins.calls(), ["alpha ADD net2", "alpha DEL net2"]);
    assert_eq!(pod.pod.links(), Vec::<String>::new());
    node.assert_empty();
    proof::of!("CNI-ADD-06");
}
