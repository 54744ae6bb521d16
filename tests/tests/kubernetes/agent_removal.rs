//! Test the agent's Events of attachments that it cannot remove.

use serde_json::json;
use testbed::plugins::Plugins;
use testbed::{Outcome, Pod, wait};

use super::agent_scene::AgentScene;

/// A call of podnet as a runtime makes it, with the plugins of others in its path.
pub(super) fn call(s: &AgentScene, plugins: &Plugins, sandbox: &Pod<'_>, command: &str) -> Outcome {
    let args = format!(
        "IgnoreUnknown=1;K8S_POD_NAMESPACE={};K8S_POD_NAME=web;K8S_POD_INFRA_CONTAINER_ID={}",
        s.name,
        sandbox.container()
    );
    let call = sandbox.call(command, "eth0").env("CNI_ARGS", &args);
    call.env("CNI_PATH", &plugins.path()).conf(&s.conf()).run()
}

/// NPWG-X4, NPWG-7.2b: the pod says which attachment is left and why.
///
/// It does so once and counted, for as long as the runtime tries.
#[test]
fn an_attachment_that_cannot_be_removed_has_an_event() {
    let Some(s) = AgentScene::start(testbed::test_name!(), "agent-left") else {
        return;
    };
    let plugins = Plugins::new(&["alpha"]);
    s.apply_network("blue", &["10.1.0.0/24"], true);
    let config = json!({"cniVersion": "1.0.0", "name": "lan", "type": "alpha"}).to_string();
    let definition = json!({
        "apiVersion": "k8s.cni.cncf.io/v1",
        "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": "lan", "namespace": s.name},
        "spec": {"config": config},
    });
    s.apply(&definition.to_string());
    let first = json!([{"name": s.network("blue")}]).to_string();
    let lists = [
        ("podnet.dev/networks", first.as_str()),
        ("k8s.v1.cni.cncf.io/networks", "lan"),
    ];
    s.make_pod("web", &lists);
    let sandbox = s.node.pod("c1");
    let added = wait::until("the agent to know of the network", || {
        Some(call(&s, &plugins, &sandbox, "ADD")).filter(|outcome| outcome.success)
    });
    added.result();

    plugins.fail("alpha", "DEL", 100, "the switch does not answer");
    for _ in 0..2 {
        call(&s, &plugins, &sandbox, "DEL").fails_with(130);
    }
    let words = ["lan", "net1", "alpha", "the switch does not answer"];
    s.wait_event("web", "FailedRemovingInterface", &words);
    wait::until_true("the same again to be counted", || {
        let events = s.events("web");
        let mut left = events
            .iter()
            .filter(|(_, reason, ..)| reason == "FailedRemovingInterface");
        matches!((left.next(), left.next()), (Some((kind, _, _, 2..)), None) if kind == "Warning")
    });
    plugins.answer("alpha", "DEL", &json!({}));
    call(&s, &plugins, &sandbox, "DEL").silent();
    proof::of!("NPWG-X4", "NPWG-7.2b");
}
