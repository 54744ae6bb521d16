//! Services of the cluster for pods that the node's stack routes for.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};

use agent_common::drop::DropReason;
use serde_json::json;
use testbed::wait::{self, PATIENCE};
use testbed::{Network, Node, Port, Setup, beyond, limit, nat};

use super::scene::{
    Echo, PORT, PREFIXES, TARGET, addresses, app, ask, client, connect, denied, of_cluster, own,
    refused, service, slices, talk, wait_served,
};

const NETWORK: &str = "white";

fn network() -> Network {
    Network::l3(NETWORK, &["10.62.0.0/24", "fd62::/64"]).by_node()
}

fn setup() -> Setup {
    Setup::empty().network(&network().services(&PREFIXES))
}

/// A Service of the cluster at these pods.
fn serve(node: &Node, name: &str, ips: [IpAddr; 2], pods: &[&Port]) {
    let endpoints: Vec<_> = pods.iter().map(|port| (*port, "")).collect();
    let text = [
        service(name, NETWORK, ips, ""),
        slices(name, NETWORK, node.name(), &endpoints),
    ]
    .concat();
    node.write_manifest(&format!("{name}.yaml"), &of_cluster(&text, NETWORK));
}

/// A policy without an annotation, which is for this network.
fn policy(app: &str, spec: &str) -> String {
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\n\
         metadata: {{name: {app}, namespace: default}}\n\
         spec: {{podSelector: {{matchLabels: {{app: {app}}}}}, {spec}}}\n---\n"
    )
}

#[test]
fn services_of_the_cluster_lead_to_their_endpoints_and_answers_come_from_them() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let node = Node::start(setup());
    let [(_w, web), (_a, one), (_b, two)] =
        ["web", "one", "two"].map(|name| app(&node, name, NETWORK));
    serve(&node, "db", addresses(10), &[&one, &two]);
    wait_served(&node, NETWORK, 8);
    for ip in addresses(10) {
        let echo = Echo::at(&[&one, &two], ip);
        let asking = client(&web, ip);
        let first = ask(&asking, &echo, b"question");
        let long = vec![7; 4_000];
        assert_eq!(ask(&asking, &echo, &long).v4(), first.v4(), "in fragments");
        let mut numbers = Vec::new();
        for _ in 0..16 {
            let (mut here, mut there, number) =
                connect(&web, ip, &[&one, &two]).expect("a connection");
            talk(&mut here, &mut there);
            numbers.push(number);
        }
        assert!(numbers.contains(&0) && numbers.contains(&1), "{numbers:?}");
    }
}

#[test]
fn a_service_of_the_cluster_without_endpoints_refuses_and_one_that_is_gone_is_left_to_the_node() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let node = Node::start(setup());
    let [(_w, web), (_a, one)] = ["web", "one"].map(|name| app(&node, name, NETWORK));
    serve(&node, "db", addresses(10), &[]);
    for ip in addresses(10) {
        wait::until_true("the Service to refuse", || {
            let to = SocketAddr::from((ip, PORT));
            let tried = web
                .netns
                .run_in(|| TcpStream::connect_timeout(&to, PATIENCE));
            let error = tried.expect("a namespace").expect_err("no connection");
            error.kind() == ErrorKind::ConnectionRefused
        });
        refused(&web, ip, PORT);
    }
    let told = node.explain("web", "10.96.0.10", &["--proto", "tcp:80"]);
    told.assert_is("dropped", "no_backend");
    node.remove_manifest("db.yaml");
    for ip in addresses(10) {
        // As the cluster's proxy would.
        nat::service(
            node.netns(),
            (ip, PORT).into(),
            (own(&one, ip), TARGET).into(),
        );
        let joined = wait::until("a connection by the node", || {
            connect(&web, ip, &[&one]).ok()
        });
        let (mut here, mut there, _) = joined;
        talk(&mut here, &mut there);
    }
}

