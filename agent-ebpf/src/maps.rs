//! Every map, behind functions that hand out copies.
#![expect(
    unsafe_code,
    reason = "map values are reached through pointers the kernel hands out"
)]

use core::ptr::{self, null_mut};

use agent_common::addr::{Ip16, MacAddr};
use agent_common::capture::{CAPTURE_LOST, CAPTURE_ON, FLOW_ON};
use agent_common::counter::{Count, NetworkDropKey, PortCounters, port_reason};
use agent_common::drop::DropReason;
use agent_common::endpoint::{Endpoint, EndpointKey};
use agent_common::event::{DropEvent, EVENT_HEAD, EVENT_INTERVAL_NS, EVENT_SAMPLED};
use agent_common::flood::{FloodKey, FloodPorts};
use agent_common::map as size;
use agent_common::policy::{Scratch, Tables};
use agent_common::port::PortAddressKey;
use agent_common::route::Route;
use agent_common::seal::SealedWire;
use agent_common::storm::{self, Buckets, Flood, StormBucket, StormLimits};
use agent_common::uplink::Uplink;
use agent_common::vtep::{FloodVteps, Vtep};
use agent_common::wire::{NextHop, WireKey, WireOwner};
use aya_ebpf::Global;
use aya_ebpf::helpers::{bpf_get_smp_processor_id, bpf_ktime_get_ns};
use aya_ebpf::macros::map;
use aya_ebpf::maps::{
    Array, HashMap, LpmTrie, LruHashMap, PerCpuArray, PerCpuHashMap, ProgramArray, RingBuf,
    lpm_trie,
};
use aya_ebpf::programs::{TcContext, XdpContext};

mod flows;
mod guard;
mod sealed;
mod services;

pub(crate) use self::guard::{GuardedTables, passage, publish};
pub(crate) use self::sealed::{network, port};
pub(crate) use self::services::{ServedTables, work};

/// `BPF_F_NO_PREALLOC`: entries take memory when they exist.
const NO_PREALLOC: u32 = 1;

#[map]
static ROOT: ProgramArray = ProgramArray::pinned(size::ROOT_SLOTS, 0);
#[map]
static ROOT_XDP: ProgramArray = ProgramArray::pinned(size::ROOT_XDP_SLOTS, 0);
#[map]
static ROOT_MISSES: PerCpuArray<u64> = PerCpuArray::pinned(1, 0);

#[map]
static JUMP: ProgramArray = ProgramArray::pinned(size::JUMP_SLOTS, 0);
#[map]
static PORT_ADDRESSES: HashMap<PortAddressKey, u32> =
    HashMap::pinned(size::MAX_PORT_ADDRESSES, NO_PREALLOC);
#[map]
static FLOOD: HashMap<FloodKey, FloodPorts> = HashMap::pinned(size::MAX_FLOOD, NO_PREALLOC);
#[map]
static VTEPS: Array<Vtep> = Array::pinned(size::MAX_VTEPS, 0);
#[map]
static VTEP_SOURCES: HashMap<Ip16, u32> = HashMap::pinned(size::MAX_VTEPS, NO_PREALLOC);
#[map]
static UPLINKS: HashMap<u32, Uplink> = HashMap::pinned(size::MAX_UPLINKS, NO_PREALLOC);
#[map]
static OUTLETS: HashMap<u32, u32> = HashMap::pinned(size::MAX_OUTLETS, NO_PREALLOC);
#[map]
static FLOOD_VTEPS: HashMap<FloodKey, FloodVteps> =
    HashMap::pinned(size::MAX_FLOOD_VTEPS, NO_PREALLOC);
#[map]
static WIRES: HashMap<WireKey, SealedWire> = HashMap::pinned(size::MAX_WIRES, NO_PREALLOC);
#[map]
static NEXT_HOPS: HashMap<EndpointKey, NextHop> = HashMap::pinned(size::MAX_NEXT_HOPS, NO_PREALLOC);
#[map]
static ROUTES: LpmTrie<EndpointKey, Route> = LpmTrie::pinned(size::MAX_ROUTES, 0);
#[map]
static STORM: Array<StormBucket> = Array::pinned(size::MAX_PORTS, 0);
#[map]
static STORM_NETWORKS: LruHashMap<u32, StormBucket> = LruHashMap::pinned(size::MAX_NETWORKS, 0);
#[map]
static STORM_NODE: Array<StormBucket> = Array::pinned(1, 0);
#[map]
static STORM_LIMITS: Array<StormLimits> = Array::pinned(1, 0);
#[map]
static PORT_COUNTERS: PerCpuArray<PortCounters> = PerCpuArray::pinned(size::MAX_PORTS, 0);
#[map]
static PORT_REASONS: PerCpuHashMap<u32, u64> =
    PerCpuHashMap::pinned(size::MAX_PORT_REASONS, NO_PREALLOC);
