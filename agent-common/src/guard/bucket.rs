//! `FLOWS`: a table of connections in which each entry shows by itself whose it is.
//!
//! The kernel's LRU maps let programs hold a pointer to an entry that has become another connection's, and clear room under
//! a lock, 128 entries at a time. Here an entry has a place in one bucket, and takes that of the entry which is missed
//! least. All words that change carry a part of a keyed hash of the entry's key: a word of another connection is none.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::flow::{
    FLOW_ANSWERED, FLOW_DENIED, FLOW_FIN_HIGH, FLOW_FIN_LOW, FLOW_FLAGS, FLOW_HIGH_OPENED,
    FLOW_RESET, FLOW_TCP, FlowKey, FlowWords,
};
use super::switched::Secret;
use crate::map::{FLOW_BUCKETS, MAX_FLOWS};

/// Entries of a bucket.
pub const WAYS: u64 = 8;

/// An entry of a bucket, without its state.
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct FlowEntry {
    /// Key of the connection.
    pub key: FlowKey,
    /// Zero.
    pub reserved: u32,
    /// Both stamps, as [`FlowPlace::stamps`] packs them.
    pub stamps: u64,
}

const _: () = assert!(size_of::<FlowEntry>() == 56);

/// A bucket of connections, in `FLOWS` by [`FlowPlace::bucket`].
///
/// *Written by* the programs of guarded networks, word by word. *Read by* them, and by the agent. *Lifetime*: entries stay
/// until others take their place, and are none when they are no more [alive](FlowWords::is_alive).
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct FlowBucket {
    /// Time and flags of each entry, as [`FlowPlace::state`] packs them; 0 for none.
    pub states: [u64; 8],
    /// The entries.
    pub entries: [FlowEntry; 8],
}

const _: () = assert!(size_of::<FlowBucket>() == 512);

/// Bits of a bucket's number, the highest ones of a hash.
const BUCKET_BITS: u32 = FLOW_BUCKETS.trailing_zeros();
const _: () =
    assert!(FLOW_BUCKETS.is_power_of_two() && FLOW_BUCKETS as u64 * WAYS == MAX_FLOWS as u64);
/// Place of the tag in a state: 24 bits above the flags.
///
/// 23 of them are of the hash.
const TAG: u32 = 40;
/// Place of the flags in a state, above the time.
const FLAGS: u32 = 32;

/// The place of a connection in `FLOWS`: a keyed hash of its key.
///
/// Its highest bits are the bucket, those behind them the tag, and all of them what stamps are masked with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowPlace(u64);

impl FlowPlace {
    /// That of no key, for programs that cannot find one.
    pub const NOWHERE: Self = Self(0);

