//! Build frames header by header.
//!
//! Lengths and checksums are right unless a field says otherwise.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::addr::MacAddr;
use crate::packet::{
    ETH_P_ARP, ETH_P_IP, ETH_P_IPV6, IPPROTO_AH, IPPROTO_DSTOPTS, IPPROTO_FRAGMENT, IPPROTO_ICMP,
    IPPROTO_ICMPV6, IPPROTO_UDP,
};

/// TCP, RFC 9293.
pub const IPPROTO_TCP: u8 = 6;

/// All nodes on the link, RFC 4291 section 2.7.1.
pub const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// All routers on the link, RFC 4291 section 2.7.1.
pub const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
/// Every listener report goes here, RFC 3810 section 5.2.14.
pub const ALL_MLD_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);

/// An Ethernet frame without padding.
pub fn ethernet(to: MacAddr, from: MacAddr, ether_type: u16, payload: &[u8]) -> Vec<u8> {
    [
        &to.0[..],
        &from.0[..],
        &ether_type.to_be_bytes()[..],
        payload,
    ]
    .concat()
}

/// Pads `frame` with zeros to the shortest frame that a wire carries, bytes.
///
/// IEEE 802.3: 60 bytes and the checksum sequence.
pub fn padded(mut frame: Vec<u8>) -> Vec<u8> {
    frame.resize(frame.len().max(60), 0);
    frame
}

/// The first `length` bytes of `frame`.
pub fn cut(mut frame: Vec<u8>, length: usize) -> Vec<u8> {
    frame.truncate(length);
    frame
}

/// `bytes` with the one at `offset` replaced; no checksum follows.
pub fn with_byte(mut bytes: Vec<u8>, offset: usize, value: u8) -> Vec<u8> {
    if let Some(byte) = bytes.get_mut(offset) {
        *byte = value;
    }
    bytes
}

/// The group MAC address of an IPv4 group, RFC 1112 section 6.4.
pub fn group_mac_v4(group: Ipv4Addr) -> MacAddr {
    let [_, b, c, d] = group.octets();
    MacAddr([0x01, 0x00, 0x5e, b & 0x7f, c, d])
}

/// The group MAC address of an IPv6 group, RFC 2464 section 7.
pub fn group_mac_v6(group: Ipv6Addr) -> MacAddr {
    let [.., c, d, e, f] = group.octets();
    MacAddr([0x33, 0x33, c, d, e, f])
}

/// The solicited-node group of an address, RFC 4291 section 2.7.1.
pub fn solicited_node(ip: Ipv6Addr) -> Ipv6Addr {
    let [.., d, e, f] = ip.octets();
    Ipv6Addr::from([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, d, e, f])
}

