use overview::samples::{network, node, ours, parameters, pod, view};
use serde_json::{Value, json};

use super::*;

fn followed(kind: PolicyKind, name: &str, networks: &str, spec: Value) -> Followed {
    let mut annotations = BTreeMap::new();
    if !networks.is_empty() {
        annotations.insert("podnet.dev/networks".to_owned(), networks.to_owned());
    }
    let policy = PolicyObject::read(kind, ("shop", name), &annotations, spec);
    Followed::new(format!("{name}-uid"), &policy)
}

fn policy(name: &str, networks: &str, spec: Value) -> Followed {
    followed(PolicyKind::NetworkPolicy, name, networks, spec)
}

/// Reasons and texts of what is said in the second look.
fn said(all: Vec<Followed>) -> Vec<(&'static str, String)> {
    let mut web = pod("web", &json!([{"name": "blue"}]), "");
    web["metadata"]["labels"] = json!({"app": "web"});
    let view = view(&[network("blue"), parameters("blue", Some(7)), web]);
    let shop = BTreeMap::from([("team".to_owned(), "a".to_owned())]);
    let all: Vec<Arc<Followed>> = all.into_iter().map(Arc::new).collect();
    let policies = || Policies {
        all: all.clone(),
        namespaces: BTreeMap::from([("shop".to_owned(), shop.clone())]),
    };
    let first = policies().look(&view, &BTreeSet::new());
    assert!(
        first
            .notes
            .iter()
            .all(|note| note.reason != "SelectsNothing"),
        "pods come after their policy: {first:?}"
    );
    let second = policies().look(&view, &first.selecting_none);
    let notes = second.notes.into_iter();
    notes.map(|note| (note.reason, note.text)).collect()
}

fn one_rule(app: &str, rule: &Value) -> Value {
    json!({"podSelector": {"matchLabels": {"app": app}}, "ingress": [rule]})
}

#[test]
fn of_a_policy_that_is_obeyed_and_selects_pods_nothing_is_said() {
    let peers = json!({"from": [{"podSelector": {}}]});
    let any_peer = json!({"ports": [{"port": 443}]});
    let fine = [
        policy("a", "blue", one_rule("web", &peers)),
        policy("b", "blue", one_rule("web", &any_peer)),
        policy("c", "blue", json!({"podSelector": {}})),
        // For the default network, which is none of podnet's here.
        policy(
            "d",
            "",
            json!({"podSelector": {"matchLabels": {"app": "x"}}, "ingress": [{}]}),
        ),
    ];
    assert_eq!(said(fine.into()), []);
}

#[test]
fn a_policy_that_selects_no_pod_of_its_networks_is_told_in_the_second_look() {
    let peers = || json!({"from": [{"podSelector": {}}]});
    let lost = policy("a", "blue", one_rule("db", &peers()));
    let found = said(vec![lost]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].0, "SelectsNothing");
    assert!(
        found[0]
            .1
            .starts_with("the policy selects no pod of the network")
    );
    // Nothing tells which pods the one that is not there would have.
    let found = said(vec![policy("a", "green", one_rule("db", &peers()))]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].0, "NotObeyed");
    // Nor which pods one would select that is for no network.
    let found = said(vec![policy("a", ",", one_rule("db", &peers()))]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].0, "NotObeyed");
    // The pod is not on the other network, and it is on this one.
    let of_both = policy("b", "blue, green", one_rule("web", &peers()));
    let found = said(vec![of_both]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].0, "NotObeyed");
    assert!(found[0].1.starts_with("PodNetwork green does not exist"));
}

#[test]
fn a_rule_that_allows_everything_is_told() {
    for rule in [
        json!({}),
        json!({"from": []}),
        json!({"from": [], "ports": []}),
    ] {
        let found = said(vec![policy("a", "blue", one_rule("web", &rule))]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].0, "AllowsEverything");
        assert!(found[0].1.starts_with("ingress rule 1 (spec.ingress[0])"));
    }
}

#[test]
fn a_policy_that_is_not_obeyed_as_written_is_told_with_all_reasons() {
    let wrong = json!({"from": [{"podSelector": {}, "ipBlock": {"cidr": "10.0.0.0/8"}}]});
    let spec = json!({
        "podSelector": {}, "policyTypes": ["Ingress", "Both"], "ingress": [wrong],
    });
    let found = said(vec![policy("a", "blue", spec)]);
    assert_eq!(found[0].0, "NotObeyed");
    for part in ["spec.policyTypes[1]", "spec.ingress[0].from[0]"] {
        assert!(found[0].1.contains(part), "{found:?}");
    }
}

#[test]
fn an_event_is_about_the_object_of_its_kind() {
    let cluster = followed(PolicyKind::ClusterNetworkPolicy, "all", "blue", json!({}));
    let about = about(&cluster);
    assert_eq!(about.namespace, None);
    assert_eq!(
        about.api_version.as_deref(),
        Some("policy.networking.k8s.io/v1alpha2")
    );
    assert_eq!(about.kind.as_deref(), Some("ClusterNetworkPolicy"));
    let multi = followed(PolicyKind::MultiNetworkPolicy, "m", "blue", json!({}));
    let about = super::about(&multi);
    assert_eq!(about.namespace.as_deref(), Some("shop"));
    assert_eq!(about.uid.as_deref(), Some("m-uid"));
}

#[test]
fn a_policy_for_the_default_network_is_judged_on_each_one_that_nodes_have() {
    let routed = |name: &str| {
        let spec = json!({"mode": "L3", "routing": "Node", "subnets": ["10.1.0.0/16"]});
        [
            network(name),
            ours("PodNetworkParameters", json!({"name": name}), spec),
        ]
    };
    let mut web = pod("web", &Value::Null, "");
    web["metadata"]["labels"] = json!({"app": "web"});
    web["spec"]["nodeName"] = "n1".into();
    let mut objects = vec![web, node("n1", "own")];
    objects.extend(routed("own"));
    objects.extend(routed("default"));
    let shop = BTreeMap::from([("shop".to_owned(), policy::Labels::new())]);
    let look = |app: &str| {
        let one = policy(
            "a",
            "",
            one_rule(app, &json!({"from": [{"podSelector": {}}]})),
        );
        let policies = Policies {
            all: vec![Arc::new(one)],
            namespaces: shop.clone(),
        };
        policies.look(&view(&objects), &BTreeSet::from(["a-uid".to_owned()]))
    };
    assert_eq!(look("web").notes, []);
    let lost = look("db").notes;
    assert_eq!(lost.len(), 1, "{lost:?}");
    assert_eq!(lost[0].reason, "SelectsNothing");
}
