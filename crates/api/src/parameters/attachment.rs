//! `AttachmentParameters`, as written.

use kube_core::Rule;
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ParametersStatus;
use crate::interface::InterfaceSpec;
use crate::meta::null_as_default;
use crate::outside::{ROUTES_MAX, RouteSpec};
use crate::requests;
use crate::validate::RATE_MAX;

/// `spec` of `AttachmentParameters`.
#[expect(
    clippy::duplicated_attributes,
    reason = "two columns may have one type"
)]
#[derive(
    Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, CustomResource, JsonSchema,
)]
#[kube(
    group = "podnet.dev",
    version = "v1alpha1",
    kind = "AttachmentParameters",
    plural = "attachmentparameters",
    singular = "attachmentparameters",
    shortname = "pnap",
    namespaced,
    status = "ParametersStatus",
    derive = "PartialEq",
    doc = "Parameters of one attachment to a PodNetwork of provider podnet.dev/ebpf.",
    crates(kube_core = "::kube_core"),
    printcolumn(
        name = "Addresses",
        type_ = "string",
        json_path = ".spec.ipRequests",
        description = "Addresses the interface must have"
    ),
    printcolumn(
        name = "MAC",
        type_ = "string",
        json_path = ".spec.macRequest",
        description = "MAC address the interface must have"
    ),
    printcolumn(
        name = "Valid",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Valid\")].status",
        description = "Whether podnet reads it"
    ),
    printcolumn(
        name = "Used",
        type_ = "integer",
        json_path = ".status.usedBy",
        description = "Objects that name it"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AttachmentParametersSpec {
    /// Rate into the pod, bit/s; 0 means no limit, absent the network's default.
    #[schemars(range(min = 0, max = RATE_MAX))]
    #[schemars(extend("x-kubernetes-validations" = [
        Rule::new("self == 0 || self >= 1000")
            .message("must be 0 or at least 1000 bit/s"),
    ]))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingress_rate: Option<i64>,
    /// Rate out of the pod, bit/s; 0 means no limit, absent the network's default.
    #[schemars(range(min = 0, max = RATE_MAX))]
    #[schemars(extend("x-kubernetes-validations" = [
        Rule::new("self == 0 || self >= 1000")
            .message("must be 0 or at least 1000 bit/s"),
    ]))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress_rate: Option<i64>,
    /// Burst into the pod, bits; chosen from the rate when 0 or absent.
    #[schemars(range(min = 0))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingress_burst: Option<i64>,
    /// Burst out of the pod, bits; chosen from the rate when 0 or absent.
    #[schemars(range(min = 0))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress_burst: Option<i64>,
    /// Kind of the port; the network's when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<InterfaceSpec>,
    /// The MAC address the interface must have.
    #[schemars(schema_with = "requests::mac")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac_request: Option<String>,
    /// Addresses the interface must have, with or without a prefix length.
    #[schemars(schema_with = "requests::ips")]
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub ip_requests: Vec<String>,
    /// Routes that the pod gets through this attachment, besides the network's.
    ///
    /// Of two routes to the same prefix, the attachment's holds.
    #[schemars(length(max = ROUTES_MAX))]
    #[schemars(extend("x-kubernetes-validations" = [
        Rule::new("self.all(a, self.exists_one(b, a.dst == b.dst))")
            .message("two of them lead to the same prefix; remove one"),
    ]))]
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub routes: Vec<RouteSpec>,
}
