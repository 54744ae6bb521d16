//! CNI SPEC section 4, CHECK.

use std::fs;

use netdev::LinkChange;
use serde_json::json;
use testbed::{Network, Setup, pins, traffic};

/// CNI-CHK-03: CRI-O calls CHECK right after each ADD.
#[test]
fn check_ok_immediately() {
    let node = testbed::node!();
    let pod = node.pod("a");
    for (network, ifname) in [("blue", "net1"), ("green", "net2")] {
        let result = pod.add(network, ifname).result();
        pod.check(network, ifname, &result).silent();
    }
    node.restart();
    let again = pod.add("blue", "net1").result();
    pod.check("blue", "net1", &again).silent();
    pod.detach("blue", "net1");
    pod.detach("green", "net2");
    proof::of!("CNI-CHK-03");
}

/// CNI-CHK-01 in every version that has CHECK.
#[test]
fn check_takes_the_result_of_each_version() {
    let node = testbed::node!();
    let pod = node.pod("a");
    for version in ["0.4.0", "1.0.0", "1.1.0"] {
        let mut conf = node.conf("blue");
        conf["cniVersion"] = version.into();
        let result = pod.add_conf(&conf, "net1").result();
        conf["prevResult"] = result;
        pod.call("CHECK", "net1").conf(&conf).run().silent();
        pod.detach("blue", "net1");
    }
    proof::of!("CNI-CHK-01");
}

/// CNI-CHK-01: later plugins of the chain may have added their own.
#[test]
fn check_tolerates_what_others_added() {
    let node = testbed::node!();
    let pod = node.pod("a");
    let port = pod.attach("blue", "net1");
    let ifindex = port.link().expect("the interface is there").ifindex;
    let extra = netdev::Address::new([172, 16, 0, 1].into(), 24);
    let mut netlink = pod.netlink();
    netlink
        .add_address(ifindex, extra)
        .expect("another address");
    let mut result = port.result.clone();
    result["routes"] = json!([{"dst": "172.17.0.0/16"}]);
    let added = json!({"interface": 0, "address": "172.16.0.1/24"});
    let ips = result["ips"].as_array_mut();
    ips.expect("a list of addresses").push(added);
    pod.check("blue", "net1", &result).silent();
    pod.detach("blue", "net1");
    proof::of!("CNI-CHK-01");
}

/// CNI-CHK-01.
#[test]
fn check_missing_iface() {
    let node = testbed::node!();
    let pod = node.pod("a");
    let port = pod.attach("blue", "net1");
    let removed = pod.netlink().delete_by_name("net1");
    assert!(removed.expect("links can be removed"));
    let failure = pod.check("blue", "net1", &port.result).fails_with(150);
    failure.names(&["net1"]);
    pod.del("blue", "net1").silent();
    node.assert_empty();
    proof::of!("CNI-CHK-01");
}

/// CNI-CHK-01: IPv6 addresses go when an interface goes down.
#[test]
fn check_missing_ip() {
    let node = testbed::node!();
    let pod = node.pod("a");
    let port = pod.attach("blue", "net1");
    bounce(&pod, &port);
    let failure = pod.check("blue", "net1", &port.result).fails_with(150);
    failure.names(&[&port.v6().to_string()]);
    pod.detach("blue", "net1");
    proof::of!("CNI-CHK-01");
}

/// CNI-CHK-01: CHECK misses the routes of an interface that went down.
///
/// Its IPv4 address stays.
#[test]
fn check_missing_route() {
    let net = Network::l3("v4", &["10.4.0.0/24"]);
    let node = testbed::node!(Setup::empty().network(&net));
    let pod = node.pod("a");
    let port = pod.attach("v4", "net1");
    bounce(&pod, &port);
    let kept = port
        .addresses()
        .iter()
        .any(|address| address.ip == port.v4());
    assert!(kept, "only the route is to be missing");
    let failure = pod.check("v4", "net1", &port.result).fails_with(150);
    failure.names(&["route"]);
    pod.detach("v4", "net1");
    proof::of!("CNI-CHK-01");
}

/// CNI-CHK-01: an interface that is down carries nothing.
#[test]
fn check_interface_down() {
    let node = testbed::node!();
    let pod = node.pod("a");
    let port = pod.attach("blue", "net1");
    let ifindex = port.link().expect("the interface is there").ifindex;
    let mut netlink = pod.netlink();
    let down = netlink.reconfigure(ifindex, &LinkChange::updown(false));
    down.expect("the interface goes down");
    pod.check("blue", "net1", &port.result).fails_with(150);
    pod.detach("blue", "net1");
    proof::of!("CNI-CHK-01");
}

