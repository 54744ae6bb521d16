//! CNI SPEC section 5: errors, and configurations that deserve one.

use serde_json::{Value, json};
use testbed::{Network, Node, Outcome, Setup};

fn add_stdin(node: &Node, stdin: &str) -> Outcome {
    let pod = node.pod("a");
    let outcome = pod.call("ADD", "net1").stdin(stdin).run();
    assert!(pod.links().is_empty(), "a refused ADD made an interface");
    outcome
}

fn add_changed(node: &Node, key: &str, value: Value) -> Outcome {
    let mut conf = node.conf("blue");
    conf[key] = value;
    add_stdin(node, &conf.to_string())
}

/// CNI-ERR-09: stdin that is not JSON.
#[test]
fn add_stdin_garbage_code6() {
    let node = testbed::node!();
    for garbage in ["", "{", "not json", "{\"name\":\"blue\"}}"] {
        add_stdin(&node, garbage).fails_with(6);
    }
    node.assert_empty();
    proof::of!("CNI-ERR-09", "CNI-ERR-01");
}

/// CNI-ERR-09: `name` missing or outside its grammar.
#[test]
fn add_no_name_code7() {
    let node = testbed::node!();
    for name in [json!(null), json!(""), json!("-a"), json!("a/b"), json!(7)] {
        add_changed(&node, "name", name)
            .fails_with(7)
            .names(&["name"]);
    }
    node.assert_empty();
    proof::of!("CNI-ERR-09");
}

/// CNI-ERR-07: both sides are named.
#[test]
fn add_version_unsupported_code1() {
    let node = testbed::node!();
    for version in ["2.0.0", "0.0.9", "1.2.0", "x"] {
        let outcome = add_changed(&node, "cniVersion", json!(version));
        let failure = outcome.fails_with(1);
        failure.names(&["incompatible CNI versions", version, "1.1.0"]);
    }
    node.assert_empty();
    proof::of!("CNI-ERR-07");
}

/// CNI-ERR-02: the error is in the version of the configuration.
#[test]
fn an_error_has_the_version_of_the_configuration() {
    let node = testbed::node!();
    let pod = node.pod("a");
    for version in ["0.3.1", "0.4.0", "1.0.0", "1.1.0"] {
        let mut conf = node.conf("nowhere");
        conf["cniVersion"] = version.into();
        let failure = pod.add_conf(&conf, "net1").fails_with(7);
        assert_eq!(failure.cni_version, version);
        failure.names(&["nowhere"]);
    }
    node.assert_empty();
    proof::of!("CNI-ERR-02", "CNI-ERR-01");
}

/// A missing network and a broken one are refused, each with its reason.
///
/// One that is disabled is worth another attempt later (KEP-POD-13).
#[test]
fn a_network_that_cannot_be_used_is_code_7_or_11_and_says_why() {
    let broken = Network::l2("broken", &["10.1.0.0/33"]);
    let setup = Setup::default()
        .network(&Network::l2("off", &["10.9.0.0/24"]).disabled())
        .network(&broken);
    let node = testbed::node!(setup);
    let pod = node.pod("a");
    for (name, code) in [("nowhere", 7), ("off", 11), ("broken", 7)] {
        pod.add(name, "net1").fails_with(code).names(&[name]);
    }
    assert!(pod.links().is_empty());
    node.assert_empty();
    proof::of!("KEP-POD-13");
}

/// Neither, or both, of the keys that name a network.
#[test]
fn a_configuration_must_name_exactly_one_network() {
    let node = testbed::node!();
    add_changed(&node, "podNetwork", json!(null)).fails_with(7);
    let both = add_changed(&node, "podNetworkAttachment", json!("fast"));
    both.fails_with(7)
        .names(&["podNetworkAttachment", "podNetwork"]);
    node.assert_empty();
}

/// CNI-ERR-04: code 3 would let the runtime skip the DEL, so no ADD ends with it.
#[test]
fn no_failed_add_claims_that_the_container_is_unknown() {
    let node = testbed::node!(Setup::default().network(&Network::l2("tiny", &["10.3.0.0/30"])));
    let (a, b, c) = (node.pod("a"), node.pod("b"), node.pod("c"));
    a.attach("tiny", "net1");
    b.attach("tiny", "net1");
    let failures = [
        c.add("tiny", "net1").error(),
        a.add("blue", "net1").error(),
        c.add("nowhere", "net1").error(),
    ];
    for failure in failures {
        assert_ne!(failure.code, 3, "{failure:?}");
    }
    a.detach("tiny", "net1");
    b.detach("tiny", "net1");
    node.assert_empty();
    proof::of!("CNI-ERR-04");
}

/// CNI-ERR-05: without an agent, code 11 has a text that is complete for a person.
///
/// The text is what reaches the event.
#[test]
fn add_agent_down_code11() {
    let node = testbed::node!();
    node.terminate();
    let pod = node.pod("a");
    let failure = pod.add("blue", "net1").fails_with(11);
    let socket = node.socket();
    failure.names(&["podnet-agent", socket.to_str().expect("UTF-8"), "try again"]);
    assert!(pod.links().is_empty());
    node.start_agent();
    node.assert_empty();
    proof::of!("CNI-ERR-05");
}

/// CNI-ERR-06: an error of DEL has no words that runtimes take for success.
#[test]
fn an_error_of_del_is_not_taken_for_success() {
    let node = testbed::node!();
    let pod = node.pod("a");
    let call = pod.call("DEL", "net1").stdin("not json");
    let text = call.run().fails_with(6).text().to_lowercase();
    assert!(!text.contains("not found"), "{text}");
    assert!(!text.contains("no such file or directory"), "{text}");
    proof::of!("CNI-ERR-06");
}

/// A configuration may be as large as a pod's annotations make it.
#[test]
fn a_configuration_of_300_kilobytes_is_taken() {
    let node = testbed::node!();
    let pod = node.pod("a");
    let mut conf = node.conf("blue");
    let key = "io.kubernetes.cri.pod-annotations";
    conf["runtimeConfig"] = json!({key: {"example.com/large": "x".repeat(300 << 10)}});
    pod.attach_conf(&conf, "net1");
    pod.detach("blue", "net1");
    node.assert_empty();
}
