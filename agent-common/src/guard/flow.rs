//! `FLOWS`: connections that were let pass.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::tuple::{FIN, RST, Tuple};
use crate::addr::Ip16;
use crate::packet::{IPPROTO_ICMP, IPPROTO_ICMPV6, IPPROTO_TCP, IPPROTO_UDP};

/// Nanoseconds of `CLOCK_MONOTONIC` in a tick, as a power of two: 1.07 s.
pub const TICK_SHIFT: u32 = 30;

/// The end with the higher address and port opened the connection.
pub const FLOW_HIGH_OPENED: u32 = 1 << 0;
/// The other end has answered.
pub const FLOW_ANSWERED: u32 = 1 << 1;
/// The lower end has sent its last byte.
pub const FLOW_FIN_LOW: u32 = 1 << 2;
/// The higher end has sent its last byte.
pub const FLOW_FIN_HIGH: u32 = 1 << 3;
/// An end has reset the connection.
pub const FLOW_RESET: u32 = 1 << 4;
/// A later policy denies the connection.
///
/// No packet of it passes until it is opened again.
pub const FLOW_DENIED: u32 = 1 << 5;
/// The node itself opened the connection: no policy of the other end denies it.
pub const FLOW_NODE: u32 = 1 << 6;
/// The connection is one of TCP, which may be idle for hours.
pub const FLOW_TCP: u32 = 1 << 7;
/// All flags: a table keeps eight bits.
pub(super) const FLOW_FLAGS: u32 = 0xff;

/// Stamp of a denial: no port has it, so each packet of the connection is judged.
///
/// The verdict and the stamps are one word each for that: processors that race lose a flag, and no denial.
pub const DENIED: u32 = u32::MAX;

/// Ticks after which an entry is none, by what the connection is.
mod lifetime {
    /// TCP with an answer; others use theirs.
    pub(super) const TCP_OPEN: u32 = 20_200;
    pub(super) const TCP_OPENING: u32 = 56;
    pub(super) const TCP_CLOSED: u32 = 10;
    pub(super) const TCP_RESET: u32 = 112;
    pub(super) const UDP: u32 = 28;
    pub(super) const UDP_ANSWERED: u32 = 112;
    pub(super) const ICMP: u32 = 28;
    pub(super) const OTHER: u32 = 56;
}

/// Key of a connection: its ends in the order of their bytes.
///
/// Both directions have the same key.
#[repr(C)]
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
)]
pub struct FlowKey {
    /// Network.
    pub network: u32,
    /// Address of the lower end.
    pub low: Ip16,
    /// Address of the higher end.
    pub high: Ip16,
    /// Port of the lower end, or what stands for an identifier of ICMP.
    pub low_port: u16,
    /// Port of the higher end, or what stands for an identifier of ICMP.
    pub high_port: u16,
    /// IP protocol.
    pub protocol: u8,
    /// Zero.
    pub reserved: [u8; 3],
}

const _: () = assert!(size_of::<FlowKey>() == 44);

impl FlowKey {
    /// Of no connection.
    pub const EMPTY: Self = Self {
        network: 0,
        low: Ip16::NONE,
        high: Ip16::NONE,
        low_port: 0,
        high_port: 0,
        protocol: 0,
        reserved: [0; 3],
    };

    /// Writes the key of a tuple.
    #[inline(always)]
    pub(crate) fn write(&mut self, network: u32, tuple: &Tuple, from_high: bool) {
        let ((low, low_port), (high, high_port)) = tuple.in_order(from_high);
        self.network = network;
        self.protocol = tuple.protocol;
        (self.low_port, self.high_port) = (low_port, high_port);
        self.low.set(low);
        self.high.set(high);
    }

    /// Reports whether it is the key of a tuple.
    #[inline(always)]
    pub(super) fn is_of(&self, network: u32, tuple: &Tuple, from_high: bool) -> bool {
        let ((low, low_port), (high, high_port)) = tuple.in_order(from_high);
        self.network == network
            && self.protocol == tuple.protocol
            && self.low_port == low_port
            && self.high_port == high_port
            && self.low.same(low)
            && self.high.same(high)
    }

    /// Reports whether another key is the same.
    #[inline(always)]
    pub fn same(&self, other: &Self) -> bool {
        self.network == other.network
            && self.protocol == other.protocol
            && self.low_port == other.low_port
            && self.high_port == other.high_port
            && self.low.same(&other.low)
            && self.high.same(&other.high)
    }

    /// The key of a tuple, and whether its source is the higher end.
    pub fn of(network: u32, tuple: &Tuple) -> (Self, bool) {
        let mut key = Self::EMPTY;
        let from_high = tuple.is_from_high();
        key.write(network, tuple, from_high);
        (key, from_high)
    }
}

/// Time, flags and stamps of a connection.
///
/// `FLOWS` has it in two words, which programs write one by one: two CPUs that race lose a flag or a second.
#[repr(C)]
#[derive(
    Debug, Default, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct FlowWords {
    /// Tick of the last packet.
    pub seen: u32,
    /// `FLOW_*` flags.
    pub flags: u32,
    /// Stamp of the opener's set that let it pass; 0 for none.
    pub egress: u32,
    /// Stamp of the other end's set that let it pass; 0 for none.
    pub ingress: u32,
}

const _: () = assert!(size_of::<FlowWords>() == 16);

impl FlowWords {
    /// Of no connection.
    pub const NONE: Self = Self {
        seen: 0,
        flags: 0,
        egress: 0,
        ingress: 0,
    };
}

