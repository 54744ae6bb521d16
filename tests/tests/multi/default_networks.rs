//! Networks that pods have without naming them (`--default-networks`).

use serde_json::{Value, json};
use testbed::plugins::Plugins;

use super::scene::{K8sPod, definition, held, setup};

/// A definition of namespace `ops`.
fn of_ops(name: &str, config: &Value) -> String {
    definition(name, config).replace("\"namespace\":\"default\"", "\"namespace\":\"ops\"")
}

/// NPWG-X7: `defaultNetworks` as Multus has them, with `systemNamespaces`.
#[test]
fn npwg_x7_pods_have_the_default_networks_next_to_the_default_one_and_exceptions_hold() {
    let plugins = Plugins::new(&["lan"]);
    let result = json!({"cniVersion": "1.0.0", "interfaces": [{"name": "net2", "sandbox": "/x"}]});
    plugins.answer("lan", "ADD", &result);
    let red = json!({"cniVersion": "1.0.0", "type": "podnet", "podNetwork": "red"});
    let lan = json!({"cniVersion": "1.0.0", "name": "lan", "type": "lan"});
    let setup = setup()
        .args(&[
            "--default-networks=ops/red,ops/lan",
            "--system-namespaces=kube-system,quiet",
            // What the operator gives is not what a pod takes from another namespace.
            "--namespace-isolation",
            "--global-namespaces=",
        ])
        .file("red-nad.json", &of_ops("red", &red))
        .file("lan-nad.json", &of_ops("lan", &lan))
        .file("own-nad.json", &definition("own", &red));
    let node = testbed::node!(setup);
    let pod = |name: &str| K8sPod::new(&node, name).path(&plugins.path());

    let plain = pod("a");
    plain.attach();
    assert_eq!(held(&node), ["a/eth0 blue", "a/net1 red", "a/net2 lan"]);
    assert_eq!(plugins.calls(), ["lan ADD net2"]);
    plain.detach();
    assert_eq!(plugins.calls(), ["lan ADD net2", "lan DEL net2"]);

    // The pod's own come after them.
    let listing = pod("b").npwg(&json!("own"));
    listing.attach();
    assert_eq!(
        held(&node),
        ["b/eth0 blue", "b/net1 red", "b/net2 lan", "b/net3 red"]
    );
    listing.detach();
    // One of another namespace is refused by itself still.
    let taking = pod("c").npwg(&json!("ops/red"));
    taking.add().fails_with(7).names(&["--namespace-isolation"]);

    // A complete list is complete, and so is a namespace of the system.
    let complete = pod("d").kep(&json!([{"name": "green"}]));
    complete.attach();
    assert_eq!(held(&node), ["d/eth0 green"]);
    complete.detach();
    let system = pod("e").args("K8S_POD_NAMESPACE=quiet");
    system.attach();
    assert_eq!(held(&node), ["e/eth0 blue"]);
    system.detach();

    // All or nothing, and what was made is undone.
    plugins.fail("lan", "ADD", 100, "no carrier");
    let broken = pod("f");
    broken
        .add()
        .fails_with(130)
        .names(&["attachment 3 of the pod", "ops/lan", "no carrier"]);
    assert_eq!(held(&node), Vec::<String>::new());
    node.assert_empty();
    proof::of!("NPWG-X7");
}
