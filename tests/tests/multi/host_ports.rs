//! Test host ports of pods whose first network the node routes for.
//!
//! `portmap` is told, and told again when they end.

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;

use netdev::Netns;
use serde_json::{Value, json};
use testbed::plugins::Plugins;
use testbed::wait::PATIENCE;
use testbed::{Network, Node, Setup};

use super::scene::{K8sPod, held};

fn setup() -> Setup {
    let white = Network::l3("white", &["10.30.0.0/24", "fd30:30::/64"]).by_node();
    Setup::empty()
        .network(&white)
        .args(&["--default-network", "podnetwork:white"])
}

fn mapped(port: u16) -> Value {
    json!([{"hostPort": port, "containerPort": 80, "protocol": "tcp"}])
}

#[test]
fn a_pod_with_a_host_port_is_told_to_portmap_as_the_plugin_before_it_would_and_taken_back() {
    let plugins = Plugins::new(&["portmap"]);
    let node = testbed::node!(setup());
    let pod = K8sPod::new(&node, "a")
        .path(&plugins.path())
        .runtime("portMappings", &mapped(8080));
    let result = pod.attach();
    assert_eq!(plugins.calls(), ["portmap ADD eth0"]);
    let told = plugins.stdin("portmap", "ADD");
    assert_eq!(told["snat"], true);
    assert_eq!(told["name"], "podnet");
    assert_eq!(told["runtimeConfig"]["portMappings"], mapped(8080));
    assert_eq!(told["cniVersion"], "1.0.0");
    let previous = &told["prevResult"];
    assert_eq!(
        previous["ips"], result["ips"],
        "what the runtime is told too"
    );
    assert_eq!(previous["interfaces"][0]["name"], "eth0");
    // The same request again has the same answer, and needs nobody.
    assert_eq!(pod.attach(), result);
    pod.check(&result).silent();
    assert_eq!(plugins.calls(), ["portmap ADD eth0", "portmap CHECK eth0"]);
    // What is undone is in the record, whatever the agent.
    node.restart();
    plugins.forget_calls();
    pod.detach();
    assert_eq!(plugins.calls(), ["portmap DEL eth0"]);
    let told = plugins.stdin("portmap", "DEL");
    assert_eq!(told["runtimeConfig"]["portMappings"], mapped(8080));
    node.assert_empty();
}

#[test]
fn a_pod_without_a_host_port_needs_no_portmap() {
    let plugins = Plugins::new(&["portmap"]);
    let node = testbed::node!(setup());
    let pod = K8sPod::new(&node, "a")
        .path(&plugins.path())
        .runtime("portMappings", &json!([]));
    pod.attach();
    pod.detach();
    assert_eq!(plugins.calls(), Vec::<String>::new());
    node.assert_empty();
}

#[test]
fn without_portmap_on_the_node_a_host_port_fails_the_pod_and_names_plugin_and_directory() {
    let plugins = Plugins::new(&[]);
    let node = testbed::node!(setup());
    let nowhere = plugins.dir().join("bin");
    let nowhere = nowhere.to_str().expect("a path in UTF-8");
    let pod = K8sPod::new(&node, "a")
        .path(nowhere)
        .runtime("portMappings", &mapped(8080));
    pod.add()
        .fails_with(130)
        .names(&["portMappings", "portmap", nowhere]);
    assert_eq!(pod.links(), Vec::<String>::new());
    node.assert_empty();
    pod.del().silent();
}

#[test]
fn a_portmap_that_fails_takes_the_whole_pod_with_it() {
    let plugins = Plugins::new(&["portmap"]);
    let node = testbed::node!(setup());
    plugins.fail("portmap", "ADD", 100, "port is taken");
    let pod = K8sPod::new(&node, "a")
        .path(&plugins.path())
        .runtime("portMappings", &mapped(8080));
    pod.add()
        .fails_with(130)
        .names(&["port is taken", "portmap"]);
    assert_eq!(pod.links(), Vec::<String>::new());
    assert_eq!(held(&node), Vec::<String>::new());
    assert!(plugins.calls().contains(&"portmap DEL eth0".to_owned()));
    node.assert_empty();
}

/// A mapping is recorded before it is made, so a restart finds what to undo.
#[test]
fn an_agent_that_dies_with_the_ports_mapped_and_nobody_told_undoes_them_at_its_next_start() {
    let plugins = Plugins::new(&["portmap"]);
    let node = testbed::node!(setup().stopped());
    node.start_agent_to_crash_at("pod.ports-mapped");
    let pod = K8sPod::new(&node, "a")
        .path(&plugins.path())
        .runtime("portMappings", &mapped(8080));
    pod.add().error();
    node.wait_dead();
    plugins.forget_calls();
    node.start_agent();
    assert_eq!(plugins.calls(), ["portmap DEL eth0"]);
    assert_eq!(pod.links(), Vec::<String>::new());
    node.assert_empty();
}

/// A host port of an isolated network is refused: no packet could come by it.
#[test]
fn a_host_port_of_an_isolated_network_is_refused() {
    let plugins = Plugins::new(&["portmap"]);
    let node = testbed::node!(super::scene::setup());
    let pod = K8sPod::new(&node, "a")
        .path(&plugins.path())
        .runtime("portMappings", &mapped(8080));
    pod.add()
        .fails_with(2)
        .names(&["portMappings", "routing Node"]);
    assert_eq!(plugins.calls(), Vec::<String>::new());
    node.assert_empty();
}

/// Reports whether the pod answers at the node's port.
fn answers(client: &Netns, pod: &Netns, node: IpAddr, port: u16) -> bool {
    let inside = "the namespace can be entered";
    let listener = pod.run_in(|| TcpListener::bind(("0.0.0.0", 80)));
    let listener = listener.expect(inside).expect("a server in the pod");
    let target = SocketAddr::new(node, port);
    let connected = client.run_in(|| TcpStream::connect_timeout(&target, PATIENCE / 10));
    let connected = connected.expect(inside).is_ok();
    if connected {
        listener.accept().expect("who has connected");
    }
    connected
}

/// The reference plugin itself, which translates in the node's stack.
#[test]
fn the_world_and_the_node_reach_a_pod_by_a_host_port_of_the_reference_plugin() {
    let places = ["/usr/lib/cni/portmap", "/opt/cni/bin/portmap"];
    let tools = ["/usr/sbin/iptables", "/sbin/iptables"];
    let is_there = |places: &[&str]| places.iter().any(|path| Path::new(path).is_file());
    if !is_there(&places) || !is_there(&tools) {
        testbed::skip::skip(testbed::test_name!(), "needs the reference plugins portmap");
        return;
    }
    let node: Node = testbed::node!(setup());
    let (mut world, link) = node.host().world();
    let address = netdev::Address::new([192, 0, 2, 2].into(), 24);
    world.add_address(link, address).expect("an address");
    let pod = K8sPod::new(&node, "a").runtime("portMappings", &mapped(8080));
    pod.attach();
    let own: IpAddr = [192, 0, 2, 1].into();
    assert!(answers(node.host().outside(), pod.pod.netns(), own, 8080));
    assert!(answers(node.netns(), pod.pod.netns(), own, 8080));
    // No CHECK: release 1.1 of the plugin looks for its IPv4 rules among those of IPv6.
    pod.detach();
    let other = K8sPod::new(&node, "b");
    other.attach();
    assert!(!answers(
        node.host().outside(),
        other.pod.netns(),
        own,
        8080
    ));
    other.detach();
    node.assert_empty();
}
