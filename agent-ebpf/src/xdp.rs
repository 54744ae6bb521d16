//! Read a packet at an XDP hook by checked loads, where the driver has put it.
//!
//! The helper that copies came with Linux 5.18.
#![expect(
    unsafe_code,
    reason = "the packet is reached through two pointers, which the verifier wants compared before each read"
)]

use core::ptr;

use agent_common::event::EVENT_HEAD;
use agent_common::packet::{ARP_FRAME, ETH_HLEN, START_LENGTHS, Start};
use aya_ebpf::bindings::xdp_action::XDP_REDIRECT;
use aya_ebpf::helpers::{bpf_redirect, bpf_xdp_adjust_head};
use aya_ebpf::programs::XdpContext;

use crate::maps::Sample;

/// A packet at an XDP hook.
pub(crate) struct Xdp<'a> {
    pub(crate) ctx: &'a XdpContext,
}

impl<'a> Xdp<'a> {
    pub(crate) const fn new(ctx: &'a XdpContext) -> Self {
        Self { ctx }
    }

    /// Length of the frame in bytes.
    #[inline(always)]
    pub(crate) fn length(&self) -> usize {
        self.ctx.data_end() - self.ctx.data()
    }

    /// Takes `count` bytes off the front; false when nothing was done.
    #[inline(always)]
    pub(crate) fn take_off(&self, count: i32) -> bool {
        // SAFETY: a helper call with the context that the program was given; no pointer into the packet is
        // kept, each load asks anew where it begins.
        unsafe { bpf_xdp_adjust_head(self.ctx.ctx, count) == 0 }
    }

    /// Has the frame sent out of an interface, when the program returns a redirect.
    #[inline(always)]
    pub(crate) fn send(&self, ifindex: u32) -> bool {
        // SAFETY: a helper call without pointers.
        unsafe { bpf_redirect(ifindex, 0) == i64::from(XDP_REDIRECT) }
    }

    /// `N` bytes at `offset`, or `None` when the frame ends before.
    #[inline(always)]
    pub(crate) fn load<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        let at = self.at::<N>(offset)?;
        // SAFETY: `N` bytes are there.
        Some(unsafe { ptr::read(at.cast()) })
    }

    /// Where `N` bytes at `offset` are.
    #[inline(always)]
    fn at<const N: usize>(&self, offset: usize) -> Option<*const u8> {
        let at = self.ctx.data() + offset;
        (at + N <= self.ctx.data_end()).then_some(at as *const u8)
    }

    /// Reads the start of a frame that begins at `offset` in the packet, bytes.
    ///
    /// As [`Frame::start`](agent_common::packet::Frame::start) does of the whole packet.
    #[inline(always)]
    pub(crate) fn start_at(&self, offset: usize) -> Start {
        let mut start = Start::EMPTY;
        let _ = self.fill::<{ START_LENGTHS[0] as usize }>(offset, &mut start)
            || self.fill::<{ START_LENGTHS[1] as usize }>(offset, &mut start)
            || self.fill::<{ START_LENGTHS[2] as usize }>(offset, &mut start)
            || self.fill::<{ START_LENGTHS[3] as usize }>(offset, &mut start)
            || self.fill::<{ START_LENGTHS[4] as usize }>(offset, &mut start);
        start
    }

    #[inline(always)]
    fn fill<const N: usize>(&self, offset: usize, start: &mut Start) -> bool {
        match (self.load::<N>(offset), start.bytes.first_chunk_mut()) {
            (Some(bytes), Some(to)) => {
                *to = bytes;
                start.length = N as u16;
                true
            }
            _ => false,
        }
    }

    /// # Safety
    /// `N` bytes at `to` are the caller's to write.
    #[inline(always)]
    unsafe fn copy<const N: usize>(&self, to: *mut u8) -> u32 {
        match self.load::<N>(0) {
            // SAFETY: as the caller says.
            Some(bytes) => unsafe {
                ptr::write(to.cast(), bytes);
                N as u32
            },
            None => 0,
        }
    }
}

impl Sample for Xdp<'_> {
    #[inline(always)]
    fn ifindex(&self) -> u32 {
        self.ctx.ingress_ifindex() as u32
    }

    #[inline(always)]
    fn whole_length(&self) -> u32 {
        self.length() as u32
    }

    #[inline(always)]
    unsafe fn copy_head(&self, to: *mut u8) -> u32 {
        // SAFETY: as the caller says; none of them is longer than 64.
        unsafe {
            match self.copy::<EVENT_HEAD>(to) {
                0 => match self.copy::<ARP_FRAME>(to) {
                    0 => self.copy::<ETH_HLEN>(to),
                    length => length,
                },
                length => length,
            }
        }
    }
}
