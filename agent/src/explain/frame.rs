//! The frames that a pod's kernel would send. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use agent_common::addr::{Ip16, MacAddr};
use agent_common::packet::{
    ETH_HLEN, ETH_P_ARP, ETH_P_IP, ETH_P_IPV6, ICMP_HLEN, IPPROTO_ICMP, IPPROTO_ICMPV6,
    IPPROTO_TCP, IPPROTO_UDP, IPV4_HLEN, IPV6_HLEN,
};

use super::question::{Ports, Proto};
use crate::error::ExplainError;

/// Hops that Linux gives a packet.
const HOPS: u8 = 64;
/// Data of a ping, as the usual program sends it.
const PING: usize = 56;
/// Data of a datagram.
const DATAGRAM: usize = 32;
/// Length of a TCP header without options.
const TCP_HLEN: usize = 20;
/// Length of a UDP header.
const UDP_HLEN: usize = 8;
/// Data of a frame that carries nothing we know.
const DATA: usize = 46;

/// Receiver and sender of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Macs {
    /// Destination.
    pub(super) to: MacAddr,
    /// Source.
    pub(super) from: MacAddr,
}

impl Macs {
    fn frame(self, ether_type: u16, payload: &[u8]) -> Vec<u8> {
        let parts: [&[u8]; 4] = [&self.to.0, &self.from.0, &ether_type.to_be_bytes(), payload];
        parts.concat()
    }
}

/// The question of ARP: who has `target`? (RFC 826)
pub(super) fn arp(sender: MacAddr, ip: Ipv4Addr, target: Ipv4Addr) -> Vec<u8> {
    let head: &[u8] = &[0, 1, 0x08, 0, 6, 4, 0, 1];
    let parts: [&[u8]; 5] = [head, &sender.0, &ip.octets(), &[0; 6], &target.octets()];
    let macs = Macs {
        to: MacAddr::BROADCAST,
        from: sender,
    };
    macs.frame(ETH_P_ARP, &parts.concat())
}

/// The question of neighbour discovery: who has `target`? (RFC 4861 section 4.3)
pub(super) fn solicitation(sender: MacAddr, ip: Ipv6Addr, target: Ipv6Addr) -> Vec<u8> {
    let [.., a, b, c] = target.octets();
    let group = Ipv6Addr::from_octets([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, a, b, c]);
    let body: [&[u8]; 4] = [&[0; 4], &target.octets(), &[1, 1], &sender.0];
    let message = icmp6(ip, group, 135, &body.concat());
    let macs = Macs {
        to: group_mac(group.into()),
        from: sender,
    };
    let packet = ipv6(ip, group, IPPROTO_ICMPV6, 255, &message);
    macs.frame(ETH_P_IPV6, &packet)
}

/// A frame with data only.
pub(super) fn data(macs: Macs, ether_type: u16, size: Option<usize>) -> Vec<u8> {
    macs.frame(ether_type, &vec![0; size.unwrap_or(DATA)])
}

/// An IP packet of `size` bytes, or as large as is usual.
///
/// # Errors
/// When its headers do not fit, or the addresses are of two families.
pub(super) fn packet(
    macs: Macs,
    (source, destination): (IpAddr, IpAddr),
    proto: Proto,
    size: Option<usize>,
) -> Result<Vec<u8>, ExplainError> {
    let header = if source.is_ipv4() {
        IPV4_HLEN
    } else {
        IPV6_HLEN
    };
    let (inner, usual) = match proto {
        Proto::Tcp(_) => (TCP_HLEN, TCP_HLEN),
        Proto::Udp(_) => (UDP_HLEN, UDP_HLEN + DATAGRAM),
        Proto::Icmp => (ICMP_HLEN, ICMP_HLEN + PING),
        Proto::Ip(_) | Proto::Ether(_) | Proto::Arp | Proto::Nd => (0, DATAGRAM),
    };
    let length = size.unwrap_or(header + usual);
    let Some(rest) = length.checked_sub(header + inner) else {
        return Err(ExplainError::Invalid {
            argument: "--size",
            value: length.to_string(),
            fix: "the headers alone are larger; an echo request has at least 28 bytes with IPv4",
        });
    };
    let rest = vec![0; rest];
    let pseudo = |number| pseudo_header(source, destination, number, inner + rest.len());
    let (number, payload) = match proto {
        Proto::Tcp(ports) => (IPPROTO_TCP, tcp(&pseudo(IPPROTO_TCP), ports, &rest)),
        Proto::Udp(ports) => (IPPROTO_UDP, udp(&pseudo(IPPROTO_UDP), ports, &rest)),
        Proto::Icmp if source.is_ipv4() => (IPPROTO_ICMP, echo(&[], 8, &rest)),
        Proto::Icmp => {
            let request = echo(&pseudo(IPPROTO_ICMPV6), 128, &rest);
            (IPPROTO_ICMPV6, request)
        }
        Proto::Ip(number) => (number, rest),
        // Nothing that the caller asks for; experiments have this number (RFC 3692).
        Proto::Ether(_) | Proto::Arp | Proto::Nd => (253, rest),
    };
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            Ok(macs.frame(ETH_P_IP, &ipv4(source, destination, number, &payload)))
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let packet = ipv6(source, destination, number, HOPS, &payload);
            Ok(macs.frame(ETH_P_IPV6, &packet))
        }
        (source, destination) => Err(ExplainError::Invalid {
            argument: "--to",
            value: destination.to_string(),
            fix: if source.is_ipv4() {
                "the source address is IPv4: write an IPv4 address"
            } else {
                "the source address is IPv6: write an IPv6 address"
            },
        }),
    }
}

