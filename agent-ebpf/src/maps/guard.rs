//! Define the maps of guarded ports: compiled policies, and connections.
//!
//! Policies say what may pass; the connections are those that they let pass.
#![expect(
    unsafe_code,
    reason = "map values are reached through pointers the kernel hands out"
)]

use agent_common::addr::{Ip16, MacAddr};
use agent_common::endpoint::Endpoint;
use agent_common::guard::{
    self, AtomKey, BUDGETS, Classes, FlowKey, FlowWords, Fragment, FragmentKey, FragmentTables,
    Guard, GuardTables, PaddedGuard, Passage, Row, RowKey, Secret, SetKey, Slot, Stamp,
};
use agent_common::map as size;
use agent_common::policy::Tables;
use agent_common::route::Route;
use agent_common::seal::SealedGuard;
use aya_ebpf::helpers::{bpf_jiffies64, bpf_ktime_get_ns};
use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, HashMap, LpmTrie, LruHashMap, PerCpuArray, lpm_trie};

use super::sealed::copy;
use super::{NO_PREALLOC, NodeTables, flows};

#[map]
static GUARDS: HashMap<u32, SealedGuard> = HashMap::pinned(size::MAX_GUARDS, NO_PREALLOC);
#[map]
static ATOMS: HashMap<AtomKey, u32> = HashMap::pinned(size::MAX_ATOMS, NO_PREALLOC);
#[map]
static BLOCKS: LpmTrie<AtomKey, u32> = LpmTrie::pinned(size::MAX_BLOCKS, 0);
#[map]
static CLASSES: HashMap<u32, Classes> = HashMap::pinned(size::MAX_GENERATIONS, NO_PREALLOC);
#[map]
static SETS: HashMap<SetKey, u32> = HashMap::pinned(size::MAX_SET_ROWS, NO_PREALLOC);
#[map]
static ROWS: HashMap<RowKey, Row> = HashMap::pinned(size::MAX_ROWS, NO_PREALLOC);
#[map]
pub(super) static FRAGMENTS: LruHashMap<FragmentKey, Fragment> =
    LruHashMap::pinned(size::MAX_FRAGMENTS, 0);
#[map]
static FLOW_BUDGETS: Array<u64> = Array::pinned(BUDGETS, 0);
#[map]
static SWITCH_FLOWS: Array<Slot> = Array::pinned(size::MAX_SWITCH_FLOWS, MMAPABLE);
/// The sets' stamps, for programs: no other process has it in its memory.
#[map]
static STAMPS: Array<Stamp> = Array::pinned(size::MAX_PORTS, 0);
/// No program reads it: the agent writes it for the switch.
#[map]
static SWITCH_STAMPS: Array<Stamp> = Array::pinned(size::MAX_PORTS, MMAPABLE);

/// `BPF_F_MMAPABLE` (linux/bpf.h): processes may have the map in their memory.
const MMAPABLE: u32 = 1 << 10;

/// The passage of each CPU.
///
/// As the scratch, but for the clock and the connection of the packet before, which stay.
#[map]
static PASSAGE: PerCpuArray<Passage> = PerCpuArray::with_max_entries(1, 0);

/// The tables of the node, and those of guarded ports.
pub(crate) struct GuardedTables {
    tables: NodeTables,
    now: u64,
}

impl GuardedTables {
    /// Tables of a port, at this tick of the kernel's timer.
    #[inline(always)]
    pub(crate) fn new(home: u32, passage: &mut Passage) -> Self {
        Self {
            tables: NodeTables { home },
            now: now(passage),
        }
    }
}

/// Reads the time, nanoseconds of `CLOCK_MONOTONIC`, once in a tick of the kernel.
///
/// The kernel's own count of its ticks is a word in memory; the clock takes longer than a look-up in virtual machines.
#[inline(always)]
pub(super) fn now(passage: &mut Passage) -> u64 {
    // SAFETY: no memory is involved.
    let jiffies = unsafe { bpf_jiffies64() };
    if passage.has_ticked(jiffies) {
        // SAFETY: as above.
        passage.clock.now_ns = unsafe { bpf_ktime_get_ns() };
    }
    passage.clock.now_ns
}

/// Returns a number of which the compiler knows nothing.
///
/// It leaves out checks of an index that it knows to be within bounds; the verifier does not know that.
#[inline(always)]
pub(super) fn hidden(number: u32) -> u32 {
    // SAFETY: a value of ours.
    unsafe { (&raw const number).read_volatile() }
}

impl Tables for GuardedTables {
    #[inline(always)]
    fn is_further_address(&self, ip: &Ip16) -> bool {
        self.tables.is_further_address(ip)
    }

    #[inline(always)]
    fn endpoint(&self, network: u32, ip: &Ip16) -> Option<Endpoint> {
        self.tables.endpoint(network, ip)
    }

    #[inline(always)]
    fn route(&self, network: u32, ip: &Ip16) -> Option<Route> {
        self.tables.route(network, ip)
    }

    #[inline(always)]
    fn station(&self, network: u32, mac: MacAddr) -> Option<Endpoint> {
        self.tables.station(network, mac)
    }
}

