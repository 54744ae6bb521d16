//! `TRANSLATIONS`: connections of Services, by the packets of each direction.
//!
//! A connection has an entry for packets as the client sends them, and one for packets as the backend answers. The table is as
//! `FLOWS` is ([`FlowBucket`](crate::guard::FlowBucket)): entries have a place in one bucket, take that of the one that is
//! missed least, and show by themselves whose they are.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::addr::Ip16;
use crate::guard::{FlowKey, FlowPlace, FlowWords, Tuple};

/// The destination becomes the target: from the client to its backend.
pub const TO_BACKEND: u16 = 1;
/// The source becomes the target: from the backend to the client.
pub const BACK: u16 = 2;
/// The packet goes to the sender itself, at the target's port.
///
/// Its source becomes the Service, at the client's port.
pub const TO_SELF: u16 = 3;
/// The answer to that.
pub const BACK_TO_SELF: u16 = 4;

/// The other end of a connection, as packets of one direction get it.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Target {
    /// Address.
    pub ip: Ip16,
    /// Port.
    pub port: u16,
    /// Change of a packet: [`TO_BACKEND`], [`BACK`], [`TO_SELF`] or [`BACK_TO_SELF`].
    pub kind: u16,
    /// Zero.
    pub reserved: u32,
}

const _: () = assert!(size_of::<Target>() == 24);

impl Target {
    /// Of no connection.
    pub const NONE: Self = Self {
        ip: Ip16::NONE,
        port: 0,
        kind: 0,
        reserved: 0,
    };

    /// Sets it word by word.
    #[inline(always)]
    pub const fn set(&mut self, ip: &Ip16, port: u16, kind: u16) {
        self.ip.set(ip);
        self.port = port;
        self.kind = kind;
        self.reserved = 0;
    }

    /// Reports whether another one is the same.
    #[inline(always)]
    pub fn same(&self, other: &Self) -> bool {
        self.port == other.port && self.kind == other.kind && self.ip.same(&other.ip)
    }

    /// Writes a packet's tuple as it leaves.
    #[inline(always)]
    pub(super) fn apply(&self, came: &Tuple, leaves: &mut Tuple) {
        leaves.protocol = came.protocol;
        leaves.tcp = came.tcp;
        leaves.icmp = 0;
        leaves.has_ports = came.has_ports;
        leaves.source_port = came.source_port;
        leaves.destination_port = came.destination_port;
        match self.kind {
            TO_SELF => {
                leaves.source.set(&came.destination);
                leaves.destination.set(&came.source);
                leaves.destination_port = self.port;
            }
            BACK_TO_SELF => {
                leaves.source.set(&came.destination);
                leaves.destination.set(&came.source);
                leaves.source_port = self.port;
            }
            BACK => {
                leaves.source.set(&self.ip);
                leaves.source_port = self.port;
                leaves.destination.set(&came.destination);
            }
            _ => {
                leaves.source.set(&came.source);
                leaves.destination.set(&self.ip);
                leaves.destination_port = self.port;
            }
        }
    }

    /// Writes what makes answers to a packet what they answer.
    ///
    /// `came` and `leaves` are the packet before and after [`Self::apply`].
    #[inline(always)]
    pub(super) const fn reverse(&self, came: &Tuple, back: &mut Self) {
        match self.kind {
            TO_SELF => back.set(&came.destination, came.destination_port, BACK_TO_SELF),
            BACK_TO_SELF => back.set(&came.destination, came.source_port, TO_SELF),
            BACK => back.set(&came.source, came.source_port, TO_BACKEND),
            _ => back.set(&came.destination, came.destination_port, BACK),
        }
    }
}

/// An entry of a bucket, without its state.
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Translation {
    /// Key of the packets.
    pub key: FlowKey,
    /// Zero.
    pub reserved: u32,
    /// Their other end.
    pub target: Target,
    /// Proof that the target is this key's, [`Translation::seal`].
    pub seal: u64,
}

const _: () = assert!(size_of::<Translation>() == 80);

impl Translation {
    /// The seal of a target at the place of its key.
    #[inline(always)]
    pub fn seal(place: FlowPlace, target: &Target) -> u64 {
        let [a, b, c, d] = target.ip.words();
        let first = (a as u64) << 32 | b as u64;
        let second = (c as u64) << 32 | d as u64;
        let third = (target.port as u64) << 16 | target.kind as u64;
        let sum = place.sum();
        let sum = sum.wrapping_add(first.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let sum = sum.wrapping_add(second.wrapping_mul(0xbf58_476d_1ce4_e5b9));
        sum.wrapping_add(third.wrapping_mul(0x94d0_49bb_1331_11eb))
    }
}

/// A bucket of entries, in `TRANSLATIONS` by [`FlowPlace::bucket`].
///
/// *Written by* `service` and `reply`, word by word. *Read by* them, and by the agent. *Lifetime*: entries stay until others
/// take their place, and are none when they are no more [alive](FlowWords::is_alive).
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct TranslationBucket {
    /// Time and flags of each entry, as [`FlowPlace::state`] packs them; 0 for none.
    pub states: [u64; 8],
    /// The entries.
    pub entries: [Translation; 8],
}

const _: () = assert!(size_of::<TranslationBucket>() == 704);

/// An entry that was found.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// Its place in the bucket.
    pub way: u64,
    /// Time and flags.
    pub words: FlowWords,
    /// The packets' other end.
    pub target: Target,
}

impl Found {
    /// Nothing.
    pub const NONE: Self = Self {
        way: 0,
        words: FlowWords::NONE,
        target: Target::NONE,
    };
}
