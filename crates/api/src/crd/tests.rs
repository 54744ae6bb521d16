use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::*;
use crate::meta::{GROUP, Kind};

fn both() -> Vec<CustomResourceDefinition> {
    let mut all = own_definitions();
    all.extend(standard_definitions());
    all
}

/// The one schema of a definition.
fn schema(definition: &CustomResourceDefinition) -> Value {
    assert_eq!(definition.spec.versions.len(), 1);
    let version = &definition.spec.versions[0];
    serde_json::to_value(version.schema.as_ref().unwrap()).unwrap()["openAPIV3Schema"].clone()
}

/// Calls `look` with the path and the schema of every field.
fn walk(path: &str, schema: &Value, look: &mut impl FnMut(&str, &Value)) {
    look(path, schema);
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        walk(&format!("{path}.{name}"), property, look);
    }
    if let Some(items) = schema.get("items") {
        walk(&format!("{path}[]"), items, look);
    }
}

fn of(kind: &str) -> CustomResourceDefinition {
    both()
        .into_iter()
        .find(|definition| definition.spec.names.kind == kind)
        .unwrap_or_else(|| unreachable!("{kind} is not defined"))
}

#[test]
fn every_kind_a_manifest_may_have_is_defined_with_its_scope() {
    for kind in Kind::ALL {
        let definition = of(kind.as_str());
        assert_eq!(definition.spec.group, GROUP);
        let scope = if kind.is_namespaced() {
            "Namespaced"
        } else {
            "Cluster"
        };
        assert_eq!(definition.spec.scope, scope, "{kind}");
    }
}

#[test]
fn no_two_kinds_share_a_name() {
    let mut seen = BTreeSet::new();
    for definition in both() {
        let names = definition.spec.names;
        let short = names.short_names.unwrap_or_default();
        let all = short
            .into_iter()
            .chain([names.plural])
            .chain(names.singular);
        for name in all.collect::<BTreeSet<_>>() {
            assert!(seen.insert(name.clone()), "{name} is of two kinds");
        }
    }
}

#[test]
fn every_field_of_ours_is_explained_and_typed() {
    for definition in own_definitions() {
        walk("", &schema(&definition), &mut |path, field| {
            let at = format!("{}{path}", definition.spec.names.kind);
            assert!(
                field["nullable"].is_null() && field["title"].is_null(),
                "{at}"
            );
            let description = field["description"].as_str().unwrap_or_default();
            assert!(
                path.ends_with("[]") || !description.is_empty(),
                "{at} has no description"
            );
            assert!(!description.contains('\n'), "{at}");
            let untyped = field["x-kubernetes-preserve-unknown-fields"] == true;
            assert!(untyped || field["type"].is_string(), "{at} has no type");
        });
    }
}

/// The server refuses a definition when it cannot bound the cost of its rules.
#[test]
fn every_text_and_every_list_of_ours_has_a_limit() {
    for definition in own_definitions() {
        walk("", &schema(&definition), &mut |path, field| {
            let at = format!("{}{path}", definition.spec.names.kind);
            let bounded = match field["type"].as_str() {
                Some("string") => {
                    field["maxLength"].is_u64()
                        || field["enum"].is_array()
                        || field["format"] == "date-time"
                }
                Some("array") => field["maxItems"].is_u64(),
                _ => true,
            };
            assert!(bounded, "{at} has no limit");
        });
    }
}

/// KEP-PNA-04: without a required spec, a rule on it would not see it go.
#[test]
fn the_spec_is_required() {
    for definition in own_definitions() {
        let kind = &definition.spec.names.kind;
        assert_eq!(schema(&definition)["required"], json!(["spec"]), "{kind}");
    }
    proof::of!("KEP-PNA-04");
}

/// KEP-PN-01, KEP-P1-04
#[test]
fn a_pod_network_has_the_fields_of_the_kep() {
    let spec = &schema(&of("PodNetwork"))["properties"]["spec"];
    let names: Vec<_> = spec["properties"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["enabled", "parametersRefs", "provider"]);
    assert_eq!(spec["required"], Value::Null);
    assert_eq!(spec["properties"]["enabled"]["default"], true);
    let reference = &spec["properties"]["parametersRefs"]["items"];
    assert_eq!(reference["required"], json!(["group", "kind", "name"]));
    proof::of!("KEP-PN-01", "KEP-P1-04");
}

/// KEP-PN-04
#[test]
fn conditions_are_a_list_by_type_of_at_most_five() {
    for kind in ["PodNetwork", "PodNetworkAttachment"] {
        let definition = of(kind);
        assert!(definition.spec.versions[0].subresources.is_some(), "{kind}");
        let conditions = &schema(&definition)["properties"]["status"]["properties"]["conditions"];
        assert_eq!(conditions["maxItems"], 5, "{kind}");
        assert_eq!(conditions["x-kubernetes-list-type"], "map", "{kind}");
        assert_eq!(
            conditions["x-kubernetes-list-map-keys"],
            json!(["type"]),
            "{kind}"
        );
    }
    proof::of!("KEP-PN-04");
}

