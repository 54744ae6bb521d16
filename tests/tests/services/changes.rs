//! Services and endpoints that change under their clients.

use testbed::wait;
use testbed::{Node, Port};

use super::scene::{
    Echo, NETWORKS, addresses, app, ask, client, connect, refused, service, setup, slices, talk,
    wait_served,
};

fn write(node: &Node, network: &str, more: &str, endpoints: &[(&Port, &str)]) {
    let text = [
        service("web", network, addresses(10), more),
        slices("web", network, node.name(), endpoints),
    ]
    .concat();
    node.write_manifest("services.yaml", &text);
}

/// D-SVC-14, D-SVC-15: a UDP socket gets another endpoint, a TCP connection stays.
#[test]
fn clients_of_an_endpoint_that_goes_are_led_to_another_one() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    for network in NETWORKS {
        let node = Node::start(setup());
        let (_one, one) = app(&node, "one", network);
        let (_two, two) = app(&node, "two", network);
        let (_web, web) = app(&node, "web", network);
        write(&node, network, "", &[(&one, "")]);
        wait_served(&node, network, 4);
        for ip in addresses(10) {
            write(&node, network, "", &[(&one, "")]);
            let echo = Echo::at(&[&one, &two], ip);
            let socket = client(&web, ip);
            wait::until_true("the first endpoint", || {
                ask(&socket, &echo, b"question").v4() == one.v4()
            });
            let (mut here, mut there, _) = connect(&web, ip, &[&one]).expect("a connection");
            write(&node, network, "", &[(&two, "")]);
            wait::until_true("the second endpoint", || {
                ask(&socket, &echo, b"question").v4() == two.v4()
            });
            talk(&mut here, &mut there);
            let (_, _, number) = connect(&web, ip, &[&one, &two]).expect("a connection");
            assert_eq!(
                number, 1,
                "a new connection goes to the endpoint that is left"
            );
        }
        // To none, and back.
        write(&node, network, "", &[]);
        wait_served(&node, network, 0);
        for ip in addresses(10) {
            refused(&web, ip, 80);
        }
        write(&node, network, "", &[(&two, "")]);
        wait_served(&node, network, 4);
        for ip in addresses(10) {
            drop(connect(&web, ip, &[&two]).expect("a connection"));
        }
        // The Service goes, and so does its address.
        node.remove_manifest("services.yaml");
        wait::until_true("no Service", || node.get("services").is_empty());
        node.assert_audit_finds_nothing(network);
    }
}

/// D-SVC-12: endpoints that end are used while there is no other.
#[test]
fn endpoints_that_end_serve_until_others_are_ready() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    const ENDS: &str = "ready: false, serving: true, terminating: true";
    let network = "routed";
    let node = Node::start(setup());
    let (_one, one) = app(&node, "one", network);
    let (_two, two) = app(&node, "two", network);
    let (_web, web) = app(&node, "web", network);
    let [ip, _] = addresses(10);
    let reaches = |number| {
        wait::until_true("the endpoint that is meant", || {
            let connected = connect(&web, ip, &[&one, &two]);
            connected.is_ok_and(|(.., found)| found == number)
        });
    };
    write(&node, network, "", &[(&one, ENDS)]);
    wait_served(&node, network, 4);
    reaches(0);
    write(&node, network, "", &[(&one, ENDS), (&two, "ready: true")]);
    reaches(1);
    for _ in 0..10 {
        let (.., number) = connect(&web, ip, &[&one, &two]).expect("a connection");
        assert_eq!(number, 1);
    }
}

/// A Service is there before the first pod of its network is live.
#[test]
fn the_first_packet_of_a_network_s_first_pod_finds_its_services() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    for network in NETWORKS {
        let text = service("web", network, addresses(10), "");
        let node = Node::start(setup().file("services.yaml", &text));
        let (_web, web) = app(&node, "web", network);
        for ip in addresses(10) {
            refused(&web, ip, 80);
        }
    }
}
