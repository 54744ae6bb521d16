//! CNI SPEC section 4, DEL.

use std::fs;

use serde_json::json;
use testbed::traffic;

/// CNI-DEL-02.
#[test]
fn del_twice() {
    let node = testbed::node!();
    let pod = node.pod("a");
    pod.attach("blue", "net1");
    for _ in 0..3 {
        pod.del("blue", "net1").silent();
    }
    assert!(pod.links().is_empty());
    node.assert_empty();
    proof::of!("CNI-DEL-02");
}

/// CNI-DEL-02.
#[test]
fn del_before_add() {
    let node = testbed::node!();
    let pod = node.pod("a");
    pod.del("blue", "net1").silent();
    pod.attach("blue", "net1");
    pod.detach("blue", "net1");
    node.assert_empty();
    proof::of!("CNI-DEL-02");
}

/// CNI-DEL-01, MEAS-12: the namespace is gone, and with it the interface.
#[test]
fn del_no_netns() {
    let node = testbed::node!();
    let mut pod = node.pod("a");
    let ip = pod.attach("blue", "net1").v4();
    let path = pod.path().to_owned();
    pod.remove_netns();
    let call = pod.call("DEL", "net1").conf(&node.conf("blue"));
    call.netns(&path).run().silent();
    node.assert_empty();
    let next = node.pod("b");
    let mut conf = node.conf("blue");
    conf["runtimeConfig"] = json!({"ips": [format!("{ip}/24")]});
    assert_eq!(
        next.attach_conf(&conf, "net1").v4(),
        ip,
        "the address is free"
    );
    next.detach("blue", "net1");
    proof::of!("CNI-DEL-01");
}

/// CNI-DEL-01, RT-CD-08, MEAS-04: the second DEL every pod sees.
#[test]
fn del_empty_netns() {
    let node = testbed::node!();
    let mut pod = node.pod("a");
    pod.attach("blue", "net1");
    pod.remove_netns();
    pod.del("blue", "net1").silent();
    pod.del("blue", "net1").silent();
    node.assert_empty();
    proof::of!("CNI-DEL-01", "RT-CD-08");
}

/// CNI-DEL-01: an empty `CNI_NETNS` removes the interface from a live namespace.
#[test]
fn del_empty_netns_of_a_live_pod() {
    let node = testbed::node!();
    let pod = node.pod("a");
    pod.attach("blue", "net1");
    let call = pod.call("DEL", "net1").conf(&node.conf("blue"));
    call.env("CNI_NETNS", "").run().silent();
    assert!(pod.links().is_empty());
    node.assert_empty();
    proof::of!("CNI-DEL-01");
}

/// CNI-DEL-01: prevResult absent, empty, null, or of another version.
#[test]
fn del_no_prevresult() {
    let node = testbed::node!();
    let pod = node.pod("a");
    let old = json!({"cniVersion": "0.2.0", "ip4": {"ip": "10.10.0.9/24"}});
    for previous in [None, Some(json!({})), Some(json!(null)), Some(old)] {
        pod.attach("blue", "net1");
        let mut conf = node.conf("blue");
        if let Some(previous) = previous {
            conf["prevResult"] = previous;
        }
        pod.call("DEL", "net1").conf(&conf).run().silent();
        assert!(pod.links().is_empty());
    }
    node.assert_empty();
    proof::of!("CNI-DEL-01");
}

/// CNI-DEL-01: the interface is gone already; the lease still goes.
#[test]
fn del_without_the_interface() {
    let node = testbed::node!();
    let pod = node.pod("a");
    pod.attach("blue", "net1");
    let removed = pod.netlink().delete_by_name("net1");
    assert!(removed.expect("links can be removed"));
    pod.del("blue", "net1").silent();
    node.assert_empty();
    proof::of!("CNI-DEL-01");
}