#[map]
static DROPS: PerCpuArray<Count> = PerCpuArray::pinned(size::MAX_DROP_REASONS, 0);
#[map]
static NETWORK_DROPS: PerCpuHashMap<NetworkDropKey, Count> =
    PerCpuHashMap::pinned(size::MAX_NETWORK_DROPS, NO_PREALLOC);
#[map]
static EVENT_TIMES: PerCpuArray<u64> = PerCpuArray::pinned(size::MAX_DROP_REASONS, 0);
#[map]
static EVENTS: RingBuf = RingBuf::pinned(size::EVENTS_BYTES, 0);

/// The words of [`Ip16::NONE`]; never written.
#[unsafe(no_mangle)]
static ZEROES: Global<[u32; 4]> = Global::new([0; 4]);

/// The scratch of each CPU.
///
/// Without a pin, and so no part of the layout: it ends with the packet.
#[map]
static SCRATCH: PerCpuArray<Scratch> = PerCpuArray::with_max_entries(1, 0);

/// Ports under capture, by port id: `CAPTURE_ON`, and drops that were lost.
///
/// Without a pin: the next agent's programs have one of their own, in which no port is under capture.
#[map]
static CAPTURED: Array<u32> = Array::with_max_entries(size::MAX_PORTS, 0);

/// The interface at which this CPU's last frame was sampled; 0 if it was not.
///
/// Written by the taps of the flow log, just before the programs judge the frame, and read where one of a
/// marked port is dropped. Not part of the layout, as `CAPTURED`.
#[map]
static SAMPLED: PerCpuArray<u32> = PerCpuArray::with_max_entries(1, 0);

/// Returns the scratch of this CPU. A program asks for it once.
#[inline(always)]
pub(crate) fn scratch() -> Option<&'static mut Scratch> {
    // SAFETY: a per-CPU value, which is as large and aligned as its type; programs of one hook do not
    // interrupt each other on a CPU, and only one of those asks for it.
    unsafe { SCRATCH.get_ptr_mut(0).map(|scratch| &mut *scratch) }
}

/// Calls the program in `ROOT`; returns only when there is none.
#[inline(always)]
pub(crate) fn root(ctx: &TcContext, slot: u32) {
    // SAFETY: the context is the one this program was called with.
    unsafe { ROOT.tail_call(ctx, slot) }
}

/// Calls the program in `ROOT_XDP`; returns only when there is none.
#[inline(always)]
pub(crate) fn root_xdp(ctx: &XdpContext, slot: u32) {
    // SAFETY: the context is the one this program was called with.
    unsafe { ROOT_XDP.tail_call(ctx, slot) }
}

/// Calls the program in `JUMP`; returns only when there is none.
#[inline(always)]
pub(crate) fn jump(ctx: &TcContext, slot: u32) {
    // SAFETY: the context is the one this program was called with.
    unsafe { JUMP.tail_call(ctx, slot) }
}

#[inline(always)]
pub(crate) fn count_root_miss() {
    if let Some(count) = ROOT_MISSES.get_ptr_mut(0) {
        // SAFETY: a per-CPU value; programs of one hook do not interrupt each other on a CPU.
        unsafe { *count += 1 }
    }
}

#[inline(always)]
pub(crate) fn flood_ports(network: u32, chunk: u32) -> Option<&'static FloodPorts> {
    // SAFETY: plain words, of which any value is one; `is_flood_of` tells whose they were.
    unsafe { FLOOD.get(FloodKey { network, chunk }) }
}

/// Reads a word of a list, once.
#[inline(always)]
pub(crate) fn listed(word: &u32) -> u32 {
    // SAFETY: an aligned word, which another CPU may write.
    unsafe { ptr::from_ref(word).read_volatile() }
}

/// Reports whether a list of ports is the network's still.
///
/// Then it was so for what was read of it before.
#[inline(always)]
pub(crate) fn is_flood_of(ports: &FloodPorts, network: u32) -> bool {
    listed(&ports.network) == network && listed(&ports.network_again) == network
}

/// Returns the node with this number.
///
/// A number that no node has leads to no device: no packet gets there.
#[inline(always)]
pub(crate) fn vtep(number: u32) -> Option<&'static Vtep> {
    VTEPS.get(number)
}

