//! ARP (RFC 826), as hosts ask for IPv4 addresses on Ethernet.

use crate::addr::MacAddr;
use crate::drop::DropReason;
use crate::packet::{ARP_FRAME, ETH_HLEN, Frame, L3};

/// The fields of a packet by which others may be deceived.
pub(crate) struct Arp {
    /// A question; else an answer.
    pub(crate) is_request: bool,
    /// Sender's MAC address.
    pub(crate) mac: MacAddr,
    /// Sender's IPv4 address.
    pub(crate) sender: [u8; 4],
    /// The IPv4 address that is asked for.
    pub(crate) target: [u8; 4],
}

impl Arp {
    /// Reads the packet of a frame.
    ///
    /// # Errors
    /// `Truncated`; `Malformed` for other addresses than IPv4's on Ethernet, and other operations.
    #[inline(always)]
    pub(crate) fn read<F: Frame + ?Sized>(frame: &F) -> Result<Self, DropReason> {
        let Some(packet) = frame.load::<{ ARP_FRAME - ETH_HLEN }>(L3) else {
            return Err(DropReason::Truncated);
        };
        let [
            h0,
            h1,
            p0,
            p1,
            hlen,
            plen,
            o0,
            o1,
            a0,
            a1,
            a2,
            a3,
            a4,
            a5,
            s0,
            s1,
            s2,
            s3,
            ..,
        ] = packet;
        let [.., t0, t1, t2, t3] = packet;
        if [h0, h1, p0, p1, hlen, plen, o0] != [0, 1, 0x08, 0x00, 6, 4, 0] || !matches!(o1, 1 | 2) {
            return Err(DropReason::Malformed);
        }
        Ok(Self {
            is_request: o1 == 1,
            mac: MacAddr([a0, a1, a2, a3, a4, a5]),
            sender: [s0, s1, s2, s3],
            target: [t0, t1, t2, t3],
        })
    }

    /// True for a question in the name of no address (RFC 5227 section 2.1.1).
    #[inline(always)]
    pub(crate) fn is_probe(&self) -> bool {
        self.is_request && self.sender == [0; 4]
    }
}
