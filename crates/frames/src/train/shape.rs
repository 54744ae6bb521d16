//! Read the headers of a frame, and tell which frames the kernel makes of a train.

use agent_common::packet::{
    ETH_HLEN, ETH_P_IP, ETH_P_IPV6, IPPROTO_TCP, IPPROTO_UDP, IPV4_HLEN, IPV6_HLEN, L3, UDP_HLEN,
};

use super::sum;

/// Bytes of the longest headers: Ethernet, IPv6, and TCP with all options.
pub(super) const HEAD: usize = ETH_HLEN + IPV6_HLEN + 60;

/// `VIRTIO_NET_HDR_GSO_TCPV4`, `_TCPV6` and `_UDP_L4` (linux/virtio_net.h).
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;

/// Flags of TCP (RFC 9293) that frames of a train have.
const ACK: u8 = 0x10;
/// The last one may have it.
const PSH: u8 = 0x08;
/// Where the flags are in the header of TCP, and the checksum.
const FLAGS: usize = 13;
const TCP_CHECKSUM: usize = 16;
const UDP_CHECKSUM: usize = 6;
/// Bytes of the header of TCP without options.
const TCP_HLEN: usize = 20;
/// The only flag of IPv4 that a train may have: "don't fragment".
const DF: u16 = 0x4000;

/// Protocol of a train.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// UDP.
    Udp,
    /// TCP.
    Tcp,
}

/// Kinds of trains that a device takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kinds {
    /// Trains of UDP.
    pub udp: bool,
    /// Trains of TCP.
    pub tcp: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

/// Headers of a train's frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) kind: Kind,
    family: Family,
    /// Where the transport's header begins.
    pub(super) transport: usize,
    /// Where the payload begins.
    pub(super) payload: usize,
    /// Bytes of payload of each frame but the last, which may have less.
    pub(super) size: usize,
    /// Another one may join.
    open: bool,
}

impl Kinds {
    pub(super) fn has(self, kind: Kind) -> bool {
        match kind {
            Kind::Udp => self.udp,
            Kind::Tcp => self.tcp,
        }
    }
}

impl Kind {
    /// Where the checksum is in its header.
    pub(super) fn checksum(self) -> usize {
        match self {
            Self::Udp => UDP_CHECKSUM,
            Self::Tcp => TCP_CHECKSUM,
        }
    }

    fn protocol(self) -> u8 {
        match self {
            Self::Udp => IPPROTO_UDP,
            Self::Tcp => IPPROTO_TCP,
        }
    }
}

/// `N` bytes there.
#[inline]
fn bytes<const N: usize>(of: &[u8], at: usize) -> Option<[u8; N]> {
    of.get(at..)?.first_chunk().copied()
}

/// A number there, in wire order.
#[inline]
fn word(of: &[u8], at: usize) -> Option<usize> {
    bytes(of, at).map(|bytes| usize::from(u16::from_be_bytes(bytes)))
}

/// Writes bytes there, where there are as many.
#[inline]
fn put<const N: usize>(to: &mut [u8], at: usize, bytes: [u8; N]) {
    if let Some(place) = to.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
        *place = bytes;
    }
}

/// A length as a field; trains are shorter than what it can say.
#[inline]
fn length(of: usize) -> [u8; 2] {
    u16::try_from(of).unwrap_or(u16::MAX).to_be_bytes()
}

