//! Read a frame: offsets, constants, and the view that both engines implement.

use crate::addr::Ip16;
use crate::drop::DropReason;
use crate::partial::Partial;

/// EtherType of IPv4.
pub const ETH_P_IP: u16 = 0x0800;
/// EtherType of ARP.
pub const ETH_P_ARP: u16 = 0x0806;
/// EtherType of IPv6.
pub const ETH_P_IPV6: u16 = 0x86dd;
/// EtherType of MAC control (IEEE 802.3 clause 31).
///
/// Pause and its kind go between the two ends of a link.
pub const ETH_P_MAC_CONTROL: u16 = 0x8808;
/// Smallest number that is an EtherType; below it is an IEEE 802.3 length.
pub const ETH_P_802_3_MIN: u16 = 0x0600;
/// Length of an untagged Ethernet header.
pub const ETH_HLEN: usize = 14;
/// Length of an IPv4 header without options.
pub const IPV4_HLEN: usize = 20;
/// Length of the fixed IPv6 header.
pub const IPV6_HLEN: usize = 40;
/// Where the L3 header starts.
pub const L3: usize = ETH_HLEN;
/// Length of an Ethernet ARP packet for IPv4, headers included (RFC 826).
pub const ARP_FRAME: usize = ETH_HLEN + 28;

/// Length of a UDP header (RFC 768).
pub const UDP_HLEN: usize = 8;
/// Length of the header of an echo request, ICMP and ICMPv6.
pub const ICMP_HLEN: usize = 8;

/// ICMP, RFC 792.
pub const IPPROTO_ICMP: u8 = 1;
/// IGMP, RFC 3376.
pub const IPPROTO_IGMP: u8 = 2;
/// TCP, RFC 9293.
pub const IPPROTO_TCP: u8 = 6;
/// UDP, RFC 768.
pub const IPPROTO_UDP: u8 = 17;
/// ICMPv6, RFC 4443.
pub const IPPROTO_ICMPV6: u8 = 58;
/// IPv6 hop-by-hop options, RFC 8200 section 4.3.
pub const IPPROTO_HOPOPTS: u8 = 0;
/// IPv6 routing header, RFC 8200 section 4.4.
pub const IPPROTO_ROUTING: u8 = 43;
/// IPv6 fragment header, RFC 8200 section 4.5.
pub const IPPROTO_FRAGMENT: u8 = 44;
/// IPv6 authentication header, RFC 4302.
pub const IPPROTO_AH: u8 = 51;
/// IPv6 destination options, RFC 8200 section 4.6.
pub const IPPROTO_DSTOPTS: u8 = 60;
/// IPv6 mobility header, RFC 6275.
pub const IPPROTO_MOBILITY: u8 = 135;

/// Extension headers a packet may have before it is refused.
pub const IPV6_EXT_MAX: usize = 8;

/// Returns the IP protocol that the fixed headers name, 0 for none.
///
/// Of an IPv6 packet with extension headers it is the first of these. 0 stands for a frame that is neither
/// IPv4 nor IPv6, or too short.
#[inline(always)]
pub fn first_protocol<F: Frame + ?Sized>(frame: &F) -> u8 {
    // The EtherType, and as far as the protocol of IPv4.
    let Some([t0, t1, _, _, _, _, _, _, next_header, _, _, protocol]) =
        frame.load::<12>(ETH_HLEN - 2)
    else {
        return 0;
    };
    match u16::from_be_bytes([t0, t1]) {
        ETH_P_IP => protocol,
        ETH_P_IPV6 => next_header,
        _ => 0,
    }
}

/// Source and destination of an IPv4 header.
#[inline(always)]
pub const fn v4_addresses(header: &[u8; IPV4_HLEN]) -> (Ip16, Ip16) {
    let [.., s0, s1, s2, s3, d0, d1, d2, d3] = *header;
    (
        Ip16::from_v4([s0, s1, s2, s3]),
        Ip16::from_v4([d0, d1, d2, d3]),
    )
}

/// Source and destination of the IP packet in a frame of this EtherType.
///
/// # Errors
/// `Truncated`; `Malformed` for an IPv6 address that is an IPv4 one in the maps; `EtherType` for what is
/// neither.
#[inline(always)]
pub fn ip_addresses(start: &Start, ether_type: u16) -> Result<(Ip16, Ip16), DropReason> {
    match ether_type {
        ETH_P_IP if start.has::<{ L3 + IPV4_HLEN }>() => Ok((
            Ip16::from_v4(start.field::<{ L3 + 12 }, 4>()),
            Ip16::from_v4(start.field::<{ L3 + 16 }, 4>()),
        )),
        ETH_P_IPV6 if start.has::<{ L3 + IPV6_HLEN }>() => {
            let source = Ip16(start.field::<{ L3 + 8 }, 16>());
            let destination = Ip16(start.field::<{ L3 + 24 }, 16>());
            if source.is_mapped_v4() || destination.is_mapped_v4() {
                return Err(DropReason::Malformed);
            }
            Ok((source, destination))
        }
        ETH_P_IP | ETH_P_IPV6 => Err(DropReason::Truncated),
        _ => Err(DropReason::EtherType),
    }
}

