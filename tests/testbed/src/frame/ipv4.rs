//! IPv4 (RFC 791) and what it carries.

use std::net::Ipv4Addr;

use super::{checksum, length16, tcp, udp};

/// "Don't fragment".
pub const IPV4_DF: u16 = 0x4000;
/// "More fragments".
pub const IPV4_MF: u16 = 0x2000;

/// An IPv4 header to be filled in.
#[derive(Debug, Clone)]
pub struct Ipv4 {
    /// Source.
    pub from: Ipv4Addr,
    /// Destination.
    pub to: Ipv4Addr,
    /// Protocol.
    pub protocol: u8,
    /// Time to live.
    pub ttl: u8,
    /// Flags and fragment offset in units of 8 bytes.
    pub fragment: u16,
    /// Options; a multiple of 4 bytes.
    pub options: Vec<u8>,
}

impl Ipv4 {
    /// A plain header.
    pub fn new(from: Ipv4Addr, to: Ipv4Addr, protocol: u8) -> Self {
        Self {
            from,
            to,
            protocol,
            ttl: 64,
            fragment: 0,
            options: Vec::new(),
        }
    }

    /// The packet.
    pub fn packet(&self, payload: &[u8]) -> Vec<u8> {
        let header = 20 + self.options.len();
        let words = u8::try_from(header / 4).expect("at most 60 bytes of header");
        let mut out = vec![0x40 | words, 0];
        out.extend(length16(header + payload.len()));
        out.extend([0x12, 0x34]);
        out.extend(self.fragment.to_be_bytes());
        out.extend([self.ttl, self.protocol, 0, 0]);
        out.extend(self.from.octets());
        out.extend(self.to.octets());
        out.extend(&self.options);
        let sum = checksum(&[&out]);
        out[10..12].copy_from_slice(&sum);
        out.extend(payload);
        out
    }
}

/// A datagram from port 5000 to `port`.
pub fn udp4(from: Ipv4Addr, to: Ipv4Addr, ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let mut pseudo = Vec::new();
    pseudo.extend(from.octets());
    pseudo.extend(to.octets());
    pseudo.extend([0, 17]);
    pseudo.extend(length16(8 + payload.len()));
    Ipv4::new(from, to, 17).packet(&udp(&pseudo, ports, payload))
}

/// A segment of TCP with these flags.
pub fn tcp4(from: Ipv4Addr, to: Ipv4Addr, ports: (u16, u16), flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut pseudo = Vec::new();
    pseudo.extend(from.octets());
    pseudo.extend(to.octets());
    pseudo.extend([0, 6]);
    pseudo.extend(length16(20 + payload.len()));
    Ipv4::new(from, to, 6).packet(&tcp(&pseudo, ports, flags, payload))
}

/// An echo request (RFC 792).
pub fn icmp_echo(payload: &[u8]) -> Vec<u8> {
    let mut out = vec![8, 0, 0, 0, 0x70, 0x6e, 0, 1];
    out.extend(payload);
    let sum = checksum(&[&out]);
    out[2..4].copy_from_slice(&sum);
    out
}
