//! The answers the datapath gives itself, as bytes.

use crate::addr::{Ip16, MacAddr};
use crate::checksum::{field, sum, sum_of};
use crate::packet::{ARP_FRAME, ETH_HLEN, IPPROTO_ICMPV6, IPV6_HLEN};

/// Length of a neighbour advertisement with a link-layer address option, bytes.
///
/// All headers are included.
pub const ND_FRAME: usize = ETH_HLEN + IPV6_HLEN + 32;

/// A question of a host, and the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArpReply {
    /// MAC address that has the address asked for.
    pub mac: MacAddr,
    /// The address asked for.
    pub ip: [u8; 4],
    /// MAC address that asked.
    pub to_mac: MacAddr,
    /// Address that asked; zero for a probe.
    pub to_ip: [u8; 4],
}

impl ArpReply {
    /// The frame (RFC 826).
    #[inline(always)]
    pub const fn frame(&self) -> [u8; ARP_FRAME] {
        let [a, b, c, d, e, f] = self.mac.0;
        let [k, l, m, n, o, p] = self.to_mac.0;
        let [q, r, s, t] = self.ip;
        let [w, x, y, z] = self.to_ip;
        [
            k, l, m, n, o, p, a, b, c, d, e, f, 0x08, 0x06, //
            0, 1, 0x08, 0, 6, 4, 0, 2, //
            a, b, c, d, e, f, q, r, s, t, //
            k, l, m, n, o, p, w, x, y, z,
        ]
    }
}

/// A question of a host, and the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NdReply {
    /// MAC address that has the address asked for.
    pub mac: MacAddr,
    /// The address asked for.
    pub ip: Ip16,
    /// MAC address that asked.
    pub to_mac: MacAddr,
    /// Address that asked; unspecified for duplicate address detection.
    pub to_ip: Ip16,
    /// The answer speaks for the virtual gateway.
    pub router: bool,
}

/// All nodes on the link, RFC 4291 section 2.7.1.
const ALL_NODES: Ip16 = Ip16([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
/// The group MAC address of [`ALL_NODES`], RFC 2464 section 7.
const ALL_NODES_MAC: MacAddr = MacAddr([0x33, 0x33, 0, 0, 0, 1]);

/// The pieces of a neighbour advertisement, in the order they stand in the frame.
///
/// Pieces, because a BPF program has 512 bytes of stack. The target address, which follows `message`, is where
/// the solicitation has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NdPieces {
    /// Ethernet header and the first 8 bytes of the IPv6 header.
    pub head: [u8; ETH_HLEN + 8],
    /// Source address.
    pub source: Ip16,
    /// Destination address.
    pub destination: Ip16,
    /// ICMPv6 type, code, checksum and flags.
    pub message: [u8; 8],
    /// Target link-layer address option.
    pub option: [u8; 8],
}

impl NdReply {
    /// The frame (RFC 4861 sections 4.4 and 7.2.4) in pieces, checksum included.
    #[inline(always)]
    pub fn pieces(&self) -> NdPieces {
        // Whoever has no address yet cannot be answered in person.
        let probe = self.to_ip.same(&Ip16::NONE);
        let (to_ip, to_mac) = if probe {
            (ALL_NODES, ALL_NODES_MAC)
        } else {
            (self.to_ip, self.to_mac)
        };
        let solicited = if probe { 0x00 } else { 0x40 };
        let flags = 0x20 | solicited | if self.router { 0x80 } else { 0 };
        let [a, b, c, d, e, f] = self.mac.0;
        let [k, l, m, n, o, p] = to_mac.0;
        // The target stands in the pseudo header (as source) and in the message.
        let pseudo = sum(&[0, IPPROTO_ICMPV6, 0, 32]) + sum_of(&self.ip) + sum_of(&to_ip);
        let message = sum(&[136, 0, flags, 0]) + sum_of(&self.ip);
        let [c0, c1] = field(pseudo + message + sum(&[2, 1, a, b, c, d, e, f]));
        NdPieces {
            head: [
                k,
                l,
                m,
                n,
                o,
                p,
                a,
                b,
                c,
                d,
                e,
                f,
                0x86,
                0xdd, //
                0x60,
                0,
                0,
                0,
                0,
                32,
                IPPROTO_ICMPV6,
                255,
            ],
            source: self.ip,
            destination: to_ip,
            message: [136, 0, c0, c1, flags, 0, 0, 0],
            option: [2, 1, a, b, c, d, e, f],
        }
    }
}
