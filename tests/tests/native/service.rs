//! Test Services: addresses that the node translates.
//!
//! A reply that does not pass the node on its way back would not be translated back.

use std::net::{IpAddr, SocketAddr};

use testbed::{nat, traffic};

use super::scene::{NODE, attached, close, ip, setup, tcp};

const SERVICES: [&str; 2] = ["10.96.0.10", "fd96::10"];

fn both(port: &testbed::Port) -> Vec<(IpAddr, IpAddr)> {
    let services = SERVICES.map(ip).into_iter();
    services.zip(port.ips.iter().map(|(ip, _)| *ip)).collect()
}

#[test]
fn a_pod_reaches_another_pod_of_the_node_by_the_address_of_a_service() {
    let node = testbed::node!(setup());
    let ((pa, client), (pb, server)) =
        (attached(&node, "a", "white"), attached(&node, "b", "white"));
    for (service, backend) in both(&server) {
        let at = SocketAddr::new(backend, 8080);
        let called = SocketAddr::new(service, 80);
        nat::service(node.netns(), called, at);
        let seen = tcp(&client.netns, called, &server.netns, at);
        let own = client.ips.iter().map(|(ip, _)| *ip);
        let own: Vec<IpAddr> = own.filter(|ip| ip.is_ipv4() == service.is_ipv4()).collect();
        assert_eq!(seen.expect("TCP by the service"), own[0]);
        // And past the service, at the same time.
        traffic::assert_reaches(&client, &server);
    }
    close(&node, &[&pa, &pb], "white");
}

#[test]
fn a_pod_reaches_itself_by_the_address_of_a_service() {
    let node = testbed::node!(setup());
    let (pod, port) = attached(&node, "a", "white");
    for ((service, backend), own) in both(&port).into_iter().zip(NODE.map(ip)) {
        let at = SocketAddr::new(backend, 8080);
        let called = SocketAddr::new(service, 80);
        nat::service(node.netns(), called, at);
        let seen = tcp(&port.netns, called, &port.netns, at);
        assert_eq!(
            seen.expect("TCP to itself"),
            own,
            "by an address of the node"
        );
    }
    close(&node, &[&pod], "white");
}

#[test]
fn the_node_reaches_a_pod_by_the_address_of_a_service() {
    let node = testbed::node!(setup());
    let (pod, port) = attached(&node, "a", "white");
    for (service, backend) in both(&port) {
        let at = SocketAddr::new(backend, 8080);
        let called = SocketAddr::new(service, 80);
        nat::service(node.netns(), called, at);
        tcp(node.netns(), called, &port.netns, at).expect("TCP by the service");
    }
    close(&node, &[&pod], "white");
}
