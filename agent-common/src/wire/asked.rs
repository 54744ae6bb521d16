//! Answer questions from beyond an uplink for the address of a member of this node.
//!
//! On an L3 network the member's node answers for it, and no other one.

use super::{Ethernet, IncomingAct, Judgement, is_local};
use crate::addr::{GATEWAY_MAC, Ip16, MacAddr};
use crate::arp::Arp;
use crate::drop::DropReason;
use crate::endpoint::{ENDPOINT_GATEWAY, ENDPOINT_OUTSIDE, ENDPOINT_REMOTE, Endpoint};
use crate::nd;
use crate::network::{NETWORK_NEXT_HOP, Network};
use crate::packet::{ETH_HLEN, ETH_P_ARP, ETH_P_IPV6, Frame, IPPROTO_ICMPV6, IPV6_HLEN, L3, Start};
use crate::policy::Tables;

/// ICMPv6 type of neighbour solicitations (RFC 4861 section 4.3).
const SOLICITATION: u8 = 135;
/// Where the message of a solicitation begins: nothing is in front of it.
const MESSAGE: usize = L3 + IPV6_HLEN;

/// A question as it stands in the frame.
pub(super) struct Asked {
    is_arp: bool,
    sender: Ip16,
    /// As the message says; of a solicitation an option may say it.
    sender_mac: Option<MacAddr>,
    target: Ip16,
}

/// Returns the address that a frame asks for by ARP or neighbour discovery.
///
/// `None` for a frame that is no question.
#[inline(always)]
pub fn asked_for<F: Frame + ?Sized>(frame: &F) -> Option<Ip16> {
    let start = frame.start();
    let [.., t0, t1] = start.get::<0, ETH_HLEN>()?;
    let asked = Asked::read(frame, &start, u16::from_be_bytes([t0, t1]))?;
    Some(asked.target)
}

impl Asked {
    #[inline(always)]
    pub(super) fn read<F: Frame + ?Sized>(
        frame: &F,
        start: &Start,
        ether_type: u16,
    ) -> Option<Self> {
        match ether_type {
            ETH_P_ARP => Self::by_arp(frame),
            ETH_P_IPV6 => Self::by_nd(frame, start),
            _ => None,
        }
    }

    #[inline(always)]
    fn by_arp<F: Frame + ?Sized>(frame: &F) -> Option<Self> {
        let arp = Arp::read(frame).ok().filter(|arp| arp.is_request)?;
        Some(Self {
            is_arp: true,
            sender: Ip16::from_v4(arp.sender),
            sender_mac: Some(arp.mac),
            target: Ip16::from_v4(arp.target),
        })
    }

    #[inline(always)]
    fn by_nd<F: Frame + ?Sized>(frame: &F, start: &Start) -> Option<Self> {
        let header = start.get::<L3, IPV6_HLEN>()?;
        let [_, _, _, _, _, _, next, hops, addresses @ ..] = header;
        // RFC 4861 section 7.1.1: anything else no neighbour has sent.
        if next != IPPROTO_ICMPV6 || hops != 255 {
            return None;
        }
        let [SOLICITATION, 0] = frame.load::<2>(MESSAGE)? else {
            return None;
        };
        let target = Ip16(frame.load::<16>(MESSAGE + 8)?);
        if target.is_mapped_v4() {
            return None;
        }
        let (sender, _) = Ip16::pair(addresses);
        Some(Self {
            is_arp: false,
            sender,
            sender_mac: None,
            target,
        })
    }

    /// Decides about the question.
    #[inline(always)]
    pub(super) fn decide<F: Frame + ?Sized, T: Tables>(
        &self,
        frame: &F,
        header: &Ethernet,
        (network, number): (&Network, u32),
        tables: &T,
        to: &mut Endpoint,
    ) -> Judgement<IncomingAct> {
        let holder = tables.endpoint(number, &self.target).filter(is_local);
        *to = holder.ok_or(IncomingAct::Leave)?;
        let by_router = network.flags & NETWORK_NEXT_HOP != 0;
        if !header.to.is_group() && !by_router && header.to != to.mac {
            return Err(IncomingAct::Leave);
        }
        // The answer is written over the question.
        if !header.is_settled {
            return Err(IncomingAct::Drop(DropReason::Malformed));
        }
        let lie = IncomingAct::Drop(if self.is_arp {
            DropReason::SpoofedArp
        } else {
            DropReason::SpoofedNd
        });
        // Who asks is answered by the address that the frame came from, and that is nobody's who is here.
        if header.from.is_group() || header.from == GATEWAY_MAC || header.from == to.mac {
            return Err(lie);
        }
        match self.sender_mac {
            Some(mac) if mac != header.from => return Err(lie),
            Some(_) => {}
            None => {
                let kind = nd::OPTION_SOURCE_LINK_ADDRESS;
                let honest = nd::options_name_only(frame, MESSAGE + nd::MESSAGE, kind, header.from);
                if !honest.map_err(|_| IncomingAct::Leave)? {
                    return Err(lie);
                }
            }
        }
        match tables.endpoint(number, &self.sender) {
            // Out there the gateway's address may be that of a router. Nobody's is that of a probe.
            Some(found) if found.flags & (ENDPOINT_GATEWAY | ENDPOINT_OUTSIDE) != 0 => {}
            Some(found) if found.flags & ENDPOINT_REMOTE == 0 => return Err(lie),
            Some(found) if !by_router && found.mac != header.from => return Err(lie),
            Some(_) | None => {}
        }
        Ok(if self.is_arp {
            IncomingAct::ArpReply
        } else {
            IncomingAct::NdReply
        })
    }
}
