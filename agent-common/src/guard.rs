//! Judge the traffic of ports by network policies, and follow its connections.
//!
//! A guarded port has a set of rows for each direction in which any policy speaks of it. The first packet of a
//! connection is judged at both ends that this node has; the connection is kept in a [`FlowBucket`], with the stamps
//! of the sets that let it pass. Later packets of both directions need that entry and no row. When a policy
//! changes its ports have another stamp, and each flow is judged again at its next packet.
//!
//! All of it is a function of the packet and the tables ([`GuardTables`]), which an engine looks up by its own
//! means.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::addr::Ip16;

mod again;
mod bucket;
mod flow;
pub(crate) mod fragment;
mod judge;
mod pass;
pub(crate) mod related;
mod sides;
mod switched;
mod tables;
mod tuple;

pub use self::again::repeats;
pub use self::bucket::{FlowBucket, FlowEntry, FlowPlace, WAYS};
pub(crate) use self::flow::opened;
pub use self::flow::{
    DENIED, FLOW_ANSWERED, FLOW_DENIED, FLOW_FIN_HIGH, FLOW_FIN_LOW, FLOW_HIGH_OPENED, FLOW_NODE,
    FLOW_RESET, FLOW_TCP, FlowKey, FlowWords, TICK_SHIFT, tick, ticks_since,
};
pub use self::fragment::{Fragment, FragmentKey};
pub use self::judge::{
    CLASSES, Classes, OTHERS, ROW_WORDS, Row, RowKey, STARTS, SetKey, UNKNOWN_ATOM,
};
pub use self::pass::{Allowed, Clock, End, Passage, To, pass};
pub use self::sides::{
    ARP_MAX, Origin, arrive, between, depart, from_node, receiver_network, sender_network,
};
pub use self::switched::{SECRET_SLOTS, SLOT_WORDS, Secret, Slot, Stamp, Sum};
pub use self::tables::{BUDGETS, FragmentTables, GuardTables, budget_of_address, take};
pub use self::tuple::{ND_MAX, Tuple, is_exempt};

/// Middles of TCP connections may be taken for connections of either end.
///
/// A port has it for a while when its first policy comes, so that its connections go on.
pub const GUARD_ADOPT: u32 = 1 << 0;
/// The sender is the node itself, whose packets no policy of its pods denies.
///
/// No entry of a port has it.
pub const GUARD_NODE: u32 = 1 << 1;
/// The switch of memif ports has the frames of the port.
///
/// It judges those of connections that it finds published.
pub const GUARD_SWITCHED: u32 = 1 << 2;

/// Sets of a port, in `GUARDS`.
///
/// *Written by* the reconciler, which replaces it as a whole. *Read by* the programs of guarded networks.
/// *Lifetime*: as long as a policy selects the port. *Key*: the port's id, `u32`.
#[repr(C)]
#[derive(
    Debug, Default, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct Guard {
    /// Tables of atoms and classes that the sets are of, from 1.
    pub generation: u32,
    /// Set for what the port sends; 0 for none.
    pub egress: u32,
    /// Set for what it receives; 0 for none.
    pub ingress: u32,
    /// Number that changes whenever a verdict for the port may have changed, from 1.
    ///
    /// A flow keeps the numbers of its two ends; with others it is judged again.
    pub stamp: u32,
    /// `GUARD_*` flags.
    pub flags: u32,
}

const _: () = assert!(size_of::<Guard>() == 20);

/// A [`Guard`] in whole words of 64 bits.
#[repr(C)]
#[derive(
    Debug, Default, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct PaddedGuard {
    /// The sets.
    pub guard: Guard,
    /// Zero.
    pub reserved: u32,
}

impl Guard {
    /// Sets that let nothing pass, of a port whose own ones cannot be read.
    ///
    /// No generation has the number.
    pub const CLOSED: Self = Self {
        generation: u32::MAX,
        egress: 1,
        ingress: 1,
        stamp: DENIED,
        flags: 0,
    };

    /// Makes it that of an end without sets.
    ///
    /// Without them nothing else is looked at, and so nothing else is written.
    #[inline(always)]
    pub(crate) const fn clear(&mut self) {
        self.egress = 0;
        self.ingress = 0;
        self.flags = 0;
    }

    /// Reports whether it shows no more of sets than that they are there.
    ///
    /// That is enough for connections that were judged by them.
    #[inline(always)]
    pub const fn is_brief(&self) -> bool {
        self.generation == 0 && self.egress | self.ingress != 0
    }
}

/// Key of `ATOMS`: an address of a member or a node, in one generation.
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
pub struct AtomKey {
    /// Generation.
    pub generation: u32,
    /// Address.
    pub ip: Ip16,
}

const _: () = assert!(size_of::<AtomKey>() == 20);

#[cfg(test)]
mod tests;