/// Returns podnet's share in the packets of an interface.
#[inline(always)]
pub(crate) fn uplink(ifindex: u32) -> Option<&'static Uplink> {
    // SAFETY: plain words, of which any value is one; an entry of another interface or node leads to the same node's.
    unsafe { UPLINKS.get(ifindex) }
}

/// True for an interface by which networks with egress leave the node.
#[inline(always)]
pub(crate) fn is_outlet(ifindex: u32) -> bool {
    OUTLETS.get_ptr(ifindex).is_some()
}

/// The number of the node with this address on the underlay.
#[inline(always)]
pub(crate) fn vtep_of(address: &Ip16) -> Option<u32> {
    // SAFETY: as in `uplink`.
    unsafe { VTEP_SOURCES.get(address) }.copied()
}

#[inline(always)]
pub(crate) fn flood_vteps(network: u32, chunk: u32) -> Option<&'static FloodVteps> {
    // SAFETY: as in `uplink`.
    unsafe { FLOOD_VTEPS.get(FloodKey { network, chunk }) }
}

/// The network that has a share of an uplink.
///
/// An entry that goes while it is read is none.
#[inline(always)]
fn wire(key: &WireKey) -> Option<u32> {
    let mut word = [0; 1];
    // SAFETY: there is room for the one word.
    unsafe { sealed::copy::<_, _, 1>(&WIRES, key, word.as_mut_ptr()) }.then(|| {
        let WireOwner { network, .. } = zerocopy::transmute!(word);
        network
    })
}

/// The network that has this VLAN of an uplink.
#[inline(always)]
pub(crate) fn wire_segment(ifindex: u32, vlan: u16) -> Option<u32> {
    wire(&WireKey::segment(ifindex, vlan))
}

/// The network of the pod that an uplink brings packets for by this address.
#[inline(always)]
pub(crate) fn wire_address(ifindex: u32, ip: Ip16) -> Option<u32> {
    wire(&WireKey::address(ifindex, ip))
}

/// Returns the next hop to a member on another node.
#[inline(always)]
pub(crate) fn next_hop(network: u32, ip: &Ip16) -> Option<&'static NextHop> {
    // SAFETY: as in `uplink`.
    unsafe { NEXT_HOPS.get(EndpointKey { network, ip: *ip }) }
}

/// Reads [`Ip16::NONE`] from memory.
///
/// The compiler clears 16 bytes by a function with a stack of its own.
#[inline(always)]
fn zeroes() -> Ip16 {
    Ip16::from_words(ZEROES.load())
}

/// The tables of the node, as one port may use them.
pub(crate) struct NodeTables {
    /// The port's own interface, wherever its packet came in.
    pub(crate) home: u32,
}

impl Tables for NodeTables {
    #[inline(always)]
    fn is_further_address(&self, ip: &Ip16) -> bool {
        PORT_ADDRESSES
            .get_ptr(PortAddressKey {
                ifindex: self.home,
                ip: *ip,
            })
            .is_some()
    }

    #[inline(always)]
    fn endpoint(&self, network: u32, ip: &Ip16) -> Option<Endpoint> {
        sealed::endpoint(network, ip)
    }

    #[inline(always)]
    fn route(&self, network: u32, ip: &Ip16) -> Option<Route> {
        let key = EndpointKey { network, ip: *ip };
        ROUTES
            .get(lpm_trie::Key::new(size_of::<EndpointKey>() as u32 * 8, key))
            .copied()
    }

    #[inline(always)]
    fn way_out(&self, network: u32) -> Option<Endpoint> {
        self.endpoint(network, &zeroes())
    }

    #[inline(always)]
    fn station(&self, network: u32, mac: MacAddr) -> Option<Endpoint> {
        sealed::station(network, mac)
    }

    #[inline(always)]
    fn has_vlan(&self, number: u32, id: u16) -> bool {
        WIRES
            .get_ptr(WireKey {
                ip: zeroes(),
                ..WireKey::trunk(number, id)
            })
            .is_some()
    }

    #[inline(always)]
    fn has_subnet(&self, number: u32, first: &Ip16, length: u8) -> bool {
        WIRES
            .get_ptr(WireKey::subnet(number, *first, length))
            .is_some()
    }

    #[inline(always)]
    fn has_ether_type(&self, number: u32, ether_type: u16) -> bool {
        WIRES
            .get_ptr(WireKey {
                ip: zeroes(),
                ..WireKey::ether_type(number, ether_type)
            })
            .is_some()
    }
}

