//! `Vpc`: networks that are routed to each other, and to nothing else.
//!
//! A subnet of a VPC is a `PodNetwork` whose parameters name the VPC. Meaning and refusal of values are in
//! `validate`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_core::Rule;
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition;
use crate::meta::{SUBDOMAIN_PATTERN, null_as_default};

/// The most prefixes of a VPC.
pub(crate) const VPC_CIDRS_MAX: u32 = 8;
/// The most VPCs that one has as peers.
pub(crate) const VPC_PEERS_MAX: u32 = 16;

/// `spec` of a `Vpc`.
#[expect(
    clippy::duplicated_attributes,
    reason = "two columns may have one type"
)]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, CustomResource, JsonSchema)]
#[kube(
    group = "podnet.dev",
    version = "v1alpha1",
    kind = "Vpc",
    plural = "vpcs",
    singular = "vpc",
    status = "VpcStatus",
    derive = "PartialEq",
    doc = "Networks that are routed to each other, and to nothing else.",
    crates(kube_core = "::kube_core"),
    printcolumn(
        name = "CIDRs",
        type_ = "string",
        json_path = ".spec.cidrs",
        description = "Prefixes that the subnets are of"
    ),
    printcolumn(
        name = "Networks",
        type_ = "integer",
        json_path = ".status.networks",
        description = "PodNetworks that are routed to each other"
    ),
    printcolumn(
        name = "Peers",
        type_ = "string",
        json_path = ".spec.peers[*].vpc",
        description = "VPCs that it is to be routed to",
        priority = 1
    ),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status",
        description = "Whether all of it is in force"
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
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VpcSpec {
    /// Prefixes that the subnets of its networks are of.
    ///
    /// Pods get a route to each by the virtual gateway of their network. What no pod has of them is dropped, and leaves by no
    /// egress.
    #[schemars(length(min = 1, max = VPC_CIDRS_MAX), inner(length(max = 43)))]
    #[schemars(extend("x-kubernetes-validations" = [
        Rule::new("self.all(s, isCIDR(s) && cidr(s) == cidr(s).masked() && cidr(s).prefixLength() > 0)")
            .message("must be prefixes with all host bits zero, as 10.0.0.0/8 or fd10::/48"),
        Rule::new("!self.all(s, isCIDR(s)) || self.all(a, self.exists_one(b, cidr(a).containsCIDR(b) || cidr(b).containsCIDR(a)))")
            .message("two of them overlap; make them disjoint"),
        Rule::new("self.all(s, !isCIDR(s) || !['0.0.0.0/8', '127.0.0.0/8', '169.254.0.0/16', '224.0.0.0/4', '255.255.255.255/32', '::/8', 'fe80::/10', 'ff00::/8'].exists(p, cidr(p).containsCIDR(s) || cidr(s).containsCIDR(p)))")
            .message("must be unicast prefixes, not in or around 0.0.0.0/8, 127.0.0.0/8, 169.254.0.0/16, 224.0.0.0/4, 255.255.255.255, ::/8, fe80::/10 or ff00::/8"),
    ]))]
    pub cidrs: Vec<String>,
    /// VPCs that it is routed to.
    ///
    /// They have to name it as well, and no prefix of theirs may overlap. Their own peers are not reached by them.
    #[schemars(length(max = VPC_PEERS_MAX))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["vpc"]))]
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub peers: Vec<VpcPeerSpec>,
}

/// One of `spec.peers` of a `Vpc`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VpcPeerSpec {
    /// Name of the other `Vpc`.
    #[schemars(length(min = 1, max = 253), regex(pattern = SUBDOMAIN_PATTERN))]
    pub vpc: String,
}

/// `status` of a `Vpc`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VpcStatus {
    /// `Ready`: whether podnet reads it, and every peer of it is in force.
    #[schemars(schema_with = "condition::list_schema")]
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub conditions: Vec<Condition>,
    /// Number of the `PodNetwork`s that are routed to each other.
    #[schemars(range(min = 0))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub networks: Option<i64>,
}
