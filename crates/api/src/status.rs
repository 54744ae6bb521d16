//! Annotations of a pod with the networks it is attached to.
//!
//! They are NPWG's `k8s.v1.cni.cncf.io/network-status`, and KEP-3698's list as
//! `podnet.dev/network-status`.
//!
//! ```
//! use api::status::{AttachmentStatus, write_network_status};
//!
//! let mut blue = AttachmentStatus::minimal("shop/blue");
//! blue.interface = Some("net1".to_owned());
//! blue.ips = vec!["10.10.0.7/24".parse()?];
//! assert_eq!(
//!     write_network_status(&[blue])?,
//!     r#"[{"name":"shop/blue","interface":"net1","ips":["10.10.0.7"],"default":false,"dns":{},"dev.podnet.ips":["10.10.0.7/24"]}]"#
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod pod_network;
mod read;
mod result;
#[cfg(test)]
mod tests;
mod write;

use std::{collections::BTreeMap, fmt, net::IpAddr, str::FromStr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

pub use pod_network::{
    POD_NETWORK_STATUS_ANNOTATION, PodNetworkAddresses, PodNetworkStatusEntry, pod_network_entries,
    write_pod_network_status,
};
pub use read::parse_network_status;
pub use result::{AttachmentResult, ResultAddress, ResultInterface};
pub use write::write_network_status;

use crate::{json::RawJson, mac::MacAddr};

/// The annotation with what came of a pod's attachments (NPWG §5).
pub const NETWORK_STATUS_ANNOTATION: &str = "k8s.v1.cni.cncf.io/network-status";

/// podnet's own key for addresses with their prefixes.
///
/// It is in reverse domain notation as NPWG §5.3 asks for.
pub const PREFIXES_KEY: &str = "dev.podnet.ips";

/// One entry of [`NETWORK_STATUS_ANNOTATION`] (NPWG §5.3).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttachmentStatus {
    /// `name`: `namespace/name` of the network's object, or the default network's name.
    pub name: String,
    /// `interface`: the interface in the pod.
    pub interface: Option<String>,
    /// `ips`.
    pub ips: Vec<StatusAddress>,
    /// `mac`; not without `interface`.
    pub mac: Option<MacAddr>,
    /// `mtu`, bytes.
    pub mtu: Option<u32>,
    /// `default`: the cluster-wide default network. At most one entry has it.
    pub default: bool,
    /// `dns`.
    pub dns: StatusDns,
    /// `gateway`: next hops of the pod's default routes through this attachment.
    ///
    /// Not in NPWG, but clients read it.
    pub gateway: Vec<IpAddr>,
    /// `default-route`: the same, when the pod asked for it by that key.
    pub default_route: Vec<IpAddr>,
    /// `device-info`, as written by who made the device.
    pub device_info: Option<RawJson>,
    /// `infiniband-guid`, as clients write it: the 20 bytes of the hardware address.
    pub infiniband_guid: Option<String>,
    /// Keys with a period: extensions of somebody.
    pub extensions: BTreeMap<String, RawJson>,
}

impl AttachmentStatus {
    /// The entry of an attachment nothing is known of (NPWG §5.1.1).
    #[must_use]
    pub fn minimal(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            ..Self::default()
        }
    }
}

/// `dns` of an entry (NPWG §5.3.7).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusDns {
    /// Addresses of servers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nameservers: Vec<String>,
    /// The local domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// Domains to search.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub search: Vec<String>,
}

impl StatusDns {
    /// True when nothing is said.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// An address of an attachment; its writer may have left the prefix out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StatusAddress {
    /// The address.
    pub address: IpAddr,
    /// Length of its prefix, bits.
    pub prefix_len: Option<u8>,
}

impl From<IpNet> for StatusAddress {
    fn from(prefix: IpNet) -> Self {
        Self {
            address: prefix.addr(),
            prefix_len: Some(prefix.prefix_len()),
        }
    }
}

impl FromStr for StatusAddress {
    type Err = ipnet::AddrParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.parse() {
            Ok(address) => Ok(Self {
                address,
                prefix_len: None,
            }),
            Err(_) => text.parse::<IpNet>().map(Self::from),
        }
    }
}

impl fmt::Display for StatusAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.address)?;
        self.prefix_len.map_or(Ok(()), |len| write!(f, "/{len}"))
    }
}

/// Why a status cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum StatusError {
    /// Two entries are the default network (NPWG §5.3.6).
    #[error("entries \"{first}\" and \"{second}\" both have default: true; only one may")]
    TwoDefaults {
        /// Name of the first one.
        first: String,
        /// Name of the second one.
        second: String,
    },
    /// A hardware address of nothing (NPWG §5.3.4).
    #[error("entry \"{name}\" has a mac without an interface; add the interface")]
    MacWithoutInterface {
        /// Name of the entry.
        name: String,
    },
    /// Not a list of entries.
    #[error("the annotation is not a list of network statuses")]
    Json(#[from] serde_json::Error),
    /// A value that is not what it must be.
    #[error("[{index}].{key}: {found} is not {expected}")]
    BadValue {
        /// Place of the entry, from 0.
        index: usize,
        /// Its key.
        key: &'static str,
        /// The value as written.
        found: String,
        /// The expected value.
        expected: &'static str,
    },
}
