//! `podnet-tap`: socket filters that show a capture the frames of one port.
//!
//! An object of its own, loaded for a capture and gone with the sockets that it is attached to: the node's
//! programs have no instruction for packets that are not dropped. A packet socket has the frame as the
//! interface has it: before the node's programs at the host end, behind `bpf_redirect_peer` at the pod's.
#![no_std]
#![no_main]
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

use agent_common::capture::{TAP_FROM_POD, TAP_TAGGED, TAP_TO_POD, TapRecord};
use aya_ebpf::Global;
use aya_ebpf::helpers::bpf_ktime_get_ns;
use aya_ebpf::macros::{map, socket_filter};
use aya_ebpf::maps::PerfEventByteArray;
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
    let direction = if is_outgoing(&ctx) {
        TAP_TO_POD
    } else {
        TAP_FROM_POD
    };
    show(&ctx, direction);
    DROP
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
    // SAFETY: as in `is_outgoing`; the clock involves no memory.
    let (time_ns, tag, tag_type) = unsafe {
        let skb = ctx.skb.skb;
        let tag = if (*skb).vlan_present == 0 {
            0
        } else {
            (*skb).vlan_tci | TAP_TAGGED
        };
        (bpf_ktime_get_ns(), tag, (*skb).vlan_proto)
    };
    let record = TapRecord {
        time_ns,
        length,
        captured,
        tag,
        // In network byte order there.
        tag_type: (tag_type & 0xff) << 8 | (tag_type >> 8) & 0xff,
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

/// `bpf_perf_event_output` and `bpf_ktime_get_ns` ask for a GPL-compatible licence.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
