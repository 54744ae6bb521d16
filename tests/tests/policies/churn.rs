//! Attach and detach guarded pods on two networks at once.
//!
//! The pods get the numbers of each other's ports.

use std::thread;

use agent_common::drop::DropReason;
use serde_json::json;
use testbed::{Node, Port};

use super::scene::{answers, app, arrives, attach, policy, setup};

/// Pods that come on each network.
const ROUNDS: usize = 25;

fn closed() -> String {
    let both = "policyTypes: [Ingress, Egress]";
    ["routed", "switched"]
        .map(|network| policy(network, network, "db", both))
        .join("---\n")
}

/// Attaches a guarded pod again and again.
///
/// Nothing may be sent to it from its first moment on.
fn come_and_go(node: &Node, network: &str, evil: &Port) {
    for number in 0..ROUNDS {
        let name = format!("{network}-{number}");
        let labels = json!({"app": "db"});
        let (pod, port) = attach(node, &name, network, ("default", labels));
        for _ in 0..3 {
            assert!(!arrives(evil, &port, 80), "{name} is not judged");
            assert!(!arrives(&port, evil, 80), "{name} is not judged");
        }
        pod.detach(network, "net1");
    }
}

#[test]
fn a_port_with_the_number_of_another_network_is_judged_all_the_time() {
    let node = Node::start(setup().file("a.yaml", &closed()));
    let evils = [("evil1", "routed"), ("evil2", "switched")].map(|(name, network)| {
        let labels = json!({"app": "evil"});
        attach(&node, name, network, ("default", labels))
    });
    thread::scope(|scope| {
        for (_pod, evil) in &evils {
            let node = &node;
            scope.spawn(move || come_and_go(node, &evil.network, evil));
            // And others that no policy selects.
            scope.spawn(move || {
                for number in 0..ROUNDS {
                    let name = format!("free-{}-{number}", evil.network);
                    let (pod, port) = attach(node, &name, &evil.network, ("default", json!({})));
                    answers(evil, &port, 80);
                    pod.detach(&evil.network, "net1");
                }
            });
        }
    });
    let denied = node.drops();
    for network in ["routed", "switched"] {
        assert!(denied.of(network, DropReason::PolicyIngress) > 0);
        assert!(denied.of(network, DropReason::PolicyEgress) > 0);
    }
}

/// An ADD that fails leaves no sets behind, and the next pod none of its own.
#[test]
fn a_failed_add_leaves_no_policy_in_force() {
    let node = Node::start(setup().file("a.yaml", &closed()));
    let (_web, web) = app(&node, "web", "routed");
    for number in 0..5 {
        let pod = node.pod(&format!("broken{number}"));
        let mut conf = node.conf("routed");
        conf["labels"] = json!({"app": "db"});
        // An address of somebody else: the request is refused after its port was given.
        conf["runtimeConfig"] = json!({"ips": [format!("{}/24", web.v4())]});
        let outcome = pod.call("ADD", "net1").conf(&conf).run();
        assert!(!outcome.success, "the address is taken");
        drop(pod);
        let name = format!("free{number}");
        let (free, port) = attach(&node, &name, "routed", ("default", json!({})));
        answers(&web, &port, 80);
        answers(&port, &web, 80);
        free.detach("routed", "net1");
    }
}

/// A set that gets the number of one before has none of its rows.
#[test]
fn a_set_with_the_number_of_another_lets_nothing_of_it_pass() {
    let to = |app: &str| {
        format!(
            "policyTypes: [Egress], egress: [{{to: [{{podSelector: {{matchLabels: {{app: {app}}}}}}}]}}]"
        )
    };
    let policies = [
        policy("first", "routed", "first", &to("near")),
        policy("second", "routed", "second", &to("far")),
        policy("third", "routed", "third", "policyTypes: [Egress]"),
    ];
    let node = Node::start(setup().file("a.yaml", &policies.join("---\n")));
    let [(_near, near), (_far, far), (_first, first)] =
        ["near", "far", "first"].map(|name| app(&node, name, "routed"));
    answers(&first, &near, 80);
    let (pod, second) = app(&node, "second", "routed");
    answers(&second, &far, 80);
    pod.detach("routed", "net1");
    // The set of the pod that has left is the last one, and is free.
    let (_third, third) = app(&node, "third", "routed");
    assert!(
        !arrives(&third, &far, 80),
        "the third is judged by the second's policy"
    );
    assert!(!arrives(&third, &near, 80));
    answers(&first, &near, 80);
}
