//! The world, from pods.

use serde_json::json;
use testbed::limit::{self, Interfaces};
use testbed::{Fabric, Network, Node, Setup, skip, traffic};

use super::scene::{
    BEYOND, NODE, SUBNETS, amber, assert_closed, assert_gets_out, attached, call, gateways, ip,
    settle_world, setup,
};

#[test]
fn two_networks_with_one_subnet_reach_the_world_which_sees_the_node() {
    let node = testbed::node!(setup());
    settle_world(&node);
    let ((pa, a), (pb, b)) = (attached(&node, "a", "amber"), attached(&node, "b", "ochre"));
    assert_eq!(a.ips, b.ips, "the same addresses on both networks");
    std::thread::scope(|scope| {
        let world = node.host().outside();
        let both = [(&a, 8081), (&b, 8082)];
        let calls = both.map(|(port, at)| {
            let each = BEYOND.map(ip);
            scope.spawn(move || each.map(|beyond| call(&port.netns, world, beyond, at)))
        });
        for seen in calls {
            assert_eq!(seen.join().expect("no panic"), NODE.map(ip));
        }
    });
    assert_eq!(gateways(&node).len(), 2);
    pa.detach("amber", "eth0");
    assert_gets_out(&node, &b);
    pb.detach("ochre", "eth0");
    node.assert_empty();
    assert_closed(&node);
}

#[test]
fn pods_of_one_network_share_its_way_out_and_reach_each_other_as_before() {
    let node = testbed::node!(setup());
    settle_world(&node);
    let ((pa, a), (pb, b)) = (attached(&node, "a", "amber"), attached(&node, "b", "amber"));
    traffic::assert_reaches(&a, &b);
    assert_gets_out(&node, &a);
    assert_gets_out(&node, &b);
    assert_eq!(gateways(&node).len(), 1);
    pa.detach("amber", "eth0");
    assert_gets_out(&node, &b);
    pb.detach("amber", "eth0");
    assert_closed(&node);
}

#[test]
fn a_network_of_one_family_gets_out_by_that_one() {
    let only = Network::l3("amber", &SUBNETS[..1]).gateway("None").egress();
    let node = testbed::node!(Setup::empty().network(&only));
    settle_world(&node);
    let (pod, port) = attached(&node, "a", "amber");
    let seen = call(&port.netns, node.host().outside(), ip(BEYOND[0]), 8080);
    assert_eq!(seen, ip(NODE[0]));
    pod.detach("amber", "eth0");
    assert_closed(&node);
}

#[test]
fn what_a_limited_pod_sends_to_the_world_goes_through_its_rate() {
    if skip::without_shaping(testbed::test_name!()) {
        return;
    }
    let node = testbed::node!(setup());
    settle_world(&node);
    let pod = node.pod("slow");
    let rates = json!({"egressRate": 50_000_000, "ingressRate": 50_000_000});
    let mut conf = limit::conf(&node, "amber", &rates);
    conf["isDefaultGateway"] = true.into();
    let port = pod.attach_conf(&conf, "eth0");
    let names = Interfaces::of(&node, &port);
    let sent = || [&names.near, &names.host].map(|name| limit::limit(&node, name).sent_bytes);
    let before = sent();
    assert_gets_out(&node, &port);
    // A conversation of each family carries 100,000 bytes there and back.
    for (after, before) in sent().into_iter().zip(before) {
        assert!(after - before >= 200_000, "{before} to {after}");
    }
    pod.detach("amber", "eth0");
    assert_closed(&node);
}

#[test]
fn networks_show_whether_they_have_egress() {
    let node = testbed::node!(setup());
    let shown: Vec<_> = node
        .get("networks")
        .iter()
        .map(|it| (it["name"].clone(), it["egress"].clone()))
        .collect();
    for (name, egress) in [("amber", "Masquerade"), ("island", "None")] {
        assert!(shown.contains(&(name.into(), egress.into())), "{shown:?}");
    }
}

/// It holds for networks that span nodes: each node has a way out of its own.
#[test]
fn pods_of_a_network_that_spans_nodes_leave_by_their_own_node() {
    if skip::without_root(testbed::test_name!()) {
        return;
    }
    let fabric = Fabric::create();
    let shared = tempfile::tempdir().expect("a directory for both nodes");
    let nodes = [1, 2].map(|number: u8| {
        let directory = shared.path().to_str().expect("UTF-8");
        let exclude = format!("10.40.0.{}/27", 64 * u32::from(number));
        let network = amber().exclude(&[&exclude]).id(2101).vxlan();
        let excluded = [format!("10.40.0.{}/26", 64 * (3 - u32::from(number)))];
        let network = Network {
            exclude: excluded.to_vec(),
            ..network
        };
        let setup = Setup::empty()
            .named(&format!("node-{number}"))
            .args(&[
                "--vtep",
                &Fabric::v4(number).to_string(),
                "--endpoints",
                directory,
            ])
            .network(&network);
        Node::start_on(setup, fabric.host(number))
    });
    let pods = [nodes[0].pod("a"), nodes[1].pod("b")];
    for (pod, number) in pods.iter().zip(1..) {
        let port = pod.attach_conf(&super::scene::conf(&nodes[number - 1], "amber"), "eth0");
        let number = u8::try_from(number).expect("small");
        // The fabric's own address on the link of that node.
        let beyond = format!("10.99.{number}.254");
        let seen = call(&port.netns, fabric.netns(), ip(&beyond), 8080);
        assert_eq!(seen, Fabric::v4(number));
    }
    for pod in &pods {
        pod.detach("amber", "eth0");
    }
    nodes.iter().for_each(assert_closed);
}
