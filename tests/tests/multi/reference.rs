//! Test the reference plugins as makers of a pod's networks.
//!
//! They leave something in the kernel and on the disk, and take it away again.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use testbed::host::connection;
use testbed::plugins::Plugins;
use testbed::{Node, Setup};

use super::scene::{K8sPod, definition, held, interfaces, ips, setup};

const PLUGINS: [&str; 2] = ["/usr/lib/cni", "/opt/cni/bin"];
const BRIDGE: &str = "br-others";

/// Says so when these plugins are not there.
fn without(test: &str, wanted: &[&str]) -> bool {
    let has = |dir: &str| {
        wanted
            .iter()
            .all(|name| Path::new(dir).join(name).is_file())
    };
    let missing = !PLUGINS.into_iter().any(has);
    if missing {
        testbed::skip::skip(
            test,
            &format!("needs the reference plugins {}", wanted.join(", ")),
        );
    }
    missing || testbed::skip::without_root(test)
}

/// A bridge whose plugin keeps its leases below `dir`.
fn bridge(dir: &Path, more: &Value) -> Value {
    let mut conf = json!({
        "cniVersion": "1.0.0", "name": "others", "type": "bridge", "bridge": BRIDGE,
        "ipam": {"type": "host-local", "dataDir": dir, "ranges": [[{"subnet": "10.77.0.0/24"}]]},
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        conf[key] = value.clone();
    }
    conf
}

/// Leases that are held.
fn leases(dir: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(dir.join("others")) else {
        return Vec::new();
    };
    let names = entries.flatten().map(|entry| entry.file_name());
    let mut names: Vec<String> = names
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    names.retain(|name| name.starts_with("10."));
    names.sort();
    names
}

/// The bridge is the plugin's, and stays when its last port goes.
fn remove_bridge(node: &Node) {
    let removed = connection(node.netns()).delete_by_name(BRIDGE);
    assert!(
        removed.expect("links can be removed"),
        "the plugin made no bridge"
    );
}

fn with(conf: &Value) -> Setup {
    setup().file("others.json", &definition("others", conf))
}

fn data(plugins: &Plugins) -> PathBuf {
    plugins.dir().join("leases")
}

/// NPWG-4.1.2.1.3, NPWG-4.1.2.1.4, NPWG-4.2: a pod is twice on one bridge.
///
/// It asks for an address on one of them.
#[test]
fn npwg_4_2_bridge_and_host_local_are_attached_twice_and_released() {
    if without(testbed::test_name!(), &["bridge", "host-local"]) {
        return;
    }
    let plugins = Plugins::new(&[]);
    // With an address of its own the bridge keeps its MAC address, which its plugin checks.
    let conf = bridge(
        &data(&plugins),
        &json!({"isGateway": true, "capabilities": {"ips": true, "mac": true}}),
    );
    let node = Node::start(with(&conf));
    let pod = K8sPod::new(&node, "a").npwg(&json!([
        {"name": "others"},
        {"name": "others", "interface": "data0", "ips": ["10.77.0.99"], "mac": "02:00:00:00:00:63"},
    ]));
    let result = pod.attach();
    assert_eq!(pod.links(), ["data0", "eth0", "net1"]);
    assert_eq!(interfaces(&result), ["eth0"]);
    assert_eq!(leases(&data(&plugins)), ["10.77.0.2", "10.77.0.99"]);
    let data0 = pod
        .pod
        .netlink()
        .by_name("data0")
        .expect("links can be read");
    assert_eq!(data0.and_then(|link| link.mac), Some([2, 0, 0, 0, 0, 0x63]));
    pod.check(&result).silent();
    node.restart();
    pod.check(&result).silent();
    // CNI-CHK-06: damage to what others have made is found.
    assert!(
        pod.pod
            .netlink()
            .delete_by_name("net1")
            .expect("links can be removed")
    );
    pod.check(&result)
        .fails_with(130)
        .names(&["attachment 2", "bridge"]);
    pod.detach();
    assert_eq!(leases(&data(&plugins)), Vec::<String>::new());
    remove_bridge(&node);
    node.assert_empty();
    proof::of!("NPWG-4.1.2.1.3", "NPWG-4.1.2.1.4", "NPWG-4.2", "CNI-CHK-06");
}

/// NPWG-7.2a: a failure later in the list frees the lease and the interface.
#[test]
fn npwg_7_2a_a_failure_after_a_bridge_leaves_no_lease() {
    if without(testbed::test_name!(), &["bridge", "host-local"]) {
        return;
    }
    let plugins = Plugins::new(&[]);
    let node = Node::start(with(&bridge(
        &data(&plugins),
        &json!({"capabilities": {"ips": true}}),
    )));
    let pod = K8sPod::new(&node, "a")
        .npwg(&json!([{"name": "others"}, {"name": "others", "ips": ["192.0.2.1"]}]));
    pod.add()
        .fails_with(130)
        .names(&["attachment 3", "bridge", "192.0.2.1"]);
    assert_eq!(pod.links(), Vec::<String>::new());
    assert_eq!(leases(&data(&plugins)), Vec::<String>::new());
    remove_bridge(&node);
    node.assert_empty();
    proof::of!("NPWG-7.2a");
}

/// NPWG-6.2, NPWG-4.1.2.1.9, PAIN-DGW-1: a default network gives its route up.
///
/// It is another plugin's. The default route goes to the network that the pod wants to have it, and to no
/// other.
#[test]
fn npwg_4_1_2_1_9_a_delegated_default_network_gives_its_default_route_up() {
    if without(testbed::test_name!(), &["bridge", "host-local"]) {
        return;
    }
    let plugins = Plugins::new(&[]);
    let conf = bridge(&data(&plugins), &json!({"isDefaultGateway": true}));
    let file = plugins.conf_dir().join("10-others.conf");
    fs::write(file, conf.to_string()).expect("a configuration");
    let gate = testbed::Network::l2("gate", &["10.30.0.0/24"]).gateway("First");
    let flat = testbed::Network::l2("flat", &["10.50.0.0/24"]);
    let dir = plugins.conf_dir();
    let node = Node::start(
        Setup::empty()
            .network(&gate)
            .network(&flat)
            .file("gate-nad.json", &definition("gate", &Value::Null))
            .file("flat-nad.json", &definition("flat", &Value::Null))
            .args(&["--default-network", "delegate", "--cni-conf-dir"])
            .args(&[dir.to_str().expect("a path in UTF-8")]),
    );
    for (name, list, default) in [
        ("a", json!("gate"), "eth0 10.77.0.1"),
        (
            "b",
            json!([{"name": "gate", "default-route": ["10.30.0.1"]}]),
            "net1 10.30.0.1",
        ),
        (
            "c",
            json!([{"name": "gate", "default-route": []}]),
            "net1 10.30.0.1",
        ),
        (
            "d",
            json!([{"name": "flat", "default-route": []}]),
            "eth0 10.77.0.1",
        ),
    ] {
        let pod = K8sPod::new(&node, name).npwg(&list);
        let result = pod.attach();
        assert_eq!(pod.default_routes(true), [default], "{name}");
        // NPWG-5-W3
        let told = result["routes"].to_string().contains("0.0.0.0/0");
        assert_eq!(told, default.starts_with("eth0"), "{name}: {result}");
        assert!(ips(&result)[0].starts_with("10.77.0."), "{result}");
        pod.detach();
    }
    assert_eq!(leases(&data(&plugins)), Vec::<String>::new());
    remove_bridge(&node);
    node.assert_empty();
    proof::of!("NPWG-6.2", "NPWG-4.1.2.1.9", "PAIN-DGW-1");
}

/// NPWG-4.1.2.1.9: the other way round: a secondary network of another plugin.
#[test]
fn npwg_4_1_2_1_9_a_delegated_secondary_network_takes_the_default_route() {
    if without(testbed::test_name!(), &["bridge", "host-local"]) {
        return;
    }
    let plugins = Plugins::new(&[]);
    let own = bridge(&data(&plugins), &json!({"isDefaultGateway": true}));
    let none = bridge(&data(&plugins), &json!({"isGateway": true}));
    let node = Node::start(
        Setup::default()
            .args(&["--default-network", "podnetwork:green"])
            .file("own.json", &definition("own", &own))
            .file("none.json", &definition("none", &none)),
    );
    for (name, list, default) in [
        // Its own default route goes when nobody asks for it.
        ("a", json!([{"name": "own"}]), vec!["eth0 10.20.0.1"]),
        (
            "b",
            json!([{"name": "own", "default-route": []}]),
            vec!["net1 10.77.0.1"],
        ),
        // It has none to give.
        (
            "c",
            json!([{"name": "none", "default-route": []}]),
            vec!["eth0 10.20.0.1"],
        ),
        (
            "d",
            json!([{"name": "own", "default-route": ["10.77.0.8", "10.77.0.9"]}]),
            vec!["net1 10.77.0.8", "net1 10.77.0.9"],
        ),
    ] {
        let pod = K8sPod::new(&node, name).npwg(&list);
        let result = pod.attach();
        assert_eq!(pod.default_routes(true), default, "{name}");
        assert_eq!(pod.default_routes(false), ["eth0 fe80::1"], "{name}");
        pod.check(&result).silent();
        node.restart();
        pod.check(&result).silent();
        pod.detach();
    }
    remove_bridge(&node);
    node.assert_empty();
    proof::of!("NPWG-4.1.2.1.9");
}

/// CNI SPEC §3: a chain, each plugin with the result of the one before.
#[test]
fn cni_3_a_chain_of_bridge_and_tuning_is_made_and_unmade() {
    if without(testbed::test_name!(), &["bridge", "host-local", "tuning"]) {
        return;
    }
    let plugins = Plugins::new(&[]);
    let chain = json!({"cniVersion": "0.4.0", "name": "others", "plugins": [
        bridge(&data(&plugins), &json!({})),
        {"type": "tuning", "mtu": 1300, "sysctl": {"net.ipv4.conf.lan0.log_martians": "1"}},
    ]});
    let node = Node::start(with(&chain));
    let pod = K8sPod::new(&node, "a").npwg(&json!("others@lan0"));
    let result = pod.attach();
    let lan0 = pod
        .pod
        .netlink()
        .by_name("lan0")
        .expect("links can be read");
    assert_eq!(lan0.map(|link| link.mtu), Some(1300));
    pod.check(&result).silent();
    assert_eq!(held(&node), ["a/eth0 blue", "a/lan0 others"]);
    pod.detach();
    assert_eq!(leases(&data(&plugins)), Vec::<String>::new());
    remove_bridge(&node);
    node.assert_empty();
}

/// NPWG-4.1.2.1.7: host ports on a network whose plugins do not map them.
#[test]
fn npwg_4_1_2_1_7_host_ports_need_a_plugin_that_maps_them() {
    if without(testbed::test_name!(), &["bridge", "host-local"]) {
        return;
    }
    let plugins = Plugins::new(&[]);
    let node = Node::start(with(&bridge(&data(&plugins), &json!({}))));
    let mapping = json!([{"hostPort": 8080, "containerPort": 80}]);
    let pod = K8sPod::new(&node, "a").npwg(&json!([{"name": "others", "portMappings": mapping}]));
    pod.add()
        .fails_with(2)
        .names(&["attachment 2", "portMappings", "others"]);
    assert_eq!(pod.links(), Vec::<String>::new());
    assert_eq!(leases(&data(&plugins)), Vec::<String>::new());
    node.assert_empty();
    proof::of!("NPWG-4.1.2.1.7");
}
