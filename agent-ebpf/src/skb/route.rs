//! Ways out of the node by its own routes and neighbours.
#![expect(
    unsafe_code,
    reason = "helpers of the kernel that have no safe wrapper"
)]

use agent_common::wire::{AF_INET, AF_INET6};
use aya_ebpf::bindings::{bpf_redir_neigh, bpf_redir_neigh__bindgen_ty_1};
use aya_ebpf::helpers::generated::{bpf_fib_lookup, bpf_redirect_neigh};

use super::{Skb, TC_ACT_REDIRECT};

/// `struct bpf_fib_lookup` (linux/bpf.h).
#[repr(C, align(8))]
struct FibLookup([u32; 16]);
/// `BPF_FIB_LKUP_RET_SUCCESS`.
const FIB_SUCCESS: i64 = 0;
/// `BPF_FIB_LKUP_RET_NO_NEIGH`.
const FIB_NO_NEIGHBOUR: i64 = 7;
/// `BPF_FIB_LKUP_RET_FRAG_NEEDED`.
const FIB_TOO_LARGE: i64 = 8;

impl Skb<'_> {
    /// Sends the packet out of an interface of the node to a neighbour on its link.
    ///
    /// The kernel knows the neighbour's MAC address or asks for it.
    #[inline(always)]
    pub(crate) fn send_by(&self, ifindex: u32, is_v6: bool, next_hop: &[u32; 4]) -> bool {
        let mut neighbour = bpf_redir_neigh {
            nh_family: if is_v6 { AF_INET6 } else { AF_INET },
            __bindgen_anon_1: bpf_redir_neigh__bindgen_ty_1 { ipv6_nh: *next_hop },
        };
        let length = size_of::<bpf_redir_neigh>() as i32;
        // SAFETY: plain numbers, and a structure as long as said; IPv4 has its address in the first word.
        unsafe {
            bpf_redirect_neigh(ifindex, &raw mut neighbour, length, 0) as i64 == TC_ACT_REDIRECT
        }
    }

    /// Returns the interface by which the node's routes lead a packet from here.
    ///
    /// The packet came in here and has these addresses; IPv4 has them in the first words. None for a packet to
    /// the node itself, and for one that would not be forwarded.
    #[inline(always)]
    pub(crate) fn route(&self, is_v6: bool, from: [u32; 4], to: [u32; 4]) -> Option<u32> {
        let [a, b, c, d] = from;
        let [e, f, g, h] = to;
        let family = if is_v6 { AF_INET6 } else { AF_INET };
        // `struct bpf_fib_lookup` (linux/bpf.h): family, protocol, ports and length in two words, the
        // interface, the class, both addresses, and what the kernel says of VLAN and MAC addresses.
        let family = u32::from_ne_bytes([family as u8, 0, 0, 0]);
        let mut look = FibLookup([
            family,
            0,
            self.ifindex(),
            0,
            a,
            b,
            c,
            d,
            e,
            f,
            g,
            h,
            0,
            0,
            0,
            0,
        ]);
        // SAFETY: `raw` is as in `resize`, and the structure as long as said.
        let outcome = unsafe {
            let at = (&raw mut look).cast();
            bpf_fib_lookup(self.raw().cast(), at, size_of::<FibLookup>() as i32, 0)
        };
        // The stack asks for a neighbour that is not known, and tells of a packet that is too large.
        let is_forwarded = matches!(outcome, FIB_SUCCESS | FIB_NO_NEIGHBOUR | FIB_TOO_LARGE);
        is_forwarded.then_some(look.0[2])
    }
}
