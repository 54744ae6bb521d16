//! `SWITCH_FLOWS`, `SWITCH_STAMPS`: maps by which the switch of memif ports judges.
//!
//! The switch reads them in memory that it shares with the kernel, without a lock. So each entry shows by itself
//! whether it is whole: no reader takes a part of one for a connection that was let pass.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::Guard;
use super::flow::{FlowKey, FlowWords};
use crate::map::MAX_SWITCH_FLOWS;

/// Slots at the beginning of `SWITCH_FLOWS` that have the secret.
pub const SECRET_SLOTS: u32 = 2;
/// Words of a slot, 32 bits each.
pub const SLOT_WORDS: usize = size_of::<Slot>() / 4;

/// A connection, as it was when the kernel judged its last packet.
///
/// *Written by* `publish`, at the place that [`Secret::place`] says. *Read by* the switch. *Lifetime*: until another
/// connection has the place.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Slot {
    /// Key of the connection.
    pub key: FlowKey,
    /// Words of its entry.
    pub flow: FlowWords,
    /// Proof that the rest was written together.
    pub tag: u32,
}

const _: () = assert!(size_of::<Slot>() == 64);

/// Numbers that no pod knows, in the first slots; 64 bits each.
///
/// All zeroes are none: the agent has not written them yet.
#[derive(Debug, Clone, Copy)]
pub struct Secret<'a> {
    /// The first half.
    pub low: &'a [u64; 8],
    /// The second half.
    pub high: &'a [u64; 8],
}

/// The sum of a key's words by the secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sum(pub(super) u64);

impl Secret<'_> {
    /// Sums the words of a key, each times a number of the secret.
    ///
    /// The upper half is a universal hash of them (Dietzfelbinger, "Universal hashing and k-wise independent random
    /// variables via integer arithmetic without primes", 1996).
    #[inline(always)]
    pub fn sum(&self, key: &FlowKey) -> Sum {
        let [a, b, c, d, e, f, g, h] = *self.low;
        let [i, j, k, l, ..] = *self.high;
        let ([l0, l1, l2, l3], [h0, h1, h2, h3]) = (key.low.words(), key.high.words());
        let ports = (key.low_port as u32) << 16 | key.high_port as u32;
        let mut sum = a;
        sum = sum.wrapping_add(b.wrapping_mul(key.network as u64));
        sum = sum.wrapping_add(c.wrapping_mul(l0 as u64));
        sum = sum.wrapping_add(d.wrapping_mul(l1 as u64));
        sum = sum.wrapping_add(e.wrapping_mul(l2 as u64));
        sum = sum.wrapping_add(f.wrapping_mul(l3 as u64));
        sum = sum.wrapping_add(g.wrapping_mul(h0 as u64));
        sum = sum.wrapping_add(h.wrapping_mul(h1 as u64));
        sum = sum.wrapping_add(i.wrapping_mul(h2 as u64));
        sum = sum.wrapping_add(j.wrapping_mul(h3 as u64));
        sum = sum.wrapping_add(k.wrapping_mul(ports as u64));
        sum = sum.wrapping_add(l.wrapping_mul(key.protocol as u64));
        Sum(sum)
    }

    /// The place of a key in `SWITCH_FLOWS`.
    #[inline(always)]
    pub const fn place(sum: Sum) -> u32 {
        let slots = (MAX_SWITCH_FLOWS - SECRET_SLOTS) as u64;
        SECRET_SLOTS + (((sum.0 >> 32) * slots) >> 32) as u32
    }

    /// The tag of a slot with this key and these words.
    #[inline(always)]
    pub const fn tag(&self, sum: Sum, flow: &FlowWords) -> u32 {
        let [.., m, n, o, p] = *self.high;
        let mut sum = sum.0;
        sum = sum.wrapping_add(m.wrapping_mul(flow.seen as u64));
        sum = sum.wrapping_add(n.wrapping_mul(flow.flags as u64));
        sum = sum.wrapping_add(o.wrapping_mul(flow.egress as u64));
        sum = sum.wrapping_add(p.wrapping_mul(flow.ingress as u64));
        (sum >> 32) as u32
    }
}

/// Sets of a port as far as judged connections need them, in `STAMPS`.
///
/// Those of memif ports are in `SWITCH_STAMPS`, too.
/// *Written by* the agent: [`Stamp::CHANGING`] before an entry of `GUARDS` changes, and what is so after it. *Read by* the
/// programs of guarded networks in the one map, and by the switch in the other. *Key*: the port's id. All zeroes are of a
/// port that no policy selects.
#[repr(C)]
#[derive(
    Debug, Default, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct Stamp {
    /// The stamp in the upper half; `STAMP_*` flags, and `GUARD_*` flags from bit 8.
    pub word: u64,
    /// Its complement: an entry of which a part is another one is none.
    pub complement: u64,
}

const _: () = assert!(size_of::<Stamp>() == 16);

const STAMP_CHANGING: u64 = 1 << 3;
const STAMP_KNOWN: u64 = 1 << 0;
const STAMP_EGRESS: u64 = 1 << 1;
const STAMP_INGRESS: u64 = 1 << 2;
/// Place of the `GUARD_*` flags.
const STAMP_FLAGS: u32 = 8;

impl Stamp {
    /// Of a port whose sets change: its frames are the kernel's to judge.
    pub const CHANGING: Self = Self {
        word: STAMP_CHANGING,
        complement: !STAMP_CHANGING,
    };

    /// Reports whether policies may select the port.
    #[inline(always)]
    pub const fn is_any(&self) -> bool {
        self.word | self.complement != 0
    }

    /// That of a port with these sets.
    pub const fn of(guard: &Guard) -> Self {
        let flags = ((guard.flags & 0xff) as u64) << STAMP_FLAGS;
        let mut word = (guard.stamp as u64) << 32 | flags | STAMP_KNOWN;
        if guard.egress != 0 {
            word |= STAMP_EGRESS;
        }
        if guard.ingress != 0 {
            word |= STAMP_INGRESS;
        }
        Self {
            word,
            complement: !word,
        }
    }

    /// The sets, of which only their stamp, the flags and the directions are known.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "the lower half of a word")]
    pub const fn guard(&self) -> Option<Guard> {
        if self.word & STAMP_KNOWN == 0 || self.complement != !self.word {
            return None;
        }
        Some(Guard {
            generation: 0,
            egress: (self.word & STAMP_EGRESS != 0) as u32,
            ingress: (self.word & STAMP_INGRESS != 0) as u32,
            stamp: (self.word >> 32) as u32,
            flags: (self.word as u32 >> STAMP_FLAGS) & 0xff,
        })
    }
}
