//! The list of KEP-3698.

use super::{assert_says, only};
use crate::selection::{PodNetworkRef, parse_pod_networks};

fn error(text: &str) -> String {
    only(&parse_pod_networks(text).expect_err(text))
}

/// KEP-POD-01: the example of the KEP.
#[test]
fn the_example_of_the_kep_is_read() {
    let list = parse_pod_networks(
        r#"[{"name":"default","interfaceName":"eth0","isDefaultGW":true},
            {"name":"dataplane1","interfaceName":"net1"},
            {"attachmentName":"my-interface-fast-net","interfaceName":"net2"}]"#,
    )
    .unwrap();
    let read: Vec<_> = list
        .iter()
        .map(|one| {
            (
                one.interface_name.as_ref().unwrap().as_str(),
                one.is_default_gateway,
            )
        })
        .collect();
    assert_eq!(read, [("eth0", true), ("net1", false), ("net2", false)]);
    assert_eq!(
        list[2].target,
        PodNetworkRef::Attachment("my-interface-fast-net".to_owned())
    );
    proof::of!("KEP-POD-01");
}

/// KEP-POD-01, pod_name_xor_attachment: exactly one of both.
#[test]
fn name_and_attachment_name_exclude_each_other() {
    assert_says(
        &error(r#"[{"name":"a","attachmentName":"b"}]"#),
        "podnet.dev/networks[0]: name and attachmentName exclude each other",
    );
    for none in [
        "{}",
        r#"{"name":""}"#,
        r#"{"name":null,"attachmentName":""}"#,
    ] {
        assert_says(&error(&format!("[{none}]")), "[0]: a name is required");
    }
    proof::of!("KEP-POD-01");
}

/// Part 3.0 of the facts: `podNetworkName` is an alias of `name`.
#[test]
fn the_alias_of_the_keps_text_is_read() {
    let list = parse_pod_networks(r#"[{"podNetworkName":"default"}]"#).unwrap();
    assert_eq!(
        list[0].target,
        PodNetworkRef::PodNetwork("default".to_owned())
    );
    assert!(parse_pod_networks(r#"[{"podNetworkName":"a","name":"a"}]"#).is_ok());
    assert_says(
        &error(r#"[{"podNetworkName":"a","name":"b"}]"#),
        "keep name",
    );
    assert_says(
        &error(r#"[{"podNetworkName":"a","attachmentName":"b"}]"#),
        "exclude each other",
    );
}

/// KEP-POD-02, pod_same_pn_twice.
#[test]
fn a_network_can_be_named_once() {
    assert_says(
        &error(r#"[{"name":"a"},{"name":"b"},{"name":"a"}]"#),
        "networks[2].name: network \"a\" is there already, as [0]",
    );
    let attachments = r#"[{"attachmentName":"a"},{"attachmentName":"a"},{"name":"a"}]"#;
    assert!(
        parse_pod_networks(attachments).is_ok(),
        "needs the objects to be known"
    );
    proof::of!("KEP-POD-02");
}

/// KEP-POD-03, pod_two_default_gw.
#[test]
fn one_network_can_be_the_default_gateway() {
    assert_says(
        &error(r#"[{"name":"a","isDefaultGW":true},{"name":"b","isDefaultGW":true}]"#),
        "networks[1].isDefaultGW: only one element may have isDefaultGW, and [0] has it",
    );
    assert!(
        parse_pod_networks(r#"[{"name":"a","isDefaultGW":true},{"name":"b","isDefaultGW":false}]"#)
            .is_ok()
    );
    proof::of!("KEP-POD-03");
}

/// KEP-POD-04, pod_dup_ifname.
#[test]
fn one_interface_name_is_for_one_network() {
    assert_says(
        &error(r#"[{"name":"a","interfaceName":"n"},{"name":"b","interfaceName":"n"}]"#),
        "networks[1].interfaceName: interface n is used by podnet.dev/networks[0] already",
    );
    proof::of!("KEP-POD-04");
}

/// KEP-POD-05, pod_bad_ifname.
#[test]
fn interface_names_follow_linux() {
    for name in ["0123456789abcdef", "a/b", "a b", "..", "lo"] {
        assert_says(
            &error(&format!(r#"[{{"name":"a","interfaceName":"{name}"}}]"#)),
            "networks[0].interfaceName: ",
        );
    }
    assert!(parse_pod_networks(r#"[{"name":"a","interfaceName":""}]"#).is_ok());
    proof::of!("KEP-POD-05");
}

/// Types, keys and names are checked.
#[test]
fn other_types_keys_and_names_are_refused() {
    for (text, why) in [
        (r#"[{"name":5}]"#, "[0].name: 5 is not a string"),
        (r#"[{"name":"A"}]"#, "is not a DNS-1123 name"),
        (r#"[{"attachmentName":"ns/a"}]"#, "is not a DNS-1123 name"),
        (
            r#"[{"name":"a","isDefaultGW":"true"}]"#,
            "isDefaultGW: \"true\" is not true or false",
        ),
        (
            r#"[{"name":"a","interface":"x"}]"#,
            "\"interface\" is not a key here",
        ),
        (r#"["a"]"#, "is not an object"),
        ("a,b", "not a JSON list"),
        (r#"{"name":"a"}"#, "put it in brackets"),
    ] {
        assert_says(&error(text), why);
    }
    proof::of!("KEP-POD-01");
}

/// KEP-DEF-5: an empty list is an unset one, as Kubernetes writes no empty lists.
#[test]
fn an_empty_list_is_no_list() {
    for text in ["", " ", "[]"] {
        assert_eq!(parse_pod_networks(text).unwrap(), [], "{text:?}");
    }
    proof::of!("KEP-DEF-5");
}
