//! Define the maps of Services: their ports, backends, and connections.
#![expect(
    unsafe_code,
    reason = "map values are reached through pointers the kernel hands out"
)]

use agent_common::guard::{
    self, BUDGETS, FlowKey, FlowPlace, FlowWords, Fragment, FragmentKey, FragmentTables, Passage,
    Secret, WAYS,
};
use agent_common::map as size;
use agent_common::seal::{SealedBackend, SealedKept, SealedService, Stored as _};
use agent_common::service::{
    Backend, BackendKey, ClientKey, Found, Kept, MemberKey, Service, ServiceKey, ServiceTables,
    Target, Translation, TranslationBucket, Work,
};
use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, HashMap, LruHashMap, PerCpuArray};

use super::NO_PREALLOC;
use super::guard::{FRAGMENTS, hidden, now};
use super::sealed::copy;

#[map]
static SERVICES: HashMap<ServiceKey, SealedService> =
    HashMap::pinned(size::MAX_SERVICES, NO_PREALLOC);
#[map]
static BACKENDS: HashMap<BackendKey, SealedBackend> =
    HashMap::pinned(size::MAX_BACKENDS, NO_PREALLOC);
#[map]
static MEMBERS: HashMap<MemberKey, u32> = HashMap::pinned(size::MAX_BACKENDS, NO_PREALLOC);
#[map]
static AFFINITIES: LruHashMap<ClientKey, SealedKept> = LruHashMap::pinned(size::MAX_AFFINITIES, 0);
#[map]
static TRANSLATIONS: Array<TranslationBucket> = Array::pinned(size::FLOW_BUCKETS, 0);
/// Numbers that are secret.
///
/// No pod knows which connections share a bucket, or a backend.
#[map]
static SERVICE_SECRET: Array<[[u64; 8]; 2]> = Array::pinned(1, 0);
#[map]
static SERVICE_BUDGETS: Array<u64> = Array::pinned(BUDGETS / 2, 0);

/// The work of each CPU.
///
/// As the scratch: without a pin, and of no packet but one.
#[map]
static WORK: PerCpuArray<Work> = PerCpuArray::with_max_entries(1, 0);

/// Returns the work of this CPU. A program asks for it once.
#[inline(always)]
pub(crate) fn work() -> Option<&'static mut Work> {
    // SAFETY: as in `scratch`.
    unsafe { WORK.get_ptr_mut(0).map(|work| &mut *work) }
}

/// The tables of Services.
pub(crate) struct ServedTables {
    now: u64,
}

impl ServedTables {
    /// Tables at this tick of the kernel's timer.
    #[inline(always)]
    pub(crate) fn new(passage: &mut Passage) -> Self {
        Self { now: now(passage) }
    }
}

/// An entry.
#[derive(Clone, Copy)]
struct At {
    state: *mut u64,
    entry: *mut Translation,
}

impl At {
    /// An entry of a bucket.
    #[inline(always)]
    fn of(bucket: *mut TranslationBucket, way: u64) -> Self {
        let way = (way & (WAYS - 1)) as usize;
        // SAFETY: the bucket is a whole value of the map, and the place is in it.
        unsafe {
            Self {
                state: (&raw mut (*bucket).states).cast::<u64>().add(way),
                entry: (&raw mut (*bucket).entries).cast::<Translation>().add(way),
            }
        }
    }
}

/// Reads the state of an entry.
#[inline(always)]
fn state(bucket: *mut TranslationBucket, way: u64) -> u64 {
    // SAFETY: an aligned word within a value of the map, which may change at any time.
    unsafe { At::of(bucket, way).state.read_volatile() }
}

impl FragmentTables for ServedTables {
    #[inline(always)]
    fn fragment(&self, key: &FragmentKey) -> Option<Fragment> {
        // SAFETY: ports, or those of another packet in parts: what is translated by them is judged as any.
        unsafe { FRAGMENTS.get(key) }.copied()
    }

    #[inline(always)]
    fn keep_fragment(&self, key: &FragmentKey, first: &Fragment) {
        // Without memory the fragments that follow are dropped.
        let _ = FRAGMENTS.insert(key, first, 0);
    }

    #[inline(always)]
    fn now(&self) -> u32 {
        guard::tick(self.now)
    }
}

impl ServiceTables for ServedTables {
    #[inline(always)]
    fn service(&self, key: &ServiceKey, to: &mut Service) -> bool {
        // SAFETY: as many words as a value has without its seal.
        unsafe { copy::<_, _, 2>(&SERVICES, key, (&raw mut *to).cast()) }
    }

