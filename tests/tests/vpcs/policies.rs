//! Policies of networks in a VPC, whose peers may be on other networks.

use agent_common::drop::DropReason;
use testbed::{Node, traffic};

use super::scene::{app, dropped, setup, wait_reaches};

fn policy(name: &str, network: &str, app: &str, spec: &str) -> String {
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\n\
         metadata: {{name: {name}, namespace: default, annotations: {{podnet.dev/networks: {network}}}}}\n\
         spec: {{podSelector: {{matchLabels: {{app: {app}}}}}, {spec}}}\n"
    )
}

/// Packets between networks are judged at both ends, and answers need no rule.
#[test]
fn policies_judge_what_comes_from_other_networks_of_the_vpc() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let node = Node::start(setup(&["one"]));
    let (_a, a) = app(&node, "a", "one-1");
    let (_b, b) = app(&node, "b", "one-2");
    traffic::assert_reaches(&a, &b);
    // Nothing may come to b, and what b asks for is answered.
    let closed = policy("closed", "one-2", "b", "policyTypes: [Ingress]");
    node.write_manifest("policy.yaml", &closed);
    let denied = |from, to, reason| dropped(&node, from, to, reason);
    denied(&a, &b, DropReason::PolicyIngress);
    traffic::assert_reaches(&b, &a);
    // A block is what opens it for pods of another network.
    let opened = policy(
        "closed",
        "one-2",
        "b",
        "policyTypes: [Ingress], ingress: [{from: [{ipBlock: {cidr: 10.65.0.0/24}}, {ipBlock: {cidr: \"fd64:65::/64\"}}]}]",
    );
    node.write_manifest("policy.yaml", &opened);
    wait_reaches(&a, &b);
    // The sender's end, too.
    let silent = policy("silent", "one-1", "a", "policyTypes: [Egress]");
    node.write_manifest("policy.yaml", &format!("{opened}---\n{silent}"));
    denied(&a, &b, DropReason::PolicyEgress);
    traffic::assert_reaches(&b, &a);
    node.remove_manifest("policy.yaml");
    wait_reaches(&a, &b);
}
