//! Test ends of attachments that other plugins never made, or cannot remove.
//!
//! A definition that any user of a namespace may write names the plugins.

use serde_json::{Value, json};
use testbed::plugins::Plugins;
use testbed::{Node, Outcome, Setup};

use super::scene::{K8sPod, definition, held, setup};

/// Attempts of the agent to remove what a pod whose namespace is gone has left.
const ATTEMPTS: usize = 8;

fn with(plugins: &[&str]) -> Setup {
    let plugins: Vec<Value> = plugins.iter().map(|name| json!({"type": name})).collect();
    let lan = json!({"cniVersion": "1.0.0", "name": "lan", "plugins": plugins});
    setup().file("lan.json", &definition("lan", &lan))
}

fn pod<'a>(node: &'a Node, name: &str, plugins: &Plugins) -> K8sPod<'a> {
    K8sPod::new(node, name)
        .path(&plugins.path())
        .npwg(&json!("lan"))
}

/// One audit: what a `GC` without a list of attachments asks for.
fn audit(node: &Node, plugins: &Plugins) -> Outcome {
    let gc = node.cni("GC").env("CNI_PATH", &plugins.path());
    gc.conf(&node.disk_conf()).run()
}

fn count(plugins: &Plugins, call: &str) -> usize {
    let calls = plugins.calls();
    calls.iter().filter(|found| *found == call).count()
}

fn explained(node: &Node, container: &str) -> String {
    let socket = node.socket();
    let socket = socket.to_str().expect("a path in UTF-8");
    let output = node.agent_command(&["explain", "--container", container, "--socket", socket]);
    let text = [output.stdout, output.stderr].concat();
    String::from_utf8(text).expect("text")
}

/// ATT-17: a plugin that is not on the node leaves no record.
///
/// So it is however often a kubelet tries, and in whichever place of its chain it is.
#[test]
fn att_17_a_plugin_that_does_not_exist_leaves_no_record() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    for chain in [
        &["alpha", "missing"][..],
        &["missing", "alpha"],
        &["missing"],
    ] {
        let plugins = Plugins::new(&["alpha"]);
        let node = Node::start(with(chain));
        for attempt in 0..20 {
            let mut pod = pod(&node, &format!("a{attempt}"), &plugins);
            pod.add()
                .fails_with(130)
                .names(&["attachment 2", "plugin missing", "install it"]);
            // As a kubelet does before the next attempt.
            pod.del().silent();
            pod.pod.remove_netns();
        }
        audit(&node, &plugins).silent();
        assert_eq!(held(&node), Vec::<String>::new(), "{chain:?}");
        let text = explained(&node, "a0");
        assert!(text.contains("is not attached"), "{text}");
        assert_eq!(plugins.calls(), Vec::<String>::new(), "{chain:?}");
        node.assert_empty();
    }
    proof::of!("ATT-17");
}

/// ATT-17: a plugin that was not executed is told no `DEL`; those before it are.
///
/// It was there when the pod was planned, and not when it was to run.
#[test]
fn att_17_a_plugin_that_was_not_executed_is_not_told_del() {
    let plugins = Plugins::new(&["alpha", "beta", "gamma"]);
    let node = testbed::node!(with(&["alpha", "beta", "gamma"]));
    let path = plugins.dir().join("bin/beta");
    plugins.on("alpha", "ADD", &format!("rm {}", path.display()));
    let pod = pod(&node, "a", &plugins).npwg(&json!("lan,lan"));
    pod.add()
        .fails_with(130)
        .names(&["attachment 2", "plugin beta"]);
    assert_eq!(held(&node), Vec::<String>::new());
    assert_eq!(plugins.calls(), ["alpha ADD net1", "alpha DEL net1"]);
    node.assert_empty();
    proof::of!("ATT-17");
}

/// ATT-17: a `DEL` that never succeeds ends, if the pod's namespace is gone.
///
/// The plugin is asked a bounded number of times, also over a restart, and less and less often. Those
/// that are done are not asked again, the tables say what is left, and the log says how it ended.
#[test]
fn att_17_a_removal_that_never_succeeds_ends() {
    let plugins = Plugins::new(&["alpha", "beta"]);
    let node = testbed::node!(with(&["alpha", "beta"]));
    plugins.fail("beta", "ADD", 7, "no such thing");
    plugins.fail("beta", "DEL", 7, "no such thing either");
    let mut pod = pod(&node, "a", &plugins);
    pod.add().fails_with(130).names(&["no such thing"]);
    assert_eq!(held(&node), ["a/net1 lan"]);
    assert_eq!(count(&plugins, "alpha DEL net1"), 1);
    let del = pod.call("DEL", &node.disk_conf()).env("CNI_NETNS", "");
    pod.pod.remove_netns();
    plugins.forget_calls();
    let mut audits = 0;
    while count(&plugins, "beta DEL net1") < 4 {
        audit(&node, &plugins);
        audits += 1;
        assert!(audits < 100, "{:?}", plugins.calls());
    }
    assert!(audits > 4, "attempts come less and less often: {audits}");
    let rows = node.get("attachments");
    assert_eq!(rows.len(), 1, "{rows:?}");
    let row = rows.first().cloned().unwrap_or_default();
    assert_eq!(row["left"], json!(["beta"]), "{row}");
    assert_eq!(row["attempts"], 4, "{row}");
    let text = explained(&node, "a");
    assert!(
        text.contains("(Deleting)") && text.contains("4 of 8 attempts have failed"),
        "{text}"
    );
    node.restart();
    while !held(&node).is_empty() {
        audit(&node, &plugins);
        audits += 1;
        assert!(audits < 200, "{:?}", plugins.calls());
    }
    let wanted = vec!["beta DEL net1"; ATTEMPTS];
    assert_eq!(plugins.calls(), wanted);
    let text = explained(&node, "a");
    assert!(text.contains("is not attached"), "{text}");
    let log = node.log();
    let ends: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("given up"))
        .collect();
    assert_eq!(ends.len(), 1, "{log}");
    for word in ["a/eth0", "lan", "net1", "beta", "no such thing either"] {
        assert!(
            ends.iter().all(|line| line.contains(word)),
            "{word}: {ends:?}"
        );
    }
    // What a runtime still says of it is success, and nobody is asked.
    del.run().silent();
    audit(&node, &plugins).silent();
    assert_eq!(plugins.calls(), wanted);
    node.assert_empty();
    proof::of!("ATT-17", "RT-CO-04");
}

/// ATT-17, CNI-DEL-02: a removal has no end while the namespace is there.
///
/// The runtime is still to repeat it; and a plugin that recovers is told once.
#[test]
fn att_17_a_removal_has_no_end_while_the_namespace_is_there() {
    let plugins = Plugins::new(&["alpha"]);
    let node = testbed::node!(with(&["alpha"]));
    let pod = pod(&node, "a", &plugins);
    pod.attach();
    plugins.fail("alpha", "DEL", 7, "not now");
    pod.del().fails_with(130);
    plugins.forget_calls();
    while count(&plugins, "alpha DEL net1") <= ATTEMPTS {
        audit(&node, &plugins);
        assert_eq!(held(&node), ["a/net1 lan"]);
    }
    plugins.on("alpha", "DEL", "");
    pod.detach();
    node.assert_empty();
    proof::of!("ATT-17", "CNI-DEL-02");
}
