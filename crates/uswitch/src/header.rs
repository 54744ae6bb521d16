//! The start of a frame, copied out of the client's memory: what is decided about is what is sent.

use agent_common::addr::{GATEWAY_MAC, MacAddr};
use agent_common::packet::{ETH_HLEN, Frame, IPV4_HLEN, IPV6_HLEN, L3, START_LENGTHS, Start};
use agent_common::policy::Family;
use memif::Packet;

/// Bytes that are copied at most. A header that goes on behind them is for the kernel program.
const HELD: usize = 128;
/// Bytes that are copied of a short frame: enough for all that the policy reads of most packets.
const SHORT: usize = 64;
const START_MAX: usize = ETH_HLEN + IPV6_HLEN + 4;

/// The first bytes of a frame.
#[repr(align(64))]
#[derive(Debug)]
pub(crate) struct Header {
    bytes: [u8; HELD],
    /// Of them, those that are this frame's.
    held: usize,
    /// Bytes of the whole frame.
    len: usize,
}

impl Header {
    /// Of no frame.
    pub(crate) fn new() -> Self {
        Self {
            bytes: [0; HELD],
            held: 0,
            len: 0,
        }
    }

    /// Becomes the header of a packet.
    #[inline]
    pub(crate) fn fill(&mut self, packet: &Packet<'_>) {
        self.len = usize::try_from(packet.len()).unwrap_or(usize::MAX);
        let wanted = if self.len <= SHORT { SHORT } else { HELD };
        let room = self.bytes.get_mut(..wanted).unwrap_or_default();
        self.held = packet.read(0, room);
    }

    /// Becomes the header of a frame of ours.
    #[cfg(test)]
    pub(crate) fn of(frame: &[u8]) -> Self {
        let mut header = Self::new();
        header.len = frame.len();
        header.held = frame.len().min(HELD);
        header.bytes[..header.held].copy_from_slice(&frame[..header.held]);
        header
    }

    /// What is sent instead of the frame's first bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.held).unwrap_or_default()
    }

    /// Bytes of the whole frame.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// What the virtual gateway does to a packet that it routes. The policy has read these bytes, and
    /// there is a hop left.
    #[inline]
    pub(crate) fn route(&mut self, to: MacAddr, family: Family) {
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
        let (start, _) = self.bytes.split_at(START_MAX);
        if self.held >= START_MAX
            && let Ok(bytes) = start.try_into()
        {
            return Start {
                bytes,
                length: START_MAX,
            };
        }
        let length = START_LENGTHS.into_iter().find(|end| *end <= self.held);
        let mut short = Start::EMPTY;
        short.length = length.unwrap_or(0);
        for (to, from) in short.bytes.iter_mut().zip(start).take(short.length) {
            *to = *from;
        }
        short
    }
}
