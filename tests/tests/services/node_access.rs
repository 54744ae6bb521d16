//! Ports that the node itself has on networks: probes get in, and nothing gets out.

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use agent_common::addr::MacAddr;
use agent_common::drop::DropReason;
use netdev::{OwnTable, Route};
use serde_json::Value;
use testbed::beyond::{NODE, call, ip, settle_world};
use testbed::frame::{ethernet, marker, udp4};
use testbed::host::connection;
use testbed::manifest::Network;
use testbed::talk::tcp;
use testbed::tap::Tap;
use testbed::{Node, Port, Setup, nat, wait};

use super::scene::{NETWORKS, app, socket, talk};

/// True for the row of a port of the node.
fn is_of_node(row: &Value) -> bool {
    let container = row["container"].as_str();
    container.is_some_and(|it| it.starts_with("podnet.node-access."))
}

const TABLE: OwnTable = OwnTable {
    table: 0x706e,
    priority: 28_782,
    protocol: 112,
};

fn network(name: &str, mode: &'static str, access: Option<&'static str>) -> Network {
    Network {
        node_access: access,
        subnets: vec!["10.61.0.0/24".into(), "fd61::/64".into()],
        ..Network::new(name, mode)
    }
}

fn setup(name: &str) -> Setup {
    let mode = if name == NETWORKS[0] { "L3" } else { "L2" };
    Setup::empty()
        .with_audits_logged()
        .network(&network(name, mode, Some("Local")))
}

/// Networks on which the node has a port.
fn served(node: &Node) -> Vec<String> {
    let rows = node.get("attachments");
    let own = rows.iter().filter(|row| is_of_node(row));
    own.filter_map(|row| row["network"].as_str().map(str::to_owned))
        .collect()
}

/// Addresses of the node's port on a network, once it is there.
#[track_caller]
fn own(node: &Node, network: &str) -> Vec<IpAddr> {
    wait::until("the node's port", || {
        let rows = node.get("attachments");
        let mut own = rows.iter().filter(|row| is_of_node(row));
        let row = own.find(|row| row["network"] == network && row["state"] == "Added")?;
        let ips = row["ips"].as_array()?.iter();
        let ips = ips.filter_map(|it| it.as_str()?.split('/').next()?.parse().ok());
        Some(ips.collect())
    })
}

/// The addresses of a pod, each with the node's of the same family.
fn pairs(own: &[IpAddr], pod: &Port) -> Vec<(IpAddr, IpAddr)> {
    let of_family = |pod: IpAddr| own.iter().find(|it| it.is_ipv4() == pod.is_ipv4());
    let pods = [IpAddr::from(pod.v4()), pod.v6().into()];
    pods.into_iter()
        .filter_map(|pod| Some((*of_family(pod)?, pod)))
        .collect()
}

/// A probe by UDP: arrives, and is answered.
#[track_caller]
fn probe(node: &Node, own: IpAddr, pod: &Port, address: IpAddr) {
    let at = SocketAddr::new(address, 53);
    let there = socket(pod, at);
    let any: IpAddr = if own.is_ipv4() {
        ip("0.0.0.0")
    } else {
        ip("::")
    };
    let here = node.netns().run_in(|| UdpSocket::bind((any, 0)));
    let here = here.expect("a namespace").expect("a socket");
    here.set_read_timeout(Some(wait::PATIENCE))
        .expect("a timeout");
    here.send_to(b"probe", at).expect("a datagram");
    let mut buffer = [0; 16];
    let (_, from) = there.recv_from(&mut buffer).expect("the probe");
    assert_eq!(from.ip(), own);
    there.send_to(b"fine", from).expect("a datagram");
    assert_eq!(here.recv(&mut buffer).expect("the answer"), 4);
}

