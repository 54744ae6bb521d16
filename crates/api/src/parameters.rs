//! `PodNetworkParameters` and `AttachmentParameters`, as written.
//!
//! They are podnet's own parameter kinds. Meaning and refusal of values are in `validate`; the rules here
//! are the part of it that the API server can check.

mod attachment;
mod status;
mod transport;

pub use attachment::{AttachmentParameters, AttachmentParametersSpec};
pub use status::ParametersStatus;
pub use transport::{Transport, TransportSpec};

use std::fmt;

use kube_core::Rule;
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    gateway::GatewaySpec,
    interface::InterfaceSpec,
    meta::{SUBDOMAIN_PATTERN, null_as_default},
    outside::{Egress, NodeAccess, ROUTES_MAX, RouteSpec},
    scheduling::SchedulingSpec,
    validate::{MTU_MAX, NetworkId, RATE_MAX},
};

/// The most subnets of a network.
///
/// A rule of the API server compares each with each.
pub(crate) const SUBNETS_MAX: u32 = 16;

/// The most prefixes of addresses of Services of a network.
pub(crate) const SERVICE_CIDRS_MAX: u32 = 4;
/// The most Services of the cluster's network that a network reaches.
pub(crate) const CLUSTER_SERVICES_MAX: u32 = 8;
/// Namespace and name of a Service, as a schema says it.
const CLUSTER_SERVICE_PATTERN: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?/[a-z]([-a-z0-9]*[a-z0-9])?$";

/// How packets find their way inside a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Mode {
    /// One Ethernet segment: frames go by destination MAC.
    ///
    /// Broadcast reaches every pod of the network.
    L2,
    /// Routed: by destination address behind a virtual gateway, no broadcast.
    L3,
}

impl Mode {
    /// The word in a manifest's `spec.mode`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::L2 => "L2",
            Self::L3 => "L3",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The router between a network and everything else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Routing {
    /// None: no packet leaves the network.
    #[default]
    Isolated,
    /// The node's own network stack, as a cluster's default network needs it.
    Node,
}

impl Routing {
    /// The word in a manifest's `spec.routing`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Isolated => "Isolated",
            Self::Node => "Node",
        }
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
    fn is_isolated(&self) -> bool {
        *self == Self::Isolated
    }
}

