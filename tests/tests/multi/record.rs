//! Test `DEL`, `CHECK` and `GC` by the record of `ADD`, even of another agent.
//!
//! NPWG §4.2.1.

use serde_json::{Value, json};
use testbed::plugins::Plugins;
use testbed::wait;

use super::scene::{K8sPod, definition, gc, held, setup};

fn lan(version: &str) -> String {
    let conf =
        json!({"cniVersion": version, "name": "lan", "plugins": [{"type": "alpha", "x": 1}]});
    definition("lan", &conf)
}

/// NPWG-4.2.1, PAIN-DEL-3: the plugin gets at `DEL` what it got at `ADD`.
///
/// Meanwhile the definition is edited, then gone, annotations are changed, the agent restarted. It gets
/// its result, too.
#[test]
fn npwg_4_2_1_del_uses_what_was_recorded_at_add() {
    let plugins = Plugins::new(&["alpha"]);
    let node = testbed::node!(
        setup()
            .file("lan.json", &lan("0.4.0"))
            .file("red-nad.json", &definition("red", &Value::Null))
    );
    let printed =
        json!({"cniVersion": "0.4.0", "ips": [{"version": "4", "address": "10.0.0.7/24"}]});
    plugins.answer("alpha", "ADD", &printed);
    let pod = K8sPod::new(&node, "a")
        .path(&plugins.path())
        .npwg(&json!("lan,red"));
    let result = pod.attach();
    let added = plugins.stdin("alpha", "ADD");
    node.write_manifest("lan.json", &lan("1.0.0").replace("alpha", "beta"));
    node.restart();
    node.remove_manifest("lan.json");
    node.remove_manifest("red-nad.json");
    let pod = pod.npwg(&json!("something/else"));
    pod.check(&result).silent();
    assert_eq!(plugins.stdin("alpha", "CHECK")["prevResult"], printed);
    pod.del().silent();
    let mut deleted = plugins.stdin("alpha", "DEL");
    assert_eq!(deleted["prevResult"], printed);
    deleted
        .as_object_mut()
        .expect("an object")
        .remove("prevResult");
    assert_eq!(deleted, added);
    assert_eq!(
        plugins.env("alpha", "DEL", "CNI_IFNAME").as_deref(),
        Some("net1")
    );
    assert_eq!(pod.pod.links(), Vec::<String>::new());
    node.assert_empty();
    proof::of!("NPWG-4.2.1", "PAIN-DEL-3");
}

/// CNI-ADD-04: a repeated `ADD` gets the same answer; another request is refused.
///
/// The runtime did not get the first answer.
#[test]
fn cni_add_04_a_repeated_add_gets_the_same_answer() {
    let plugins = Plugins::new(&["alpha"]);
    let node = testbed::node!(setup().file("lan.json", &lan("1.0.0")));
    let pod = K8sPod::new(&node, "a")
        .path(&plugins.path())
        .npwg(&json!("lan"));
    let first = pod.attach();
    for again in 0..2 {
        assert_eq!(pod.attach(), first, "{again}");
        node.restart();
    }
    assert_eq!(plugins.calls(), ["alpha ADD net1"]);
    let other = pod.npwg(&json!(""));
    other
        .add()
        .fails_with(105)
        .names(&["a/eth0", "configuration"]);
    assert_eq!(held(&node), ["a/eth0 blue", "a/net1 lan"]);
    other.detach();
    node.assert_empty();
    proof::of!("CNI-ADD-04");
}

