//! The packet in the kernel: checked loads and stores, and the ways it can leave.
#![expect(
    unsafe_code,
    reason = "fields of __sk_buff and the helpers that have no safe wrapper are reached from here only"
)]

use core::mem::MaybeUninit;

use agent_common::addr::MacAddr;
use agent_common::event::EVENT_HEAD;
use agent_common::packet::{
    ARP_FRAME, ETH_HLEN, ETH_P_IP, Frame, IPPROTO_TCP, IPV4_HLEN, IPV6_HLEN, L3, START_LENGTHS,
    Start, UDP_HLEN, first_protocol,
};
use agent_common::partial::Partial;
use agent_common::segments;
use agent_common::shape::flow_priority;
use agent_common::skb::{CHECKSUM_PARTIAL, SKB_WINDOW, SkbLayout};
use aya_ebpf::bindings::__sk_buff;
use aya_ebpf::helpers::generated::{
    bpf_get_hash_recalc, bpf_probe_read_kernel, bpf_redirect, bpf_redirect_peer,
    bpf_skb_change_tail, bpf_skb_change_type, bpf_skb_load_bytes, bpf_skb_store_bytes,
    bpf_skb_vlan_pop, bpf_skb_vlan_push,
};
use aya_ebpf::programs::TcContext;
use aya_ebpf::{EbpfContext, Global};

use crate::maps::Sample;
use crate::tag::Tag;

mod route;
mod translate;
mod tunnel;

/// [`SkbLayout`] of the running kernel, a constant to the verifier.
///
/// The loader fills it in.
#[unsafe(no_mangle)]
static SKB_LAYOUT: Global<u64> = Global::new(0);

/// `PACKET_HOST` of `linux/if_packet.h`: the packet is for whoever receives it.
const PACKET_HOST: u32 = 0;
/// The packet is for another host's MAC address: `PACKET_OTHERHOST`.
///
/// From `linux/if_packet.h`.
const PACKET_OTHERHOST: u32 = 3;
/// Result of a redirect helper that will try: `TC_ACT_REDIRECT`.
///
/// From `linux/pkt_cls.h`.
const TC_ACT_REDIRECT: i64 = 7;

/// Bytes on the stack that may be read a word at a time.
///
/// BPF has no unaligned loads of its stack, and the compiler reads an unaligned array byte by byte.
#[repr(align(8))]
struct Aligned<const N: usize>([u8; N]);

/// `ETH_P_8021Q` of `linux/if_ether.h`.
const ETH_P_8021Q: u16 = 0x8100;

/// A packet at a TC hook.
pub(crate) struct Skb<'a> {
    pub(crate) ctx: &'a TcContext,
    /// All its sums are in it, whatever the kernel knows of the packet before.
    is_summed: bool,
}

impl<'a> Skb<'a> {
    pub(crate) const fn new(ctx: &'a TcContext) -> Self {
        Self {
            ctx,
            is_summed: false,
        }
    }

    /// The same packet, which a program of ours may have written as a whole.
    ///
    /// No helper takes a packet the mark that its transport's sum is to be finished.
    pub(crate) const fn written(&self, is_written: bool) -> Self {
        Self {
            ctx: self.ctx,
            is_summed: is_written,
        }
    }

    #[inline(always)]
    fn raw(&self) -> *mut __sk_buff {
        self.ctx.as_ptr().cast()
    }

    /// The interface the packet came in by.
    #[inline(always)]
    pub(crate) fn ifindex(&self) -> u32 {
        // SAFETY: the kernel passes a valid `__sk_buff` and checks every access to it at load time.
        unsafe { (*self.raw()).ifindex }
    }

    /// The interface by which the node got it; 0 for what it made itself.
    #[inline(always)]
    pub(crate) fn came_by(&self) -> u32 {
        // SAFETY: as in `ifindex`.
        unsafe { (*self.raw()).ingress_ifindex }
    }

    /// How many packets it is on a wire, at least 1.
    #[inline(always)]
    pub(crate) fn segments(&self) -> u32 {
        // SAFETY: as in `ifindex`.
        let segments = unsafe { (*self.raw()).gso_segs };
        if segments != 0 {
            return segments;
        }
        let size = self.gso_size();
        if size == 0 {
            return 1;
        }
        // Headers that a program has written: trains of the switch, and `PACKET_VNET_HDR`.
        let headers = (self.largest_packet() + ETH_HLEN) as u32;
        segments::behind(self.ctx.len(), headers.wrapping_sub(size), size)
    }

    /// One that becomes several on a wire.
    #[inline(always)]
    pub(crate) fn is_gso(&self) -> bool {
        self.gso_size() != 0
    }

