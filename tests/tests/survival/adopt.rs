//! A new agent takes over what the old one left.

use std::collections::BTreeMap;

use netdev::LinkChange;
use testbed::{Node, Setup, traffic, wait};

/// Returns the view that must not change: everything but counters.
fn view(node: &Node) -> BTreeMap<(String, String), Vec<String>> {
    let text = |row: &serde_json::Value, key: &str| row[key].to_string();
    let rows = node.get("attachments").into_iter();
    rows.map(|row| {
        let id = (text(&row, "container"), text(&row, "ifname"));
        let facts = [
            "network",
            "networkID",
            "mac",
            "ips",
            "hostIfindex",
            "state",
            "live",
        ];
        (id, facts.map(|key| text(&row, key)).into())
    })
    .collect()
}

/// Attachments, links, programs: adopted as they are, not made again.
#[test]
fn a_restart_adopts_everything() {
    let node = testbed::node!();
    let pods: Vec<_> = (0..4).map(|n| node.pod(&format!("p{n}"))).collect();
    let networks = ["blue", "blue", "green", "red"];
    let ports: Vec<_> = pods
        .iter()
        .zip(networks)
        .map(|(pod, network)| pod.attach(network, "net1"))
        .collect();
    let before = view(&node);
    let hosts: Vec<_> = ports.iter().map(testbed::Port::host_ifindex).collect();
    for graceful in [false, true] {
        if graceful {
            node.terminate();
        } else {
            node.kill_9();
        }
        node.start_agent();
        assert_eq!(view(&node), before);
        let now: Vec<_> = ports.iter().map(testbed::Port::host_ifindex).collect();
        assert_eq!(now, hosts);
        for ((pod, network), port) in pods.iter().zip(networks).zip(&ports) {
            pod.check(network, "net1", &port.result).silent();
        }
        traffic::assert_reaches(&ports[0], &ports[1]);
    }
    for (pod, network) in pods.iter().zip(networks) {
        pod.detach(network, "net1");
    }
    node.assert_empty();
}

/// New pods and old pods of a network meet, whichever agent attached them.
#[test]
fn pods_of_before_and_after_a_restart_reach_each_other() {
    let node = testbed::node!();
    let (old, new) = (node.pod("old"), node.pod("new"));
    for (network, ifname) in [("blue", "net1"), ("green", "net2")] {
        let before = old.attach(network, ifname);
        node.restart();
        let after = new.attach(network, ifname);
        traffic::assert_reaches(&before, &after);
    }
    for pod in [&old, &new] {
        pod.detach("blue", "net1");
        pod.detach("green", "net2");
    }
    node.assert_empty();
}

/// Network numbers that the agent chose are the same after a restart.
///
/// Another number would be another network to the datapath.
#[test]
fn allocated_network_numbers_are_stable() {
    let setup = Setup::empty()
        .network(&testbed::Network::l2("one", &["10.1.0.0/24"]))
        .network(&testbed::Network::l2("two", &["10.1.0.0/24"]));
    let node = testbed::node!(setup);
    let (a, b) = (node.pod("a"), node.pod("b"));
    a.attach("two", "net1");
    b.attach("one", "net1");
    let ids = |node: &Node| {
        let rows = node.get("networks").into_iter();
        rows.map(|row| (row["name"].to_string(), row["id"].to_string()))
            .collect::<BTreeMap<_, _>>()
    };
    let before = ids(&node);
    node.restart();
    assert_eq!(ids(&node), before);
    a.detach("two", "net1");
    b.detach("one", "net1");
    node.restart();
    a.attach("two", "net1");
    assert_eq!(ids(&node).get("\"two\""), before.get("\"two\""));
    a.detach("two", "net1");
}

/// The warm pool of prepared links is adopted: restarts do not pile them up.
#[test]
fn restarts_do_not_pile_up_links() {
    let node = testbed::node!();
    let settled = |node: &Node| {
        // The pool is refilled in the background: wait until it stands still.
        let last = std::cell::Cell::new((usize::MAX, 0));
        wait::until("the links to settle", || {
            let now = node.links().len();
            let (before, times) = last.get();
            let times = if now == before { times + 1 } else { 0 };
            last.set((now, times));
            (times > 40).then_some(now)
        })
    };
    let before = settled(&node);
    for _ in 0..3 {
        node.restart();
    }
    assert_eq!(settled(&node), before);
}

