//! Turn a question into its answer.
//!
//! A pod asks by ARP, neighbour discovery, or a ping of the gateway. A host beyond an uplink asks who has the
//! address of a pod.

use agent_common::addr::{GATEWAY_MAC, Ip16, MacAddr};
use agent_common::drop::DropReason;
use agent_common::packet::{ETH_HLEN, Frame as _, IPV6_HLEN, L3};
use agent_common::policy::Family;
use agent_common::reply::{ArpReply, ND_FRAME, NdReply};

use crate::maps::{self, PortCounter};
use crate::skb::Skb;
use crate::verdict::{self, Verdict};

/// The target address of a neighbour solicitation that follows the fixed header.
const ND_TARGET: usize = L3 + IPV6_HLEN + 8;

/// Answer to write, three words that travel with the packet to the program.
#[derive(Clone, Copy)]
pub(crate) enum Answer {
    Arp(MacAddr),
    Nd(MacAddr),
    Echo(Family, u16),
}

impl Answer {
    /// Kind, and a MAC address or the offset of the ICMP header.
    #[inline(always)]
    pub(crate) fn pack(self) -> [u32; 3] {
        match self {
            Self::Arp(mac) => words(0, mac),
            Self::Nd(mac) => words(1, mac),
            Self::Echo(Family::V4, at) => [2, u32::from(at), 0],
            Self::Echo(Family::V6, at) => [3, u32::from(at), 0],
        }
    }

    #[inline(always)]
    fn unpack([kind, first, second]: [u32; 3]) -> Self {
        let kind = kind & ((1 << KIND_BITS) - 1);
        let [a, b, c, d] = first.to_be_bytes();
        let [e, f, _, _] = second.to_be_bytes();
        match kind {
            0 => Self::Arp(MacAddr([a, b, c, d, e, f])),
            1 => Self::Nd(MacAddr([a, b, c, d, e, f])),
            2 => Self::Echo(Family::V4, first as u16),
            _ => Self::Echo(Family::V6, first as u16),
        }
    }
}

/// Bits of the kind.
///
/// The network is above them when an uplink has brought the question.
const KIND_BITS: u32 = 8;

/// A question that an uplink has brought about the address of a port.
#[derive(Clone, Copy)]
pub(crate) struct FromWire {
    pub(crate) network: u32,
    pub(crate) port_id: u16,
}

impl FromWire {
    /// Returns the words of an answer that names a MAC address, and these values.
    #[inline(always)]
    pub(crate) fn pack(self, answer: Answer) -> [u32; 3] {
        let [kind, first, second] = answer.pack();
        let port_id = u32::from(self.port_id);
        [kind | self.network << KIND_BITS, first, second | port_id]
    }

    #[inline(always)]
    const fn unpack([kind, _, second]: [u32; 3]) -> Option<Self> {
        match kind >> KIND_BITS {
            0 => None,
            network => Some(Self {
                network,
                port_id: second as u16,
            }),
        }
    }
}

#[inline(always)]
fn words(kind: u32, mac: MacAddr) -> [u32; 3] {
    let [a, b, c, d, e, f] = mac.0;
    [
        kind,
        u32::from_be_bytes([a, b, c, d]),
        u32::from_be_bytes([e, f, 0, 0]),
    ]
}

#[inline(always)]
pub(crate) fn run(skb: &Skb<'_>) -> Verdict {
    let (port, from_wire) = (maps::port(skb.ifindex()), FromWire::unpack(skb.cursor()));
    let asked = skb.length() as u32;
    let done = match Answer::unpack(skb.cursor()) {
        Answer::Arp(mac) => arp_reply(skb, mac),
        Answer::Nd(mac) => nd_reply(skb, mac),
        Answer::Echo(family, at) => echo_reply(skb, family, at),
    };
    skb.clear_mark();
    if let Some(FromWire { network, port_id }) = from_wire {
        // By where it came from, with the tag that is still beside it.
        return if done && skb.send(skb.ifindex()) {
            maps::count_port(port_id, PortCounter::ToPod, 1, asked);
            maps::count_port(port_id, PortCounter::FromPod, 1, skb.length() as u32);
            Verdict::Redirected
        } else {
            let who = Some((network, port_id));
            verdict::drop(skb, who, DropReason::Undeliverable)
        };
    }
    let Some(port) = port else {
        return verdict::drop(skb, None, DropReason::NoPort);
    };
    if done && skb.send(port.home) {
        maps::count_port(port.port_id, PortCounter::FromPod, 1, asked);
        maps::count_port(port.port_id, PortCounter::ToPod, 1, skb.length() as u32);
        return Verdict::Redirected;
    }
    let port = Some((port.network, port.port_id));
    verdict::drop(skb, port, DropReason::Undeliverable)
}

