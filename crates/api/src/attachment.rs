//! `PodNetworkAttachment`: a parameterised way to attach to one network (KEP-3698).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_core::Rule;
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    condition,
    meta::{ParametersRef, SUBDOMAIN_PATTERN, null_as_default},
};

/// `spec` of a `PodNetworkAttachment`.
#[expect(
    clippy::duplicated_attributes,
    reason = "two columns may have one type"
)]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, CustomResource, JsonSchema)]
#[kube(
    group = "podnet.dev",
    version = "v1alpha1",
    kind = "PodNetworkAttachment",
    plural = "podnetworkattachments",
    singular = "podnetworkattachment",
    shortname = "pna",
    // Without the categories of PodNetwork: kubectl takes a category before a plural, so that
    // `kubectl get podnetwork blue` would ask for attachments too, and fail.
    namespaced,
    status = "PodNetworkAttachmentStatus",
    derive = "PartialEq",
    doc = "A parameterised way to attach to one PodNetwork (KEP-3698).",
    crates(kube_core = "::kube_core"),
    printcolumn(
        name = "Network",
        type_ = "string",
        json_path = ".spec.podNetworkName",
        description = "The PodNetwork it attaches to"
    ),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status",
        description = "Whether new pods can use it"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason",
        description = "Why it is ready or not"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[schemars(extend("x-kubernetes-validations" = [
    Rule::new("self == oldSelf")
        .message("is immutable; make another PodNetworkAttachment"),
]))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PodNetworkAttachmentSpec {
    /// The one network this attaches to; it may be created later.
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = SUBDOMAIN_PATTERN)
    )]
    pub pod_network_name: String,
    /// The parameters that the attachment asks for: `AttachmentParameters`, merged.
    #[schemars(length(max = 16))]
    #[schemars(extend("x-kubernetes-validations" = [
        Rule::new("self.all(a, self.exists_one(b, a == b))")
            .message("has the same reference twice; remove one"),
    ]))]
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub parameters_refs: Vec<ParametersRef>,
}

/// `status` of a `PodNetworkAttachment`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodNetworkAttachmentStatus {
    /// `Ready`, and `ParamsReady` where the attachment has parameters (KEP-3698).
    #[schemars(schema_with = "condition::list_schema")]
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub conditions: Vec<Condition>,
}
