//! `PodNetwork`: a network that pods can attach to, with the fields of KEP-3698.
//!
//! An object whose spec has a field this version does not know is refused by the decoder, and not
//! taken without it: the field may be one that keeps tenants apart. Watch these kinds through
//! `kube_core::DeserializeGuard`, so that one such object does not hide the others.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_core::Rule;
use kube_derive::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::{
    condition,
    meta::{DEFAULT_NETWORK, PROVIDER, ParametersRef, is_label, null_as_default},
    parameters::Transport,
    validate::NetworkId,
};

/// The longest `spec.provider` of KEP-3698, bytes.
const PROVIDER_MAX: usize = 253;

/// `spec` of a `PodNetwork`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, CustomResource, JsonSchema)]
#[kube(
    group = "podnet.dev",
    version = "v1alpha1",
    kind = "PodNetwork",
    plural = "podnetworks",
    singular = "podnetwork",
    shortname = "pn",
    category = "podnetwork",
    category = "podnetworks",
    status = "PodNetworkStatus",
    derive = "PartialEq",
    doc = "A network pods can attach to (KEP-3698).",
    crates(kube = "::kube_derive", kube_core = "::kube_core"),
    attr = "x_kube(crates(kube_core = ::kube_core))",
    // An IPBlock is named after its network and its first address, 39 bytes of IPv6 at most.
    validation = Rule::new("self.metadata.name.size() <= 213")
        .message("metadata.name must have at most 213 characters: its address blocks are named after it"),
    // A rule at the field does not run when the field goes.
    validation = Rule::new("!has(oldSelf.status) || !has(oldSelf.status.transport) || has(self.status) && has(self.status.transport)")
        .message("status.transport must stay: pods are attached by it"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status",
        description = "Whether new pods can attach"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason",
        description = "Why it is ready or not"
    ),
    printcolumn(
        name = "Enabled",
        type_ = "boolean",
        json_path = ".spec.enabled",
        description = "False refuses new attachments"
    ),
    printcolumn(
        name = "Provider",
        type_ = "string",
        json_path = ".spec.provider",
        description = "Implementer of the network"
    ),
    printcolumn(
        name = "Transport",
        type_ = "string",
        json_path = ".status.transport",
        description = "Transport of packets between nodes"
    ),
    printcolumn(
        name = "ID",
        type_ = "integer",
        json_path = ".status.networkID",
        description = "Number of the network on the wire",
        priority = 1
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
// A rule on an optional field does not run when the field comes or goes, so these are on `spec`.
// With `has` and not with `?`, of which the server cannot tell the cost and refuses the definition.
#[schemars(extend("x-kubernetes-validations" = [
    Rule::new("has(self.provider) == has(oldSelf.provider) && (!has(self.provider) || self.provider == oldSelf.provider)")
        .message("is immutable; make another PodNetwork")
        .field_path(".provider"),
    Rule::new("has(self.parametersRefs) && has(oldSelf.parametersRefs) ? self.parametersRefs == oldSelf.parametersRefs \
        : (!has(self.parametersRefs) || self.parametersRefs.size() == 0) && (!has(oldSelf.parametersRefs) || oldSelf.parametersRefs.size() == 0)")
        .message("is immutable, its order too; make another PodNetwork")
        .field_path(".parametersRefs"),
]))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PodNetworkSpec {
    /// False refuses new attachments; those there are keep running. Default true.
    #[serde(default = "enabled", deserialize_with = "null_as_enabled")]
    pub enabled: bool,
    /// The implementation of the network; this agent serves `podnet.dev/ebpf`.
    #[schemars(
        length(min = 1, max = 253),
        regex(
            pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\/[A-Za-z0-9\/\-._~%!$&'()*+,;=:]+$"
        )
    )]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// References to the implementation's parameters.
    ///
    /// For podnet these are `PodNetworkParameters`, read as one; where two contradict each other the
    /// network is not ready.
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