/// CNI-DEL-01, RT-CD-08: `DEL` without a namespace reaches the plugins.
///
/// They get none, and everything is released.
#[test]
fn rt_cd_08_del_without_a_namespace_reaches_the_plugins() {
    let plugins = Plugins::new(&["alpha"]);
    let node = testbed::node!(setup().file("lan.json", &lan("1.0.0")));
    let mut pod = K8sPod::new(&node, "a")
        .path(&plugins.path())
        .npwg(&json!("lan"));
    pod.attach();
    let call = pod.call("DEL", &node.disk_conf()).env("CNI_NETNS", "");
    pod.pod.remove_netns();
    call.run().silent();
    assert_eq!(
        plugins.env("alpha", "DEL", "CNI_NETNS").as_deref(),
        Some("")
    );
    call.run().silent();
    assert_eq!(plugins.calls(), ["alpha ADD net1", "alpha DEL net1"]);
    node.assert_empty();
    proof::of!("CNI-DEL-01", "RT-CD-08");
}

/// PAIN-IP-1: a pod that is gone without `DEL` is cleaned up by the next look.
///
/// Its plugins are told.
#[test]
fn pain_ip_1_pods_that_are_gone_are_cleaned_up_by_themselves() {
    let plugins = Plugins::new(&["alpha"]);
    let node = testbed::node!(setup().file("lan.json", &lan("1.0.0")));
    let mut pod = K8sPod::new(&node, "a")
        .path(&plugins.path())
        .npwg(&json!("lan"));
    pod.attach();
    node.terminate();
    pod.pod.remove_netns();
    node.start_agent();
    wait::until_true("the pod to be cleaned up", || held(&node).is_empty());
    assert_eq!(plugins.calls(), ["alpha ADD net1", "alpha DEL net1"]);
    node.assert_empty();
    proof::of!("RT-CD-06", "RT-CO-04", "PAIN-IP-1");
}

/// CNI-DEL-05: a `DEL` that no agent was there to hear takes the whole pod.
#[test]
fn cni_del_05_a_del_that_waited_removes_the_whole_pod() {
    let plugins = Plugins::new(&["alpha"]);
    let node = testbed::node!(setup().file("lan.json", &lan("1.0.0")));
    let pod = K8sPod::new(&node, "a")
        .path(&plugins.path())
        .npwg(&json!("lan"));
    pod.attach();
    node.terminate();
    pod.del().silent();
    assert_eq!(node.tombstones().len(), 1);
    node.start_agent();
    wait::until_true("the DEL to be served", || node.tombstones().is_empty());
    assert_eq!(held(&node), Vec::<String>::new());
    assert_eq!(plugins.calls(), ["alpha ADD net1", "alpha DEL net1"]);
    assert_eq!(pod.pod.links(), Vec::<String>::new());
    node.assert_empty();
    proof::of!("CNI-DEL-05");
}

/// CNI-DEL-04: another sandbox of the same pod is another container.
#[test]
fn cni_del_04_a_del_of_an_old_sandbox_spares_the_new_one() {
    let plugins = Plugins::new(&["alpha"]);
    let node = testbed::node!(setup().file("lan.json", &lan("1.0.0")));
    let pods = ["old", "new"].map(|name| {
        let pod = K8sPod::new(&node, name).path(&plugins.path());
        pod.npwg(&json!("lan"))
    });
    pods.iter().for_each(|pod| drop(pod.attach()));
    pods[0].detach();
    assert_eq!(held(&node), ["new/eth0 blue", "new/net1 lan"]);
    pods[1].detach();
    node.assert_empty();
    proof::of!("CNI-DEL-04");
}

/// CNI-GC-07: releases without the namespace.
#[test]
fn cni_gc_07_gc_releases_pods_without_a_namespace() {
    let plugins = Plugins::new(&["alpha"]);
    let node = testbed::node!(setup().file("lan.json", &lan("1.0.0")));
    let mut pod = K8sPod::new(&node, "a")
        .path(&plugins.path())
        .npwg(&json!("lan"));
    pod.attach();
    pod.pod.remove_netns();
    gc(&node, &[], &plugins.path()).silent();
    assert_eq!(held(&node), Vec::<String>::new());
    assert_eq!(plugins.calls(), ["alpha ADD net1", "alpha DEL net1"]);
    node.assert_empty();
    proof::of!("CNI-GC-07");
}
