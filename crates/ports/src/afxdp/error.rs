//! Failures of AF_XDP ports.

use std::io;

/// Largest MTU, bytes: a packet in native XDP has room in one page of 4 KiB.
///
/// Pages of 4 KiB are the smallest. The rest of the page is 256 bytes before the packet, its Ethernet
/// header, and 320 bytes behind it (`veth_xdp_set`).
pub(super) const MTU_MAX: u16 = 4096 - 256 - 14 - 320;

/// Why a port cannot be one of AF_XDP.
#[derive(Debug, thiserror::Error)]
pub enum AfXdpError {
    /// Native XDP on a veth takes a packet that fits a page.
    #[error(
        "network {network} has an MTU of {mtu}, and an interface of type AFXDP can have {MTU_MAX}: set \
         spec.mtu of its PodNetworkParameters to that or less, or interface.type to Veth"
    )]
    Mtu {
        /// The network.
        network: String,
        /// Its MTU.
        mtu: u16,
    },
    /// The kernel does not take the program.
    #[error("the kernel refuses the XDP program of {ifname}, an interface of type AFXDP: {source}")]
    Program {
        /// The interface.
        ifname: String,
        /// Why.
        source: io::Error,
    },
    /// The control socket cannot be made.
    #[error("interface {ifname} of type AFXDP: {source}")]
    Control {
        /// The interface.
        ifname: String,
        /// Why.
        source: xsk::Error,
    },
}
