//! Test podnet first, and reference plugins after it.
//!
//! They find what they need in podnet's result, what they do to the pod does not harm podnet, and what
//! would harm others is dropped.

use agent_common::drop::DropReason;
use serde_json::{Value, json};
use testbed::{Network, Node, Pod, Port, Setup, traffic, wait};

use super::libcni::{Libcni, Tools};

/// Runs a chain behind podnet: ADD, CHECK, traffic, DEL twice.
fn in_a_chain(
    tools: &Tools,
    network: &str,
    others: &[Value],
    look: impl FnOnce(&Node, &Pod<'_>, &Port),
) {
    let node = Node::start(Setup::default());
    let libcni = tools.on(&node);
    let mut plugins = vec![libcni.podnet(network)];
    plugins.extend_from_slice(others);
    libcni.chain(network, &plugins);
    let (pod, other) = (node.pod("a"), node.pod("b"));
    let port = libcni.attach(network, &pod, "net1");
    let peer = other.attach(network, "net1");
    for (from, to) in traffic::pairs(&port, &peer) {
        // From an address: behind `sbr` there is no route for sockets that have not chosen one.
        let sent = traffic::udp_round_trip(&port, from, &peer, to);
        assert!(sent.is_ok(), "UDP {from} -> {to}: {sent:?}");
    }
    traffic::assert_reaches(&peer, &port);
    check(&libcni, network, &pod);
    look(&node, &pod, &port);
    libcni.run("del", network, &pod, "net1").succeeds();
    assert_eq!(pod.links(), Vec::<String>::new());
    let again = libcni.run("del", network, &pod, "net1");
    if others.iter().any(|other| other["type"] == "sbr") {
        // This one wants the interface to be there, and is asked before podnet.
        again.fails_with(&["sbr"]);
    } else {
        again.succeeds();
    }
    other.detach(network, "net1");
    node.assert_empty();
}

#[track_caller]
fn check(libcni: &Libcni<'_>, network: &str, pod: &Pod<'_>) {
    // Some reference plugins talk on stderr.
    libcni.run("check", network, pod, "net1").succeeds();
}

#[track_caller]
fn detach(libcni: &Libcni<'_>, network: &str, pod: &Pod<'_>) {
    for _ in 0..2 {
        libcni.run("del", network, pod, "net1").succeeds();
        assert_eq!(pod.links(), Vec::<String>::new());
    }
}

fn tuning(settings: &Value) -> Value {
    let mut conf = settings.clone();
    conf["type"] = "tuning".into();
    conf
}

/// `tuning` finds the interface and changes what it was told to.
#[test]
fn tuning_behind_podnet_changes_sysctls_and_flags() {
    let Some(tools) = Tools::find(testbed::test_name!(), &["tuning"]) else {
        return;
    };
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let conf = tuning(&json!({
        "sysctl": {"net.ipv4.conf.net1.log_martians": "1"}, "promisc": true, "allmulti": true,
    }));
    in_a_chain(&tools, "blue", &[conf], |_, pod, _| {
        let read = || std::fs::read_to_string("/proc/sys/net/ipv4/conf/net1/log_martians");
        let value = pod.netns().run_in(read);
        let value = value.expect("the pod's namespace can be entered");
        assert_eq!(value.expect("the sysctl can be read").trim(), "1");
    });
}

/// A smaller MTU is the pod's business, and `CHECK` leaves it to who changed it.
#[test]
fn tuning_behind_podnet_can_make_the_mtu_smaller() {
    let Some(tools) = Tools::find(testbed::test_name!(), &["tuning"]) else {
        return;
    };
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let conf = tuning(&json!({"mtu": 1300}));
    in_a_chain(&tools, "blue", &[conf], |_, _, port| {
        assert_eq!(port.link().map(|link| link.mtu), Some(1300));
    });
}

/// `tuning`, `portmap` without mappings and `sbr`.
#[test]
fn three_neighbours_behind_podnet_work_together() {
    let wanted = ["tuning", "portmap", "sbr"];
    let Some(tools) = Tools::find(testbed::test_name!(), &wanted) else {
        return;
    };
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let others = [
        tuning(&json!({"sysctl": {"net.ipv4.conf.net1.arp_notify": "1"}})),
        json!({"type": "portmap", "snat": true, "capabilities": {"portMappings": true}}),
        json!({"type": "sbr"}),
    ];
    in_a_chain(&tools, "blue", &others, |_, _, port| {
        assert_eq!(port.result["cniVersion"], "1.0.0");
    });
    proof::of!("RT-ND-01");
}

/// The same works on routed networks without `sbr`.
///
/// It drops routes by a gateway outside the address's prefix: on routed networks these are all routes.
#[test]
fn two_neighbours_behind_podnet_work_on_a_routed_network() {
    let Some(tools) = Tools::find(testbed::test_name!(), &["tuning", "portmap"]) else {
        return;
    };
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let others = [
        json!({"type": "portmap", "snat": true, "capabilities": {"portMappings": true}}),
        tuning(&json!({"sysctl": {"net.ipv4.conf.net1.arp_notify": "1"}})),
    ];
    in_a_chain(&tools, "green", &others, |_, _, _| {});
    proof::of!("RT-ND-01");
}

/// CNI-CHK-01: `CHECK` names podnet's own route that `sbr` removed.
///
/// Traffic takes the default route that `sbr` makes.
#[test]
fn a_route_taken_away_by_sbr_is_named() {
    let Some(tools) = Tools::find(testbed::test_name!(), &["sbr"]) else {
        return;
    };
    let lane = Network::l3("lane", &["10.30.0.0/24"]);
    let node = testbed::node!(Setup::empty().network(&lane));
    let libcni = tools.on(&node);
    libcni.chain("lane", &[libcni.podnet("lane"), json!({"type": "sbr"})]);
    let (pod, other) = (node.pod("a"), node.pod("b"));
    let port = libcni.attach("lane", &pod, "net1");
    let peer = other.attach("lane", "net1");
    traffic::assert_reaches(&peer, &port);
    libcni
        .run("check", "lane", &pod, "net1")
        .fails_with(&["route to 10.30.0.0/24"]);
    libcni.run("del", "lane", &pod, "net1").succeeds();
    other.detach("lane", "net1");
    node.assert_empty();
    proof::of!("CNI-CHK-01");
}

/// A MAC address that podnet did not give is cut off as a spoofed one.
///
/// Whatever program set it: nothing from it gets through, `CHECK` says why, and podnet's own `mac`
/// capability is the way to choose one.
#[test]
fn a_mac_changed_by_tuning_is_cut_off_and_named() {
    let Some(tools) = Tools::find(testbed::test_name!(), &["tuning"]) else {
        return;
    };
    let node = testbed::node!();
    let libcni = tools.on(&node);
    let conf = tuning(&json!({"mac": "02:00:00:00:be:ef"}));
    libcni.chain("blue", &[libcni.podnet("blue"), conf]);
    let (pod, other) = (node.pod("a"), node.pod("b"));
    let port = libcni.attach("blue", &pod, "net1");
    let peer = other.attach("blue", "net1");
    let watch = testbed::Watch::over(&node, &[&peer]);
    let marker = testbed::frame::marker();
    let before = node.drops().of("blue", DropReason::SpoofedMac);
    let to = std::net::SocketAddr::from((peer.v4(), 9));
    traffic::shout(&port, port.v4().into(), to, &marker).expect("it is sent");
    wait::until_true("the frame to be dropped", || {
        node.drops().of("blue", DropReason::SpoofedMac) > before
    });
    watch.assert_unseen("a changed MAC address", &marker);
    libcni
        .run("check", "blue", &pod, "net1")
        .fails_with(&["podnet", "MAC"]);
    detach(&libcni, "blue", &pod);
    other.detach("blue", "net1");
    node.assert_empty();
}

/// A neighbour that fails leaves the DEL to the runtime; podnet leaves nothing.
#[test]
fn a_neighbour_that_fails_leaves_nothing_after_del() {
    let Some(tools) = Tools::find(testbed::test_name!(), &["tuning"]) else {
        return;
    };
    let node = testbed::node!();
    let libcni = tools.on(&node);
    let conf = tuning(&json!({"sysctl": {"net.ipv4.conf.net1.no_such_thing": "1"}}));
    libcni.chain("blue", &[libcni.podnet("blue"), conf]);
    let pod = node.pod("a");
    libcni
        .run("add", "blue", &pod, "net1")
        .fails_with(&["tuning"]);
    assert_eq!(node.attachments().len(), 1);
    detach(&libcni, "blue", &pod);
    node.assert_empty();
}
