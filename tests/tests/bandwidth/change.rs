//! Rates change while packets flow, with the manifests.

use netdev::{Discipline, RootQueue};
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use serde_json::{Value, json};
use testbed::limit::{self, Interfaces};
use testbed::manifest::attachment;
use testbed::stream::Stream;
use testbed::{Network, Node, Port, traffic, wait};

use crate::limiting_node;

/// A standard network with these lines in its parameters.
fn network(name: &str, more: &str) -> String {
    let mut standard = Network::standard().into_iter();
    let network = standard.find(|network| network.name == name);
    network.expect("a standard network").yaml() + more
}

fn rates(more: &[(&str, u64)]) -> String {
    more.iter()
        .map(|(key, rate)| format!("  {key}: {rate}\n"))
        .collect()
}

/// Returns the rates in force of each attachment to the network: ingress, egress.
fn in_force(node: &Node, network: &str) -> Vec<[Option<u64>; 2]> {
    let rows = node.get("attachments").into_iter();
    let rows = rows.filter(|row| row["network"] == network);
    let rate = |limit: &Value| {
        limit["rate"]
            .as_u64()
            .filter(|_| limit["mechanism"].is_string())
    };
    rows.map(|row| ["ingress", "egress"].map(|way| rate(&row["bandwidth"][way])))
        .collect()
}

fn await_rates(node: &Node, network: &str, expected: [Option<u64>; 2]) {
    wait::until_true("the rates of the manifests", || {
        let rates = in_force(node, network);
        !rates.is_empty() && rates.iter().all(|rates| *rates == expected)
    });
}

/// Streams below any of the rates lose nothing while limits come, change and go.
///
/// They have numbered datagrams, in both directions of both pods at once.
#[test]
fn limits_that_come_change_and_go_lose_nothing() {
    let node = limiting_node!();
    let (a, b) = (node.pod("a"), node.pod("b"));
    for (name, ifname) in [("blue", "net1"), ("green", "net2")] {
        let (pa, pb) = (a.attach(name, ifname), b.attach(name, ifname));
        let pairs = traffic::pairs(&pa, &pb).into_iter();
        let streams: Vec<_> = pairs
            .map(|(from, to)| Stream::start(&pa, from, &pb, to))
            .collect();
        for (ingress, egress) in [
            (Some(20_000_000), None),
            (Some(20_000_000), Some(30_000_000)),
            (Some(100_000_000), Some(25_000_000)),
            (None, Some(25_000_000)),
            (None, None),
            (Some(50_000_000), Some(50_000_000)),
            (None, None),
        ] {
            let lines: Vec<_> = [("ingressRate", ingress), ("egressRate", egress)]
                .into_iter()
                .filter_map(|(key, rate)| Some((key, rate?)))
                .collect();
            let file = format!("{name}.yaml");
            node.write_manifest(&file, &network(name, &rates(&lines)));
            await_rates(&node, name, [ingress, egress]);
            for stream in &streams {
                stream.progress();
            }
        }
        for stream in streams {
            stream.assert_nothing_lost();
        }
        assert_unlimited(&node, &pa);
        assert_unlimited(&node, &pb);
        a.detach(name, ifname);
        b.detach(name, ifname);
    }
    node.assert_empty();
}

/// Queued packets are delivered when a limit changes or goes.
///
/// There are more packets than the rate lets through before the change.
#[test]
fn what_waits_when_a_limit_changes_or_goes_arrives() {
    let node = limiting_node!();
    // 100 take more than a second, and fit the queue; fq_codel drops what has waited for long.
    let datagrams: u32 = match limit::discipline() {
        Some(Discipline::FqCodel) => 5,
        _ => 100,
    };
    let (a, b) = (node.pod("a"), node.pod("b"));
    let (pa, pb) = (a.attach("blue", "net1"), b.attach("blue", "net1"));
    let mut limited = [None, None];
    for (way, key) in ["ingressRate", "egressRate"].into_iter().enumerate() {
        for next in [Some(30_000_000), None] {
            node.write_manifest("blue.yaml", &network("blue", &rates(&[(key, 1_000_000)])));
            limited[way] = Some(1_000_000);
            await_rates(&node, "blue", limited);
            let (from, to) = (
                traffic::udp(&pa, pa.v4().into()),
                traffic::udp(&pb, pb.v4().into()),
            );
            set_socket_recv_buffer_size_force(&to, 1 << 20).expect("room for all at once");
            let target = to.local_addr().expect("a bound socket has an address");
            for number in 0..datagrams {
                let mut datagram = [0; 1200];
                datagram[..4].copy_from_slice(&number.to_be_bytes());
                from.send_to(&datagram, target).expect("it is sent");
            }
            let lines: Vec<_> = next.map(|rate| (key, rate)).into_iter().collect();
            node.write_manifest("blue.yaml", &network("blue", &rates(&lines)));
            for number in 0..datagrams {
                let mut datagram = [0; 1200];
                let length = to.recv(&mut datagram);
                assert_eq!(
                    length.ok(),
                    Some(1200),
                    "{key} to {next:?}: {number} is lost"
                );
                assert_eq!(datagram[..4], number.to_be_bytes(), "{key} to {next:?}");
            }
            limited[way] = next;
            await_rates(&node, "blue", limited);
        }
    }
    a.detach("blue", "net1");
    b.detach("blue", "net1");
    node.assert_empty();
}