/// CNI-CHK-02, CNI-CHK-05: a missing program is there again before the answer.
#[test]
fn check_missing_bpf() {
    let node = testbed::node!();
    let (pod, peer) = (node.pod("a"), node.pod("b"));
    let (port, other) = (pod.attach("blue", "net1"), peer.attach("blue", "net1"));
    if testbed::skip::without_tcx(testbed::test_name!()) {
        pod.detach("blue", "net1");
        peer.detach("blue", "net1");
        return;
    }
    let pin = node.wait_tcx(&port);
    fs::remove_file(pin).expect("the link can be unpinned");
    pod.check("blue", "net1", &port.result).silent();
    // The next packet shows that there is a program: without one the node's own stack has it.
    traffic::assert_reaches(&port, &other);
    pod.detach("blue", "net1");
    peer.detach("blue", "net1");
    node.assert_empty();
    proof::of!("CNI-CHK-02", "CNI-CHK-05");
}

/// CNI-CHK-02, CNI-CHK-05: lost entries are there again before the answer.
#[test]
fn check_missing_table_entries() {
    let node = testbed::node!();
    let (pod, peer) = (node.pod("a"), node.pod("b"));
    let (port, other) = (pod.attach("blue", "net1"), peer.attach("blue", "net1"));
    pins::remove::<12, 24>(&node, "FDB", pins::station(1001, port.mac));
    pins::remove::<20, 24>(&node, "ENDPOINTS", pins::endpoint(1001, port.v4().into()));
    pins::remove::<4, 72>(&node, "PORTS", port.host_ifindex().to_ne_bytes());
    pod.check("blue", "net1", &port.result).silent();
    traffic::assert_reaches(&port, &other);
    traffic::assert_reaches(&other, &port);
    pod.detach("blue", "net1");
    peer.detach("blue", "net1");
    node.assert_empty();
    proof::of!("CNI-CHK-02", "CNI-CHK-05");
}

/// CNI-CHK-01: without prevResult there is nothing to compare with.
#[test]
fn check_no_prevresult() {
    let node = testbed::node!();
    let pod = node.pod("a");
    pod.attach("blue", "net1");
    let call = pod.call("CHECK", "net1").conf(&node.conf("blue"));
    call.run().fails_with(7).names(&["prevResult"]);
    pod.detach("blue", "net1");
    proof::of!("CNI-CHK-01");
}

/// CNI-ERR-08.
#[test]
fn check_lt_040_code1() {
    let node = testbed::node!();
    let pod = node.pod("a");
    let port = pod.attach("blue", "net1");
    for version in ["0.1.0", "0.2.0", "0.3.0", "0.3.1"] {
        let mut conf = node.conf("blue");
        conf["cniVersion"] = version.into();
        conf["prevResult"] = port.result.clone();
        pod.call("CHECK", "net1").conf(&conf).run().fails_with(1);
    }
    pod.detach("blue", "net1");
    proof::of!("CNI-ERR-08");
}

/// An unknown container is code 3.
#[test]
fn check_of_an_unknown_container_is_code_3() {
    let node = testbed::node!();
    let (pod, other) = (node.pod("a"), node.pod("b"));
    let port = pod.attach("blue", "net1");
    other.check("blue", "net1", &port.result).fails_with(3);
    pod.detach("blue", "net1");
    pod.check("blue", "net1", &port.result).fails_with(3);
}

/// CNI-CHK-01: the runtime remembers other addresses than the interface has.
#[test]
fn check_against_a_foreign_result() {
    let node = testbed::node!();
    let (pod, other) = (node.pod("a"), node.pod("b"));
    pod.attach("blue", "net1");
    let foreign = other.attach("blue", "net1");
    pod.check("blue", "net1", &foreign.result).fails_with(150);
    pod.detach("blue", "net1");
    other.detach("blue", "net1");
    proof::of!("CNI-CHK-01");
}

/// CNI-CHK-02: the host end vanished behind the agent's back.
#[test]
fn check_missing_host_end() {
    let node = testbed::node!();
    let pod = node.pod("a");
    let port = pod.attach("blue", "net1");
    let host = port.host_ifindex();
    let mut netlink = testbed::host::connection(node.netns());
    assert!(netlink.delete(host).expect("links can be removed"));
    pod.check("blue", "net1", &port.result).fails_with(150);
    pod.del("blue", "net1").silent();
    node.assert_empty();
    proof::of!("CNI-CHK-02");
}

fn bounce(pod: &testbed::Pod<'_>, port: &testbed::Port) {
    let ifindex = port.link().expect("the interface is there").ifindex;
    let mut netlink = pod.netlink();
    for up in [false, true] {
        let change = LinkChange::updown(up);
        netlink.reconfigure(ifindex, &change).expect("down and up");
    }
}