/// CNI-DEL-01, RT-CD-07: DEL works when the configuration or the network is gone.
#[test]
fn del_with_another_configuration() {
    let node = testbed::node!();
    let pod = node.pod("a");
    pod.attach("blue", "net1");
    let mut conf = node.conf("blue");
    conf["podNetwork"] = "never-existed".into();
    conf["cniVersion"] = "0.3.1".into();
    pod.call("DEL", "net1").conf(&conf).run().silent();
    assert!(pod.links().is_empty());
    node.assert_empty();
    proof::of!("CNI-DEL-01", "RT-CD-07");
}

/// CNI-DEL-01: the network's manifest is gone.
#[test]
fn del_after_the_network_was_removed() {
    let node = testbed::node!();
    let pod = node.pod("a");
    pod.attach("blue", "net1");
    node.remove_manifest("blue.yaml");
    testbed::wait::until_true("the agent to notice", || pod_refused(&node));
    pod.detach("blue", "net1");
    node.assert_empty();
    proof::of!("CNI-DEL-01");
}

fn pod_refused(node: &testbed::Node) -> bool {
    let networks = node.get("networks");
    let blue = networks.iter().find(|network| network["name"] == "blue");
    blue.is_none_or(|blue| blue["ready"] == false)
}

/// CNI-DEL-01: DEL succeeds without the agent's state, and a start cleans the rest.
#[test]
fn del_missing_state() {
    let node = testbed::node!();
    let pod = node.pod("a");
    pod.attach("blue", "net1");
    node.kill_9();
    for records in ["state", "run/records"] {
        fs::remove_dir_all(node.path(records)).expect("the records can be removed");
    }
    node.start_agent();
    pod.del("blue", "net1").silent();
    assert!(pod.links().is_empty(), "an interface nobody owns is left");
    node.assert_empty();
    proof::of!("CNI-DEL-01");
}

/// CNI-DEL-04: DEL of one container, or of one of its interfaces, touches no other.
#[test]
fn del_other_container_same_pod() {
    let node = testbed::node!();
    let pod = node.pod("new");
    let port = pod.attach("blue", "net1");
    let second = pod.attach("blue", "net2");
    let old = pod.call("DEL", "net1").conf(&node.conf("blue"));
    old.container("old").run().silent();
    assert!(
        port.link().is_some(),
        "the newer sandbox lost its interface"
    );
    pod.detach("blue", "net2");
    assert!(second.link().is_none());
    pod.check("blue", "net1", &port.result).silent();
    let peer = node.pod("peer");
    let other = peer.attach("blue", "net1");
    traffic::assert_reaches(&port, &other);
    peer.detach("blue", "net1");
    pod.detach("blue", "net1");
    proof::of!("CNI-DEL-04");
}

/// CNI-DEL-02: after a failed ADD everything it took is free again.
#[test]
fn del_after_a_failed_add() {
    let node = testbed::node!();
    let pod = node.pod("a");
    let mut conf = node.conf("blue");
    conf["runtimeConfig"] = json!({"ips": ["10.10.0.77/24"], "mac": "02:00:00:00:00:77"});
    let spec = netdev::VethSpec::new("net1", "other");
    pod.netlink().create_veth(&spec).expect("a link in the way");
    pod.add_conf(&conf, "net1").error();
    pod.call("DEL", "net1").conf(&conf).run().silent();
    let removed = pod.netlink().delete_by_name("net1");
    assert!(removed.expect("links can be removed"));
    let port = pod.attach_conf(&conf, "net1");
    assert_eq!(port.v4().to_string(), "10.10.0.77");
    pod.detach("blue", "net1");
    node.assert_empty();
    proof::of!("CNI-DEL-02");
}

/// CNI-DEL-01: the agent was restarted since ADD.
#[test]
fn del_after_a_restart() {
    let node = testbed::node!();
    let pod = node.pod("a");
    pod.attach("blue", "net1");
    node.restart();
    pod.detach("blue", "net1");
    node.assert_empty();
    proof::of!("CNI-DEL-01");
}
