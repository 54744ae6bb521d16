//! `Port`: a MAC address and addresses on one network that outlive pods and nodes.
//!
//! A pod names a Port of its namespace, and gets what the Port has. One pod has it at a time, and the next one, on
//! any node, has the same addresses. Meaning and refusal of values are in `validate`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_core::Rule;
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::meta::{SUBDOMAIN_PATTERN, null_as_default};
use crate::{condition, requests};

/// `spec` of a `Port`.
#[expect(
    clippy::duplicated_attributes,
    reason = "two columns may have one type"
)]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, CustomResource, JsonSchema)]
#[kube(
    group = "podnet.dev",
    version = "v1alpha1",
    kind = "Port",
    plural = "ports",
    singular = "port",
    shortname = "pnport",
    namespaced,
    status = "PortStatus",
    derive = "PartialEq",
    doc = "A MAC address and addresses on one PodNetwork that outlive pods and nodes.",
    crates(kube_core = "::kube_core"),
    printcolumn(
        name = "Network",
        type_ = "string",
        json_path = ".spec.network",
        description = "The PodNetwork"
    ),
    printcolumn(
        name = "MAC",
        type_ = "string",
        json_path = ".status.mac",
        description = "Its MAC address"
    ),
    printcolumn(
        name = "Addresses",
        type_ = "string",
        json_path = ".status.ips",
        description = "Its addresses"
    ),
    printcolumn(
        name = "Pod",
        type_ = "string",
        json_path = ".status.user.pod",
        description = "The pod that has it"
    ),
    printcolumn(
        name = "Node",
        type_ = "string",
        json_path = ".status.user.node",
        description = "The node of that pod"
    ),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status",
        description = "Whether a pod can have it"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason",
        description = "Why it is ready or not",
        priority = 1
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[schemars(extend("x-kubernetes-validations" = [
    Rule::new("self == oldSelf")
        .message("is immutable; make another Port"),
]))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PortSpec {
    /// Name of the `PodNetwork`; it may be created later.
    #[schemars(length(min = 1, max = 213), regex(pattern = SUBDOMAIN_PATTERN))]
    pub network: String,
    /// The MAC address that it has; derived from the UID of the object when absent.
    #[schemars(schema_with = "requests::mac")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac_request: Option<String>,
    /// Addresses that it has, with or without a prefix length.
    ///
    /// Without any, it has those that its first pod gets, from then on.
    #[schemars(schema_with = "requests::ips")]
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub ip_requests: Vec<String>,
}

/// `status` of a `Port`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PortStatus {
    /// `Ready`: whether a pod can have it.
    #[schemars(schema_with = "condition::list_schema")]
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub conditions: Vec<Condition>,
    /// Its MAC address.
    #[schemars(length(max = 17), regex(pattern = "^[0-9a-f]{2}(:[0-9a-f]{2}){5}$"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// Its addresses, each with its prefix length; empty until its first pod has them.
    #[schemars(length(max = 16), inner(length(max = 43)))]
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub ips: Vec<String>,
    /// The pod that has it, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<PortUser>,
    /// Number of pods that have had it, the present one counted.
    #[schemars(range(min = 0))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<i64>,
}

/// The pod that has a `Port`, in the namespace of the Port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PortUser {
    /// Name of the pod.
    #[schemars(length(min = 1, max = 253), regex(pattern = SUBDOMAIN_PATTERN))]
    pub pod: String,
    /// UID of the pod: one of the same name that comes later is another pod.
    #[schemars(length(min = 1, max = 128))]
    pub uid: String,
    /// Name of the node it runs on.
    #[schemars(length(min = 1, max = 253), regex(pattern = SUBDOMAIN_PATTERN))]
    pub node: String,
}
