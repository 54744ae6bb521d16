//! Check invariants of every accepted frame, by its bytes alone.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use agent_common::cases::{AMBER, BLUE, GREEN, GREY, PODS, Pod, RED, WHITE};
use agent_common::endpoint::Endpoint;

use super::{HERE_V4, HERE_V6, MTU, PORT, Places};

/// The virtual gateway's MAC address.
const GATEWAY: [u8; 6] = [0x02, 0x70, 0x6e, 0, 0, 1];

/// The outer headers of a tunnel's packet to this node.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Tunnel {
    pub(crate) source: IpAddr,
    pub(crate) network: u32,
    pub(crate) congested: bool,
    /// Where the inner frame begins.
    pub(crate) at: usize,
    /// Flags or reserved bits are not those of RFC 7348.
    pub(crate) is_odd: bool,
    /// There is a UDP checksum, and the rest is in order.
    pub(crate) has_checksum: bool,
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

fn v4(bytes: &[u8], at: usize) -> Option<Ipv4Addr> {
    let octets: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
    Some(octets.into())
}

fn v6(bytes: &[u8], at: usize) -> Option<Ipv6Addr> {
    let octets: [u8; 16] = bytes.get(at..at + 16)?.try_into().ok()?;
    Some(octets.into())
}

/// The sum of RFC 1071, not inverted: 0xffff for a header whose checksum is right.
fn sum(bytes: &[u8]) -> u16 {
    let mut sum = 0_u32;
    for pair in bytes.chunks_exact(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(pair[1]);
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).expect("folded after each word")
}

/// Writes the lengths and checksum of outer headers that fit the frame.
///
/// The checksum is that of an outer IPv4 header. With `inner`, the length in the IP header inside is written
/// too.
pub(crate) fn finish(frame: &mut [u8], inner: bool) {
    let length = frame.len();
    let put = |frame: &mut [u8], at: usize, value: usize| {
        let value = u16::try_from(value).expect("a short frame");
        frame[at..at + 2].copy_from_slice(&value.to_be_bytes());
    };
    let at = match word(frame, 12) {
        Some(0x0800) if length >= 50 => {
            put(frame, 16, length - 14);
            put(frame, 38, length - 34);
            put(frame, 24, 0);
            let check = !sum(&frame[14..34]);
            put(frame, 24, check.into());
            50
        }
        Some(0x86dd) if length >= 70 => {
            put(frame, 18, length - 54);
            put(frame, 58, length - 54);
            70
        }
        _ => return,
    };
    let rest = length - at;
    match word(frame, at + 12) {
        Some(0x0800) if inner && rest >= 34 => put(frame, at + 16, rest - 14),
        Some(0x86dd) if inner && rest >= 54 => put(frame, at + 18, rest - 54),
        _ => {}
    }
}

/// Reads the outer headers, RFC 791, RFC 8200, RFC 768 and RFC 7348.
///
/// `None` for a tunnel that does not end here, and for a form that no node sends.
pub(crate) fn tunnel(frame: &[u8]) -> Option<Tunnel> {
    let (source, congested, udp) = match word(frame, 12)? {
        0x0800 => {
            let header = frame.get(14..34)?;
            // Version 4, five words, all of it one packet of UDP, to here.
            let fragment = word(header, 6)? & 0b0011_1111_1111_1111;
            let whole = usize::from(word(header, 2)?) + 14 == frame.len();
            let mine = v4(header, 16)? == HERE_V4;
            if header[0] != 0x45 || header[9] != 17 || fragment != 0 || !whole || !mine {
                return None;
            }
            if sum(header) != 0xffff {
                return None;
            }
            (v4(header, 12)?.into(), header[1] & 3 == 3, 34)
        }
        0x86dd => {
            let header = frame.get(14..54)?;
            let whole = usize::from(word(header, 4)?) + 54 == frame.len();
            let mine = v6(header, 24)? == HERE_V6;
            if header[0] & 0xf0 != 0x60 || header[6] != 17 || !whole || !mine {
                return None;
            }
            let congested = word(header, 0)? & 0x0030 == 0x0030;
            // An address of IPv4 in one of IPv6 would be read as another node's.
            let source = v6(header, 8)?;
            if source.to_ipv4_mapped().is_some() {
                return None;
            }
            (source.into(), congested, 54)
        }
        _ => return None,
    };
    let headers = frame.get(udp..udp + 16)?;
    let whole = usize::from(word(headers, 4)?) == frame.len() - udp;
    if word(headers, 2)? != PORT || !whole {
        return None;
    }
    let vxlan = &headers[8..];
    let is_odd = vxlan[..4] != [0x08, 0, 0, 0] || vxlan[7] != 0;
    Some(Tunnel {
        source,
        network: u32::from_be_bytes([0, vxlan[4], vxlan[5], vxlan[6]]),
        congested,
        at: udp + 16,
        is_odd,
        has_checksum: !is_odd && word(headers, 6)? != 0,
    })
}

