//! Test that impossible configurations are refused with the reason.

use netdev::{Netns, VxlanSpec};
use testbed::host::connection;
use testbed::{Fabric, Network, Node, Setup, traffic};

use super::scene::{Nodes, Underlay, assert_meet, wait_uplinks};

fn blue() -> Network {
    Network::l2("blue", &["10.10.0.0/24"]).id(2001).vxlan()
}

fn on(fabric: &Fabric, setup: Setup) -> Node {
    Node::start_on(setup.named("node-1"), fabric.host(1))
}

#[test]
fn a_network_across_nodes_needs_an_address_for_tunnels() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let fabric = Fabric::create();
    let node = on(&fabric, Setup::empty().network(&blue()));
    let error = node.pod("a").add("blue", "net1").error();
    assert_eq!(error.code, 7, "{error:?}");
    error.names(&["--vtep"]);
    node.assert_empty();
}

#[test]
fn an_address_that_is_not_the_nodes_is_refused() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let fabric = Fabric::create();
    let setup = Setup::empty()
        .network(&blue())
        .args(&["--vtep", "10.99.1.77"]);
    let node = on(&fabric, setup);
    let error = node.pod("a").add("blue", "net1").error();
    assert_eq!(error.code, 7, "{error:?}");
    error.names(&["10.99.1.77"]);
    node.assert_empty();
}

#[test]
fn an_mtu_that_the_underlay_does_not_carry_is_refused_with_one_that_it_does() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let fabric = Fabric::create();
    let setup = Setup::empty()
        .network(&blue().mtu(1451))
        .network(
            &Network::l2("fits", &["10.11.0.0/24"])
                .id(2002)
                .vxlan()
                .mtu(1450),
        )
        .args(&["--vtep", "10.99.1.1"]);
    let node = on(&fabric, setup);
    let pod = node.pod("a");
    let error = pod.add("blue", "net1").error();
    assert_eq!(error.code, 7, "{error:?}");
    error.names(&["1450 or less"]);
    pod.attach("fits", "net1");
    pod.detach("fits", "net1");
    node.assert_empty();
}

/// Somebody else's device on the port of tunnels.
fn foreign(netns: &Netns) -> u32 {
    let mut there = connection(netns);
    let spec = VxlanSpec {
        name: "foreign".to_owned(),
        port: 4789,
        mtu: 1400,
        alias: "somebody's".to_owned(),
    };
    let ifindex = there.create_vxlan(&spec).expect("a device of somebody");
    there.set_up(ifindex).expect("it goes up");
    ifindex
}

#[test]
fn a_port_that_is_in_use_is_named() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let nodes = Nodes::start(1, Underlay::V4);
    let node = &nodes.nodes[0];
    let ifindex = foreign(node.netns());
    let pod = node.pod("a");
    let error = pod.add("blue", "net1").error();
    error.names(&["--vxlan-port"]);
    node.assert_empty();
    connection(node.netns()).delete(ifindex).expect("removed");
    pod.attach("blue", "net1");
    pod.detach("blue", "net1");
}

/// An agent that cannot have its tunnels serves everything else.
#[test]
fn without_tunnels_a_start_serves_what_stays_on_the_node() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let nodes = Nodes::start(2, Underlay::V4);
    let [here, there] = [&nodes.nodes[0], &nodes.nodes[1]];
    let pods = [here.pod("a"), here.pod("b"), there.pod("c")];
    let ports: Vec<_> = pods.iter().map(|pod| pod.attach("blue", "net1")).collect();
    wait_uplinks(&nodes.nodes);
    assert_meet(&ports[0], &ports[2]);
    here.terminate();
    let mut netlink = connection(here.netns());
    let device = netlink.by_name("podnet-vxlan").expect("links");
    let device = device.expect("the device").ifindex;
    netlink.delete(device).expect("removed");
    let taken = foreign(here.netns());
    here.start_agent();
    traffic::assert_reaches(&ports[0], &ports[1]);
    let error = here.pod("d").add("blue", "net1").error();
    error.names(&["--vxlan-port"]);
    netlink.delete(taken).expect("removed");
    here.restart();
    assert_meet(&ports[0], &ports[2]);
    for pod in &pods {
        pod.detach("blue", "net1");
    }
    here.assert_empty();
}

/// A device of the name that podnet did not make is not podnet's to touch.
#[test]
fn a_device_of_somebody_else_with_the_name_stays_as_it_is() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let nodes = Nodes::start(1, Underlay::V4);
    let node = &nodes.nodes[0];
    let mut netlink = connection(node.netns());
    let spec = VxlanSpec {
        name: "podnet-vxlan".to_owned(),
        port: 4790,
        mtu: 1400,
        alias: "somebody's".to_owned(),
    };
    let ifindex = netlink.create_vxlan(&spec).expect("a device of somebody");
    let error = node.pod("a").add("blue", "net1").error();
    error.names(&["podnet-vxlan", "rename"]);
    let found = netlink.by_name("podnet-vxlan").expect("links");
    assert_eq!(found.expect("the device").ifindex, ifindex);
    netlink.delete(ifindex).expect("removed");
    node.assert_empty();
}
