//! Define the table of connections that policies let pass.
//!
//! Entries are read and written word by word, without a lock: each word shows whose it is
//! ([`FlowBucket`]).
#![expect(
    unsafe_code,
    reason = "map values are reached through pointers the kernel hands out"
)]

use agent_common::guard::{FlowBucket, FlowEntry, FlowKey, FlowPlace, FlowWords, Secret, WAYS};
use agent_common::map as size;
use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, PerCpuArray};

use super::guard::hidden;

#[map]
static FLOWS: Array<FlowBucket> = Array::pinned(size::FLOW_BUCKETS, 0);
/// Numbers that are secret: no pod knows which connections share a bucket.
#[map]
static FLOW_SECRET: Array<[[u64; 8]; 2]> = Array::pinned(1, 0);

/// The place that was sought last.
///
/// As the passage: what a program of this CPU is about.
#[map]
static SOUGHT: PerCpuArray<Sought> = PerCpuArray::with_max_entries(1, 0);

/// A place that was sought, and the entry that was found in its bucket.
struct Sought {
    place: FlowPlace,
    way: u64,
}

/// An entry.
#[derive(Clone, Copy)]
struct At {
    state: *mut u64,
    entry: *mut FlowEntry,
}

impl At {
    /// An entry of a bucket.
    #[inline(always)]
    fn of(bucket: *mut FlowBucket, way: u64) -> Self {
        let way = (way & (WAYS - 1)) as usize;
        // SAFETY: the bucket is a whole value of the map, and the place is in it.
        unsafe {
            Self {
                state: (&raw mut (*bucket).states).cast::<u64>().add(way),
                entry: (&raw mut (*bucket).entries).cast::<FlowEntry>().add(way),
            }
        }
    }
}

/// Reads the state of an entry.
#[inline(always)]
fn state(bucket: *mut FlowBucket, way: u64) -> u64 {
    // SAFETY: an aligned word within a value of the map, which may change at any time.
    unsafe { At::of(bucket, way).state.read_volatile() }
}

#[inline(always)]
fn sought() -> Option<&'static mut Sought> {
    // SAFETY: programs that judge do not interrupt each other on a CPU, as bottom halves are off in all of them, and one asks
    // for it at one place at a time.
    unsafe { SOUGHT.get_ptr_mut(0).map(|sought| &mut *sought) }
}

/// Finds the bucket of a connection.
#[inline(always)]
pub(super) fn seek(key: &FlowKey) {
    let (Some(secret), Some(sought)) = (FLOW_SECRET.get_ptr(0), sought()) else {
        return;
    };
    // SAFETY: a reference of ours. The compiler, which does not see that it is the same one, has words that were written
    // just now read once more: it would keep all of them on the stack.
    let key = unsafe { (&raw const key).read_volatile() };
    // SAFETY: the agent writes it once, before there is any program.
    let [low, high] = unsafe { &*secret };
    sought.place = FlowPlace::of(&Secret { low, high }, key);
}

/// Reads the entry of the connection that was sought; false when there is none.
#[inline(always)]
pub(super) fn find(key: &FlowKey, words: &mut FlowWords) -> bool {
    let Some(sought) = sought() else {
        return false;
    };
    let place = sought.place;
    let Some(bucket) = FLOWS.get_ptr_mut(place.bucket()) else {
        return false;
    };
    let way = place.find(hidden(0).into(), |way| state(bucket, way));
    if way >= WAYS {
        return false;
    }
    sought.way = way;
    let at = At::of(bucket, way);
    // SAFETY: plain words within a value of the map. They may change at any time; what is of another connection
    // by then has another tag, which is read last.
    let (state, stamps) = unsafe {
        if !(*at.entry).key.same(key) {
            return false;
        }
        let stamps = (&raw const (*at.entry).stamps).read_volatile();
        (at.state.read_volatile(), stamps)
    };
    let found = place.words(state, stamps);
    if let Some(found) = found {
        *words = found;
    }
    found.is_some()
}

/// Notes what has changed of the entry that was found.
///
/// Words that stay are not written: two CPUs share the line.
#[inline(always)]
pub(super) fn note(was: &FlowWords, is: &FlowWords) {
    let Some(&mut Sought { place, way }) = sought() else {
        return;
    };
    let Some(bucket) = FLOWS.get_ptr_mut(place.bucket()) else {
        return;
    };
    let at = At::of(bucket, way);
    let (stamps, state) = (place.stamps(is), place.state(is));
    // SAFETY: aligned words within a value of the map. To a connection that has the place by now, a state with this tag
    // and stamps of this place are none.
    unsafe {
        if !place.is_of(at.state.read_volatile()) {
            return;
        }
        if place.stamps(was) != stamps {
            (&raw mut (*at.entry).stamps).write_volatile(stamps);
        }
        if place.state(was) != state {
            at.state.write_volatile(state);
        }
    }
}

/// Adds flags to the entry that was noted or opened last.
///
/// False when they cannot be added to it. Another CPU may have changed it since, so it is read once more.
#[inline(always)]
pub(super) fn tell(flags: u32) -> bool {
    let Some(&mut Sought { place, way }) = sought() else {
        return false;
    };
    let Some(bucket) = FLOWS.get_ptr_mut(place.bucket()) else {
        return false;
    };
    let at = At::of(bucket, way);
    // SAFETY: as in `note`.
    unsafe {
        let state = at.state.read_volatile();
        let told = place.told(state, flags);
        if told != 0 && told != state {
            at.state.write_volatile(told);
        }
        told != 0
    }
}

/// Writes the entry of the connection that was sought.
#[inline(always)]
pub(super) fn open(key: &FlowKey, words: &FlowWords) -> bool {
    let Some(sought) = sought() else {
        return false;
    };
    let place = sought.place;
    let Some(bucket) = FLOWS.get_ptr_mut(place.bucket()) else {
        return false;
    };
    let way = place.room(words.seen, hidden(0).into(), |way| state(bucket, way));
    sought.way = way;
    let at = At::of(bucket, way);
    // SAFETY: as in `note`. It is nobody's while its words change.
    unsafe {
        at.state.write_volatile(0);
        (*at.entry).key = *key;
        (&raw mut (*at.entry).stamps).write_volatile(place.stamps(words));
        at.state.write_volatile(place.state(words));
    }
    true
}