    /// Finds the place of a key.
    ///
    /// Sums of keys that differ alike differ alike, whatever the secret. So the sum is mixed (Stafford, "Better bit mixing", 2011): what
    /// has shared a bucket does not tell what else will.
    #[inline(always)]
    pub fn of(secret: &Secret<'_>, key: &FlowKey) -> Self {
        let mut hash = secret.sum(key).0;
        hash = (hash ^ hash >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        Self(hash ^ hash >> 31)
    }

    /// The bucket of its key.
    #[inline(always)]
    pub const fn bucket(self) -> u32 {
        (self.0 >> (u64::BITS - BUCKET_BITS)) as u32
    }

    /// All bits of it.
    #[inline(always)]
    pub(crate) const fn sum(self) -> u64 {
        self.0
    }

    /// Its share of a number of places, from 0 to less than `count`.
    ///
    /// By the bits that tell nothing of the bucket.
    #[inline(always)]
    pub(crate) const fn share(self, count: u32) -> u32 {
        (((self.0 & 0xffff_ffff) * count as u64) >> 32) as u32
    }

    /// The tag of its key, where it is in a state.
    ///
    /// It is odd: that of no entry is 0.
    #[inline(always)]
    const fn tag(self) -> u64 {
        (self.0 << BUCKET_BITS >> TAG | 1) << TAG
    }

    /// The state of an entry of its key.
    #[inline(always)]
    pub const fn state(self, words: &FlowWords) -> u64 {
        self.tag() | ((words.flags & FLOW_FLAGS) as u64) << FLAGS | words.seen as u64
    }

    /// Both stamps of an entry of its key.
    #[inline(always)]
    pub const fn stamps(self, words: &FlowWords) -> u64 {
        ((words.egress as u64) << 32 | words.ingress as u64) ^ self.0
    }

    /// Unpacks both words of an entry.
    ///
    /// `None` for one that is free, or of another key.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "halves of words")]
    pub const fn words(self, state: u64, stamps: u64) -> Option<FlowWords> {
        let seen = seen(state);
        if seen == 0 || !self.is_of(state) {
            return None;
        }
        let stamps = stamps ^ self.0;
        Some(FlowWords {
            seen,
            flags: (state >> FLAGS) as u32 & FLOW_FLAGS,
            egress: (stamps >> 32) as u32,
            ingress: stamps as u32,
        })
    }

    /// Reports whether a state has the tag of its key.
    #[inline(always)]
    pub const fn is_of(self, state: u64) -> bool {
        (state ^ self.tag()) >> TAG == 0
    }

    /// The state of an entry of its key after a packet that tells it these flags.
    ///
    /// 0 for that of another key, for one that the other end has opened since, and for one that is denied.
    #[inline(always)]
    pub const fn told(self, state: u64, flags: u32) -> u64 {
        let had = (state >> FLAGS) as u32;
        if !self.is_of(state) || had & FLOW_DENIED | (had ^ flags) & FLOW_HIGH_OPENED != 0 {
            return 0;
        }
        state | ((flags & FLOW_FLAGS) as u64) << FLAGS
    }

    /// 1 for a state with the tag of its key, else 0.
    #[inline(always)]
    const fn matches(self, state: u64) -> u64 {
        let other = (state ^ self.tag()) >> TAG;
        // The first bit above those of a tag is set unless all of these are 0.
        (other + 0xff_ffff) >> 24 & 1 ^ 1
    }

    /// The first entry of a bucket with the tag of its key; [`WAYS`] for none.
    ///
    /// Verifiers walk both ways of a branch: what is found is no matter of branches. `zero` is 0, in a way that a compiler
    /// does not see through: it would have eight of everything, more of them at once than a program has room for, and
    /// branches.
    #[inline(always)]
    pub fn find(self, zero: u64, state: impl Fn(u64) -> u64) -> u64 {
        let mut found = WAYS;
        let mut way = zero & (WAYS - 1);
        while way < WAYS {
            // All ones for the first one with the tag: all others but WAYS are less than that.
            let here = (self.matches(state(way)) & found >> WAYS.trailing_zeros()).wrapping_neg();
            found = found & !here | way & here;
            way += 1;
        }
        found
    }

    /// The entry of a bucket whose place a new one of its key takes.
    ///
    /// The one that [`Self::find`] finds, else one that is free, else the one that is missed least. `zero` is as there.
    #[inline(always)]
    pub fn room(self, now: u32, zero: u64, state: impl Fn(u64) -> u64) -> u64 {
        let (mut best, mut place) = (0_u64, 0);
        let mut way = zero & (WAYS - 1);
        while way < WAYS {
            let state = state(way);
            let score = spare(state, now) | (self.matches(state) * (WAYS - way)) << 58;
            // All ones where it is more than the best one.
            let more = (best.cast_signed() - score.cast_signed()) >> 63;
            let more = more.cast_unsigned();
            best = best & !more | score & more;
            place = place & !more | way & more;
            way += 1;
        }
        place
    }
}

/// The time of a state, ticks.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the lower half")]
const fn seen(state: u64) -> u32 {
    state as u32
}

/// Tells how little an entry is missed, the more the less.
///
/// First goes what is free. Then, by age within each kind:
/// 1. what one end has opened alone, and what has ended;
/// 2. what both ends have used, but for TCP: they open it again sooner than that;
/// 3. connections of TCP that both ends keep, and those that a later policy denies: nothing else knows that they are
///    denied. And all of the first two in use: seen in this tick, those of the second in the last four.
///
/// What is over is old.
#[inline(always)]
fn spare(state: u64, now: u32) -> u64 {
    let bit = |flag: u32| (state >> FLAGS >> flag.trailing_zeros()) & 1;
    let ended = bit(FLOW_RESET) | bit(FLOW_FIN_LOW) & bit(FLOW_FIN_HIGH);
    let answered = bit(FLOW_ANSWERED) & (ended ^ 1);
    // From 1, as a processor may be a tick behind.
    let age = u64::from(now.wrapping_add(1).wrapping_sub(seen(state)));
    let in_use = age.wrapping_sub(2 + 3 * answered) >> 63 & (ended ^ 1);
    let third = bit(FLOW_DENIED) | in_use | answered & bit(FLOW_TCP);
    let second = third | answered;
    let is_free = 1 ^ (state | state.wrapping_neg()) >> 63;
    // At one age the lower kind goes.
    age << 1 | (answered ^ 1) | (second ^ 1) << 40 | (third ^ 1) << 41 | is_free << 42
}