impl Shape {
    /// Reads the shape of a frame of this length, if it may be in a train.
    ///
    /// The head has at least its headers. Its transport's checksum may still be wrong.
    pub(super) fn of(head: &[u8], len: usize, mtu: u16) -> Option<Self> {
        let packet = len.checked_sub(ETH_HLEN)?;
        let [group, ..] = bytes::<ETH_HLEN>(head, 0)?;
        if packet > usize::from(mtu) || group & 1 != 0 {
            return None;
        }
        let (family, protocol, transport) = match u16::from_be_bytes(bytes(head, ETH_HLEN - 2)?) {
            ETH_P_IP => {
                let header = bytes::<IPV4_HLEN>(head, L3)?;
                let [first, ..] = header;
                let flags = u16::from_be_bytes(bytes(&header, 6)?);
                let [hops, protocol] = bytes(&header, 8)?;
                let is_fit = first == 0x45 && flags & !DF == 0 && hops > 1;
                if !is_fit || word(&header, 2)? != packet || !is_canonical(&header) {
                    return None;
                }
                (Family::V4, protocol, L3 + IPV4_HLEN)
            }
            ETH_P_IPV6 => {
                let header = bytes::<IPV6_HLEN>(head, L3)?;
                let [first, ..] = header;
                let [protocol, hops] = bytes(&header, 6)?;
                let payload = word(&header, 4)?.checked_add(IPV6_HLEN)?;
                if first >> 4 != 6 || payload != packet || hops <= 1 {
                    return None;
                }
                (Family::V6, protocol, L3 + IPV6_HLEN)
            }
            _ => return None,
        };
        let carried = len.checked_sub(transport)?;
        let (kind, header, open) = match protocol {
            IPPROTO_UDP => {
                if word(head, transport.checked_add(4)?)? != carried {
                    return None;
                }
                (Kind::Udp, UDP_HLEN, true)
            }
            IPPROTO_TCP => {
                let header = bytes::<TCP_HLEN>(head, transport)?;
                let [offset, flags] = bytes(&header, FLAGS - 1)?;
                let urgent = word(&header, TCP_HLEN - 2)?;
                // Flags that are neither are for one segment, or in it alone.
                if offset & 0x0f != 0 || flags & !PSH != ACK || urgent != 0 {
                    return None;
                }
                (
                    Kind::Tcp,
                    usize::from(offset >> 4).checked_mul(4)?,
                    flags == ACK,
                )
            }
            _ => return None,
        };
        let payload = transport.checked_add(header)?;
        let size = len.checked_sub(payload).filter(|size| *size > 0)?;
        let is_whole = head.len() >= payload && (kind == Kind::Udp || header >= TCP_HLEN);
        is_whole.then_some(Self {
            kind,
            family,
            transport,
            payload,
            size,
            open,
        })
    }

    /// No other may join.
    pub(super) fn close(&mut self) {
        self.open = false;
    }

    /// Whether a frame may be the next one, and whether it is the last.
    ///
    /// It has this length and these headers. There are `nth` before it, with `sent` bytes of payload, and these
    /// headers of the first. The next one's checksum may still be wrong.
    #[inline]
    pub(super) fn next(
        &self,
        first: &[u8],
        head: &[u8],
        len: usize,
        nth: usize,
        sent: usize,
    ) -> Option<bool> {
        let next = Self::of(head, len, u16::MAX).filter(|_| self.open)?;
        let alike = Self {
            size: self.size,
            open: self.open,
            ..next
        };
        if alike != *self || next.size > self.size || !self.is_same(first, head, nth, sent)? {
            return None;
        }
        Some(next.size < self.size || !next.open)
    }

    /// Whether all that the kernel copies is the same.
    ///
    /// And all that it counts is counted.
    #[inline]
    fn is_same(&self, first: &[u8], head: &[u8], nth: usize, sent: usize) -> Option<bool> {
        let is = |from: usize, to: usize| first.get(from..to) == head.get(from..to);
        let ports = self.transport.checked_add(4)?;
        let rest = match self.family {
            // Identification, which counts frames, is between them, and so are checksum and length.
            Family::V4 => {
                let id = word(first, L3 + 4)?.wrapping_add(nth) & 0xffff;
                is(0, L3 + 2)
                    && word(head, L3 + 4)? == id
                    && is(L3 + 6, L3 + 10)
                    && is(L3 + 12, ports)
            }
            Family::V6 => is(0, L3 + 4) && is(L3 + 6, ports),
        };
        let transport = match self.kind {
            Kind::Udp => true,
            Kind::Tcp => {
                let at = |offset: usize| self.transport.saturating_add(offset);
                let number = u32::from_be_bytes(bytes(first, at(4))?);
                let number = number.wrapping_add(u32::try_from(sent).ok()?);
                // Flags were judged; the checksum is between the window and the rest.
                u32::from_be_bytes(bytes(head, at(4))?) == number
                    && is(at(8), at(FLAGS))
                    && is(at(14), at(TCP_CHECKSUM))
                    && is(at(18), self.payload)
            }
        };
        Some(rest && transport)
    }