    /// Its EtherType.
    #[inline(always)]
    pub(crate) fn protocol(&self) -> u16 {
        // SAFETY: as in `ifindex`. In wire order.
        u16::from_be(unsafe { (*self.raw()).protocol } as u16)
    }

    /// The hash of its flow.
    #[inline(always)]
    pub(crate) fn flow_hash(&self) -> u32 {
        // SAFETY: as in `resize`.
        unsafe { bpf_get_hash_recalc(self.raw()) }
    }

    /// Returns the number of packets on a wire, by the length alone.
    ///
    /// Values that a program wrote into headers of its own do not count.
    #[inline(always)]
    pub(crate) fn real_segments(&self) -> u32 {
        // SAFETY: as in `ifindex`.
        let count = unsafe { (*self.raw()).gso_segs };
        segments::segments(self.ctx.len(), self.gso_size(), count)
    }

    /// True when it would be cut into more small pieces than any program needs.
    #[inline(always)]
    pub(crate) fn is_too_fine(&self) -> bool {
        segments::is_too_fine(self.ctx.len(), self.gso_size())
    }

    #[inline(always)]
    fn gso_size(&self) -> u32 {
        // SAFETY: as in `ifindex`.
        unsafe { (*self.raw()).gso_size }
    }

    /// Three words that tail calls hand to each other with the packet.
    #[inline(always)]
    pub(crate) fn cursor(&self) -> [u32; 3] {
        // SAFETY: as in `ifindex`; `cb` is five words for the programs of one hook.
        unsafe {
            [
                (*self.raw()).cb[0],
                (*self.raw()).cb[1],
                (*self.raw()).cb[2],
            ]
        }
    }

    #[inline(always)]
    pub(crate) fn set_cursor(&self, [a, b, c]: [u32; 3]) {
        // SAFETY: as in `cursor`.
        unsafe {
            (*self.raw()).cb[0] = a;
            (*self.raw()).cb[1] = b;
            (*self.raw()).cb[2] = c;
        }
    }

    /// The tag next to the packet; `None` for one of another kind.
    #[inline(always)]
    pub(crate) fn tag(&self) -> Option<Tag> {
        // SAFETY: as in `ifindex`. `vlan_proto` is in wire order.
        unsafe {
            if (*self.raw()).vlan_present == 0 {
                return Some(Tag::NONE);
            }
            let proto = u16::from_be((*self.raw()).vlan_proto as u16);
            let tci = (*self.raw()).vlan_tci & 0xffff;
            (proto == ETH_P_8021Q).then_some(Tag::of(tci))
        }
    }

    /// Puts a tag on.
    #[inline(always)]
    pub(crate) fn push_tag(&self, tci: u16) -> bool {
        // SAFETY: as in `resize`.
        unsafe { bpf_skb_vlan_push(self.raw(), ETH_P_8021Q.to_be(), tci) == 0 }
    }

    /// Takes the tag off.
    #[inline(always)]
    pub(crate) fn pop_tag(&self) -> bool {
        // SAFETY: as in `resize`.
        unsafe { bpf_skb_vlan_pop(self.raw()) == 0 }
    }

    /// Keeps the values that copies for pods change: priority, and the tag taken off.
    ///
    /// They are behind the cursor.
    #[inline(always)]
    pub(crate) fn keep_for_node(&self, tag: u32) {
        // SAFETY: as in `cursor` and `ifindex`.
        unsafe {
            (*self.raw()).cb[3] = tag;
            (*self.raw()).cb[4] = (*self.raw()).priority;
        }
    }

    /// Makes the packet what it was at [`Self::keep_for_node`].
    #[inline(always)]
    pub(crate) fn give_to_node(&self) -> bool {
        // SAFETY: as in `cursor` and `ifindex`.
        let tag = unsafe {
            (*self.raw()).priority = (*self.raw()).cb[4];
            (*self.raw()).cb[3]
        };
        tag == 0 || self.push_tag(tag as u16)
    }

    /// True when the link brought it for this host's own MAC address.
    #[inline(always)]
    pub(crate) fn is_for_host(&self) -> bool {
        // SAFETY: as in `ifindex`.
        unsafe { (*self.raw()).pkt_type == PACKET_HOST }
    }

    /// True when the link brought it for another host's MAC address.
    #[inline(always)]
    pub(crate) fn is_for_another(&self) -> bool {
        // SAFETY: as in `ifindex`.
        unsafe { (*self.raw()).pkt_type == PACKET_OTHERHOST }
    }

    #[inline(always)]
    pub(crate) fn store<const N: usize>(&self, offset: usize, bytes: &[u8; N]) -> bool {
        self.ctx.store(offset, bytes, 0).is_ok()
    }

