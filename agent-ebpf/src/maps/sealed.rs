//! Look up what says who is where, and believe no value of another key.
#![expect(
    unsafe_code,
    reason = "map values are reached through pointers the kernel hands out"
)]

use agent_common::addr::{Ip16, MacAddr};
use agent_common::endpoint::{ENDPOINT_REMOTE, Endpoint, EndpointKey, FdbKey};
use agent_common::map as size;
use agent_common::network::Network;
use agent_common::port::Port;
use agent_common::seal::{self, Key, SealedEndpoint, SealedNetwork, SealedPort};
use aya_ebpf::macros::map;
use aya_ebpf::maps::{HashMap, PerCpuArray};

use super::NO_PREALLOC;

#[map]
static PORTS: HashMap<u32, SealedPort> = HashMap::pinned(size::MAX_PORTS, 0);
#[map]
static FDB: HashMap<FdbKey, SealedEndpoint> = HashMap::pinned(size::MAX_FDB, NO_PREALLOC);
#[map]
static ENDPOINTS: HashMap<EndpointKey, SealedEndpoint> =
    HashMap::pinned(size::MAX_ENDPOINTS, NO_PREALLOC);
#[map]
static NETWORKS: HashMap<u32, SealedNetwork> = HashMap::pinned(size::MAX_NETWORKS, NO_PREALLOC);

/// The port that a program of this CPU looks at.
///
/// As the scratch: without a pin, and of no packet but one.
#[map]
static PORT: PerCpuArray<Port> = PerCpuArray::with_max_entries(1, 0);

/// The network that a program of this CPU looks at.
#[map]
static NETWORK: PerCpuArray<Network> = PerCpuArray::with_max_entries(1, 0);

/// Looks a value up, and copies its words; false when there is none.
///
/// One that is replaced meanwhile is looked up once more: the kernel has put the new one in front of it, where a
/// walk of its list may have been already.
///
/// # Safety
/// `to` has room for `N` words, and is aligned as they are. `S` is an array of `N` words and the seal.
#[inline(always)]
pub(super) unsafe fn copy<K: Key, S, const N: usize>(
    map: &HashMap<K, S>,
    key: &K,
    to: *mut u64,
) -> bool {
    const { assert!(size_of::<S>() == (N + 1) * size_of::<u64>()) };
    let share = key.share();
    for _ in 0..2 {
        let Some(from) = map.get_ptr(key) else {
            continue;
        };
        let from = from.cast::<u64>();
        let mut sum = share;
        for place in 0..N {
            // SAFETY: within the value, of which the words may change at any time, and within what the caller has.
            unsafe {
                let word = from.add(place).read_volatile();
                to.add(place).write(word);
                sum = seal::add(sum, place, word);
            }
        }
        // SAFETY: as above.
        if sum == unsafe { from.add(N).read_volatile() } {
            return true;
        }
    }
    false
}

/// Looks a port up.
///
/// It is this CPU's own copy, until the next port is looked up.
#[inline(always)]
pub(crate) fn port(ifindex: u32) -> Option<&'static Port> {
    let to = PORT.get_ptr_mut(0)?;
    // SAFETY: a per-CPU value of eight words, at an address that eight divides, as all values of maps are. Programs of one
    // hook do not interrupt each other on a CPU, and none uses a port after it has looked at another one.
    unsafe { copy::<_, _, 8>(&PORTS, &ifindex, to.cast()).then(|| &*to) }
}

/// Looks a network up.
///
/// It is this CPU's own copy, until the next network is looked up.
#[inline(always)]
pub(crate) fn network(number: u32) -> Option<&'static Network> {
    let to = NETWORK.get_ptr_mut(0)?;
    // SAFETY: as in `port`, with four words.
    unsafe { copy::<_, _, 4>(&NETWORKS, &number, to.cast()).then(|| &*to) }
}

/// An endpoint on a node that has no number.
///
/// Nothing reaches it, and it is nobody's.
const UNREADABLE: Endpoint = Endpoint {
    ifindex: 0,
    flags: ENDPOINT_REMOTE,
    mac: MacAddr([0; 6]),
    port_id: u16::MAX,
};

/// Looks an endpoint up.
///
/// One whose memory gets another's words in the nanoseconds of this is [`UNREADABLE`]: no endpoint would mean a free
/// address.
#[inline(always)]
fn take<K: Key>(map: &HashMap<K, SealedEndpoint>, key: &K) -> Option<Endpoint> {
    let from = map.get_ptr(key)?.cast::<u64>();
    // SAFETY: three words within the value, which may change at any time.
    let [first, second, sealed] = unsafe {
        [
            from.read_volatile(),
            from.add(1).read_volatile(),
            from.add(2).read_volatile(),
        ]
    };
    if seal::add(seal::add(key.share(), 0, first), 1, second) == sealed {
        Some(zerocopy::transmute!([first, second]))
    } else {
        Some(UNREADABLE)
    }
}

/// Finds a member of a network by its address.
#[inline(always)]
pub(super) fn endpoint(network: u32, ip: &Ip16) -> Option<Endpoint> {
    take(&ENDPOINTS, &EndpointKey { network, ip: *ip })
}

/// Finds a member of a network by its MAC address.
#[inline(always)]
pub(super) fn station(network: u32, mac: MacAddr) -> Option<Endpoint> {
    take(&FDB, &FdbKey::new(network, mac))
}