    /// Sum of what the checksum counts of IP's header, for a transport of this length.
    #[inline]
    fn pseudo(&self, head: &[u8], carried: usize) -> u64 {
        let addresses = match self.family {
            Family::V4 => head.get(L3 + 12..L3 + 20),
            Family::V6 => head.get(L3 + 8..L3 + 40),
        };
        let carried = u16::try_from(carried).unwrap_or(u16::MAX);
        sum::of(addresses.unwrap_or_default())
            .wrapping_add(sum::number(self.kind.protocol().into()))
            .wrapping_add(sum::number(carried))
    }

    /// Whether the transport's checksum is there, and is what the kernel would write.
    #[inline]
    pub(super) fn is_whole(&self, head: &[u8], payload: &[u8]) -> bool {
        let (_, transport) = head.split_at_checked(self.transport).unwrap_or_default();
        let carried = transport.len().saturating_add(payload.len());
        let Some(found) = bytes::<2>(transport, self.kind.checksum()) else {
            return false;
        };
        let sum = self
            .pseudo(head, carried)
            .wrapping_add(sum::of(transport))
            .wrapping_add(sum::of(payload))
            .wrapping_sub(u64::from(u16::from_ne_bytes(found)));
        match (sum::field(sum), self.kind) {
            // RFC 768: none at all would look like this.
            ([0, 0], Kind::Udp) => found == [0xff, 0xff],
            // The kernel writes either of the two zeroes.
            ([0, 0], Kind::Tcp) => false,
            (right, _) => found == right,
        }
    }

    /// Makes the headers of the first frame those of the train.
    ///
    /// It ends with a frame of the other headers.
    pub(super) fn lead(&self, train: &mut [u8], last: &[u8]) {
        let packet = train.len().saturating_sub(ETH_HLEN);
        let carried = train.len().saturating_sub(self.transport);
        match self.family {
            Family::V4 => {
                put(train, L3 + 2, length(packet));
                put(train, L3 + 10, [0, 0]);
                let header = train.get(L3..L3 + IPV4_HLEN).unwrap_or_default();
                let checksum = sum::field(sum::of(header));
                put(train, L3 + 10, checksum);
            }
            Family::V6 => put(train, L3 + 4, length(carried)),
        }
        match self.kind {
            Kind::Udp => put(train, self.transport.saturating_add(4), length(carried)),
            Kind::Tcp => {
                let flags = self.transport.saturating_add(FLAGS);
                if let Some(flag) = last.get(flags) {
                    put(train, flags, [*flag]);
                }
            }
        }
        // What is left to be added is all behind IP's header.
        let begun = sum::fold(self.pseudo(train, carried));
        let place = self.transport.saturating_add(self.kind.checksum());
        put(train, place, begun);
    }

    /// Number of the kind among those of the kernel.
    pub(super) fn gso_type(&self) -> u8 {
        match (self.kind, self.family) {
            (Kind::Udp, _) => GSO_UDP_L4,
            (Kind::Tcp, Family::V4) => GSO_TCPV4,
            (Kind::Tcp, Family::V6) => GSO_TCPV6,
        }
    }
}

/// Whether an IPv4 header has the checksum that the kernel would write.
#[inline]
fn is_canonical(header: &[u8; IPV4_HLEN]) -> bool {
    let Some(found) = bytes::<2>(header, 10) else {
        return false;
    };
    let sum = sum::of(header).wrapping_sub(u64::from(u16::from_ne_bytes(found)));
    sum::field(sum) == found
}
