//! A rollout of the agents that the cluster does not notice (CNI-ST-05).

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::commands::{SYSTEM, kubectl};
use super::corner::{Corner, KEP, pod_fields};
use super::objects::{Kind, NODE, POD, until};
use super::removal::agent_of;

const SERVICE: Kind = ("v1", "Service", "services");
const ENDPOINT_SLICE: Kind = ("discovery.k8s.io/v1", "EndpointSlice", "endpointslices");

/// Pods that are made while the agent of their node is replaced.
const PODS: usize = 20;
/// Node on which they are made.
const LOADED: &str = "n1";

/// `Ready` of each node, and since when.
fn readiness(corner: &Corner) -> BTreeMap<String, (String, String)> {
    let nodes = corner.objects.list(NODE, "");
    let of_node = |node: &Value| {
        let conditions = node["status"]["conditions"].as_array()?;
        let ready = conditions.iter().find(|one| one["type"] == "Ready")?;
        let text = |key: &str| ready[key].as_str().map(str::to_owned);
        let name = node["metadata"]["name"].as_str()?.to_owned();
        Some((name, (text("status")?, text("lastTransitionTime")?)))
    };
    nodes.iter().filter_map(of_node).collect()
}

/// Addresses and versions of the slices of the corner's Service.
fn slices(corner: &Corner) -> Vec<(Value, Value)> {
    let slices = corner.objects.list(ENDPOINT_SLICE, &corner.name);
    let parts = |slice: &Value| {
        let version = slice["metadata"]["resourceVersion"].clone();
        (slice["endpoints"].clone(), version)
    };
    slices.iter().map(parts).collect()
}

/// CNI-ST-05: no sandbox fails, each node stays Ready, no endpoint goes.
#[test]
fn a_rollout_of_the_agents_is_not_noticed_by_the_cluster() {
    let corner = Corner::new("rollout");
    let blue = corner.network("blue", "10.109.0.0/24");
    let list = json!([{"name": "default", "isDefaultGW": true}, {"name": blue}]).to_string();
    let mut served = pod_fields(LOADED, &[]);
    served["metadata"]["labels"] = json!({"app": "served"});
    corner.create("served", &served);
    corner.ready("served");
    let service = json!({"spec": {"selector": {"app": "served"}, "ports": [{"port": 80}]}});
    corner
        .objects
        .make(SERVICE, (&corner.name, "served"), service);
    let before = until("the endpoint of the Service", || {
        let slices = slices(&corner);
        let is_ready = |slice: &(Value, Value)| slice.0[0]["conditions"]["ready"] == true;
        slices.iter().any(is_ready).then_some(slices)
    });
    let ready = readiness(&corner);
    assert!(
        ready.values().all(|(status, _)| status == "True"),
        "{ready:?}"
    );
    let old = agent_of(&corner.objects, LOADED);

    let done = kubectl(&["-n", SYSTEM, "rollout", "restart", "daemonset/podnet-agent"]);
    done.expect("the rollout begins");
    let names: Vec<String> = (0..PODS).map(|number| format!("p{number}")).collect();
    for name in &names {
        corner.pod(name, LOADED, &[(KEP, list.clone())]);
    }
    until("the old agent to go", || {
        corner
            .objects
            .get(POD, (SYSTEM, &old))
            .is_none()
            .then_some(())
    });
    for name in &names {
        corner.ready(name);
    }
    let done = kubectl(&[
        "-n",
        SYSTEM,
        "rollout",
        "status",
        "daemonset/podnet-agent",
        "--timeout=180s",
    ]);
    done.expect("the rollout ends");

    let failed: Vec<_> = names
        .iter()
        .flat_map(|name| corner.events(name))
        .filter(|(reason, _)| reason == "FailedCreatePodSandBox")
        .collect();
    assert_eq!(failed, [], "sandboxes failed");
    assert_eq!(readiness(&corner), ready, "a node was not Ready");
    assert_eq!(slices(&corner), before, "endpoints have changed");
    proof::of!("CNI-ST-05");
}
