//! Agents that end and start under clients of Services.

use testbed::Node;

use super::scene::{
    Echo, NETWORKS, addresses, app, ask, client, connect, service, setup, slices, talk, wait_served,
};

/// D-SVC-23: nothing of a Service ends when the agent does, or starts.
#[test]
fn connections_and_services_outlive_the_agent() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    for network in NETWORKS {
        let node = Node::start(setup());
        let (_one, one) = app(&node, "one", network);
        let (_web, web) = app(&node, "web", network);
        let text = [
            service("web", network, addresses(10), ""),
            slices("web", network, node.name(), &[(&one, "")]),
        ]
        .concat();
        node.write_manifest("services.yaml", &text);
        wait_served(&node, network, 4);
        let [ip, _] = addresses(10);
        let (mut here, mut there, _) = connect(&web, ip, &[&one]).expect("a connection");
        let echo = Echo::at(&[&one], ip);
        let socket = client(&web, ip);
        ask(&socket, &echo, b"question");
        node.kill_9();
        talk(&mut here, &mut there);
        ask(&socket, &echo, b"question");
        let (mut more, mut other, _) = connect(&web, ip, &[&one]).expect("a connection");
        talk(&mut more, &mut other);
        node.start_agent();
        for _ in 0..20 {
            talk(&mut here, &mut there);
            talk(&mut more, &mut other);
            ask(&socket, &echo, b"question");
            drop(connect(&web, ip, &[&one]).expect("a connection"));
        }
        wait_served(&node, network, 4);
        node.assert_audit_finds_nothing(network);
    }
}
