//! Test limits of a cluster on the plugins and networks that definitions name.
//!
//! A definition is a command for root on the nodes of its pods.

use serde_json::{Value, json};
use testbed::plugins::Plugins;
use testbed::{Node, Setup};

use super::scene::{K8sPod, definition, held, setup};

const LIMITS: [&str; 2] = [
    "--delegates-allowed=alpha,host-local",
    "--namespace-isolation",
];

/// Definitions by name; those that begin with `ops-` are of namespace `ops`.
fn with(definitions: &[(&str, Value)]) -> Setup {
    definitions.iter().fold(setup(), |setup, (name, config)| {
        let text = match name.strip_prefix("ops-") {
            Some(name) => definition(name, config).replace(r#":"default""#, r#":"ops""#),
            None => definition(name, config),
        };
        setup.file(&format!("{name}.json"), &text)
    })
}

fn chain(plugins: &Value) -> Value {
    json!({"cniVersion": "1.0.0", "name": "lan", "plugins": plugins})
}

/// ATT-07b: only listed plugins run, wherever a tenant names others.
///
/// None of the chain before such a plugin runs. Without the option every plugin runs.
#[test]
fn att_07b_only_listed_plugins_run() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let beta = json!({"type": "beta"});
    let definitions = [
        ("alone", chain(&json!([beta]))),
        ("last", chain(&json!([{"type": "alpha"}, beta]))),
        ("ipam", chain(&json!([{"type": "alpha", "ipam": beta}]))),
        (
            "spelled",
            chain(&json!([{"type": "alpha", "IPAM": {"Type": "beta"}}])),
        ),
        (
            "delegate",
            chain(&json!([{"type": "alpha", "delegate": beta}])),
        ),
        (
            "list",
            chain(&json!([{"type": "alpha", "delegates": [{"type": "alpha"}, beta]}])),
        ),
        (
            "deep",
            chain(&json!([{"type": "alpha", "delegate": {"type": "alpha", "ipam": beta}}])),
        ),
        (
            "good",
            chain(&json!([{"type": "alpha", "ipam": {"type": "host-local"}}])),
        ),
    ];
    let plugins = Plugins::new(&["alpha", "beta"]);
    let node = Node::start(with(&definitions).args(&LIMITS));
    let pod = |name: &str, list: &str| {
        let pod = K8sPod::new(&node, name).path(&plugins.path());
        pod.npwg(&json!(list))
    };
    for (name, _) in &definitions {
        if *name == "good" {
            continue;
        }
        let refused = pod(name, &format!("good,{name}"));
        refused.add().fails_with(7).names(&[
            "attachment 3",
            &format!("NetworkAttachmentDefinition default/{name}"),
            "is \"beta\"",
            "--delegates-allowed",
            "alpha, host-local",
        ]);
        assert_eq!(plugins.calls(), Vec::<String>::new(), "{name}");
        assert_eq!(held(&node), Vec::<String>::new(), "{name}");
    }
    let attached = pod("good", "good");
    attached.attach();
    attached.detach();
    plugins.forget_calls();
    node.assert_empty();
    let open = Node::start(with(&definitions));
    let attached = K8sPod::new(&open, "a").path(&plugins.path());
    let attached = attached.npwg(&json!("alone"));
    attached.attach();
    assert_eq!(plugins.calls(), ["beta ADD net1"]);
    attached.detach();
    open.assert_empty();
    proof::of!("ATT-07b");
}

/// ATT-07b: a pod names definitions of its own and of global namespaces only.
///
/// Neither a definition nor a configuration names an attachment of another one.
#[test]
fn att_07b_namespaces_are_isolated() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let plugins = Plugins::new(&["alpha"]);
    let alpha = chain(&json!([{"type": "alpha"}]));
    let through =
        json!({"cniVersion": "1.0.0", "type": "podnet", "podNetworkAttachment": "ops/fast"});
    let fast = "apiVersion: podnet.dev/v1alpha1\nkind: PodNetworkAttachment\n\
        metadata: {name: fast, namespace: ops}\nspec: {podNetworkName: blue}\n";
    let scene = || {
        let definitions = [
            ("lan", alpha.clone()),
            ("ops-lan", alpha.clone()),
            ("through", through.clone()),
        ];
        with(&definitions).file("fast.yaml", fast)
    };
    let lists = ["lan", "ops/lan", "through"];
    // Of no option, and of a namespace that is everybody's.
    let everybodys = ["--namespace-isolation", "--global-namespaces=ops"];
    for more in [&[][..], &everybodys] {
        let node = Node::start(scene().args(more));
        for list in lists {
            let pod = K8sPod::new(&node, "a").path(&plugins.path());
            let pod = pod.npwg(&json!(list));
            pod.attach();
            pod.detach();
        }
        node.assert_empty();
    }
    plugins.forget_calls();
    let node = Node::start(scene().args(&LIMITS));
    let pod = |list: &str| {
        let pod = K8sPod::new(&node, "a").path(&plugins.path());
        pod.npwg(&json!(list))
    };
    for list in ["ops/lan", "through"] {
        pod(list).add().fails_with(7).names(&[
            "namespace ops is another than default",
            "--namespace-isolation",
            "--global-namespaces",
        ]);
    }
    assert_eq!(plugins.calls(), Vec::<String>::new());
    // As another plugin hands it on.
    let sandbox = node.pod("b");
    let conf = node.attachment_conf("blue", "ops/fast");
    let refused = sandbox.add_conf(&conf, "eth0").fails_with(7);
    refused.names(&["namespace ops", "--namespace-isolation"]);
    assert_eq!(sandbox.links(), Vec::<String>::new());
    let own = pod("lan");
    own.attach();
    own.detach();
    node.assert_empty();
    proof::of!("ATT-07b");
}
