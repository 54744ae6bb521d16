//! Write the addresses and ports of a translated packet, and the checksums.
#![expect(
    unsafe_code,
    reason = "helpers of the kernel that have no safe wrapper"
)]

use agent_common::addr::Ip16;
use agent_common::checksum;
use agent_common::packet::{Frame as _, ICMP_HLEN, IPPROTO_TCP, L3};
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

/// Both addresses of a packet, bytes.
const PAIR: u32 = 2 * size_of::<Ip16>() as u32;

const IPV4_CHECKSUM: usize = L3 + 10;
const IPV4_ADDRESSES: usize = L3 + 12;
const IPV6_ADDRESSES: usize = L3 + 8;
/// The same, from the start of a header.
const QUOTED_CHECKSUM: usize = 10;
const QUOTED_V4: usize = 12;
const QUOTED_V6: usize = 8;
const ICMP_CHECKSUM: usize = 2;
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
        let Some(diff) = changed(&raw const came.source, &raw const leaves.source, 0) else {
            return false;
        };
        if !packet.later && !self.translate_ports(scratch, work, diff) {
            return false;
        }
        if !is_v4 {
            // What a link has summed up stays right where the transport's sum changes with the addresses.
            let how = if packet.later { RECOMPUTE } else { 0 };
            return self.store_pair(IPV6_ADDRESSES, &raw const leaves.source, how);
        }
        self.readdress(
            (IPV4_CHECKSUM, IPV4_ADDRESSES),
            (&leaves.source, &leaves.destination),
            diff,
        )
    }

    /// Gives an ICMP error the ends of [`Work::outer`]; false when the kernel refuses.
    ///
    /// Its quote gets those of [`Work::leaves`]. False also for one of which the sum is not written yet. The sum of the quoted datagram or
    /// segment stays as it is: there is more of that than is quoted, and no stack looks at it.
    #[inline(always)]
    pub(crate) fn translate_quoted(&self, scratch: &Scratch, work: &Work) -> bool {
        let (came, leaves, outer) = (&work.came, &work.leaves, &work.outer);
        let packet = &scratch.packet;
        let payload = packet.payload as usize;
        let quoted = payload + ICMP_HLEN;
        if !scratch.partial.is_none() {
            return false;
        }
        let Some(inner) = changed(&raw const came.source, &raw const leaves.source, 0) else {
            return false;
        };
        let (written, diff) = if matches!(packet.family, Family::V4) {
            // The sum of each header takes the change of its addresses back, so that of the message does not see it.
            let Some(own) = changed(&raw const packet.source, &raw const outer.source, 0) else {
                return false;
            };
            let written = self.readdress(
                (IPV4_CHECKSUM, IPV4_ADDRESSES),
                (&outer.source, &outer.destination),
                own,
            ) && self.readdress(
                (quoted + QUOTED_CHECKSUM, quoted + QUOTED_V4),
                (&leaves.source, &leaves.destination),
                inner,
            );
            (written, 0)
        } else {
            let Some(diff) = changed(&raw const packet.source, &raw const outer.source, inner)
            else {
                return false;
            };
            let written = self.store_pair(IPV6_ADDRESSES, &raw const outer.source, 0)
                && self.store_pair(quoted + QUOTED_V6, &raw const leaves.source, 0);
            (written, diff)
        };
        let Some(before) = self.load::<2>(payload + ICMP_CHECKSUM) else {
            return false;
        };
        let old = ports(came.source_port, came.destination_port);
        let new = ports(leaves.source_port, leaves.destination_port);
        let after = checksum::changed(before, &old, &new, diff);
        written && self.store(payload + ICMP_CHECKSUM, &after) && self.store(outer.ports, &new)
    }

    /// Writes two addresses of IPv4, which change by `diff`, and their header's sum.
    #[inline(always)]
    fn readdress(
        &self,
        (sum, at): (usize, usize),
        (source, destination): (&Ip16, &Ip16),
        diff: u32,
    ) -> bool {
        let ([.., a], [.., b]) = (source.words(), destination.words());
        let ([a, b, c, d], [e, f, g, h]) = (a.to_ne_bytes(), b.to_ne_bytes());
        self.ctx.l3_csum_replace(sum, 0, u64::from(diff), 0).is_ok()
            && self.store(at, &[a, b, c, d, e, f, g, h])
    }

    /// Writes two addresses of IPv6, which lie one behind the other.
    #[inline(always)]
    fn store_pair(&self, at: usize, pair: *const Ip16, how: u64) -> bool {
        // SAFETY: as in `changed`, and `raw` is as in `resize`.
        unsafe { bpf_skb_store_bytes(self.raw(), at as u32, pair.cast(), PAIR, how) == 0 }
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

/// Returns the sum of two addresses, less that of two others.
///
/// Those of a pair lie one behind the other. `seed` is added. Of mapped addresses the parts that all have cancel out.
#[inline(always)]
fn changed(from: *const Ip16, to: *const Ip16, seed: u32) -> Option<u32> {
    let (from, to) = (from.cast_mut().cast(), to.cast_mut().cast());
    // SAFETY: both addresses of a packet, one behind the other, in a value of a map.
    let diff = unsafe { bpf_csum_diff(from, PAIR, to, PAIR, seed) };
    (diff >= 0).then_some(diff.cast_unsigned() as u32)
}

#[inline(always)]
const fn ports(source: u16, destination: u16) -> [u8; 4] {
    let ([a, b], [c, d]) = (source.to_be_bytes(), destination.to_be_bytes());
    [a, b, c, d]
}
