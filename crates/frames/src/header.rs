//! Copy the start of a frame out of the client's memory, to judge and to send it.
//!
//! The bytes that were judged are those that are sent.

use agent_common::addr::{GATEWAY_MAC, MacAddr};
use agent_common::packet::{
    ETH_P_IP, ETH_P_IPV6, Frame, IPPROTO_TCP, IPPROTO_UDP, IPV4_HLEN, IPV6_HLEN, L3, PORTS_LEN,
    Start,
};
use agent_common::policy::Family;
use memif::Packet;

/// Most bytes that are copied; a longer header is for the kernel program.
const HELD: usize = 128;
/// Bytes that are copied at first: all that the policy reads of most packets.
const SHORT: usize = 64;
/// The same in words.
const WORDS: usize = SHORT / 8;

/// The first bytes of a frame.
#[repr(align(64))]
#[derive(Debug)]
pub struct Header {
    bytes: [u8; HELD],
    /// Of them, those that are this frame's.
    held: usize,
    /// Bytes of the whole frame.
    len: usize,
}

impl Default for Header {
    /// Makes the header of no frame.
    fn default() -> Self {
        Self {
            bytes: [0; HELD],
            held: 0,
            len: 0,
        }
    }
}

impl Header {
    /// Becomes the header of a packet.
    #[inline]
    pub fn fill(&mut self, packet: &Packet<'_>) {
        self.len = usize::try_from(packet.len()).unwrap_or(usize::MAX);
        let (short, _) = self.bytes.split_at_mut(SHORT);
        self.held = packet.read(0, short);
    }

    /// Has more of the packet, if there is more. What was there stays as it is.
    #[inline]
    pub fn deepen(&mut self, packet: &Packet<'_>) -> bool {
        let (Ok(held), Some(room)) = (u32::try_from(self.held), self.bytes.get_mut(self.held..))
        else {
            return false;
        };
        let more = if self.len > self.held {
            packet.read(held, room)
        } else {
            0
        };
        self.held = self.held.saturating_add(more);
        more > 0
    }

    /// Reads the header of a frame that is at hand.
    pub fn of(frame: &[u8]) -> Self {
        let mut header = Self {
            len: frame.len(),
            ..Self::default()
        };
        header.hold(frame, SHORT);
        header
    }

    /// Has the first bytes of a frame.
    fn hold(&mut self, frame: &[u8], most: usize) {
        self.held = frame.len().min(most);
        for (to, from) in self.bytes.iter_mut().zip(frame).take(self.held) {
            *to = *from;
        }
    }

    /// As [`Self::deepen`], for a frame that is at hand.
    pub fn deepen_from(&mut self, frame: &[u8]) -> bool {
        let before = self.held;
        self.hold(frame, HELD);
        self.held > before
    }

    /// Returns the bytes that replace the start of the frame.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.held).unwrap_or_default()
    }

    /// Bytes of the whole frame.
    #[inline]
    pub fn frame_len(&self) -> usize {
        self.len
    }

    /// Rewrites a packet as the virtual gateway that routes it.
    ///
    /// The policy has read these bytes, and there is a hop left.
    #[inline]
    pub fn route(&mut self, to: MacAddr, family: Family) {
        let [start @ .., _, _] = &mut self.bytes;
        let (destination, rest) = start.split_at_mut(6);
        let (source, _) = rest.split_at_mut(6);
        destination.copy_from_slice(&to.0);
        source.copy_from_slice(&GATEWAY_MAC.0);
        match family {
            Family::V4 => {
                const TTL: usize = L3 + 8;
                const END: usize = L3 + IPV4_HLEN;
                if let Some([ttl, _, high, low, ..]) = self.bytes.get_mut(TTL..END) {
                    *ttl = ttl.saturating_sub(1);
                    // RFC 1624: the field that holds the TTL became smaller by 256, and so the
                    // checksum larger; of the two zeroes of that arithmetic it is never 0xffff.
                    let sum = u32::from(u16::from_be_bytes([*high, *low])) + 0x0100;
                    let sum = sum + u32::from(sum >= 0xffff);
                    let [_, _, new_high, new_low] = sum.to_be_bytes();
                    [*high, *low] = [new_high, new_low];
                }
            }
            Family::V6 => {
                if let Some(hops) = self.bytes.get_mut(L3 + 7) {
                    *hops = hops.saturating_sub(1);
                }
            }
        }
    }
}

/// Fields of a TCP or UDP frame that the policy reads, as the key of its decision.
///
/// It has an IP header without options or extensions. Frames with the same flow have the same way.
///
/// Fields that differ between packets of a connection are left out: identification and checksum of
/// IPv4, the source port, and all after the ports. The tests hold the policy to that.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    len: usize,
    kept: &'static [u64; WORDS],
    words: [u64; WORDS],
}

