//! Test scheduling by networks: two agents, the webhook and a kube-scheduler.
//!
//! The server is of this test: how many addresses a node counts depends on how many nodes there are.

use std::path::Path;
use std::process::Command;

use k8s_openapi::api::core::v1::{Node as ApiNode, Pod as ApiPod};
use kube::Client;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use testbed::apiserver::{self, ApiServer, Guarded};
use testbed::{Network, skip, wait};

use super::agent_scene::{self, AgentScene, object};
use super::objects;
use super::scene::Scene;
use super::webhook_scene::Webhook;

/// The node's part of a scene as the scheduler sees it.
fn said(s: &AgentScene) -> Value {
    let node = s.run(|client| async move { Api::<ApiNode>::all(client).get(&s.name).await });
    let node = node.expect("the node is there");
    let status = node.status.expect("a status");
    let ours = |key: &str| {
        let domain = key.split_once('/').map(|(domain, _)| domain);
        domain.is_some_and(|domain| domain.ends_with(".podnet.dev"))
    };
    let mut labels = node.metadata.labels.unwrap_or_default();
    labels.retain(|key, _| ours(key));
    let [capacity, allocatable] = [status.capacity, status.allocatable].map(|list| {
        let mut list = list.unwrap_or_default();
        list.retain(|key, _| ours(key));
        json!(list)
    });
    assert_eq!(capacity, allocatable, "one patch writes both");
    json!({"labels": labels, "resources": allocatable})
}

fn addresses(s: &AgentScene, network: &str) -> Option<u64> {
    let said = said(s);
    let amount = &said["resources"][format!("addresses.podnet.dev/{network}")];
    amount
        .as_str()
        .map(|amount| amount.parse().expect("a small number"))
}

fn sum(nodes: [&AgentScene; 2], network: &str) -> Option<u64> {
    let [one, other] = nodes.map(|s| addresses(s, network));
    Some(one? + other?)
}

/// Makes a network with `spec.scheduling`, or changes that; null removes it.
fn schedule(s: &AgentScene, network: &str, scheduling: &Value) {
    let patch = json!({"spec": {"scheduling": scheduling}}).to_string();
    s.kubectl(&["patch", "pnp", network, "--type=merge", "--patch", &patch]);
}

fn merge_status(s: &AgentScene, status: &Value) {
    s.run(|client| async move {
        let nodes: Api<ApiNode> = Api::all(client);
        let patch = Patch::Merge(json!({ "status": status }));
        let params = PatchParams::default();
        let patched = nodes.patch_status(&s.name, &params, &patch).await;
        patched.expect("a node can be patched");
    });
}

fn scheduler(server: &ApiServer, programs: &Path) -> Guarded {
    let config = server.pki().kubeconfig("admin");
    let mut command = Command::new(programs.join("kube-scheduler"));
    for flag in [
        "kubeconfig",
        "authentication-kubeconfig",
        "authorization-kubeconfig",
    ] {
        command.arg(format!("--{flag}={}", config.display()));
    }
    // It serves no pages: a port of loopback could be another's.
    command.args(["--secure-port=0", "--leader-elect=false"]);
    let log = server.kubeconfig().with_extension("scheduler.log");
    Guarded::spawn(&command, &log, None)
}

/// A pod with NPWG's list that tolerates all taints; no controller runs here.
fn pod(name: &str, list: &str) -> Value {
    json!({
        "metadata": {"name": name, "annotations": {"k8s.v1.cni.cncf.io/networks": list}},
        "spec": {
            "containers": [{"name": "c", "image": "none.example/none:0"}],
            "tolerations": [{"operator": "Exists"}],
        },
    })
}

/// Nodes of the pods of a namespace, and why one has none.
async fn bound(client: &Client, namespace: &str) -> Vec<(Option<String>, String)> {
    let pods: Api<ApiPod> = Api::namespaced(client.clone(), namespace);
    let listed = pods.list(&ListParams::default()).await.expect("pods");
    let tell = |pod: ApiPod| {
        let conditions = pod.status.and_then(|status| status.conditions);
        let why = conditions.into_iter().flatten().find_map(|it| it.message);
        let node = pod.spec.and_then(|spec| spec.node_name);
        (node, why.unwrap_or_default())
    };
    listed.items.into_iter().map(tell).collect()
}