/// A frame as an engine sees it. Offsets count from the destination MAC address.
pub trait Frame {
    /// Length of the frame in bytes, all segments of a GSO packet together.
    fn length(&self) -> usize;

    /// Length of the largest packet that this frame becomes on a wire, bytes.
    ///
    /// The Ethernet header is included.
    fn segment_length(&self) -> usize;

    /// True when a VLAN tag was taken off the frame and is kept next to it.
    fn has_vlan_tag(&self) -> bool;

    /// The id of that tag when it is an 802.1Q one, else 0.
    #[inline(always)]
    fn vlan_id(&self) -> u16 {
        0
    }

    /// The checksum that is still to be written into the frame.
    #[inline(always)]
    fn partial(&self) -> Partial {
        Partial::NONE
    }

    /// `N` bytes at `offset`, or `None` when the frame ends before.
    fn load<const N: usize>(&self, offset: usize) -> Option<[u8; N]>;

    /// Reads the first bytes of the frame, in one go.
    ///
    /// In the kernel every [`load`](Self::load) costs as much as a look into a map.
    fn start(&self) -> Start;

    /// The same, written where it is kept.
    #[inline(always)]
    fn read_start(&self, into: &mut Start) {
        *into = self.start();
    }
}

/// Lengths in bytes that [`Frame::start`] tries to read, longest first.
///
/// Each ends a part that the policy asks for: an IPv6 header with the ports behind it and without, an IPv4 header likewise, and the
/// Ethernet header.
pub const START_LENGTHS: [u16; 5] = [
    short(START_MAX),
    short(ETH_HLEN + IPV6_HLEN),
    short(ETH_HLEN + IPV4_HLEN + PORTS_LEN),
    short(ETH_HLEN + IPV4_HLEN),
    short(ETH_HLEN),
];
/// The first of them.
pub const START_MAX: usize = ETH_HLEN + IPV6_HLEN + PORTS_LEN;
/// Length of the two port numbers that UDP and TCP start with.
pub const PORTS_LEN: usize = 4;

/// The first bytes of a frame.
///
/// Aligned for the reason given at [`MacAddr`](crate::addr::MacAddr), and so that the addresses of IP headers,
/// which begin at byte 14, can be read as words.
#[repr(C, align(8))]
#[derive(Debug, Clone, Copy)]
pub struct Start {
    /// One of [`START_LENGTHS`], or 0 for a frame without an Ethernet header.
    pub length: u16,
    /// Zero from `length` on.
    pub bytes: [u8; START_MAX],
}

const _: () = assert!((core::mem::offset_of!(Start, bytes) + L3).is_multiple_of(8));

impl Start {
    /// Of a frame without an Ethernet header.
    pub const EMPTY: Self = Self {
        length: 0,
        bytes: [0; START_MAX],
    };

    /// Of these bytes of a frame, all or more than are wanted.
    #[inline(always)]
    pub fn of(frame: &[u8]) -> Self {
        let mut start = Self::EMPTY;
        if let Some(bytes) = frame.first_chunk() {
            (start.bytes, start.length) = (*bytes, short(START_MAX));
            return start;
        }
        let fits = |end: &u16| usize::from(*end) <= frame.len();
        start.length = START_LENGTHS.into_iter().find(fits).unwrap_or(0);
        for (to, from) in start.bytes.iter_mut().zip(frame).take(start.length.into()) {
            *to = *from;
        }
        start
    }

    /// Bytes `AT` to `AT + N`, or `None` when the frame ends before.
    #[inline(always)]
    pub fn get<const AT: usize, const N: usize>(&self) -> Option<[u8; N]> {
        const { assert!(is_start_length(AT + N), "not an end that is tried") };
        if (self.length as usize) < AT + N {
            return None;
        }
        self.bytes.get(AT..AT + N)?.try_into().ok()
    }

    /// True when the frame has its first `END` bytes.
    #[inline(always)]
    pub const fn has<const END: usize>(&self) -> bool {
        const { assert!(is_start_length(END), "not an end that is tried") };
        self.length as usize >= END
    }

    /// Returns bytes `AT` to `AT + N`, a field of a header that the frame has.
    ///
    /// [`has`](Self::has) tells whether it has. A program keeps each byte of a larger part in a place of its own
    /// on the stack.
    #[inline(always)]
    pub fn field<const AT: usize, const N: usize>(&self) -> [u8; N] {
        const { assert!(AT + N <= START_MAX, "no byte of a start") };
        let mut field = [0; N];
        if let Some(bytes) = self.bytes.get(AT..AT + N) {
            field.copy_from_slice(bytes);
        }
        field
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "lengths of headers, of which the longest has 58 bytes"
)]
const fn short(length: usize) -> u16 {
    length as u16
}

const fn is_start_length(length: usize) -> bool {
    let [a, b, c, d, e] = START_LENGTHS;
    let length = short(length);
    length == a || length == b || length == c || length == d || length == e
}

