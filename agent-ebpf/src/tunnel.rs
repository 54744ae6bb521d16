//! Put tunnels to other nodes on packets and take them off, in the programs.
//!
//! Packets that they do not take go by the kernel's device: any frame, on any kernel.

use agent_common::addr::Ip16;
use agent_common::arrival::{self, Arrival, Origin};
use agent_common::drop::DropReason;
use agent_common::endpoint::{ENDPOINT_GUARD, ENDPOINT_NO_PEER, ENDPOINT_SERVED, Endpoint};
use agent_common::guard::End;
use agent_common::outer::{self, Flaw, Outer};
use agent_common::packet::{ETH_HLEN, ETH_P_IP, ETH_P_IPV6, Frame, IPPROTO_TCP, Start};
use agent_common::uplink::{UPLINK_ANY_FAMILY, Uplink};
use agent_common::vtep::{
    ADDED_V4, ADDED_V6, Each, ROOM_ETHERNET, ROOM_FIXED_GSO, ROOM_IPV4, ROOM_NO_CSUM_RESET,
    ROOM_TO_IPV4, ROOM_TO_IPV6, ROOM_UDP, TRY_ETHERNET, TRY_FAMILY, Vtep,
};

use crate::guard_in::deliver_to;
use crate::maps::{self, NodeTables, PortCounter};
use crate::skb::Skb;
use crate::verdict::{self, Verdict};

/// No port, which is what is counted for it.
pub(crate) const NO_PORT: u16 = u16::MAX;
/// ECN fields, RFC 3168: not capable of it, and congestion met.
const NOT_ECT: u8 = 0;

/// Sends a packet of a network to another node.
#[inline(always)]
pub(crate) fn send(skb: &Skb<'_>, network: u32, to: &Vtep) -> bool {
    if to.uplink != 0
        && let Some(sent) = send_straight(skb, network, to)
    {
        return sent;
    }
    skb.name_tunnel(network, to) && skb.send(to.device)
}

/// Puts the headers on and sends. `None`: nothing was done.
#[inline(always)]
fn send_straight(skb: &Skb<'_>, network: u32, to: &Vtep) -> Option<bool> {
    let inner = Inner::read(skb, skb.is_gso())?;
    let each = Each {
        network,
        ethernet: inner.ethernet,
        ecn: inner.ecn,
        hash: skb.flow_hash(),
        length: skb.length() as u32,
    };
    // Not when there are such headers already, as far as the kernel knows: a pod forwards what came
    // by a tunnel.
    let written = if to.is_v6() {
        skb.make_room(ADDED_V6, to.room)
            .then(|| skb.store_start::<{ ADDED_V6 + ETH_HLEN }, _>(&to.outer_v6(&each)))
    } else {
        skb.make_room(ADDED_V4, to.room)
            .then(|| skb.store_start::<{ ADDED_V4 + ETH_HLEN }, _>(&to.outer_v4(&each)))
    }?;
    Some(written && skb.send_by(to.uplink, to.is_v6(), &to.next_hop))
}

/// A packet of an interface, as the hook there has it.
pub(crate) trait Packet: Sized {
    /// Verdict of the hook.
    type Verdict;

    /// Its length in bytes.
    fn whole(&self) -> usize;

    /// `N` bytes at `offset`, or `None` when the packet ends before.
    fn bytes<const N: usize>(&self, offset: usize) -> Option<[u8; N]>;

    /// [`Frame::start`] of the frame that begins there.
    fn start_at(&self, offset: usize) -> Start;

    /// [`Frame::segment_length`] of a frame of this length inside of it.
    fn segment_length_of(&self, length: usize) -> usize;

    /// Decides about one whose inner frame begins `AT` bytes after the outer one.
    fn take<const AT: usize>(&self, uplink: &Uplink, outer: &Outer) -> Self::Verdict;
}

/// Has a packet taken that is in a tunnel to this node.
///
/// `None` for a packet in no such tunnel: it is the node's.
#[inline(always)]
pub(crate) fn open<P: Packet>(packet: &P, ether_type: u16, uplink: &Uplink) -> Option<P::Verdict> {
    let length = packet.whole();
    match ether_type {
        ETH_P_IP => {
            let outer = outer::v4(&packet.bytes::<ADDED_V4>(0)?, length, uplink)?;
            Some(packet.take::<ADDED_V4>(uplink, &outer))
        }
        ETH_P_IPV6 => {
            let outer = outer::v6(&packet.bytes::<ADDED_V6>(0)?, length, uplink)?;
            Some(packet.take::<ADDED_V6>(uplink, &outer))
        }
        _ => None,
    }
}

