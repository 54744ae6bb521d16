//! Reads the addresses and ports of a packet. Pure; any bytes have a key.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use agent_common::addr::MacAddr;
use serde::{Serialize, Serializer};

const ARP: u16 = 0x0806;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
/// EtherTypes of VLAN tags.
const TAGS: [u16; 3] = [0x8100, 0x88a8, 0x9100];
/// Tags that are read.
const MOST_TAGS: usize = 2;
/// Extension headers that are read, as many as the programs read.
const MOST_HEADERS: usize = 8;

/// Protocol numbers (IANA).
const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const ICMPV6: u8 = 58;
const SCTP: u8 = 132;
const UDP_LITE: u8 = 136;

/// One end of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Address {
    /// Of IP and ARP.
    Ip(IpAddr),
    /// Of all else.
    Mac([u8; 6]),
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(out),
            Self::Mac(address) => MacAddr(*address).fmt(out),
        }
    }
}

impl Serialize for Address {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

/// Facts that the packets of a flow have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowKey {
    /// The outer VLAN.
    pub vlan: Option<u16>,
    /// EtherType behind the tags.
    pub ether_type: u16,
    /// Sender.
    pub source: Address,
    /// Receiver.
    pub destination: Address,
    /// Protocol number of IP, behind extension headers.
    pub protocol: Option<u8>,
    /// Ports; none for later fragments.
    pub ports: Option<(u16, u16)>,
    /// Type and code of an ICMP message.
    pub icmp: Option<(u8, u8)>,
}

impl FlowKey {
    /// Reads the first bytes of a frame; what they do not have is not in the key.
    #[must_use]
    pub fn of(frame: &[u8]) -> Self {
        let mut key = Self {
            vlan: None,
            ether_type: half(frame, 12).unwrap_or(0),
            source: Address::Mac(bytes(frame, 6).unwrap_or_default()),
            destination: Address::Mac(bytes(frame, 0).unwrap_or_default()),
            protocol: None,
            ports: None,
            icmp: None,
        };
        let mut at = 14;
        for _ in 0..MOST_TAGS {
            if !TAGS.contains(&key.ether_type) {
                break;
            }
            let Some(tag) = half(frame, at) else {
                break;
            };
            key.vlan = key.vlan.or(Some(tag & 0xfff));
            key.ether_type = half(frame, at + 2).unwrap_or(0);
            at += 4;
        }
        let packet = frame.get(at..).unwrap_or_default();
        match key.ether_type {
            IPV4 => key.read_v4(packet),
            IPV6 => key.read_v6(packet),
            ARP => key.read_arp(packet),
            _ => {}
        }
        key
    }

    /// RFC 826, for IPv4 on Ethernet.
    fn read_arp(&mut self, packet: &[u8]) {
        if let (Some([0, 1, 8, 0, 6, 4]), Some(sender), Some(target)) = (
            bytes(packet, 0),
            bytes::<4>(packet, 14),
            bytes::<4>(packet, 24),
        ) {
            self.source = Address::Ip(Ipv4Addr::from(sender).into());
            self.destination = Address::Ip(Ipv4Addr::from(target).into());
        }
    }

    /// RFC 791.
    fn read_v4(&mut self, packet: &[u8]) {
        let (Some(source), Some(destination)) = (bytes::<4>(packet, 12), bytes::<4>(packet, 16))
        else {
            return;
        };
        self.source = Address::Ip(Ipv4Addr::from(source).into());
        self.destination = Address::Ip(Ipv4Addr::from(destination).into());
        let Some(protocol) = packet.get(9).copied() else {
            return;
        };
        self.protocol = Some(protocol);
        let is_first = half(packet, 6).is_some_and(|word| word & 0x1fff == 0);
        let length = packet.first().map_or(0, |word| usize::from(word & 0xf) * 4);
        if is_first && length >= 20 {
            self.read_transport(protocol, packet.get(length..).unwrap_or_default());
        }
    }

    /// RFC 8200.
    fn read_v6(&mut self, packet: &[u8]) {
        let (Some(source), Some(destination)) = (bytes::<16>(packet, 8), bytes::<16>(packet, 24))
        else {
            return;
        };
        self.source = Address::Ip(Ipv6Addr::from(source).into());
        self.destination = Address::Ip(Ipv6Addr::from(destination).into());
        let Some(mut protocol) = packet.get(6).copied() else {
            return;
        };
        let mut rest = packet.get(40..).unwrap_or_default();
        for _ in 0..MOST_HEADERS {
            let units = rest.get(1).map_or(0, |units| usize::from(*units));
            let length = match protocol {
                // Hop by hop, routing, options of the destination.
                0 | 43 | 60 => units * 8 + 8,
                AUTHENTICATION => units * 4 + 8,
                FRAGMENT => 8,
                _ => break,
            };
            let is_later =
                protocol == FRAGMENT && half(rest, 2).is_none_or(|word| word & 0xfff8 != 0);
            let Some(next) = rest.first().copied() else {
                break;
            };
            protocol = next;
            rest = rest.get(length..).unwrap_or_default();
            if is_later {
                rest = &[];
                break;
            }
        }
        self.protocol = Some(protocol);
        self.read_transport(protocol, rest);
    }

    fn read_transport(&mut self, protocol: u8, segment: &[u8]) {
        match protocol {
            TCP | UDP | SCTP | UDP_LITE => {
                self.ports = half(segment, 0).zip(half(segment, 2));
            }
            ICMP | ICMPV6 => {
                self.icmp = bytes(segment, 0).map(|[kind, code]| (kind, code));
            }
            _ => {}
        }
    }

    /// Returns the name of the protocol, or its number.
    #[must_use]
    pub fn protocol_name(&self) -> String {
        match (self.protocol, self.ether_type) {
            (Some(ICMP), _) => "icmp".to_owned(),
            (Some(TCP), _) => "tcp".to_owned(),
            (Some(UDP), _) => "udp".to_owned(),
            (Some(ICMPV6), _) => "icmpv6".to_owned(),
            (Some(SCTP), _) => "sctp".to_owned(),
            (Some(number), _) => format!("ip:{number}"),
            (None, ARP) => "arp".to_owned(),
            (None, number) => format!("ether:{number:#06x}"),
        }
    }
}

fn bytes<const N: usize>(from: &[u8], at: usize) -> Option<[u8; N]> {
    from.get(at..).and_then(|rest| rest.first_chunk()).copied()
}

fn half(from: &[u8], at: usize) -> Option<u16> {
    bytes(from, at).map(u16::from_be_bytes)
}

#[cfg(test)]
mod tests;
