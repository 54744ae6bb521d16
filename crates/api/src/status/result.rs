//! From the result of an `ADD` to an entry (NPWG §5.1.1 and §5.3).

use std::net::IpAddr;

use ipnet::IpNet;

use super::{AttachmentStatus, StatusDns};
use crate::mac::MacAddr;

/// The parts of a CNI result that a status is made of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttachmentResult {
    /// `interfaces`, in order.
    pub interfaces: Vec<ResultInterface>,
    /// `ips`, in order.
    pub ips: Vec<ResultAddress>,
    /// `dns`.
    pub dns: StatusDns,
    /// A result before 0.3.0: no interfaces, and `ips` are its `ip4` and `ip6`.
    pub legacy: bool,
}

/// One of `interfaces`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResultInterface {
    /// `name`.
    pub name: String,
    /// `mac`.
    pub mac: Option<MacAddr>,
    /// `mtu`, bytes.
    pub mtu: Option<u32>,
    /// `sandbox`: the namespace it is in; `None` or empty for one of the node's own.
    pub sandbox: Option<String>,
}

impl ResultInterface {
    fn is_in_sandbox(&self) -> bool {
        self.sandbox.as_deref().is_some_and(|path| !path.is_empty())
    }
}

/// One of `ips`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResultAddress {
    /// `address`.
    pub address: IpNet,
    /// `interface`: place in the list of interfaces; `None` or negative for no place.
    pub interface: Option<i64>,
    /// `gateway`.
    pub gateway: Option<IpAddr>,
}

impl AttachmentStatus {
    /// Makes the entry of attachment `name`: the first interface in the sandbox.
    ///
    /// It has the addresses on that interface. With no such interface it is the first address that
    /// belongs to none.
    ///
    /// Who is the default network, and where default routes go, is not in a result that says what
    /// one plugin did; the caller adds it.
    #[must_use]
    pub fn from_result(name: impl Into<String>, result: &AttachmentResult) -> Self {
        let first = result
            .interfaces
            .iter()
            .enumerate()
            .find(|(_, interface)| interface.is_in_sandbox());
        let mut status = Self {
            dns: result.dns.clone(),
            ..Self::minimal(name)
        };
        let Some((index, interface)) = first else {
            status.ips.extend(unplaced(result));
            return status;
        };
        status.interface = Some(interface.name.clone()).filter(|name| !name.is_empty());
        status.mac = interface.mac.filter(|_| status.interface.is_some());
        status.mtu = interface.mtu;
        let on_it = |ip: &&ResultAddress| ip.place() == Some(index);
        status.ips = result
            .ips
            .iter()
            .filter(on_it)
            .map(|ip| ip.address.into())
            .collect();
        status
    }
}

impl ResultAddress {
    fn place(&self) -> Option<usize> {
        self.interface.and_then(|place| usize::try_from(place).ok())
    }
}

/// Returns the first address without an interface (NPWG §5.3.3.1).
///
/// Of a result before 0.3.0, all of them.
fn unplaced(result: &AttachmentResult) -> impl Iterator<Item = super::StatusAddress> {
    result
        .ips
        .iter()
        .filter(|ip| ip.place().is_none())
        .take(if result.legacy { usize::MAX } else { 1 })
        .map(|ip| ip.address.into())
}
