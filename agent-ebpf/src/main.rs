//! podnet's kernel programs: entry points only, one line each.
//!
//! `d_pod` is the dispatcher attached to the host end of every pod link, `d_overlay` that of the
//! tunnel device, `d_gateway` that of the links from gateways of egress to the node, `d_uplink` that of the node's
//! interfaces, `x_uplink` the one before it, in XDP, and `d_to_pod` the one on the way out of host ends that the
//! node's stack sends to; they never change. What they call (`from_pod`, `from_overlay`, `from_gateway`,
//! `from_uplink`, `xdp_uplink`, `to_pod`) is replaced behind `ROOT` and `ROOT_XDP` when the agent is upgraded.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "lengths and offsets are of packets: far below what 32 bits hold"
)]
#![expect(
    clippy::needless_pass_by_value,
    reason = "the macro that makes entry points hands the context over"
)]
#![no_std]
#![no_main]
#![expect(
    missing_docs,
    reason = "the macro that makes entry points drops their documentation"
)]
#![expect(
    unreachable_pub,
    reason = "the macro keeps the visibility it is given, and entry points are exported"
)]

// The macro makes an entry point that calls the function: inlined, or its frame is one of those that
// share 512 bytes of stack, 32 of them at least.
mod answer;
mod deliver;
mod flood;
mod from_gateway;
mod from_overlay;
mod from_pod;
mod from_uplink;
mod guard_in;
mod guard_pod;
mod icmp_error;
mod maps;
mod replicate;
mod service;
mod skb;
mod storm;
mod tag;
mod to_pod;
mod tunnel;
mod verdict;
mod wire;
mod xdp;
mod xdp_uplink;

use agent_common::map::{
    ROOT_FROM_GATEWAY, ROOT_FROM_OVERLAY, ROOT_FROM_POD, ROOT_FROM_UPLINK, ROOT_TO_POD,
    ROOT_XDP_UPLINK,
};
use aya_ebpf::macros::{classifier, xdp};
use aya_ebpf::programs::{TcContext, XdpContext};

use crate::skb::Skb;
use crate::verdict::{Early, Verdict};
use crate::xdp::Xdp;

/// TC ingress on the host end of a pod link: calls whatever `ROOT` holds, or drops.
#[classifier]
#[inline(always)]
pub fn d_pod(ctx: TcContext) -> i32 {
    maps::root(&ctx, ROOT_FROM_POD);
    verdict::no_program().code()
}

/// TC ingress on the tunnel device: calls whatever `ROOT` holds, or drops.
#[classifier]
#[inline(always)]
pub fn d_overlay(ctx: TcContext) -> i32 {
    maps::root(&ctx, ROOT_FROM_OVERLAY);
    verdict::no_program().code()
}

/// TC ingress on a gateway's link to the node: calls the program in `ROOT`.
///
/// Drops all packets where there is none.
#[classifier]
#[inline(always)]
pub fn d_gateway(ctx: TcContext) -> i32 {
    maps::root(&ctx, ROOT_FROM_GATEWAY);
    verdict::no_program().code()
}

/// TC egress on the host end of a pod link: calls whatever `ROOT` holds, or drops.
///
/// Only on ports that the node routes for. Drops all packets where there is none.
#[classifier]
#[inline(always)]
pub fn d_to_pod(ctx: TcContext) -> i32 {
    maps::root(&ctx, ROOT_TO_POD);
    verdict::no_program().code()
}

/// TC ingress on an interface of the node: calls the program in `ROOT`.
///
/// All packets are left to the node where there is none.
#[classifier]
#[inline(always)]
pub fn d_uplink(ctx: TcContext) -> i32 {
    maps::root(&ctx, ROOT_FROM_UPLINK);
    Verdict::Pass.code()
}

/// XDP on an interface of the node: calls the program in `ROOT_XDP`.
///
/// All packets are left to the node where there is none.
#[xdp]
#[inline(always)]
pub fn x_uplink(ctx: XdpContext) -> u32 {
    maps::root_xdp(&ctx, ROOT_XDP_UPLINK);
    Early::Pass.code()
}

/// XDP: drops unwanted packets of tunnels before the kernel makes an skb of them.
#[xdp]
#[inline(always)]
pub fn xdp_uplink(ctx: XdpContext) -> u32 {
    xdp_uplink::run(&Xdp::new(&ctx)).code()
}

/// TC: takes podnet's packets from an interface of the node.
#[classifier]
#[inline(always)]
pub fn from_uplink(ctx: TcContext) -> i32 {
    from_uplink::run(&Skb::new(&ctx)).code()
}

