//! `IPBlock`: up to sixteen addresses of a network that one node gives to its pods.
//!
//! How addresses are unique in a cluster without a call to the API server for every pod:
//!
//! - A block is an aligned part of the address space: a /28 or a /124, and a shorter one where the
//!   subnet has not sixteen of those. What lies outside the subnets, is excluded or reserved is not
//!   given to pods.
//! - The object's name is made of the network and the first address. To create it is the
//!   compare-and-swap: of two nodes that want the block, one hears that the object exists. The spec
//!   never changes. A node that needs a block no more deletes the object, with its UID as the
//!   precondition.
//! - Subnets change, and with them the length of what nodes take. So a node that has taken a block
//!   reads all blocks of the network, and gives nothing of it while there is another with a part of
//!   it. Of two that overlap, who took the later one sees the other.
//! - A node hands out addresses of its blocks from its own records only, and keeps some free blocks
//!   ahead of need, so that no pod waits for the API server.
//! - An address asked for by name is an `IPReservation`, and belongs to the holder of its block to
//!   grant.
//! - The `Node` may go while its pods run on behind a broken link. So a block is taken back in two
//!   steps: when the node's object, by UID, is gone and no pod names it, the controller writes
//!   [`IpBlockStatus::reclaim_after`]; when that time has come and nothing changed, it deletes the
//!   block. A node that sees the time on a block of its own gives out no more of it. If it is alive
//!   under the same UID, it clears the time of a block that is in use, and deletes any other.
//! - A node that has more blocks than its pods can need is asked for them in the same way.

use std::net::IpAddr;

use ipnet::IpNet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube_core::Rule;
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::meta::{NameError, SUBDOMAIN_PATTERN, check_subdomain};

/// Length of the prefix of the largest IPv4 block.
pub const BLOCK_LEN_V4: u8 = 28;
/// Length of the prefix of the largest IPv6 block.
pub const BLOCK_LEN_V6: u8 = 124;

/// `spec` of an `IPBlock`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, CustomResource, JsonSchema)]
#[kube(
    group = "podnet.dev",
    version = "v1alpha1",
    kind = "IPBlock",
    root = "IpBlock",
    plural = "ipblocks",
    singular = "ipblock",
    shortname = "ipb",
    status = "IpBlockStatus",
    derive = "PartialEq",
    doc = "Up to sixteen addresses of a PodNetwork that one node gives to its pods. Made and removed by podnet.",
    crates(kube = "::kube_derive", kube_core = "::kube_core"),
    attr = "x_kube(crates(kube_core = ::kube_core))",
    validation = Rule::new("self.metadata.name.startsWith(self.spec.network + '.') \
        && self.metadata.name.matches('[.]([0-9]+(-[0-9]+){3}|(0|[1-9a-f][0-9a-f]{0,3})(-(0|[1-9a-f][0-9a-f]{0,3})){7})$') \
        && ip(self.metadata.name.substring(self.spec.network.size() + 1).replace('-', self.spec.cidr.contains(':') ? ':' : '.')) == cidr(self.spec.cidr).ip()")
        .message("metadata.name must be the network, a dot and the first address with '-' between its parts, as blue.10-10-0-16"),
    selectable = ".spec.network",
    selectable = ".spec.node",
    printcolumn(
        name = "Network",
        type_ = "string",
        json_path = ".spec.network",
        description = "The PodNetwork"
    ),
    printcolumn(
        name = "CIDR",
        type_ = "string",
        json_path = ".spec.cidr",
        description = "The addresses"
    ),
    printcolumn(
        name = "Node",
        type_ = "string",
        json_path = ".spec.node",
        description = "The node that gives them to its pods"
    ),
    printcolumn(
        name = "Used",
        type_ = "integer",
        json_path = ".status.used",
        description = "Addresses in use when the node last said so"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.reason",
        description = "Why the node keeps it: InUse, Ahead of pods to come, or Idle and given back after --keep-blocks"
    ),
    printcolumn(
        name = "Reclaim",
        type_ = "string",
        json_path = ".status.reclaimAfter",
        priority = 1,
        description = "Time at which the controller takes it back"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[schemars(extend("x-kubernetes-validations" = [
    Rule::new("self == oldSelf")
        .message("is immutable; delete the block and take another"),
]))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct IpBlockSpec {
    /// Name of the `PodNetwork`.
    #[schemars(length(min = 1, max = 213), regex(pattern = SUBDOMAIN_PATTERN))]
    pub network: String,
    /// The addresses: a /28 or less, or a /124 of IPv6 or less.
    #[schemars(length(min = 1, max = 43))]
    #[schemars(extend("x-kubernetes-validations" = [
        Rule::new("isCIDR(self) && cidr(self) == cidr(self).masked() \
            && cidr(self).prefixLength() >= (self.contains(':') ? 124 : 28)")
            .message("must be a /28 or less, or a /124 of IPv6 or less, with all host bits zero"),
    ]))]
    pub cidr: String,
    /// Name of the node that holds the block.
    #[schemars(length(min = 1, max = 253), regex(pattern = SUBDOMAIN_PATTERN))]
    pub node: String,
    /// UID of that `Node`: one of the same name that comes later is another node.
    #[schemars(length(min = 1, max = 128))]
    #[serde(rename = "nodeUID")]
    pub node_uid: String,
}

