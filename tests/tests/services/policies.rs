//! Policies about what goes through Services: they judge the endpoint.

use agent_common::drop::DropReason;
use testbed::Node;

use super::scene::{
    NETWORKS, addresses, app, connect, service, setup, slices, socket, talk, wait_served,
};

fn policy(name: &str, network: &str, spec: &str) -> String {
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\n\
         metadata: {{name: {name}, namespace: default, annotations: {{podnet.dev/networks: {network}}}}}\n\
         spec: {{podSelector: {{matchLabels: {{app: {name}}}}}, {spec}}}\n---\n"
    )
}

#[test]
fn policies_judge_the_endpoint_on_both_sides() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    for network in NETWORKS {
        let text = [
            policy("web", network, "policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {app: one}}}]}]"),
            policy("one", network, "ingress: [{from: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: 8080}]}]"),
        ]
        .concat();
        let node = Node::start(setup().file("policies.yaml", &text));
        let (_one, one) = app(&node, "one", network);
        let (_two, two) = app(&node, "two", network);
        let (_web, web) = app(&node, "web", network);
        let (_other, other) = app(&node, "other", network);
        let text = [
            service("one", network, addresses(10), ""),
            slices("one", network, node.name(), &[(&one, "")]),
            service("two", network, addresses(11), ""),
            slices("two", network, node.name(), &[(&two, "")]),
        ]
        .concat();
        node.write_manifest("services.yaml", &text);
        wait_served(&node, network, 8);
        for (first, second) in addresses(10).into_iter().zip(addresses(11)) {
            let (mut here, mut there, _) = connect(&web, first, &[&one]).expect("a connection");
            talk(&mut here, &mut there);
            for (port, to, reason) in [
                (&web, second, DropReason::PolicyEgress),
                (&other, first, DropReason::PolicyIngress),
            ] {
                let before = node.drops().of(network, reason);
                let socket = socket(port, (super::scene::own(port, to), 0).into());
                testbed::wait::until_true("a drop by policy", || {
                    socket.send_to(b"question", (to, 80)).expect("a datagram");
                    node.drops().of(network, reason) > before
                });
            }
        }
    }
}
