//! Addresses, as a runtime gets to know them.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::{Value, json};
use testbed::{Network, Node, Setup, traffic};

fn asking(node: &Node, network: &str, ips: &[&str]) -> Value {
    let mut conf = node.conf(network);
    conf["runtimeConfig"] = json!({"ips": ips});
    conf
}

/// One address of each family, on the subnets of the network.
#[test]
fn a_dual_stack_network_gives_one_address_of_each_family() {
    let node = testbed::node!();
    let pod = node.pod("a");
    for network in ["blue", "green"] {
        let port = pod.attach(network, "net1");
        let v4 = port.ips.iter().filter(|(ip, _)| ip.is_ipv4()).count();
        let v6 = port.ips.iter().filter(|(ip, _)| ip.is_ipv6()).count();
        assert_eq!((v4, v6), (1, 1), "{:?}", port.ips);
        pod.detach(network, "net1");
    }
    node.assert_empty();
}

/// Exhaustion has a code of its own, takes nothing, and ends with the next release.
#[test]
fn exhaustion_is_code_100_and_a_release_ends_it() {
    let node = testbed::node!(Setup::empty().network(&Network::l2("tiny", &["10.3.0.0/29"])));
    let pods: Vec<_> = (0..7).map(|n| node.pod(&format!("p{n}"))).collect();
    let (last, first) = pods.split_last().expect("seven pods");
    let mut given = BTreeSet::new();
    for pod in first {
        given.insert(pod.attach("tiny", "net1").v4());
    }
    assert_eq!(given.len(), 6, "{given:?}");
    last.add("tiny", "net1").fails_with(100).names(&["tiny"]);
    assert!(last.links().is_empty());
    assert_eq!(node.attachments().len(), 6);
    first[2].detach("tiny", "net1");
    last.attach("tiny", "net1");
    for pod in &pods {
        pod.detach("tiny", "net1");
    }
    node.assert_empty();
}

/// A dual-stack network with one family exhausted gives nothing by halves.
#[test]
fn one_exhausted_family_is_exhaustion() {
    let half = Network::l2("half", &["10.3.0.0/30", "fd10:3::/64"]);
    let node = testbed::node!(Setup::empty().network(&half));
    let pods: Vec<_> = (0..3).map(|n| node.pod(&format!("p{n}"))).collect();
    pods[0].attach("half", "net1");
    pods[1].attach("half", "net1");
    pods[2].add("half", "net1").fails_with(100);
    pods[0].detach("half", "net1");
    pods[1].detach("half", "net1");
    node.assert_empty();
}

/// A static address has one holder.
#[test]
fn a_held_address_is_code_101() {
    let node = testbed::node!();
    let (a, b) = (node.pod("a"), node.pod("b"));
    let conf = asking(&node, "blue", &["10.10.0.42", "fd10:10::42"]);
    a.attach_conf(&conf, "net1");
    b.add_conf(&conf, "net1")
        .fails_with(101)
        .names(&["10.10.0.42"]);
    assert!(b.links().is_empty());
    // Of another network it is another address.
    let port = b.attach_conf(&asking(&node, "red", &["10.10.0.42"]), "net1");
    assert_eq!(port.v4().to_string(), "10.10.0.42");
    b.detach("red", "net1");
    a.detach("blue", "net1");
    b.attach_conf(&conf, "net1");
    b.detach("blue", "net1");
    node.assert_empty();
}

/// Addresses that no pod may have are refused with code 102.
///
/// They are outside, excluded, the gateway, network or broadcast addresses, of another prefix length,
/// or asked for twice.
#[test]
fn an_address_that_cannot_be_had_is_code_102() {
    let net = Network::l2("net", &["10.8.0.0/24"]).gateway("First");
    let net = net.exclude(&["10.8.0.200/29"]);
    let node = testbed::node!(Setup::empty().network(&net));
    let pod = node.pod("a");
    let table: [&[&str]; 7] = [
        &["10.9.0.1"],
        &["10.8.0.203"],
        &["10.8.0.1"],
        &["10.8.0.0"],
        &["10.8.0.255"],
        &["10.8.0.7/16"],
        &["10.8.0.7", "10.8.0.7"],
    ];
    for ips in table {
        let failure = pod.add_conf(&asking(&node, "net", ips), "net1").error();
        assert_eq!(failure.code, 102, "{ips:?}: {failure:?}");
        let address = ips[0].split('/').next().unwrap_or_default();
        failure.names(&[address]);
    }
    assert!(pod.links().is_empty());
    node.assert_empty();
}

