//! CNI SPEC section 2: parameters.

use serde_json::json;
use testbed::{Node, Outcome};

fn add_with(node: &Node, changes: &[(&str, Option<&str>)]) -> Outcome {
    let pod = node.pod("env");
    let mut call = pod.call("ADD", "net1").conf(&node.conf("blue"));
    for (name, value) in changes {
        call = match value {
            Some(value) => call.env(name, value),
            None => call.without(name),
        };
    }
    let outcome = call.run();
    assert!(pod.links().is_empty(), "a refused ADD made an interface");
    outcome
}

/// CNI-ENV-01: all of them at once, code 4.
#[test]
fn add_missing_env_lists_all() {
    let node = testbed::node!();
    let outcome = add_with(
        &node,
        &[
            ("CNI_CONTAINERID", None),
            ("CNI_NETNS", None),
            ("CNI_IFNAME", None),
        ],
    );
    let failure = outcome.fails_with(4);
    failure.names(&["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"]);
    node.assert_empty();
    proof::of!("CNI-ENV-01");
}

/// CNI-ENV-06: an empty variable is an unset one.
#[test]
fn an_empty_variable_is_missing() {
    let node = testbed::node!();
    let outcome = add_with(&node, &[("CNI_NETNS", Some("")), ("CNI_IFNAME", Some(""))]);
    let failure = outcome.fails_with(4);
    failure.names(&["CNI_NETNS", "CNI_IFNAME"]);
    assert!(!failure.text().contains("CNI_CONTAINERID"), "{failure:?}");
    proof::of!("CNI-ENV-06");
}

/// CNI-ENV-02.
#[test]
fn add_bad_containerid() {
    let node = testbed::node!();
    for bad in ["-a", ".a", "a/b", "a b", "ä", "a:b"] {
        let outcome = add_with(&node, &[("CNI_CONTAINERID", Some(bad))]);
        outcome.fails_with(4).names(&["CNI_CONTAINERID"]);
    }
    node.assert_empty();
    proof::of!("CNI-ENV-02");
}

