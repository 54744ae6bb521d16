//! `PodNetworkParameters` and `AttachmentParameters`: podnet's own parameter kinds, as written.
//! What the values mean, and which are refused, is in `validate`.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, SeqAccess, Visitor},
};

use crate::meta::{Manifest, null_as_default};

/// What a network is made of.
pub type PodNetworkParameters = Manifest<PodNetworkParametersSpec>;
/// What one attachment asks for.
pub type AttachmentParameters = Manifest<AttachmentParametersSpec>;

/// How packets find their way inside a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Mode {
    /// One Ethernet segment: by destination MAC, broadcast reaches every pod of the network.
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

/// `spec` of `PodNetworkParameters`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PodNetworkParametersSpec {
    /// `L2` or `L3`.
    pub mode: Mode,
    /// Prefixes addresses are taken from; both families together make a dual-stack network.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub subnets: Vec<String>,
    /// `None` (default), `First` address of each subnet, an address, or a list of addresses.
    #[serde(default, deserialize_with = "null_as_default")]
    pub gateway: GatewaySpec,
    /// Prefixes or addresses never given to a pod.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub exclude: Vec<String>,
    /// Largest IP packet, bytes. Default 1500.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<i64>,
    /// 1..=16777215; allocated and stable when absent.
    #[serde(default, rename = "networkID", skip_serializing_if = "Option::is_none")]
    pub network_id: Option<i64>,
    /// Default rate into each pod, bit/s; 0 or absent means no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingress_rate: Option<i64>,
    /// Default rate out of each pod, bit/s; 0 or absent means no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress_rate: Option<i64>,
    /// Default burst into each pod, bits; chosen from the rate when 0 or absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingress_burst: Option<i64>,
    /// Default burst out of each pod, bits; chosen from the rate when 0 or absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress_burst: Option<i64>,
}

/// `spec` of `AttachmentParameters`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AttachmentParametersSpec {
    /// Rate into the pod, bit/s; 0 means no limit, absent the network's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingress_rate: Option<i64>,
    /// Rate out of the pod, bit/s; 0 means no limit, absent the network's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress_rate: Option<i64>,
    /// Burst into the pod, bits; chosen from the rate when 0 or absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingress_burst: Option<i64>,
    /// Burst out of the pod, bits; chosen from the rate when 0 or absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress_burst: Option<i64>,
    /// The MAC address the interface must have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac_request: Option<String>,
    /// Addresses the interface must have, with or without a prefix length.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub ip_requests: Vec<String>,
}

/// `spec.gateway` as written: a word, one address, or a list of addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum GatewaySpec {
    /// No gateway.
    #[default]
    None,
    /// The first usable address of every subnet.
    First,
    /// These addresses, at most one in each subnet; a single string is a list of one.
    Addresses(Vec<String>),
}

impl Serialize for GatewaySpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::None => serializer.serialize_str("None"),
            Self::First => serializer.serialize_str("First"),
            Self::Addresses(addresses) => addresses.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for GatewaySpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(GatewayVisitor)
    }
}

struct GatewayVisitor;

impl<'de> Visitor<'de> for GatewayVisitor {
    type Value = GatewaySpec;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("None, First, an address or a list of addresses")
    }

    fn visit_str<E: de::Error>(self, word: &str) -> Result<GatewaySpec, E> {
        Ok(match word {
            "None" => GatewaySpec::None,
            "First" => GatewaySpec::First,
            address => GatewaySpec::Addresses(vec![address.to_owned()]),
        })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<GatewaySpec, A::Error> {
        let mut addresses = Vec::new();
        while let Some(address) = seq.next_element()? {
            addresses.push(address);
        }
        Ok(GatewaySpec::Addresses(addresses))
    }
}