/// A host end deleted while the agent was away is noticed.
///
/// The records of the live attachment go with the DEL; the others stay.
#[test]
fn a_host_end_deleted_while_the_agent_was_away_is_noticed() {
    let node = testbed::node!();
    let (a, b, c) = (node.pod("a"), node.pod("b"), node.pod("c"));
    let pa = a.attach("blue", "net1");
    let (pb, pc) = (b.attach("blue", "net1"), c.attach("blue", "net1"));
    node.kill_9();
    let mut netlink = testbed::host::connection(node.netns());
    let deleted = netlink.delete(pa.host_ifindex());
    assert!(deleted.expect("links can be removed"));
    node.start_agent();
    assert!(!a.check("blue", "net1", &pa.result).success);
    traffic::assert_reaches(&pb, &pc);
    for pod in [&a, &b, &c] {
        pod.del("blue", "net1").silent();
    }
    node.assert_empty();
}

/// CNI-CHK-02: A host end that was set down is damage, which CHECK reports.
///
/// The agent leaves it down. Traffic is back when it is up again.
#[test]
fn a_host_end_set_down_is_damage() {
    let node = testbed::node!();
    let (a, b) = (node.pod("a"), node.pod("b"));
    let (pa, pb) = (a.attach("blue", "net1"), b.attach("blue", "net1"));
    let mut netlink = testbed::host::connection(node.netns());
    let down = LinkChange::updown(false);
    netlink.reconfigure(pa.host_ifindex(), &down).expect("down");
    let checked = a.check("blue", "net1", &pa.result);
    checked.fails_with(150).names(&["is down"]);
    netlink.set_up(pa.host_ifindex()).expect("up");
    a.check("blue", "net1", &pa.result).silent();
    traffic::assert_reaches(&pa, &pb);
    a.detach("blue", "net1");
    b.detach("blue", "net1");
    node.assert_empty();
    proof::of!("CNI-CHK-02");
}

/// A filter that somebody removed is put back at once, when the kernel tells.
///
/// A host end without its program hands what the pod sends to the node. The audit would come later.
#[test]
fn a_filter_that_somebody_removed_is_put_back_at_once() {
    let node = testbed::node!(Setup::default().args(&["--tcx-after", "3600"]));
    let (a, b) = (node.pod("a"), node.pod("b"));
    let (pa, pb) = (a.attach("blue", "net1"), b.attach("blue", "net1"));
    for port in [&pa, &pb] {
        testbed::host::remove_clsact(node.netns(), port.host_ifindex());
    }
    wait::until_true("both ports have their filter again", || {
        let mut netlink = testbed::host::connection(node.netns());
        [&pa, &pb].iter().all(|port| {
            let filters = netlink.ingress_filters(port.host_ifindex());
            !filters.expect("filters").is_empty()
        })
    });
    // Written when it is done. The audit would not have said it.
    wait::until_true("it is told for each", || {
        node.log()
            .matches("the port's program had been removed, and is attached again")
            .count()
            == 2
    });
    traffic::assert_reaches(&pa, &pb);
    a.check("blue", "net1", &pa.result).silent();
    a.detach("blue", "net1");
    b.detach("blue", "net1");
    node.assert_empty();
}

/// A link of somebody else's that looks a little like ours is left alone.
#[test]
fn foreign_links_are_left_alone() {
    let node = testbed::node!();
    let mut netlink = testbed::host::connection(node.netns());
    for (name, peer, alias) in [
        ("veth-foreign", "veth-foreign-p", None),
        ("pnforeign", "pnforeignp", None),
        ("cali0123", "cali0123p", Some("podnet of somebody else")),
    ] {
        let mut spec = netdev::VethSpec::new(name, peer);
        spec.alias = alias.map(str::to_owned);
        netlink.create_veth(&spec).expect("a foreign link");
    }
    node.restart();
    node.gc("blue", &[]).silent();
    node.terminate();
    assert!(node.cleanup(&[]).status.success());
    for name in ["veth-foreign", "pnforeign", "cali0123"] {
        let deleted = netlink.delete_by_name(name).expect("links can be removed");
        assert!(deleted, "{name} is gone");
    }
}
