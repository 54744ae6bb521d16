//! Check that a node speaks for its own members only on an L2 network.
//!
//! Each header that receivers believe is checked as it is for a pod of this node.

use super::{Admission, Origin, drop, is_of};
use crate::addr::{Ip16, MacAddr};
use crate::arp::Arp;
use crate::control;
use crate::drop::DropReason;
use crate::nd::{self, Nd};
use crate::packet::{
    ETH_HLEN, ETH_P_ARP, ETH_P_IP, ETH_P_IPV6, Frame, IPV4_HLEN, IPV6_HLEN, Ipv6Payload, L3, Start,
    ipv6_payload,
};
use crate::policy::{Tables, carries_alone};

/// Lengths in the headers of these are those of no packet.
#[inline(always)]
fn is_gso<F: Frame + ?Sized>(frame: &F) -> bool {
    frame.segment_length() != frame.length()
}

/// Sender of a frame: a member of `origin`'s node and network.
///
/// By its source MAC address, or its IP address where it is of another network and the gateway has routed its packet.
pub(super) struct Sender<'t, T> {
    pub(super) from: MacAddr,
    pub(super) origin: Origin,
    /// Messages about a link are of another one.
    pub(super) is_routed: bool,
    /// The holders of addresses are unknown.
    pub(super) any_ip: bool,
    pub(super) tables: &'t T,
}

impl<T: Tables> Sender<'_, T> {
    /// Refuses what the sender's node would not have let a pod send.
    #[inline(always)]
    pub(super) fn check<F: Frame + ?Sized>(
        &self,
        frame: &F,
        start: &Start,
        ether_type: u16,
    ) -> Admission<()> {
        match ether_type {
            ETH_P_IP => self.ipv4(frame, start),
            ETH_P_IPV6 => self.ipv6(frame, start),
            ETH_P_ARP => self.arp(frame),
            _ if carries_alone(ether_type) => Ok(()),
            _ => drop(DropReason::EtherType),
        }
    }

    /// Whether a member of that node has the address, or nobody knows who has any.
    #[inline(always)]
    fn has(&self, ip: &Ip16) -> bool {
        if self.any_ip {
            return true;
        }
        let holder = self.tables.endpoint(self.origin.network, ip);
        holder.is_some_and(|holder| is_of(&holder, self.origin.vtep))
    }

    #[inline(always)]
    fn arp<F: Frame + ?Sized>(&self, frame: &F) -> Admission<()> {
        let packet = Arp::read(frame)?;
        if packet.mac == self.from && (packet.is_probe() || self.has(&Ip16::from_v4(packet.sender)))
        {
            Ok(())
        } else {
            drop(DropReason::SpoofedArp)
        }
    }

    #[inline(always)]
    fn ipv4<F: Frame + ?Sized>(&self, frame: &F, start: &Start) -> Admission<()> {
        let Some(header) = start.get::<L3, IPV4_HLEN>() else {
            return drop(DropReason::Truncated);
        };
        let [
            version_ihl,
            _,
            l0,
            l1,
            _,
            _,
            f0,
            f1,
            _,
            _,
            _,
            _,
            addresses @ ..,
        ] = header;
        let [s0, s1, s2, s3, ..] = addresses;
        let length = (version_ihl & 0x0f) as usize * 4;
        let total = u16::from_be_bytes([l0, l1]) as usize;
        let sound = version_ihl >> 4 == 4 && length >= IPV4_HLEN;
        if !sound || (!is_gso(frame) && (total < length || total > frame.length() - ETH_HLEN)) {
            return drop(DropReason::Malformed);
        }
        let later = u16::from_be_bytes([f0, f1]) & 0x1fff != 0;
        control::v4(frame, start, &header, later, self.any_ip)?;
        if self.has(&Ip16::from_v4([s0, s1, s2, s3])) {
            Ok(())
        } else {
            drop(DropReason::SpoofedIp)
        }
    }

    #[inline(always)]
    fn ipv6<F: Frame + ?Sized>(&self, frame: &F, start: &Start) -> Admission<()> {
        let Some(header) = start.get::<L3, IPV6_HLEN>() else {
            return drop(DropReason::Truncated);
        };
        let [v, _, _, _, l0, l1, next_header, hops, addresses @ ..] = header;
        let (source, destination) = Ip16::pair(addresses);
        let mapped = source.is_mapped_v4() || destination.is_mapped_v4();
        let payload = u16::from_be_bytes([l0, l1]) as usize;
        let too_long = !is_gso(frame) && payload > frame.length() - ETH_HLEN - IPV6_HLEN;
        if v >> 4 != 6 || mapped || too_long {
            return drop(DropReason::Malformed);
        }
        let Some(payload) = ipv6_payload(frame, next_header) else {
            return drop(DropReason::Ipv6Headers);
        };
        let nd = nd::inspect(frame, hops, &payload)?;
        if self.is_routed && nd != Nd::Other {
            return drop(DropReason::SpoofedNd);
        }
        if !self.any_ip {
            control::dhcp_v6(frame, start, &payload)?;
        }
        // RFC 4862 and RFC 3810: only these speak before they have an address.
        let nameless = source.same(&Ip16::NONE)
            && matches!(
                nd,
                Nd::Solicitation | Nd::RouterSolicitation | Nd::Membership
            );
        if !nameless && !self.has(&source) {
            return drop(DropReason::SpoofedIp);
        }
        self.discovery(frame, nd, &payload)
    }

    /// Returns the address and MAC address that a message of neighbour discovery names.
    #[inline(always)]
    fn discovery<F: Frame + ?Sized>(
        &self,
        frame: &F,
        nd: Nd,
        payload: &Ipv6Payload,
    ) -> Admission<()> {
        let (length, option) = match nd {
            Nd::Other | Nd::Membership => return Ok(()),
            Nd::RouterSolicitation => (nd::ROUTER_SOLICITATION, nd::OPTION_SOURCE_LINK_ADDRESS),
            Nd::Solicitation => (nd::MESSAGE, nd::OPTION_SOURCE_LINK_ADDRESS),
            Nd::Advertisement => (nd::MESSAGE, nd::OPTION_TARGET_LINK_ADDRESS),
        };
        if nd != Nd::RouterSolicitation {
            let Some(target) = frame.load::<16>(payload.offset + 8) else {
                return drop(DropReason::Truncated);
            };
            let target = Ip16(target);
            if target.is_mapped_v4() || target.is_multicast_v6() {
                return drop(DropReason::Malformed);
            }
            if nd == Nd::Advertisement && !self.has(&target) {
                return drop(DropReason::SpoofedNd);
            }
        }
        if nd::options_name_only(frame, payload.offset + length, option, self.from)? {
            Ok(())
        } else {
            drop(DropReason::SpoofedNd)
        }
    }
}