/// Neither gateway nor excluded addresses are given to anybody.
#[test]
fn gateway_and_excluded_addresses_are_given_to_nobody() {
    let net = Network::l2("net", &["10.8.0.0/28"]).gateway("First");
    let net = net.exclude(&["10.8.0.4/30", "10.8.0.9"]);
    let node = testbed::node!(Setup::empty().network(&net));
    let mut given = BTreeSet::new();
    let mut pods = Vec::new();
    loop {
        let pod = node.pod(&format!("p{}", pods.len()));
        let outcome = pod.add("net", "net1");
        if !outcome.success {
            outcome.fails_with(100);
            break;
        }
        let result = outcome.result();
        let address = result["ips"][0]["address"].as_str().unwrap_or_default();
        given.insert(address.to_owned());
        pods.push(pod);
    }
    let expected: BTreeSet<_> = [2, 3, 8, 10, 11, 12, 13, 14]
        .map(|host| format!("10.8.0.{host}/28"))
        .into();
    assert_eq!(given, expected);
    for pod in &pods {
        pod.detach("net", "net1");
    }
    node.assert_empty();
}

/// Two networks with the same subnets hold their addresses apart.
#[test]
fn overlapping_networks_do_not_know_of_each_other() {
    let node = testbed::node!();
    let (a, b) = (node.pod("a"), node.pod("b"));
    for (one, two) in [("blue", "red"), ("green", "lime")] {
        let (pa, pb) = (a.attach(one, "net1"), b.attach(two, "net1"));
        assert_eq!(pa.ips, pb.ips, "both are the first of their network");
        a.detach(one, "net1");
        b.detach(two, "net1");
    }
    node.assert_empty();
}

/// Addresses are unique over many attachments, and not given again at once.
///
/// Neighbours may still remember the last owner.
#[test]
fn addresses_are_unique_over_many_attachments() {
    let node = testbed::node!();
    let mut held: BTreeSet<IpAddr> = BTreeSet::new();
    let pods: Vec<_> = (0..12).map(|n| node.pod(&format!("p{n}"))).collect();
    for pod in &pods {
        for (ip, _) in pod.attach("blue", "net1").ips {
            assert!(held.insert(ip), "{ip} was given twice");
        }
    }
    for pod in &pods {
        pod.detach("blue", "net1");
    }
    node.assert_empty();
}

/// Several addresses of one family: each is the pod's own.
#[test]
fn several_addresses_of_a_family_all_work() {
    let node = testbed::node!();
    let (a, b) = (node.pod("a"), node.pod("b"));
    let ips = ["10.10.0.42", "10.10.0.43", "fd10:10::42", "fd10:10::43"];
    let port = a.attach_conf(&asking(&node, "blue", &ips), "net1");
    let peer = b.attach("blue", "net1");
    assert_eq!(port.ips.len(), 4);
    for (ip, _) in &port.ips {
        let there = if ip.is_ipv4() {
            peer.v4().into()
        } else {
            peer.v6().into()
        };
        let done = traffic::udp_round_trip(&port, *ip, &peer, there);
        assert!(done.is_ok(), "from {ip}: {done:?}");
        let done = traffic::udp_round_trip(&peer, there, &port, *ip);
        assert!(done.is_ok(), "to {ip}: {done:?}");
    }
    a.detach("blue", "net1");
    b.detach("blue", "net1");
    node.assert_empty();
}

/// Leases are durable: a restart forgets none and invents none.
#[test]
fn leases_survive_a_restart() {
    let node = testbed::node!();
    let (a, b) = (node.pod("a"), node.pod("b"));
    let conf = asking(&node, "blue", &["10.10.0.42"]);
    a.attach_conf(&conf, "net1");
    node.restart();
    b.add_conf(&conf, "net1").fails_with(101);
    a.detach("blue", "net1");
    node.restart();
    b.attach_conf(&conf, "net1");
    b.detach("blue", "net1");
    node.assert_empty();
}