impl Header {
    /// The flow of a frame that is of one.
    #[inline]
    pub fn flow(&self) -> Option<Flow> {
        const KEPT_V4: [u64; WORDS] = kept(&[(0, 18), (20, 24), (26, 34), (36, 38)]);
        const KEPT_V6: [u64; WORDS] = kept(&[(0, 54), (56, 58)]);
        let [
            ..,
            kind_high,
            kind_low,
            version,
            _,
            _,
            _,
            _,
            _,
            next_header,
            _,
            _,
            protocol,
        ] = self.bytes.first_chunk::<{ L3 + 10 }>()?;
        let (kept, protocol, end) = match (u16::from_be_bytes([*kind_high, *kind_low]), version) {
            (ETH_P_IP, 0x45) => (&KEPT_V4, protocol, L3 + IPV4_HLEN + PORTS_LEN),
            (ETH_P_IPV6, _) => (&KEPT_V6, next_header, L3 + IPV6_HLEN + PORTS_LEN),
            _ => return None,
        };
        if !matches!(*protocol, IPPROTO_TCP | IPPROTO_UDP) || self.held < end {
            return None;
        }
        let mut words = [0; WORDS];
        for (to, word) in words.iter_mut().zip(self.words()) {
            *to = word;
        }
        Some(Flow {
            len: self.len,
            kept,
            words,
        })
    }

    /// Returns whether the frame is of this flow.
    ///
    /// The fields that make it a TCP or UDP frame are compared too.
    #[inline]
    pub fn is_of(&self, flow: &Flow) -> bool {
        let both = self.words().zip(flow.words).zip(flow.kept);
        let differs = both.fold(0, |all, ((a, b), kept)| all | ((a ^ b) & kept));
        self.len == flow.len && differs == 0
    }

    /// Returns whether a frame of this flow is in the middle of its connection.
    ///
    /// It has the same source port, and begins and ends nothing. Of TCP over IPv6 nothing is known: its flags are
    /// behind the bytes that are compared.
    #[inline]
    pub fn goes_on(&self, flow: &Flow) -> bool {
        const PORT_V4: [u64; WORDS] = kept(&[(34, 36)]);
        const PORT_V6: [u64; WORDS] = kept(&[(54, 56)]);
        const FLAGS: usize = L3 + IPV4_HLEN + 13;
        /// FIN, SYN and RST (RFC 9293, section 3.1).
        const ENDS: u8 = 0x07;
        let [is_v4, is_tcp] = self.form();
        let port = if is_v4 { &PORT_V4 } else { &PORT_V6 };
        let both = self.words().zip(flow.words).zip(port);
        let differs = both.fold(0, |all, ((a, b), port)| all | ((a ^ b) & port));
        let is_middle = !is_tcp || is_v4 && self.bytes.get(FLAGS).is_some_and(|it| it & ENDS == 0);
        differs == 0 && is_middle
    }

    /// Of a frame with a flow: whether it is of IPv4, and of TCP.
    #[inline]
    fn form(&self) -> [bool; 2] {
        let is_v4 = self.bytes.get(L3).is_some_and(|it| it >> 4 == 4);
        let protocol = if is_v4 { L3 + 9 } else { L3 + 6 };
        [is_v4, self.bytes.get(protocol) == Some(&IPPROTO_TCP)]
    }

    /// The bytes that are copied at first.
    #[inline]
    fn words(&self) -> impl Iterator<Item = u64> {
        let (words, _) = self.bytes.as_chunks();
        words
            .iter()
            .take(WORDS)
            .map(|word| u64::from_ne_bytes(*word))
    }
}

/// Masks of these bytes, in words.
#[expect(
    clippy::indexing_slicing,
    reason = "evaluated when it is compiled: a place outside is an error then"
)]
const fn kept(ranges: &[(usize, usize)]) -> [u64; WORDS] {
    let mut words = [0; WORDS];
    let mut rest = ranges;
    while let [(begin, end), behind @ ..] = rest {
        let mut at = *begin;
        while at < *end {
            let mut byte = [0; 8];
            byte[at % 8] = 0xff;
            words[at / 8] |= u64::from_ne_bytes(byte);
            at += 1;
        }
        rest = behind;
    }
    words
}

/// A VLAN tag is in the bytes, where the policy sees it as a type.
impl Frame for Header {
    #[inline(always)]
    fn length(&self) -> usize {
        self.len
    }

    #[inline(always)]
    fn segment_length(&self) -> usize {
        self.len
    }

    #[inline(always)]
    fn has_vlan_tag(&self) -> bool {
        false
    }

    #[inline(always)]
    fn load<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        let end = offset.checked_add(N)?;
        self.bytes().get(offset..end)?.try_into().ok()
    }

    #[inline(always)]
    fn start(&self) -> Start {
        Start::of(self.bytes())
    }
}