impl fmt::Display for Routing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// `spec` of `PodNetworkParameters`.
#[expect(
    clippy::duplicated_attributes,
    reason = "two columns may have one type"
)]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, CustomResource, JsonSchema)]
#[kube(
    group = "podnet.dev",
    version = "v1alpha1",
    kind = "PodNetworkParameters",
    plural = "podnetworkparameters",
    singular = "podnetworkparameters",
    shortname = "pnp",
    status = "ParametersStatus",
    derive = "PartialEq",
    doc = "Parameters of a PodNetwork of provider podnet.dev/ebpf.",
    crates(kube_core = "::kube_core"),
    printcolumn(
        name = "Mode",
        type_ = "string",
        json_path = ".spec.mode",
        description = "L2 or L3"
    ),
    printcolumn(
        name = "Transport",
        type_ = "string",
        json_path = ".spec.transport.type",
        description = "Transport of packets between nodes",
        priority = 1
    ),
    printcolumn(
        name = "Subnets",
        type_ = "string",
        json_path = ".spec.subnets",
        description = "Prefixes addresses are taken from"
    ),
    printcolumn(
        name = "MTU",
        type_ = "integer",
        json_path = ".spec.mtu",
        description = "Largest IP packet, bytes",
        priority = 1
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
#[schemars(extend("x-kubernetes-validations" = [
    Rule::new("self.mode != 'L3' || size(self.?subnets.orValue([])) > 0")
        .message("mode L3 needs a subnet; list one, or write mode L2")
        .field_path(".subnets"),
    Rule::new("self.?routing.orValue('Isolated') == 'Isolated' || self.mode == 'L3'")
        .message("routing by the node needs mode L3; write mode L3, or routing Isolated")
        .field_path(".routing"),
    Rule::new("!has(self.masquerade) || self.?routing.orValue('Isolated') == 'Node'")
        .message("the field belongs to routing Node; write that, or remove this field")
        .field_path(".masquerade"),
    Rule::new("self.?transport.type.orValue('Local') == 'Local' || self.?routing.orValue('Isolated') == 'Isolated'")
        .message("with routing Node the nodes route between each other; write routing Isolated, or remove this field")
        .field_path(".transport"),
    // By each of the values: the cost of comparing two values of unknown length is too high. The transport that
    // the cluster has decided on may be written; a PodNetwork with another one says so.
    Rule::new("has(oldSelf.transport) ? has(self.transport) && ['Local', 'VXLAN', 'VLAN', 'Native'].all(type, (self.transport.type == type) == (oldSelf.transport.type == type)) \
        : !has(self.transport) || self.transport.type in ['Local', 'VXLAN']")
        .message("is immutable; make other PodNetworkParameters for another PodNetwork")
        .field_path(".transport"),
    // Nodes with pods of the network would stay with the old one, and all others begin with the new one.
    Rule::new("(self.mode == 'L3') == (oldSelf.mode == 'L3')")
        .message("is immutable; make other PodNetworkParameters for another PodNetwork")
        .field_path(".mode"),
    Rule::new("(size(self.?subnets.orValue([])) > 0) == (size(oldSelf.?subnets.orValue([])) > 0)")
        .message("a network has subnets or none for as long as it exists; make other PodNetworkParameters for another PodNetwork")
        .field_path(".subnets"),
    Rule::new("self.?egress.orValue('None') == 'None' || self.mode == 'L3' && self.?routing.orValue('Isolated') == 'Isolated'")
        .message("egress is of networks with mode L3 and routing Isolated; write these, or egress None")
        .field_path(".egress"),
    Rule::new("self.?clusterServices.orValue([]).size() == 0 || self.mode == 'L3' && self.?routing.orValue('Isolated') == 'Isolated' && self.?serviceCIDRs.orValue([]).size() > 0 && self.?egress.orValue('None') != 'Uplink'")
        .message("is for mode L3 and routing Isolated with serviceCIDRs, and egress None or Masquerade; write these, or remove this field")
        .field_path(".clusterServices"),
    Rule::new("self.?nodeAccess.orValue('None') == 'None' || size(self.?subnets.orValue([])) > 0 && self.?routing.orValue('Isolated') == 'Isolated'")
        .message("is for networks with subnets and routing Isolated; write these, or nodeAccess None")
        .field_path(".nodeAccess"),
    Rule::new("self.?egress.orValue('None') != 'Uplink' || self.?transport.type.orValue('Local') == 'Native'")
        .message("Uplink is for transport Native; write that, or egress Masquerade")
        .field_path(".egress"),
    Rule::new("size(self.?routes.orValue([])) == 0 || size(self.?subnets.orValue([])) > 0")
        .message("the field needs spec.subnets; list a subnet or remove this field")
        .field_path(".routes"),
    Rule::new("size(self.?serviceCIDRs.orValue([])) == 0 || size(self.?subnets.orValue([])) > 0")
        .message("the field is for networks with subnets; write these, or remove this field")
        .field_path(".serviceCIDRs"),
    Rule::new("size(self.?serviceCIDRs.orValue([])) == 0 || self.mode == 'L3' || !(self.?transport.type.orValue('Local') in ['VLAN', 'Native'])")
        .message("an L2 network with an uplink has no Services; write mode L3 or transport VXLAN, or remove this field")
        .field_path(".serviceCIDRs"),
    Rule::new("!has(self.serviceCIDRs) || !has(self.subnets) || self.serviceCIDRs.all(c, self.subnets.exists(s, s.contains(':') == c.contains(':')))")
        .message("pods have no address of the family of one of them; add a subnet of it, or remove the prefix")
        .field_path(".serviceCIDRs"),
    Rule::new("!has(self.serviceCIDRs) || !has(self.subnets) || self.serviceCIDRs.all(c, !isCIDR(c) \
        || self.subnets.all(s, !isCIDR(s) || !cidr(s).containsCIDR(c) && !cidr(c).containsCIDR(s)))")
        .message("one of them overlaps a subnet, which has the addresses of pods; choose another prefix")
        .field_path(".serviceCIDRs"),
    Rule::new("self.?transport.id.orValue(0) == oldSelf.?transport.id.orValue(0)")
        .message("is immutable; make other PodNetworkParameters for another PodNetwork")
        .field_path(".transport"),
    Rule::new("!has(self.transport) || !has(self.transport.trunk) || (self.mode == 'L2' && size(self.?subnets.orValue([])) == 0)")
        .message("pods of a trunk have addresses of their own; write mode L2 without subnets, or id")
        .field_path(".transport"),
    Rule::new("size(self.?transport.etherTypes.orValue([])) == 0 || self.mode == 'L2' && self.transport.type in ['VLAN', 'Native']")
        .message("etherTypes is for networks of mode L2 with an uplink; write these, or remove it")
        .field_path(".transport"),
    // Whether one is another is asked at the field, where the lengths are known.
    Rule::new("size(self.?transport.etherTypes.orValue([])) == size(oldSelf.?transport.etherTypes.orValue([]))")
        .message("is immutable; make other PodNetworkParameters for another PodNetwork")
        .field_path(".transport"),
    Rule::new("size(self.?exclude.orValue([])) == 0 || size(self.?subnets.orValue([])) > 0")
        .message("the field needs spec.subnets; list a subnet or remove this field")
        .field_path(".exclude"),
    Rule::new("!has(self.exclude) || !has(self.subnets) || self.exclude.all(e, !isIP(e) && !isCIDR(e) \
        || self.subnets.exists(s, isCIDR(s) && (isIP(e) ? cidr(s).containsIP(e) : cidr(s).containsCIDR(e))))")
        .message("one of them is not inside of spec.subnets; correct it, or remove it")
        .field_path(".exclude"),
    Rule::new("!has(self.routes) || !has(self.subnets) || self.routes.all(r, !isCIDR(r.dst) \
        || !self.subnets.exists(s, isCIDR(s) && cidr(s).containsCIDR(r.dst)))")
        .message("one of them is inside of a subnet, which pods reach without it; remove it")
        .field_path(".routes"),
    Rule::new("!has(self.routes) || !has(self.subnets) || self.routes.all(r, self.subnets.exists(s, s.contains(':') == r.dst.contains(':')))")
        .message("pods have no address of the family of one of them; add a subnet of it, or remove the route")
        .field_path(".routes"),
    Rule::new("!has(self.routes) || !has(self.subnets) || self.routes.all(r, !has(r.gw) || !isIP(r.gw) \
        || self.subnets.exists(s, isCIDR(s) && cidr(s).containsIP(r.gw)))")
        .message("gw of one of them is not inside of spec.subnets; correct it, or remove it")
        .field_path(".routes"),
    Rule::new("!has(self.mtu) || self.mtu >= 1280 || !has(self.subnets) || !self.subnets.exists(s, s.contains(':'))")
        .message("a network with an IPv6 subnet has an MTU of at least 1280")
        .field_path(".mtu"),
    Rule::new("self.?interface.type.orValue('Veth') == 'Veth' || self.?routing.orValue('Isolated') == 'Isolated'")
        .message("with routing Node the node reaches pods by interfaces; write type Veth, or routing Isolated")
        .field_path(".interface"),
    Rule::new("!has(self.vpc) || size(self.?subnets.orValue([])) > 0 && self.?routing.orValue('Isolated') == 'Isolated' && self.?transport.type.orValue('Local') in ['Local', 'VXLAN']")
        .message("networks of a VPC have subnets, routing Isolated, and transport Local or VXLAN; write these, or remove this field")
        .field_path(".vpc"),
    Rule::new("has(self.vpc) == has(oldSelf.vpc) && (!has(self.vpc) || self.vpc == oldSelf.vpc)")
        .message("is immutable; make other PodNetworkParameters for another PodNetwork")
        .field_path(".vpc"),
    Rule::new("self.?ingressBurst.orValue(0) == 0 || self.?ingressRate.orValue(0) > 0")
        .message("has no ingressRate to limit; set it, or remove this field")
        .field_path(".ingressBurst"),
    Rule::new("self.?egressBurst.orValue(0) == 0 || self.?egressRate.orValue(0) > 0")
        .message("has no egressRate to limit; set it, or remove this field")
        .field_path(".egressBurst"),
    Rule::new("!self.?scheduling.addresses.orValue(false) || size(self.?subnets.orValue([])) > 0")
        .message("addresses needs spec.subnets; list a subnet or remove it")
        .field_path(".scheduling"),
    Rule::new("!self.?scheduling.bandwidth.orValue(false) || self.?transport.type.orValue('Local') in ['VLAN', 'Native']")
        .message("bandwidth is of an uplink; write transport VLAN or Native, or remove it")
        .field_path(".scheduling"),
]))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PodNetworkParametersSpec {
    /// `L2` or `L3`.
    pub mode: Mode,
    /// Router between pods and everything else: `Isolated` (default) or `Node`.
    ///
    /// `Isolated`: no packet leaves the network. `Node`, with mode L3 and for one network: the node's own
    /// network stack routes.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Routing::is_isolated"
    )]
    pub routing: Routing,
    /// With routing `Node`: masquerade packets that leave the subnets. Default true.
    ///
    /// Such packets get an address of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub masquerade: Option<bool>,
    /// The transport of packets between nodes.
    ///
    /// Without it, a network with routing `Isolated` is `VXLAN` in a cluster, and `Local` where no cluster
    /// is. `status.transport` of the PodNetwork has the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transport: Option<TransportSpec>,
    /// Prefixes of the pods' addresses; one of each family makes a dual-stack network.
    #[schemars(length(max = SUBNETS_MAX), inner(length(max = 43)))]
    #[schemars(extend("x-kubernetes-validations" = [
        Rule::new("self.all(s, isCIDR(s) && cidr(s) == cidr(s).masked())")
            .message("must be prefixes with all host bits zero, as 10.10.0.0/24 or fd10:10::/64"),
        Rule::new("!self.all(s, isCIDR(s)) || self.all(a, self.exists_one(b, cidr(a).containsCIDR(b) || cidr(b).containsCIDR(a)))")
            .message("two of them overlap; make them disjoint"),
        Rule::new("self.all(s, !isCIDR(s) || !['0.0.0.0/8', '127.0.0.0/8', '169.254.0.0/16', '224.0.0.0/4', '255.255.255.255/32', '::/8', 'fe80::/10', 'ff00::/8'].exists(p, cidr(p).containsCIDR(s) || cidr(s).containsCIDR(p)))")
            .message("must be unicast prefixes, not in or around 0.0.0.0/8, 127.0.0.0/8, 169.254.0.0/16, 224.0.0.0/4, 255.255.255.255, ::/8, fe80::/10 or ff00::/8"),
    ]))]
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub subnets: Vec<String>,
    /// `None` (default), `First` address of each subnet, an address, or several.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "GatewaySpec::is_none"
    )]
    pub gateway: GatewaySpec,
    /// Prefixes or addresses never given to a pod.
    #[schemars(length(max = 64), inner(length(max = 43)))]
    #[schemars(extend("x-kubernetes-validations" = [
        Rule::new("self.all(e, isIP(e) || isCIDR(e) && cidr(e) == cidr(e).masked())")
            .message("must be addresses, or prefixes with all host bits zero, as 10.10.0.7 or 10.10.0.200/29"),
    ]))]
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub exclude: Vec<String>,
    /// Routes that every pod gets, besides those to the subnets.
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
    /// Prefixes of the addresses of Services that the network has.
    ///
    /// Pods get a route there. A Service with the label `podnet.dev/network` of the network's name is served if its address
    /// is in one of them. With routing Node those are the Services of the cluster, which have no such label. Without the
    /// field podnet translates no packet of the network.
    #[schemars(length(max = SERVICE_CIDRS_MAX), inner(length(max = 43)))]
    #[schemars(extend("x-kubernetes-validations" = [
        Rule::new("self.all(s, isCIDR(s) && cidr(s) == cidr(s).masked() && cidr(s).prefixLength() > 0)")
            .message("must be prefixes with all host bits zero, as 10.96.0.0/12 or fd96::/108"),
        Rule::new("!self.all(s, isCIDR(s)) || self.all(a, self.exists_one(b, cidr(a).containsCIDR(b) || cidr(b).containsCIDR(a)))")
            .message("two of them overlap; make them disjoint"),
        Rule::new("self.all(s, !isCIDR(s) || !['0.0.0.0/8', '127.0.0.0/8', '169.254.0.0/16', '224.0.0.0/4', '255.255.255.255/32', '::/8', 'fe80::/10', 'ff00::/8'].exists(p, cidr(p).containsCIDR(s) || cidr(s).containsCIDR(p)))")
            .message("must be unicast prefixes, not in or around 0.0.0.0/8, 127.0.0.0/8, 169.254.0.0/16, 224.0.0.0/4, 255.255.255.255, ::/8, fe80::/10 or ff00::/8"),
    ]))]
    #[serde(
        default,
        rename = "serviceCIDRs",
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub service_cidrs: Vec<String>,
    /// Services of the cluster's network that pods reach, as `kube-system/kube-dns`.
    ///
    /// Packets to their addresses and ports leave by the pod's node, with an address of it. Nothing else leaves for that.
    #[schemars(length(max = CLUSTER_SERVICES_MAX), inner(length(min = 3, max = 127), regex(pattern = CLUSTER_SERVICE_PATTERN)))]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub cluster_services: Vec<String>,
    /// The way out for pods: `None` (default), `Masquerade` or `Uplink`.
    ///
    /// `None`: no packet leaves the network. `Masquerade`, with mode L3 and routing Isolated: pods reach
    /// the outside through their node, with an address of it. `Uplink`, with transport Native besides: by
    /// the network's uplink, with their own addresses.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Egress::is_none"
    )]
    pub egress: Egress,
    /// Nodes with a port on the network: `None` (default), `Local` or `All`.
    ///
    /// They reach the pods by it. `Local`: each node that has a pod on the network, so that its kubelet can probe it. `All`: each node, for API servers
    /// and their webhooks. Pods open no connection to a node by it.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "NodeAccess::is_none"
    )]
    pub node_access: NodeAccess,
    /// Largest IP packet, bytes. Default 1500, and with transport VXLAN 1430.
    ///
    /// A tunnel over IPv6 leaves 1430 of 1500 bytes.
    #[schemars(range(min = 68, max = MTU_MAX))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<i64>,
    /// Kind of the pods' ports; without it interfaces of the kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<InterfaceSpec>,
    /// The scheduler's view of the network; it has none when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduling: Option<SchedulingSpec>,
    /// Number of the network, 1 to 16777215; allocated and stable when absent.
    #[schemars(range(min = NetworkId::MIN, max = NetworkId::MAX))]
    #[serde(default, rename = "networkID", skip_serializing_if = "Option::is_none")]
    pub network_id: Option<i64>,
    /// Name of the VPC that the network is a subnet of.
    ///
    /// With subnets, routing Isolated, and transport Local or VXLAN: pods reach those of the other networks of the VPC by the gateway, which podnet plays in
    /// mode L2, too. Immutable.
    #[schemars(length(min = 1, max = 253), regex(pattern = SUBDOMAIN_PATTERN))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vpc: Option<String>,
    /// Default rate into each pod, bit/s; 0 or absent means no limit.
    #[schemars(range(min = 0, max = RATE_MAX))]
    #[schemars(extend("x-kubernetes-validations" = [
        Rule::new("self == 0 || self >= 1000")
            .message("must be 0 or at least 1000 bit/s"),
    ]))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingress_rate: Option<i64>,
    /// Default rate out of each pod, bit/s; 0 or absent means no limit.
    #[schemars(range(min = 0, max = RATE_MAX))]
    #[schemars(extend("x-kubernetes-validations" = [
        Rule::new("self == 0 || self >= 1000")
            .message("must be 0 or at least 1000 bit/s"),
    ]))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress_rate: Option<i64>,
    /// Default burst into each pod, bits; chosen from the rate when 0 or absent.
    #[schemars(range(min = 0))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingress_burst: Option<i64>,
    /// Default burst out of each pod, bits; chosen from the rate when 0 or absent.
    #[schemars(range(min = 0))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress_burst: Option<i64>,
}
