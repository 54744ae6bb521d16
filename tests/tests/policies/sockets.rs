//! Ports that are sockets: memif and AF_XDP.

use agent_common::drop::DropReason;
use serde_json::json;
use testbed::afxdp::{self, Echo};
use testbed::manifest::attachment;
use testbed::memif_app::MemifApp;
use testbed::{Node, Pod, Port, Setup, wait};

use super::scene::{answers, app, becomes, denied, policy, setup, socket};

const INGRESS: DropReason = DropReason::PolicyIngress;
const EGRESS: DropReason = DropReason::PolicyEgress;

/// The networks, with attachments whose ports are sockets.
pub(crate) fn with_sockets() -> Setup {
    let mut all = setup();
    for network in ["routed", "switched"] {
        for kind in ["Memif", "AFXDP"] {
            let name = format!("{}-{network}", kind.to_lowercase());
            let text = attachment(&name, network, &format!("{{interface: {{type: {kind}}}}}"));
            all = all.file(&format!("{name}.yaml"), &text);
        }
    }
    all
}

/// A pod whose port is a socket of this kind, with the label `app`.
fn attach<'a>(node: &'a Node, app: &str, network: &str, kind: &str) -> (Pod<'a>, Port) {
    let pod = node.pod(app);
    let mut conf = node.attachment_conf(network, &format!("{kind}-{network}"));
    conf["labels"] = json!({"app": app});
    let port = pod.attach_conf(&conf, "net1");
    (pod, port)
}

/// Pods `db` and `web` with memif ports, and the programs that serve these.
pub(crate) fn memif_pair<'a>(
    node: &'a Node,
    network: &str,
) -> ([(Pod<'a>, Port); 2], [MemifApp; 2]) {
    let pods = ["db", "web"].map(|app| attach(node, app, network, "memif"));
    let apps = pods.each_ref().map(|(_, port)| MemifApp::start(port));
    (pods, apps)
}

#[test]
fn a_guarded_memif_port_is_judged_whoever_sends_to_it() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    for network in ["routed", "switched"] {
        let rule = "ingress: [{from: [{podSelector: {matchLabels: {app: web}}}], \
                    ports: [{protocol: UDP, port: 80}]}]";
        let node = Node::start(with_sockets().file("a.yaml", &policy("db", network, "db", rule)));
        let (_db, db) = attach(&node, "db", network, "memif");
        let (_web, web) = attach(&node, "web", network, "memif");
        let (_other, other) = attach(&node, "other", network, "memif");
        let (_kernel, kernel) = app(&node, "kernel", network);
        let _apps = [&db, &web, &other].map(MemifApp::start);
        answers(&web, &db, 80);
        denied(&node, &web, &db, 81, INGRESS);
        denied(&node, &other, &db, 80, INGRESS);
        denied(&node, &kernel, &db, 80, INGRESS);
        answers(&db, &other, 7);
        // Two that no policy selects do not need the kernel.
        answers(&web, &other, 80);
    }
}

#[test]
fn a_memif_port_s_first_policy_takes_it_off_the_fast_path_and_the_last_one_puts_it_back() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let node = Node::start(with_sockets());
    let ([(_db, db), (_web, web)], _apps) = memif_pair(&node, "routed");
    answers(&web, &db, 80);
    node.write_manifest("p.yaml", &policy("db", "routed", "db", "ingress: []"));
    becomes(&web, &db, 80, false);
    denied(&node, &web, &db, 80, INGRESS);
    node.remove_manifest("p.yaml");
    becomes(&web, &db, 80, true);
    answers(&db, &web, 80);
}

#[test]
fn a_memif_port_sends_what_its_policy_allows() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let rule = "policyTypes: [Egress], egress: [{ports: [{protocol: UDP, port: 80}]}]";
    let node = Node::start(with_sockets().file("a.yaml", &policy("web", "routed", "web", rule)));
    let ([(_db, db), (_web, web)], _apps) = memif_pair(&node, "routed");
    answers(&web, &db, 80);
    denied(&node, &web, &db, 81, EGRESS);
}

#[test]
fn a_guarded_port_of_af_xdp_is_judged() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    for network in ["routed", "switched"] {
        let rule =
            "policyTypes: [Ingress, Egress], ingress: [{ports: [{protocol: UDP, port: 80}]}]";
        let node = Node::start(with_sockets().file("a.yaml", &policy("db", network, "db", rule)));
        let (_db, db) = attach(&node, "db", network, "afxdp");
        let (_web, web) = app(&node, "web", network);
        let echo = Echo::start(vec![afxdp::open(&db, 0)]);
        let here = socket(&web, (web.v4(), 0).into());
        here.send_to(b"hello", (db.v4(), 80)).expect("a datagram");
        here.recv_from(&mut [0; 64]).expect("an answer");
        let before = node.drops().of(network, INGRESS);
        here.send_to(b"hello", (db.v4(), 81)).expect("a datagram");
        wait::until_true("a drop", || node.drops().of(network, INGRESS) > before);
        here.send_to(b"hello", (db.v4(), 80)).expect("a datagram");
        here.recv_from(&mut [0; 64]).expect("an answer");
        assert_eq!(echo.stop(), 2);
    }
}