    #[inline(always)]
    pub(crate) fn swap_in_macs(&self, to: MacAddr, from: MacAddr) -> bool {
        let [a, b, c, d, e, f] = to.0;
        let [g, h, i, j, k, l] = from.0;
        self.store(0, &[a, b, c, d, e, f, g, h, i, j, k, l])
    }

    /// Writes the source MAC address.
    #[inline(always)]
    pub(crate) fn come_from(&self, mac: MacAddr) -> bool {
        self.store(mac.0.len(), &mac.0)
    }

    #[inline(always)]
    pub(crate) fn resize(&self, length: u32) -> bool {
        // SAFETY: `raw` is the context the verifier knows; the helper checks the length.
        unsafe { bpf_skb_change_tail(self.raw(), length, 0) == 0 }
    }

    /// Sends the packet out of an interface of the node, through its queues.
    #[inline(always)]
    pub(crate) fn send(&self, ifindex: u32) -> bool {
        // SAFETY: plain numbers; the kernel looks the interface up when it carries the redirect out.
        unsafe { bpf_redirect(ifindex, 0) as i64 == TC_ACT_REDIRECT }
    }

    /// Puts the packet straight into another pod, past the queues of its link.
    #[inline(always)]
    pub(crate) fn send_to_peer(&self, ifindex: u32) -> bool {
        // The type was found by comparing with the host end's MAC address. The pod's stack would
        // drop the packet as one for another host: always on 5.10, and not at all since 6.15.
        // SAFETY: as in `resize` and `send`.
        unsafe {
            bpf_skb_change_type(self.raw(), PACKET_HOST);
            bpf_redirect_peer(ifindex, 0) as i64 == TC_ACT_REDIRECT
        }
    }

    /// Writes the first `LENGTH` bytes of the frame.
    #[inline(always)]
    pub(crate) fn store_start<const LENGTH: usize, const WORDS: usize>(
        &self,
        words: &[u64; WORDS],
    ) -> bool {
        const { assert!(LENGTH <= WORDS * 8, "fewer words than bytes") };
        // SAFETY: as in `resize`; there are `LENGTH` bytes in the words.
        unsafe { bpf_skb_store_bytes(self.raw(), 0, words.as_ptr().cast(), LENGTH as u32, 0) == 0 }
    }

    /// [`Frame::segment_length`] of a frame of this length inside of the packet.
    #[inline(always)]
    pub(crate) fn segment_length_of(&self, length: usize) -> usize {
        let size = self.gso_size() as usize;
        // The payload of a segment and the smallest headers it can have: what is over the MTU by
        // no more than options is the kernel's to judge.
        if size == 0 {
            length
        } else {
            size + ETH_HLEN + IPV4_HLEN + 8
        }
    }

    /// Length of the largest L3 packet that this becomes on a wire, for IPv4 and IPv6.
    #[inline(always)]
    pub(crate) fn largest_packet(&self) -> usize {
        let size = self.gso_size() as usize;
        if size == 0 {
            return self.length() - ETH_HLEN;
        }
        let (header, protocol) = if self.protocol() == ETH_P_IP {
            let Some([version, _, _, _, _, _, _, _, _, protocol]) = self.load::<10>(L3) else {
                return 0;
            };
            ((version & 0x0f) as usize * 4, protocol)
        } else {
            let Some([next]) = self.load::<1>(L3 + 6) else {
                return 0;
            };
            (IPV6_HLEN, next)
        };
        if protocol != IPPROTO_TCP {
            return header + UDP_HLEN + size;
        }
        // The data offset, in words.
        let Some([offset]) = self.load::<1>(L3 + header + 12) else {
            return 0;
        };
        header + (offset >> 4) as usize * 4 + size
    }

    /// [`Frame::start`] of a frame that begins at this byte of the packet.
    #[inline(always)]
    pub(crate) fn start_at(&self, offset: usize) -> Start {
        let mut start = MaybeUninit::<Start>::uninit();
        // SAFETY: there is room for one, and all of it is written.
        unsafe {
            self.write_start(offset, start.as_mut_ptr());
            start.assume_init()
        }
    }

    /// Writes all of a start.
    ///
    /// # Safety
    /// `to` is the caller's to write.
    #[inline(always)]
    unsafe fn write_start(&self, offset: usize, to: *mut Start) {
        let mut length = 0;
        for end in START_LENGTHS {
            // SAFETY: as the caller says. `bytes` has room for the longest of the lengths, which is tried first;
            // the helper fills what it is told to, with zeroes when the frame is shorter.
            unsafe {
                let (bytes, from) = ((&raw mut (*to).bytes).cast(), self.raw().cast());
                if bpf_skb_load_bytes(from, offset as u32, bytes, u32::from(end)) == 0 {
                    length = end;
                    break;
                }
            }
        }
        // SAFETY: as the caller says.
        unsafe { (*to).length = length }
    }

