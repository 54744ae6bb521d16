//! Policies on the network that the node routes for: the default network of pods.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::thread;
use std::time::Duration;

use agent_common::addr::MacAddr;
use agent_common::drop::DropReason;
use serde_json::json;
use testbed::beyond::{BEYOND, NODE, call, conf, ip, settle_world};
use testbed::frame::{ethernet, marker, udp4};
use testbed::host::{UPLINK, WORLD, connection, remove_clsact};
use testbed::tap::Tap;
use testbed::{Network, Node, Pod, Port, Setup, nat, talk, wait};

use super::scene::{answers, arrives, becomes, connect, denied, socket};

const NETWORK: &str = "white";
const INGRESS: DropReason = DropReason::PolicyIngress;
const EGRESS: DropReason = DropReason::PolicyEgress;

fn setup() -> Setup {
    let subnets = ["10.30.0.0/24", "fd30:30::/64"];
    Setup::empty().network(&Network::l3(NETWORK, &subnets).by_node())
}

/// A policy without an annotation, which is for the default network.
fn policy(name: &str, app: &str, spec: &str) -> String {
    format!(
        "apiVersion: networking.k8s.io/v1\n\
         kind: NetworkPolicy\n\
         metadata: {{name: {name}, namespace: default}}\n\
         spec: {{podSelector: {{matchLabels: {{app: {app}}}}}, {spec}}}\n"
    )
}

/// A rule for packets from these pods to a UDP port.
fn from(app: &str, port: u16) -> String {
    format!(
        "ingress: [{{from: [{{podSelector: {{matchLabels: {{app: {app}}}}}}}], \
         ports: [{{protocol: UDP, port: {port}}}]}}]"
    )
}

fn app<'a>(node: &'a Node, app: &str) -> (Pod<'a>, Port) {
    let pod = node.pod(app);
    let mut conf = conf(node, NETWORK);
    conf["labels"] = json!({"app": app});
    let port = pod.attach_conf(&conf, "net1");
    (pod, port)
}

#[test]
fn a_policy_without_an_annotation_is_for_the_network_that_the_node_routes_for() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let closed = "policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {app: db}}}]}]";
    let policies = [
        policy("db", "db", &from("web", 80)),
        policy("locked", "locked", closed),
    ];
    let node = Node::start(setup().file("a.yaml", &policies.join("---\n")));
    let [(_w, web), (_d, db), (_e, evil), (_l, locked)] =
        ["web", "db", "evil", "locked"].map(|name| app(&node, name));
    answers(&web, &db, 80);
    denied(&node, &web, &db, 81, INGRESS);
    denied(&node, &evil, &db, 80, INGRESS);
    denied(&node, &locked, &evil, 80, EGRESS);
    denied(&node, &locked, &db, 80, INGRESS);
    // Replies to what each opens itself, and pods without policies.
    answers(&db, &evil, 7);
    answers(&evil, &locked, 7);
    answers(&evil, &web, 7);
    drop(connect(&db, &web, 5000));
}

/// Probes pass under a policy that denies all, and open nothing to the pod.
#[test]
fn the_node_itself_reaches_a_pod_that_is_isolated_and_not_the_other_way_a_np_35() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let none = "policyTypes: [Ingress, Egress]";
    let node = Node::start(setup().file("a.yaml", &policy("db", "db", none)));
    let ((_d, db), (_e, evil)) = (app(&node, "db"), app(&node, "evil"));
    for ((address, _), own) in db.ips.iter().zip(NODE.map(ip)) {
        let seen = call(node.netns(), &db.netns, *address, 8080);
        assert!(NODE.map(ip).contains(&seen), "the pod saw {seen}");
        let at = SocketAddr::new(*address, 53);
        let there = socket(&db, at);
        let here = node
            .netns()
            .run_in(|| UdpSocket::bind(SocketAddr::new(own, 0)));
        let here = here.expect("a namespace").expect("a socket");
        here.set_read_timeout(Some(wait::PATIENCE))
            .expect("a timeout");
        here.send_to(b"probe", at).expect("a datagram");
        let mut buffer = [0; 16];
        let (_, prober) = there.recv_from(&mut buffer).expect("the probe");
        there.send_to(b"fine", prober).expect("a datagram");
        assert_eq!(here.recv(&mut buffer).expect("the answer"), 4);
        // Its own packet to the node is none of that connection.
        let before = node.drops().of(NETWORK, EGRESS);
        let other = socket(&db, SocketAddr::new(*address, 0));
        other.send_to(b"more", prober).expect("a datagram");
        wait::until_true("a drop", || node.drops().of(NETWORK, EGRESS) > before);
    }
    denied(&node, &evil, &db, 8080, INGRESS);
    denied(&node, &db, &evil, 8080, EGRESS);
}

