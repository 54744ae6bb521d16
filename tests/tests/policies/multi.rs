//! The cases of the suites for MultiNetworkPolicy, written again as a table.
//!
//! Those are the bats suites of `multi-networkpolicy-nftables` (191 tests in 23 files) and
//! `multi-networkpolicy-iptables` (95 in 14, all of them among the others). A case here has the policies, and says
//! of each pair of its pods, both ways, whether ICMP, TCP and UDP pass, over IPv4 and IPv6:
//!
//! | Their files | Here |
//! |---|---|
//! | `simple-v4-ingress`, `simple-v6-ingress`, both with `-list`; `simple-v4-egress`, with `-list` | [cases::peers], first seven |
//! | `bond-cni`; `policyTypes` left out | [cases::peers], "a policy without policyTypes …" |
//! | `stacked`, `accept-all-with-specific-allow`, `deny-all-with-specific-allow` | [cases::peers], "… add up", "all is denied …", "an empty …" |
//! | `ingress-ns-selector-no-pods`, `mixed-selector-policies`, `production-like-scenarios` | [cases::selectors] |
//! | `ipblock`, `ipblock-list`, `ipblock-stacked`, `advanced-ipblock-scenarios` | [cases::blocks] |
//! | `port-range`, `protocol-only-ports`, `complex-port-specifications` | [cases::ports] |
//! | `edge-cases-validation` | [cases::selectors] where a selector matches nothing, [cases::refused] |
//! | `custom-rules`, of nftables and of a ConfigMap | [cases::networks], "a policy of the cluster opens …" |
//! | `multi-namespace-multinet` | [cases::networks], "policies of namespaces with a definition each …" |
//!
//! No counterpart have: their tests that set up, clean up, or look for rules in nftables and iptables; the bond of two
//! interfaces, which is the pod's own affair, as a policy knows the addresses of its network; and "disable
//! multi-networkpolicy", a switch of that program. [cases::changes] is not in those suites.

mod afxdp;
mod ask;
mod case;
mod cases;
mod expected;
mod ground;
mod objects;
mod tables;

use std::slice;

use tempfile::TempDir;
use testbed::{Fabric, Network, Node, Setup};

use self::case::Case;
use self::ground::Ground;
use self::objects::{FILE, Kind, SUBNETS, definitions, fence, setup};

/// Fails the test with all wrong answers of all cases.
#[track_caller]
fn assert_right(wrong: &[String]) {
    assert!(
        wrong.is_empty(),
        "{} steps of cases with wrong answers:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// Goes through cases on one node, with ports of a kind.
fn on_one_node(mode: &'static str, kind: Kind, cases: &[Case]) {
    let node = Node::start(setup(mode));
    let mut ground = Ground::new(slice::from_ref(&node), kind, cases);
    assert_right(&ground.go(cases));
}

/// Goes through cases on two nodes with tunnels, which have half of the pods each.
fn on_two_nodes(mode: &'static str, cases: &[Case]) {
    let shared = TempDir::with_prefix("podnet-test-shared-").expect("a directory for the nodes");
    let directory = shared.path().to_str().expect("a path in UTF-8");
    let fabric = Fabric::create();
    let nodes = [1, 2].map(|number| {
        let vtep = Fabric::v4(number).to_string();
        let setup = Setup::empty()
            .named(&format!("node-{number}"))
            .args(&["--vtep", &vtep, "--endpoints", directory])
            .network(&in_tunnels(mode, ("lan", 5001), number))
            .network(&in_tunnels(mode, ("wan", 5002), number))
            .file("definitions.yaml", &definitions())
            .file(FILE, &fence(&[]));
        Node::start_on(setup, fabric.host(number))
    });
    let mut ground = Ground::new(&nodes, Kind::Veth, cases);
    ground.meet();
    assert_right(&ground.go(cases));
}

/// A network in tunnels, of which each node gives out its own half.
fn in_tunnels(mode: &'static str, (name, id): (&str, u32), number: u8) -> Network {
    let [v4, v6] = SUBNETS[usize::from(name != "lan")];
    let other = usize::from(number) - 1;
    let v4_of_other = v4.replace(".0/24", [".128/25", ".0/25"][other]);
    let v6_of_other = v6.replace("::/64", ["::8000:0:0:0/65", "::/65"][other]);
    let network = Network::new(name, mode).subnets(&[v4, v6]);
    let network = network.exclude(&[&v4_of_other, &v6_of_other]);
    network.id(id).vxlan()
}

#[test]
fn each_case_is_answered_as_its_policies_say_on_l2() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    on_one_node("L2", Kind::Veth, &cases::all());
}

#[test]
fn each_case_is_answered_as_its_policies_say_on_l3() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    on_one_node("L3", Kind::Veth, &cases::all());
}

#[test]
fn each_case_is_answered_as_its_policies_say_between_two_nodes_on_l2() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    on_two_nodes("L2", &cases::all());
}

#[test]
fn some_cases_are_answered_as_their_policies_say_between_two_nodes_on_l3() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    on_two_nodes("L3", &cases::some());
}

#[test]
fn some_cases_are_answered_as_their_policies_say_at_ports_of_memif() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    for mode in ["L2", "L3"] {
        on_one_node(mode, Kind::Memif, &cases::some());
    }
}

#[test]
fn some_cases_are_answered_as_their_policies_say_at_ports_of_af_xdp() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    for mode in ["L2", "L3"] {
        on_one_node(mode, Kind::AfXdp, &cases::some());
    }
}
