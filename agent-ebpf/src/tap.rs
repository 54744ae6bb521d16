//! `podnet-tap`: socket filters that show frames of one port.
//!
//! A capture sees all of them, the flow log one of many.
//!
//! An object of its own, loaded for a capture or for a port of the flow log and gone with the sockets that it
//! is attached to: the node's programs have no instruction for packets that are not dropped. A packet socket has the frame as the
//! interface has it: before the node's programs at the host end, behind `bpf_redirect_peer` at the pod's.
#![no_std]
#![no_main]
#![expect(
    clippy::cast_possible_truncation,
    reason = "packet lengths fit into 16 bits, and the kernel's fields are 32 bits wide"
)]
#![expect(
    clippy::needless_pass_by_value,
    reason = "the macro that makes entry points hands the context over"
)]
#![expect(
    missing_docs,
    reason = "the macro that makes entry points drops their documentation"
)]
#![expect(
    unreachable_pub,
    reason = "the macro keeps the visibility it is given, and entry points are exported"
)]
#![expect(
    unsafe_code,
    reason = "fields of __sk_buff and the clock have no safe wrapper"
)]

use agent_common::capture::{
    FLOW_HEAD, FLOW_RING_BYTES, FlowRecord, TAP_FROM_POD, TAP_TAGGED, TAP_TO_POD, TapRecord,
};
use agent_common::packet::{ETH_HLEN, ETH_P_IP, ETH_P_IPV6, IPPROTO_TCP, IPV6_HLEN, L3, UDP_HLEN};
use agent_common::segments;
use aya_ebpf::Global;
use aya_ebpf::helpers::{
    bpf_get_prandom_u32, bpf_get_smp_processor_id, bpf_ktime_get_ns, bpf_skb_load_bytes,
};
use aya_ebpf::macros::{map, socket_filter};
use aya_ebpf::maps::{PerCpuArray, PerfEventByteArray, RingBuf};
use aya_ebpf::programs::SkBuffContext;
use zerocopy::IntoBytes as _;

/// `PACKET_OUTGOING` (linux/if_packet.h).
const PACKET_OUTGOING: u32 = 4;
/// The socket itself gets nothing: it is not read.
const DROP: i64 = 0;

/// Bytes of a frame that are copied; the loader sets it.
#[unsafe(no_mangle)]
static SNAPLEN: Global<u32> = Global::new(0);

/// Records, by CPU.
#[map]
static FRAMES: PerfEventByteArray = PerfEventByteArray::new(0);

/// `BPF_RB_NO_WAKEUP`: the agent looks by itself.
///
/// A sample costs the packet no wakeup.
const NO_WAKEUP: u64 = 1;
/// Lengths of the heads that are copied, bytes.
///
/// As much as the record has, headers of UDP in IPv6, of TCP and ARP, a frame without a packet.
const HEADS: [u32; 5] = [96, 62, 54, 42, 14];
const _: () = assert!(HEADS[0] as usize == FLOW_HEAD);

/// Random numbers up to this one choose a frame; the loader sets it.
#[unsafe(no_mangle)]
static THRESHOLD: Global<u32> = Global::new(0);

/// Samples of one port; frames of another port take no room in it.
#[map]
static FLOWS: RingBuf = RingBuf::with_byte_size(FLOW_RING_BYTES, 0);

/// Samples that found no room in the ring.
#[map]
static FLOWS_LOST: PerCpuArray<u64> = PerCpuArray::with_max_entries(1, 0);

/// The interface at which this CPU's last frame was sampled.
///
/// It is the map of the node's programs where the loader says so.
#[map]
static SAMPLED: PerCpuArray<u32> = PerCpuArray::with_max_entries(1, 0);

/// Samples the frames that a pod has sent, at the host end of a veth.
#[socket_filter]
#[inline(always)]
pub fn flow_host_end(ctx: SkBuffContext) -> i64 {
    if !is_outgoing(&ctx) {
        sample(&ctx, TAP_FROM_POD);
    }
    DROP
}

