//! CNI SPEC section 4, ADD.

use std::net::IpAddr;

use netdev::VethSpec;
use serde_json::{Value, json};
use testbed::traffic;

/// CNI-ADD-01, CNI-ADD-09: the interface is there, up, with what the result says.
#[test]
fn add_creates_iface() {
    let node = testbed::node!();
    let pod = node.pod("a");
    let port = pod.attach("blue", "net1");
    let link = port.link().expect("the interface is there");
    assert!(link.up, "{link:?}");
    assert_eq!(link.mac, Some(port.mac.0));
    assert_eq!(link.mtu, 1500);
    assert_eq!(port.ips.len(), 2, "dual stack: {:?}", port.ips);
    let found: Vec<(IpAddr, u8)> = port
        .addresses()
        .iter()
        .map(|address| (address.ip, address.prefix_len))
        .collect();
    for ip in &port.ips {
        assert!(found.contains(ip), "{ip:?} is not among {found:?}");
    }
    assert_eq!(pod.links(), ["net1"]);
    pod.detach("blue", "net1");
    node.assert_empty();
    proof::of!("CNI-ADD-01", "CNI-ADD-09");
}

/// CNI-CHK-03: no address is tentative when ADD returns, and all can be used.
#[test]
fn addresses_are_usable_when_add_returns() {
    let node = testbed::node!();
    let (a, b) = (node.pod("a"), node.pod("b"));
    let (pa, pb) = (a.attach("blue", "net1"), b.attach("blue", "net1"));
    for address in pa.addresses() {
        assert!(!address.tentative && !address.dad_failed, "{address:?}");
    }
    traffic::assert_reaches(&pa, &pb);
    a.detach("blue", "net1");
    b.detach("blue", "net1");
    proof::of!("CNI-CHK-03");
}

/// CNI-ADD-01: an existing interface of that name is an error and stays as it is.
#[test]
fn add_iface_exists_err() {
    let node = testbed::node!();
    let pod = node.pod("a");
    let mut pod_links = pod.netlink();
    let mine = VethSpec::new("net1", "other");
    let pair = pod_links
        .create_veth(&mine)
        .expect("a link of the pod's own");
    let failure = pod.add("blue", "net1").fails_with(111);
    failure.names(&["net1"]);
    let mut links = pod.links();
    links.sort();
    assert_eq!(links, ["net1", "other"]);
    let kept = pod_links.by_name("net1").expect("links can be read");
    assert_eq!(kept.map(|link| link.ifindex), Some(pair.host_ifindex));
    // The DEL that follows a failed ADD must not take it either (multus#669).
    pod.del("blue", "net1").silent();
    let kept = pod_links.by_name("net1").expect("links can be read");
    assert_eq!(kept.map(|link| link.ifindex), Some(pair.host_ifindex));
    node.assert_empty();
    proof::of!("CNI-ADD-01", "PAIN-DEL-2");
}

/// CNI-ADD-04: the same call again is the same answer.
#[test]
fn the_same_add_again_answers_the_same() {
    let node = testbed::node!();
    let pod = node.pod("a");
    let first = pod.add("blue", "net1").result();
    let second = pod.add("blue", "net1").result();
    assert_eq!(first, second);
    assert_eq!(node.attachments().len(), 1);
    pod.detach("blue", "net1");
    node.assert_empty();
    proof::of!("CNI-ADD-04");
}

/// CNI-ADD-04: the same name with another configuration or namespace is an error.
///
/// The existing attachment stays.
#[test]
fn another_add_for_the_same_name_is_refused() {
    let node = testbed::node!();
    let (pod, other) = (node.pod("a"), node.pod("b"));
    let port = pod.attach("blue", "net1");
    pod.add("red", "net1").fails_with(105).names(&["net1"]);
    let elsewhere = pod.call("ADD", "net1").conf(&node.conf("blue"));
    elsewhere.netns(other.path()).run().fails_with(105);
    assert!(port.link().is_some());
    assert!(other.links().is_empty());
    pod.check("blue", "net1", &port.result).silent();
    pod.detach("blue", "net1");
    node.assert_empty();
    proof::of!("CNI-ADD-04");
}