#[inline(always)]
fn arp_reply(skb: &Skb<'_>, mac: MacAddr) -> bool {
    // Sender MAC, sender IP, target MAC, target IP.
    let Some(
        [
            a,
            b,
            c,
            d,
            e,
            f,
            s0,
            s1,
            s2,
            s3,
            _,
            _,
            _,
            _,
            _,
            _,
            t0,
            t1,
            t2,
            t3,
        ],
    ) = skb.load::<20>(L3 + 8)
    else {
        return false;
    };
    let reply = ArpReply {
        mac,
        ip: [t0, t1, t2, t3],
        to_mac: MacAddr([a, b, c, d, e, f]),
        to_ip: [s0, s1, s2, s3],
    };
    skb.store(0, &reply.frame())
}

#[inline(always)]
fn nd_reply(skb: &Skb<'_>, mac: MacAddr) -> bool {
    let Some(source) = skb.load::<16>(L3 + 8) else {
        return false;
    };
    let Some(target) = skb.load::<16>(ND_TARGET) else {
        return false;
    };
    let Some([a, b, c, d, e, f]) = skb.load::<6>(6) else {
        return false;
    };
    let reply = NdReply {
        mac,
        ip: Ip16(target),
        to_mac: MacAddr([a, b, c, d, e, f]),
        to_ip: Ip16(source),
        router: mac == GATEWAY_MAC,
    };
    let pieces = reply.pieces();
    skb.resize(ND_FRAME as u32)
        && skb.store(0, &pieces.head)
        && skb.store(L3 + 8, &pieces.source.0)
        && skb.store(L3 + 24, &pieces.destination.0)
        && skb.store(L3 + IPV6_HLEN, &pieces.message)
        && skb.store(ND_FRAME - 8, &pieces.option)
}

#[inline(always)]
fn echo_reply(skb: &Skb<'_>, family: Family, at: u16) -> bool {
    let Some([to @ .., _, _]) = skb.load::<ETH_HLEN>(0) else {
        return false;
    };
    let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5] = to;
    let macs = skb.swap_in_macs(
        MacAddr([s0, s1, s2, s3, s4, s5]),
        MacAddr([d0, d1, d2, d3, d4, d5]),
    );
    let (addresses, request, reply) = match family {
        Family::V4 => (swap::<4>(skb, L3 + 12), 8_u8, 0_u8),
        Family::V6 => (swap::<16>(skb, L3 + 8), 128, 129),
    };
    // Type and code are one word of the checksum; swapping addresses does not change it.
    let (old, new) = (
        u16::from_ne_bytes([request, 0]),
        u16::from_ne_bytes([reply, 0]),
    );
    let at = at as usize;
    macs && addresses
        && skb
            .ctx
            .l4_csum_replace(at + 2, u64::from(old), u64::from(new), 2)
            .is_ok()
        && skb.store(at, &[reply])
}

/// Swaps the two addresses of `N` bytes at `offset`.
#[inline(always)]
fn swap<const N: usize>(skb: &Skb<'_>, offset: usize) -> bool {
    // One load at a time, everywhere in these programs: with both in one pattern the compiler moves
    // bytes of a load that failed, which the 5.10 verifier refuses.
    let Some(first) = skb.load::<N>(offset) else {
        return false;
    };
    let Some(second) = skb.load::<N>(offset + N) else {
        return false;
    };
    skb.store(offset, &second) && skb.store(offset + N, &first)
}
