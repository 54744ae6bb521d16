//! Policies about what goes through Services, and `explain` of it.

use std::net::SocketAddr;

use agent_common::drop::DropReason;
use testbed::Node;

use super::scene::{
    NETWORKS, PORT, TARGET, addresses, app, connect, denied, own, service, setup, slices, talk,
    wait_served,
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
            denied(&node, &web, second, DropReason::PolicyEgress);
            denied(&node, &other, first, DropReason::PolicyIngress);
        }
    }
}

#[test]
fn explain_follows_a_packet_to_a_service_on_to_an_endpoint_and_tells_of_its_policies() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    for network in NETWORKS {
        let text = policy(
            "one",
            network,
            "ingress: [{from: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: 8080}]}]",
        );
        let node = Node::start(setup().file("policies.yaml", &text));
        let (_one, one) = app(&node, "one", network);
        let (_web, _) = app(&node, "web", network);
        let (_other, _) = app(&node, "other", network);
        let text = [
            service("one", network, addresses(10), ""),
            slices("one", network, node.name(), &[(&one, "")]),
            service("none", network, addresses(11), ""),
        ]
        .concat();
        node.write_manifest("services.yaml", &text);
        wait_served(&node, network, 4);
        for ip in addresses(10) {
            let to = ip.to_string();
            let told = node.explain("web", &to, &["--proto", "tcp:80"]);
            told.assert_is("delivered", "");
            let backend = SocketAddr::new(own(&one, ip), TARGET);
            let service = SocketAddr::new(ip, PORT);
            told.assert_tells(&[
                &format!("SERVICES[{service}, TCP]"),
                "1 endpoints",
                &backend.to_string(),
                &format!("its answers get {service} as their source"),
                "ingress of one/net1",
            ]);
            let told = node.explain("other", &to, &["--proto", "udp:80"]);
            told.assert_is("dropped", "policy_ingress");
            let told = node.explain("web", &to, &["--proto", "tcp:81"]);
            told.assert_is("dropped", "no_service");
            let told = node.explain("one", &to, &["--proto", "tcp:80"]);
            told.assert_is("delivered", "");
            told.assert_tells(&["the sender itself"]);
        }
        for ip in addresses(11) {
            let told = node.explain("web", &ip.to_string(), &["--proto", "udp:80"]);
            told.assert_is("dropped", "no_backend");
        }
    }
}
