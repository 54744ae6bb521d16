//! Policies of networks in a VPC, whose peers may be on other networks.

use agent_common::drop::DropReason;
use testbed::manifest::vpc;
use testbed::{Node, Setup, traffic};

use super::scene::{CIDRS, app, dropped, setup, switched, wait_reaches};

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
    for setup in [setup(&["one"]), with_segment()] {
        judged(&Node::start(setup));
    }
}

/// A VPC whose first network is a segment.
fn with_segment() -> Setup {
    let setup = Setup::empty().file("vpc.yaml", &vpc("one", &CIDRS, &[]));
    switched("one").iter().fold(setup, Setup::network)
}

fn judged(node: &Node) {
    let (_a, a) = app(node, "a", "one-1");
    let (_b, b) = app(node, "b", "one-2");
    traffic::assert_reaches(&a, &b);
    // Nothing may come to b, and what b asks for is answered.
    let closed = policy("closed", "one-2", "b", "policyTypes: [Ingress]");
    node.write_manifest("policy.yaml", &closed);
    let denied = |from, to, reason| dropped(node, from, to, reason);
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
