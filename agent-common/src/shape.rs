//! How a packet says which queue of a rate limit it belongs in.
//!
//! Flows of a pod share its rate fairly where each has a queue of its own. Kernels with `fq_codel`
//! sort packets by themselves; elsewhere the limit holds an `htb` with [`FLOW_QUEUES`] classes, and
//! the program that sends a packet there picks the class by `skb->priority`.

use crate::packet::IPPROTO_TCP;

/// Major number of the `htb` handle (`linux/pkt_sched.h`, `TC_H_MAJ`).
// Another number for another tree of classes: classes cannot get another parent.
pub const FLOW_MAJOR: u32 = 0x0f11;
/// Classes for flows: minors 1 to this.
pub const FLOW_QUEUES: u32 = 64;
/// Classes of these that TCP has, the first ones.
///
/// Two flows may get one class; with classes of its own, a ping or a small UDP request never waits behind the
/// frames of a bulk TCP stream.
pub const STREAM_QUEUES: u32 = 48;
/// Class of packets that no program has sorted.
///
/// Answers, and packets that the node itself sends.
pub const FLOW_OTHER: u32 = FLOW_QUEUES + 1;

const _: () = assert!(STREAM_QUEUES < FLOW_QUEUES && FLOW_OTHER < 0xffff);

/// The value of `skb->priority` for a flow with this hash and IP protocol.
#[inline(always)]
pub const fn flow_priority(hash: u32, protocol: u8) -> u32 {
    let (first, queues) = match protocol {
        IPPROTO_TCP => (1, STREAM_QUEUES),
        _ => (1 + STREAM_QUEUES, FLOW_QUEUES - STREAM_QUEUES),
    };
    // The upper half of the product: below `queues`, and every bit of the hash counts.
    let queue = (hash as u64 * queues as u64) >> 32;
    (FLOW_MAJOR << 16) | (first + queue as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROTOCOLS: [u8; 4] = [IPPROTO_TCP, 17, 1, 58];

    fn hashes() -> impl Iterator<Item = u32> {
        (0..=u32::MAX).step_by(65_537).chain([u32::MAX])
    }

    #[test]
    fn every_flow_has_a_class_and_none_is_the_one_for_the_rest() {
        for hash in hashes() {
            for priority in PROTOCOLS.map(|protocol| flow_priority(hash, protocol)) {
                assert_eq!(priority >> 16, FLOW_MAJOR);
                assert!((1..=FLOW_QUEUES).contains(&(priority & 0xffff)));
                assert_ne!(priority & 0xffff, FLOW_OTHER);
            }
        }
    }

    #[test]
    fn no_ping_or_datagram_shares_a_class_with_tcp_and_every_class_is_used() {
        let of = |protocol| -> std::collections::BTreeSet<u32> {
            hashes()
                .map(|hash| flow_priority(hash, protocol) & 0xffff)
                .collect()
        };
        let streams = of(IPPROTO_TCP);
        for protocol in &PROTOCOLS[1..] {
            let others = of(*protocol);
            assert!(streams.is_disjoint(&others));
            assert_eq!(streams.len() + others.len(), FLOW_QUEUES as usize);
        }
    }
}