/// KEP-3698 Phase III: kubelets probe pods that have no other network.
#[test]
fn the_node_reaches_pods_of_a_network_that_says_so() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    for name in NETWORKS {
        let closed = Network {
            subnets: vec!["10.62.0.0/24".into()],
            ..Network::new("closed", "L3")
        };
        let node = Node::start(setup(name).network(&closed));
        assert!(served(&node).is_empty(), "no pod is on it yet");
        let (_web, web) = app(&node, "web", name);
        let pod = node.pod("other");
        let other = pod.attach("closed", "net1");
        let own = own(&node, name);
        let pairs = pairs(&own, &web);
        assert_eq!(pairs.len(), 2);
        for (own, address) in &pairs {
            assert_eq!(call(node.netns(), &web.netns, *address, 8080), *own);
            probe(&node, *own, &web, *address);
        }
        assert_eq!(served(&node), [name]);
        // By an address that the node's stack translates to the pod's, as kube-proxy has API servers reach webhooks.
        for (service, (own, address)) in ["10.99.0.1", "fd99::1"].into_iter().zip(pairs) {
            let (service, pod) = (
                SocketAddr::new(ip(service), 80),
                SocketAddr::new(address, 8080),
            );
            nat::service(node.netns(), service, pod);
            nat::masquerade(node.netns(), address);
            let seen = tcp(node.netns(), service, &web.netns, pod);
            assert_eq!(seen.expect("a connection"), own);
        }
        let to = SocketAddr::new(other.v4().into(), 8080);
        let listener = other.netns.run_in(|| TcpListener::bind(to));
        let listener = listener.expect("a namespace").expect("a listener");
        let refused = node
            .netns()
            .run_in(|| TcpStream::connect_timeout(&to, Duration::from_millis(500)));
        assert!(
            refused.expect("a namespace").is_err(),
            "nothing leads there"
        );
        listener.set_nonblocking(true).expect("an option");
        assert!(listener.accept().is_err());
        node.assert_audit_finds_nothing(name);
    }
}

/// Neither at an address of the node, nor through it.
#[test]
fn pods_open_no_connection_to_the_node_by_its_port() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    for name in NETWORKS {
        let node = Node::start(setup(name));
        settle_world(&node);
        let (_evil, evil) = app(&node, "evil", name);
        let own = own(&node, name);
        let denied = || node.drops().of(name, DropReason::PolicyIngress);
        for (own, address) in pairs(&own, &evil) {
            let any: IpAddr = if own.is_ipv4() {
                ip("0.0.0.0")
            } else {
                ip("::")
            };
            let listener = node.netns().run_in(|| TcpListener::bind((any, 9000)));
            let listener = listener.expect("a namespace").expect("a listener");
            let heard = node.netns().run_in(|| UdpSocket::bind((any, 9000)));
            let heard = heard.expect("a namespace").expect("a socket");
            let before = denied();
            let to = SocketAddr::new(own, 9000);
            let tried = evil
                .netns
                .run_in(|| TcpStream::connect_timeout(&to, Duration::from_millis(300)));
            assert!(tried.expect("a namespace").is_err());
            assert!(denied() > before, "the SYN is dropped as one by policy");
            let before = denied();
            let sender = socket(&evil, SocketAddr::new(address, 0));
            wait::until_true("a datagram dropped", || {
                sender.send_to(b"hello", to).expect("a datagram");
                denied() > before
            });
            // What the node itself has asked is answered, after all of these.
            probe(&node, own, &evil, address);
            listener.set_nonblocking(true).expect("an option");
            assert!(listener.accept().is_err());
            heard.set_nonblocking(true).expect("an option");
            assert!(heard.recv(&mut [0; 16]).is_err());
        }
        if name == NETWORKS[1] {
            past_the_port(&node, &evil, &own);
        }
    }
}

/// Sends to other addresses of the node, and beyond it, by its MAC address.
fn past_the_port(node: &Node, evil: &Port, own: &[IpAddr]) {
    let (v4, network) = (evil.v4(), evil.network.as_str());
    let denied = || node.drops().of_network(network);
    let heard = node.netns().run_in(|| UdpSocket::bind("0.0.0.0:9000"));
    let heard = heard.expect("a namespace").expect("a socket");
    heard.set_nonblocking(true).expect("an option");
    // The neighbour entry says where the node's port is.
    probe(node, own[0], evil, v4.into());
    let rows = node.get("attachments");
    let mut of_node = rows.iter().filter(|row| is_of_node(row));
    let mac = of_node
        .find_map(|row| row["mac"].as_str())
        .expect("a MAC address");
    let mac: MacAddr = mac.parse().expect("a MAC address");
    let outside = Tap::everything(node.host().outside());
    for to in [NODE[0], "192.0.2.2"] {
        let IpAddr::V4(to) = ip(to) else { continue };
        let mark = marker();
        let payload = udp4(v4, to, (9, 9000), &mark);
        let frame = ethernet(mac, evil.mac, 0x0800, &payload);
        let before = denied();
        evil.tap().send(&frame);
        wait::until_true("a drop", || denied() > before);
        assert_eq!(outside.count(&mark), 0);
        assert!(heard.recv(&mut [0; 64]).is_err());
    }
}