#[test]
fn connections_that_the_node_has_translated_go_on_when_the_field_is_written() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let node = Node::start(Setup::empty().network(&network()));
    let [(_a, one), (_b, two)] = ["one", "two"].map(|name| app(&node, name, NETWORK));
    // Its default route leads to Services, of which the network knows nothing yet.
    let pod = node.pod("web");
    let web = pod.attach_conf(&beyond::conf(&node, NETWORK), "net1");
    let mut before: Vec<(TcpStream, TcpStream)> = addresses(10)
        .into_iter()
        .map(|ip| {
            nat::service(
                node.netns(),
                (ip, PORT).into(),
                (own(&one, ip), TARGET).into(),
            );
            let (here, there, _) = connect(&web, ip, &[&one]).expect("a connection by the node");
            (here, there)
        })
        .collect();
    serve(&node, "db", addresses(10), &[&two]);
    let written = network().services(&PREFIXES).yaml();
    node.write_manifest(&format!("{NETWORK}.yaml"), &written);
    wait_served(&node, NETWORK, 4);
    for (here, there) in &mut before {
        talk(here, there);
    }
    for ip in addresses(10) {
        // The node's rule says otherwise.
        let (mut here, mut there, _) = connect(&web, ip, &[&two]).expect("a connection");
        talk(&mut here, &mut there);
        for (here, there) in &mut before {
            talk(here, there);
        }
    }
}

#[test]
fn connections_through_services_of_the_cluster_outlive_the_agent() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let node = Node::start(setup());
    let [(_w, web), (_a, one)] = ["web", "one"].map(|name| app(&node, name, NETWORK));
    serve(&node, "db", addresses(10), &[&one]);
    wait_served(&node, NETWORK, 4);
    let mut joined: Vec<_> = addresses(10)
        .into_iter()
        .map(|ip| connect(&web, ip, &[&one]).expect("a connection"))
        .collect();
    node.kill_9();
    for (here, there, _) in &mut joined {
        talk(here, there);
    }
    node.launch_agent();
    node.wait_ready();
    wait_served(&node, NETWORK, 4);
    for (here, there, _) in &mut joined {
        talk(here, there);
    }
    for ip in addresses(10) {
        let (mut here, mut there, _) = connect(&web, ip, &[&one]).expect("a connection");
        talk(&mut here, &mut there);
    }
}

#[test]
fn policies_of_the_default_network_judge_endpoints_of_services_on_both_sides() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let text = [
        policy(
            "web",
            "policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {app: one}}}]}]",
        ),
        policy(
            "one",
            "ingress: [{from: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: 8080}]}]",
        ),
    ]
    .concat();
    let node = Node::start(setup().file("policies.yaml", &text));
    let [(_w, web), (_o, other), (_a, one), (_b, two)] =
        ["web", "other", "one", "two"].map(|name| app(&node, name, NETWORK));
    serve(&node, "one", addresses(10), &[&one]);
    serve(&node, "two", addresses(11), &[&two]);
    wait_served(&node, NETWORK, 8);
    for (first, second) in addresses(10).into_iter().zip(addresses(11)) {
        let (mut here, mut there, _) = connect(&web, first, &[&one]).expect("a connection");
        talk(&mut here, &mut there);
        denied(&node, &web, second, DropReason::PolicyEgress);
        denied(&node, &other, first, DropReason::PolicyIngress);
    }
}

/// NetworkPolicy lets a pod talk to itself, whatever isolates it.
///
/// With a rate its packets come by another link.
#[test]
fn an_isolated_pod_reaches_itself_through_its_service() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    for rate in [None, Some(100_000_000)] {
        reaches_itself(rate);
    }
}

fn reaches_itself(rate: Option<u64>) {
    let closed = policy("one", "policyTypes: [Ingress, Egress]");
    let node = Node::start(setup().file("policies.yaml", &closed));
    let pod = node.pod("one");
    let mut conf = match rate {
        Some(rate) => limit::conf(&node, NETWORK, &json!({"egressRate": rate})),
        None => node.conf(NETWORK),
    };
    conf["labels"] = json!({"app": "one"});
    let one = pod.attach_conf(&conf, "net1");
    serve(&node, "one", addresses(10), &[&one]);
    wait_served(&node, NETWORK, 4);
    for ip in addresses(10) {
        let at = SocketAddr::from((own(&one, ip), TARGET));
        let listener = one.netns.run_in(|| TcpListener::bind(at));
        let listener = listener.expect("a namespace").expect("a listener");
        let to = SocketAddr::from((ip, PORT));
        let here = one
            .netns
            .run_in(|| TcpStream::connect_timeout(&to, PATIENCE));
        let mut here = here.expect("a namespace").expect("a connection to itself");
        let (mut there, peer) = listener.accept().expect("a connection");
        assert_eq!(peer.ip(), ip, "it sees the Service at the other end");
        talk(&mut here, &mut there);
    }
}
