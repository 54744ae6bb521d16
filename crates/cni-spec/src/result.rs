//! Convert results of every version from and to one internal form (CNI-RES-01).
//!
//! The internal form is that of the newest version.

use std::net::IpAddr;

use crate::addr::IpPrefix;

mod decode;
mod encode;
#[cfg(test)]
mod tests;

/// Result of `ADD`, also in `prevResult`, in the terms of 1.1.0 (CNI SPEC §5).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CniResult {
    /// Interfaces made; the one in the container first (CNI-RES-06).
    pub interfaces: Vec<Interface>,
    /// Addresses given.
    pub ips: Vec<IpConfig>,
    /// Routes made in the container.
    pub routes: Vec<Route>,
    /// Resolver settings to pass on.
    pub dns: Dns,
}

/// One entry of `interfaces`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Interface {
    /// `name`.
    pub name: String,
    /// `mac`.
    pub mac: Option<String>,
    /// `mtu` in bytes (1.1.0).
    pub mtu: Option<u32>,
    /// `sandbox`: `CNI_NETNS` as given, absent for an interface of the host.
    pub sandbox: Option<String>,
    /// `socketPath`: the socket of a vhost-user or memif interface (1.1.0).
    pub socket_path: Option<String>,
    /// `pciID` (1.1.0).
    pub pci_id: Option<String>,
}

/// One entry of `ips`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IpConfig {
    /// `address` with the prefix of its subnet.
    pub address: IpPrefix,
    /// `gateway`.
    pub gateway: Option<IpAddr>,
    /// `interface`: an index into [`CniResult::interfaces`].
    pub interface: Option<usize>,
}

/// One entry of `routes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// `dst`.
    pub dst: IpPrefix,
    /// `gw`.
    pub gw: Option<IpAddr>,
    /// `mtu` of the path in bytes (1.1.0).
    pub mtu: Option<u32>,
    /// `advmss` in bytes (1.1.0).
    pub advmss: Option<u32>,
    /// `priority`: the metric, lower is preferred (1.1.0).
    pub priority: Option<u32>,
    /// `table` (1.1.0).
    pub table: Option<u32>,
    /// `scope`: 0 global, 253 link, 254 host (1.1.0).
    pub scope: Option<u32>,
}

impl Route {
    /// A route with nothing but destination and gateway.
    #[must_use]
    pub const fn new(dst: IpPrefix, gw: Option<IpAddr>) -> Self {
        Self {
            dst,
            gw,
            mtu: None,
            advmss: None,
            priority: None,
            table: None,
            scope: None,
        }
    }
}

/// `dns`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dns {
    /// `nameservers`, most preferred first.
    pub nameservers: Vec<String>,
    /// `domain`.
    pub domain: Option<String>,
    /// `search`.
    pub search: Vec<String>,
    /// `options`.
    pub options: Vec<String>,
}
