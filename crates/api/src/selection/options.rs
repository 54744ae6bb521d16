//! Options of an attachment in an element of the NPWG list.

use std::{collections::BTreeMap, fmt, net::IpAddr, str::FromStr};

use serde::{Serialize, Serializer, ser::SerializeMap};

use super::problem::SelectionProblem;
use crate::{
    json::{RawJson, RawObject},
    mac::MacAddr,
    validate::{Bandwidth, IpRequest},
};

/// Key of an element of the NPWG's list that names a `Port`.
///
/// Keys with a period are for extensions (NPWG §4.1.2.1).
pub(super) const PORT_KEY: &str = "podnet.dev/port";

/// Options of one attachment, checked; the default is no wish.
///
/// Written, it has the keys of NPWG §4.1.2.1.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct AttachmentOptions {
    /// `ips`: unicast, each once.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ips: Vec<IpRequest>,
    /// `mac`: unicast.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac: Option<MacAddr>,
    /// `bandwidth`: bit/s and bits, ingress is to the pod; a burst has a rate.
    #[serde(
        skip_serializing_if = "Option::is_none",
        serialize_with = "bandwidth_keys"
    )]
    pub bandwidth: Option<Bandwidth>,
    /// `portMappings`.
    #[serde(rename = "portMappings", skip_serializing_if = "Vec::is_empty")]
    pub port_mappings: Vec<PortMapping>,
    /// `default-route`: gateways in their order, maybe none; `None` without the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_route: Option<Vec<IpAddr>>,
    /// `infiniband-guid`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infiniband_guid: Option<InfinibandGuid>,
    /// `ipam-claim-reference`: an `IPAMClaim` in the pod's namespace.
    ///
    /// With `ips`, the claim must hold those addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipam_claim_reference: Option<String>,
    /// `podnet.dev/port`: a `Port` in the pod's namespace.
    ///
    /// It says the MAC address and the addresses.
    #[serde(rename = "podnet.dev/port", skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// The `Vpc` that the network has to be of.
    #[serde(rename = "podnet.dev/vpc", skip_serializing_if = "Option::is_none")]
    pub vpc: Option<String>,
    /// `cni-args`, as written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cni_args: Option<RawObject>,
    /// Keys with a period: extensions of somebody, as written.
    #[serde(flatten)]
    pub extensions: BTreeMap<String, RawJson>,
}

impl AttachmentOptions {
    /// Returns a key of what a `Port` says, if there is one.
    pub(super) fn said_by_port(&self) -> Option<&'static str> {
        let claim = self.ipam_claim_reference.is_some();
        [
            (!self.ips.is_empty(), "ips"),
            (self.mac.is_some(), "mac"),
            (claim, "ipam-claim-reference"),
        ]
        .into_iter()
        .find_map(|(is_there, key)| is_there.then_some(key))
    }
}

/// A port of the node that leads to a port of the pod (NPWG §4.1.2.1.7).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PortMapping {
    /// Port of the node, not 0.
    pub host_port: u16,
    /// Port of the pod, not 0.
    pub container_port: u16,
    /// `tcp` where nothing is said.
    pub protocol: Protocol,
    /// The node's address the port is on; absent means all of them.
    #[serde(rename = "hostIP", skip_serializing_if = "Option::is_none")]
    pub host_ip: Option<IpAddr>,
}

impl PortMapping {
    /// Whether both want the same port of the node.
    pub(super) fn collides(&self, other: &Self) -> bool {
        let same_address = match (self.host_ip, other.host_ip) {
            (Some(one), Some(two)) => one == two,
            _ => true,
        };
        self.host_port == other.host_port && self.protocol == other.protocol && same_address
    }
}

/// A protocol with ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// RFC 9293.
    #[default]
    Tcp,
    /// RFC 768.
    Udp,
    /// RFC 9260.
    Sctp,
}

impl Protocol {
    /// The word in a port mapping, lower case as plugins want it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        }
    }
}

impl FromStr for Protocol {
    type Err = SelectionProblem;

    /// In either case.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Self::Tcp, Self::Udp, Self::Sctp]
            .into_iter()
            .find(|protocol| text.eq_ignore_ascii_case(protocol.as_str()))
            .ok_or_else(|| SelectionProblem::BadProtocol {
                found: text.to_owned(),
            })
    }
}

/// The 64-bit GUID of an InfiniBand port (NPWG §4.1.2.1.10, RFC 4391 §9.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InfinibandGuid([u8; 8]);

impl InfinibandGuid {
    /// The octets in transmission order.
    #[must_use]
    pub const fn octets(self) -> [u8; 8] {
        self.0
    }
}

impl fmt::Display for InfinibandGuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, octet) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { ":" };
            write!(f, "{separator}{octet:02x}")?;
        }
        Ok(())
    }
}

impl FromStr for InfinibandGuid {
    type Err = SelectionProblem;

    /// Eight hex pairs with `:` or `-` between them, in either case; not all zero.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let separator = if text.contains('-') { '-' } else { ':' };
        let octets: Option<Vec<u8>> = text.split(separator).map(hex_pair).collect();
        octets
            .and_then(|octets| <[u8; 8]>::try_from(octets).ok())
            .filter(|octets| octets.iter().any(|octet| *octet != 0))
            .map(Self)
            .ok_or_else(|| SelectionProblem::BadGuid {
                found: text.to_owned(),
            })
    }
}

/// Exactly two hex digits: `u8::from_str_radix` alone would take "+f".
fn hex_pair(pair: &str) -> Option<u8> {
    let two_digits = pair.len() == 2 && pair.bytes().all(|b| b.is_ascii_hexdigit());
    two_digits.then(|| u8::from_str_radix(pair, 16).ok())?
}

impl Serialize for InfinibandGuid {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Rates and bursts under the names of CNI's `bandwidth` capability.
fn bandwidth_keys<S: Serializer>(
    bandwidth: &Option<Bandwidth>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let Bandwidth { ingress, egress } = bandwidth.unwrap_or_default();
    let mut map = serializer.serialize_map(None)?;
    for (key, value) in [
        ("ingressRate", ingress.rate),
        ("ingressBurst", ingress.burst),
        ("egressRate", egress.rate),
        ("egressBurst", egress.burst),
    ] {
        if let Some(value) = value {
            map.serialize_entry(key, &value)?;
        }
    }
    map.end()
}
