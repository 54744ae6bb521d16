//! The agent of a node and the networks of the cluster.

use serde_json::json;
use testbed::apiserver::{self, ApiServer};
use testbed::{skip, wait};

use super::agent_scene::{self, AgentScene};
use super::scene::Scene;

/// Purpose of the watches: what is made is known, and what is changed as well.
#[test]
fn a_network_that_appears_in_the_api_server_takes_pods() {
    let Some(s) = AgentScene::start(testbed::test_name!(), "agent-appears") else {
        return;
    };
    let uid = s.make_pod_of("web", "blue");
    let sandbox = s.node.pod("c1");
    s.add(&sandbox, "web", &uid)
        .fails_with(7)
        .names(&[&s.network("blue"), "does not exist"]);
    s.apply_network("blue", &["10.1.0.0/24", "fd10:1::/64"], true);
    let result = s.add_in_time(&sandbox, "web", &uid);
    assert_eq!(result["ips"].as_array().map(Vec::len), Some(2), "{result}");
    assert_eq!(sandbox.links(), ["eth0"]);
    s.del(&sandbox, "web", &uid).silent();
    s.node.assert_empty();
}

/// KEP-POD-13, KEP-PN-L5: the gate is gone and the network flips before `ADD`.
#[test]
fn a_disabled_network_takes_no_new_pods_until_it_is_enabled() {
    let Some(s) = AgentScene::start(testbed::test_name!(), "agent-disabled") else {
        return;
    };
    s.apply_network("blue", &["10.1.0.0/24"], true);
    let (old, new) = (s.make_pod_of("old", "blue"), s.make_pod_of("new", "blue"));
    let (first, second) = (s.node.pod("c1"), s.node.pod("c2"));
    s.add_in_time(&first, "old", &old);
    s.apply_network("blue", &["10.1.0.0/24"], false);
    let refused = wait::until("the agent to know that the network is disabled", || {
        let outcome = s.add(&second, "new", &new);
        if outcome.success {
            s.del(&second, "new", &new).silent();
        }
        Some(outcome).filter(|outcome| !outcome.success)
    });
    refused
        .fails_with(11)
        .names(&[&s.network("blue"), "is disabled", "spec.enabled"]);
    assert_eq!(first.links(), ["eth0"], "who was there keeps running");
    s.del(&first, "old", &old).silent();
    assert_eq!(first.links(), [""; 0]);
    s.apply_network("blue", &["10.1.0.0/24"], true);
    s.add_in_time(&second, "new", &new);
    s.del(&second, "new", &new).silent();
    proof::of!("KEP-POD-13", "KEP-PN-L5");
}

/// Definitions of the API server are attached to.
///
/// One of them names a network of podnet.
#[test]
fn a_network_attachment_definition_of_the_cluster_is_attached_to() {
    let Some(s) = AgentScene::start(testbed::test_name!(), "agent-definition") else {
        return;
    };
    s.apply_network("blue", &["10.1.0.0/24"], true);
    s.apply_network("red", &["10.2.0.0/24"], true);
    let config = json!({"cniVersion": "1.0.0", "type": "podnet", "podNetwork": s.network("red")});
    s.apply(&format!(
        "apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\n\
         metadata: {{name: second, namespace: {}}}\nspec:\n  config: '{config}'\n",
        s.name
    ));
    let list = json!([{"name": s.network("blue")}]).to_string();
    let uid = s.make_pod(
        "web",
        &[
            ("podnet.dev/networks", &list),
            ("k8s.v1.cni.cncf.io/networks", "second@data0"),
        ],
    );
    let sandbox = s.node.pod("c1");
    s.add_in_time(&sandbox, "web", &uid);
    let mut links = sandbox.links();
    links.sort();
    assert_eq!(links, ["data0", "eth0"]);
    s.del(&sandbox, "web", &uid).silent();
    s.node.assert_empty();
    proof::of!("NPWG-G3");
}

