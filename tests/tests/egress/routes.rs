//! Routes that a network pushes into its pods.

use std::net::IpAddr;

use netdev::Route;
use serde_json::{Value, json};
use testbed::manifest::attachment;
use testbed::{Network, Port, Setup};

use super::scene::ip;

const L2: [&str; 2] = ["10.50.0.0/24", "fd50:50::/64"];
const L3: [&str; 2] = ["10.60.0.0/24", "fd60:60::/64"];

fn setup() -> Setup {
    let flat = Network::l2("flat", &L2)
        .gateway("First")
        .route("192.0.2.0/24", None)
        .route("10.0.0.0/8", Some("10.50.0.9"))
        .route("2001:db8::/32", None);
    let routed = Network::l3("routed", &L3)
        .gateway("None")
        .route("192.0.2.0/24", None)
        .route("2001:db8::/32", None);
    Setup::empty().network(&flat).network(&routed)
}

fn has(port: &Port, dst: &str, length: u8, via: &str) -> bool {
    let wanted: (IpAddr, u8, Option<IpAddr>) = (ip(dst), length, Some(ip(via)));
    let routes = port.routes();
    routes
        .iter()
        .any(|it: &Route| (it.dst, it.prefix_len, it.gateway) == wanted)
}

fn listed(port: &Port) -> Vec<Value> {
    port.result["routes"]
        .as_array()
        .cloned()
        .unwrap_or_default()
}

#[test]
fn pods_get_the_routes_of_their_network_and_the_result_lists_them() {
    let node = testbed::node!(setup());
    for (network, expected) in [
        (
            "flat",
            vec![
                ("192.0.2.0", 24, "10.50.0.1"),
                ("10.0.0.0", 8, "10.50.0.9"),
                ("2001:db8::", 32, "fd50:50::1"),
            ],
        ),
        (
            "routed",
            vec![
                ("192.0.2.0", 24, "169.254.1.1"),
                ("2001:db8::", 32, "fe80::1"),
            ],
        ),
    ] {
        let pod = node.pod(network);
        let port = pod.attach(network, "net1");
        for (dst, length, via) in expected {
            assert!(has(&port, dst, length, via), "{dst}: {:?}", port.routes());
            let route = json!({"dst": format!("{dst}/{length}"), "gw": via});
            assert!(listed(&port).contains(&route), "{route}: {}", port.result);
        }
        pod.check(network, "net1", &port.result).silent();
        pod.detach(network, "net1");
    }
}

#[test]
fn an_attachment_has_routes_of_its_own_before_those_of_its_network() {
    let spec = "{routes: [{dst: 192.0.2.0/24, gw: 10.50.0.7}, {dst: 198.51.100.0/24}]}";
    let node = testbed::node!(setup().file("own.yaml", &attachment("own", "flat", spec)));
    let conf = node.attachment_conf("flat", "default/own");
    let pod = node.pod("own");
    let port = pod.attach_conf(&conf, "net1");
    for (dst, length, via) in [
        ("192.0.2.0", 24, "10.50.0.7"),
        ("198.51.100.0", 24, "10.50.0.1"),
        ("10.0.0.0", 8, "10.50.0.9"),
    ] {
        assert!(has(&port, dst, length, via), "{dst}: {:?}", port.routes());
    }
    assert!(!has(&port, "192.0.2.0", 24, "10.50.0.1"), "the network's");
}

#[test]
fn check_misses_a_route_that_somebody_removed() {
    let node = testbed::node!(setup());
    for (network, dst) in [("flat", "192.0.2.0"), ("routed", "2001:db8::")] {
        let pod = node.pod(network);
        let port = pod.attach(network, "net1");
        let routes = port.routes();
        let found = routes.iter().find(|it| it.dst == ip(dst));
        assert!(
            pod.netlink()
                .remove_route(found.expect("the route"))
                .expect("removed")
        );
        let failure = pod.check(network, "net1", &port.result).error();
        failure.names(&[&format!("the route to {dst}")]);
        pod.detach(network, "net1");
    }
}

/// A next hop in another subnet of the same link is reached.
///
/// The network has several subnets of a family.
#[test]
fn a_next_hop_in_another_subnet_than_the_pods_is_reached() {
    let network = Network::l2("flat", &["10.50.0.0/24", "10.51.0.0/24"])
        .route("192.0.2.0/24", Some("10.51.0.9"));
    let node = testbed::node!(Setup::empty().network(&network));
    let pod = node.pod("a");
    let port = pod.attach("flat", "net1");
    assert!(
        has(&port, "192.0.2.0", 24, "10.51.0.9"),
        "{:?}",
        port.routes()
    );
    pod.detach("flat", "net1");
}
