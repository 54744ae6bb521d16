//! `VTEPS`, `VTEP_SOURCES` and `FLOOD_VTEPS`: ends of VXLAN tunnels (RFC 7348).
//!
//! Each end is another node.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::addr::Ip16;
use crate::checksum;
use crate::packet::{
    ETH_HLEN, ETH_P_IP, ETH_P_IPV6, IPPROTO_UDP, IPV4_HLEN, IPV6_HLEN, L3, UDP_HLEN,
};
use crate::wire::{AF_INET, AF_INET6, NextHop};

/// Nodes per chunk of `FLOOD_VTEPS`.
pub const VTEP_CHUNK: usize = 126;
/// Chunks per network.
///
/// How many tail calls they take is in [`tail_call`](crate::tail_call).
pub const VTEP_CHUNKS: u32 = 4;

/// Another node.
///
/// *Written by* the agent, before the first endpoint that is there. *Read by* `from_pod` and `replicate`.
/// *Lifetime*: as long as an endpoint or a network's members are there.
/// *Key*: a number of this node's choice, 1 and up, `u32`; 0 is nobody.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Vtep {
    /// Its address on the underlay, as `bpf_tunnel_key` has it.
    ///
    /// IPv4 is a number in the first word, IPv6 is in wire order.
    pub remote: [u32; 4],
    /// Device that encapsulates what the programs do not; 0 for a number not in use.
    pub device: u32,
    /// Flags of `bpf_skb_set_tunnel_key`.
    pub flags: u32,
    /// The interface by which the programs reach the node themselves.
    ///
    /// 0 when they leave all packets to the device.
    pub uplink: u32,
    /// Flags of `bpf_skb_adjust_room`, but for the length of the inner Ethernet header.
    pub room: u32,
    /// Next hop on the uplink's link, in wire order: IPv4 in the first word.
    pub next_hop: [u32; 4],
    /// Sum of the 16-bit words of `head`'s IPv4 header, for its checksum (RFC 1071).
    pub sum: u32,
    /// Largest L3 packet on the way there, bytes; 0 for any.
    ///
    /// The headers that a tunnel adds are not in it.
    pub mtu: u32,
    /// Outer headers of each packet (RFC 7348 section 5), zero where packets differ.
    ///
    /// Ethernet, IP, UDP, VXLAN; 50 bytes with IPv4, 70 with IPv6.
    pub head: [u64; HEAD_WORDS],
}

const _: () = assert!(size_of::<Vtep>() == 128);

/// Words of [`Vtep::head`].
pub const HEAD_WORDS: usize = 9;
/// Bytes before the inner Ethernet header in a tunnel over IPv4.
pub const ADDED_V4: usize = ETH_HLEN + IPV4_HLEN + UDP_HLEN + VXLAN_HLEN;
/// The same over IPv6.
pub const ADDED_V6: usize = ETH_HLEN + IPV6_HLEN + UDP_HLEN + VXLAN_HLEN;
/// Length of a VXLAN header.
pub const VXLAN_HLEN: usize = 8;
/// The first byte of a VXLAN header: it has a VNI, and nothing else.
pub const VXLAN_FLAGS: u8 = 0x08;
/// Hops between nodes.
const TTL: u8 = 64;
/// Don't fragment (RFC 791).
const IP_DF: [u8; 2] = [0x40, 0x00];

// Flags of `bpf_skb_adjust_room` (linux/bpf.h).
/// `BPF_F_ADJ_ROOM_FIXED_GSO`: segments keep their size.
pub const ROOM_FIXED_GSO: u32 = 1 << 0;
/// `BPF_F_ADJ_ROOM_ENCAP_L3_IPV4`.
pub const ROOM_IPV4: u32 = 1 << 1;
/// `BPF_F_ADJ_ROOM_ENCAP_L3_IPV6`.
const ROOM_IPV6: u32 = 1 << 2;
/// `BPF_F_ADJ_ROOM_ENCAP_L4_UDP`.
pub const ROOM_UDP: u32 = 1 << 4;
/// `BPF_F_ADJ_ROOM_NO_CSUM_RESET`: what is known of the inner checksum stays known.
pub const ROOM_NO_CSUM_RESET: u32 = 1 << 5;
/// `BPF_F_ADJ_ROOM_ENCAP_L2_ETH` (Linux 5.13): there is an Ethernet header inside.
pub const ROOM_ETHERNET: u32 = 1 << 6;
/// `BPF_F_ADJ_ROOM_DECAP_L3_IPV4` (Linux 6.3): what stays is IPv4.
pub const ROOM_TO_IPV4: u32 = 1 << 7;
/// `BPF_F_ADJ_ROOM_DECAP_L3_IPV6` (Linux 6.3): what stays is IPv6.
pub const ROOM_TO_IPV6: u32 = 1 << 8;

/// Bit in the result of `try_room`: the kernel takes [`ROOM_ETHERNET`].
pub const TRY_ETHERNET: u32 = 1 << 0;
/// Bit in the result of `try_room`: the kernel takes [`ROOM_TO_IPV6`].
pub const TRY_FAMILY: u32 = 1 << 1;