/// Takes a packet out of its tunnel and into a pod.
///
/// A packet in no tunnel, or one not for this way, goes on to the node, and by it to the kernel's device.
#[inline(always)]
pub(crate) fn receive(skb: &Skb<'_>, uplink: &Uplink) -> Verdict {
    // One for a VLAN of the uplink.
    if skb.has_vlan_tag() {
        return Verdict::Pass;
    }
    open(skb, skb.protocol(), uplink).unwrap_or(Verdict::Pass)
}

impl Packet for Skb<'_> {
    type Verdict = Verdict;

    #[inline(always)]
    fn whole(&self) -> usize {
        self.length()
    }

    #[inline(always)]
    fn bytes<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        self.load::<N>(offset)
    }

    #[inline(always)]
    fn start_at(&self, offset: usize) -> Start {
        Skb::start_at(self, offset)
    }

    #[inline(always)]
    fn segment_length_of(&self, length: usize) -> usize {
        Skb::segment_length_of(self, length)
    }

    #[inline(always)]
    fn take<const AT: usize>(&self, uplink: &Uplink, outer: &Outer) -> Verdict {
        take::<AT>(self, uplink, outer)
    }
}

/// The inner frame begins `AT` bytes after the outer one.
#[inline(always)]
fn take<const AT: usize>(skb: &Skb<'_>, uplink: &Uplink, outer: &Outer) -> Verdict {
    let refuse = |reason| verdict::drop(skb, Some((outer.network, NO_PORT)), reason);
    let frame = InnerFrame::<_, AT> { packet: skb };
    match judge(outer, &frame) {
        Err((None, reason)) => verdict::drop(skb, None, reason),
        Err((Some(_), reason)) => refuse(reason),
        Ok(None) => Verdict::Pass,
        // A queue is behind the device, which forgets for it that there was a tunnel.
        Ok(Some(endpoint)) if endpoint.flags & ENDPOINT_NO_PEER != 0 => Verdict::Pass,
        Ok(Some(endpoint)) => match deliver(&frame, uplink, outer, &endpoint) {
            Some(true) => Verdict::Redirected,
            Some(false) => refuse(DropReason::Undeliverable),
            None => Verdict::Pass,
        },
    }
}

/// Why a packet ends here, and its network where that is known.
pub(crate) type Refused = (Option<u32>, DropReason);

/// Decides about a frame that the node of this address has sent on a network.
///
/// `None` for a frame to many.
#[inline(always)]
pub(crate) fn arrive<F: Frame>(
    source: &Ip16,
    number: u32,
    frame: &F,
) -> Result<Option<Endpoint>, Refused> {
    let vtep = maps::vtep_of(source).ok_or((None, DropReason::UnknownNode))?;
    let network = maps::network(number).ok_or((None, DropReason::UnknownNetwork))?;
    let origin = Origin {
        network: number,
        vtep,
    };
    match arrival::arrive(frame, network, origin, &NodeTables { home: 0 }) {
        Arrival::Drop(reason) => Err((Some(number), reason)),
        Arrival::Deliver(endpoint) => Ok(Some(endpoint)),
        Arrival::Flood => Ok(None),
    }
}

/// Decides about the frame in a tunnel's packet.
///
/// `None` for a frame to many, and for one that the node's stack has to look at first.
#[inline(always)]
pub(crate) fn judge<F: Frame>(outer: &Outer, frame: &F) -> Result<Option<Endpoint>, Refused> {
    if outer.flaw == Some(Flaw::Header) {
        return Err((None, DropReason::Malformed));
    }
    let receiver = arrive(&outer.source, outer.network, frame)?;
    Ok(receiver.filter(|_| outer.flaw.is_none()))
}