#[test]
fn hosts_outside_are_judged_by_their_address_and_cannot_be_pods() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let blocks = format!(
        "ingress: [{{from: [{{ipBlock: {{cidr: {}/32}}}}], ports: [{{port: 8080}}]}}, \
         {{from: [{{podSelector: {{}}}}]}}]",
        BEYOND[0]
    );
    let node = Node::start(setup().file("a.yaml", &policy("db", "db", &blocks)));
    lead_in(&node);
    let ((_d, db), (_w, web)) = (app(&node, "db"), app(&node, "web"));
    let outside = node.host().outside();
    let address = IpAddr::from(db.v4());
    assert_eq!(call(outside, &db.netns, address, 8080), ip(BEYOND[0]));
    let drops = || node.drops().of(NETWORK, INGRESS);
    let before = drops();
    assert!(!comes_in(&node, &db, 8081));
    assert!(drops() > before);
    // What the pod opens is answered, though the node gives it an address of its own.
    assert_eq!(call(&db.netns, outside, ip(BEYOND[0]), 8082), ip(NODE[0]));
    // A router that checks no source would let it in with the address of another pod.
    for name in ["all", UPLINK] {
        let settings = [netdev::Sysctl::v4("rp_filter", "0")];
        let written = node
            .netns()
            .run_in(|| netdev::sysctl::write(name, &settings));
        written.expect("a namespace").expect("a setting");
    }
    let spoofed = || node.drops().of(NETWORK, DropReason::SpoofedIp);
    let before = spoofed();
    let mark = marker();
    let packet = udp4(web.v4(), db.v4(), (5000, 8081), &mark);
    let to = connection(node.netns()).by_name(UPLINK);
    let to = to.expect("links").expect("the uplink").mac;
    let mac = MacAddr(to.expect("a MAC address"));
    let tap = db.tap();
    let from = Tap::on(outside, WORLD);
    wait::until_true("a drop", || {
        from.send(&ethernet(mac, web.mac, 0x0800, &packet));
        spoofed() > before
    });
    assert_eq!(tap.count(&mark), 0);
}

/// It was let pass by what a block says of the address, before there was the pod.
#[test]
fn a_connection_to_an_address_ends_when_a_pod_that_is_denied_gets_it() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let all = "policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 0.0.0.0/0}}]}]";
    let deny = "apiVersion: policy.networking.k8s.io/v1alpha2\nkind: ClusterNetworkPolicy\n\
                metadata: {name: secrets}\n\
                spec: {tier: Admin, priority: 1, subject: {namespaces: {}}, \
                egress: [{name: no, action: Deny, to: [{pods: {namespaceSelector: {}, \
                podSelector: {matchLabels: {app: secret}}}}]}]}\n";
    let policies = [policy("web", "web", all), deny.to_owned()];
    let node = Node::start(setup().file("a.yaml", &policies.join("---\n")));
    let (_w, web) = app(&node, "web");
    let to = SocketAddr::new(ip("10.30.0.77"), 80);
    let here = socket(&web, SocketAddr::new(web.v4().into(), 0));
    here.send_to(b"is it free?", to).expect("a datagram");
    let mut conf = conf(&node, NETWORK);
    conf["labels"] = json!({"app": "secret"});
    conf["runtimeConfig"] = json!({"ips": ["10.30.0.77/24", "fd30:30::77/64"]});
    let pod = node.pod("secret");
    let port = pod.attach_conf(&conf, "net1");
    let there = socket(&port, to);
    let before = node.drops().of(NETWORK, EGRESS);
    wait::until_true("a drop", || {
        here.send_to(b"question", to).expect("a datagram");
        node.drops().of(NETWORK, EGRESS) > before
    });
    there.set_nonblocking(true).expect("a socket");
    assert!(there.recv_from(&mut [0; 64]).is_err(), "nothing arrives");
}

