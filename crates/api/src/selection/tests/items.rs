//! The comma-delimited format, and how formats are told apart.

use super::{assert_says, error};
use crate::selection::{NetworkSelection, parse_networks};

fn references(text: &str) -> Vec<(Option<String>, String, Option<String>)> {
    let parts = |selection: NetworkSelection| {
        let interface = selection.interface.map(String::from);
        (selection.namespace, selection.name, interface)
    };
    let list = parse_networks(text).unwrap();
    list.into_iter().map(parts).collect()
}

fn reference(
    namespace: Option<&str>,
    name: &str,
    interface: Option<&str>,
) -> (Option<String>, String, Option<String>) {
    let owned = |text: Option<&str>| text.map(str::to_owned);
    (owned(namespace), name.to_owned(), owned(interface))
}

/// NPWG-4.1: nothing, blanks and `[]` are no networks.
#[test]
fn an_empty_list_means_no_networks() {
    for text in ["", " ", "\n\t ", "[]", " [ ] "] {
        assert_eq!(parse_networks(text).unwrap(), [], "{text:?}");
    }
    proof::of!("NPWG-4.1");
}

/// NPWG-4.1.1a: names, with or without a namespace.
#[test]
fn the_example_of_the_standard_names_three_networks() {
    assert_eq!(
        references("net-a,net-b,other-ns/net-c"),
        [
            reference(None, "net-a", None),
            reference(None, "net-b", None),
            reference(Some("other-ns"), "net-c", None),
        ]
    );
    proof::of!("NPWG-4.1.1a");
}

/// NPWG-4.1.1a, KUR-09: blanks around items are not part of names.
#[test]
fn blanks_around_items_are_trimmed() {
    assert_eq!(
        references("  net-a ,\n  other-ns/net-c@eth5\t"),
        [
            reference(None, "net-a", None),
            reference(Some("other-ns"), "net-c", Some("eth5")),
        ]
    );
    proof::of!("NPWG-4.1.1a", "KUR-09");
}

/// NPWG-4.1.2.1.2, KUR-09: a namespace is that of its own item.
#[test]
fn a_namespace_does_not_leak_to_the_next_items() {
    let namespaces: Vec<_> = references("x/a,b,c").into_iter().map(|r| r.0).collect();
    assert_eq!(namespaces, [Some("x".to_owned()), None, None]);
    let json = r#"[{"namespace":"x","name":"a"},{"name":"b"},{"name":"c","namespace":""}]"#;
    let namespaces: Vec<_> = references(json).into_iter().map(|r| r.0).collect();
    assert_eq!(namespaces, [Some("x".to_owned()), None, None]);
    proof::of!("NPWG-4.1.2.1.2", "KUR-09");
}

/// NPWG-4.2: the same network twice is two attachments.
#[test]
fn a_network_can_be_named_twice() {
    assert_eq!(references("net-a,net-a").len(), 2);
    assert_eq!(references(r#"[{"name":"a"},{"name":"a"}]"#).len(), 2);
    proof::of!("NPWG-4.2");
}

/// NPWG-3.3: names of objects can have dots, and more than 63 characters.
#[test]
fn every_name_kubernetes_takes_is_taken() {
    let long = "a".repeat(253);
    for name in ["a", "0", "a-b", "a.b", "null", long.as_str()] {
        assert_eq!(references(name), [reference(None, name, None)]);
    }
    proof::of!("NPWG-3.3");
}

/// NPWG-3.3: names Kubernetes has no objects of.
#[test]
fn names_kubernetes_refuses_are_refused() {
    let long = "a".repeat(254);
    for name in [
        "-a",
        "a-",
        "Net-A",
        "a_b",
        "a b",
        "ns/-a",
        "Ns/a",
        "n.s/a",
        long.as_str(),
    ] {
        assert_says(
            &error(name),
            "k8s.v1.cni.cncf.io/networks, item 1 at character 1: ",
        );
    }
    proof::of!("NPWG-3.3");
}

/// NPWG-4.1.1a: a comma too many.
#[test]
fn a_comma_too_many_is_an_error_with_its_place() {
    for (text, place) in [
        ("net-a,", "item 2 at character 7"),
        (",net-a", "item 1 at character 1"),
        ("net-a, ,net-b", "item 2 at character 8"),
    ] {
        let error = error(text);
        assert_says(&error, place);
        assert_says(
            &error,
            "a name is missing here; remove the comma or write a name",
        );
    }
    proof::of!("NPWG-4.1.1a");
}

/// NPWG-4.1.1b: too many or too few parts.
#[test]
fn references_of_another_form_are_refused() {
    for (text, why) in [
        ("a/b/c", "is not a reference"),
        ("a//b", "is not a reference"),
        ("/a", "is not a reference"),
        ("a/", "is not a reference"),
        ("net@a@b", "is not a reference"),
        ("net@", "it is empty"),
        ("@net1", "a name is required"),
        ("net@0123456789abcdef", "longer than 15 bytes"),
        ("net@a/b", "contains `/`"),
        ("net@lo", "loopback"),
    ] {
        assert_says(&error(text), why);
    }
    proof::of!("NPWG-4.1.1b");
}

/// NPWG-G1: a person sees all that is wrong, with places in characters of the text.
#[test]
fn every_wrong_item_is_reported() {
    let errors = parse_networks("ä, b,\u{a0}C,d@e@f").unwrap_err();
    let places: Vec<_> = errors.first.iter().map(|e| e.place.to_string()).collect();
    assert_eq!(
        places,
        [
            ", item 1 at character 1",
            ", item 3 at character 7",
            ", item 4 at character 9"
        ]
    );
    proof::of!("NPWG-G1");
}

/// NPWG-4.1-detect: the first character that is not blank decides.
#[test]
fn a_bracket_makes_it_json_and_a_brace_is_no_list() {
    assert_eq!(
        references(" \n[{\"name\": \"a\"}]"),
        [reference(None, "a", None)]
    );
    assert_says(&error(r#" {"name": "a"}"#), "put it in brackets: [{…}]");
    assert_says(&error(r#""net-a""#), "item 1 at character 1");
    proof::of!("NPWG-4.1-detect");
}

/// Quotes of a word processor are an error with line and column.
#[test]
fn broken_json_is_an_error_with_line_and_column() {
    let error = error("[\n  {\u{201c}name\u{201d}: \"a\"}]");
    assert_says(
        &error,
        "k8s.v1.cni.cncf.io/networks: the value is not a JSON list",
    );
    assert_says(&error, "line 2 column 4");
    proof::of!("NPWG-G1");
}

/// NPWG-G1: an annotation is written by anybody; how deep it is does not matter.
#[test]
fn deep_nesting_is_kept_or_refused_and_never_followed() {
    let deep = "[".repeat(100_000) + &"]".repeat(100_000);
    // As deep as the length of `cni-args` allows.
    let args = "[".repeat(8000) + &"]".repeat(8000);
    let kept = format!(r#"[{{"name":"a","cni-args":{{"x":{args}}},"x.y":{deep},"z":{deep}}}]"#);
    assert_eq!(parse_networks(&kept).unwrap().len(), 1);
    assert_says(
        &error(&format!(r#"[{{"name":{deep}}}]"#)),
        "is not a string",
    );
    assert_says(&error(&deep), "networks[0]: ");
    assert_says(&error(&"[".repeat(200_000)), "EOF while parsing");
    proof::of!("NPWG-G1");
}
