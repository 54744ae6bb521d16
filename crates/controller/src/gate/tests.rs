use overview::samples::{attachment, definition, find, gated, network, pod, view};
use serde_json::{Value, json};

use super::*;

/// Returns a pod's obstacles among ready, unready and deleted networks.
///
/// `blue` and `red` are ready, `off` is not, `old` is being deleted; `of-<network>` are attachments to
/// them.
fn found(pod: Value) -> Vec<String> {
    found_with(pod, Vec::new())
}

fn found_with(pod: Value, mut more: Vec<Value>) -> Vec<String> {
    let mut states = States::default();
    for name in ["blue", "red", "off", "old"] {
        let ready = if name == "off" {
            Err("spec.enabled is false".to_owned())
        } else {
            Ok(())
        };
        let state = ObjectState {
            ready: ready.clone(),
            terminating: name == "old",
            provider: None,
        };
        states.networks.insert(name.to_owned(), state);
        let key = ("shop".to_owned(), format!("of-{name}"));
        states.attachments.insert(
            key,
            ObjectState {
                ready,
                terminating: false,
                provider: None,
            },
        );
        more.push(network(name));
        more.push(attachment("shop", &format!("of-{name}"), name));
    }
    let name = pod["metadata"]["name"].as_str().expect("a name").to_owned();
    more.push(gated(pod));
    let view = view(&more);
    obstacles(find(&view, &name), &view, &states)
}

/// KEP-POD-10, KEP-POD-11, KEP-PN-U3
#[test]
fn a_pod_waits_for_networks_that_are_missing_not_ready_or_on_their_way_out() {
    for (list, wanted) in [
        (json!([{"name": "blue"}, {"name": "red"}]), &[][..]),
        (json!([{"attachmentName": "of-blue"}]), &[]),
        (
            json!([{"name": "green"}]),
            &["PodNetwork green does not exist"],
        ),
        (
            json!([{"attachmentName": "slow"}]),
            &["PodNetworkAttachment shop/slow does not exist"],
        ),
        (
            json!([{"name": "off"}]),
            &["PodNetwork off is not Ready: spec.enabled is false"],
        ),
        (
            json!([{"attachmentName": "of-off"}]),
            &["PodNetworkAttachment shop/of-off is not Ready"],
        ),
        (
            json!([{"name": "old"}]),
            &["PodNetwork old is being deleted"],
        ),
        (
            json!([{"attachmentName": "of-old"}]),
            &["PodNetwork old is being deleted"],
        ),
        (
            json!([{"name": "blue"}, {"name": "off"}, {"name": "green"}]),
            &[
                "PodNetwork off is not Ready",
                "PodNetwork green does not exist",
            ],
        ),
        (
            json!([{"name": "default"}]),
            &["PodNetwork default does not exist"],
        ),
    ] {
        let found = found(pod("web", &list, ""));
        assert_eq!(found.len(), wanted.len(), "{list}: {found:?}");
        for (found, wanted) in found.iter().zip(wanted) {
            assert!(found.starts_with(wanted), "{list}: {found}");
        }
    }
    proof::of!("KEP-POD-10", "KEP-POD-11", "KEP-PN-U3");
}

/// KEP-POD-12
#[test]
fn a_network_is_used_once_counting_through_attachments() {
    for list in [
        json!([{"name": "blue"}, {"attachmentName": "of-blue"}]),
        json!([{"attachmentName": "of-blue"}, {"attachmentName": "of-blue", "interfaceName": "x"}]),
    ] {
        let found = found(pod("web", &list, ""));
        assert_eq!(found.len(), 1, "{list}: {found:?}");
        assert!(
            found[0].starts_with("PodNetwork blue is named twice"),
            "{}",
            found[0]
        );
    }
    proof::of!("KEP-POD-12");
}

