//! Ways out of a network, as written: routes pushed into its pods, and egress.

use std::fmt;

use kube_core::Rule;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The most routes of a network, and of an attachment.
pub(crate) const ROUTES_MAX: u32 = 16;

/// The way of a network's pods to the outside, where no node routes for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Egress {
    /// Not at all.
    #[default]
    None,
    /// Through the pod's node, with an address of that node.
    ///
    /// No host outside can open a connection to the pods.
    Masquerade,
    /// By the uplink of the network, with the pods' own addresses.
    ///
    /// Others can open connections to them.
    Uplink,
}

/// Nodes that have a port on a network of their own, to reach its pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum NodeAccess {
    /// None.
    #[default]
    None,
    /// Each node that has a pod on the network, as for probes of its kubelet.
    Local,
    /// Each node, as for API servers and their webhooks.
    All,
}

impl NodeAccess {
    /// The word in a manifest's `spec.nodeAccess`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Local => "Local",
            Self::All => "All",
        }
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
    pub(crate) fn is_none(&self) -> bool {
        *self == Self::None
    }
}

impl Egress {
    /// The word in a manifest's `spec.egress`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Masquerade => "Masquerade",
            Self::Uplink => "Uplink",
        }
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
    pub(crate) fn is_none(&self) -> bool {
        *self == Self::None
    }
}

impl fmt::Display for Egress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A route that every pod of a network gets, or that of one attachment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("x-kubernetes-validations" = [
    Rule::new("isCIDR(self.dst) && cidr(self.dst) == cidr(self.dst).masked() && cidr(self.dst).prefixLength() > 0")
        .message("must be a prefix with all host bits zero and no default route, as 10.10.0.0/24 or fd10:10::/64")
        .field_path(".dst"),
    Rule::new("!isCIDR(self.dst) || !['0.0.0.0/8', '127.0.0.0/8', '169.254.0.0/16', '224.0.0.0/4', '255.255.255.255/32', '::/8', 'fe80::/10', 'ff00::/8'].exists(p, cidr(p).containsCIDR(self.dst) || cidr(self.dst).containsCIDR(p))")
        .message("must be a unicast prefix, not in or around 0.0.0.0/8, 127.0.0.0/8, 169.254.0.0/16, 224.0.0.0/4, 255.255.255.255, ::/8, fe80::/10 or ff00::/8")
        .field_path(".dst"),
    Rule::new("!has(self.gw) || !isCIDR(self.dst) || isIP(self.gw) && ip(self.gw).family() == cidr(self.dst).ip().family()")
        .message("must be an address of the family of dst")
        .field_path(".gw"),
]))]
pub struct RouteSpec {
    /// Prefix that the route leads to.
    #[schemars(length(max = 43))]
    pub dst: String,
    /// Next hop, an address in one of the subnets; the network's gateway when absent.
    #[schemars(length(max = 45))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gw: Option<String>,
}
