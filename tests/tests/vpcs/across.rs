//! VPCs of which networks have pods on different nodes.

use std::net::IpAddr;

use agent_common::drop::DropReason;
use testbed::manifest::{Network, vpc};
use testbed::{Fabric, Node, Setup, traffic};

use super::scene::{CIDRS, FIRST, SECOND, app, dropped_at, wait_reaches};

/// The networks of a VPC; each node gives out its own half of the addresses.
fn networks(name: &str, id: u32, number: u8) -> Vec<Network> {
    let other = |subnets: [&str; 2]| {
        let [v4, v6] = subnets.map(|it| it.split('/').next().expect("a prefix").to_owned());
        if number == 1 {
            let v4 = v4.strip_suffix('0').expect("a prefix");
            [format!("{v4}128/25"), format!("{v6}8000:0:0:0/65")]
        } else {
            [format!("{v4}/25"), format!("{v6}/65")]
        }
    };
    // One of both modes: the tunnel of a segment carries what is routed to it, too.
    [
        (1, FIRST, "L3"),
        (2, SECOND, if name == "one" { "L2" } else { "L3" }),
    ]
    .map(|(place, subnets, mode)| {
        let exclude = other(subnets);
        let exclude: Vec<&str> = exclude.iter().map(String::as_str).collect();
        Network::new(&format!("{name}-{place}"), mode)
            .subnets(&subnets)
            .gateway("First")
            .exclude(&exclude)
            .id(id + place)
            .vxlan()
            .vpc(name)
    })
    .into()
}

fn two_nodes(fabric: &Fabric) -> (tempfile::TempDir, [Node; 2]) {
    let shared = tempfile::Builder::new()
        .prefix("podnet-test-shared-")
        .tempdir()
        .expect("a directory for the nodes");
    let path = shared.path().to_str().expect("a path in UTF-8");
    let nodes = [1, 2].map(|number| {
        let vtep = Fabric::on_segment(number)[0].to_string();
        let setup = Setup::empty().named(&format!("node-{number}")).args(&[
            "--vtep",
            &vtep,
            "--endpoints",
            path,
        ]);
        let setup = [("one", 5000), ("two", 6000)]
            .iter()
            .fold(setup, |setup, (name, id)| {
                let setup = setup.file(&format!("vpc-{name}.yaml"), &vpc(name, &CIDRS, &[]));
                networks(name, *id, number)
                    .iter()
                    .fold(setup, Setup::network)
            });
        Node::start_on(setup, fabric.host(number))
    });
    (shared, nodes)
}

/// No node has ports of both networks, and each leads to the other's.
#[test]
fn networks_of_a_vpc_reach_each_other_across_nodes_and_other_vpcs_do_not() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let fabric = Fabric::segment();
    let (_shared, nodes) = two_nodes(&fabric);
    let [first, second] = &nodes;
    let (_a, a) = app(first, "a", "one-1");
    let (_b, b) = app(second, "b", "one-2");
    let (_c, c) = app(first, "c", "two-1");
    let (pod, d) = app(second, "d", "two-2");
    assert_eq!(
        (a.v4(), b.v4()),
        (c.v4(), d.v4()),
        "the same addresses in both"
    );
    for (here, there) in [(&a, &b), (&c, &d)] {
        wait_reaches(here, there);
        wait_reaches(there, here);
    }
    // Of both nodes, the second tells of what comes by the tunnel.
    let sent = first.explain("a", &format!("one-2/{}", b.v4()), &["--proto", "udp:9"]);
    sent.assert_is("tunnelled", "");
    let came = second.explain(&format!("one-1/{}", a.v4()), "b", &["--proto", "udp:9"]);
    came.assert_is("delivered", "");
    assert!(came.steps().contains("ROUTES["), "{}", came.steps());
    // With d gone nothing of its VPC is led to b, which has the same address.
    pod.detach("two-2", "net1");
    for ip in [IpAddr::from(d.v4()), d.v6().into()] {
        dropped_at(first, &c, ip, DropReason::NoEndpoint);
    }
    traffic::assert_reaches(&a, &b);
    // An agent that ends and starts keeps the ways between them.
    first.kill_9();
    traffic::assert_reaches(&a, &b);
    first.start_agent();
    for _ in 0..10 {
        traffic::assert_reaches(&a, &b);
        traffic::assert_reaches(&b, &a);
    }
}