/// CNI-ADD-04 after a restart of the agent: the answer is the same as before.
#[test]
fn the_same_add_again_answers_the_same_after_a_restart() {
    let node = testbed::node!();
    let pod = node.pod("a");
    let first = pod.add("blue", "net1").result();
    node.restart();
    assert_eq!(pod.add("blue", "net1").result(), first);
    pod.detach("blue", "net1");
    node.assert_empty();
    proof::of!("CNI-ADD-04");
}

/// CNI-ADD-03: as a later chain member podnet adds to the previous result.
///
/// Indexes still point at the interfaces they belong to.
#[test]
fn add_prevresult_passthrough() {
    let node = testbed::node!();
    let pod = node.pod("a");
    let path = pod.path().to_str().expect("a path in UTF-8");
    let mut conf = node.conf("blue");
    conf["prevResult"] = json!({
        "cniVersion": "1.1.0",
        "interfaces": [
            {"name": "cni0", "mac": "02:00:00:00:00:01"},
            {"name": "eth0", "mac": "02:00:00:00:00:02", "sandbox": path},
        ],
        "ips": [{"interface": 1, "address": "10.88.0.2/16", "gateway": "10.88.0.1"}],
        "routes": [{"dst": "0.0.0.0/0", "gw": "10.88.0.1"}],
        "dns": {"nameservers": ["10.96.0.10"]},
    });
    let result = pod.add_conf(&conf, "net1").result();
    let list = |key: &str| result[key].as_array().cloned().unwrap_or_default();
    let (interfaces, ips) = (list("interfaces"), list("ips"));
    for name in ["cni0", "eth0", "net1"] {
        assert!(interfaces.iter().any(|i| i["name"] == name), "{result}");
    }
    let owner = |ip: &Value| {
        let index = ip["interface"]
            .as_u64()
            .and_then(|i| usize::try_from(i).ok());
        let interface = index.and_then(|index| interfaces.get(index));
        interface.map(|interface| interface["name"].clone())
    };
    let kept = ips.iter().find(|ip| ip["address"] == "10.88.0.2/16");
    assert_eq!(kept.and_then(owner), Some("eth0".into()), "{result}");
    let ours = ips.iter().filter(|ip| owner(ip) == Some("net1".into()));
    assert_eq!(ours.count(), 2, "{result}");
    assert!(
        list("routes")
            .iter()
            .any(|route| route["gw"] == "10.88.0.1")
    );
    assert_eq!(result["dns"]["nameservers"], json!(["10.96.0.10"]));
    pod.call("DEL", "net1").conf(&conf).run().silent();
    node.assert_empty();
    proof::of!("CNI-ADD-03");
}

/// CNI-ADD-07: the namespace is the one at the path, whatever the path looks like.
///
/// The result repeats the path as it was given.
#[test]
fn a_netns_path_is_repeated_as_given() {
    let node = testbed::node!();
    let pod = node.pod("a");
    let link = node.path("link");
    std::os::unix::fs::symlink(pod.path(), &link).expect("a symbolic link");
    let call = pod
        .call("ADD", "net1")
        .conf(&node.conf("blue"))
        .netns(&link);
    let result = call.run().result();
    let sandbox = result["interfaces"][0]["sandbox"].as_str();
    assert_eq!(sandbox, link.to_str());
    assert_eq!(pod.links(), ["net1"]);
    pod.detach("blue", "net1");
    proof::of!("CNI-ADD-07", "CNI-ADD-09");
}

/// A path that is no network namespace is refused before anything is made.
#[test]
fn a_path_that_is_no_netns_is_refused() {
    let node = testbed::node!();
    let pod = node.pod("a");
    let file = node.path("file");
    std::fs::write(&file, "").expect("a file");
    let conf = node.conf("blue");
    for path in [
        file.as_path(),
        "/proc/self/ns/mnt".as_ref(),
        "/nonexistent".as_ref(),
    ] {
        let failure = pod
            .call("ADD", "net1")
            .conf(&conf)
            .netns(path)
            .run()
            .error();
        assert!([4, 8].contains(&failure.code), "{failure:?}");
        failure.names(&["CNI_NETNS"]);
    }
    node.assert_empty();
}