    /// Makes the packet one for the stack of the host it is at.
    #[inline(always)]
    pub(crate) fn keep(&self) -> bool {
        // SAFETY: as in `resize`.
        unsafe { bpf_skb_change_type(self.raw(), PACKET_HOST) == 0 }
    }

    /// Names the queue of a rate limit that the packet's flow belongs in.
    #[inline(always)]
    pub(crate) fn sort_by_flow(&self) {
        let protocol = first_protocol(self);
        let hash = self.flow_hash();
        // SAFETY: as in `ifindex`; `priority` is writable.
        unsafe { (*self.raw()).priority = flow_priority(hash, protocol) }
    }

    /// Forgets the mark: policy routing of the node must not leak into a pod.
    #[inline(always)]
    pub(crate) fn clear_mark(&self) {
        // SAFETY: as in `ifindex`; `mark` is writable.
        unsafe { (*self.raw()).mark = 0 }
    }

    /// Queues a copy at another interface.
    #[inline(always)]
    pub(crate) fn copy_to(&self, ifindex: u32) -> bool {
        self.ctx.clone_redirect(ifindex, 0).is_ok()
    }
}

impl Sample for Skb<'_> {
    #[inline(always)]
    fn ifindex(&self) -> u32 {
        Skb::ifindex(self)
    }

    #[inline(always)]
    fn whole_length(&self) -> u32 {
        self.ctx.len()
    }

    #[inline(always)]
    unsafe fn copy_head(&self, to: *mut u8) -> u32 {
        for length in [EVENT_HEAD as u32, ARP_FRAME as u32, ETH_HLEN as u32] {
            // SAFETY: `length` is at most 64; `raw` is as in `resize`.
            if unsafe { bpf_skb_load_bytes(self.raw().cast(), 0, to.cast(), length) } == 0 {
                return length;
            }
        }
        0
    }
}

impl Frame for Skb<'_> {
    #[inline(always)]
    fn length(&self) -> usize {
        self.ctx.len() as usize
    }

    #[inline(always)]
    fn segment_length(&self) -> usize {
        self.segment_length_of(self.length())
    }

    #[inline(always)]
    fn has_vlan_tag(&self) -> bool {
        // SAFETY: as in `ifindex`.
        unsafe { (*self.raw()).vlan_present != 0 }
    }

    #[inline(always)]
    fn vlan_id(&self) -> u16 {
        self.tag().map_or(0, Tag::vlan)
    }

    /// The only reading of `sk_buff` itself: `__sk_buff` does not show it.
    #[inline(always)]
    fn partial(&self) -> Partial {
        /// Refused wherever the policy finds the transport header.
        const UNKNOWN: Partial = Partial::new(i32::MIN, 0);
        if self.is_summed {
            return Partial::NONE;
        }
        let at = SkbLayout::unpack(SKB_LAYOUT.load());
        let mut window = MaybeUninit::<[u64; SKB_WINDOW / 8]>::uninit();
        let to = window.as_mut_ptr().cast::<u8>();
        // SAFETY: the context is the `sk_buff`. The helper reads any address or says that it cannot, and
        // fills `length` bytes, of which the window has at least as many. Everything is read inside of
        // these and where its alignment allows: the loader has checked it, and the verifier does.
        unsafe {
            let from = self.raw().cast::<u8>().add(at.begin as usize);
            if bpf_probe_read_kernel(to.cast(), u32::from(at.length), from.cast()) != 0 {
                return UNKNOWN;
            }
            let summed = to.add(at.summed as usize).read() >> at.summed_bit & 3;
            if summed != CHECKSUM_PARTIAL {
                return Partial::NONE;
            }
            let place = to.add(at.csum_start as usize).cast::<u16>();
            let ends = to.add(at.head as usize).cast::<u64>();
            // Both from the head of the buffer.
            let begins = ends.add(1).read() - ends.read();
            let start = u64::from(place.read()) as i64 - begins as i64;
            Partial::new(start as i32, place.add(1).read())
        }
    }

    #[inline(always)]
    fn start(&self) -> Start {
        self.start_at(0)
    }

    #[inline(always)]
    fn read_start(&self, into: &mut Start) {
        // SAFETY: it is the caller's.
        unsafe { self.write_start(0, into) }
    }

    #[inline(always)]
    fn load<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        let mut bytes = MaybeUninit::<Aligned<N>>::uninit();
        // SAFETY: there is room for at least `N` bytes, and the helper fills them all or fails.
        // `N`, because `Aligned` can be larger.
        unsafe {
            let to = bytes.as_mut_ptr().cast();
            let failed = bpf_skb_load_bytes(self.raw().cast(), offset as u32, to, N as u32);
            if failed == 0 {
                Some(bytes.assume_init().0)
            } else {
                None
            }
        }
    }
}
