//! Which pod a request is for.

use serde_json::json;
use testbed::wait;

use super::agent_scene::AgentScene;

/// NPWG-X6: a pod of that name that is another one by now.
#[test]
fn a_request_for_a_pod_that_is_gone_is_refused() {
    let Some(s) = AgentScene::start(testbed::test_name!(), "agent-another") else {
        return;
    };
    s.apply_network("blue", &["10.1.0.0/24"], true);
    let old = s.make_pod_of("web-0", "blue");
    s.delete_pod("web-0");
    let new = s.make_pod_of("web-0", "blue");
    let sandbox = s.node.pod("c1");
    s.add_in_time(&sandbox, "web-0", &new);
    s.del(&sandbox, "web-0", &new).silent();
    let late = s.node.pod("c0");
    s.add(&late, "web-0", &old)
        .fails_with(4)
        .names(&["K8S_POD_UID", &old, &new]);
    assert_eq!(late.links(), [""; 0]);
    proof::of!("NPWG-X6");
}

/// NPWG-X6, PAIN-SIL-1: not found is no success.
#[test]
fn a_pod_that_the_api_server_does_not_have_is_no_success() {
    let Some(s) = AgentScene::start(testbed::test_name!(), "agent-unknown") else {
        return;
    };
    let sandbox = s.node.pod("c1");
    s.add(&sandbox, "nobody", "4f9a6f5e-0000-4000-8000-000000000000")
        .fails_with(11)
        .names(&["agent-unknown/nobody", "try again later"]);
    // And what never was is removed all the same.
    s.del(&sandbox, "nobody", "4f9a6f5e-0000-4000-8000-000000000000")
        .silent();
    s.node.assert_empty();
    proof::of!("NPWG-X6", "PAIN-SIL-1");
}

/// NPWG-X6: the kubelet's UID of a static pod differs from its object's UID.
///
/// The API server has the latter.
#[test]
fn a_static_pod_is_attached_and_described_by_its_mirror() {
    let Some(s) = AgentScene::start(testbed::test_name!(), "agent-static") else {
        return;
    };
    s.apply_network("blue", &["10.1.0.0/24"], true);
    let list = json!([{"name": s.network("blue")}]).to_string();
    let of_kubelet = "0d6b1f3f5c7f4f8a9b1c2d3e4f5a6b7c";
    let of_mirror = s.make_pod(
        "etcd-node",
        &[
            ("podnet.dev/networks", &list),
            ("kubernetes.io/config.source", "file"),
            ("kubernetes.io/config.hash", of_kubelet),
            ("kubernetes.io/config.mirror", of_kubelet),
        ],
    );
    assert_ne!(of_mirror, of_kubelet);
    let sandbox = s.node.pod("c1");
    s.add_in_time(&sandbox, "etcd-node", of_kubelet);
    let status = s.written("etcd-node", "podnet.dev/network-status");
    assert_eq!(status[0]["interfaceName"], "eth0", "{status}");
    s.del(&sandbox, "etcd-node", of_kubelet).silent();
    proof::of!("NPWG-X6");
}

/// ATT-15c: annotations of any user do not make a request mean another pod.
///
/// A user who knows the UID of a pod deletes it, and puts another one in its place.
#[test]
fn att_15c_a_pod_that_claims_to_be_static_is_compared_by_its_uid() {
    let Some(s) = AgentScene::start(testbed::test_name!(), "agent-claims") else {
        return;
    };
    s.apply_network("blue", &["10.1.0.0/24"], true);
    let list = json!([{"name": s.network("blue")}]).to_string();
    let source = "kubernetes.io/config.source";
    let mirror = "kubernetes.io/config.mirror";
    let sandbox = s.node.pod("c1");
    for claim in [source, mirror] {
        let old = s.make_pod("web", &[]);
        s.delete_pod("web");
        // The API server takes a mirror from everybody who names a node.
        let value = if claim == source { "file" } else { &old };
        let new = s.make_pod("web", &[("podnet.dev/networks", &list), (claim, value)]);
        // The agent knows of both pods and of the network.
        s.add_in_time(&sandbox, "web", &new);
        s.del(&sandbox, "web", &new).silent();
        s.add(&sandbox, "web", &old)
            .fails_with(4)
            .names(&["K8S_POD_UID", &old, &new]);
        assert_eq!(sandbox.links(), [""; 0], "{claim}");
        s.delete_pod("web");
    }
    s.node.assert_empty();
    proof::of!("ATT-15c");
}

/// PAIN-OBS-1: the metric by which network-metrics-daemon names networks.
#[test]
fn interfaces_are_named_in_the_metrics_while_they_are_there() {
    let Some(s) = AgentScene::start(testbed::test_name!(), "agent-metric") else {
        return;
    };
    s.apply_network("blue", &["10.1.0.0/24"], true);
    let uid = s.make_pod_of("web", "blue");
    let sandbox = s.node.pod("c1");
    s.add_in_time(&sandbox, "web", &uid);
    let line = format!(
        "pod_network_name_info{{interface=\"eth0\",namespace=\"agent-metric\",\
         network_name=\"{}\",pod=\"web\"}} 0",
        s.network("blue")
    );
    let metrics = || s.node.http("/metrics").expect("the agent answers").1;
    assert!(metrics().contains(&line), "{line}\n{}", metrics());
    assert!(metrics().contains("podnet_world_unread 0"));
    s.del(&sandbox, "web", &uid).silent();
    wait::until_true("the line to go", || !metrics().contains(&line));
    proof::of!("PAIN-OBS-1");
}
