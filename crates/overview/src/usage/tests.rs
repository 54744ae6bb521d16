use serde_json::{Value, json};

use super::*;
use crate::samples::{attachment, definition, network, node, pod, view};

fn with_phase(mut pod: Value, phase: &str) -> Value {
    pod["status"]["phase"] = phase.into();
    pod
}

/// KEP-PN-U1
#[test]
fn a_pod_uses_the_networks_it_names_until_it_has_ended() {
    for (phase, uses) in [
        ("Pending", true),
        ("Running", true),
        ("Unknown", true),
        ("Succeeded", false),
        ("Failed", false),
    ] {
        let pod = with_phase(pod("web", &json!([{"name": "blue"}]), ""), phase);
        let usage = Usage::of(&view(&[network("blue"), pod]));
        let user = uses.then_some("pod shop/web");
        assert_eq!(usage.network_user("blue"), user, "{phase}");
    }
    proof::of!("KEP-PN-U1");
}

/// KEP-PN-U2
#[test]
fn a_pod_that_is_being_deleted_uses_its_networks_still() {
    let mut pod = with_phase(pod("web", &json!([{"name": "blue"}]), ""), "Running");
    pod["metadata"]["deletionTimestamp"] = "2026-11-20T10:00:00Z".into();
    let usage = Usage::of(&view(&[pod]));
    assert_eq!(usage.network_user("blue"), Some("pod shop/web"));
    proof::of!("KEP-PN-U2");
}

/// KEP-PN-U1, KEP-PN-U2, KEP-PNA-05
#[test]
fn an_attachment_uses_its_network_by_itself_and_for_its_pods() {
    let pna = attachment("shop", "fast", "blue");
    let usage = Usage::of(&view(std::slice::from_ref(&pna)));
    assert_eq!(
        usage.network_user("blue"),
        Some("PodNetworkAttachment shop/fast")
    );
    assert!(usage.by_pods.is_empty() && usage.attachments.is_empty());

    let through = pod("web", &json!([{"attachmentName": "fast"}]), "");
    let usage = Usage::of(&view(&[pna, through]));
    assert_eq!(usage.by_pods["blue"], "pod shop/web");
    let key = ("shop".to_owned(), "fast".to_owned());
    assert_eq!(usage.attachments[&key], "pod shop/web");
    proof::of!("KEP-PN-U1", "KEP-PN-U2", "KEP-PNA-05");
}

/// KEP-DEF-5
#[test]
fn a_pod_without_a_list_uses_the_default_network_and_one_of_its_node_none() {
    let plain = pod("web", &Value::Null, "");
    let mut host = pod("proxy", &Value::Null, "");
    host["spec"]["hostNetwork"] = true.into();
    assert_eq!(
        Usage::of(&view(&[plain])).network_user("default"),
        Some("pod shop/web")
    );
    assert_eq!(Usage::of(&view(&[host])), Usage::default());
    proof::of!("KEP-DEF-5");
}

