//! The status KEP-3698 wanted in a pod's `status.networks`.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::selection::Family;

/// Annotation with a pod's networks and addresses.
///
/// KEP-3698 `PodStatus.networks`.
pub const POD_NETWORK_STATUS_ANNOTATION: &str = "podnet.dev/network-status";

/// One entry (KEP-3698 `NetworkStatus`): one address of one attachment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodNetworkStatusEntry {
    /// The `PodNetwork`, also where the pod named a `PodNetworkAttachment`.
    pub name: String,
    /// The interface in the pod.
    #[serde(default)]
    pub interface_name: String,
    /// The address; absent for an attachment without any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip: Option<IpAddr>,
    /// The default route of the address' family goes through the interface.
    #[serde(
        default,
        rename = "isDefaultGW",
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub is_default_gateway: bool,
}

/// An attachment with its addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodNetworkAddresses {
    /// The `PodNetwork`.
    pub network: String,
    /// The interface in the pod.
    pub interface: String,
    /// Its addresses, in order.
    pub ips: Vec<IpAddr>,
    /// The families whose default route goes through it.
    pub default_routes: Vec<Family>,
}

/// Lists the first address of each family of every attachment, in their order.
///
/// Each is an entry of its own, since an entry has one address (KEP-3698 "Status").
#[must_use]
pub fn pod_network_entries(attachments: &[PodNetworkAddresses]) -> Vec<PodNetworkStatusEntry> {
    attachments.iter().flat_map(entries).collect()
}

/// The value of [`POD_NETWORK_STATUS_ANNOTATION`].
///
/// # Errors
/// An entry cannot be written as JSON; none of plain strings and addresses is.
pub fn write_pod_network_status(
    attachments: &[PodNetworkAddresses],
) -> Result<String, serde_json::Error> {
    serde_json::to_string(&pod_network_entries(attachments))
}

fn entries(attachment: &PodNetworkAddresses) -> Vec<PodNetworkStatusEntry> {
    let entry = |ip: Option<IpAddr>, is_default_gateway| PodNetworkStatusEntry {
        name: attachment.network.clone(),
        interface_name: attachment.interface.clone(),
        ip,
        is_default_gateway,
    };
    let mut written: Vec<Family> = Vec::new();
    let mut entries = Vec::new();
    for ip in &attachment.ips {
        let family = Family::of(*ip);
        if !written.contains(&family) {
            written.push(family);
            let is_default = attachment.default_routes.contains(&family);
            entries.push(entry(Some(*ip), is_default));
        }
    }
    if entries.is_empty() {
        entries.push(entry(None, !attachment.default_routes.is_empty()));
    }
    entries
}