/// Takes the price of a frame that is to be replicated.
///
/// `port_id` is that of the port which sent it; none for a frame from elsewhere.
#[inline(always)]
pub(crate) fn may_flood(
    network: u32,
    port_id: Option<u16>,
    flood: Flood,
) -> Result<(), DropReason> {
    // SAFETY: no memory is involved.
    let now = unsafe { bpf_ktime_get_ns() };
    let limits = limits();
    // The first slot stands for no port: its bucket is looked at and not changed.
    let by_port = port_id.is_some();
    let index = u32::from(port_id.unwrap_or(0));
    let port = STORM.get_ptr_mut(index).ok_or(DropReason::Storm)?;
    let node = STORM_NODE.get_ptr_mut(0).ok_or(DropReason::StormNode)?;
    let known = STORM_NETWORKS.get_ptr_mut(network);
    // SAFETY: the values are aligned words; a race with another CPU lets a frame more pass.
    unsafe {
        let buckets = Buckets {
            port: *port,
            network: known.map_or(StormBucket::default(), |it| *it),
            node: *node,
        };
        let after = storm::admit(buckets, flood, by_port, limits, now)?;
        if by_port {
            *port = after.port;
        }
        *node = after.node;
        match known {
            Some(bucket) => *bucket = after.network,
            // There is always room: who floods least makes it.
            None => {
                let _ = STORM_NETWORKS.insert(network, after.network, 0);
            }
        }
    }
    Ok(())
}

/// Takes what telling a port about its packet costs.
#[inline(always)]
pub(crate) fn may_tell(port_id: u16) -> bool {
    // SAFETY: no memory is involved.
    let now = unsafe { bpf_ktime_get_ns() };
    let Some(bucket) = STORM.get_ptr_mut(u32::from(port_id)) else {
        return false;
    };
    // SAFETY: as in `may_flood`.
    unsafe {
        match storm::tell(*bucket, limits(), now) {
            Some(next) => {
                *bucket = next;
                true
            }
            None => false,
        }
    }
}

#[inline(always)]
fn limits() -> StormLimits {
    STORM_LIMITS.get(0).copied().unwrap_or(StormLimits::DEFAULT)
}

/// Which of a port's counters.
#[derive(Clone, Copy)]
pub(crate) enum PortCounter {
    FromPod,
    ToPod,
    Dropped,
    Flooded,
}

#[inline(always)]
pub(crate) fn count_port(port_id: u16, counter: PortCounter, packets: u32, bytes: u32) {
    let Some(counters) = PORT_COUNTERS.get_ptr_mut(u32::from(port_id)) else {
        return;
    };
    // SAFETY: as in `count_root_miss`.
    unsafe {
        let count = match counter {
            PortCounter::FromPod => &mut (*counters).from_pod,
            PortCounter::ToPod => &mut (*counters).to_pod,
            PortCounter::Dropped => &mut (*counters).dropped,
            PortCounter::Flooded => &mut (*counters).flooded,
        };
        count.packets += u64::from(packets);
        count.bytes += u64::from(bytes);
    }
}

/// Counts packets that a port had dropped, by reason.
///
/// Call it after [`count_port`], which says that some were.
#[inline(always)]
pub(crate) fn count_port_reason(port_id: u16, reason: DropReason, packets: u32) {
    let key = port_reason(port_id, reason);
    if let Some(count) = PORT_REASONS.get_ptr_mut(key) {
        // SAFETY: as in `count_root_miss`.
        unsafe { *count += u64::from(packets) }
    } else {
        // Without memory for it the reason is lost, not the drop.
        let _ = PORT_REASONS.insert(key, u64::from(packets), 0);
    }
}

#[inline(always)]
pub(crate) fn count_drop(network: u32, reason: DropReason, packets: u32, bytes: u32) {
    let add = Count {
        packets: u64::from(packets),
        bytes: u64::from(bytes),
    };
    if let Some(count) = DROPS.get_ptr_mut(reason as u32) {
        // SAFETY: as in `count_root_miss`.
        unsafe {
            (*count).packets += add.packets;
            (*count).bytes += add.bytes;
        }
    }
    let key = NetworkDropKey {
        network,
        reason: reason as u32,
    };
    if let Some(count) = NETWORK_DROPS.get_ptr_mut(key) {
        // SAFETY: as in `count_root_miss`.
        unsafe {
            (*count).packets += add.packets;
            (*count).bytes += add.bytes;
        }
    } else {
        // A full map costs the split by network, not the total above.
        let _ = NETWORK_DROPS.insert(key, add, 0);
    }
}