/// Nothing of a limit is left.
fn assert_unlimited(node: &Node, port: &Port) {
    let names = Interfaces::of(node, port);
    wait::until_true("the host end without a queue", || {
        limit::root(node, &names.host) == RootQueue::Default
    });
    wait::until_true("the shaper to go", || {
        limit::ifindex(node, &names.near).is_none() && limit::ifindex(node, &names.far).is_none()
    });
}

/// A changed limit keeps its queue, with the packets in it.
#[test]
fn a_changed_rate_is_kept_by_the_same_queue() {
    let node = limiting_node!();
    node.write_manifest(
        "fast.yaml",
        &attachment("fast", "blue", "{egressRate: 10000000}"),
    );
    let (a, b) = (node.pod("a"), node.pod("b"));
    let mut conf = node.attachment_conf("fast", "default/fast");
    conf["runtimeConfig"]["bandwidth"] = json!({"ingressRate": 5_000_000});
    let pa = wait::until("the manifest to be read", || {
        let outcome = a.add_conf(&conf, "net1");
        outcome
            .success
            .then(|| a.port("fast", "net1", outcome.result()))
    });
    let pb = b.attach("blue", "net1");
    let names = Interfaces::of(&node, &pa);
    let shaper = limit::ifindex(&node, &names.near);
    let rate = |name: &str| limit::limit(&node, name).shape.rate * 8;
    assert_eq!(
        (rate(&names.near), rate(&names.host)),
        (10_000_000, 5_000_000)
    );
    traffic::assert_reaches(&pa, &pb);
    let before = limit::limit(&node, &names.near).sent_packets;
    assert!(before > 0);
    for (spec, expected) in [
        ("{egressRate: 20000000, ingressRate: 9000000}", 20_000_000),
        ("{egressRate: 8000000, egressBurst: 4000000}", 8_000_000),
    ] {
        node.write_manifest("fast.yaml", &attachment("fast", "blue", spec));
        wait::until_true("the new rate", || rate(&names.near) == expected);
        assert!(limit::limit(&node, &names.near).sent_packets >= before);
        assert_eq!(limit::ifindex(&node, &names.near), shaper);
        // What the runtime asked for is not the manifest's to change.
        assert_eq!(rate(&names.host), 5_000_000);
    }
    assert_eq!(limit::limit(&node, &names.near).shape.burst, 500_000);
    limit::flood(&pa, pa.v4().into(), &pb, pb.v4().into(), 2_000_000).assert_limited(8_000_000);
    a.check("fast", "net1", &pa.result).silent();
    a.detach("fast", "net1");
    b.detach("blue", "net1");
    node.assert_empty();
}

/// A limit stays in force when its object is removed or broken.
#[test]
fn a_limit_outlives_its_manifest() {
    let node = limiting_node!();
    node.write_manifest(
        "blue.yaml",
        &network("blue", &rates(&[("ingressRate", 10_000_000)])),
    );
    let a = node.pod("a");
    let ready = || {
        let networks = node.get("networks");
        networks
            .iter()
            .any(|row| row["name"] == "blue" && row["ready"] == true)
    };
    wait::until_true("the network with a rate", || {
        a.attach("blue", "net1");
        let limited = in_force(&node, "blue") == [[Some(10_000_000), None]];
        if !limited {
            a.detach("blue", "net1");
        }
        limited
    });
    node.write_manifest("blue.yaml", &network("blue", "  ingressRate: 5\n"));
    wait::until_true("the broken manifest to be read", || !ready());
    assert_eq!(in_force(&node, "blue"), [[Some(10_000_000), None]]);
    node.remove_manifest("blue.yaml");
    node.write_manifest(
        "red.yaml",
        &network("red", &rates(&[("egressRate", 1_000_000)])),
    );
    wait::until_true("the manifests to be read", || {
        node.get("networks").iter().all(|row| row["name"] != "blue")
    });
    assert_eq!(in_force(&node, "blue"), [[Some(10_000_000), None]]);
    node.restart();
    assert_eq!(in_force(&node, "blue"), [[Some(10_000_000), None]]);
    a.detach("blue", "net1");
    node.assert_empty();
}
