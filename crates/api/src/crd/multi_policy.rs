//! Define MultiNetworkPolicy with `endPort` in the version that is served.
//!
//! The project that it is from serves v1beta1 without that field, so the server cuts it and a range of ports
//! becomes its first. Defaults and rules across fields are not the definition's: what NetworkPolicy's server
//! would refuse is told by the agents.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionNames, CustomResourceDefinitionSpec,
    CustomResourceDefinitionVersion, CustomResourceValidation, JSONSchemaProps,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use crate::policy::PolicyKind;

const PLURAL: &str = "multi-networkpolicies";

pub(super) fn definition() -> CustomResourceDefinition {
    let kind = PolicyKind::MultiNetworkPolicy;
    let version = kind.versions().first().copied().unwrap_or_default();
    CustomResourceDefinition {
        metadata: ObjectMeta {
            name: Some(format!("{PLURAL}.{}", kind.group())),
            ..Default::default()
        },
        spec: CustomResourceDefinitionSpec {
            group: kind.group().to_owned(),
            names: CustomResourceDefinitionNames {
                kind: kind.as_str().to_owned(),
                plural: PLURAL.to_owned(),
                singular: Some("multi-networkpolicy".to_owned()),
                short_names: Some(vec!["multi-policy".to_owned()]),
                ..Default::default()
            },
            scope: "Namespaced".to_owned(),
            versions: vec![CustomResourceDefinitionVersion {
                name: version.to_owned(),
                served: true,
                storage: true,
                schema: Some(CustomResourceValidation {
                    open_api_v3_schema: Some(schema()),
                }),
                ..Default::default()
            }],
            ..Default::default()
        },
        status: None,
    }
}

fn schema() -> JSONSchemaProps {
    let ingress = rule(
        "from",
        "Senders that may reach the pods; none written: all.",
    );
    let egress = rule(
        "to",
        "Receivers that the pods may reach; none written: all.",
    );
    let directions = json!({
        "description": "Directions in which only what a rule allows may pass. None written: Ingress, and Egress \
                        if there are rules for it.",
        "type": "array",
        "items": {"type": "string"},
    });
    let spec = json!({
        "description": "Traffic that selected pods may have on the networks of the policy.",
        "type": "object",
        "properties": {
            "podSelector": selector("Pods of the policy's namespace that it is for; the empty one: all."),
            "policyTypes": directions,
            "ingress": list("Rules for what the pods receive.", &ingress),
            "egress": list("Rules for what the pods send.", &egress),
        },
    });
    let root = json!({
        "description": "A NetworkPolicy for the networks of NetworkAttachmentDefinitions that the annotation \
                        k8s.v1.cni.cncf.io/policy-for names.",
        "type": "object",
        "properties": {"spec": spec},
    });
    // A test reads every field of it.
    serde_json::from_value(root).unwrap_or_default()
}

fn rule(peers: &str, description: &str) -> Value {
    json!({
        "type": "object",
        "properties": {
            "ports": list("Ports of the receiver; none written: all, and traffic without ports.", &port()),
            peers: list(description, &peer()),
        },
    })
}

fn port() -> Value {
    json!({
        "type": "object",
        "properties": {
            "protocol": {"description": "TCP, UDP or SCTP; TCP if not written.", "type": "string"},
            "port": {
                "description": "Number, or name of a port of the receiving pod; all of the protocol if not written.",
                "x-kubernetes-int-or-string": true,
            },
            "endPort": {
                "description": "Last port of a range that begins with port, which is a number.",
                "type": "integer",
                "format": "int32",
            },
        },
    })
}

fn peer() -> Value {
    let block = json!({
        "description": "Addresses; with no selector next to it.",
        "type": "object",
        "required": ["cidr"],
        "properties": {
            "cidr": {"description": "The network, as 192.0.2.0/24 or 2001:db8::/64.", "type": "string"},
            "except": {
                "description": "Parts of cidr that this item does not allow.",
                "type": "array",
                "items": {"type": "string"},
            },
        },
    });
    json!({
        "type": "object",
        "properties": {
            "podSelector": selector("Pods of the policy's namespace, or of those that are selected next to it."),
            "namespaceSelector": selector("Namespaces of the pods; the empty one: all."),
            "ipBlock": block,
        },
    })
}

fn selector(description: &str) -> Value {
    let expression = json!({
        "type": "object",
        "required": ["key", "operator"],
        "properties": {
            "key": {"description": "Key of the label.", "type": "string"},
            "operator": {"description": "In, NotIn, Exists or DoesNotExist.", "type": "string"},
            "values": {
                "description": "Values for In and NotIn.",
                "type": "array",
                "items": {"type": "string"},
            },
        },
    });
    json!({
        "description": description,
        "type": "object",
        "properties": {
            "matchLabels": {
                "description": "Labels that an object has.",
                "type": "object",
                "additionalProperties": {"type": "string"},
            },
            "matchExpressions": list("Conditions on labels; all hold.", &expression),
        },
    })
}

fn list(description: &str, items: &Value) -> Value {
    json!({"description": description, "type": "array", "items": items})
}