/// Its list may have a network more than once.
#[test]
fn definitions_are_waited_for_and_may_be_used_twice() {
    let definitions = || {
        vec![
            definition("shop", "nad", r#"{"type": "podnet", "podNetwork": "blue"}"#),
            definition(
                "shop",
                "nad-off",
                r#"{"type": "podnet", "podNetwork": "off"}"#,
            ),
            definition(
                "shop",
                "fast",
                r#"{"type": "podnet", "podNetworkAttachment": "of-off"}"#,
            ),
            definition(
                "shop",
                "vlan",
                r#"{"cniVersion": "1.0.0", "type": "macvlan"}"#,
            ),
            definition("shop", "broken", "{"),
            definition("shop", "red", ""),
            definition("shop", "on-disk", ""),
        ]
    };
    for (list, wanted) in [
        ("nad, nad, vlan, red, on-disk", ""),
        ("nad-off", "PodNetwork off is not Ready"),
        ("fast", "PodNetworkAttachment shop/of-off is not Ready"),
        ("broken", "NetworkAttachmentDefinition shop/broken: "),
        (
            "other",
            "NetworkAttachmentDefinition shop/other does not exist",
        ),
    ] {
        let found = found_with(pod("web", &Value::Null, list), definitions());
        if wanted.is_empty() {
            assert_eq!(found, [""; 0], "{list}");
        } else {
            assert_eq!(found.len(), 1, "{list}: {found:?}");
            assert!(found[0].starts_with(wanted), "{}", found[0]);
        }
    }
    proof::of!("NPWG-4.2", "PAIN-CONF-3");
}

/// Pods wait for a default network only if its object exists.
///
/// Nodes have a default network before there is an object for it; an object that exists has to be
/// ready.
#[test]
fn a_pod_without_a_list_waits_for_the_default_network_only_where_there_is_one() {
    let pod = || gated(pod("web", &Value::Null, ""));
    let view = view(&[pod()]);
    let mut states = States::default();
    assert_eq!(obstacles(find(&view, "web"), &view, &states), [""; 0]);
    let state = ObjectState {
        ready: Err("its parameters are gone".to_owned()),
        terminating: false,
        provider: None,
    };
    states.networks.insert("default".to_owned(), state);
    assert_eq!(obstacles(find(&view, "web"), &view, &states).len(), 1);
}

/// KEP-POD-01: a pod with an unreadable list waits where there is no webhook.
///
/// The webhook refuses such pods; without it they must not look as if all were well.
#[test]
fn a_pod_with_a_list_nobody_can_read_waits_and_says_why() {
    let found = found(pod("web", &json!([{"nam": "blue"}]), ""));
    assert_eq!(found.len(), 1);
    assert!(found[0].contains("podnet.dev/networks[0]"), "{}", found[0]);
    proof::of!("KEP-POD-01");
}

#[test]
fn obstacles_are_told_as_the_scheduler_tells_its_own() {
    let all = [
        "PodNetwork a is being deleted".to_owned(),
        "PodNetwork b is not Ready: x.".to_owned(),
    ];
    assert_eq!(
        as_scheduler(&all, 3),
        "0/3 nodes are available: PodNetwork a is being deleted, PodNetwork b is not Ready: x."
    );
}

/// ATT-04a: a list is refused by its length, its networks are not read.
#[test]
fn a_list_of_43000_networks_is_one_obstacle() {
    let found = found(pod("web", &Value::Null, &vec!["n"; 43_000].join(",")));
    assert_eq!(found.len(), 1);
    assert!(
        found[0].contains("asks for 43000 attachments"),
        "{}",
        found[0]
    );
    proof::of!("ATT-04a");
}

/// ATT-04d: the words of the event and of the condition do not grow with the list.
#[test]
fn obstacles_beyond_ten_are_counted() {
    let many: Vec<String> = (0..1000)
        .map(|number| format!("network {number}: {}", "x".repeat(9000)))
        .collect();
    let text = as_scheduler(&many, 3);
    assert!(text.ends_with(", and 990 more."), "{text}");
    assert!(text.len() < 6000, "{}", text.len());
    proof::of!("ATT-04d");
}

/// ATT-07b: what no node would attach is not let go.
#[test]
fn a_pod_waits_for_what_plugins_and_namespaces_do_not_allow() {
    let config = r#"{"type": "bridge", "ipam": {"type": "evil"}}"#;
    let elsewhere = r#"{"type": "podnet", "podNetworkAttachment": "ops/fast"}"#;
    let mut view = view(&[
        definition("shop", "lan", config),
        definition("shop", "fast", elsewhere),
        definition("ops", "lan", config),
        gated(pod("a", &Value::Null, "lan")),
        gated(pod("b", &Value::Null, "fast")),
        gated(pod("c", &Value::Null, "ops/lan")),
    ]);
    let states = States::default();
    let of = |view: &View, name| obstacles(find(view, name), view, &states);
    assert_eq!(of(&view, "a"), Vec::<String>::new());
    assert_eq!(of(&view, "c"), Vec::<String>::new());
    view.rules.plugins = api::nad::AllowedPlugins::Listed(["bridge".to_owned()].into());
    view.rules.global_namespaces = Some(["default".to_owned()].into());
    for (name, words) in [
        (
            "a",
            "shop/lan: ipam.type is \"evil\", which --delegates-allowed",
        ),
        (
            "b",
            "shop/fast: podNetworkAttachment: namespace ops is another than shop",
        ),
        (
            "c",
            "namespace ops is another than shop, and with --namespace-isolation",
        ),
    ] {
        let found = of(&view, name);
        assert!(
            matches!(found.as_slice(), [one] if one.contains(words)),
            "{name}: {found:?}"
        );
    }
    proof::of!("ATT-07b");
}
