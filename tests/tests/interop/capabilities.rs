//! Test `capabilities` of the list that libcni passes to podnet (CNI-CAP-01).

use serde_json::json;
use testbed::{limit, traffic};

use super::libcni::Tools;

/// Declared, it is given to the plugin and done.
#[test]
fn declared_capabilities_are_honoured() {
    let Some(tools) = Tools::find(testbed::test_name!(), &[]) else {
        return;
    };
    let node = testbed::node!();
    let libcni = tools.on(&node);
    let mut podnet = libcni.podnet("blue");
    podnet["capabilities"] = json!({"ips": true, "mac": true});
    libcni.list(&json!({"cniVersion": "1.1.0", "name": "blue", "plugins": [podnet]}));
    let (pod, other) = (node.pod("a"), node.pod("b"));
    let args = json!({"ips": ["10.10.0.77/24", "fd10:10::77/64"], "mac": "02:00:00:00:00:4d"});
    let call = libcni.call("add", "blue", &pod, "net1").cap_args(&args);
    let port = pod.port("blue", "net1", call.run(&node).result());
    assert_eq!(port.v4().to_string(), "10.10.0.77");
    assert_eq!(port.v6().to_string(), "fd10:10::77");
    assert_eq!(port.mac.to_string(), "02:00:00:00:00:4d");
    assert_eq!(port.link().and_then(|link| link.mac), Some(port.mac.0));
    let peer = other.attach("blue", "net1");
    traffic::assert_reaches(&port, &peer);
    // libcni remembers the arguments by itself.
    libcni.run("check", "blue", &pod, "net1").silent();
    libcni.detach("blue", &pod, "net1");
    other.detach("blue", "net1");
    node.assert_empty();
}

/// Not declared, libcni keeps it to itself.
#[test]
fn undeclared_capabilities_do_not_arrive() {
    let Some(tools) = Tools::find(testbed::test_name!(), &[]) else {
        return;
    };
    let node = testbed::node!();
    let libcni = tools.on(&node);
    libcni.alone("blue");
    let pod = node.pod("a");
    let args = json!({
        "ips": ["10.10.0.77/24"], "portMappings": [{"hostPort": 8080, "containerPort": 80}],
    });
    let call = libcni.call("add", "blue", &pod, "net1").cap_args(&args);
    let port = pod.port("blue", "net1", call.run(&node).result());
    assert_ne!(port.v4().to_string(), "10.10.0.77");
    libcni.detach("blue", &pod, "net1");
    node.assert_empty();
}

/// The rates that libcni passes for the capability are kept.
#[test]
fn a_declared_bandwidth_is_a_limit() {
    let Some(tools) = Tools::find(testbed::test_name!(), &[]) else {
        return;
    };
    if testbed::skip::without_shaping(testbed::test_name!()) {
        return;
    }
    let node = testbed::node!();
    let libcni = tools.on(&node);
    let mut podnet = libcni.podnet("blue");
    podnet["capabilities"] = json!({"bandwidth": true});
    libcni.list(&json!({"cniVersion": "1.1.0", "name": "blue", "plugins": [podnet]}));
    let (pod, other) = (node.pod("a"), node.pod("b"));
    let rates = json!({"ingressRate": 10_000_000, "ingressBurst": 100_000, "egressRate": 0});
    let call = libcni.call("add", "blue", &pod, "net1");
    let call = call.cap_args(&json!({"bandwidth": rates}));
    let port = pod.port("blue", "net1", call.run(&node).result());
    let peer = other.attach("blue", "net1");
    let delivered = limit::flood(&peer, peer.v4().into(), &port, port.v4().into(), 200_000);
    delivered.assert_limited(10_000_000);
    libcni.run("check", "blue", &pod, "net1").silent();
    libcni.detach("blue", &pod, "net1");
    other.detach("blue", "net1");
    node.assert_empty();
}

/// A declared but unserved capability is refused with its key, and nothing is left.
#[test]
fn a_declared_capability_that_is_not_done_is_refused() {
    let Some(tools) = Tools::find(testbed::test_name!(), &[]) else {
        return;
    };
    let node = testbed::node!();
    let libcni = tools.on(&node);
    let mut podnet = libcni.podnet("blue");
    podnet["capabilities"] = json!({"portMappings": true});
    libcni.list(&json!({"cniVersion": "1.1.0", "name": "blue", "plugins": [podnet]}));
    let pod = node.pod("a");
    let mapping = json!([{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]);
    let call = libcni.call("add", "blue", &pod, "net1");
    let call = call.cap_args(&json!({"portMappings": mapping}));
    call.run(&node).fails_with(&["podnet", "portMappings"]);
    assert_eq!(pod.links(), Vec::<String>::new());
    node.assert_empty();
    libcni.detach("blue", &pod, "net1");
}

/// CNI-ENV-09: Kubernetes' arguments in `CNI_ARGS` are taken, with any others.
#[test]
fn cni_args_arrive() {
    let Some(tools) = Tools::find(testbed::test_name!(), &[]) else {
        return;
    };
    let node = testbed::node!();
    let libcni = tools.on(&node);
    libcni.alone("blue");
    let pod = node.pod("a");
    let args = "K8S_POD_NAMESPACE=default;IP=10.10.0.66;K8S_POD_NAME=web;IgnoreUnknown=1;X=y";
    let call = libcni.call("add", "blue", &pod, "net1").cni_args(args);
    let port = pod.port("blue", "net1", call.run(&node).result());
    assert_eq!(port.v4().to_string(), "10.10.0.66");
    libcni.detach("blue", &pod, "net1");
    node.assert_empty();
    proof::of!("CNI-ENV-09");
}
