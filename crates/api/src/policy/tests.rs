use serde_json::json;

use super::*;

fn annotated(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    let pairs = pairs.iter();
    pairs
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

fn read(kind: PolicyKind, pairs: &[(&str, &str)]) -> PolicyObject {
    let namespace = if kind.is_namespaced() { "a" } else { "" };
    PolicyObject::read(kind, (namespace, "p"), &annotated(pairs), Value::Null)
}

fn networks_of(kind: PolicyKind, pairs: &[(&str, &str)]) -> PolicyNetworks {
    read(kind, pairs).networks
}

fn pod_networks(names: &[&str]) -> PolicyNetworks {
    PolicyNetworks::PodNetworks(names.iter().map(|name| (*name).to_owned()).collect())
}

fn definitions(names: &[(&str, &str)]) -> PolicyNetworks {
    let names = names.iter();
    PolicyNetworks::Definitions(
        names
            .map(|(namespace, name)| ((*namespace).to_owned(), (*name).to_owned()))
            .collect(),
    )
}

/// A-NP-15, A-MNP-14.
#[test]
fn a_policy_names_pod_networks_or_is_for_the_default_network() {
    for kind in [PolicyKind::NetworkPolicy, PolicyKind::ClusterNetworkPolicy] {
        assert_eq!(networks_of(kind, &[]), PolicyNetworks::Default);
        // Of MultiNetworkPolicy only.
        assert_eq!(
            networks_of(kind, &[(POLICY_FOR_ANNOTATION, "lan")]),
            PolicyNetworks::Default
        );
    }
    for kind in PolicyKind::ALL {
        let policy = read(kind, &[(POD_NETWORKS_ANNOTATION, " red, blue ,,red")]);
        assert_eq!(policy.networks, pod_networks(&["blue", "red"]));
        assert_eq!(policy.problems, [""; 0]);
        assert!(policy.networks.names_any());
    }
}

/// A-MNP-02, A-MNP-03.
#[test]
fn a_multi_network_policy_names_definitions_or_is_for_nothing() {
    let of = |text| {
        read(
            PolicyKind::MultiNetworkPolicy,
            &[(POLICY_FOR_ANNOTATION, text)],
        )
    };
    let policy = of("lan, ops/wan ,a/lan");
    assert_eq!(
        policy.networks,
        definitions(&[("a", "lan"), ("ops", "wan")])
    );
    assert_eq!(policy.problems, [""; 0]);
    let skipped = of("ops/x/y, lan");
    assert_eq!(skipped.networks, definitions(&[("a", "lan")]));
    assert!(skipped.problems[0].contains("\"x/y\""), "{skipped:?}");
    for nothing in [of(""), of(" , "), read(PolicyKind::MultiNetworkPolicy, &[])] {
        assert_eq!(nothing.networks, definitions(&[]));
        assert!(!nothing.networks.names_any());
        assert!(
            nothing.problems[0].contains("for no network"),
            "{nothing:?}"
        );
    }
}

#[test]
fn names_that_are_none_are_told_and_left_out() {
    let policy = read(
        PolicyKind::NetworkPolicy,
        &[(POD_NETWORKS_ANNOTATION, "Blue, red")],
    );
    assert_eq!(policy.networks, pod_networks(&["red"]));
    assert_eq!(policy.problems.len(), 1);
    assert!(policy.problems[0].starts_with("annotation podnet.dev/networks: \"Blue\" is not"));

    // The list of pods has the same key and is no list of names.
    let list = read(
        PolicyKind::NetworkPolicy,
        &[(POD_NETWORKS_ANNOTATION, "[{\"podNetworkName\": \"red\"}]")],
    );
    assert_eq!(list.networks, pod_networks(&[]));
    assert_eq!(list.problems.len(), 2, "{list:?}");

    let both = read(
        PolicyKind::MultiNetworkPolicy,
        &[
            (POLICY_FOR_ANNOTATION, "lan"),
            (POD_NETWORKS_ANNOTATION, "red"),
        ],
    );
    assert_eq!(both.networks, pod_networks(&["red"]));
    assert!(both.problems[0].contains("write one of the two"));
}

#[test]
fn names_and_bytes_have_a_limit() {
    let many: Vec<String> = (0..POLICY_NETWORKS_MAX + 2)
        .map(|number| format!("n{number:03}"))
        .collect();
    let policy = read(
        PolicyKind::NetworkPolicy,
        &[(POD_NETWORKS_ANNOTATION, &many.join(","))],
    );
    let PolicyNetworks::PodNetworks(names) = policy.networks else {
        panic!("no names")
    };
    assert_eq!(names.len(), POLICY_NETWORKS_MAX);
    assert!(policy.problems[0].contains("2 names too many"));

    let of = |bytes: usize| {
        // {"podSelector":{},"x":"..."}
        let spec = json!({"podSelector": {}, "x": "y".repeat(bytes - 25)});
        PolicyObject::read(
            PolicyKind::NetworkPolicy,
            ("a", "p"),
            &BTreeMap::new(),
            spec,
        )
    };
    let largest = of(POLICY_SPEC_MAX);
    assert_eq!(largest.problems.len(), 0);
    assert!(largest.spec.get("x").is_some());
    let larger = of(POLICY_SPEC_MAX + 1);
    assert!(
        larger.problems[0].starts_with(
            "the spec has 262145 bytes as JSON: what it selects gets and sends nothing"
        )
    );
    let isolating = json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"]});
    assert_eq!(larger.spec, isolating);
}
