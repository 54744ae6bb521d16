//! `PodNetworkEndpointSlice`: the members that one node has of a network.
//!
//! Networks that span nodes have slices of every node.
//!
//! - A node writes slices for the networks of which it has members, and no other writer does. It
//!   says in each by which addresses tunnels reach it, and up to 256 of its members.
//! - An endpoint stays in its slice, so a change writes one slice, whatever the size of the network.
//! - Labels name the network and the node, for who follows some networks only. A label is shorter
//!   than a name may be: see [`label_value`]. What counts is the spec.
//! - Fields that are not known are passed over: a node of a later version may write them.
//! - Where two nodes claim one address, for a moment of a move, the later claim holds: see
//!   [`SliceEndpoint::since`].

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube_core::Rule;
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    meta::{NameError, SUBDOMAIN_PATTERN, check_subdomain, digest, null_as_default},
    validate::{Endpoint, NetworkId},
};

#[cfg(test)]
mod tests;

/// The most endpoints of one slice.
pub const ENDPOINTS_MAX: usize = 256;
/// The most addresses of one endpoint.
pub const ENDPOINT_IPS_MAX: usize = 64;
/// The most bytes of namespace and name of an endpoint's pod.
pub const ENDPOINT_POD_MAX: usize = 317;
/// The most labels of one endpoint.
pub const ENDPOINT_LABELS_MAX: usize = 64;
/// Namespace and name of a pod, as a schema says it.
const POD_PATTERN: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?/[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
/// The label with the network, as [`label_value`] writes it.
pub const NETWORK_LABEL: &str = "podnet.dev/network";
/// The label with the node, as [`label_value`] writes it.
pub const NODE_LABEL: &str = "podnet.dev/node";
/// Annotation of a `Node`: further addresses at which tunnels may reach it.
///
/// They are separated by commas.
pub const VTEPS_ANNOTATION: &str = "podnet.dev/vteps";
/// The longest value of a label, bytes.
const LABEL_VALUE_MAX: usize = 63;
/// Longest names of network and node in the name of a slice, bytes together.
///
/// An object's name has room for these and a number.
const NAMES_MAX: usize = 240;

/// `spec` of a `PodNetworkEndpointSlice`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, CustomResource, JsonSchema)]
#[kube(
    group = "podnet.dev",
    version = "v1alpha1",
    kind = "PodNetworkEndpointSlice",
    plural = "podnetworkendpointslices",
    singular = "podnetworkendpointslice",
    shortname = "pnes",
    derive = "PartialEq",
    doc = "Members of a PodNetwork that one node has, and how tunnels reach it. Made and removed by podnet.",
    crates(kube = "::kube_derive", kube_core = "::kube_core"),
    attr = "x_kube(crates(kube_core = ::kube_core))",
    validation = Rule::new("size(self.spec.network) + size(self.spec.node) > 240 \
        || self.metadata.name.startsWith(self.spec.network + '.' + self.spec.node + '.')")
        .message("metadata.name must be the network, the node and a number with dots between, as blue.node-1.0"),
    selectable = ".spec.network",
    selectable = ".spec.node",
    printcolumn(
        name = "Network",
        type_ = "string",
        json_path = ".spec.network",
        description = "The PodNetwork"
    ),
    printcolumn(
        name = "ID",
        type_ = "integer",
        json_path = ".spec.networkID",
        description = "Number of the PodNetwork"
    ),
    printcolumn(
        name = "Node",
        type_ = "string",
        json_path = ".spec.node",
        description = "The node that has the members"
    ),
    printcolumn(
        name = "VTEPs",
        type_ = "string",
        json_path = ".spec.vteps",
        description = "By which addresses tunnels reach the node"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[schemars(extend("x-kubernetes-validations" = [
    Rule::new("self.network == oldSelf.network && self.node == oldSelf.node")
        .message("network and node are immutable; delete the slice and make another"),
]))]
#[serde(rename_all = "camelCase")]
pub struct PodNetworkEndpointSliceSpec {
    /// Name of the `PodNetwork`.
    #[schemars(length(min = 1, max = 213), regex(pattern = SUBDOMAIN_PATTERN))]
    pub network: String,
    /// Number of the `PodNetwork`, which is in the tunnel's header; 1 to 16777215.
    #[schemars(range(min = NetworkId::MIN, max = NetworkId::MAX))]
    #[serde(rename = "networkID")]
    pub network_id: i64,
    /// Name of the node that has these members.
    #[schemars(length(min = 1, max = 253), regex(pattern = SUBDOMAIN_PATTERN))]
    pub node: String,
    /// By which addresses tunnels reach the node: one of IPv4, one of IPv6, or both.
    #[schemars(length(min = 1, max = 2), inner(length(min = 1, max = 39)))]
    #[schemars(extend("x-kubernetes-validations" = [
        Rule::new("self.all(a, isIP(a) && ip.isCanonical(a))")
            .message("must be addresses in canonical form, as 192.0.2.7 or 2001:db8::7"),
        Rule::new("self.exists_one(a, a.contains(':')) || self.size() == 1")
            .message("are at most one of IPv4 and one of IPv6"),
    ]))]
    pub vteps: Vec<String>,
    /// The members, each with its own MAC address.
    #[schemars(length(min = 1, max = ENDPOINTS_MAX))]
    #[schemars(extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["mac"],
    ))]
    pub endpoints: Vec<SliceEndpoint>,
}

