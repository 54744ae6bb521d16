//! `IPReservation`: one address of a network, reserved for a pod or a claim.
//!
//! The name of the object is made of the network and the address, so an address is reserved at most
//! once in a cluster. An address may be in use already as a dynamic one, and only the node that holds
//! its block knows. So a reservation counts when its `Granted` condition is True, and the holder of
//! the `IPBlock` writes that: at once when it is its own, and never while the address is in use. Where
//! nobody holds the block, the node that needs the address takes it first. Who takes a block lists
//! its reservations, with a read that is not served from a cache, before it gives out addresses of
//! it; those granted before keep theirs.
//!
//! A reservation for a pod goes with the pod, by UID; one for an `IPAMClaim` goes with the claim, and
//! any node may use it for a pod that refers to the claim (NPWG v1.3 §8). One for a `Port` is like that of a
//! claim.

use std::net::IpAddr;
use std::{fmt, mem};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_core::Rule;
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    block::name_of,
    condition,
    meta::{LABEL_PATTERN, NameError, SUBDOMAIN_PATTERN, null_as_default},
};

/// `spec` of an `IPReservation`: the address, and its holder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, CustomResource, JsonSchema)]
#[kube(
    group = "podnet.dev",
    version = "v1alpha1",
    kind = "IPReservation",
    root = "IpReservation",
    plural = "ipreservations",
    singular = "ipreservation",
    shortname = "ipr",
    status = "IpReservationStatus",
    derive = "PartialEq",
    doc = "One address of a PodNetwork that a pod, an IPAMClaim or a Port asked for. Made and removed by podnet.",
    crates(kube = "::kube_derive", kube_core = "::kube_core"),
    attr = "x_kube(crates(kube_core = ::kube_core))",
    validation = Rule::new("self.metadata.name.startsWith(self.spec.network + '.') \
        && self.metadata.name.matches('[.]([0-9]+(-[0-9]+){3}|(0|[1-9a-f][0-9a-f]{0,3})(-(0|[1-9a-f][0-9a-f]{0,3})){7})$') \
        && ip(self.metadata.name.substring(self.spec.network.size() + 1).replace('-', self.spec.address.contains(':') ? ':' : '.')) == ip(self.spec.address)")
        .message("metadata.name must be the network, a dot and the address with '-' between its parts, as blue.10-10-0-7"),
    selectable = ".spec.network",
    printcolumn(
        name = "Network",
        type_ = "string",
        json_path = ".spec.network",
        description = "The PodNetwork"
    ),
    printcolumn(
        name = "Address",
        type_ = "string",
        json_path = ".spec.address",
        description = "The address"
    ),
    printcolumn(
        name = "Pod",
        type_ = "string",
        json_path = ".spec.pod.name",
        description = "The pod that holds it"
    ),
    printcolumn(
        name = "Claim",
        type_ = "string",
        json_path = ".spec.claim.name",
        description = "The IPAMClaim that holds it"
    ),
    printcolumn(
        name = "Port",
        type_ = "string",
        json_path = ".spec.port.name",
        description = "The Port that holds it"
    ),
    printcolumn(
        name = "Granted",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Granted\")].status",
        description = "Whether the holder of the block agreed"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[schemars(extend("x-kubernetes-validations" = [
    Rule::new("self == oldSelf")
        .message("is immutable; delete the reservation and make another"),
    Rule::new("[has(self.pod), has(self.claim), has(self.port)].exists_one(it, it)")
        .message("needs one of pod, claim and port"),
]))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct IpReservationSpec {
    /// Name of the `PodNetwork`.
    #[schemars(length(min = 1, max = 213), regex(pattern = SUBDOMAIN_PATTERN))]
    pub network: String,
    /// The address, in the canonical form of RFC 5952.
    #[schemars(length(min = 1, max = 39))]
    #[schemars(extend("x-kubernetes-validations" = [
        Rule::new("isIP(self) && ip.isCanonical(self)")
            .message("must be an address in canonical form, as 10.10.0.7 or fd10:10::7"),
    ]))]
    pub address: String,
    /// The pod that holds it, where it is for one pod only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodHolder>,
    /// The `IPAMClaim` that holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<ClaimHolder>,
    /// The `Port` that holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<ClaimHolder>,
}

impl IpReservationSpec {
    /// Returns the holder of the address; none of an object that names no holder.
    #[must_use]
    pub fn holder(&self) -> Option<Holder> {
        let pod = self.pod.clone().map(Holder::Pod);
        let claim = || self.claim.clone().map(Holder::Claim);
        pod.or_else(claim)
            .or_else(|| self.port.clone().map(Holder::Port))
    }
}