/// One pod on several networks at once.
#[test]
fn a_pod_can_be_on_several_networks() {
    let node = testbed::node!();
    let (a, b) = (node.pod("a"), node.pod("b"));
    for (network, ifname) in [("blue", "net1"), ("green", "net2")] {
        let (pa, pb) = (a.attach(network, ifname), b.attach(network, ifname));
        traffic::assert_reaches(&pa, &pb);
    }
    let mut links = a.links();
    links.sort();
    assert_eq!(links, ["net1", "net2"]);
    a.detach("blue", "net1");
    assert_eq!(a.links(), ["net2"]);
    a.detach("green", "net2");
    b.detach("green", "net2");
    b.detach("blue", "net1");
    node.assert_empty();
}

/// One pod twice on the same network: two ports like any others.
#[test]
fn a_pod_can_be_on_one_l2_network_twice() {
    on_one_network_twice("blue");
}

/// As above on a routed network, where both interfaces have the same gateway.
#[test]
fn a_pod_can_be_on_one_l3_network_twice() {
    on_one_network_twice("green");
}

fn on_one_network_twice(network: &str) {
    let node = testbed::node!();
    let (pod, peer) = (node.pod("a"), node.pod("b"));
    let (one, two) = (pod.attach(network, "net1"), pod.attach(network, "net2"));
    assert_ne!(one.ips, two.ips);
    assert_ne!(one.mac, two.mac);
    let other = peer.attach(network, "net1");
    traffic::assert_reaches(&one, &other);
    for (port, ifname) in [(&one, "net1"), (&two, "net2")] {
        pod.check(network, ifname, &port.result).silent();
    }
    pod.detach(network, "net1");
    pod.check(network, "net2", &two.result).silent();
    pod.detach(network, "net2");
    peer.detach(network, "net1");
    node.assert_empty();
}

/// A second default route of a pod is kept or refused with a clear error.
///
/// The pod's first interface has one already. ADD then does what its result says, and never fails with
/// the error of a name that is taken.
#[test]
fn a_second_default_route_is_kept_or_refused_clearly() {
    let node = testbed::node!();
    let pod = node.pod("a");
    let mut conf = node.conf("green");
    conf["isDefaultGateway"] = true.into();
    let first = pod.attach_conf(&conf, "net1");
    let mut second = node.conf("lime");
    second["isDefaultGateway"] = true.into();
    let outcome = pod.add_conf(&second, "net2");
    if outcome.success {
        let result = outcome.result();
        pod.check("lime", "net2", &result).silent();
    } else {
        let failure = outcome.error();
        assert_ne!(failure.code, 111, "no name is taken: {failure:?}");
        failure.names(&["route"]);
    }
    // Whatever became of the second, the first is as it was.
    pod.check("green", "net1", &first.result).silent();
    pod.del("lime", "net2").silent();
    pod.check("green", "net1", &first.result).silent();
    pod.detach("green", "net1");
    node.assert_empty();
}

/// The network's MTU is the interface's, at both ends.
#[test]
fn the_mtu_is_the_networks() {
    let jumbo = testbed::Network::l2("jumbo", &["10.5.0.0/24"]).mtu(9000);
    let small = testbed::Network::l2("small", &["10.6.0.0/24"]).mtu(1280);
    let node = testbed::node!(testbed::Setup::empty().network(&jumbo).network(&small));
    let pod = node.pod("a");
    for (network, mtu) in [("jumbo", 9000), ("small", 1280)] {
        let port = pod.attach(network, "net1");
        assert_eq!(port.link().map(|link| link.mtu), Some(mtu));
        assert_eq!(port.result["interfaces"][0]["mtu"], mtu);
        let host = port.host_ifindex();
        let host = node.links().into_iter().find(|link| link.ifindex == host);
        assert_eq!(host.map(|link| link.mtu), Some(mtu));
        pod.detach(network, "net1");
    }
}