/// PAIN-LAT-1, PAIN-SIL-1: known objects stay known, and unknown ones are an error.
#[test]
fn pods_are_attached_while_the_api_server_is_away() {
    let Some(mut s) = AgentScene::start(testbed::test_name!(), "agent-away") else {
        return;
    };
    s.apply_network("blue", &["10.1.0.0/24"], true);
    let (web, more) = (s.make_pod_of("web", "blue"), s.make_pod_of("more", "blue"));
    let (first, second) = (s.node.pod("c1"), s.node.pod("c2"));
    s.add_in_time(&first, "web", &web);
    // With it written, the node's pods have been read too.
    s.written("web", "podnet.dev/network-status");
    s.door.close();
    s.add(&second, "more", &more).result();
    s.del(&second, "more", &more).silent();

    // An agent that starts meanwhile knows nothing, says so, and still cleans up.
    s.node.kill_9();
    s.node.launch_agent();
    let refused = wait::until("the agent to answer", || {
        let outcome = s.add(&second, "more", &more);
        Some(outcome).filter(|outcome| outcome.stdout.contains("does not know"))
    });
    refused
        .fails_with(11)
        .names(&["the cluster's networks yet", "(Connect)", "try again later"]);
    assert_eq!(s.node.http("/readyz").map(|(status, _)| status), Some(503));
    s.del(&first, "web", &web).silent();
    assert_eq!(first.links(), [""; 0]);

    s.door.open_again();
    s.node.wait_ready();
    s.add(&second, "more", &more).result();
    s.del(&second, "more", &more).silent();
    s.node.assert_empty();
    proof::of!("PAIN-LAT-1", "PAIN-SIL-1");
}

/// CNI-ST-01, NPWG-6.1: an `ADD` cannot succeed before the networks are known.
#[test]
fn status_is_50_until_the_networks_are_known() {
    let Some(mut s) = AgentScene::prepare(testbed::test_name!(), "agent-status50", &[]) else {
        return;
    };
    s.door.close();
    s.node.launch_agent();
    let status = || s.node.cni("STATUS").conf(&s.conf()).run();
    let refused = wait::until("the agent to answer", || {
        Some(status()).filter(|outcome| outcome.stdout.contains("does not know"))
    });
    refused.fails_with(50).names(&["networks"]);
    s.door.open_again();
    s.node.wait_ready();
    s.node.cni("STATUS").conf(&s.conf()).run().silent();
    proof::of!("CNI-ST-01", "NPWG-6.1");
}

/// PAIN-MULTI-1: a cluster may get the kinds of the NPWG at any time.
///
/// It can do without them; it cannot do without podnet's.
#[test]
fn kinds_that_are_defined_later_are_picked_up() {
    let test = testbed::test_name!();
    // The shared server has them all; asked for its words when there is none.
    if skip::without_root(test) || Scene::set(test).is_none() {
        return;
    }
    let programs = apiserver::programs().expect("there is a shared server");
    let server = Box::leak(Box::new(ApiServer::start(&programs, &[])));
    agent_scene::grant(server);
    let s = AgentScene::prepare_on(Scene::on(server), "agent-later", &[]);
    s.node.launch_agent();
    let status = || s.node.cni("STATUS").conf(&s.conf()).run();
    let refused = wait::until("the agent to have asked", || {
        Some(status()).filter(|outcome| outcome.stdout.contains("are not defined"))
    });
    refused
        .fails_with(50)
        .names(&["podnetworks", "CustomResourceDefinitions"]);
    for plural in [
        "podnetworks",
        "podnetworkattachments",
        "podnetworkparameters",
        "attachmentparameters",
        "ipblocks",
        "ipreservations",
        "podnetworkendpointslices",
    ] {
        agent_scene::apply_file(server, &format!("crds/{plural}.podnet.dev.yaml"));
    }
    s.node.wait_ready();

    s.apply_network("blue", &["10.1.0.0/24"], true);
    let list = json!([{"name": s.network("blue")}]).to_string();
    let uid = s.make_pod(
        "web",
        &[
            ("podnet.dev/networks", &list),
            ("k8s.v1.cni.cncf.io/networks", "second"),
        ],
    );
    let sandbox = s.node.pod("c1");
    let refused = wait::until("the network and its number to be known", || {
        let refused = s.add(&sandbox, "web", &uid);
        Some(refused).filter(|it| it.stdout.contains("NetworkAttachmentDefinition"))
    });
    refused.fails_with(7);
    agent_scene::apply_file(server, "crds/network-attachment-definitions.yaml");
    s.kubectl(&[
        "wait",
        "--for=condition=Established",
        "--timeout=60s",
        "crd/network-attachment-definitions.k8s.cni.cncf.io",
    ]);
    let config = json!({"cniVersion": "1.0.0", "type": "podnet", "podNetwork": s.network("blue")});
    s.apply(&format!(
        "apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\n\
         metadata: {{name: second, namespace: agent-later}}\nspec:\n  config: '{config}'\n"
    ));
    s.add_in_time(&sandbox, "web", &uid);
    s.del(&sandbox, "web", &uid).silent();
    proof::of!("PAIN-MULTI-1");
}
