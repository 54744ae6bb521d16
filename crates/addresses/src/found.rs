//! Claims as the API server has them: an `IPAMClaim`, or a `Port`.

use api::{FieldErrors, IpamClaim, MacAddr, Port, PortRequest, PortUser};
use book::ledger::ClaimRef;
use kube_core::ResourceExt as _;

/// A claim that was read.
#[derive(Debug, Clone)]
pub struct FoundClaim {
    /// Its UID.
    pub uid: Option<String>,
    /// Its version.
    pub version: Option<String>,
    /// It is being deleted.
    pub is_deleted: bool,
    /// The network that it is of.
    pub network: String,
    /// Interface that it is for, where it says one.
    pub interface: Option<String>,
    /// `status.ips`, with or without lengths of prefixes.
    pub ips: Vec<String>,
    /// Fields of a `Port` that no other claim has.
    pub port: Option<FoundPort>,
}

/// A Port that was read.
#[derive(Debug, Clone)]
pub struct FoundPort {
    /// MAC address and addresses that it is to have.
    pub request: Result<PortRequest, FieldErrors>,
    /// Its MAC address as it was written when its first pod had it.
    pub mac: Option<MacAddr>,
    /// The pod that has it.
    pub user: Option<PortUser>,
    /// Number of pods that have had it.
    pub epoch: i64,
}

/// Fields that are to be written into the status of a claim.
#[derive(Debug, Clone)]
pub struct ClaimWrite {
    /// The claim.
    pub claim: ClaimRef,
    /// Its UID.
    pub uid: Option<String>,
    /// Its version.
    pub version: Option<String>,
    /// Addresses with the lengths of their prefixes.
    pub ips: Vec<String>,
    /// Fields of a Port that no other claim has.
    pub port: Option<PortWrite>,
}

/// The pod that is to have a Port, and what that is.
#[derive(Debug, Clone)]
pub struct PortWrite {
    /// Its MAC address, if it has none yet.
    pub mac: Option<MacAddr>,
    /// The pod.
    pub user: PortUser,
    /// Number of pods that have had it, this one counted.
    pub epoch: i64,
}

impl From<IpamClaim> for FoundClaim {
    fn from(object: IpamClaim) -> Self {
        Self {
            uid: object.uid(),
            version: object.resource_version(),
            is_deleted: object.metadata.deletion_timestamp.is_some(),
            network: object.spec.network,
            interface: Some(object.spec.interface),
            ips: object.status.unwrap_or_default().ips,
            port: None,
        }
    }
}

impl From<Port> for FoundClaim {
    fn from(object: Port) -> Self {
        let uid = object.uid();
        let status = object.status.clone().unwrap_or_default();
        let port = FoundPort {
            request: api::port(uid.as_deref().unwrap_or_default(), &object.spec),
            mac: status.mac.and_then(|mac| mac.parse().ok()),
            user: status.user,
            epoch: status.epoch.unwrap_or_default(),
        };
        Self {
            version: object.resource_version(),
            is_deleted: object.metadata.deletion_timestamp.is_some(),
            uid,
            network: object.spec.network,
            interface: None,
            ips: status.ips,
            port: Some(port),
        }
    }
}