/// Frame with other MAC addresses.
pub(super) fn addressed(frame: &[u8], macs: Macs) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let addresses = macs.to.0.into_iter().chain(macs.from.0);
    for (byte, new) in frame.iter_mut().zip(addresses) {
        *byte = new;
    }
    frame
}

/// Frame that a router forwards: its own MAC addresses and a hop less.
///
/// Other fields but the checksum of IPv4 stay as they are.
pub(super) fn routed(frame: &[u8], macs: Macs) -> Vec<u8> {
    let mut frame = addressed(frame, macs);
    let at = if is_v4(&frame) {
        ETH_HLEN + 8
    } else {
        ETH_HLEN + 7
    };
    if let Some(hops) = frame.get_mut(at) {
        *hops = hops.saturating_sub(1);
    }
    sum_header(&mut frame);
    frame
}

/// Frame with another receiver of its TCP or UDP.
///
/// `payload` is where its ports are; `source` stays.
pub(super) fn translated(
    frame: &[u8],
    (payload, protocol): (usize, u8),
    source: IpAddr,
    to: SocketAddr,
) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let (at, address) = match to.ip() {
        IpAddr::V4(ip) => (ETH_HLEN + 16, ip.octets().to_vec()),
        IpAddr::V6(ip) => (ETH_HLEN + 24, ip.octets().to_vec()),
    };
    for (byte, new) in frame.iter_mut().skip(at).zip(address) {
        *byte = new;
    }
    put(&mut frame, payload + 2, to.port().to_be_bytes());
    sum_header(&mut frame);
    let sum_at = if protocol == IPPROTO_TCP { 16 } else { 6 };
    if let Some(segment) = frame.get_mut(payload..) {
        put(segment, sum_at, [0, 0]);
        let pseudo = pseudo_header(source, to.ip(), protocol, segment.len());
        let sum = checksum(&[&pseudo, segment]);
        put(segment, sum_at, sum);
    }
    frame
}

fn is_v4(frame: &[u8]) -> bool {
    frame.get(12..14) == Some(&ETH_P_IP.to_be_bytes())
}

/// Writes the checksum of an IPv4 header; IPv6 has none.
fn sum_header(frame: &mut [u8]) {
    if !is_v4(frame) {
        return;
    }
    if let Some(header) = frame.get_mut(ETH_HLEN..ETH_HLEN + IPV4_HLEN) {
        put(header, 10, [0, 0]);
        let sum = checksum(&[header]);
        put(header, 10, sum);
    }
}

/// MAC address of a group of hosts (RFC 1112 section 6.4, RFC 2464 section 7).
pub(super) fn group_mac(group: IpAddr) -> MacAddr {
    match group {
        IpAddr::V4(ip) if ip.is_multicast() => {
            let [_, b, c, d] = ip.octets();
            MacAddr([0x01, 0x00, 0x5e, b & 0x7f, c, d])
        }
        IpAddr::V4(_) => MacAddr::BROADCAST,
        IpAddr::V6(ip) => {
            let [.., c, d, e, f] = ip.octets();
            MacAddr([0x33, 0x33, c, d, e, f])
        }
    }
}

/// Whether an address is of more than one host: broadcast of all or multicast.
pub(super) fn is_group(ip: IpAddr) -> bool {
    Ip16::from(ip).is_group()
}