/// A frame in memory, complete and untagged.
impl Frame for [u8] {
    fn length(&self) -> usize {
        self.len()
    }

    fn segment_length(&self) -> usize {
        self.len()
    }

    fn has_vlan_tag(&self) -> bool {
        false
    }

    fn load<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        let end = offset.checked_add(N)?;
        self.get(offset..end)?.try_into().ok()
    }

    fn start(&self) -> Start {
        Start::of(self)
    }
}

/// True for the EtherTypes of VLAN tags.
///
/// 802.1Q, 802.1ad and their older private forms.
#[inline(always)]
pub const fn is_vlan_ether_type(ether_type: u16) -> bool {
    matches!(ether_type, 0x8100 | 0x88a8 | 0x9100 | 0x9200 | 0x9300)
}

/// Result of the walk over IPv6 extension headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ipv6Payload {
    /// The first header that is not an extension header.
    pub protocol: u8,
    /// Where it starts in the frame.
    pub offset: usize,
    /// It is (part of) a fragment.
    pub fragment: bool,
    /// It is a fragment other than the first, so `protocol` is the sender's claim only.
    pub later_fragment: bool,
}

/// Finds the payload of an IPv6 packet whose fixed header ends in `next_header`.
///
/// `None` when the chain is longer than [`IPV6_EXT_MAX`] or leaves the frame, which in the first
/// fragment is an error too (RFC 7112).
#[inline(always)]
pub fn ipv6_payload<F: Frame + ?Sized>(frame: &F, next_header: u8) -> Option<Ipv6Payload> {
    let mut found = Ipv6Payload {
        protocol: next_header,
        offset: L3 + IPV6_HLEN,
        fragment: false,
        later_fragment: false,
    };
    if !is_extension(next_header) {
        return Some(found);
    }
    for _ in 0..IPV6_EXT_MAX {
        let [next, length, high, low] = frame.load::<4>(found.offset)?;
        let size = match found.protocol {
            IPPROTO_FRAGMENT => {
                found.fragment = true;
                if u16::from_be_bytes([high, low]) & 0xfff8 != 0 {
                    found.later_fragment = true;
                }
                8
            }
            IPPROTO_AH => (length as usize + 2) * 4,
            _ => (length as usize + 1) * 8,
        };
        found.protocol = next;
        found.offset += size;
        if found.offset > frame.length() {
            return None;
        }
        if found.later_fragment || !is_extension(next) {
            return Some(found);
        }
    }
    None
}

#[inline(always)]
const fn is_extension(header: u8) -> bool {
    matches!(
        header,
        IPPROTO_HOPOPTS
            | IPPROTO_ROUTING
            | IPPROTO_FRAGMENT
            | IPPROTO_AH
            | IPPROTO_DSTOPTS
            | IPPROTO_MOBILITY
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(chain: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; L3 + IPV6_HLEN];
        bytes.extend_from_slice(chain);
        bytes
    }

    #[test]
    fn no_extension_header_needs_no_load() {
        let found = ipv6_payload(packet(&[]).as_slice(), 6).unwrap();
        assert_eq!((found.protocol, found.offset), (6, L3 + IPV6_HLEN));
    }

    #[test]
    fn the_chain_is_followed_to_the_payload() {
        let mut chain = vec![IPPROTO_DSTOPTS, 1, 0, 0];
        chain.resize(16, 0);
        chain.extend([58, 0, 0, 0, 0, 0, 0, 0]);
        let found = ipv6_payload(packet(&chain).as_slice(), IPPROTO_HOPOPTS).unwrap();
        assert_eq!((found.protocol, found.offset), (58, L3 + IPV6_HLEN + 24));
    }

    #[test]
    fn a_later_fragment_ends_the_walk() {
        let chain = [IPPROTO_HOPOPTS, 0, 0x01, 0x00, 0, 0, 0, 1];
        let found = ipv6_payload(packet(&chain).as_slice(), IPPROTO_FRAGMENT).unwrap();
        assert!(found.later_fragment && found.fragment);
    }

    #[test]
    fn a_first_fragment_must_hold_the_whole_chain_rfc_7112() {
        let chain = [IPPROTO_HOPOPTS, 0, 0x00, 0x01, 0, 0, 0, 1];
        assert_eq!(
            ipv6_payload(packet(&chain).as_slice(), IPPROTO_FRAGMENT),
            None
        );
    }

    #[test]
    fn nine_extension_headers_are_refused_and_eight_pass() {
        let link = [IPPROTO_DSTOPTS, 0, 0, 0, 0, 0, 0, 0];
        let last = [6, 0, 0, 0, 0, 0, 0, 0];
        let chain = |n: usize| packet(&[link.repeat(n - 1), last.to_vec()].concat());
        assert!(ipv6_payload(chain(8).as_slice(), IPPROTO_DSTOPTS).is_some());
        assert!(ipv6_payload(chain(9).as_slice(), IPPROTO_DSTOPTS).is_none());
    }
}