/// The tick of a time, nanoseconds of `CLOCK_MONOTONIC`.
#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "ticks of more than a century"
)]
pub const fn tick(now_ns: u64) -> u32 {
    (now_ns >> TICK_SHIFT) as u32
}

/// The ticks from one to the other; less than 0 for one that is to come.
///
/// A CPU may be a tick behind another one.
#[inline(always)]
pub const fn ticks_since(seen: u32, now: u32) -> i32 {
    now.wrapping_sub(seen).cast_signed()
}

impl FlowWords {
    /// Reports whether the entry is one still.
    #[inline(always)]
    pub const fn is_alive(&self, protocol: u8, now: u32) -> bool {
        ticks_since(self.seen, now) <= self.lifetime(protocol).cast_signed()
    }

    #[inline(always)]
    const fn lifetime(&self, protocol: u8) -> u32 {
        let is_answered = self.flags & FLOW_ANSWERED != 0;
        match protocol {
            IPPROTO_TCP => {
                if self.flags & FLOW_RESET != 0 {
                    lifetime::TCP_RESET
                } else if self.is_closed() {
                    lifetime::TCP_CLOSED
                } else if is_answered {
                    lifetime::TCP_OPEN
                } else {
                    lifetime::TCP_OPENING
                }
            }
            IPPROTO_UDP => {
                if is_answered {
                    lifetime::UDP_ANSWERED
                } else {
                    lifetime::UDP
                }
            }
            IPPROTO_ICMP | IPPROTO_ICMPV6 => lifetime::ICMP,
            _ => lifetime::OTHER,
        }
    }

    /// Reports whether both ends of a TCP connection have sent their last byte.
    #[inline(always)]
    const fn is_closed(&self) -> bool {
        self.flags & (FLOW_FIN_LOW | FLOW_FIN_HIGH) == FLOW_FIN_LOW | FLOW_FIN_HIGH
    }

    /// Reports whether an end has reset the connection, or both have closed it.
    #[inline(always)]
    pub(crate) const fn has_ended(&self) -> bool {
        self.flags & FLOW_RESET != 0 || self.is_closed()
    }

    /// Reports whether a packet goes in the direction of the opener's first one.
    #[inline(always)]
    pub(crate) const fn is_onward(&self, from_high: bool) -> bool {
        (self.flags & FLOW_HIGH_OPENED != 0) == from_high
    }

    /// Reports whether another packet passes as the one that left these words.
    ///
    /// It is of the same connection. Stamps are those of the sets that judge the packet, by this entry's direction.
    #[inline(always)]
    pub(super) const fn is_as_before(&self, by: (u32, u32), now: u32) -> bool {
        // That of no connection has no time.
        self.seen != 0 && self.seen == now && self.is_by(by)
    }

    /// Reports whether a packet has something to tell the entry of its connection.
    ///
    /// What opens or ends a connection of TCP is the entry's to know, whatever was known of it before.
    #[inline(always)]
    pub(super) const fn has_news(&self, tuple: &Tuple, from_high: bool) -> bool {
        tuple.is_marked() || self.after(tuple, from_high) != self.flags
    }

    /// Returns the flags that a packet tells its entry, with that of the opener.
    #[inline(always)]
    pub(super) const fn news(&self, tuple: &Tuple, from_high: bool) -> u32 {
        let opened = Self {
            flags: self.flags & FLOW_HIGH_OPENED,
            ..Self::NONE
        };
        opened.after(tuple, from_high)
    }

    /// Reports whether sets with these stamps, the opener's first, have let it pass.
    #[inline(always)]
    pub(super) const fn is_by(&self, (egress, ingress): (u32, u32)) -> bool {
        self.egress == egress && self.ingress == ingress
    }

    /// Returns the words after another packet, with these flags and stamps.
    ///
    /// Its time stays where this CPU is a tick behind.
    #[inline(always)]
    pub(crate) const fn noted(&self, flags: u32, (egress, ingress): (u32, u32), now: u32) -> Self {
        let is_later = ticks_since(self.seen, now) > 0;
        Self {
            seen: if is_later { now } else { self.seen },
            flags,
            egress,
            ingress,
        }
    }

    /// Returns the flags after a packet of the connection.
    #[inline(always)]
    pub(crate) const fn after(&self, tuple: &Tuple, from_high: bool) -> u32 {
        let mut flags = self.flags;
        if !self.is_onward(from_high) {
            flags |= FLOW_ANSWERED;
        }
        if tuple.tcp & FIN != 0 {
            flags |= fin(from_high);
        }
        if tuple.tcp & RST != 0 {
            flags |= FLOW_RESET;
        }
        flags
    }
}

/// Returns the flags of a connection after its first packet.
#[inline(always)]
pub(crate) const fn opened(tuple: &Tuple, from_high: bool, high_opened: bool) -> u32 {
    let mut flags = if high_opened { FLOW_HIGH_OPENED } else { 0 };
    if tuple.protocol == IPPROTO_TCP {
        flags |= FLOW_TCP;
    }
    // What looks like the middle of a connection proves nothing of its other end.
    if high_opened != from_high {
        flags |= FLOW_ANSWERED;
    }
    if tuple.tcp & FIN != 0 {
        flags |= fin(from_high);
    }
    if tuple.tcp & RST != 0 {
        flags |= FLOW_RESET;
    }
    flags
}

#[inline(always)]
const fn fin(from_high: bool) -> u32 {
    if from_high {
        FLOW_FIN_HIGH
    } else {
        FLOW_FIN_LOW
    }
}
