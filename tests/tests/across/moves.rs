//! Pods come, go and move; nodes do.

use serde_json::json;
use testbed::{Node, wait};

use super::scene::{L2, Nodes, Underlay, introduce};

/// How many of the endpoints a node knows on a network are elsewhere.
fn far(node: &Node, network: &str) -> usize {
    let rows = node.get("endpoints").into_iter();
    rows.filter(|row| row["network"] == network && row["place"] == "remote")
        .count()
}

/// A pod that moves with its MAC and IP addresses is found on its new node only.
#[test]
fn a_pod_that_moves_is_found_where_it_is() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let nodes = Nodes::start(3, Underlay::V4);
    let client = nodes.nodes[2].pod("client");
    let client = client.attach(L2[0], "net1");
    let moving = |node: &Node| {
        let mut conf = node.conf(L2[0]);
        conf["runtimeConfig"] = json!({
            "mac": "02:00:00:00:77:01",
            "ips": ["10.10.0.200/24", "fd10:10::ff:c8/64"],
        });
        conf
    };
    for from in [0, 1, 0] {
        let node = &nodes.nodes[from];
        let pod = node.pod(&format!("moving-{from}"));
        let port = pod.attach_conf(&moving(node), "net1");
        introduce(&client, &port);
        pod.detach(L2[0], "net1");
    }
    for node in &nodes.nodes[..2] {
        node.assert_empty();
    }
}

#[test]
fn what_is_gone_elsewhere_is_forgotten_here() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let nodes = Nodes::start(2, Underlay::V4);
    let [here, there] = [&nodes.nodes[0], &nodes.nodes[1]];
    let own = here.pod("own");
    let own_port = own.attach(L2[0], "net1");
    let pods: Vec<_> = (0..3).map(|n| there.pod(&format!("p{n}"))).collect();
    let mut ports = Vec::new();
    for pod in &pods {
        let port = pod.attach(L2[0], "net1");
        introduce(&own_port, &port);
        ports.push(port);
    }
    assert_eq!(far(here, L2[0]), 3);
    for (left, pod) in (0..3).rev().zip(&pods) {
        pod.detach(L2[0], "net1");
        wait::until_true("the endpoint to go", || far(here, L2[0]) == left);
    }
    // Without a member here nobody elsewhere matters.
    let again = pods[0].attach(L2[0], "net1");
    introduce(&own_port, &again);
    own.detach(L2[0], "net1");
    wait::until_true("the endpoints to go", || far(here, L2[0]) == 0);
    pods[0].detach(L2[0], "net1");
}