/// A packet of which the start can be published.
pub(crate) trait Sample {
    /// The interface it came in by.
    fn ifindex(&self) -> u32;

    /// Its length in bytes.
    fn whole_length(&self) -> u32;

    /// Copies the first bytes of the packet to `to`, and returns their number.
    ///
    /// 64, or at least all the bytes of a shorter frame.
    ///
    /// # Safety
    /// 64 bytes at `to` are the caller's to write.
    unsafe fn copy_head(&self, to: *mut u8) -> u32;
}

/// Returns the entry of a port with a mark; null for others.
///
/// No `Option`: without an entry the compiler moves its other half, which was never set, and verifiers refuse
/// that.
#[inline(always)]
pub(crate) fn captured(port_id: u16) -> *mut u32 {
    match CAPTURED.get_ptr_mut(u32::from(port_id)) {
        // SAFETY: an aligned word of the map.
        Some(entry) if unsafe { entry.read() } != 0 => entry,
        Some(_) | None => null_mut(),
    }
}

/// Returns [`EVENT_SAMPLED`] for a frame that was sampled, else 0.
///
/// It is the last frame of this CPU, at this interface.
/// `captured` is the entry of its port. Once for a frame.
#[inline(always)]
pub(crate) fn take_sampled(captured: *mut u32, ifindex: u32) -> u32 {
    // SAFETY: an aligned word of the map.
    if unsafe { captured.read() } & FLOW_ON == 0 {
        return 0;
    }
    let Some(sampled) = SAMPLED.get_ptr_mut(0) else {
        return 0;
    };
    // SAFETY: as in `count_root_miss`.
    unsafe {
        if *sampled != ifindex {
            return 0;
        }
        *sampled = 0;
    }
    EVENT_SAMPLED
}

/// True for the entry of a port of which every drop is published.
#[inline(always)]
pub(crate) fn is_captured(captured: *mut u32) -> bool {
    // SAFETY: an aligned word of the map.
    unsafe { captured.read() & CAPTURE_ON != 0 }
}

/// True when this CPU has published a drop for the same reason a moment ago.
///
/// Otherwise it is noted that one is published now.
#[inline(always)]
fn is_too_soon(reason: DropReason, now: u64) -> bool {
    let Some(last) = EVENT_TIMES.get_ptr_mut(reason as u32) else {
        return true;
    };
    // SAFETY: as in `count_root_miss`.
    unsafe {
        if now - *last < EVENT_INTERVAL_NS {
            return true;
        }
        *last = now;
    }
    false
}

/// Publishes the start of a dropped packet, unless one was a moment ago.
///
/// That is one for the same reason, on this CPU. With an entry of its port the drop is published: of a port
/// under capture, or of a frame that the flow log has sampled, for which `sampled` is [`EVENT_SAMPLED`].
#[inline(always)]
pub(crate) fn publish_drop<S: Sample>(
    packet: &S,
    network: u32,
    captured: *mut u32,
    sampled: u32,
    reason: DropReason,
) {
    // SAFETY: no memory is involved.
    let now = unsafe { bpf_ktime_get_ns() };
    if captured.is_null() && is_too_soon(reason, now) {
        return;
    }
    let Some(mut entry) = EVENTS.reserve::<DropEvent>(0) else {
        if !captured.is_null() {
            // SAFETY: an aligned word of the map; of two CPUs that lose one at once, one is counted, and
            // whether any was lost is all that is read.
            unsafe { *captured += CAPTURE_LOST }
        }
        return;
    };
    // SAFETY: no memory is involved.
    let cpu = unsafe { bpf_get_smp_processor_id() };
    let event = entry.as_mut_ptr();
    // SAFETY: the entry is ours until it is submitted, is as large as `DropEvent`, and every one of
    // its bytes is written here. `head` is 8-byte aligned; written in place, because a copy of it
    // does not fit the stack of the programs that drop.
    unsafe {
        (*event).time_ns = now;
        (*event).ifindex = packet.ifindex();
        (*event).network = network;
        (*event).reason = reason as u32;
        (*event).length = packet.whole_length();
        (*event).reserved = if captured.is_null() {
            0
        } else {
            (cpu + 1) | sampled
        };
        let words = (*event).head.as_mut_ptr().cast::<u64>();
        for index in 0..EVENT_HEAD / 8 {
            words.add(index).write_volatile(0);
        }
        (*event).head_length = packet.copy_head((*event).head.as_mut_ptr());
    }
    entry.submit(0);
}