/// Routers and other hosts do not get into the network by the node.
#[test]
fn what_the_node_forwards_does_not_get_into_the_network() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    for name in NETWORKS {
        let node = Node::start(setup(name));
        settle_world(&node);
        let (_web, web) = app(&node, "web", name);
        let own = own(&node, name);
        let (mut world, link) = node.host().world();
        for (prefix, length, via) in [("10.61.0.0", 24, NODE[0]), ("fd61::", 64, NODE[1])] {
            let route = Route::new(ip(prefix), length, Some(ip(via)), link);
            world.add_route(&route).expect("a route");
        }
        for (own, address) in pairs(&own, &web) {
            // With an address that the node has on the network, no check of the source stops it.
            nat::masquerade(node.netns(), address);
            let there = socket(&web, SocketAddr::new(address, 9000));
            let any: IpAddr = if own.is_ipv4() {
                ip("0.0.0.0")
            } else {
                ip("::")
            };
            let sender = node.host().outside().run_in(|| UdpSocket::bind((any, 0)));
            let sender = sender.expect("a namespace").expect("a socket");
            sender.send_to(b"in", (address, 9000)).expect("a datagram");
            probe(&node, own, &web, address);
            there.set_nonblocking(true).expect("an option");
            assert!(there.recv(&mut [0; 16]).is_err(), "{address}");
        }
    }
}

/// A-NP-35: a pod is open to its own node always.
#[test]
fn the_node_reaches_pods_that_policies_isolate_and_others_do_not() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    for (name, types) in [
        (NETWORKS[0], "Ingress, Egress"),
        (NETWORKS[1], "Ingress, Egress"),
        (NETWORKS[0], "Egress"),
    ] {
        let policy = format!(
            "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\n\
             metadata: {{name: web, namespace: default, annotations: {{podnet.dev/networks: {name}}}}}\n\
             spec: {{podSelector: {{matchLabels: {{app: web}}}}, policyTypes: [{types}]}}\n"
        );
        let node = Node::start(setup(name).file("policy.yaml", &policy));
        let (_web, web) = app(&node, "web", name);
        let (_evil, evil) = app(&node, "evil", name);
        let own = own(&node, name);
        let reaches = |node: &Node| {
            for (own, address) in pairs(&own, &web) {
                assert_eq!(call(node.netns(), &web.netns, address, 8080), own);
                probe(node, own, &web, address);
            }
        };
        reaches(&node);
        let denied = || node.drops().of(name, DropReason::PolicyIngress);
        let before = denied();
        let sender = socket(&evil, SocketAddr::new(evil.v4().into(), 0));
        let closed = if types == "Egress" {
            own[0]
        } else {
            web.v4().into()
        };
        wait::until_true("a drop", || {
            sender
                .send_to(b"hello", (closed, 8080))
                .expect("a datagram");
            denied() > before
        });
        // Without the policy the pods are open again, and the node's port is not.
        node.remove_manifest("policy.yaml");
        let there = socket(&web, SocketAddr::new(web.v4().into(), 8080));
        there.set_nonblocking(true).expect("an option");
        wait::until_true("the pod to be open", || {
            sender
                .send_to(b"hello", (web.v4(), 8080))
                .expect("a datagram");
            there.recv(&mut [0; 16]).is_ok()
        });
        reaches(&node);
        let before = denied();
        wait::until_true("a drop at the node's port", || {
            let to = SocketAddr::new(own[0], 9000);
            sender.send_to(b"hello", to).expect("a datagram");
            denied() > before
        });
        node.assert_audit_finds_nothing(name);
    }
}