/// Samples the frames that come to a pod, by all ways, at the pod's end of a veth.
#[socket_filter]
#[inline(always)]
pub fn flow_pod_end(ctx: SkBuffContext) -> i64 {
    if !is_outgoing(&ctx) {
        sample(&ctx, TAP_TO_POD);
    }
    DROP
}

/// Samples both directions, at the node's interface of a port that is a socket.
#[socket_filter]
#[inline(always)]
pub fn flow_both(ctx: SkBuffContext) -> i64 {
    sample(&ctx, direction(&ctx));
    DROP
}

/// Samples a frame or not, and has the programs that judge it next know that.
#[inline(always)]
fn sample(ctx: &SkBuffContext, direction: u32) {
    // SAFETY: no memory is involved.
    let chosen = unsafe { bpf_get_prandom_u32() } <= THRESHOLD.load();
    let sampled = chosen && record(ctx, direction);
    if direction == TAP_FROM_POD
        && let Some(word) = SAMPLED.get_ptr_mut(0)
    {
        // SAFETY: a field of the context, and an aligned word of this CPU; programs that write or read it
        // run in softirqs, which do not nest.
        unsafe {
            *word = if sampled { (*ctx.skb.skb).ifindex } else { 0 };
        }
    }
}

/// Writes a sample; false when the ring has no room.
#[inline(always)]
fn record(ctx: &SkBuffContext, direction: u32) -> bool {
    let Some(mut entry) = FLOWS.reserve::<FlowRecord>(0) else {
        if let Some(lost) = FLOWS_LOST.get_ptr_mut(0) {
            // SAFETY: as in `sample`.
            unsafe { *lost += 1 }
        }
        return false;
    };
    let record = entry.as_mut_ptr();
    // SAFETY: the entry is ours until it is submitted and as large as `FlowRecord`, and every one of its bytes
    // is written here, in place: a copy of it would take the stack. `head` is 8-byte aligned.
    unsafe {
        let skb = ctx.skb.skb;
        (*record).tap.time_ns = bpf_ktime_get_ns();
        (*record).tap.length = ctx.len();
        (*record).tap.tag = tag(ctx);
        (*record).tap.tag_type = tag_type(ctx);
        (*record).tap.direction = direction;
        (*record).tap.reserved = 0;
        (*record).cpu = bpf_get_smp_processor_id();
        (*record).segments = segments(ctx);
        let head = (*record).head.as_mut_ptr();
        for index in 0..FLOW_HEAD / 8 {
            head.cast::<u64>().add(index).write_volatile(0);
        }
        let mut captured = 0;
        for length in HEADS {
            if bpf_skb_load_bytes(skb.cast(), 0, head.cast(), length) == 0 {
                captured = length;
                break;
            }
        }
        (*record).tap.captured = captured;
    }
    entry.submit(NO_WAKEUP);
    true
}

/// How many packets a frame is on a wire, 0 for one that is not cut.
#[inline(always)]
fn segments(ctx: &SkBuffContext) -> u32 {
    // SAFETY: fields of the context that the program was called with.
    let (count, size) = unsafe { ((*ctx.skb.skb).gso_segs, (*ctx.skb.skb).gso_size) };
    if count != 0 || size == 0 {
        return count;
    }
    // The kernel does not count those of headers that a program has written.
    segments::behind(ctx.len(), headers(ctx).unwrap_or(u32::MAX), size)
}

