//! `spec.scheduling`: the scheduler's view of a network.
//!
//! Names of labels and extended resources are here, because agents write them and the webhook asks for them.

use kube_core::Rule;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Domain of the labels of nodes that can carry a network.
pub const NETWORK_DOMAIN: &str = "network.podnet.dev";
/// Domain of the extended resources that count addresses of a network.
pub const ADDRESSES_DOMAIN: &str = "addresses.podnet.dev";
/// Domain of the extended resources that count the rate of an uplink, Mbit/s.
pub const BANDWIDTH_DOMAIN: &str = "bandwidth.podnet.dev";
/// Value of the labels in [`NETWORK_DOMAIN`].
pub const CARRIED: &str = "true";
/// Longest name of a label or resource behind its domain, bytes; of Kubernetes.
const NAME_MAX: usize = 63;

/// `spec.scheduling` of `PodNetworkParameters`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = [
    Rule::new("self.?addresses.orValue(false) || self.?bandwidth.orValue(false) || self.?nodes.orValue(false)")
        .message("says nothing; set addresses, bandwidth or nodes to true, or remove this field"),
]))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SchedulingSpec {
    /// Pods are bound only to nodes that have an address left for them.
    ///
    /// Nodes have the extended resource `addresses.podnet.dev/NETWORK`. Needs a subnet.
    #[serde(default, skip_serializing_if = "is_false")]
    pub addresses: bool,
    /// Rates of pods are counted at the uplink, Mbit/s; needs transport VLAN or Native.
    ///
    /// Nodes have the extended resource `bandwidth.podnet.dev/UPLINK`, by option --uplink-bandwidth of
    /// their agents. Pods without a rate are not counted.
    #[serde(default, skip_serializing_if = "is_false")]
    pub bandwidth: bool,
    /// Pods are bound only to nodes that have the network's uplink or transport.
    ///
    /// Such nodes have the label `network.podnet.dev/NETWORK`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub nodes: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
const fn is_false(it: &bool) -> bool {
    !*it
}

impl SchedulingSpec {
    /// True when the scheduler is told something.
    #[must_use]
    pub const fn is_any(&self) -> bool {
        self.addresses || self.bandwidth || self.nodes
    }
}

/// Makes the key of a label or resource.
///
/// None for a name that Kubernetes does not take.
#[must_use]
pub fn scheduling_key(domain: &str, name: &str) -> Option<String> {
    let is_inner = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let is_outer = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let is_name = name.len() <= NAME_MAX
        && name.chars().all(is_inner)
        && is_outer(name.chars().next())
        && is_outer(name.chars().next_back());
    is_name.then(|| format!("{domain}/{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_names_that_kubernetes_takes() {
        let key = |name: &str| scheduling_key(ADDRESSES_DOMAIN, name);
        assert_eq!(key("blue").as_deref(), Some("addresses.podnet.dev/blue"));
        assert!(key("a.b-c_9").is_some() && key(&"l".repeat(63)).is_some());
        for bad in ["", "-a", "a-", "eth0@if1", "a/b", &"l".repeat(64)] {
            assert_eq!(key(bad), None, "{bad}");
        }
    }
}
