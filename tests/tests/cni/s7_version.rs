//! CNI SPEC section 4, VERSION.

use serde_json::{Value, json};
use testbed::{Node, Setup};

const ALL: [&str; 7] = [
    "0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0",
];

fn version(node: &Node, stdin: &str) -> Value {
    node.cni("VERSION").stdin(stdin).run().result()
}

/// CNI-VER-01, CNI-VER-02: the probe libcni sends, with no agent anywhere.
#[test]
fn version_probe_libcni() {
    let node = testbed::node!(Setup::empty().stopped());
    let call = node.cni("VERSION").stdin("{\"cniVersion\":\"1.1.0\"}");
    let call = call.env("CNI_CONTAINERID", "").env("CNI_NETNS", "dummy");
    let call = call.env("CNI_IFNAME", "dummy").env("CNI_PATH", "dummy");
    let answer = call.run().result();
    assert_eq!(
        answer,
        json!({"cniVersion": "1.1.0", "supportedVersions": ALL})
    );
    proof::of!("CNI-VER-01", "CNI-VER-02");
}

/// CNI-VER-01: stdin may hold nothing.
#[test]
fn version_stdin_empty() {
    let node = testbed::node!(Setup::empty().stopped());
    for stdin in ["", "not json", "{}"] {
        let answer = version(&node, stdin);
        assert_eq!(answer["supportedVersions"], json!(ALL), "{stdin}");
        assert!(answer["cniVersion"].is_string(), "{stdin}: {answer}");
    }
    assert_eq!(version(&node, "")["cniVersion"], "1.1.0");
    proof::of!("CNI-VER-01");
}

/// CNI-VER-01: the version asked in is the version answered in.
#[test]
fn version_echoes_the_version_of_the_request() {
    let node = testbed::node!(Setup::empty().stopped());
    for asked in ALL {
        let answer = version(&node, &json!({"cniVersion": asked}).to_string());
        assert_eq!(answer["cniVersion"], asked);
    }
    proof::of!("CNI-VER-01");
}