#[test]
fn a_port_of_the_node_outlives_the_agent_and_goes_with_the_last_pod() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    for name in NETWORKS {
        let node = Node::start(setup(name));
        let (pod, web) = app(&node, "web", name);
        let before = own(&node, name);
        let to = SocketAddr::new(web.v4().into(), 8080);
        let listener = web.netns.run_in(|| TcpListener::bind(to));
        let listener = listener.expect("a namespace").expect("a listener");
        let here = node.netns().run_in(|| TcpStream::connect(to));
        let mut here = here.expect("a namespace").expect("a connection");
        let (mut there, _) = listener.accept().expect("a connection");
        node.kill_9();
        talk(&mut here, &mut there);
        node.start_agent();
        node.wait_ready();
        assert_eq!(own(&node, name), before);
        talk(&mut here, &mut there);
        // A link that somebody deletes is made again.
        let mut links = connection(node.netns());
        let link = links
            .list(&netdev::LinkFilter {
                name_prefix: Some("podnet-n".to_owned()),
                ..netdev::LinkFilter::default()
            })
            .expect("a list")
            .pop()
            .expect("the node's end");
        links.delete(link.ifindex).expect("deleted");
        wait::until_true("the node's port again", || {
            let again = links.by_name(&link.name).expect("an answer");
            again.is_some_and(|it| it.up && it.carrier)
        });
        let own = own(&node, name);
        for (own, address) in pairs(&own, &web) {
            wait::until_true("the routes", || {
                let found = links.route_to(address).expect("an answer");
                found.is_some_and(|it| it.gateway.is_none() || name == NETWORKS[0])
            });
            probe(&node, own, &web, address);
        }
        assert!(links.leads_own_packets(&TABLE).expect("a list"));
        pod.detach(name, "net1");
        wait::until_true("the node's port to go", || served(&node).is_empty());
        wait::until_true("the rule to go", || {
            !links.leads_own_packets(&TABLE).expect("a list")
        });
        assert!(links.by_name(&link.name).expect("an answer").is_none());
    }
}

#[test]
fn a_network_has_ports_of_nodes_for_as_long_as_it_says_so() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let everywhere = network("routed", "L3", Some("All"));
    let node = Node::start(Setup::empty().network(&everywhere));
    own(&node, "routed");
    let closed = network("routed", "L3", None);
    node.write_manifest("routed.yaml", &closed.yaml());
    wait::until_true("the node's port to go", || served(&node).is_empty());
}

/// Networks may have the same subnets, and the node has one way to an address.
#[test]
fn of_networks_with_the_same_subnets_one_has_a_port_of_the_node() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let red = network("red", "L3", Some("Local"));
    let node = Node::start(setup("routed").network(&red));
    let (pod, web) = app(&node, "web", "routed");
    own(&node, "routed");
    let (_red, red) = app(&node, "red", "red");
    let problem = wait::until("the agent to say so", || {
        let rows = node.get("networks");
        let mut rows = rows.iter().filter(|row| row["name"] == "red");
        rows.find_map(|row| row["nodeAccessProblem"].as_str().map(str::to_owned))
    });
    assert!(
        problem.contains("10.61.0.0/24 overlaps 10.61.0.0/24"),
        "{problem}"
    );
    assert_eq!(served(&node), ["routed"]);
    assert_eq!(
        web.v4(),
        red.v4(),
        "which pod the node reaches is the question"
    );
    let address = web.v4().into();
    call(node.netns(), &web.netns, address, 8080);
    pod.detach("routed", "net1");
    own(&node, "red");
    assert_eq!(served(&node), ["red"]);
    call(node.netns(), &red.netns, address, 8080);
}

/// A pod that a policy selects, and that comes when the node's port is there.
#[test]
fn the_node_reaches_pods_that_come_when_its_port_and_their_policy_are_there() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    for name in NETWORKS {
        let policy = format!(
            "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\n\
             metadata: {{name: web, namespace: default, annotations: {{podnet.dev/networks: {name}}}}}\n\
             spec: {{podSelector: {{matchLabels: {{app: web}}}}, \
             ingress: [{{from: [{{podSelector: {{matchLabels: {{app: client}}}}}}], ports: [{{port: 8080}}]}}]}}\n"
        );
        let node = Node::start(setup(name).file("policy.yaml", &policy));
        let (_client, _) = app(&node, "client", name);
        let own = own(&node, name);
        let (_web, web) = app(&node, "web", name);
        for (own, address) in pairs(&own, &web) {
            assert_eq!(call(node.netns(), &web.netns, address, 8080), own);
            probe(&node, own, &web, address);
        }
    }
}
