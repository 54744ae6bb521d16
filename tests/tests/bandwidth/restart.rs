//! Limits belong to the kernel: agents come and go.

use serde_json::json;
use testbed::limit::{self, Interfaces};
use testbed::stream::Stream;
use testbed::{Node, Pod, Port, traffic};

use crate::limiting_node;

const RATE: u64 = 10_000_000;

fn limited_pair<'a>(node: &'a Node, network: &str) -> ([Pod<'a>; 2], [Port; 2]) {
    let both = json!({"ingressRate": RATE, "egressRate": RATE});
    let pods = ["a", "b"].map(|name| node.pod(name));
    let conf = limit::conf(node, network, &both);
    let [a, b] = &pods;
    let ports = [a.attach_conf(&conf, "net1"), b.attach_conf(&conf, "net1")];
    (pods, ports)
}

/// A `kill -9` and a new agent later keep all packets and the same queues.
#[test]
fn a_restart_adopts_limits_and_loses_nothing() {
    let node = limiting_node!();
    for network in ["blue", "green"] {
        let (pods, [pa, pb]) = limited_pair(&node, network);
        let names = Interfaces::of(&node, &pa);
        let indexes = || [&names.near, &names.far].map(|name| limit::ifindex(&node, name));
        let before = indexes();
        let pairs = traffic::pairs(&pa, &pb).into_iter();
        let streams: Vec<_> = pairs
            .map(|(from, to)| Stream::start(&pa, from, &pb, to))
            .collect();
        let mut sent = 0;
        for _ in 0..2 {
            node.kill_9();
            for stream in &streams {
                stream.progress();
            }
            node.start_agent();
            for stream in &streams {
                stream.progress();
            }
            assert_eq!(indexes(), before, "the shaper was made anew");
            let now = limit::limit(&node, &names.near).sent_packets;
            assert!(now > sent, "the queue was made anew");
            sent = now;
            pods[0].check(network, "net1", &pa.result).silent();
        }
        for stream in streams {
            stream.assert_nothing_lost();
        }
        let (from, to) = traffic::pairs(&pa, &pb).remove(0);
        limit::flood(&pa, from, &pb, to, 100_000).assert_limited(RATE);
        for pod in pods {
            pod.detach(network, "net1");
        }
        node.assert_empty();
    }
}

/// Damage from a time without an agent is repaired before requests are served.
#[test]
fn a_restart_mends_limits() {
    let node = limiting_node!();
    let (pods, [pa, pb]) = limited_pair(&node, "blue");
    let names = Interfaces::of(&node, &pa);
    let other = Interfaces::of(&node, &pb);
    node.kill_9();
    limit::remove_queue(node.netns(), pa.host_ifindex());
    let near = limit::ifindex(&node, &names.near).expect("it is there");
    limit::remove_queue(node.netns(), near);
    let mut netlink = testbed::host::connection(node.netns());
    let gone = limit::ifindex(&node, &other.near).expect("it is there");
    netlink.delete(gone).expect("links can be removed");
    node.start_agent();
    for (pod, port) in pods.iter().zip([&pa, &pb]) {
        pod.check("blue", "net1", &port.result).silent();
    }
    for (from, to) in [(&pa, &pb), (&pb, &pa)] {
        limit::flood(from, from.v4().into(), to, to.v4().into(), 100_000).assert_limited(RATE);
    }
    for pod in pods {
        pod.detach("blue", "net1");
    }
    node.assert_empty();
}

/// A `DEL` removes the shaper, with an agent and without, and so does `cleanup`.
#[test]
fn nothing_of_a_limit_is_left_when_its_pod_is_gone() {
    let node = limiting_node!();
    let before = node.links().len();
    let (pods, [pa, _]) = limited_pair(&node, "blue");
    let names = Interfaces::of(&node, &pa);
    let ours = node.links();
    let aliased = ours.iter().filter(|link| {
        let alias = link.alias.as_deref().unwrap_or_default();
        alias.starts_with("podnet: a/net1")
    });
    let mut aliased: Vec<_> = aliased.map(|link| link.name.clone()).collect();
    aliased.sort();
    assert_eq!(aliased, [&*names.host, &*names.near, &*names.far]);
    pods[0].detach("blue", "net1");
    node.terminate();
    pods[1].del("blue", "net1").silent();
    node.start_agent();
    testbed::wait::until_true("the tombstone to be served", || {
        node.links().len() == before
    });
    node.assert_empty();
    drop(pods);

    let (pods, _) = limited_pair(&node, "green");
    node.terminate();
    assert!(node.cleanup(&[]).status.success());
    assert_eq!(node.links().len(), before, "{:?}", node.links());
    assert!(pods[0].links().is_empty());
}

/// A shaper that no record names is a leftover.
#[test]
fn a_stray_shaper_is_removed_at_start() {
    let node = limiting_node!();
    node.terminate();
    let mut netlink = testbed::host::connection(node.netns());
    let mut spec = netdev::VethSpec::new("ps0123456789ab", "pt0123456789ab");
    spec.alias = Some("podnet: gone/net1".to_owned());
    netlink.create_veth(&spec).expect("a leftover");
    let mut spec = netdev::VethSpec::new("ps0123456789ac", "pt0123456789ac");
    spec.alias = Some("somebody else's".to_owned());
    let foreign = netlink.create_veth(&spec).expect("somebody's link");
    node.start_agent();
    assert_eq!(limit::ifindex(&node, "ps0123456789ab"), None);
    assert!(limit::ifindex(&node, "ps0123456789ac").is_some());
    netlink
        .delete(foreign.host_ifindex)
        .expect("links can be removed");
}
