//! Test manifests with egress that are refused.

use testbed::{Network, Setup};

use super::scene::SUBNETS;

#[test]
fn egress_on_a_network_that_cannot_have_it_is_refused_by_its_field() {
    let node = testbed::node!(
        Setup::empty()
            .network(&Network::l2("flat", &SUBNETS).egress())
            .network(&Network::l3("white", &SUBNETS).by_node().egress())
    );
    for network in ["flat", "white"] {
        let pod = node.pod(network);
        let failure = pod.add(network, "eth0").error();
        failure.names(&["spec.egress", "mode L3", "routing Isolated"]);
    }
    node.assert_empty();
}

#[test]
fn a_route_without_a_gateway_is_refused_by_its_field() {
    let network = Network::l2("flat", &SUBNETS).route("192.0.2.0/24", None);
    let node = testbed::node!(Setup::empty().network(&network));
    let failure = node.pod("a").add("flat", "eth0").error();
    failure.names(&["spec.routes[0].gw", "spec.gateway"]);
    node.assert_empty();
}