/// Returns the bytes before the payload of a frame of TCP or UDP.
#[inline(always)]
fn headers(ctx: &SkBuffContext) -> Option<u32> {
    let (transport, protocol) = match u16::from_be_bytes(bytes(ctx, ETH_HLEN - 2)?) {
        ETH_P_IP => {
            let [first, _, _, _, _, _, _, _, _, protocol] = bytes::<10>(ctx, L3)?;
            (L3 + (first & 0x0f) as usize * 4, protocol)
        }
        ETH_P_IPV6 => {
            let [next] = bytes::<1>(ctx, L3 + 6)?;
            (L3 + IPV6_HLEN, next)
        }
        _ => return None,
    };
    if protocol != IPPROTO_TCP {
        return Some((transport + UDP_HLEN) as u32);
    }
    // The data offset, in words.
    let [offset] = bytes::<1>(ctx, transport + 12)?;
    Some((transport + (offset >> 4) as usize * 4) as u32)
}

/// Reads `N` bytes of a frame.
#[inline(always)]
fn bytes<const N: usize>(ctx: &SkBuffContext, at: usize) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    // SAFETY: there is room for `N` bytes; the helper fills them all or fails.
    let failed = unsafe {
        let to = bytes.as_mut_ptr().cast();
        bpf_skb_load_bytes(ctx.skb.skb.cast(), at as u32, to, N as u32)
    };
    (failed == 0).then_some(bytes)
}

/// Returns the VLAN tag that the kernel keeps apart, with [`TAP_TAGGED`].
///
/// 0 for none.
#[inline(always)]
fn tag(ctx: &SkBuffContext) -> u32 {
    // SAFETY: fields of the context that the program was called with.
    unsafe {
        let skb = ctx.skb.skb;
        if (*skb).vlan_present == 0 {
            0
        } else {
            (*skb).vlan_tci | TAP_TAGGED
        }
    }
}

/// Returns the EtherType of that tag as a number.
///
/// The kernel has it in network byte order.
#[inline(always)]
fn tag_type(ctx: &SkBuffContext) -> u32 {
    // SAFETY: as in `tag`.
    let kind = unsafe { (*ctx.skb.skb).vlan_proto };
    (kind & 0xff) << 8 | (kind >> 8) & 0xff
}

/// Shows the frames that a pod has sent, at the host end of a veth.
#[socket_filter]
#[inline(always)]
pub fn tap_host_end(ctx: SkBuffContext) -> i64 {
    if !is_outgoing(&ctx) {
        show(&ctx, TAP_FROM_POD);
    }
    DROP
}

/// Shows the frames that come to a pod, by all ways, at the pod's end of a veth.
#[socket_filter]
#[inline(always)]
pub fn tap_pod_end(ctx: SkBuffContext) -> i64 {
    if !is_outgoing(&ctx) {
        show(&ctx, TAP_TO_POD);
    }
    DROP
}

/// Shows both directions, at the node's interface of a port that is a socket.
#[socket_filter]
#[inline(always)]
pub fn tap_both(ctx: SkBuffContext) -> i64 {
    show(&ctx, direction(&ctx));
    DROP
}

/// Returns the direction of a frame at an interface of the node.
#[inline(always)]
fn direction(ctx: &SkBuffContext) -> u32 {
    if is_outgoing(ctx) {
        TAP_TO_POD
    } else {
        TAP_FROM_POD
    }
}

#[inline(always)]
fn is_outgoing(ctx: &SkBuffContext) -> bool {
    // SAFETY: a field of the context that the program was called with.
    unsafe { (*ctx.skb.skb).pkt_type == PACKET_OUTGOING }
}

#[inline(always)]
fn show(ctx: &SkBuffContext, direction: u32) {
    let length = ctx.len();
    let captured = length.min(SNAPLEN.load());
    let record = TapRecord {
        // SAFETY: no memory is involved.
        time_ns: unsafe { bpf_ktime_get_ns() },
        length,
        captured,
        tag: tag(ctx),
        tag_type: tag_type(ctx),
        direction,
        reserved: 0,
    };
    FRAMES.output(ctx, record.as_bytes(), captured);
}

#[cfg(not(test))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// `bpf_perf_event_output` and others ask for a GPL-compatible licence.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
