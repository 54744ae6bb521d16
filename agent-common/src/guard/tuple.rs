//! Ends and ports of a packet, as connections are told apart by them.

use crate::addr::Ip16;
use crate::drop::DropReason;
use crate::packet::{
    ETH_HLEN, Frame, ICMP_HLEN, IPPROTO_ICMP, IPPROTO_ICMPV6, IPPROTO_TCP, IPPROTO_UDP, IPV4_HLEN,
    IPV6_HLEN, PORTS_LEN, START_MAX,
};
use crate::policy::{Family, Packet, Scratch};

/// SCTP, RFC 9260.
pub(super) const IPPROTO_SCTP: u8 = 132;

/// The part of a TCP header up to its flags, bytes.
pub(super) const TCP_FLAGS: usize = 13;
/// FIN flag of TCP.
pub(super) const FIN: u8 = 0x01;
/// SYN flag of TCP.
pub(super) const SYN: u8 = 0x02;
/// RST flag of TCP.
pub(super) const RST: u8 = 0x04;
/// ACK flag of TCP.
pub(super) const ACK: u8 = 0x10;

/// Where the payload of IPv4 without options begins, bytes.
const PAYLOAD_V4: usize = ETH_HLEN + IPV4_HLEN;
/// Where the payload of IPv6 without extension headers begins, bytes.
const PAYLOAD_V6: usize = ETH_HLEN + IPV6_HLEN;

/// The longest neighbour discovery of a host, bytes.
///
/// A solicitation with the address of its link, a nonce (RFC 7527) and a padded trailer.
pub const ND_MAX: usize = 24 + 8 + 8 + 8;

/// Ends of a packet.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuple {
    /// Source address.
    pub source: Ip16,
    /// Destination address.
    pub destination: Ip16,
    /// Source port; what [`query_ports`] makes of an identifier, else 0 without ports.
    pub source_port: u16,
    /// Destination port, as that of the source.
    pub destination_port: u16,
    /// IP protocol.
    pub protocol: u8,
    /// Flags of TCP; 0 of all others.
    pub tcp: u8,
    /// Type of an ICMP message; 0 of all others.
    pub icmp: u8,
    /// True for what has ports.
    pub has_ports: bool,
}

impl Tuple {
    /// Of no packet.
    pub const EMPTY: Self = Self {
        source: Ip16::NONE,
        destination: Ip16::NONE,
        source_port: 0,
        destination_port: 0,
        protocol: 0,
        tcp: 0,
        icmp: 0,
        has_ports: false,
    };

    /// Takes the addresses of a packet, as yet without ports.
    #[inline(always)]
    pub(crate) fn start(&mut self, packet: &Packet) {
        self.source.set(&packet.source);
        self.destination.set(&packet.destination);
        self.source_port = 0;
        self.destination_port = 0;
        self.protocol = packet.protocol;
        self.tcp = 0;
        self.icmp = 0;
        self.has_ports = has_ports(packet.protocol);
    }

    /// Reports whether the source is the higher end, by address, then by port.
    #[inline(always)]
    pub(crate) fn is_from_high(&self) -> bool {
        let [a0, a1, a2, a3] = self.source.words();
        let [b0, b1, b2, b3] = self.destination.words();
        if a0 != b0 {
            return a0 > b0;
        }
        if a1 != b1 {
            return a1 > b1;
        }
        if a2 != b2 {
            return a2 > b2;
        }
        if a3 != b3 {
            return a3 > b3;
        }
        self.source_port > self.destination_port
    }

    /// The lower end, then the higher one: address and port of each.
    #[inline(always)]
    pub(super) const fn in_order(&self, from_high: bool) -> ((&Ip16, u16), (&Ip16, u16)) {
        let source = (&self.source, self.source_port);
        let destination = (&self.destination, self.destination_port);
        if from_high {
            (destination, source)
        } else {
            (source, destination)
        }
    }

    /// Reports whether it opens a connection of TCP.
    #[inline(always)]
    pub(crate) const fn is_opening(&self) -> bool {
        self.protocol == IPPROTO_TCP && self.tcp & (SYN | ACK) == SYN
    }

    /// Reports whether it answers what opens a connection of TCP.
    #[inline(always)]
    pub(crate) const fn accepts(&self) -> bool {
        self.protocol == IPPROTO_TCP && self.tcp & (SYN | ACK) == SYN | ACK
    }

    /// Reports whether it opens or ends a connection of TCP, or answers what opens one.
    #[inline(always)]
    pub(super) const fn is_marked(&self) -> bool {
        self.tcp & (SYN | FIN | RST) != 0
    }