/// TC: judges the frames that an uplink of a network brings.
#[classifier]
#[inline(always)]
pub fn from_wire(ctx: TcContext) -> i32 {
    wire::receive(&Skb::new(&ctx)).code()
}

/// TC: judges the frames that a pod sends out of its network's uplink.
#[classifier]
#[inline(always)]
pub fn to_wire(ctx: TcContext) -> i32 {
    wire::leave(&Skb::new(&ctx)).code()
}

/// Everything other nodes send through a tunnel.
#[classifier]
#[inline(always)]
pub fn from_overlay(ctx: TcContext) -> i32 {
    from_overlay::run(&Skb::new(&ctx)).code()
}

/// TC: translates what a pod sends to a Service.
#[classifier]
#[inline(always)]
pub fn service(ctx: TcContext) -> i32 {
    service::run(&Skb::new(&ctx)).code()
}

/// TC: delivers to a port of a network with Services what may be an answer of one.
#[classifier]
#[inline(always)]
pub fn reply(ctx: TcContext) -> i32 {
    service::reply(&Skb::new(&ctx)).code()
}

/// TC: passes on to a pod what may be an answer of a Service, by the node's stack.
#[classifier]
#[inline(always)]
pub fn reply_to(ctx: TcContext) -> i32 {
    service::reply_to(&Skb::new(&ctx)).code()
}

/// Everything a gateway of egress sends to the node.
#[classifier]
#[inline(always)]
pub fn from_gateway(ctx: TcContext) -> i32 {
    from_gateway::run(&Skb::new(&ctx)).code()
}

/// Says how the kernel makes room for a tunnel's headers. Attached to nothing.
#[classifier]
#[inline(always)]
pub fn try_room(ctx: TcContext) -> i32 {
    tunnel::try_room(&Skb::new(&ctx)) as i32
}

/// Everything a pod sends.
#[classifier]
#[inline(always)]
pub fn from_pod(ctx: TcContext) -> i32 {
    from_pod::run(&Skb::new(&ctx)).code()
}

/// TC: judges what a port of a guarded network sends.
#[classifier]
#[inline(always)]
pub fn guard_pod(ctx: TcContext) -> i32 {
    guard_pod::run(&Skb::new(&ctx)).code()
}

/// TC: shows the switch of memif ports a connection that policies let pass.
#[classifier]
#[inline(always)]
pub fn publish(ctx: TcContext) -> i32 {
    guard_pod::publish(&Skb::new(&ctx)).code()
}

/// TC: carries out what was decided about a frame that policies let pass.
#[classifier]
#[inline(always)]
pub fn carry(ctx: TcContext) -> i32 {
    from_pod::carry(&Skb::new(&ctx)).code()
}

/// TC: judges what comes from elsewhere for a guarded port.
#[classifier]
#[inline(always)]
pub fn guard_in(ctx: TcContext) -> i32 {
    guard_in::run(&Skb::new(&ctx)).code()
}

/// TC: lets pass what the node's stack sends to a pod, or has it judged.
#[classifier]
#[inline(always)]
pub fn to_pod(ctx: TcContext) -> i32 {
    to_pod::run(&Skb::new(&ctx)).code()
}

/// TC: judges what the node's stack sends to a port of a guarded network.
#[classifier]
#[inline(always)]
pub fn guard_to(ctx: TcContext) -> i32 {
    to_pod::judge(&Skb::new(&ctx)).code()
}

/// Questions the datapath answers itself.
#[classifier]
#[inline(always)]
pub fn answer(ctx: TcContext) -> i32 {
    answer::run(&Skb::new(&ctx)).code()
}

/// Copies a frame to the ports of its network, one chunk of them a call.
#[classifier]
#[inline(always)]
pub fn flood(ctx: TcContext) -> i32 {
    flood::run(&Skb::new(&ctx)).code()
}

/// Sends a pod the ICMP error about its packet.
#[classifier]
#[inline(always)]
pub fn icmp_error(ctx: TcContext) -> i32 {
    icmp_error::run(&Skb::new(&ctx)).code()
}

/// Replicates a frame to the other nodes of its network, then to ports of this one.
#[classifier]
#[inline(always)]
pub fn replicate(ctx: TcContext) -> i32 {
    replicate::run(&Skb::new(&ctx)).code()
}

/// A licence that is compatible with the GPL.
///
/// Some of the kernel's helpers that the programs call ask for one: `bpf_redirect_peer` does not,
/// `bpf_ktime_get_ns` does.
#[expect(
    unsafe_code,
    reason = "section and symbol names are attributes the compiler calls unsafe"
)]
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

#[cfg(not(test))]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