/// One member of a network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SliceEndpoint {
    /// Its MAC address, in lower case with colons.
    #[schemars(
        length(max = 17),
        regex(pattern = "^[0-9a-f][02468ace](:[0-9a-f]{2}){5}$")
    )]
    pub mac: String,
    /// Its addresses; none where the network has no subnets.
    #[schemars(length(max = ENDPOINT_IPS_MAX), inner(length(min = 1, max = 39)))]
    #[schemars(extend("x-kubernetes-validations" = [
        Rule::new("self.all(a, isIP(a) && ip.isCanonical(a))")
            .message("must be addresses in canonical form, as 10.10.0.7 or fd10:10::7"),
    ]))]
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub ips: Vec<String>,
    /// Time since which its node claims these addresses.
    ///
    /// Of two nodes that claim one address, the later holds it. A node that takes over an address dates
    /// its claim later than the one it knows.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub since: MicroTime,
    /// Namespace and name of its pod, as default/web.
    ///
    /// Written while policies or Services name networks.
    #[schemars(length(min = 3, max = ENDPOINT_POD_MAX), regex(pattern = POD_PATTERN))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// True for the port that the node itself has; no pod has its addresses.
    ///
    /// Written while policies or Services name networks.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub of_node: bool,
    /// Labels of its pod, in files only: a cluster knows them.
    #[schemars(skip)]
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub labels: BTreeMap<String, String>,
}

impl PodNetworkEndpointSlice {
    /// Makes slice `number` of the members that `spec.node` has of `spec.network`.
    ///
    /// # Errors
    /// A name is none.
    pub fn numbered(number: u32, spec: PodNetworkEndpointSliceSpec) -> Result<Self, NameError> {
        let mut slice = Self::new(&slice_name(&spec.network, &spec.node, number)?, spec);
        let labels = [
            (NETWORK_LABEL, label_value(&slice.spec.network)),
            (NODE_LABEL, label_value(&slice.spec.node)),
        ];
        let labels = labels.map(|(key, value)| (key.to_owned(), value));
        slice.metadata.labels = Some(labels.into());
        Ok(slice)
    }

    /// The number in the name of a slice.
    #[must_use]
    pub fn number(&self) -> Option<u32> {
        let name = self.metadata.name.as_deref()?;
        let (_, number) = name.rsplit_once('.')?;
        let number = number.parse().ok()?;
        let own = slice_name(&self.spec.network, &self.spec.node, number);
        (own.as_deref() == Ok(name)).then_some(number)
    }
}

impl From<&Endpoint> for SliceEndpoint {
    /// A member as the API server takes it.
    fn from(endpoint: &Endpoint) -> Self {
        let pod = endpoint.pod.as_deref();
        Self {
            mac: endpoint.mac.to_string(),
            ips: endpoint.ips.iter().map(ToString::to_string).collect(),
            since: MicroTime(endpoint.since),
            pod: pod.and_then(|pod| pod.full_name()).map(str::to_owned),
            of_node: pod.is_some_and(crate::EndpointPod::is_of_node),
            labels: pod.map(|pod| pod.labels().clone()).unwrap_or_default(),
        }
    }
}

/// Returns the name of a slice.
///
/// Two pairs of network and node can share one where there are dots in them; a writer that finds the name
/// taken takes the next number.
fn slice_name(network: &str, node: &str, number: u32) -> Result<String, NameError> {
    check_subdomain(network)?;
    check_subdomain(node)?;
    if network.len() + node.len() <= NAMES_MAX {
        return Ok(format!("{network}.{node}.{number}"));
    }
    let pair = digest(format!("{network}/{node}").as_bytes());
    Ok(format!("{pair:016x}.{number}"))
}

/// Returns a name as the value of a label, which is shorter than a name may be.
///
/// A long one keeps its beginning, and ends in a digest of all of it.
#[must_use]
pub fn label_value(name: &str) -> String {
    if name.len() <= LABEL_VALUE_MAX {
        return name.to_owned();
    }
    // A digest has 16 digits; names are ASCII, as everything that is checked for a name.
    let kept = LABEL_VALUE_MAX - 17;
    let head: String = name.chars().take(kept).collect();
    format!("{head}-{:016x}", digest(name.as_bytes()))
}