/// A way to another node on which the programs tunnel themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Straight {
    /// The interface packets leave by.
    pub uplink: u32,
    /// The next hop on it, of the family of the node's address.
    pub next_hop: Ip16,
    /// This node's address, of that family too.
    pub local: Ip16,
    /// UDP port of tunnels.
    pub port: u16,
    /// The kernel knows [`ROOM_ETHERNET`].
    pub says_ethernet: bool,
}

/// `BPF_F_TUNINFO_IPV6` (linux/bpf.h).
const TUNINFO_IPV6: u32 = 1 << 0;
/// `BPF_F_ZERO_CSUM_TX`: the inner checksums are enough.
///
/// RFC 7348 section 5, RFC 6935.
const ZERO_CSUM_TX: u32 = 1 << 1;
/// `BPF_F_DONT_FRAGMENT`: the underlay's MTU was looked at before.
const DONT_FRAGMENT: u32 = 1 << 2;

/// A number that is nobody's.
pub const NOBODY: Vtep = Vtep {
    remote: [0; 4],
    device: 0,
    flags: 0,
    uplink: 0,
    room: 0,
    next_hop: [0; 4],
    sum: 0,
    mtu: 0,
    head: [0; HEAD_WORDS],
};

impl Vtep {
    /// The node with this address, through a device.
    pub const fn new(address: &Ip16, device: u32) -> Self {
        let flags = ZERO_CSUM_TX | DONT_FRAGMENT;
        let (remote, flags) = match address.v4() {
            Some(v4) => ([u32::from_be_bytes(v4), 0, 0, 0], flags),
            None => (address.words(), flags | TUNINFO_IPV6),
        };
        Self {
            remote,
            device,
            flags,
            ..NOBODY
        }
    }

    /// The same, where tunnels carry L3 packets of this many bytes at most.
    #[must_use]
    pub const fn carries(self, mtu: u32) -> Self {
        Self { mtu, ..self }
    }

    /// Adds a way that the programs take themselves.
    ///
    /// All addresses of the way are of one family.
    #[must_use]
    pub fn straight(self, way: &Straight) -> Self {
        let mut head = [0; HEAD_WORDS * 8];
        let room = ROOM_FIXED_GSO | ROOM_UDP | if way.says_ethernet { ROOM_ETHERNET } else { 0 };
        let (room, sum) = match (way.local.v4(), self.address().v4(), way.next_hop.v4()) {
            (Some(local), Some(remote), Some(_)) => {
                let header = ipv4(local, remote);
                put(&mut head, L3, &header);
                put(&mut head, ETH_HLEN - 2, &ETH_P_IP.to_be_bytes());
                tail(&mut head, L3 + IPV4_HLEN, way.port);
                (room | ROOM_IPV4, checksum::sum(&header))
            }
            (None, None, None) => {
                put(&mut head, L3, &ipv6(&way.local, &self.address()));
                put(&mut head, ETH_HLEN - 2, &ETH_P_IPV6.to_be_bytes());
                tail(&mut head, L3 + IPV6_HLEN, way.port);
                (room | ROOM_IPV6, 0)
            }
            // No way at all.
            _ => return self,
        };
        let mut words = [0; HEAD_WORDS];
        for (word, bytes) in words.iter_mut().zip(head.as_chunks::<8>().0) {
            *word = u64::from_ne_bytes(*bytes);
        }
        Self {
            uplink: way.uplink,
            room,
            next_hop: NextHop::new(&way.next_hop).address,
            sum,
            head: words,
            ..self
        }
    }

    /// True when its tunnels are over IPv6.
    #[inline(always)]
    pub const fn is_v6(&self) -> bool {
        self.flags & TUNINFO_IPV6 != 0
    }

    /// The next hop, when the programs reach it themselves.
    pub const fn next_hop(&self) -> Ip16 {
        let family = if self.is_v6() { AF_INET6 } else { AF_INET };
        let address = self.next_hop;
        NextHop { family, address }.ip()
    }

    /// Its address.
    pub const fn address(&self) -> Ip16 {
        if self.is_v6() {
            Ip16::from_words(self.remote)
        } else {
            let [first, ..] = self.remote;
            Ip16::from_v4(first.to_be_bytes())
        }
    }
}

/// Fields of the outer headers that differ from packet to packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Each {
    /// The VNI.
    pub network: u32,
    /// The inner Ethernet header, which is written with the outer ones.
    pub ethernet: [u8; ETH_HLEN],
    /// The inner packet's ECN field (RFC 3168).
    pub ecn: u8,
    /// Hash of the inner packet's flow.
    pub hash: u32,
    /// Length of the inner frame, all segments together, at most 65,479 bytes.
    pub length: u32,
}

impl Each {
    /// The outer ECN field (RFC 6040 section 4.1).
    #[inline(always)]
    const fn outer_ecn(&self) -> u8 {
        if self.ecn & 3 == 3 { 2 } else { self.ecn & 3 }
    }

