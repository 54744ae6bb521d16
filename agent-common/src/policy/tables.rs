//! The lookups that decisions need.

use crate::addr::{Ip16, MacAddr};
use crate::endpoint::Endpoint;
use crate::route::Route;

/// Tables of the networks, in which the engine looks up by its own means.
pub trait Tables {
    /// True when `ip` is one of the port's addresses beyond the first of its family.
    fn is_further_address(&self, ip: &Ip16) -> bool;
    /// The endpoint with this address on this network.
    fn endpoint(&self, network: u32, ip: &Ip16) -> Option<Endpoint>;
    /// The network's way to the outside, which has the unspecified address.
    #[inline(always)]
    fn way_out(&self, network: u32) -> Option<Endpoint> {
        self.endpoint(network, &Ip16::NONE)
    }
    /// The route of a network's gateway to an address of another network.
    #[inline(always)]
    fn route(&self, network: u32, ip: &Ip16) -> Option<Route> {
        let _ = (network, ip);
        None
    }
    /// The endpoint with this MAC address on this network.
    fn station(&self, network: u32, mac: MacAddr) -> Option<Endpoint>;
    /// True when frames of the network have this VLAN id at its uplink.
    #[inline(always)]
    fn has_vlan(&self, network: u32, id: u16) -> bool {
        let _ = (network, id);
        false
    }
    /// True when the network has the subnet of this first address and length, bits.
    #[inline(always)]
    fn has_subnet(&self, network: u32, first: &Ip16, length: u8) -> bool {
        let _ = (network, first, length);
        false
    }
    /// True when an L2 network with an uplink lists this EtherType.
    #[inline(always)]
    fn has_ether_type(&self, network: u32, ether_type: u16) -> bool {
        let _ = (network, ether_type);
        false
    }
}
