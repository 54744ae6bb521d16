//! Headers of tunnels around a packet, the kernel's and a program's own.
#![expect(
    unsafe_code,
    reason = "helpers of the kernel that have no safe wrapper"
)]

use agent_common::addr::Ip16;
use agent_common::packet::ETH_HLEN;
use agent_common::vtep::Vtep;
use aya_ebpf::bindings::bpf_adj_room_mode::BPF_ADJ_ROOM_MAC;
use aya_ebpf::bindings::{BPF_CSUM_LEVEL_DEC, BPF_F_TUNINFO_IPV6};
use aya_ebpf::helpers::generated::{
    bpf_csum_level, bpf_skb_adjust_room, bpf_skb_ecn_set_ce, bpf_skb_get_tunnel_key,
    bpf_skb_set_tunnel_key,
};

use super::Skb;

/// The part of `bpf_tunnel_key` (linux/bpf.h) that Linux 5.10 knows, 28 bytes.
///
/// Everything before `local_ipv4`: the network, four words of the remote address, TOS and TTL and flags in a
/// byte, a byte and two, the flow label.
#[repr(C, align(8))]
struct TunnelKey([u32; 7]);
/// `size_of::<TunnelKey>()` less what aligns it.
const TUNNEL_KEY: u32 = 28;
/// Hops between nodes, 64, where the key has the TTL.
const TUNNEL_TTL: u32 = u32::from_ne_bytes([0, 64, 0, 0]);

impl Skb<'_> {
    /// Names the network and the node to the tunnel device.
    #[inline(always)]
    pub(crate) fn name_tunnel(&self, network: u32, to: &Vtep) -> bool {
        let [a, b, c, d] = to.remote;
        // Word by word: a function that fills memory has loops, walked for each node of a flood.
        let mut key = TunnelKey([network, a, b, c, d, TUNNEL_TTL, 0]);
        // SAFETY: `raw` is as in `resize`, and the key as long as said.
        unsafe {
            let at = (&raw mut key).cast();
            bpf_skb_set_tunnel_key(self.raw(), at, TUNNEL_KEY, u64::from(to.flags)) == 0
        }
    }

    /// Returns the network that a tunnel brought the packet for, and the sending node.
    ///
    /// The node is named by its address.
    #[inline(always)]
    pub(crate) fn tunnel(&self) -> Option<(u32, Ip16)> {
        let mut key = TunnelKey([0; 7]);
        // SAFETY: as in `name_tunnel`. The kernel says which family it is by refusing the other one.
        unsafe {
            let at = (&raw mut key).cast();
            if bpf_skb_get_tunnel_key(self.raw(), at, TUNNEL_KEY, 0) == 0 {
                let [network, remote, ..] = key.0;
                return Some((network, Ip16::from_v4(remote.to_be_bytes())));
            }
            let flags = u64::from(BPF_F_TUNINFO_IPV6);
            if bpf_skb_get_tunnel_key(self.raw(), at, TUNNEL_KEY, flags) == 0 {
                let [network, a, b, c, d, ..] = key.0;
                return Some((network, Ip16::from_words([a, b, c, d])));
            }
        }
        None
    }

    /// Makes room for a tunnel's outer headers behind the Ethernet header.
    ///
    /// The room ends with one more Ethernet header.
    #[inline(always)]
    pub(crate) fn make_room(&self, length: usize, flags: u32) -> bool {
        // `BPF_F_ADJ_ROOM_ENCAP_L2(ETH_HLEN)` (linux/bpf.h).
        let flags = u64::from(flags) | (ETH_HLEN as u64) << 56;
        // SAFETY: as in `resize`.
        unsafe { bpf_skb_adjust_room(self.raw(), length as i32, BPF_ADJ_ROOM_MAC, flags) == 0 }
    }

    /// Takes a tunnel's outer headers away behind the Ethernet header.
    ///
    /// The tunnel has no checksum, so what is known of the inner checksum is still right (as
    /// `__skb_decr_checksum_unnecessary`).
    #[inline(always)]
    pub(crate) fn take_room(&self, length: usize, flags: u32) -> bool {
        // SAFETY: as in `resize`. How many checksums are known is no matter where none is.
        unsafe {
            let taken = bpf_skb_adjust_room(
                self.raw(),
                -(length as i32),
                BPF_ADJ_ROOM_MAC,
                u64::from(flags),
            );
            let _ = bpf_csum_level(self.raw(), u64::from(BPF_CSUM_LEVEL_DEC));
            taken == 0
        }
    }

    /// Says that the packet met congestion (RFC 3168).
    #[inline(always)]
    pub(crate) fn mark_congestion(&self) -> bool {
        // SAFETY: as in `resize`.
        unsafe { bpf_skb_ecn_set_ce(self.raw()) == 1 }
    }
}