/// Opens the gates of the pods of a namespace, as the controller does.
async fn open_gates(client: &Client, namespace: &str) {
    let pods: Api<ApiPod> = Api::namespaced(client.clone(), namespace);
    let listed = pods.list(&ListParams::default()).await.expect("pods");
    let patch = Patch::Merge(json!({"spec": {"schedulingGates": null}}));
    for pod in listed.items {
        let name = pod.metadata.name.unwrap_or_default();
        let opened = pods.patch(&name, &PatchParams::default(), &patch).await;
        opened.expect("its gates can be opened");
    }
}

async fn until_bound(client: &Client, namespace: &str, count: usize) -> Vec<Option<String>> {
    open_gates(client, namespace).await;
    let all = async {
        loop {
            let found = bound(client, namespace).await;
            if found.iter().filter(|(node, _)| node.is_some()).count() == count {
                return found.into_iter().map(|(node, _)| node).collect();
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    let found = tokio::time::timeout(wait::PATIENCE, all).await;
    match found {
        Ok(found) => found,
        Err(_) => unreachable!("not bound: {:?}", bound(client, namespace).await),
    }
}

async fn until_pending(client: &Client, namespace: &str, words: &str) {
    open_gates(client, namespace).await;
    let waits = async {
        loop {
            let found = bound(client, namespace).await;
            if found
                .iter()
                .any(|(node, why)| node.is_none() && why.contains(words))
            {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    let waits = tokio::time::timeout(wait::PATIENCE, waits).await;
    let all = bound(client, namespace).await;
    assert!(waits.is_ok(), "no pod waits for {words:?}: {all:?}");
}

/// PAIN-SCH-1: nodes say what their networks have, and pods are bound by it.
#[test]
fn pods_are_bound_where_their_networks_have_addresses_and_rates_and_wait_elsewhere() {
    let test = testbed::test_name!();
    // The shared server is asked for its words when there is none.
    if skip::without_root(test) || Scene::set(test).is_none() {
        return;
    }
    let programs = apiserver::programs().expect("there is a shared server");
    if !programs.join("kube-scheduler").is_file() {
        return skip::skip(test, "needs kube-scheduler next to kube-apiserver");
    }
    let server: &ApiServer = Box::leak(Box::new(ApiServer::start(&programs, &[])));
    server.install_definitions();
    agent_scene::grant(server);
    let rate = ["--uplink-bandwidth=uplink=1000"];
    let one = AgentScene::prepare_on(Scene::on(server), "sched-one", &rate);
    let two = AgentScene::prepare_on(Scene::on(server), "sched-two", &[]);
    let both = [&one, &two];
    for s in both {
        s.node.start_agent();
        merge_status(
            s,
            &json!({"capacity": {"pods": "50"}, "allocatable": {"pods": "50"}}),
        );
    }
    let blue = &one.network("blue");
    one.apply_as(&Network::l2(blue, &["10.91.0.0/29"]));
    // A network that does not ask is none of the scheduler's business.
    assert_eq!(said(&one), json!({"labels": {}, "resources": {}}));
    schedule(&one, blue, &json!({"addresses": true, "nodes": true}));
    wait::until_true("both nodes to claim the addresses, and no more", || {
        sum(both, blue) == Some(6)
    });
    for s in both {
        let label = json!({format!("network.podnet.dev/{blue}"): "true"});
        assert_eq!(said(s)["labels"], label, "{}", s.name);
        assert_eq!(addresses(s, blue), Some(3), "{}", s.name);
    }

    // A pod that never asked for the resource takes an address all the same.
    let sandbox = one.node.pod("unasked");
    let uid = one.make_pod_of("unasked", "blue");
    one.add_in_time(&sandbox, "unasked", &uid);
    wait::until_true("an address that is gone to be counted", || {
        sum(both, blue) == Some(5)
    });
    one.del(&sandbox, "unasked", &uid).silent();
    one.delete_pod("unasked");
    wait::until_true("the address to be counted again", || {
        sum(both, blue) == Some(6)
    });

    // An uplink that only one node has a rate for, and one that no node has.
    let vlan = |name: &str, uplink: &str, id: u16| {
        let mut network = Network::l2(name, &["10.92.0.0/24"]);
        network.transport = Some(format!("type: VLAN, uplink: {uplink}, id: {id}"));
        one.apply(&network.yaml());
    };
    let (wired, lost) = (&one.network("wired"), &one.network("lost"));
    vlan(wired, "uplink", 7);
    vlan(lost, "nothere", 8);
    for (number, name) in [(0x0091_0001, wired), (0x0091_0002, lost)] {
        one.give(name, &json!({"networkID": number, "transport": "VLAN"}));
    }
    schedule(&one, wired, &json!({"nodes": true, "bandwidth": true}));
    schedule(&one, lost, &json!({"nodes": true}));
    let bandwidth = "bandwidth.podnet.dev/uplink";
    wait::until_true("the rate of the uplink", || {
        said(&one)["resources"][bandwidth] == "1k"
    });
    let label = |s: &AgentScene, name: &str| {
        said(s)["labels"][format!("network.podnet.dev/{name}")].clone()
    };
    wait::until_true("the label of the other node", || {
        label(&two, wired) == "true"
    });
    assert_eq!(said(&two)["resources"][bandwidth], Value::Null);
    assert_eq!(
        [label(&one, lost), label(&two, lost)],
        [Value::Null, Value::Null]
    );

    let before = addresses(&one, blue)
        .zip(addresses(&two, blue))
        .expect("both count");
    // The nodes say what they said for as long as no agent says something else.
    for s in both {
        s.node.kill_9();
    }
    let _scheduler = scheduler(server, &programs);
    let [first, second] = both;
    one.run(|client| async move {
        let inject = ["--inject=resources,node-selector"];
        let hook = Webhook::start(server, &client, "sched-pods", &inject).await;
        let wait = "sched-wait";
        let rates = Webhook::start(server, &client, wait, &inject).await;
        for space in ["sched-pods", wait] {
            for name in [blue, wired, lost] {
                let definition = json!({"spec": {"config": ""}});
                let definitions = objects::Objects::of::<api::NetworkAttachmentDefinition>(&client, space);
                definitions.create(name, definition).await.expect("a definition");
            }
        }
        for index in 0..6 {
            let made = hook.create(&client, &pod(&format!("p{index}"), blue), false).await;
            let made = made.expect("taken").spec.expect("a spec");
            let asked = made.containers[0].resources.as_ref().and_then(|it| it.requests.as_ref());
            let asked = asked.and_then(|it| it.get(&format!("addresses.podnet.dev/{blue}")));
            assert_eq!(asked.map(|it| it.0.as_str()), Some("1"));
        }
        let nodes = until_bound(&client, "sched-pods", 6).await;
        let on = |s: &AgentScene| nodes.iter().flatten().filter(|node| **node == s.name).count() as u64;
        assert_eq!((on(first), on(second)), before, "each node has as many as it has addresses");
        hook.create(&client, &pod("more", blue), false).await.expect("taken");
        until_pending(&client, "sched-pods", &format!("Insufficient addresses.podnet.dev/{blue}")).await;

        // 600 Mbit/s fit once, and only where the uplink has a rate.
        let fast = json!([{"name": wired, "bandwidth": {"ingressRate": 600_000_000, "ingressBurst": 10_000_000}}]);
        rates.create(&client, &pod("fast", &fast.to_string()), false).await.expect("taken");
        assert_eq!(until_bound(&client, wait, 1).await, [Some(first.name.clone())]);
        rates.create(&client, &pod("too-fast", &fast.to_string()), false).await.expect("taken");
        until_pending(&client, wait, "Insufficient bandwidth.podnet.dev/uplink").await;
        rates.create(&client, &pod("nowhere", lost), false).await.expect("taken");
        until_pending(&client, wait, "didn't match Pod's node affinity/selector").await;
    });

    // Labels by which pods are bound stay with them: a kubelet would end the pods without.
    for space in ["sched-pods", "sched-wait"] {
        let space = format!("--namespace={space}");
        one.kubectl(&[
            "delete",
            "pods",
            "--all",
            &space,
            "--force",
            "--grace-period=0",
        ]);
    }
    // While no agent is there its networks stop to ask, and one goes: the next agent removes what is stale.
    schedule(&one, blue, &Value::Null);
    one.kubectl(&["delete", "podnetwork", wired, lost, "--wait=false"]);
    for s in both {
        s.node.start_agent();
        wait::until_true("stale labels and resources to go", || {
            said(s) == json!({"labels": {}, "resources": {}})
        });
    }
    proof::of!("PAIN-SCH-1");
}

/// An agent that was taken over says nothing of other nodes.
#[test]
fn an_agent_writes_labels_and_resources_of_networks_on_its_own_node_only() {
    let Some(s) = AgentScene::prepare(testbed::test_name!(), "policy-nodes", &[]) else {
        return;
    };
    let scene = &s;
    scene.run(|admin| async move {
        let other: ApiNode = object(json!({"metadata": {"name": "policy-nodes-other"}}));
        let all: Api<ApiNode> = Api::all(admin);
        all.create(&kube::api::PostParams::default(), &other).await.expect("a node");
        let agent: Api<ApiNode> = Api::all(scene.as_agent().await);
        let write = async |node: &str, patch: &Value| {
            let params = PatchParams::default();
            let done = agent.patch_status(node, &params, &Patch::Merge(patch)).await;
            done.map(|_| ()).map_err(|error| error.to_string())
        };
        let own = json!({
            "metadata": {"labels": {"network.podnet.dev/blue": "true"}},
            "status": {
                "capacity": {"addresses.podnet.dev/blue": "3", "bandwidth.podnet.dev/eth1": "10000"},
                "allocatable": {"addresses.podnet.dev/blue": "3", "bandwidth.podnet.dev/eth1": "10000"},
            },
        });
        // A policy is in force a moment after it was made.
        let refused = async {
            while write("policy-nodes-other", &own).await.is_ok() {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        };
        let refused = tokio::time::timeout(wait::PATIENCE, refused).await;
        refused.expect("the policy is in force");
        write(&scene.name, &own).await.expect("its own");
        let refusals = [
            (json!({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}}), "labels"),
            (json!({"metadata": {"labels": {"network.podnet.dev/red": "false"}}}), "labels"),
            (json!({"metadata": {"annotations": {"a": "b"}}}), "labels"),
            (json!({"metadata": {"finalizers": ["a.example/b"]}}), "labels"),
            (json!({"status": {"capacity": {"cpu": "999"}}}), "resources of domains"),
            (json!({"status": {"allocatable": {"podnet.dev/fast": "9"}}}), "resources of domains"),
            (json!({"status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.9"}]}}), "capacity and allocatable"),
            (json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}), "capacity and allocatable"),
        ];
        for (patch, words) in refusals {
            let why = write(&scene.name, &patch).await.expect_err("it is refused");
            assert!(why.contains(words), "{patch}: {why}");
        }
        let mut many = serde_json::Map::new();
        for index in 0..65 {
            many.insert(format!("network.podnet.dev/n{index}"), json!("true"));
        }
        let why = write(&scene.name, &json!({"metadata": {"labels": many}})).await;
        assert!(why.expect_err("too many").contains("at most 64 labels"));
        let gone = json!({
            "metadata": {"labels": {"network.podnet.dev/blue": null}},
            "status": {"capacity": {"addresses.podnet.dev/blue": null}},
        });
        write(&scene.name, &gone).await.expect("it takes back what it said");
        let spec = json!({"spec": {"unschedulable": true}});
        let done = agent.patch(&scene.name, &PatchParams::default(), &Patch::Merge(&spec)).await;
        assert!(done.is_err(), "RBAC gives the status only");
        let no_node: Api<ApiNode> = Api::all(scene.as_agent_of_no_node().await);
        let done = no_node.patch_status(&scene.name, &PatchParams::default(), &Patch::Merge(&own)).await;
        let why = done.expect_err("a token of no node").to_string();
        assert!(why.contains("names no node"), "{why}");
    });
    proof::of!("PAIN-SCH-1");
}
