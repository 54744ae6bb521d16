//! `VTEPS`, `VTEP_SOURCES` and `FLOOD_VTEPS`: other nodes, as ends of VXLAN tunnels (RFC 7348).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::addr::Ip16;

/// Nodes per chunk of `FLOOD_VTEPS`.
pub const VTEP_CHUNK: usize = 126;
/// Chunks per network: a tail call each, of which [`FLOOD_CHUNKS`](crate::flood::FLOOD_CHUNKS)
/// leaves four.
pub const VTEP_CHUNKS: u32 = 4;

/// Another node.
///
/// *Written by* the agent, before the first endpoint that is there. *Read by* `from_pod` and `spread`.
/// *Lifetime*: as long as an endpoint or a network's members are there.
/// *Key*: a number of this node's choice, 1 and up, `u32`; 0 is nobody.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Vtep {
    /// Its address on the underlay as `bpf_tunnel_key` has it: IPv4 as a number in the first word, IPv6
    /// in wire order.
    pub remote: [u32; 4],
    /// The device that encapsulates; 0 for a number not in use.
    pub device: u32,
    /// Flags of `bpf_skb_set_tunnel_key`.
    pub flags: u32,
}

const _: () = assert!(size_of::<Vtep>() == 24);

/// `BPF_F_TUNINFO_IPV6` (linux/bpf.h).
const TUNINFO_IPV6: u32 = 1 << 0;
/// `BPF_F_ZERO_CSUM_TX`: the inner checksums are enough (RFC 7348 section 5, RFC 6935).
const ZERO_CSUM_TX: u32 = 1 << 1;
/// `BPF_F_DONT_FRAGMENT`: the underlay's MTU was looked at before.
const DONT_FRAGMENT: u32 = 1 << 2;

impl Vtep {
    /// The node with this address, through a device.
    pub const fn new(address: &Ip16, device: u32) -> Self {
        let [a, b, c, last] = address.words();
        let flags = ZERO_CSUM_TX | DONT_FRAGMENT;
        if address.is_mapped_v4() {
            Self {
                remote: [u32::from_be(last), 0, 0, 0],
                device,
                flags,
            }
        } else {
            Self {
                remote: [a, b, c, last],
                device,
                flags: flags | TUNINFO_IPV6,
            }
        }
    }

    /// Its address.
    pub const fn address(&self) -> Ip16 {
        if self.flags & TUNINFO_IPV6 == 0 {
            let [first, ..] = self.remote;
            Ip16::from_v4(first.to_be_bytes())
        } else {
            Ip16::from_words(self.remote)
        }
    }
}

/// The other nodes with members of an L2 network, for broadcast and multicast. The key is a
/// [`FloodKey`](crate::flood::FloodKey).
///
/// *Written by* the reconciler. *Read by* `spread`. *Lifetime*: as long as the network has ports here
/// and members elsewhere.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct FloodVteps {
    /// How many of `vteps` are meant, 0..=126.
    pub count: u32,
    /// Keys of `VTEPS`.
    pub vteps: [u16; VTEP_CHUNK],
}

const _: () = assert!(size_of::<FloodVteps>() == 256);

#[cfg(test)]
mod tests {
    use core::net::IpAddr;

    use super::*;

    #[test]
    fn a_node_has_the_address_it_was_made_with() {
        for text in ["192.0.2.7", "255.255.255.255", "2001:db8::7", "::1"] {
            let address = Ip16::from(text.parse::<IpAddr>().unwrap());
            let vtep = Vtep::new(&address, 5);
            assert_eq!(vtep.address(), address, "{text}");
            assert_eq!(vtep.flags & 1 == 0, address.is_mapped_v4(), "{text}");
        }
        let v4 = Vtep::new(&Ip16::from_v4([192, 0, 2, 7]), 5);
        assert_eq!(v4.remote, [0xc000_0207, 0, 0, 0]);
    }
}