fn ipv4(source: Ipv4Addr, destination: Ipv4Addr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let [l0, l1] = length16(IPV4_HLEN + payload.len());
    // Not to be fragmented, as Linux sends by default.
    let mut header = vec![0x45, 0, l0, l1, 0, 0, 0x40, 0, HOPS, protocol, 0, 0];
    header.extend(source.octets());
    header.extend(destination.octets());
    let sum = checksum(&[&header]);
    put(&mut header, 10, sum);
    header.extend(payload);
    header
}

fn ipv6(
    source: Ipv6Addr,
    destination: Ipv6Addr,
    protocol: u8,
    hops: u8,
    payload: &[u8],
) -> Vec<u8> {
    let [l0, l1] = length16(payload.len());
    let mut packet = vec![0x60, 0, 0, 0, l0, l1, protocol, hops];
    packet.extend(source.octets());
    packet.extend(destination.octets());
    packet.extend(payload);
    packet
}

/// The first segment of a connection (RFC 9293 section 3.1).
fn tcp(pseudo: &[u8], ports: Ports, data: &[u8]) -> Vec<u8> {
    let mut segment = port_bytes(ports);
    segment.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x02, 0xff, 0xff, 0, 0, 0, 0]);
    segment.extend(data);
    let sum = checksum(&[pseudo, &segment]);
    put(&mut segment, 16, sum);
    segment
}

fn udp(pseudo: &[u8], ports: Ports, data: &[u8]) -> Vec<u8> {
    let mut datagram = port_bytes(ports);
    datagram.extend(length16(UDP_HLEN + data.len()));
    datagram.extend([0, 0]);
    datagram.extend(data);
    let sum = checksum(&[pseudo, &datagram]);
    // RFC 768: zero says that there is none.
    let sum = if sum == [0, 0] { [0xff, 0xff] } else { sum };
    put(&mut datagram, 6, sum);
    datagram
}

/// An echo request (RFC 792, RFC 4443 section 4.1).
fn echo(pseudo: &[u8], kind: u8, data: &[u8]) -> Vec<u8> {
    let mut message = vec![kind, 0, 0, 0, 0x70, 0x6e, 0, 1];
    message.extend(data);
    let sum = checksum(&[pseudo, &message]);
    put(&mut message, 2, sum);
    message
}

/// An ICMPv6 message; `body` is what follows the checksum.
fn icmp6(source: Ipv6Addr, destination: Ipv6Addr, kind: u8, body: &[u8]) -> Vec<u8> {
    let mut message = vec![kind, 0, 0, 0];
    message.extend(body);
    let length = message.len();
    let pseudo = pseudo_header(source.into(), destination.into(), IPPROTO_ICMPV6, length);
    let sum = checksum(&[&pseudo, &message]);
    put(&mut message, 2, sum);
    message
}

fn port_bytes(ports: Ports) -> Vec<u8> {
    [ports.source.to_be_bytes(), ports.destination.to_be_bytes()].concat()
}

fn pseudo_header(source: IpAddr, destination: IpAddr, protocol: u8, length: usize) -> Vec<u8> {
    let [l0, l1] = length16(length);
    let mut header = Vec::new();
    for ip in [source, destination] {
        match ip {
            IpAddr::V4(ip) => header.extend(ip.octets()),
            IpAddr::V6(ip) => header.extend(ip.octets()),
        }
    }
    match source {
        IpAddr::V4(_) => header.extend([0, protocol, l0, l1]),
        IpAddr::V6(_) => header.extend([0, 0, l0, l1, 0, 0, 0, protocol]),
    }
    header
}

/// A length field; nothing longer is built.
fn length16(length: usize) -> [u8; 2] {
    u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes()
}

fn put(bytes: &mut [u8], at: usize, [high, low]: [u8; 2]) {
    for (byte, new) in bytes.iter_mut().skip(at).zip([high, low]) {
        *byte = new;
    }
}

/// Internet checksum of parts (RFC 1071).
///
/// All parts but the last have even lengths.
fn checksum(parts: &[&[u8]]) -> [u8; 2] {
    let mut sum = 0_u64;
    for pair in parts.iter().flat_map(|part| part.chunks(2)) {
        let high = pair.first().copied().unwrap_or(0);
        let low = pair.get(1).copied().unwrap_or(0);
        sum += u64::from(u16::from_be_bytes([high, low]));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let [.., high, low] = (!sum).to_be_bytes();
    [high, low]
}

#[cfg(test)]
mod tests;
