//! `spec.transport` of `PodNetworkParameters`, as written.

use std::fmt;

use kube_core::Rule;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::meta::null_as_default;
use crate::validate::{ETHER_TYPE_PATTERN, ETHER_TYPES_MAX, IFNAME_MAX, VLAN_MAX};

/// Ids from 1 to 4094, and ranges of them, with commas between.
const TRUNK_PATTERN: &str = "^0{0,3}([1-9][0-9]{0,2}|[1-3][0-9]{3}|40[0-8][0-9]|409[0-4])(-0{0,3}([1-9][0-9]{0,2}|[1-3][0-9]{3}|40[0-8][0-9]|409[0-4]))?(,0{0,3}([1-9][0-9]{0,2}|[1-3][0-9]{3}|40[0-8][0-9]|409[0-4])(-0{0,3}([1-9][0-9]{0,2}|[1-3][0-9]{3}|40[0-8][0-9]|409[0-4]))?)*$";

/// The transport of packets between the nodes of a network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Transport {
    /// Nothing: pods reach the pods of their own node.
    ///
    /// A record without a transport has it.
    #[default]
    Local,
    /// VXLAN between the nodes, with the network's number as VNI (RFC 7348).
    #[serde(rename = "VXLAN")]
    Vxlan,
    /// Frames with a VLAN tag on an interface of the nodes (IEEE 802.1Q).
    #[serde(rename = "VLAN")]
    Vlan,
    /// Packets as they are, on an interface of the nodes.
    Native,
}

impl Transport {
    /// The word in a manifest's `spec.transport.type`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Local => "Local",
            Self::Vxlan => "VXLAN",
            Self::Vlan => "VLAN",
            Self::Native => "Native",
        }
    }

    /// True when packets stay on their node.
    #[must_use]
    pub fn is_local(&self) -> bool {
        *self == Self::Local
    }

    /// True when packets leave by an interface of the node that the network names.
    #[must_use]
    pub const fn has_uplink(self) -> bool {
        matches!(self, Self::Vlan | Self::Native)
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// `spec.transport` of `PodNetworkParameters`.
///
/// It is an object, because some types have fields of their own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = [
    Rule::new("has(self.uplink) == (self.type in ['VLAN', 'Native'])")
        .message("VLAN and Native have an uplink, the name of an interface of the nodes; others have none"),
    Rule::new("self.type == 'VLAN' ? has(self.id) != has(self.trunk) : !has(self.id) && !has(self.trunk)")
        .message("VLAN has either id or trunk; others have none of them"),
]))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TransportSpec {
    /// Type of the transport: `Local`, `VXLAN`, `VLAN` or `Native`.
    ///
    /// `Local`: pods reach the pods of their own node. `VXLAN`: those of all nodes, by tunnels between
    /// the addresses of the nodes. `VLAN`: the network is a VLAN of the network that an interface of the
    /// nodes is connected to. `Native`: with mode L2 it is what that interface is connected to, without a
    /// tag; with mode L3 that one routes between the nodes.
    #[serde(rename = "type")]
    pub kind: Transport,
    /// With `VLAN` and `Native`: name of the interface, the same on every node.
    #[schemars(length(min = 1, max = IFNAME_MAX), regex(pattern = "^[!-.0-9;-~]+$"))]
    // Here, where the lengths are known: what they add to the cost of a rule of the whole is too much.
    #[schemars(extend("x-kubernetes-validations" = [
        Rule::new("!(self in ['.', '..'])")
            .message("must be the name of an interface, as eth1"),
        Rule::new("self == oldSelf")
            .message("is immutable; make other PodNetworkParameters for another PodNetwork"),
    ]))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uplink: Option<String>,
    /// With `VLAN`: its id, 1 to 4094.
    #[schemars(range(min = 1, max = VLAN_MAX))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<i64>,
    /// With `VLAN`, in place of `id`: the ids that pods tag themselves.
    ///
    /// Written as "100,200,300-310". Needs mode L2 without subnets.
    #[schemars(
        length(max = 256),
        regex(pattern = TRUNK_PATTERN)
    )]
    #[schemars(extend("x-kubernetes-validations" = [
        Rule::new("self.split(',').all(part, !part.contains('-') || int(part.split('-')[0]) <= int(part.split('-')[1]))")
            .message("must have the lower id of a range before the higher one, as 300-310"),
        Rule::new("self == oldSelf")
            .message("is immutable; make other PodNetworkParameters for another PodNetwork"),
    ]))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trunk: Option<String>,
    /// With mode L2 and `VLAN` or `Native`: further EtherTypes that pass.
    ///
    /// IPv4, IPv6 and ARP always pass. Written as "0x88f7" (PTP). Others are dropped, because switches
    /// take link protocols from any sender.
    #[schemars(length(max = ETHER_TYPES_MAX), inner(length(max = 6), regex(pattern = ETHER_TYPE_PATTERN)))]
    #[schemars(extend("x-kubernetes-validations" = [
        Rule::new("self.all(t, !(t.lowerAscii() in ['0x8808', '0x8100', '0x88a8', '0x9100', '0x9200', '0x9300']) && !t.matches('^0x0[0-5]'))")
            .message("must be EtherTypes from 0x0600, and neither MAC control (0x8808) nor VLAN tags"),
        Rule::new("self == oldSelf")
            .message("is immutable; make other PodNetworkParameters for another PodNetwork"),
    ]))]
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub ether_types: Vec<String>,
}

impl TransportSpec {
    /// Makes a spec of this type without further fields.
    #[must_use]
    pub const fn of(kind: Transport) -> Self {
        Self {
            kind,
            uplink: None,
            id: None,
            trunk: None,
            ether_types: Vec::new(),
        }
    }
}
