//! A rollout of the agents that the cluster does not notice (CNI-ST-05).

use std::collections::BTreeMap;
use std::thread;

use serde_json::{Value, json};

use super::commands::{SYSTEM, in_pod, kubectl, on_node};
use super::corner::{Corner, KEP, pod_fields};
use super::objects::{Kind, NODE, POD, SERVICE, until};
use super::removal::agent_of;

const ENDPOINT_SLICE: Kind = ("discovery.k8s.io/v1", "EndpointSlice", "endpointslices");

/// Pods of the Service, on both nodes in turn.
const SERVED: usize = 80;
/// Pods that are made while the agent of their node is replaced.
const MADE: usize = 20;
/// Node on which they are made.
const LOADED: &str = "n1";
const NODES: [&str; 2] = [LOADED, "n2"];
/// Sends ten packets a second until the file is there, and prints counts.
const STREAM: &str =
    "ping -q -i 0.1 $0 & until [ -e /tmp/stop ]; do sleep 0.2; done; kill -INT $!; wait $!";

/// Asks the plugin for its STATUS ten times a second until a file is there.
///
/// Prints refusals and the number of questions. A kubelet asks every five seconds, so that it may miss the moment without an agent.
const STATUS: &str = "config='{\"cniVersion\": \"1.1.0\", \"name\": \"rollout\", \"type\": \"podnet\", \"fromPod\": true}'; \
    asked=0; rm -f /run/rollout-ends; touch /run/rollout-begins; until [ -e /run/rollout-ends ]; do \
    echo \"$config\" | CNI_COMMAND=STATUS CNI_PATH=/opt/cni/bin /opt/cni/bin/podnet 2>/dev/null || echo; \
    asked=$((asked + 1)); sleep 0.1; done; echo \"asked $asked\"";

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

/// The answers and the packets of a stream that has ended.
fn answered(said: &str) -> Option<(u32, u32)> {
    let line = said
        .lines()
        .find(|line| line.contains("packets transmitted"))?;
    let mut numbers = line.split(',').map(|part| part.split_whitespace().next());
    let mut next = || numbers.next()??.parse().ok();
    let sent = next()?;
    Some((next()?, sent))
}

/// CNI-ST-05: no sandbox fails, nodes stay Ready, no endpoint or packet is lost.
///
/// There are 100 pods at the end of the rollout, 20 of which were made in it.
#[test]
fn a_rollout_of_the_agents_is_not_noticed_by_the_cluster() {
    let corner = Corner::new("rollout");
    let blue = corner.network("blue", "10.109.0.0/24");
    let list = json!([{"name": "default", "isDefaultGW": true}, {"name": blue}]).to_string();
    let served: Vec<String> = (0..SERVED).map(|number| format!("s{number}")).collect();
    for (name, node) in served.iter().zip(NODES.into_iter().cycle()) {
        let mut fields = pod_fields(node, &[(KEP, list.clone())]);
        fields["metadata"]["labels"] = json!({"app": "served"});
        corner.create(name, &fields);
    }
    let interfaces: Vec<_> = served.iter().map(|name| corner.ready(name)).collect();
    let service = json!({"spec": {"selector": {"app": "served"}, "ports": [{"port": 80}]}});
    corner
        .objects
        .make(SERVICE, (&corner.name, "served"), service);
    let before = until("the endpoints of the Service", || {
        let slices = slices(&corner);
        let all = slices
            .iter()
            .filter_map(|(endpoints, _)| endpoints.as_array());
        let ready = all
            .flatten()
            .filter(|one| one["conditions"]["ready"] == true);
        (ready.count() == SERVED).then_some(slices)
    });
    let ready = readiness(&corner);
    assert!(
        ready.values().all(|(status, _)| status == "True"),
        "{ready:?}"
    );
    let old = agent_of(&corner.objects, LOADED);

    // From node to node.
    let (from, to) = (
        (corner.name.clone(), served[0].clone()),
        interfaces[1][1].ips[0].clone(),
    );
    let stream = thread::spawn(move || in_pod((&from.0, &from.1), &["sh", "-c", STREAM, &to]));
    let asked = NODES.map(|node| thread::spawn(move || on_node(node, STATUS)));
    for node in NODES {
        let begins = "while [ ! -e /run/rollout-begins ]; do sleep 0.1; done; sleep 1";
        on_node(node, begins);
    }
    let done = kubectl(&["-n", SYSTEM, "rollout", "restart", "daemonset/podnet-agent"]);
    done.expect("the rollout begins");
    let names: Vec<String> = (0..MADE).map(|number| format!("p{number}")).collect();
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
    corner.run(&served[0], &["touch", "/tmp/stop"]);
    let asked = NODES.into_iter().zip(asked).map(|(node, asked)| {
        on_node(node, "touch /run/rollout-ends; rm -f /run/rollout-begins");
        asked.join().expect("the questions end")
    });
    for asked in asked.collect::<Vec<_>>() {
        let (refusals, count) = asked.split_once("asked ").expect("a count");
        assert_eq!(refusals, "", "the plugin was not ready");
        println!("the plugin was asked {} times", count.trim());
    }
    let said = stream.join().expect("the stream ends");
    let said = said.expect("some packets are answered");

    let failed: Vec<_> = served
        .iter()
        .chain(&names)
        .flat_map(|name| corner.events(name))
        .filter(|(reason, _)| reason == "FailedCreatePodSandBox")
        .collect();
    assert_eq!(failed, [], "sandboxes failed");
    assert_eq!(readiness(&corner), ready, "a node was not Ready");
    assert_eq!(slices(&corner), before, "endpoints have changed");
    let (received, sent) = answered(&said).unwrap_or_else(|| unreachable!("{said}"));
    println!("{sent} packets were sent from node to node in the rollout, {received} answered");
    assert!(sent > 50, "{said}");
    assert_eq!(received, sent, "packets were lost");
    proof::of!("CNI-ST-05");
}
