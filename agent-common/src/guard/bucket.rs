//! `FLOWS`: a table of connections in which each entry shows by itself whose it is.
//!
//! The kernel's LRU maps let programs hold a pointer to an entry that has become another connection's, and clear room under
//! a lock, 128 entries at a time. Here an entry has a place in one bucket, and takes that of the entry which is missed
//! least. All words that change carry a part of a keyed sum of the entry's key: a word of another connection is none.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::flow::{
    FLOW_ANSWERED, FLOW_DENIED, FLOW_FIN_HIGH, FLOW_FIN_LOW, FLOW_FLAGS, FLOW_RESET, FLOW_TCP,
    FlowKey, FlowWords, ticks_since,
};
use super::switched::Sum;
use crate::map::FLOW_BUCKETS;

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
    /// Both stamps, as [`Sum::stamps`] packs them.
    pub stamps: u64,
}

const _: () = assert!(size_of::<FlowEntry>() == 56);

/// A bucket of connections, in `FLOWS` by [`Sum::bucket`].
///
/// *Written by* the programs of guarded networks, word by word. *Read by* them, and by the agent. *Lifetime*: entries stay
/// until others take their place, and are none when they are no more [alive](FlowWords::is_alive).
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct FlowBucket {
    /// Time and flags of each entry, as [`Sum::state`] packs them; 0 for none.
    pub states: [u64; 8],
    /// The entries.
    pub entries: [FlowEntry; 8],
}

const _: () = assert!(size_of::<FlowBucket>() == 512);

/// Bits of a bucket's number, the highest ones of a sum.
const BUCKET_BITS: u32 = FLOW_BUCKETS.trailing_zeros();
const _: () = assert!(FLOW_BUCKETS.is_power_of_two());
/// Place of the tag in a state: 24 bits of the sum, above the flags.
const TAG: u32 = 40;
/// Place of the flags in a state, above the time.
const FLAGS: u32 = 32;

impl Sum {
    /// The bucket of its key.
    #[inline(always)]
    pub const fn bucket(self) -> u32 {
        (self.0 >> (u64::BITS - BUCKET_BITS)) as u32
    }

    /// The tag of its key, at its place in a state.
    #[inline(always)]
    const fn tag(self) -> u64 {
        self.0 << BUCKET_BITS >> TAG << TAG
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

    /// 1 for a state with the tag of its key, else 0.
    #[inline(always)]
    const fn matches(self, state: u64) -> u64 {
        let other = (state ^ self.tag()) >> TAG;
        // The first bit above those of a tag is set unless all of these are 0.
        (other + 0xff_ffff) >> 24 & 1 ^ 1
    }

    /// The first entry of a bucket with the tag of its key; [`WAYS`] for none.
    ///
    /// Without branches, of which verifiers walk both ways. `first` is 0, in a way that a compiler does not see through: it
    /// would have eight of everything, and more of them at once than a program has room for.
    #[inline(always)]
    pub fn find(self, first: u64, state: impl Fn(u64) -> u64) -> u64 {
        let mut found = WAYS;
        let mut left = first;
        while left < WAYS {
            left += 1;
            let way = WAYS - left;
            let here = self.matches(state(way)).wrapping_neg();
            found = found & !here | way & here;
        }
        found
    }

    /// The entry of a bucket whose place a new one of its key takes.
    ///
    /// That of the key, else one that is free or over, else the one that is missed least. `first` is as in [`Self::find`].
    #[inline(always)]
    pub fn room(self, now: u32, first: u64, state: impl Fn(u64) -> u64) -> u64 {
        let (mut best, mut place) = (0_u64, 0);
        let mut way = first;
        while way < WAYS {
            let state = state(way);
            let score = spare(state, now) | self.matches(state) << 62;
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

/// Ticks after which nothing but an open connection of TCP is any more.
const SHORT: i64 = 112;
/// The same for open connections of TCP.
const LONG: i64 = 20_200;

/// Tells how little an entry is missed, the more the less.
///
/// First by what it is: free or over, then opened by one end alone or none any more, then kept by both ends. Last by its
/// age. So what one end opens, however much, takes no place of what two ends keep.
#[inline(always)]
fn spare(state: u64, now: u32) -> u64 {
    let bit = |flag: u32| (state >> FLAGS >> flag.trailing_zeros()) & 1;
    let over = bit(FLOW_RESET) | bit(FLOW_DENIED) | bit(FLOW_FIN_LOW) & bit(FLOW_FIN_HIGH);
    let kept = bit(FLOW_ANSWERED) & (over ^ 1);
    let open = kept & bit(FLOW_TCP);
    let age = i64::from(ticks_since(seen(state), now));
    let age = age & !(age >> 63);
    let limit = SHORT + (LONG - SHORT) * open.cast_signed();
    let is_over = (limit - age).cast_unsigned() >> 63;
    let is_free = 1 ^ (state | state.wrapping_neg()) >> 63;
    (1 + age.cast_unsigned()) | (kept ^ 1) << 40 | (is_over | is_free) << 41
}
