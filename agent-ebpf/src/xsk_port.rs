//! `xsk_port`: the program at the pod's end of one AF_XDP port, with its own map.
//!
//! An object of its own, too, because it is loaded again and again, and knows nothing of networks: what
//! comes here has passed the programs of the node. It is never replaced while it is attached.
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

use aya_ebpf::bindings::xdp_action::XDP_PASS;
use aya_ebpf::macros::{map, xdp};
use aya_ebpf::maps::XskMap;
use aya_ebpf::programs::XdpContext;

/// Sockets by queue; the agent makes it as large as the port has queues.
#[map]
static XSKS: XskMap = XskMap::with_max_entries(1, 0);

/// To the socket that has the queue; to the pod's own stack while none has.
#[xdp]
pub fn xsk_port(ctx: XdpContext) -> u32 {
    let queue = ctx.rx_queue_index();
    XSKS.redirect(queue, u64::from(XDP_PASS))
        .unwrap_or(XDP_PASS)
}

#[cfg(not(test))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