    #[inline(always)]
    fn backend(&self, key: &BackendKey, to: &mut Backend) -> bool {
        // SAFETY: as above.
        unsafe { copy::<_, _, 3>(&BACKENDS, key, (&raw mut *to).cast()) }
    }

    #[inline(always)]
    fn is_member(&self, key: &MemberKey) -> bool {
        MEMBERS.get_ptr(key).is_some()
    }

    #[inline(always)]
    fn kept(&self, key: &ClientKey, to: &mut Kept) -> bool {
        // SAFETY: plain words, which show whose they are.
        let Some(stored) = (unsafe { AFFINITIES.get(key) }) else {
            return false;
        };
        let [a, b, c, seal] = *stored;
        let words = [a, b, c, seal];
        match words.value(key) {
            Some(kept) => {
                *to = kept;
                true
            }
            None => false,
        }
    }

    #[inline(always)]
    fn keep(&self, key: &ClientKey, kept: &Kept) {
        // Without room the client's next connection is another backend's.
        let _ = AFFINITIES.insert(key, SealedKept::store(key, *kept), 0);
    }

    #[inline(always)]
    fn place(&self, key: &FlowKey) -> FlowPlace {
        let Some(secret) = SERVICE_SECRET.get_ptr(0) else {
            return FlowPlace::NOWHERE;
        };
        // SAFETY: as in `flows::seek`; the agent writes the secret once, before there is any program.
        unsafe {
            let key = (&raw const key).read_volatile();
            let [low, high] = &*secret;
            FlowPlace::of(&Secret { low, high }, key)
        }
    }

    #[inline(always)]
    fn find(&self, place: FlowPlace, key: &FlowKey, to: &mut Found) -> bool {
        let Some(bucket) = TRANSLATIONS.get_ptr_mut(place.bucket()) else {
            return false;
        };
        let way = place.find(hidden(0).into(), |way| state(bucket, way));
        if way >= WAYS {
            return false;
        }
        to.way = way;
        let at = At::of(bucket, way);
        // SAFETY: plain words within a value of the map. They may change at any time; a target that is another key's by then
        // has another seal, and the state is read last.
        let (seal, state) = unsafe {
            if !(*at.entry).key.same(key) {
                return false;
            }
            let target = &raw const (*at.entry).target;
            let (words, into) = (target.cast::<u64>(), (&raw mut to.target).cast::<u64>());
            for place in 0..3 {
                into.add(place).write(words.add(place).read_volatile());
            }
            let seal = (&raw const (*at.entry).seal).read_volatile();
            (seal, at.state.read_volatile())
        };
        let Some(words) = place.words(state, place.stamps(&FlowWords::NONE)) else {
            return false;
        };
        to.words = words;
        seal == Translation::seal(place, &to.target)
    }

    #[inline(always)]
    fn note(&self, place: FlowPlace, way: u64, words: &FlowWords) {
        let Some(bucket) = TRANSLATIONS.get_ptr_mut(place.bucket()) else {
            return;
        };
        let at = At::of(bucket, way);
        // SAFETY: as in `flows::note`.
        unsafe {
            if place.is_of(at.state.read_volatile()) {
                at.state.write_volatile(place.state(words));
            }
        }
    }

    #[inline(always)]
    fn open(&self, place: FlowPlace, key: &FlowKey, words: &FlowWords, target: &Target) {
        let Some(bucket) = TRANSLATIONS.get_ptr_mut(place.bucket()) else {
            return;
        };
        let way = place.room(words.seen, hidden(0).into(), |way| state(bucket, way));
        let at = At::of(bucket, way);
        // SAFETY: as in `flows::open`.
        unsafe {
            at.state.write_volatile(0);
            (*at.entry).key = *key;
            (*at.entry).target = *target;
            (&raw mut (*at.entry).seal).write_volatile(Translation::seal(place, target));
            at.state.write_volatile(place.state(words));
        }
    }

    #[inline(always)]
    fn zero(&self) -> u32 {
        hidden(0)
    }

    #[inline(always)]
    fn again<'a>(&self, work: &'a mut Work) -> &'a mut Work {
        // SAFETY: the caller's own reference, which it gives up.
        unsafe { &mut *(&raw const work).cast::<*mut Work>().read_volatile() }
    }

    #[inline(always)]
    fn pay(&self, port_id: u16) -> bool {
        let budget = u32::from(port_id) & (BUDGETS / 2 - 1);
        let Some(paid_until) = SERVICE_BUDGETS.get_ptr_mut(budget) else {
            return false;
        };
        // SAFETY: an aligned word; a race with another CPU lets a connection more pass.
        unsafe {
            match guard::take(*paid_until, self.now) {
                Some(next) => {
                    *paid_until = next;
                    true
                }
                None => false,
            }
        }
    }
}
