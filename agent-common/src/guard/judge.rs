//! Judge a connection by the set of an end.
//!
//! A judgement takes two look-ups, whatever the number of policies.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::tables::GuardTables;
use super::tuple::{IPPROTO_SCTP, Tuple};
use crate::addr::Ip16;
use crate::packet::IPPROTO_TCP;

/// The atom of ends of which nothing is known.
pub const UNKNOWN_ATOM: u32 = 0;
/// In a key of `SETS`: all atoms without a row of their own, but the unknown one.
pub const OTHERS: u32 = u32::MAX;
/// Classes of ports of each protocol.
pub const CLASSES: usize = 256;
/// First ports of all classes in a generation, a power of two.
pub const STARTS: usize = 4 * CLASSES;
/// Words of a row: eight each for TCP, UDP and SCTP, and one for all other traffic.
pub const ROW_WORDS: usize = 25;

/// Words for the classes of one protocol.
const WORDS: u32 = 8;
const _: () = assert!(WORDS as usize * 32 == CLASSES && 3 * WORDS as usize + 1 == ROW_WORDS);

/// Key of `ROWS`.
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
pub struct RowKey {
    /// Generation.
    pub generation: u32,
    /// Number of the row.
    pub row: u32,
}

/// Key of `SETS`; the value is the number of a row.
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
pub struct SetKey {
    /// Generation.
    pub generation: u32,
    /// Set, from 1.
    pub set: u32,
    /// Atom, or [`OTHERS`].
    pub atom: u32,
}

/// The traffic that may pass, in `ROWS`.
///
/// *Written by* the reconciler before any set names it. *Read by* the programs of guarded networks.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Row {
    /// A bit for each class, the lowest first.
    ///
    /// The last word has one bit, for traffic without ports.
    pub words: [u32; ROW_WORDS],
}

const _: () = assert!(size_of::<Row>() == 100);

/// The classes of ports of a generation, in `CLASSES` by its number.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Classes {
    /// How many classes each of TCP, UDP and SCTP has, 1..=256; the last number is 0.
    pub counts: [u16; 4],
    /// First ports of the classes of each protocol, ascending, the first of them 0.
    ///
    /// The rest is 0: what is as long as a power of two takes a mask and no check of its index, which verifiers before Linux 5.11
    /// lose where a compiler has a copy of it.
    pub starts: [u16; STARTS],
}

const _: () = assert!(size_of::<Classes>() == 8 + 2 * STARTS);

impl Classes {
    /// Finds the class of a port by eight halvings.
    #[inline(always)]
    pub fn class(&self, protocol: u32, port: u16) -> Option<u32> {
        self.class_by(protocol, port, |place| place)
    }

    /// Finds it, with each place in [`Self::starts`] looked up as `hidden` returns it.
    ///
    /// A compiler that knows the place leaves out the check which verifiers need. Otherwise there is no branch, of
    /// which these walk both ways.
    #[inline(always)]
    pub fn class_by(&self, protocol: u32, port: u16, hidden: impl Fn(u32) -> u32) -> Option<u32> {
        let count = u32::from(*self.counts.get(protocol as usize & 3)?);
        let first = protocol * 256;
        let mut class = 0;
        for bit in [7, 6, 5, 4, 3, 2, 1, 0] {
            let at = class | 1 << bit;
            let at_start = hidden(first + at) as usize & (STARTS - 1);
            let start = u32::from(*self.starts.get(at_start)?);
            // 1 for a class that is there and begins at the port or before it.
            let begins = start.wrapping_sub(u32::from(port) + 1) >> 31;
            let is_there = at.wrapping_sub(count) >> 31;
            class |= (begins & is_there) << bit;
        }
        (count != 0).then_some(class)
    }
}

/// Place of a protocol in the tables of classes; `None` for one without ports.
#[inline(always)]
const fn place(tuple: &Tuple) -> Option<u32> {
    if !tuple.has_ports {
        return None;
    }
    match tuple.protocol {
        IPPROTO_TCP => Some(0),
        IPPROTO_SCTP => Some(2),
        _ => Some(1),
    }
}

/// Reports whether a set lets traffic with a peer pass.
///
/// The port is that of the traffic's destination.
/// What cannot be looked up does not pass.
#[inline(always)]
pub(super) fn allows<T: GuardTables>(
    tables: &T,
    (generation, set): (u32, u32),
    network: u32,
    peer: &Ip16,
    tuple: &Tuple,
    port: u16,
) -> bool {
    let atom = tables.atom(generation, network, peer);
    let mut row = tables.row(generation, set, atom);
    if row.is_none() && atom != UNKNOWN_ATOM {
        row = tables.row(generation, set, OTHERS);
    }
    let Some(row) = row else {
        return false;
    };
    let (word, bit) = match place(tuple) {
        None => (3 * WORDS, 0),
        Some(protocol) => match tables.class(generation, protocol, port) {
            Some(class) => (protocol * WORDS + class / 32, class % 32),
            None => return false,
        },
    };
    tables.word(generation, row, word) >> bit & 1 != 0
}