    /// Reads the ports of a whole packet or of a first fragment.
    ///
    /// # Errors
    /// `Truncated`; `PolicyFragment` for a first fragment that ends before what is judged (RFC 1858).
    #[inline(always)]
    pub(super) fn read<F: Frame + ?Sized>(
        &mut self,
        frame: &F,
        scratch: &Scratch,
    ) -> Result<(), DropReason> {
        let (packet, start) = (&scratch.packet, &scratch.start);
        let short = if packet.fragment {
            DropReason::PolicyFragment
        } else {
            DropReason::Truncated
        };
        let payload = packet.payload as usize;
        if self.has_ports {
            // What was read with the headers is not read again.
            let ports = match payload {
                PAYLOAD_V4 if start.has::<{ PAYLOAD_V4 + PORTS_LEN }>() => {
                    start.field::<PAYLOAD_V4, PORTS_LEN>()
                }
                PAYLOAD_V6 if start.has::<{ PAYLOAD_V6 + PORTS_LEN }>() => {
                    start.field::<PAYLOAD_V6, PORTS_LEN>()
                }
                _ => frame.load::<PORTS_LEN>(payload).ok_or(short)?,
            };
            let [s0, s1, d0, d1] = ports;
            self.source_port = u16::from_be_bytes([s0, s1]);
            self.destination_port = u16::from_be_bytes([d0, d1]);
            if packet.protocol == IPPROTO_TCP {
                let [flags] = match payload {
                    PAYLOAD_V4 if start.has::<START_MAX>() => {
                        start.field::<{ PAYLOAD_V4 + TCP_FLAGS }, 1>()
                    }
                    _ => frame.load::<1>(payload + TCP_FLAGS).ok_or(short)?,
                };
                self.tcp = flags;
            }
        } else if is_icmp(packet) {
            let [kind, _, _, _, i0, i1, _, _] = frame.load::<ICMP_HLEN>(payload).ok_or(short)?;
            self.icmp = kind;
            self.take_query(kind, [i0, i1]);
        }
        Ok(())
    }

    /// Takes the ports of a message of ICMP that asks or answers.
    ///
    /// False for another one.
    #[inline(always)]
    pub(super) const fn take_query(&mut self, kind: u8, identifier: [u8; 2]) -> bool {
        let asks = asks(self.protocol, kind);
        if !asks && !answers(self.protocol, kind) {
            return false;
        }
        (self.source_port, self.destination_port) = query_ports(asks, identifier);
        true
    }
}

/// True for a protocol whose header begins with two ports.
#[inline(always)]
pub(super) const fn has_ports(protocol: u8) -> bool {
    matches!(protocol, IPPROTO_TCP | IPPROTO_UDP | IPPROTO_SCTP)
}

/// True for ICMP in IPv4 and ICMPv6 in IPv6.
#[inline(always)]
pub(super) const fn is_icmp(packet: &Packet) -> bool {
    match packet.family {
        Family::V4 => packet.protocol == IPPROTO_ICMP,
        Family::V6 => packet.protocol == IPPROTO_ICMPV6,
    }
}

/// True for messages of ICMP that ask, with an identifier.
///
/// It comes after the checksum. They ask for an echo, the time, information, a mask or an interface
/// (RFC 792, RFC 950, RFC 4443, RFC 8335).
#[inline(always)]
pub(super) const fn asks(protocol: u8, kind: u8) -> bool {
    match protocol {
        IPPROTO_ICMP => matches!(kind, 8 | 13 | 15 | 17 | 42),
        IPPROTO_ICMPV6 => matches!(kind, 128 | 160),
        _ => false,
    }
}

/// True for messages of ICMP that answer, and repeat the identifier.
#[inline(always)]
pub(super) const fn answers(protocol: u8, kind: u8) -> bool {
    match protocol {
        IPPROTO_ICMP => matches!(kind, 0 | 14 | 16 | 18 | 43),
        IPPROTO_ICMPV6 => matches!(kind, 129 | 161),
        _ => false,
    }
}

/// Returns the ports of source and destination for an identifier of ICMP.
///
/// The end that asks has the identifier as its port, the asked end the number after it. So pings of two ends to
/// each other are two connections, whatever their identifiers, and a request is never the reply to another.
#[inline(always)]
const fn query_ports(asks: bool, identifier: [u8; 2]) -> (u16, u16) {
    let identifier = u16::from_be_bytes(identifier);
    let next = identifier.wrapping_add(1);
    if asks {
        (identifier, next)
    } else {
        (next, identifier)
    }
}

/// True for neighbour discovery, which no policy is asked about.
///
/// A network is dead without it. Its messages have been checked: they speak for their sender only. Hosts send
/// short ones; a longer one carries something else.
#[inline(always)]
pub fn is_exempt<F: Frame + ?Sized>(frame: &F, packet: &Packet) -> bool {
    if !matches!(packet.family, Family::V6)
        || packet.protocol != IPPROTO_ICMPV6
        || packet.fragment
        || packet.hops != 255
    {
        return false;
    }
    match frame.load::<1>(packet.payload as usize) {
        Some([133 | 135 | 136]) => frame.length() <= packet.payload as usize + ND_MAX,
        Some([134]) => true,
        _ => false,
    }
}
