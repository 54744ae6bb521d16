//! Test podnet behind a plugin that makes the pod's interface.
//!
//! `CNI_IFNAME` is theirs already.

use std::path::Path;

use serde_json::{Value, json};
use testbed::{Node, Pod};

use super::libcni::{Libcni, Tools};

/// Returns the configuration of a reference plugin in front.
fn main_plugin(kind: &str, node: &Node) -> Value {
    let data: &Path = &node.path("host-local");
    json!({
        "type": kind,
        "bridge": "others",
        "ipam": {"type": "host-local", "subnet": "10.99.0.0/24", "dataDir": data},
    })
}

/// The interface as the other plugin made it.
fn is_as_it_was(pod: &Pod<'_>) -> (u32, Option<[u8; 6]>, bool, Vec<String>) {
    let mut here = pod.netlink();
    let link = here.by_name("net1").expect("links can be read");
    let link = link.expect("the other plugin's interface is there");
    let addresses = here.addresses(link.ifindex);
    let addresses = addresses.expect("addresses can be read").into_iter();
    let mut addresses: Vec<_> = addresses
        .filter(|address| address.ip.is_ipv4())
        .map(|address| format!("{}/{}", address.ip, address.prefix_len))
        .collect();
    addresses.sort();
    (link.ifindex, link.mac, link.up, addresses)
}

/// The call libcni makes of podnet by itself, as the second of the list.
fn del_of_podnet_alone(libcni: &Libcni<'_>, node: &Node, pod: &Pod<'_>, previous: &Value) {
    let mut conf = libcni.podnet("blue");
    conf["cniVersion"] = "1.0.0".into();
    conf["name"] = "others".into();
    conf["prevResult"] = previous.clone();
    pod.call("DEL", "net1").conf(&conf).run().silent();
    node.assert_empty();
}

fn stays(kind: &str, test: &str) {
    let Some(tools) = Tools::find(test, &[kind, "host-local"]) else {
        return;
    };
    if testbed::skip::without_root(test) {
        return;
    }
    let node = Node::start(testbed::Setup::default());
    let libcni = tools.on(&node);
    let first = main_plugin(kind, &node);
    let pod = node.pod("a");
    libcni.chain("others", std::slice::from_ref(&first));
    let added = libcni.run("add", "others", &pod, "net1").result();
    let before = is_as_it_was(&pod);
    assert_eq!(before.3, ["10.99.0.2/24"]);

    // podnet directly, with the interface there: refused, and the interface is not touched.
    let mut conf = libcni.podnet("blue");
    conf["cniVersion"] = "1.0.0".into();
    conf["name"] = "others".into();
    conf["prevResult"] = added.clone();
    let failure = pod.add_conf(&conf, "net1").fails_with(111);
    failure.names(&["net1"]);
    assert_eq!(is_as_it_was(&pod), before);
    node.assert_empty();
    del_of_podnet_alone(&libcni, &node, &pod, &added);
    assert_eq!(is_as_it_was(&pod), before);
    libcni.run("del", "others", &pod, "net1").succeeds();
    assert_eq!(pod.links(), Vec::<String>::new());

    // The same as one list.
    libcni.chain("others", &[first, libcni.podnet("blue")]);
    let ended = libcni.run("add", "others", &pod, "net1");
    ended.fails_with(&["podnet", "net1"]);
    let (_, _, up, addresses) = is_as_it_was(&pod);
    assert!(up);
    assert_eq!(addresses, ["10.99.0.3/24"]);
    node.assert_empty();
    for _ in 0..2 {
        libcni.run("del", "others", &pod, "net1").succeeds();
        assert_eq!(pod.links(), Vec::<String>::new());
    }
    // The reference plugin leaves its bridge.
    let mut here = testbed::host::connection(node.netns());
    here.delete_by_name("others").expect("links can be deleted");
}

/// CNI-ADD-01 behind `ptp`.
#[test]
fn the_interface_of_ptp_stays() {
    stays("ptp", testbed::test_name!());
    proof::of!("CNI-ADD-01");
}

/// CNI-ADD-01 behind `bridge`.
#[test]
fn the_interface_of_bridge_stays() {
    stays("bridge", testbed::test_name!());
    proof::of!("CNI-ADD-01");
}

/// A second interface next to another plugin's is what podnet is for.
#[test]
fn podnet_adds_an_interface_beside_the_one_of_ptp() {
    let Some(tools) = Tools::find(testbed::test_name!(), &["ptp", "host-local"]) else {
        return;
    };
    let node = testbed::node!();
    let libcni = tools.on(&node);
    libcni.chain("others", &[main_plugin("ptp", &node)]);
    libcni.alone("blue");
    let (pod, other) = (node.pod("a"), node.pod("b"));
    libcni.run("add", "others", &pod, "eth0").result();
    let port = libcni.attach("blue", &pod, "net1");
    let peer = other.attach("blue", "net1");
    testbed::traffic::assert_reaches(&port, &peer);
    libcni.run("check", "others", &pod, "eth0").succeeds();
    libcni.run("check", "blue", &pod, "net1").silent();
    libcni.run("del", "blue", &pod, "net1").silent();
    assert_eq!(pod.links(), ["eth0"]);
    libcni.run("check", "others", &pod, "eth0").succeeds();
    libcni.run("del", "others", &pod, "eth0").succeeds();
    other.detach("blue", "net1");
    node.assert_empty();
}
