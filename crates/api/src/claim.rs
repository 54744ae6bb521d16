//! `IPAMClaim`: addresses that outlive the pods that use them (NPWG v1.3 §8).
//! Fields that other versions of the definition have are dropped.

use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `spec` of an `IPAMClaim` (NPWG v1.3 §8.2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, CustomResource, JsonSchema)]
#[kube(
    group = "k8s.cni.cncf.io",
    version = "v1alpha1",
    kind = "IPAMClaim",
    root = "IpamClaim",
    plural = "ipamclaims",
    singular = "ipamclaim",
    namespaced,
    status = "IpamClaimStatus",
    derive = "PartialEq",
    doc = "A claim of addresses that outlive the pods that use them (NPWG v1.3 section 8).",
    crates(kube_core = "::kube_core")
)]
#[serde(rename_all = "camelCase")]
pub struct IpamClaimSpec {
    /// Name of the network the addresses are of.
    pub network: String,
    /// Name of the pod's interface they are for.
    pub interface: String,
}

/// `status` of an `IPAMClaim` (NPWG v1.3 §8.2).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IpamClaimStatus {
    /// The addresses, each with its prefix length; empty until they are allocated.
    pub ips: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NPWG-8.1; other versions of the definition have more fields.
    #[test]
    fn a_claim_with_fields_of_a_later_version_is_read() {
        let claim: IpamClaim = serde_json::from_value(serde_json::json!({
            "apiVersion": "k8s.cni.cncf.io/v1alpha1",
            "kind": "IPAMClaim",
            "metadata": {"name": "vm-a.tenantred.net1", "namespace": "vms"},
            "spec": {"network": "tenantred", "interface": "net1", "ipRequests": ["10.0.0.3/24"]},
            "status": {"ips": ["10.0.0.3/24"], "ownerPod": {"name": "virt-launcher-vm-a"}},
        }))
        .unwrap();
        assert_eq!(claim.spec.network, "tenantred");
        assert_eq!(claim.status.unwrap().ips, ["10.0.0.3/24"]);
        proof::of!("NPWG-8.1");
    }
}