/// `status` of an `IPBlock`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IpBlockStatus {
    /// Addresses in use when the node last said so; for people, not to allocate by.
    #[schemars(range(min = 0, max = 16))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<i64>,
    /// Why its node keeps the block: `InUse`, `Ahead` or `Idle`; for people.
    #[schemars(length(max = 32))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Time at which the controller takes the block back, unless its node needs it.
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reclaim_after: Option<Time>,
}

/// Reason for which a node keeps a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockReason {
    /// Pods of the node have addresses of it.
    InUse,
    /// The next pods get its addresses without a request to the API server.
    Ahead,
    /// The node does not need it, and gives it back when that lasts (`--keep-blocks`).
    Idle,
}

impl BlockReason {
    /// The word in [`IpBlockStatus::reason`].
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InUse => "InUse",
            Self::Ahead => "Ahead",
            Self::Idle => "Idle",
        }
    }
}

impl IpBlock {
    /// Makes the block of addresses that this node takes from `network`.
    ///
    /// To create the object is to take the block.
    ///
    /// # Errors
    /// The name of the network is none, or leaves no room for the address.
    pub fn take(
        network: &str,
        block: IpNet,
        node: &str,
        node_uid: &str,
    ) -> Result<Self, NameError> {
        let block = block.trunc();
        let spec = IpBlockSpec {
            network: network.to_owned(),
            cidr: block.to_string(),
            node: node.to_owned(),
            node_uid: node_uid.to_owned(),
        };
        Ok(Self::new(&name_of(network, block.network())?, spec))
    }
}

/// Returns the object name of an address of a network, as one DNS name.
pub(crate) fn name_of(network: &str, address: IpAddr) -> Result<String, NameError> {
    let parts: Vec<String> = match address {
        IpAddr::V4(v4) => v4.octets().iter().map(u8::to_string).collect(),
        // No "::", because a label must not end in '-', and each address has one name.
        IpAddr::V6(v6) => v6
            .segments()
            .iter()
            .map(|part| format!("{part:x}"))
            .collect(),
    };
    check_subdomain(network)?;
    let name = format!("{network}.{}", parts.join("-"));
    check_subdomain(&name)?;
    Ok(name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn block(prefix: &str) -> IpBlock {
        let prefix = prefix.parse().expect("a prefix");
        IpBlock::take("blue", prefix, "n1", "b7a1").expect("a block")
    }

    #[test]
    fn every_address_of_a_block_gives_the_same_object() {
        for prefix in ["10.10.0.16/28", "10.10.0.23/28", "10.10.0.31/28"] {
            let block = block(prefix);
            assert_eq!(block.metadata.name.as_deref(), Some("blue.10-10-0-16"));
            assert_eq!(block.spec.cidr, "10.10.0.16/28");
        }
        let v6 = block("fd10:10::1f/124");
        assert_eq!(
            v6.metadata.name.as_deref(),
            Some("blue.fd10-10-0-0-0-0-0-10")
        );
        assert_eq!(v6.spec.cidr, "fd10:10::10/124");
        let single = block("10.10.0.17/32");
        assert_eq!(single.metadata.name.as_deref(), Some("blue.10-10-0-17"));
    }

    #[test]
    fn a_network_whose_name_leaves_no_room_is_refused() {
        let address = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128"
            .parse()
            .unwrap();
        let take = |bytes| IpBlock::take(&"a".repeat(bytes), address, "n1", "b7a1");
        // The longest name the schema of a PodNetwork takes.
        assert!(take(213).is_ok());
        assert!(matches!(
            take(214),
            Err(NameError::TooLong { max: 253, .. })
        ));
        assert!(matches!(
            IpBlock::take("", address, "n1", "b7a1"),
            Err(NameError::Empty)
        ));
    }

    proptest! {
        #[test]
        fn two_blocks_of_one_name_begin_with_one_address(a: IpAddr, b: IpAddr) {
            let names = name_of("blue", a).unwrap() == name_of("blue", b).unwrap();
            prop_assert_eq!(names, a == b);
        }
    }
}