/// The node translates the address: rules are about that of the backend.
#[test]
fn a_service_leads_to_a_pod_by_the_rules_of_that_pod() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let rule =
        "ingress: [{from: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: 8080}]}]";
    let node = Node::start(setup().file("a.yaml", &policy("db", "db", rule)));
    let [(_d, db), (_w, web), (_e, evil)] = ["db", "web", "evil"].map(|name| app(&node, name));
    for ((backend, _), service) in db.ips.iter().zip(["10.96.0.10", "fd96::10"]) {
        let at = SocketAddr::new(*backend, 8080);
        let called = SocketAddr::new(ip(service), 80);
        nat::service(node.netns(), called, at);
        talk::tcp(&web.netns, called, &db.netns, at).expect("TCP by the service");
        let before = node.drops().of(NETWORK, INGRESS);
        let probe = evil
            .netns
            .run_in(|| std::net::TcpStream::connect_timeout(&called, Duration::from_millis(300)));
        assert!(probe.expect("a namespace").is_err(), "{service}");
        assert!(node.drops().of(NETWORK, INGRESS) > before);
    }
}

#[test]
fn a_policy_that_comes_and_goes_acts_on_pods_that_are_there_and_outlives_the_agent() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let node = Node::start(setup());
    let [(_d, db), (_w, web), (_e, evil)] = ["db", "web", "evil"].map(|name| app(&node, name));
    answers(&evil, &db, 80);
    node.write_manifest("a.yaml", &policy("db", "db", &from("web", 80)));
    becomes(&evil, &db, 80, false);
    answers(&web, &db, 80);
    thread::scope(|scope| {
        let asking = scope.spawn(|| (0..200).for_each(|_| answers(&web, &db, 80)));
        node.kill_9();
        assert!(!arrives(&evil, &db, 80));
        node.launch_agent();
        node.wait_ready();
        asking.join().expect("each question is answered");
    });
    denied(&node, &evil, &db, 80, INGRESS);
    node.remove_manifest("a.yaml");
    becomes(&evil, &db, 80, true);
}

/// True when a datagram of a host outside arrives at the pod.
fn comes_in(node: &Node, to: &Port, number: u16) -> bool {
    let at = SocketAddr::new(to.v4().into(), number);
    let there = socket(to, at);
    let here = node
        .host()
        .outside()
        .run_in(|| UdpSocket::bind("0.0.0.0:0"));
    let here = here.expect("a namespace").expect("a socket");
    here.send_to(b"x", at).expect("a datagram");
    let wait = Some(Duration::from_millis(50));
    there.set_read_timeout(wait).expect("a timeout");
    there.recv_from(&mut [0; 16]).is_ok()
}

/// Has the host outside know the way to pods.
fn lead_in(node: &Node) {
    settle_world(node);
    let (mut world, link) = node.host().world();
    let route = netdev::Route::new(ip("10.30.0.0"), 24, Some(ip(NODE[0])), link);
    world.add_route(&route).expect("a route to the pods");
}

#[test]
fn a_port_that_lost_its_qdisc_is_judged_again() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let node = Node::start(setup().file("a.yaml", &policy("db", "db", &from("web", 80))));
    lead_in(&node);
    let (_d, db) = app(&node, "db");
    let before = node.drops().of(NETWORK, INGRESS);
    assert!(!comes_in(&node, &db, 80));
    assert!(node.drops().of(NETWORK, INGRESS) > before);
    // An agent that is there puts it back at once.
    node.kill_9();
    remove_clsact(node.netns(), db.host_ifindex());
    wait::until_true("nothing to judge it", || comes_in(&node, &db, 80));
    node.launch_agent();
    node.wait_ready();
    assert!(!comes_in(&node, &db, 80));
}
