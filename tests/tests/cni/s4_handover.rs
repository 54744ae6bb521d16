//! Test that the runtime gets a result or it is undone (CNI SPEC 4; CNI-ADD-06).

use std::process::Stdio;

use cni_spec::Reply;
use serde_json::Value;
use testbed::wire::Exchange;
use testbed::{Node, Pod, wait};

fn begin(node: &Node, pod: &Pod<'_>, conf: &Value) -> Exchange {
    let path = pod.path().to_str().expect("a path in UTF-8");
    let env = [
        ("CNI_COMMAND", "ADD"),
        ("CNI_CONTAINERID", pod.container()),
        ("CNI_NETNS", path),
        ("CNI_IFNAME", "net1"),
    ];
    Exchange::send(&node.socket(), &env, conf, pod.netns())
}

fn wait_rolled_back(node: &Node, pod: &Pod<'_>) {
    wait::until_true("the roll-back", || {
        node.attachments().is_empty() && pod.links().is_empty()
    });
    node.assert_empty();
}

/// CNI-ADD-06: the shim is killed before the agent has answered.
#[test]
fn add_timeout_rollback() {
    let node = testbed::node!();
    let pod = node.pod("a");
    drop(begin(&node, &pod, &node.conf("blue")));
    // It may not even have begun: an attachment of another pod is made after it.
    let fence = node.pod("fence");
    fence.attach("blue", "net1");
    fence.detach("blue", "net1");
    wait_rolled_back(&node, &pod);
    pod.attach("blue", "net1");
    pod.detach("blue", "net1");
    proof::of!("CNI-ADD-06");
}

/// CNI-ADD-06: the shim has the answer and dies before its runtime has.
#[test]
fn an_answer_that_nobody_acknowledges_is_rolled_back() {
    let node = testbed::node!();
    let pod = node.pod("a");
    let mut exchange = begin(&node, &pod, &node.conf("blue"));
    assert!(matches!(exchange.reply(), Reply::Ok(_)));
    assert_eq!(pod.links(), ["net1"]);
    drop(exchange);
    wait_rolled_back(&node, &pod);
    proof::of!("CNI-ADD-06");
}

/// Acknowledged is kept.
#[test]
fn an_answer_that_is_acknowledged_is_kept() {
    let node = testbed::node!();
    let pod = node.pod("a");
    let mut exchange = begin(&node, &pod, &node.conf("blue"));
    assert!(matches!(exchange.reply(), Reply::Ok(_)));
    exchange.acknowledge();
    let fence = node.pod("fence");
    fence.attach("blue", "net1");
    fence.detach("blue", "net1");
    assert_eq!(pod.links(), ["net1"]);
    pod.detach("blue", "net1");
}

/// CNI-ADD-06: the runtime has closed the pipe it would read the result from.
#[test]
fn a_result_that_cannot_be_printed_is_rolled_back() {
    let node = testbed::node!();
    let pod = node.pod("a");
    let call = pod.call("ADD", "net1").conf(&node.conf("blue"));
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let child = call.spawn(Stdio::from(writer));
    let output = child.wait_with_output().expect("podnet ends");
    assert!(!output.status.success());
    wait_rolled_back(&node, &pod);
    proof::of!("CNI-ADD-06");
}

/// A shim killed late does not undo a later ADD.
#[test]
fn an_abandoned_add_does_not_roll_back_its_successor() {
    let node = testbed::node!();
    let pod = node.pod("a");
    let conf = node.conf("blue");
    let mut hanging = begin(&node, &pod, &conf);
    assert!(matches!(hanging.reply(), Reply::Ok(_)));
    pod.del("blue", "net1").silent();
    let port = pod.attach("blue", "net1");
    drop(hanging);
    let fence = node.pod("fence");
    for _ in 0..3 {
        fence.attach("blue", "net1");
        fence.detach("blue", "net1");
    }
    assert_eq!(pod.links(), ["net1"], "the successor is gone");
    pod.check("blue", "net1", &port.result).silent();
    pod.detach("blue", "net1");
}

/// CNI-ADD-04: the result of a retry counts while the first shim hangs.
#[test]
fn an_acknowledged_repeat_keeps_the_attachment() {
    let node = testbed::node!();
    let pod = node.pod("a");
    let conf = node.conf("blue");
    let mut hanging = begin(&node, &pod, &conf);
    assert!(matches!(hanging.reply(), Reply::Ok(_)));
    let repeat = pod.call("ADD", "net1").conf(&conf).without("CNI_PATH");
    let result = repeat.run().result();
    drop(hanging);
    let fence = node.pod("fence");
    for _ in 0..3 {
        fence.attach("blue", "net1");
        fence.detach("blue", "net1");
    }
    assert_eq!(pod.links(), ["net1"], "what the retry was given is gone");
    pod.check("blue", "net1", &result).silent();
    pod.detach("blue", "net1");
    proof::of!("CNI-ADD-04");
}

/// CNI-ADD-05: a result that the version cannot express fails, and leaves nothing.
#[test]
fn a_result_that_cannot_be_expressed_leaves_nothing() {
    let bare = testbed::Network::new("bare", "L2");
    let node = testbed::node!(testbed::Setup::empty().network(&bare));
    let pod = node.pod("a");
    let mut conf = node.conf("bare");
    conf["cniVersion"] = "0.2.0".into();
    pod.add_conf(&conf, "net1").fails_with(7);
    assert!(pod.links().is_empty());
    node.assert_empty();
    proof::of!("CNI-ADD-05");
}
