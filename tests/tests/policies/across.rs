//! Policies about pods on two nodes.

use std::net::IpAddr;
use std::path::Path;

use agent_common::drop::DropReason;
use tempfile::TempDir;
use testbed::{Fabric, Network, Node, Port, Setup, wait};

use super::scene::{answers, app, becomes, connect, denied, policy, socket};

const INGRESS: DropReason = DropReason::PolicyIngress;
const EGRESS: DropReason = DropReason::PolicyEgress;

/// Two nodes on one underlay, which tell each other their members.
pub(super) struct Two {
    pub(super) nodes: [Node; 2],
    _fabric: Fabric,
    _shared: TempDir,
}

/// Where nodes are: on one segment, or on links between which the fabric routes.
pub(super) type Underlay = (fn() -> Fabric, fn(u8) -> IpAddr);

pub(super) const SEGMENT: Underlay = (Fabric::segment, |number| {
    let [address, _] = Fabric::on_segment(number);
    address
});
pub(super) const ROUTED: Underlay = (Fabric::create, Fabric::v4);

/// Starts them with these policies and networks.
pub(super) fn start(
    (fabric, vtep): Underlay,
    policies: &str,
    network: impl Fn(&str, u8) -> Network,
) -> Two {
    let shared = tempfile::Builder::new()
        .prefix("podnet-test-shared-")
        .tempdir();
    let shared = shared.expect("a directory for the nodes");
    let fabric = fabric();
    let nodes = [1, 2].map(|number| {
        let place = (vtep(number), shared.path());
        let setup = setup(number, place, policies, &network);
        Node::start_on(setup, fabric.host(number))
    });
    Two {
        nodes,
        _fabric: fabric,
        _shared: shared,
    }
}

fn setup(
    number: u8,
    (vtep, shared): (IpAddr, &Path),
    policies: &str,
    network: &impl Fn(&str, u8) -> Network,
) -> Setup {
    let vtep = vtep.to_string();
    let shared = shared.to_str().expect("a path in UTF-8");
    Setup::empty()
        .named(&format!("node-{number}"))
        .args(&["--vtep", &vtep, "--endpoints", shared])
        .network(&network("routed", number))
        .network(&network("switched", number))
        .file("policies.yaml", policies)
}

/// A network in tunnels, of which each node gives out its own half.
pub(super) fn in_tunnels(name: &str, number: u8) -> Network {
    let subnets = ["10.62.0.0/24", "fd62::/64"];
    let (id, network) = match name {
        "routed" => (4001, Network::l3(name, &subnets)),
        _ => (4002, Network::l2(name, &subnets)),
    };
    let other = ["10.62.0.128/25", "10.62.0.0/25"][usize::from(number) - 1];
    let six = ["fd62::8000:0:0:0/65", "fd62::/65"][usize::from(number) - 1];
    network.exclude(&[other, six]).id(id).vxlan()
}

/// Waits until datagrams of one pod reach the other on this port.
fn meet(a: &Port, b: &Port, number: u16) {
    becomes(a, b, number, true);
}

#[test]
fn what_a_tunnel_brings_is_judged_by_labels_of_the_other_node_s_pods() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    for network in ["routed", "switched"] {
        let rule = "ingress: [{from: [{podSelector: {matchLabels: {app: web}}}], \
                    ports: [{protocol: UDP, port: 80}, {protocol: TCP}]}]";
        let two = start(ROUTED, &policy("db", network, "db", rule), in_tunnels);
        let [one, other] = &two.nodes;
        let (_db, db) = app(one, "db", network);
        let (_web, web) = app(other, "web", network);
        let (_evil, evil) = app(other, "evil", network);
        meet(&web, &db, 80);
        answers(&web, &db, 80);
        denied(one, &web, &db, 81, INGRESS);
        denied(one, &evil, &db, 80, INGRESS);
        // Replies to what it opens itself come back.
        meet(&db, &evil, 7);
        answers(&db, &evil, 7);
        drop(connect(&web, &db, 5000));
    }
}

#[test]
fn what_a_pod_sends_to_another_node_is_judged_at_its_own() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let rule = "policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {app: db}}}], \
                ports: [{protocol: UDP, port: 80}]}]";
    let two = start(ROUTED, &policy("web", "routed", "web", rule), in_tunnels);
    let [one, other] = &two.nodes;
    let (_db, db) = app(one, "db", "routed");
    let (_third, third) = app(one, "third", "routed");
    let (_web, web) = app(other, "web", "routed");
    meet(&web, &db, 80);
    answers(&web, &db, 80);
    denied(other, &web, &db, 81, EGRESS);
    denied(other, &web, &third, 80, EGRESS);
}

#[test]
fn what_a_segment_brings_is_judged() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let network = |name: &str, number: u8| {
        let vlan = if name == "routed" { 61 } else { 62 };
        let network = Network {
            transport: None,
            ..in_tunnels(name, number)
        };
        network.vlan(vlan)
    };
    let rule = "ingress: [{from: [{ipBlock: {cidr: 10.62.0.128/25}}], ports: [{protocol: UDP, port: 80}]}]";
    for name in ["switched", "routed"] {
        let two = start(SEGMENT, &policy("db", name, "db", rule), network);
        let [one, other] = &two.nodes;
        let (_db, db) = app(one, "db", name);
        let (_web, web) = app(other, "web", name);
        meet(&web, &db, 80);
        let before = one.drops().of(name, INGRESS);
        let here = socket(&web, (IpAddr::from(web.v4()), 0).into());
        here.send_to(b"no", (IpAddr::from(db.v4()), 81))
            .expect("sent");
        wait::until_true("a drop", || one.drops().of(name, INGRESS) > before);
    }
}