/// NPWG-3.1
#[test]
fn the_network_attachment_definition_has_the_names_of_the_standard() {
    let definition = of("NetworkAttachmentDefinition");
    assert_eq!(
        definition.metadata.name.as_deref(),
        Some("network-attachment-definitions.k8s.cni.cncf.io")
    );
    assert_eq!(
        serde_json::to_value(&definition.spec.names).unwrap(),
        json!({
            "kind": "NetworkAttachmentDefinition",
            "listKind": "NetworkAttachmentDefinitionList",
            "plural": "network-attachment-definitions",
            "singular": "network-attachment-definition",
            "shortNames": ["net-attach-def"],
        })
    );
    assert_eq!(definition.spec.scope, "Namespaced");
    assert_eq!(definition.spec.versions[0].name, "v1");
    let schema = schema(&definition);
    assert_eq!(schema["required"], Value::Null);
    let config = &schema["properties"]["spec"]["properties"]["config"];
    assert_eq!(config["type"], "string");
    proof::of!("NPWG-3.1");
}

/// NPWG-8.1
#[test]
fn the_ipam_claim_has_the_names_and_fields_of_the_standard() {
    let definition = of("IPAMClaim");
    assert_eq!(
        definition.metadata.name.as_deref(),
        Some("ipamclaims.k8s.cni.cncf.io")
    );
    assert_eq!(definition.spec.scope, "Namespaced");
    assert_eq!(definition.spec.versions[0].name, "v1alpha1");
    assert!(definition.spec.versions[0].subresources.is_some());
    let schema = schema(&definition);
    let spec = &schema["properties"]["spec"];
    assert_eq!(spec["required"], json!(["interface", "network"]));
    assert_eq!(schema["properties"]["status"]["required"], json!(["ips"]));
    proof::of!("NPWG-8.1");
}

/// Objects written for the API server come back with the same meaning.
/// A-MNP-01, A-MNP-06: without `endPort` the server would make a range its first port.
#[test]
fn a_multi_network_policy_keeps_its_ranges_of_ports() {
    let definition = of("MultiNetworkPolicy");
    assert_eq!(
        definition.metadata.name.as_deref(),
        Some("multi-networkpolicies.k8s.cni.cncf.io")
    );
    assert_eq!(definition.spec.versions[0].name, "v1beta1");
    let mut fields = BTreeSet::new();
    walk("", &schema(&definition), &mut |path, schema| {
        if !path.ends_with("[]") {
            let of_object = schema.get("additionalProperties").is_some();
            fields.insert(format!("{path}{}", if of_object { ".*" } else { "" }));
        }
    });
    for peers in ["ingress[].from[]", "egress[].to[]"] {
        let rule = peers.split('.').next().unwrap();
        for field in [
            format!("{rule}.ports[].endPort"),
            format!("{rule}.ports[].port"),
            format!("{rule}.ports[].protocol"),
            format!("{peers}.ipBlock.except"),
            format!("{peers}.namespaceSelector.matchExpressions[].values"),
            format!("{peers}.podSelector.matchLabels.*"),
        ] {
            assert!(
                fields.contains(&format!(".spec.{field}")),
                "{field}: {fields:?}"
            );
        }
    }
    assert!(fields.contains(".spec.policyTypes"));
}

#[test]
fn an_object_of_the_api_server_means_what_its_manifest_does() {
    let text = json!({
        "apiVersion": "podnet.dev/v1alpha1",
        "kind": "PodNetwork",
        "metadata": {"name": "blue", "labels": {"a": "b"}},
        "spec": {"enabled": false, "provider": "podnet.dev/ebpf"},
    });
    let object: PodNetwork = serde_json::from_value(text.clone()).unwrap();
    assert_eq!(serde_json::to_value(&object).unwrap(), text);
    let from_server = crate::Resource::from(&object);
    let from_file = crate::parse_manifests("blue.yaml", &text.to_string())
        .remove(0)
        .unwrap();
    assert_eq!(from_server, from_file.resource);
}

/// KEP-PN-01: a client that leaves out false would enable the network.
#[test]
fn a_disabled_network_is_written_as_disabled() {
    for (written, enabled) in [(json!({}), true), (json!({"enabled": false}), false)] {
        let spec: crate::PodNetworkSpec = serde_json::from_value(written).unwrap();
        assert_eq!(serde_json::to_value(spec).unwrap()["enabled"], enabled);
    }
    proof::of!("KEP-PN-01");
}
