//! Test that an impossible use of an uplink is refused and leaves nothing behind.

use testbed::host::{UPLINK, connection};
use testbed::{Fabric, Network, Node, Setup, wait};

use super::segment::assert_untouched;

fn on(fabric: &Fabric, networks: &[Network]) -> Node {
    let mut setup = Setup::empty().named("node-1");
    for address in Fabric::on_segment(1) {
        setup = setup.args(&["--vtep", &address.to_string()]);
    }
    for network in networks {
        setup = setup.network(network);
    }
    Node::start_on(setup, fabric.host(1))
}

fn over(network: Network, transport: &str) -> Network {
    Network {
        transport: Some(transport.to_owned()),
        ..network
    }
}

#[test]
fn an_uplink_that_a_network_cannot_have_is_refused_with_the_reason() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let net = |name: &str, id| Network::l2(name, &["10.10.0.0/24"]).id(id);
    let routed = |name: &str, id, subnet: &str| Network::l3(name, &[subnet]).id(id).native();
    let fabric = Fabric::segment();
    let node = on(
        &fabric,
        &[
            over(net("gone", 1), "type: VLAN, uplink: nothere, id: 5"),
            over(net("loop", 2), "type: VLAN, uplink: lo, id: 5"),
            net("large", 3).vlan(6).mtu(1501),
            net("first", 4).vlan(7),
            over(
                Network::l2("second", &[]).id(5),
                &format!("type: VLAN, uplink: {UPLINK}, trunk: \"1,5-9\""),
            ),
            routed("home", 6, "10.98.0.0/24"),
            routed("wide", 7, "10.20.0.0/16"),
            routed("within", 8, "10.20.9.0/24"),
        ],
    );
    let pod = node.pod("a");
    let cases: [(&str, &[&str]); 6] = [
        ("gone", &["nothere", "spec.transport.uplink"]),
        ("loop", &["lo", "no Ethernet"]),
        ("large", &["1501", "1500 or less", UPLINK]),
        ("second", &["first", "second", "VLAN 7", UPLINK]),
        ("home", &["10.98.0.0/24", "10.98.0.1"]),
        (
            "within",
            &["wide", "within", "10.20.9.0/24", "10.20.0.0/16"],
        ),
    ];
    for (network, words) in cases {
        let error = pod.add(network, "net1").error();
        assert_eq!(error.code, 7, "{network}: {error:?}");
        error.names(words);
        assert_untouched(&node);
    }
    node.assert_empty();
}

/// The one that is in use keeps what it has, whatever is written afterwards.
#[test]
fn a_vlan_in_use_is_nobody_elses() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let fabric = Fabric::segment();
    let node = on(&fabric, &[Network::l2("mine", &[]).id(1).vlan(7)]);
    let pods = [node.pod("a"), node.pod("b")];
    pods[0].attach("mine", "net1");
    // A name before it, and its own object gone: nothing written has the VLAN but this.
    node.remove_manifest("mine.yaml");
    node.write_manifest("also.yaml", &Network::l2("also", &[]).id(2).vlan(7).yaml());
    let mut error = None;
    wait::until_true("the refusal", || {
        let outcome = pods[1].add("also", "net1");
        if outcome.success {
            return false;
        }
        let said = outcome.error();
        let done = said.code == 7 && format!("{said:?}").contains("in use");
        error = Some(said);
        done
    });
    error.expect("a refusal").names(&["mine", "also", "VLAN 7"]);
    pods[0].detach("mine", "net1");
    wait::until_true("the VLAN to be free", || {
        pods[1].add("also", "net1").success
    });
    pods[1].detach("also", "net1");
    assert_untouched(&node);
    node.assert_empty();
}

/// Of two networks on one uplink, the first to go takes nothing from the other.
///
/// A mode that another program has set stays.
#[test]
fn an_uplink_is_left_as_it_was_found() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let fabric = Fabric::segment();
    let networks = [7, 8].map(|id| {
        let name = format!("net-{id}");
        Network::l2(&name, &[]).id(u32::from(id)).vlan(id)
    });
    let node = on(&fabric, &networks);
    let mut there = connection(node.netns());
    let mut link = || there.by_name(UPLINK).expect("links").expect("the uplink");
    let pods = [node.pod("a"), node.pod("b")];
    pods[0].attach("net-7", "net1");
    pods[1].attach("net-8", "net1");
    assert!(link().promiscuous);
    pods[0].detach("net-7", "net1");
    assert!(link().promiscuous);
    pods[1].detach("net-8", "net1");
    assert_untouched(&node);
    pods[0].attach("net-7", "net1");
    node.kill_9();
    let output = node.cleanup(&[]);
    assert!(output.status.success(), "{output:?}");
    assert_untouched(&node);
    let ifindex = link().ifindex;
    let change = netdev::LinkChange {
        promiscuous: Some(true),
        ..netdev::LinkChange::default()
    };
    let mut others = connection(node.netns());
    others.reconfigure(ifindex, &change).expect("promiscuous");
    node.start_agent();
    pods[1].attach("net-8", "net1");
    pods[1].detach("net-8", "net1");
    assert!(link().promiscuous, "somebody else's");
    let change = netdev::LinkChange {
        promiscuous: Some(false),
        ..netdev::LinkChange::default()
    };
    others.reconfigure(ifindex, &change).expect("as before");
}
