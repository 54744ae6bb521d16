//! Write the addresses and ports of a translated packet, and the checksums.
#![expect(
    unsafe_code,
    reason = "helpers of the kernel that have no safe wrapper"
)]

use agent_common::addr::Ip16;
use agent_common::checksum;
use agent_common::packet::{Frame as _, IPPROTO_TCP, L3};
use agent_common::partial::Partial;
use agent_common::policy::{Family, Scratch};
use agent_common::service::Work;

use aya_ebpf::helpers::generated::{bpf_csum_diff, bpf_skb_store_bytes};

use super::Skb;

/// `BPF_F_RECOMPUTE_CSUM` (linux/bpf.h): the sum of a link changes with the bytes.
const RECOMPUTE: u64 = 1 << 0;
/// `BPF_F_PSEUDO_HDR` (linux/bpf.h): the sum has the addresses in it.
const PSEUDO_HEADER: u64 = 1 << 4;
/// `BPF_F_MARK_MANGLED_0` (linux/bpf.h): a datagram without a sum stays one.
const NONE_STAYS_NONE: u64 = 1 << 5;

const IPV4_CHECKSUM: usize = L3 + 10;
const IPV4_ADDRESSES: usize = L3 + 12;
const IPV6_ADDRESSES: usize = L3 + 8;
const TCP_CHECKSUM: usize = 16;
const UDP_CHECKSUM: usize = 6;

impl Skb<'_> {
    /// Gives the packet the ends of [`Work::leaves`]; false when the kernel refuses.
    ///
    /// A later fragment has addresses only. A sum that is written when the packet leaves stays one.
    #[inline(always)]
    pub(crate) fn translate(&self, scratch: &Scratch, work: &Work) -> bool {
        let (came, leaves) = (&work.came, &work.leaves);
        let packet = &scratch.packet;
        let is_v4 = matches!(packet.family, Family::V4);
        // Of mapped addresses the parts that all have cancel out.
        let pair = 2 * size_of::<Ip16>() as u32;
        // SAFETY: both addresses of a tuple, one behind the other, in a value of a map.
        let diff = unsafe {
            let (from, to) = (&raw const came.source, &raw const leaves.source);
            bpf_csum_diff(from.cast_mut().cast(), pair, to.cast_mut().cast(), pair, 0)
        };
        if diff < 0 {
            return false;
        }
        let diff = diff.cast_unsigned() as u32;
        if !packet.later && !self.translate_ports(scratch, work, diff) {
            return false;
        }
        if !is_v4 {
            // SAFETY: as above, and `raw` is as in `resize`.
            return unsafe {
                let to = (&raw const leaves.source).cast();
                // What a link has summed up stays right where the transport's sum changes with the addresses.
                let how = if packet.later { RECOMPUTE } else { 0 };
                bpf_skb_store_bytes(self.raw(), IPV6_ADDRESSES as u32, to, pair, how) == 0
            };
        }
        let ([.., a], [.., b]) = (leaves.source.words(), leaves.destination.words());
        let ([a, b, c, d], [e, f, g, h]) = (a.to_ne_bytes(), b.to_ne_bytes());
        self.ctx
            .l3_csum_replace(IPV4_CHECKSUM, 0, u64::from(diff), 0)
            .is_ok()
            && self.store(IPV4_ADDRESSES, &[a, b, c, d, e, f, g, h])
    }

    /// Writes ports, and the sum over them and the addresses, which change by `diff`.
    #[inline(always)]
    fn translate_ports(&self, scratch: &Scratch, work: &Work, diff: u32) -> bool {
        let (came, leaves) = (&work.came, &work.leaves);
        let packet = &scratch.packet;
        let payload = packet.payload as usize;
        let (at, unsummed) = if packet.protocol == IPPROTO_TCP {
            (payload + TCP_CHECKSUM, 0)
        } else {
            (payload + UDP_CHECKSUM, NONE_STAYS_NONE)
        };
        let old = ports(came.source_port, came.destination_port);
        let new = ports(leaves.source_port, leaves.destination_port);
        // The helper takes what a link has summed up (`CHECKSUM_COMPLETE`) for that of IPv4, whose header has a sum of its own.
        let own = Partial::new(payload as i32, (at - payload) as u16);
        let is_none = scratch.partial.is_none();
        let summed = if scratch.partial == own || is_none && matches!(packet.family, Family::V4) {
            self.ctx
                .l4_csum_replace(at, 0, u64::from(diff), PSEUDO_HEADER | unsummed)
                .is_ok()
                && self
                    .ctx
                    .l4_csum_replace(
                        at,
                        u64::from(u32::from_ne_bytes(old)),
                        u64::from(u32::from_ne_bytes(new)),
                        unsummed | 4,
                    )
                    .is_ok()
        } else {
            let Some(before) = self.load::<2>(at) else {
                return false;
            };
            let after = checksum::changed(before, &old, &new, diff);
            unsummed != 0 && before == [0; 2] || self.store(at, &after)
        };
        summed && self.store(payload, &new)
    }
}

#[inline(always)]
const fn ports(source: u16, destination: u16) -> [u8; 4] {
    let ([a, b], [c, d]) = (source.to_be_bytes(), destination.to_be_bytes());
    [a, b, c, d]
}