/// A pod that holds an address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PodHolder {
    /// Namespace of the pod.
    #[schemars(length(min = 1, max = 63), regex(pattern = LABEL_PATTERN))]
    pub namespace: String,
    /// Name of the pod.
    #[schemars(length(min = 1, max = 253), regex(pattern = SUBDOMAIN_PATTERN))]
    pub name: String,
    /// UID of the pod: one of the same name that comes later is another pod.
    #[schemars(length(min = 1, max = 128))]
    pub uid: String,
    /// Name of the node it runs on.
    #[schemars(length(min = 1, max = 253), regex(pattern = SUBDOMAIN_PATTERN))]
    pub node: String,
}

/// An `IPAMClaim` or a `Port` that holds an address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClaimHolder {
    /// Namespace of the object.
    #[schemars(length(min = 1, max = 63), regex(pattern = LABEL_PATTERN))]
    pub namespace: String,
    /// Name of the object.
    #[schemars(length(min = 1, max = 253), regex(pattern = SUBDOMAIN_PATTERN))]
    pub name: String,
    /// UID of the object: one of the same name that comes later is another one.
    #[schemars(length(min = 1, max = 128))]
    pub uid: String,
}

/// The holder of a reserved address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    /// One pod, and no other after it.
    Pod(PodHolder),
    /// Any pod that refers to the claim.
    Claim(ClaimHolder),
    /// The pod that has the Port.
    Port(ClaimHolder),
}

impl Holder {
    /// Returns the UID of the object.
    #[must_use]
    pub fn uid(&self) -> &str {
        match self {
            Self::Pod(pod) => &pod.uid,
            Self::Claim(claim) => &claim.uid,
            Self::Port(port) => &port.uid,
        }
    }

    /// Reports whether both are the same object, and not just of the same name.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        mem::discriminant(self) == mem::discriminant(other) && self.uid() == other.uid()
    }
}

impl fmt::Display for Holder {
    /// Kind and name, with the node of a pod.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pod(PodHolder {
                namespace,
                name,
                node,
                ..
            }) => write!(f, "pod {namespace}/{name} on node {node}"),
            Self::Claim(claim) => write!(f, "IPAMClaim {}/{}", claim.namespace, claim.name),
            Self::Port(port) => write!(f, "Port {}/{}", port.namespace, port.name),
        }
    }
}

/// `status` of an `IPReservation`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IpReservationStatus {
    /// `Granted`: True from the moment the holder of the block agreed.
    #[schemars(schema_with = "condition::list_schema")]
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub conditions: Vec<Condition>,
}

impl IpReservation {
    /// Makes the reservation of an address of `network` for `holder`.
    ///
    /// To create the object is to ask for it.
    ///
    /// # Errors
    /// The name of the network is none, or leaves no room for the address.
    pub fn ask(network: &str, address: IpAddr, holder: Holder) -> Result<Self, NameError> {
        let mut spec = IpReservationSpec {
            network: network.to_owned(),
            address: address.to_string(),
            pod: None,
            claim: None,
            port: None,
        };
        match holder {
            Holder::Pod(pod) => spec.pod = Some(pod),
            Holder::Claim(claim) => spec.claim = Some(claim),
            Holder::Port(port) => spec.port = Some(port),
        }
        Ok(Self::new(&name_of(network, address)?, spec))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_one_name_whoever_asks() {
        let claim = ClaimHolder {
            namespace: "vms".to_owned(),
            name: "vm-a.blue".to_owned(),
            uid: "c1".to_owned(),
        };
        let pod = PodHolder {
            namespace: "vms".to_owned(),
            name: "vm-a".to_owned(),
            uid: "p1".to_owned(),
            node: "n1".to_owned(),
        };
        let port = ClaimHolder {
            namespace: "vms".to_owned(),
            name: "db-0".to_owned(),
            uid: "q1".to_owned(),
        };
        for (address, name) in [
            ("10.10.0.7", "blue.10-10-0-7"),
            ("fd10:10::7", "blue.fd10-10-0-0-0-0-0-7"),
        ] {
            let address: IpAddr = address.parse().unwrap();
            for holder in [
                Holder::Claim(claim.clone()),
                Holder::Pod(pod.clone()),
                Holder::Port(port.clone()),
            ] {
                let reservation = IpReservation::ask("blue", address, holder.clone()).unwrap();
                assert_eq!(reservation.metadata.name.as_deref(), Some(name));
                assert_eq!(reservation.spec.holder(), Some(holder));
            }
        }
    }
}