impl FragmentTables for GuardedTables {
    #[inline(always)]
    fn fragment(&self, key: &FragmentKey) -> Option<Fragment> {
        // SAFETY: as in `atom_of_member`.
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

impl GuardTables for GuardedTables {
    /// A place in an array takes a tenth of a look-up in `GUARDS`.
    #[inline(always)]
    fn guard(&self, port_id: u16) -> Guard {
        if let Some(stamp) = STAMPS.get_ptr(u32::from(port_id)) {
            // SAFETY: two aligned words, which show by themselves whether they belong together.
            let stamp = unsafe {
                Stamp {
                    word: (&raw const (*stamp).word).read_volatile(),
                    complement: (&raw const (*stamp).complement).read_volatile(),
                }
            };
            if let Some(guard) = stamp.guard() {
                return guard;
            }
        }
        self.sets(port_id)
    }

    #[inline(always)]
    fn sets(&self, port_id: u16) -> Guard {
        let key = u32::from(port_id);
        let mut words = [0; 3];
        // SAFETY: as many words as a value has without its seal.
        if unsafe { copy::<_, _, 3>(&GUARDS, &key, words.as_mut_ptr()) } {
            let padded: PaddedGuard = zerocopy::transmute!(words);
            return padded.guard;
        }
        match GUARDS.get_ptr(key) {
            // None of its own words were to be read in two looks.
            Some(_) => Guard::CLOSED,
            None => Guard::default(),
        }
    }

    #[inline(always)]
    fn atom_of_member(&self, generation: u32, ip: &Ip16) -> Option<u32> {
        // SAFETY: one word, or some of a generation. These go a second after it was in force, but for members that go.
        unsafe {
            ATOMS.get(AtomKey {
                generation,
                ip: *ip,
            })
        }
        .copied()
    }

    #[inline(always)]
    fn atom_of_block(&self, generation: u32, ip: &Ip16) -> Option<u32> {
        let key = AtomKey {
            generation,
            ip: *ip,
        };
        BLOCKS
            .get(lpm_trie::Key::new(size_of::<AtomKey>() as u32 * 8, key))
            .copied()
    }

    #[inline(always)]
    fn class(&self, generation: u32, protocol: u32, port: u16) -> Option<u32> {
        // SAFETY: as in `atom_of_member`.
        unsafe { CLASSES.get(generation) }?.class_by(protocol, port, hidden)
    }

    #[inline(always)]
    fn row(&self, generation: u32, set: u32, atom: u32) -> Option<u32> {
        let key = SetKey {
            generation,
            set,
            atom,
        };
        // SAFETY: as in `atom_of_member`.
        unsafe { SETS.get(key) }.copied()
    }

    #[inline(always)]
    fn word(&self, generation: u32, row: u32, word: u32) -> u32 {
        let word = hidden(word);
        // SAFETY: as in `atom_of_member`.
        let row = unsafe { ROWS.get(RowKey { generation, row }) };
        let word = row.and_then(|row| row.words.get(word as usize));
        word.copied().unwrap_or(0)
    }

    #[inline(always)]
    fn seek(&self, key: &FlowKey) {
        flows::seek(key);
    }

    #[inline(always)]
    fn flow(&self, key: &FlowKey, words: &mut FlowWords) -> bool {
        flows::find(key, words)
    }

    #[inline(always)]
    fn note(&self, was: &FlowWords, is: &FlowWords) {
        flows::note(was, is);
    }

    #[inline(always)]
    fn tell(&self, _: &FlowKey, flags: u32) -> bool {
        flows::tell(flags)
    }

    #[inline(always)]
    fn open(&self, key: &FlowKey, words: &FlowWords) -> bool {
        flows::open(key, words)
    }

    #[inline(always)]
    fn pay(&self, budget: u32) -> bool {
        let Some(paid_until) = FLOW_BUDGETS.get_ptr_mut(budget) else {
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

/// Shows the switch a connection, with the words that let a packet of it pass.
#[inline(always)]
pub(crate) fn publish(key: &FlowKey, words: &FlowWords) {
    let (Some(low), Some(high)) = (SWITCH_FLOWS.get_ptr(0), SWITCH_FLOWS.get_ptr(1)) else {
        return;
    };
    // SAFETY: slots of 64 bytes are 8 words of 64 bits each, and lie as those do.
    let secret = unsafe {
        Secret {
            low: &*low.cast::<[u64; 8]>(),
            high: &*high.cast::<[u64; 8]>(),
        }
    };
    let sum = secret.sum(key);
    let Some(slot) = SWITCH_FLOWS.get_ptr_mut(Secret::place(sum)) else {
        return;
    };
    // SAFETY: as above. Another CPU may write the same slot: the tag of such a mixture is wrong.
    unsafe {
        (*slot).key = *key;
        (*slot).flow = *words;
        (*slot).tag = secret.tag(sum, words);
    }
}

/// Returns the passage of this CPU. A program asks for it once.
#[inline(always)]
pub(crate) fn passage() -> Option<&'static mut Passage> {
    // SAFETY: as in `scratch`.
    unsafe { PASSAGE.get_ptr_mut(0).map(|passage| &mut *passage) }
}