/// `status` of a `PodNetwork`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodNetworkStatus {
    /// `Ready`, `ParamsReady`, `Split` and `InUse`.
    ///
    /// `ParamsReady` where the network has parameters (KEP-3698), `Split` with transport Local, `InUse` of the
    /// network `default`: it can be deleted when that is False.
    #[schemars(schema_with = "condition::list_schema")]
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub conditions: Vec<Condition>,
    /// Number of the network on the wire and in tables of nodes, 1 to 16777215.
    ///
    /// It is given once and kept as long as the network exists.
    #[schemars(range(min = 1, max = 16_777_215))]
    #[serde(default, rename = "networkID", skip_serializing_if = "Option::is_none")]
    pub network_id: Option<i64>,
    /// Transport of packets between nodes.
    ///
    /// It is written or decided once, and kept as long as the network exists.
    #[schemars(schema_with = "transport_schema")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transport: Option<Transport>,
}

/// Returns the schema of `status.transport`, which never changes.
fn transport_schema(_: &mut SchemaGenerator) -> Schema {
    let types = [
        Transport::Local,
        Transport::Vxlan,
        Transport::Vlan,
        Transport::Native,
    ];
    json_schema!({
        "type": "string",
        "description": "Transport of packets between nodes. It is written or decided once, and kept as long \
                        as the network exists.",
        "enum": types.map(Transport::as_str),
        "maxLength": 6,
        "x-kubernetes-validations": [{
            "rule": "self == oldSelf",
            "message": "is immutable; make another PodNetwork",
        }],
    })
}

/// Number and transport that a cluster has given a network.
///
/// There is one of each for all nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Given {
    /// `status.networkID`.
    pub number: Option<NetworkId>,
    /// `status.transport`.
    pub transport: Option<Transport>,
}

impl PodNetwork {
    /// Returns the number and the transport in its status.
    #[must_use]
    pub fn given(&self) -> Given {
        let Some(status) = &self.status else {
            return Given::default();
        };
        let number = status.network_id.and_then(|id| u32::try_from(id).ok());
        Given {
            number: number.and_then(NetworkId::new),
            transport: status.transport,
        }
    }
}

impl PodNetworkSpec {
    /// Reports whether podnet implements the network `name`.
    ///
    /// Its provider is podnet's; or it is the network every cluster has, and has none (KEP-3698
    /// "provider", "Default PodNetwork").
    #[must_use]
    pub fn is_ours(&self, name: &str) -> bool {
        match self.provider.as_deref() {
            Some(provider) => provider == PROVIDER,
            None => name == DEFAULT_NETWORK,
        }
    }
}

const fn enabled() -> bool {
    true
}

fn null_as_enabled<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_else(enabled))
}

/// Reports whether `provider` is `domain/path`, at most 253 bytes (KEP-3698).
#[must_use]
pub fn check_provider(provider: &str) -> bool {
    let Some((domain, path)) = provider.split_once('/') else {
        return false;
    };
    provider.len() <= PROVIDER_MAX
        && domain.split('.').all(is_label)
        && !path.is_empty()
        && path
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// KEP-PN-06: an absent provider is ours for the default network only.
    #[test]
    fn a_network_without_a_provider_is_ours_when_it_is_the_default() {
        let of = |provider: Option<&str>| PodNetworkSpec {
            enabled: true,
            provider: provider.map(str::to_owned),
            parameters_refs: Vec::new(),
        };
        assert!(of(Some("podnet.dev/ebpf")).is_ours("blue"));
        assert!(of(None).is_ours("default"));
        assert!(!of(None).is_ours("blue"));
        assert!(!of(Some("acme.io/foo")).is_ours("default"));
        proof::of!("KEP-PN-06");
    }

    /// KEP-PN-03: the pattern of `spec.provider`.
    #[test]
    fn provider_follows_the_pattern_of_the_kep() {
        for good in ["acme.io/foo", "foo/bar", "podnet.dev/ebpf", "a/b/c:d"] {
            assert!(check_provider(good), "{good}");
        }
        let long = format!("a/{}", "b".repeat(252));
        for bad in [
            "",
            "acme.io",
            "acme.io/",
            "Acme.io/x",
            "a..b/x",
            "a/b c",
            long.as_str(),
        ] {
            assert!(!check_provider(bad), "{bad:?} was taken");
        }
        proof::of!("KEP-PN-03");
    }
}