/// A definition stands for a network of ours, or for none.
#[test]
fn a_definition_counts_by_the_pods_that_name_it() {
    let ours = definition("shop", "nad", r#"{"type": "podnet", "podNetwork": "blue"}"#);
    let by_name = definition("shop", "green", "");
    let attached = definition(
        "shop",
        "pna",
        r#"{"type": "podnet", "podNetworkAttachment": "fast"}"#,
    );
    let other = definition(
        "shop",
        "other",
        r#"{"cniVersion": "1.0.0", "type": "macvlan"}"#,
    );
    let none = Usage::of(&view(std::slice::from_ref(&ours)));
    assert_eq!(none, Usage::default());

    let pod = pod("web", &Value::Null, "nad, green, other, pna, missing");
    let objects = [ours, by_name, other, attached, pod];
    let usage = Usage::of(&view(&objects));
    let networks: Vec<&str> = usage.by_pods.keys().map(String::as_str).collect();
    assert_eq!(networks, ["blue", "default", "green"]);
    assert_eq!(usage.attachments.len(), 1);
    proof::of!("NPWG-3.2a");
}

#[test]
fn a_pod_uses_what_its_status_says_whatever_became_of_its_list() {
    let mut pod = pod("web", &Value::Null, "");
    let status = r#"[{"name": "blue", "interfaceName": "net1"}]"#;
    pod["metadata"]["annotations"][POD_NETWORK_STATUS_ANNOTATION] = status.into();
    let usage = Usage::of(&view(&[pod]));
    assert_eq!(usage.network_user("blue"), Some("pod shop/web"));
}

#[test]
fn lists_that_cannot_be_read_refer_to_nothing() {
    let usage = Usage::of(&view(&[pod("web", &json!([{"nam": "blue"}]), "")]));
    assert_eq!(usage, Usage::default());
}

#[test]
fn a_pod_holds_the_claim_it_names_even_when_it_has_ended() {
    let list = r#"[{"name": "blue", "ipam-claim-reference": "vm-a.blue"}]"#;
    let pod = with_phase(pod("vm-a", &Value::Null, list), "Succeeded");
    let usage = Usage::of(&view(&[pod]));
    let claim = ("shop".to_owned(), "vm-a.blue".to_owned());
    assert!(usage.claims.contains(&claim));
    assert!(usage.by_pods.is_empty());
    proof::of!("NPWG-8-T4");
}

fn on(mut pod: Value, node: &str) -> Value {
    pod["spec"]["nodeName"] = node.into();
    pod
}

fn attached_to(mut pod: Value, network: &str) -> Value {
    let status = json!([{"name": network, "interfaceName": "eth0"}]).to_string();
    pod["metadata"]["annotations"][POD_NETWORK_STATUS_ANNOTATION] = status.into();
    pod
}

/// KEP-DEF-6: a pod that was there before the annotation has the old network.
#[test]
fn a_pod_without_a_list_has_the_default_network_of_its_node_or_what_its_status_says() {
    let plain = || on(pod("web", &Value::Null, ""), "n1");
    let networks = |node: Value, pod: Value| -> Vec<String> {
        Usage::of(&view(&[node, pod])).by_pods.into_keys().collect()
    };
    let green = || node("n1", "podnetwork:green");
    assert_eq!(networks(green(), plain()), ["default", "green"]);
    assert_eq!(networks(green(), attached_to(plain(), "green")), ["green"]);
    assert_eq!(
        networks(green(), attached_to(plain(), "default")),
        ["default", "green"]
    );
    // Plugins of others may have made it, under the name of their configuration.
    let others = attached_to(plain(), "mynet");
    assert_eq!(networks(node("n1", "delegate"), others), ["mynet"]);
    // Nodes that refuse their pods, and the others.
    for unclear in ["podnetwork:-", ""] {
        assert_eq!(networks(node("n1", unclear), plain()), ["default"]);
    }
    assert_eq!(
        networks(node("n2", "podnetwork:green"), plain()),
        ["default"]
    );
    // A list means the same everywhere.
    let listed = on(pod("web", &json!([{"name": "default"}]), ""), "n1");
    assert_eq!(
        networks(green(), attached_to(listed, "red")),
        ["default", "red"]
    );
    proof::of!("KEP-DEF-6");
}

/// KEP-DEF-6
#[test]
fn a_pod_on_no_node_holds_the_default_network_while_any_node_would_give_it() {
    let plain = || pod("web", &Value::Null, "");
    let user = |nodes: &[Value]| {
        let objects = [nodes, &[plain()]].concat();
        Usage::of(&view(&objects)).network_user("default").is_some()
    };
    assert!(user(&[]));
    let moved = node("n1", "podnetwork:green");
    assert!(!user(std::slice::from_ref(&moved)));
    assert!(user(&[moved.clone(), node("n2", "podnetwork:default")]));
    assert!(user(&[moved, node("n2", "nonsense")]));
    proof::of!("KEP-DEF-6");
}