macro_rules! bad_ifnames {
    ($($(#[$doc:meta])* $test:ident: $name:expr;)+) => {$(
        $(#[$doc])*
        #[test]
        fn $test() {
            let node = testbed::node!();
            let outcome = add_with(&node, &[("CNI_IFNAME", Some($name))]);
            outcome.fails_with(4).names(&["CNI_IFNAME"]);
            node.assert_empty();
        }
    )+};
}

bad_ifnames! {
    /// CNI-ENV-03: at most 15 bytes.
    add_bad_ifname_long: "sixteen-bytes-xx";
    /// CNI-ENV-03.
    add_bad_ifname_dot: ".";
    /// CNI-ENV-03.
    add_bad_ifname_dotdot: "..";
    /// CNI-ENV-03.
    add_bad_ifname_slash: "net/1";
    /// CNI-ENV-03.
    add_bad_ifname_colon: "net:1";
    /// CNI-ENV-03.
    add_bad_ifname_space: "net 1";
    /// CNI-ENV-03.
    add_bad_ifname_empty: "";
}

/// CNI-ENV-03: 15 bytes is what Linux has room for.
#[test]
fn an_ifname_of_15_bytes_is_taken() {
    let node = testbed::node!();
    let pod = node.pod("a");
    pod.attach("blue", "fifteen-bytes-x");
    assert_eq!(pod.links(), ["fifteen-bytes-x"]);
    pod.detach("blue", "fifteen-bytes-x");
    node.assert_empty();
    proof::of!("CNI-ENV-03");
}

/// CNI-ENV-04: an unknown command is an error, in any spelling but the exact one.
#[test]
fn an_unknown_command_is_code_4() {
    let node = testbed::node!();
    for bad in ["add", "UPDATE", "ADD "] {
        let outcome = add_with(&node, &[("CNI_COMMAND", Some(bad))]);
        outcome.fails_with(4).names(&["CNI_COMMAND"]);
    }
    proof::of!("CNI-ENV-04");
}

/// CNI-ENV-04: a person who runs the binary gets an explanation on stderr.
#[test]
fn about_text() {
    let node = testbed::node!(testbed::Setup::empty().stopped());
    let outcome = node.cni("").without("CNI_COMMAND").run();
    outcome.silent();
    assert!(outcome.stderr.contains("podnet"), "{outcome}");
    assert!(outcome.stderr.contains("0.1.0"), "{outcome}");
    assert!(outcome.stderr.contains("1.1.0"), "{outcome}");
    proof::of!("CNI-ENV-04");
}

/// CNI-ENV-05, CNI-ENV-11: nothing but what the specification requires is needed.
#[test]
fn cni_path_is_not_required() {
    let node = testbed::node!();
    let pod = node.pod("a");
    let conf = node.conf("blue");
    let call = pod.call("ADD", "net1").conf(&conf).without("CNI_PATH");
    call.run().result();
    let call = pod.call("DEL", "net1").conf(&conf).without("CNI_PATH");
    call.run().silent();
    node.assert_empty();
    proof::of!("CNI-ENV-05", "CNI-ENV-11");
}

/// CNI-ENV-09: unknown keys, `=` in values and any order are accepted.
#[test]
fn cni_args_are_read_as_kubernetes_sends_them() {
    let node = testbed::node!();
    let pod = node.pod("a");
    let args = "K8S_POD_UID=1;K8S_POD_NAME=web;IgnoreUnknown=1;K8S_POD_NAMESPACE=default;\
                K8S_POD_INFRA_CONTAINER_ID=a;X=a=b";
    let call = pod.call("ADD", "net1").conf(&node.conf("blue"));
    call.env("CNI_ARGS", args).run().result();
    let held = node.get("attachments");
    let text = json!(held).to_string();
    assert!(text.contains("web"), "the pod's name is not known: {text}");
    pod.detach("blue", "net1");
    proof::of!("CNI-ENV-09", "RT-CD-04");
}

/// CNI-ENV-10: trace context is never a reason to refuse, and is in the log.
#[test]
fn trace_context_is_accepted() {
    let node = testbed::node!();
    let pod = node.pod("a");
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    for traceparent in [trace, "nonsense"] {
        let call = pod.call("ADD", "net1").conf(&node.conf("blue"));
        let call = call.env("TRACEPARENT", traceparent).env("BAGGAGE", "k=v");
        call.run().result();
        pod.detach("blue", "net1");
    }
    let log = node.log();
    let line = log
        .lines()
        .find(|line| line.contains("4bf92f3577b34da6a3ce929d0e0e4736"));
    assert!(
        line.is_some_and(|line| line.contains("00f067aa0ba902b7") && line.contains("served")),
        "{log}"
    );
    assert!(!log.contains("nonsense"), "{log}");
    proof::of!("CNI-ENV-10");
}

/// CNI-ENV-08: the node's own namespace is not a container's, by whatever path.
#[test]
fn add_host_netns_code8() {
    let node = testbed::node!();
    let pod = node.pod("a");
    for command in ["ADD", "DEL"] {
        let call = pod.call(command, "net1").conf(&node.conf("blue"));
        let call = call.env("CNI_NETNS", "/proc/self/ns/net");
        call.run().fails_with(8).names(&["CNI_NETNS"]);
    }
    node.assert_empty();
    assert!(!node.links().iter().any(|link| link.name == "net1"));
    proof::of!("CNI-ENV-08");
}

/// CNI-ENV-07: without the binary's guard, the agent itself protects the node.
#[test]
fn the_netns_override_does_not_harm_the_node() {
    let node = testbed::node!();
    let pod = node.pod("a");
    let call = pod.call("ADD", "net1").conf(&node.conf("blue"));
    let call = call.env("CNI_NETNS", "/proc/self/ns/net");
    call.env("CNI_NETNS_OVERRIDE", "TRUE").run().fails_with(8);
    assert!(!node.links().iter().any(|link| link.name == "net1"));
    node.assert_empty();
    proof::of!("CNI-ENV-07");
}