/// The Internet checksum of `bytes`, RFC 1071: 0 when it is part of them and right.
pub fn checksum(bytes: &[u8]) -> u16 {
    let mut sum = 0_u64;
    for pair in bytes.chunks(2) {
        let high = pair.first().copied().unwrap_or(0);
        let low = pair.get(1).copied().unwrap_or(0);
        sum += u64::from(u16::from_be_bytes([high, low]));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or(0)
}

/// A 16-bit length field. No case is as long as the field can say.
pub fn length16(length: usize) -> [u8; 2] {
    u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes()
}

/// `message` with the checksum of `pseudo_header` and itself at `offset`.
fn sealed(pseudo_header: &[u8], message: Vec<u8>, offset: usize) -> Vec<u8> {
    let [high, low] = checksum(&[pseudo_header, &message].concat()).to_be_bytes();
    with_byte(with_byte(message, offset, high), offset + 1, low)
}

/// An ARP packet, RFC 826.
#[derive(Debug, Clone, Copy)]
pub struct Arp {
    /// 1 asks, 2 answers.
    pub operation: u16,
    /// Sender, as it says.
    pub sender: (MacAddr, Ipv4Addr),
    /// Target, as the sender says.
    pub target: (MacAddr, Ipv4Addr),
}

impl Arp {
    /// A question of `sender`.
    pub fn request(sender: (MacAddr, Ipv4Addr), target: Ipv4Addr) -> Self {
        Self {
            operation: 1,
            sender,
            target: (MacAddr([0; 6]), target),
        }
    }

    /// An answer to `target`.
    pub fn reply(sender: (MacAddr, Ipv4Addr), target: (MacAddr, Ipv4Addr)) -> Self {
        Self {
            operation: 2,
            sender,
            target,
        }
    }

    /// The frame.
    pub fn frame(&self, to: MacAddr, from: MacAddr) -> Vec<u8> {
        let fixed = [0, 1, 0x08, 0x00, 6, 4];
        let (sender, target) = (self.sender, self.target);
        let packet = [
            &fixed[..],
            &self.operation.to_be_bytes()[..],
            &sender.0.0[..],
            &sender.1.octets()[..],
            &target.0.0[..],
            &target.1.octets()[..],
        ];
        ethernet(to, from, ETH_P_ARP, &packet.concat())
    }
}

/// An IPv4 header, RFC 791.
#[derive(Debug, Clone)]
pub struct Ipv4 {
    /// Source address.
    pub source: Ipv4Addr,
    /// Destination address.
    pub destination: Ipv4Addr,
    /// Time to live.
    pub ttl: u8,
    /// Flags and fragment offset: `0x2000` more fragments, `0x4000` do not fragment.
    pub fragment: u16,
    /// Options, a multiple of 4 bytes.
    pub options: Vec<u8>,
    /// Length that the header states instead of the packet's own.
    pub total: Option<u16>,
}

impl Ipv4 {
    /// An ordinary packet.
    pub fn new(source: Ipv4Addr, destination: Ipv4Addr) -> Self {
        Self {
            source,
            destination,
            ttl: 64,
            fragment: 0,
            options: Vec::new(),
            total: None,
        }
    }

    /// The packet.
    pub fn packet(&self, protocol: u8, payload: &[u8]) -> Vec<u8> {
        let header_length = 20 + self.options.len();
        let words = u8::try_from(header_length / 4).unwrap_or(15);
        let [l0, l1] = self
            .total
            .map_or(length16(header_length + payload.len()), u16::to_be_bytes);
        let [f0, f1] = self.fragment.to_be_bytes();
        let header = [
            &[
                0x40 | words,
                0,
                l0,
                l1,
                0x12,
                0x34,
                f0,
                f1,
                self.ttl,
                protocol,
                0,
                0,
            ][..],
            &self.source.octets()[..],
            &self.destination.octets()[..],
            &self.options,
        ];
        [sealed(&[], header.concat(), 10), payload.to_vec()].concat()
    }

    /// The packet in a frame.
    pub fn frame(&self, to: MacAddr, from: MacAddr, protocol: u8, payload: &[u8]) -> Vec<u8> {
        ethernet(to, from, ETH_P_IP, &self.packet(protocol, payload))
    }

    /// A UDP packet in a frame.
    pub fn udp(&self, to: MacAddr, from: MacAddr, ports: (u16, u16)) -> Vec<u8> {
        let length = 8 + PAYLOAD.len();
        let [l0, l1] = length16(length);
        let pseudo = [
            &self.source.octets()[..],
            &self.destination.octets()[..],
            &[0, IPPROTO_UDP, l0, l1][..],
        ];
        self.frame(to, from, IPPROTO_UDP, &udp(&pseudo.concat(), ports))
    }

    /// An ICMP packet in a frame, RFC 792.
    pub fn icmp(&self, to: MacAddr, from: MacAddr, kind: u8, code: u8) -> Vec<u8> {
        self.frame(to, from, IPPROTO_ICMP, &icmp(&[], kind, code, &echo_body()))
    }
}

/// An IPv6 header, RFC 8200.
#[derive(Debug, Clone)]
pub struct Ipv6 {
    /// Source address.
    pub source: Ipv6Addr,
    /// Destination address.
    pub destination: Ipv6Addr,
    /// Hop limit.
    pub hops: u8,
    /// Extension headers in order, without the first byte, which the builder sets.
    pub extensions: Vec<Extension>,
    /// Length that the header states instead of the payload's own.
    pub length: Option<u16>,
}

/// An IPv6 extension header.
#[derive(Debug, Clone)]
pub struct Extension {
    /// Its number.
    pub kind: u8,
    /// All of it but the first byte.
    pub rest: Vec<u8>,
}

impl Extension {
    /// Builds a header of the options kind, of `units` times 8 bytes and 8 more.
    ///
    /// Hop-by-hop and destination options are of that kind, and by their form routing and mobility.
    pub fn options(kind: u8, units: u8) -> Self {
        let mut rest = vec![units];
        rest.resize(usize::from(units) * 8 + 7, 0);
        Self { kind, rest }
    }

    /// Hop-by-hop options with a router alert for MLD, RFC 2711.
    pub fn router_alert() -> Self {
        Self {
            kind: 0,
            rest: vec![0, 5, 2, 0, 0, 1, 0],
        }
    }

    /// A fragment header, RFC 8200 section 4.5; `offset` in units of 8 bytes.
    pub fn fragment(offset: u16, more: bool) -> Self {
        let [high, low] = (offset << 3 | u16::from(more)).to_be_bytes();
        Self {
            kind: IPPROTO_FRAGMENT,
            rest: vec![0, high, low, 0, 0, 0, 1],
        }
    }

    /// An authentication header with 12 bytes of check value, RFC 4302.
    pub fn authentication() -> Self {
        let mut rest = vec![4, 0, 0];
        rest.resize(23, 0xa5);
        Self {
            kind: IPPROTO_AH,
            rest,
        }
    }

    /// `count` empty destination options headers.
    pub fn chain(count: usize) -> Vec<Self> {
        vec![Self::options(IPPROTO_DSTOPTS, 0); count]
    }
}

impl Ipv6 {
    /// An ordinary packet.
    pub fn new(source: Ipv6Addr, destination: Ipv6Addr) -> Self {
        Self {
            source,
            destination,
            hops: 64,
            extensions: Vec::new(),
            length: None,
        }
    }

    /// A packet of neighbour discovery, RFC 4861.
    pub fn neighbour(source: Ipv6Addr, destination: Ipv6Addr) -> Self {
        Self {
            hops: 255,
            ..Self::new(source, destination)
        }
    }

    /// The same packet with extension headers.
    pub fn with(self, extensions: Vec<Extension>) -> Self {
        Self { extensions, ..self }
    }

    /// The packet in a frame.
    pub fn frame(&self, to: MacAddr, from: MacAddr, protocol: u8, payload: &[u8]) -> Vec<u8> {
        let following = self
            .extensions
            .iter()
            .skip(1)
            .map(|extension| extension.kind);
        let mut body = Vec::new();
        for (extension, next) in self.extensions.iter().zip(following.chain([protocol])) {
            body.push(next);
            body.extend_from_slice(&extension.rest);
        }
        body.extend_from_slice(payload);
        let first = self
            .extensions
            .first()
            .map_or(protocol, |extension| extension.kind);
        let [l0, l1] = self.length.map_or(length16(body.len()), u16::to_be_bytes);
        let packet = [
            &[0x60, 0, 0, 0, l0, l1, first, self.hops][..],
            &self.source.octets()[..],
            &self.destination.octets()[..],
            &body,
        ];
        ethernet(to, from, ETH_P_IPV6, &packet.concat())
    }

    /// A UDP packet in a frame.
    pub fn udp(&self, to: MacAddr, from: MacAddr, ports: (u16, u16)) -> Vec<u8> {
        let pseudo = self.pseudo_header(8 + PAYLOAD.len(), IPPROTO_UDP);
        self.frame(to, from, IPPROTO_UDP, &udp(&pseudo, ports))
    }

    /// An ICMPv6 packet in a frame, RFC 4443. `body` is what follows the checksum.
    pub fn icmp(&self, to: MacAddr, from: MacAddr, kind: u8, code: u8, body: &[u8]) -> Vec<u8> {
        let pseudo = self.pseudo_header(4 + body.len(), IPPROTO_ICMPV6);
        self.frame(to, from, IPPROTO_ICMPV6, &icmp(&pseudo, kind, code, body))
    }

    fn pseudo_header(&self, length: usize, protocol: u8) -> Vec<u8> {
        let [l0, l1] = length16(length);
        let tail = [0, 0, l0, l1, 0, 0, 0, protocol];
        [
            &self.source.octets()[..],
            &self.destination.octets()[..],
            &tail[..],
        ]
        .concat()
    }
}

/// Payload of UDP packets.
const PAYLOAD: &[u8] = b"podnet test packet";

fn udp(pseudo_header: &[u8], (source, destination): (u16, u16)) -> Vec<u8> {
    let ports = [source.to_be_bytes(), destination.to_be_bytes()].concat();
    let rest = [&length16(8 + PAYLOAD.len())[..], &[0, 0], PAYLOAD].concat();
    sealed(pseudo_header, [ports, rest].concat(), 6)
}

fn icmp(pseudo_header: &[u8], kind: u8, code: u8, body: &[u8]) -> Vec<u8> {
    sealed(pseudo_header, [&[kind, code, 0, 0], body].concat(), 2)
}

/// Identifier, sequence number and data of a ping.
pub fn echo_body() -> Vec<u8> {
    [&[0x77, 0x01, 0x00, 0x02][..], b"ping of the gateway"].concat()
}

/// A TCP segment that opens a connection; its checksum is left to nobody.
pub fn tcp_syn() -> Vec<u8> {
    [
        &[0x9c, 0x40, 0x1f, 0x90][..],
        &[0; 8],
        &[0x50, 0x02, 0xff, 0xff, 0, 0, 0, 0],
    ]
    .concat()
}

/// Builds the rest of a solicitation behind its checksum, RFC 4861 section 4.3.
pub fn solicitation(target: Ipv6Addr, options: &[u8]) -> Vec<u8> {
    [&[0; 4][..], &target.octets()[..], options].concat()
}

/// Builds the rest of an advertisement behind its checksum, RFC 4861 section 4.4.
///
/// The flags are those of the first byte: `0x80` router, `0x40` solicited, `0x20` override.
pub fn advertisement(flags: u8, target: Ipv6Addr, options: &[u8]) -> Vec<u8> {
    [&[flags, 0, 0, 0][..], &target.octets()[..], options].concat()
}

/// Builds a link-layer address option, RFC 4861 section 4.6.1.
///
/// Kind 1 is the source's, kind 2 the target's.
pub fn link_address(kind: u8, mac: MacAddr) -> Vec<u8> {
    [&[kind, 1][..], &mac.0[..]].concat()
}

/// Builds a nonce option, RFC 3971 section 5.3.2.
///
/// Linux adds one when it looks for duplicates.
pub fn nonce() -> Vec<u8> {
    vec![14, 1, 0xde, 0xad, 0xbe, 0xef, 0x00, 0x01]
}
