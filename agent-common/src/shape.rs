//! How a packet says which queue of a rate limit it belongs in.
//!
//! Flows of a pod share its rate fairly where each has a queue of its own. Kernels with `fq_codel`
//! sort packets by themselves; elsewhere the limit holds an `htb` with [`FLOW_QUEUES`] classes, and
//! the program that sends a packet there picks the class by `skb->priority`.

/// Major number of the `htb` handle (`linux/pkt_sched.h`, `TC_H_MAJ`).
pub const FLOW_MAJOR: u32 = 0x0f10;
/// Classes for flows, a power of two: minors 1 to this.
pub const FLOW_QUEUES: u32 = 64;
/// The class of what no program has sorted: answers, and what the node itself sends.
pub const FLOW_OTHER: u32 = FLOW_QUEUES + 1;

const _: () = assert!(FLOW_QUEUES.is_power_of_two() && FLOW_OTHER < 0xffff);

/// The value of `skb->priority` for a flow with this hash.
#[inline(always)]
pub const fn flow_priority(hash: u32) -> u32 {
    (FLOW_MAJOR << 16) | (1 + (hash & (FLOW_QUEUES - 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hash_has_a_class_and_none_is_the_one_for_the_rest() {
        for hash in (0..4096).chain([u32::MAX]) {
            let priority = flow_priority(hash);
            assert_eq!(priority >> 16, FLOW_MAJOR);
            assert!((1..=FLOW_QUEUES).contains(&(priority & 0xffff)));
            assert_ne!(priority & 0xffff, FLOW_OTHER);
        }
    }
}