/// A frame that was accepted.
pub(crate) struct Judge<'a> {
    pub(crate) network: u32,
    /// The node that sent it.
    pub(crate) node: u32,
    pub(crate) places: Places,
    pub(crate) bytes: &'a [u8],
    pub(crate) segment: usize,
}

impl Judge<'_> {
    fn pods(&self) -> impl Iterator<Item = &'static Pod> + '_ {
        PODS.into_iter().filter(|pod| pod.network == self.network)
    }

    /// A pod of the sending node has this MAC address.
    fn is_theirs(&self, mac: &[u8]) -> bool {
        self.pods()
            .any(|pod| pod.mac.0 == mac && self.places.of(pod) == self.node)
    }

    /// True when a pod of the sending node has this address.
    ///
    /// An address of its leases, or the one made of its MAC address.
    fn speaks_for(&self, ip: IpAddr) -> bool {
        self.pods()
            .any(|pod| self.places.of(pod) == self.node && has(pod, ip))
    }

    /// Judges a frame that goes `to` a pod, or to all.
    pub(crate) fn accepted(&self, to: Option<&Endpoint>) {
        let bytes = self.bytes;
        assert!(bytes.len() >= 14, "no Ethernet header");
        assert!(self.segment <= MTU as usize + 14, "longer than the MTU");
        let (destination, source) = (&bytes[..6], &bytes[6..12]);
        let kind = word(bytes, 12).expect("it is there");
        let tags = [0x8100, 0x88a8, 0x9100, 0x9200, 0x9300];
        assert!(!tags.contains(&kind), "a tag");
        let link = destination[..5] == [0x01, 0x80, 0xc2, 0, 0] && destination[5] < 0x10;
        assert!(!link, "a frame that no bridge forwards");
        if let Some(to) = to {
            let receiver = self.pods().find(|pod| {
                self.places.of(pod) == 0 && pod.ifindex == to.ifindex && pod.mac.0 == destination
            });
            let receiver = receiver.expect("a pod of this node and network that has the MAC");
            assert_eq!(*to, receiver.endpoint());
        } else {
            assert!(destination[0] & 1 == 1, "one station's, given to all");
        }
        match self.network {
            BLUE | RED | GREY => {
                assert!(self.is_theirs(source), "a MAC that is not that node's");
                assert_eq!(to.is_none(), destination[0] & 1 == 1);
                self.switched(kind);
            }
            GREEN | WHITE | AMBER => self.routed(kind, to.expect("no group on a routed network")),
            other => panic!("no tunnel carries network {other}"),
        }
    }

    fn routed(&self, kind: u16, to: &Endpoint) {
        let bytes = self.bytes;
        assert_eq!(bytes[6..12], GATEWAY, "not from the gateway");
        let (source, destination) = match kind {
            0x0800 => (v4(bytes, 26).map(IpAddr::V4), v4(bytes, 30).map(IpAddr::V4)),
            0x86dd => (v6(bytes, 22).map(IpAddr::V6), v6(bytes, 38).map(IpAddr::V6)),
            _ => panic!("{kind:#06x} on a routed network"),
        };
        let (source, destination) = (source.expect("whole"), destination.expect("whole"));
        assert!(self.speaks_for(source), "{source} is not that node's");
        let mut pods = self.pods();
        let holder = pods.find(|pod| self.places.of(pod) == 0 && has(pod, destination));
        let holder = holder.expect("a pod of this node with that address");
        assert_eq!(holder.ifindex, to.ifindex);
    }

    fn switched(&self, kind: u16) {
        match kind {
            0x0800 => self.ipv4(),
            0x86dd => self.ipv6(),
            0x0806 => self.arp(),
            0x8808 => panic!("MAC control"),
            _ => assert!(kind >= 0x0600, "a length, not an EtherType"),
        }
    }

    /// True when the holders of addresses are unknown there.
    fn is_open(&self) -> bool {
        self.network == GREY
    }

    /// Several packets in one: the lengths in its headers are none of theirs.
    fn is_many(&self) -> bool {
        self.segment != self.bytes.len()
    }

    fn arp(&self) {
        let packet = self.bytes.get(14..42).expect("a whole ARP packet");
        assert_eq!(packet[..6], [0, 1, 8, 0, 6, 4]);
        let operation = word(packet, 6).expect("it is there");
        assert!((1..=2).contains(&operation), "operation {operation}");
        assert_eq!(packet[8..14], self.bytes[6..12], "the sender's MAC");
        let ip = v4(packet, 14).expect("it is there");
        let probe = ip.is_unspecified() && operation == 1;
        assert!(
            probe || self.is_open() || self.speaks_for(ip.into()),
            "{ip} is not that node's"
        );
    }

    fn ipv4(&self) {
        let packet = &self.bytes[14..];
        assert!(packet.len() >= 20 && packet[0] >> 4 == 4);
        let header = usize::from(packet[0] & 15) * 4;
        assert!(header >= 20);
        let total = usize::from(word(packet, 2).expect("it is there"));
        let packet = if self.is_many() {
            packet
        } else {
            assert!(total >= header, "a packet shorter than its header");
            packet.get(..total).expect("a packet longer than its frame")
        };
        let source = v4(packet, 12).expect("it is there");
        assert!(
            self.is_open() || self.speaks_for(source.into()),
            "{source} is not that node's"
        );
        let fragment = word(packet, 6).expect("it is there");
        if fragment & 0x1fff != 0 {
            return;
        }
        let data = packet.get(header..).unwrap_or_default();
        let first = data.first().copied().unwrap_or_default();
        match packet[9] {
            17 if !self.is_open() => {
                let port = word(data, 2);
                assert!(!matches!(port, Some(67 | 68)), "DHCP");
            }
            1 => assert_ne!(first, 9, "a router's advertisement"),
            2 => assert!(
                first != 0x11 && !(0x30..=0x32).contains(&first),
                "a querier"
            ),
            _ => {}
        }
    }

    fn ipv6(&self) {
        let packet = &self.bytes[14..];
        assert!(packet.len() >= 40 && packet[0] >> 4 == 6);
        let payload = usize::from(word(packet, 4).expect("it is there"));
        let packet = if self.is_many() {
            packet
        } else {
            let whole = packet.get(..payload + 40);
            whole.expect("a packet longer than its frame")
        };
        let (source, destination) = (v6(packet, 8), v6(packet, 24));
        let (source, destination) = (source.expect("there"), destination.expect("there"));
        for ip in [source, destination] {
            assert!(ip.to_ipv4_mapped().is_none(), "{ip}");
        }
        // What a stack cannot read it drops: headers, or a message without a type, that go on behind the
        // packet's end.
        let (protocol, data) = match content(packet) {
            None => return,
            Some((protocol, data, later)) => (protocol, if later { &[] } else { data }),
        };
        let kind = data.first().copied().filter(|_| protocol == 58);
        let nameless = source.is_unspecified()
            && protocol == 58
            && matches!(kind, None | Some(131..=133 | 135 | 143));
        assert!(
            nameless || self.is_open() || self.speaks_for(source.into()),
            "{source} is not that node's"
        );
        if protocol == 17 && !self.is_open() {
            assert!(!matches!(word(data, 2), Some(546 | 547)), "DHCP");
        }
        match kind {
            None => {}
            Some(134) => panic!("a router's advertisement"),
            Some(137) => panic!("a redirect"),
            Some(130) => panic!("a querier"),
            Some(138..=142 | 148 | 149 | 151..=153) => panic!("a router's or a name's message"),
            Some(133) => self.names_itself(data, 8, 1),
            Some(135) => self.names_itself(data, 24, 1),
            Some(136) => {
                self.names_itself(data, 24, 2);
                // Shorter ones are none.
                if let Some(target) = v6(data, 8).filter(|_| !self.is_open()) {
                    assert!(
                        self.speaks_for(target.into()),
                        "{target} is not that node's"
                    );
                }
            }
            Some(_) => {}
        }
    }

    /// Asserts that a message of neighbour discovery names the frame's source alone.
    ///
    /// Each of its options of this kind has the source MAC address of the frame.
    fn names_itself(&self, message: &[u8], from: usize, kind: u8) {
        let mut rest = message.get(from..).unwrap_or_default();
        while let [option, units, ..] = *rest {
            let length = usize::from(units) * 8;
            if length == 0 || length > rest.len() {
                return;
            }
            if option == kind {
                assert_eq!(rest[2..8], self.bytes[6..12], "another's MAC");
            }
            rest = &rest[length..];
        }
    }
}