/// Takes the headers off and delivers. `None`: nothing was done.
#[inline(always)]
fn deliver<const AT: usize>(
    frame: &InnerFrame<'_, Skb<'_>, AT>,
    uplink: &Uplink,
    outer: &Outer,
    to: &Endpoint,
) -> Option<bool> {
    let skb = frame.packet;
    let inner = Inner::read(frame, skb.is_gso())?;
    // RFC 6040 section 4.2: it would have to be dropped, and the device does.
    if outer.congested && inner.ecn == NOT_ECT {
        return None;
    }
    let family = match (inner.is_v4, AT == ADDED_V4) {
        (true, true) | (false, false) => 0,
        _ if uplink.flags & UPLINK_ANY_FAMILY == 0 => return None,
        (true, false) => ROOM_TO_IPV4,
        (false, true) => ROOM_TO_IPV6,
    };
    // The number of segments is forgotten with the headers.
    let (packets, bytes) = (skb.segments(), frame.length() as u32);
    skb.clear_mark();
    let taken = skb.take_room(AT, ROOM_FIXED_GSO | ROOM_NO_CSUM_RESET | family)
        && skb.store(0, &inner.ethernet)
        && (!outer.congested || skb.mark_congestion());
    if taken && to.flags & (ENDPOINT_GUARD | ENDPOINT_SERVED) != 0 {
        return Some(deliver_to(skb, outer.network, End::Member, to));
    }
    let taken = taken && skb.send_to_peer(to.ifindex);
    if taken {
        maps::count_port(to.port_id, PortCounter::ToPod, packets, bytes);
    }
    Some(taken)
}

/// The parts of an inner packet that a tunnel looks at.
struct Inner {
    ethernet: [u8; ETH_HLEN],
    is_v4: bool,
    /// RFC 3168.
    ecn: u8,
}

impl Inner {
    /// Reads the parts; `None` for a packet that the kernel's device has to take.
    ///
    /// That is one of neither IPv4 nor IPv6, or a GSO packet that is not TCP.
    #[inline(always)]
    fn read<F: Frame>(frame: &F, is_gso: bool) -> Option<Self> {
        let [
            ethernet @ ..,
            _,
            tos,
            _,
            _,
            _,
            _,
            next_header,
            _,
            _,
            protocol,
        ] = frame.load::<{ ETH_HLEN + 10 }>(0)?;
        let [.., t0, t1] = ethernet;
        let (is_v4, ecn, protocol) = match u16::from_be_bytes([t0, t1]) {
            ETH_P_IP => (true, tos & 3, protocol),
            ETH_P_IPV6 => (false, tos >> 4 & 3, next_header),
            _ => return None,
        };
        (!is_gso || protocol == IPPROTO_TCP).then_some(Self {
            ethernet,
            is_v4,
            ecn,
        })
    }
}

/// The frame in a tunnel's packet, headers of the tunnel still in front of it.
pub(crate) struct InnerFrame<'a, P, const AT: usize> {
    pub(crate) packet: &'a P,
}

impl<P: Packet, const AT: usize> Frame for InnerFrame<'_, P, AT> {
    #[inline(always)]
    fn length(&self) -> usize {
        self.packet.whole() - AT
    }

    #[inline(always)]
    fn segment_length(&self) -> usize {
        self.packet.segment_length_of(self.length())
    }

    /// A tag next to the packet would be the outer frame's.
    #[inline(always)]
    fn has_vlan_tag(&self) -> bool {
        false
    }

    #[inline(always)]
    fn load<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        self.packet.bytes::<N>(AT + offset)
    }

    #[inline(always)]
    fn start(&self) -> Start {
        self.packet.start_at(AT)
    }
}

/// Which flags the kernel takes, tried on a packet that is nobody's.
#[inline(always)]
pub(crate) fn try_room(skb: &Skb<'_>) -> u32 {
    let flags = ROOM_FIXED_GSO | ROOM_IPV4 | ROOM_UDP;
    let mut known = 0;
    if skb.make_room(ADDED_V4, flags | ROOM_ETHERNET) {
        known |= TRY_ETHERNET;
    } else if !skb.make_room(ADDED_V4, flags) {
        return 0;
    }
    if skb.take_room(ADDED_V4, ROOM_FIXED_GSO | ROOM_NO_CSUM_RESET | ROOM_TO_IPV6) {
        known |= TRY_FAMILY;
    }
    known
}