    /// The source port, of the dynamic ports (RFC 7348 section 5).
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "the lower bits are meant")]
    const fn port(&self) -> [u8; 2] {
        (0xc000 | (self.hash ^ self.hash >> 16) as u16).to_be_bytes()
    }

    /// A length field of what begins `before` bytes before the inner frame.
    #[inline(always)]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "of a frame that is short enough"
    )]
    const fn long(&self, before: usize) -> [u8; 2] {
        ((self.length as usize + before) as u16).to_be_bytes()
    }
}

/// Eight bytes as a word in memory.
#[inline(always)]
const fn word(bytes: [u8; 8]) -> u64 {
    u64::from_ne_bytes(bytes)
}

impl Vtep {
    /// Outer headers over IPv4 and the inner Ethernet header, 64 bytes.
    #[inline(always)]
    pub const fn outer_v4(&self, each: &Each) -> [u64; 8] {
        let [a, b, c, d, e, f, g, _, _] = self.head;
        let [_, n0, n1, n2] = each.network.to_be_bytes();
        let [e0, e1, e2, e3, e4, e5, inner @ ..] = each.ethernet;
        let (total, udp) = (
            each.long(ADDED_V4 - ETH_HLEN),
            each.long(UDP_HLEN + VXLAN_HLEN),
        );
        let ecn = each.outer_ecn();
        let sum = self.sum + u16::from_ne_bytes(total) as u32 + u16::from_ne_bytes([0, ecn]) as u32;
        let [k0, k1] = checksum::field(sum);
        let [p0, p1] = each.port();
        [
            a,
            b | word([0, 0, 0, 0, 0, 0, 0, ecn]),
            c | word([total[0], total[1], 0, 0, 0, 0, 0, 0]),
            d | word([k0, k1, 0, 0, 0, 0, 0, 0]),
            e | word([0, 0, p0, p1, 0, 0, udp[0], udp[1]]),
            f | word([0, 0, 0, 0, 0, 0, n0, n1]),
            g | word([n2, 0, e0, e1, e2, e3, e4, e5]),
            word(inner),
        ]
    }

    /// Returns outer headers over IPv6 and the inner Ethernet header, 84 bytes.
    ///
    /// Four bytes behind them do not count.
    #[inline(always)]
    pub const fn outer_v6(&self, each: &Each) -> [u64; 11] {
        let [a, b, c, d, e, f, g, h, i] = self.head;
        let [_, n0, n1, n2] = each.network.to_be_bytes();
        let [e0, e1, e2, e3, e4, e5, e6, e7, e8, e9, e10, e11, e12, e13] = each.ethernet;
        let [l0, l1] = each.long(UDP_HLEN + VXLAN_HLEN);
        let [p0, p1] = each.port();
        [
            a,
            b | word([0, 0, 0, 0, 0, 0, 0, each.outer_ecn() << 4]),
            c | word([0, 0, l0, l1, 0, 0, 0, 0]),
            d,
            e,
            f,
            g | word([0, 0, 0, 0, 0, 0, p0, p1]),
            h | word([0, 0, l0, l1, 0, 0, 0, 0]),
            i | word([0, 0, n0, n1, n2, 0, e0, e1]),
            word([e2, e3, e4, e5, e6, e7, e8, e9]),
            word([e10, e11, e12, e13, 0, 0, 0, 0]),
        ]
    }
}

fn put(head: &mut [u8], at: usize, bytes: &[u8]) {
    for (to, from) in head.iter_mut().skip(at).zip(bytes) {
        *to = *from;
    }
}

/// Total length and checksum are each packet's.
fn ipv4(local: [u8; 4], remote: [u8; 4]) -> [u8; IPV4_HLEN] {
    let mut header = [0; IPV4_HLEN];
    put(&mut header, 0, &[0x45]);
    put(&mut header, 6, &IP_DF);
    put(&mut header, 8, &[TTL, IPPROTO_UDP]);
    put(&mut header, 12, &local);
    put(&mut header, 16, &remote);
    header
}

/// The payload's length is each packet's.
fn ipv6(local: &Ip16, remote: &Ip16) -> [u8; IPV6_HLEN] {
    let mut header = [0; IPV6_HLEN];
    put(&mut header, 0, &[0x60]);
    put(&mut header, 6, &[IPPROTO_UDP, TTL]);
    put(&mut header, 8, &local.0);
    put(&mut header, 24, &remote.0);
    header
}

/// Writes the UDP and VXLAN headers.
///
/// Source port, length and VNI are each packet's; there is no checksum.
fn tail(head: &mut [u8], at: usize, port: u16) {
    put(head, at + 2, &port.to_be_bytes());
    put(head, at + UDP_HLEN, &[VXLAN_FLAGS]);
}

/// The other nodes with members of an L2 network, for broadcast and multicast.
///
/// The key is a [`FloodKey`](crate::flood::FloodKey).
///
/// *Written by* the reconciler. *Read by* `replicate`. *Lifetime*: as long as the network has ports here
/// and members elsewhere.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct FloodVteps {
    /// How many of `vteps` are meant, 0..=126.
    pub count: u16,
    /// In the first chunk how many nodes there are, in all chunks together; else 0.
    pub total: u16,
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
