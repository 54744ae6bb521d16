//! IPv6 (RFC 8200), its extension headers, and neighbour discovery (RFC 4861).

use std::net::Ipv6Addr;

use agent_common::addr::MacAddr;

use super::{checksum, length16, tcp, udp};

/// An IPv6 header to be filled in.
#[derive(Debug, Clone, Copy)]
pub struct Ipv6 {
    /// Source.
    pub from: Ipv6Addr,
    /// Destination.
    pub to: Ipv6Addr,
    /// The protocol after the header.
    pub next_header: u8,
    /// Hop limit.
    pub hops: u8,
}

impl Ipv6 {
    /// A header with hop limit 255, as neighbour discovery needs it.
    pub fn new(from: Ipv6Addr, to: Ipv6Addr, next_header: u8) -> Self {
        Self {
            from,
            to,
            next_header,
            hops: 255,
        }
    }

    /// The packet.
    pub fn packet(&self, payload: &[u8]) -> Vec<u8> {
        let mut out = vec![0x60, 0, 0, 0];
        out.extend(length16(payload.len()));
        out.extend([self.next_header, self.hops]);
        out.extend(self.from.octets());
        out.extend(self.to.octets());
        out.extend(payload);
        out
    }
}

fn pseudo(from: Ipv6Addr, to: Ipv6Addr, next_header: u8, length: usize) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend(from.octets());
    out.extend(to.octets());
    out.extend([0, 0]);
    out.extend(length16(length));
    out.extend([0, 0, 0, next_header]);
    out
}

/// A datagram.
pub fn udp6(from: Ipv6Addr, to: Ipv6Addr, ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let pseudo = pseudo(from, to, 17, 8 + payload.len());
    Ipv6::new(from, to, 17).packet(&udp(&pseudo, ports, payload))
}

/// A segment of TCP with these flags.
pub fn tcp6(from: Ipv6Addr, to: Ipv6Addr, ports: (u16, u16), flags: u8, payload: &[u8]) -> Vec<u8> {
    let pseudo = pseudo(from, to, 6, 20 + payload.len());
    Ipv6::new(from, to, 6).packet(&tcp(&pseudo, ports, flags, payload))
}

/// An ICMPv6 message (RFC 4443): type, code, and what follows the checksum.
pub fn icmp6(from: Ipv6Addr, to: Ipv6Addr, kind: (u8, u8), body: &[u8]) -> Vec<u8> {
    let mut out = vec![kind.0, kind.1, 0, 0];
    out.extend(body);
    let sum = checksum(&[&pseudo(from, to, 58, out.len()), &out]);
    out[2..4].copy_from_slice(&sum);
    out
}

/// An echo request.
pub fn echo6(from: Ipv6Addr, to: Ipv6Addr, payload: &[u8]) -> Vec<u8> {
    let body = [&[0x70, 0x6e, 0, 1], payload].concat();
    Ipv6::new(from, to, 58).packet(&icmp6(from, to, (128, 0), &body))
}

/// Makes an extension header of 8 bytes and a multiple of 8 more.
///
/// It has the next header, its length, then `body`.
///
/// # Panics
/// If the body does not fill the header.
pub fn extension(next_header: u8, body: &[u8]) -> Vec<u8> {
    let total = body.len() + 2;
    assert_eq!(total % 8, 0, "an extension header is a multiple of 8 bytes");
    let units = u8::try_from(total / 8 - 1).expect("at most 2048 bytes");
    [&[next_header, units], body].concat()
}

/// A fragment header: offset in units of 8 bytes, and whether more follow.
pub fn fragment_header(next_header: u8, offset: u16, more: bool) -> Vec<u8> {
    let field = (offset << 3) | u16::from(more);
    let [high, low] = field.to_be_bytes();
    vec![next_header, 0, high, low, 0, 0, 0, 7]
}

/// An option of neighbour discovery, padded to units of 8 bytes.
pub fn nd_option(kind: u8, body: &[u8]) -> Vec<u8> {
    let units = (body.len() + 2).div_ceil(8);
    let mut out = vec![kind, u8::try_from(units).expect("a short option")];
    out.extend(body);
    out.resize(units * 8, 0);
    out
}

/// A neighbour solicitation with its source link-layer address option, then `more`.
pub fn neighbour_solicitation(
    from: Ipv6Addr,
    to: Ipv6Addr,
    target: Ipv6Addr,
    link: MacAddr,
    more: &[u8],
) -> Vec<u8> {
    let mut body = vec![0; 4];
    body.extend(target.octets());
    body.extend(nd_option(1, &link.0));
    body.extend(more);
    Ipv6::new(from, to, 58).packet(&icmp6(from, to, (135, 0), &body))
}

/// Makes a neighbour advertisement (solicited, override), then `more`.
///
/// It has the target link-layer address option.
pub fn neighbour_advertisement(
    from: Ipv6Addr,
    to: Ipv6Addr,
    target: Ipv6Addr,
    link: MacAddr,
    more: &[u8],
) -> Vec<u8> {
    let mut body = vec![0x60, 0, 0, 0];
    body.extend(target.octets());
    body.extend(nd_option(2, &link.0));
    body.extend(more);
    Ipv6::new(from, to, 58).packet(&icmp6(from, to, (136, 0), &body))
}

/// A router advertisement, then `more`.
pub fn router_advertisement(from: Ipv6Addr, to: Ipv6Addr, more: &[u8]) -> Vec<u8> {
    let mut body = vec![64, 0, 0x07, 0x08, 0, 0, 0, 0, 0, 0, 0, 0];
    body.extend(more);
    Ipv6::new(from, to, 58).packet(&icmp6(from, to, (134, 0), &body))
}

/// A redirect of `destination` to `target`, then `more`.
pub fn redirect(
    from: Ipv6Addr,
    to: Ipv6Addr,
    target: Ipv6Addr,
    destination: Ipv6Addr,
    more: &[u8],
) -> Vec<u8> {
    let mut body = vec![0; 4];
    body.extend(target.octets());
    body.extend(destination.octets());
    body.extend(more);
    Ipv6::new(from, to, 58).packet(&icmp6(from, to, (137, 0), &body))
}