/// Reads the protocol and content behind extension headers, RFC 8200 section 4.
///
/// The third value is true for a fragment other than the first. `None` when the headers do not end in the
/// packet.
fn content(packet: &[u8]) -> Option<(u8, &[u8], bool)> {
    let (mut next, mut at) = (packet[6], 40);
    loop {
        let length = match next {
            0 | 43 | 60 | 135 => (usize::from(*packet.get(at + 1)?) + 1) * 8,
            51 => (usize::from(*packet.get(at + 1)?) + 2) * 4,
            44 => 8,
            _ => return Some((next, packet.get(at..)?, false)),
        };
        let later = next == 44 && word(packet, at + 2)? >> 3 != 0;
        next = *packet.get(at)?;
        at += length;
        if later {
            return Some((next, packet.get(at..)?, true));
        }
    }
}

/// Its leases; the one made of its MAC address, RFC 4291 appendix A.
fn has(pod: &Pod, ip: IpAddr) -> bool {
    let [a, b, c, d, e, f] = pod.mac.0;
    let own = Ipv6Addr::new(
        0xfe80,
        0,
        0,
        0,
        u16::from_be_bytes([a ^ 2, b]),
        u16::from_be_bytes([c, 0xff]),
        u16::from_be_bytes([0xfe, d]),
        u16::from_be_bytes([e, f]),
    );
    !ip.is_unspecified()
        && (ip == IpAddr::V4(pod.ip4)
            || ip == IpAddr::V6(pod.ip6)
            || ip == IpAddr::V6(own)
            || pod.further.contains(&ip))
}
