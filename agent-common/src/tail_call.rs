//! Tail calls: the longest ways a frame takes from program to program.
//!
//! The kernel counts them for each packet and refuses the one after the last, so the calls of a flood and
//! those of the programs in front of it are added up in one place.

use crate::flood::FLOOD_CHUNKS;
use crate::vtep::VTEP_CHUNKS;

/// Tail calls in a row that every kernel makes (`MAX_TAIL_CALL_CNT`).
pub const MAX: u32 = 33;
/// How many of them every way leaves, for programs to come.
pub const FREE: u32 = 10;

/// Chunks of `FLOOD` that one call of `flood` copies to.
pub const FLOOD_CHUNKS_A_CALL: u32 = 2;
/// Chunks of `FLOOD_VTEPS` that one call of `replicate` copies to.
pub const VTEP_CHUNKS_A_CALL: u32 = 1;

/// Calls of `flood` for one frame, at most.
pub const FLOOD_CALLS: u32 = FLOOD_CHUNKS.div_ceil(FLOOD_CHUNKS_A_CALL);
/// Calls of `replicate` for one frame, at most.
pub const REPLICATE_CALLS: u32 = VTEP_CHUNKS.div_ceil(VTEP_CHUNKS_A_CALL);

/// A program, and how often it is called in a row at most.
pub type Calls = (&'static str, u32);

/// Lists every way of a frame that ends with the last call.
///
/// A way begins with the dispatcher, which no program calls, and names the programs behind it.
pub const WAYS: [(&str, &[Calls]); 13] = [
    (
        "d_pod",
        &[
            ("from_pod", 1),
            ("service", 1),
            ("from_pod", 1),
            ("guard_pod", 1),
            ("publish", 1),
            ("carry", 1),
            ("reply", 1),
        ],
    ),
    (
        "d_pod",
        &[
            ("from_pod", 1),
            ("guard_pod", 1),
            ("carry", 1),
            ("replicate", REPLICATE_CALLS),
            ("flood", FLOOD_CALLS),
        ],
    ),
    (
        "d_pod",
        &[
            ("from_pod", 1),
            ("guard_pod", 1),
            ("carry", 1),
            ("flood", FLOOD_CALLS),
        ],
    ),
    ("d_pod", &[("from_pod", 1), ("answer", 1)]),
    (
        "d_pod",
        &[
            ("from_pod", 1),
            ("guard_pod", 1),
            ("publish", 1),
            ("carry", 1),
            ("icmp_error", 1),
        ],
    ),
    (
        "d_pod",
        &[
            ("from_pod", 1),
            ("guard_pod", 1),
            ("publish", 1),
            ("to_wire", 1),
        ],
    ),
    ("d_overlay", &[("from_overlay", 1), ("flood", FLOOD_CALLS)]),
    (
        "d_overlay",
        &[("from_overlay", 1), ("guard_in", 1), ("reply", 1)],
    ),
    (
        "d_uplink",
        &[("from_uplink", 1), ("guard_in", 1), ("reply", 1)],
    ),
    ("d_gateway", &[("from_gateway", 1)]),
    (
        "d_uplink",
        &[("from_uplink", 1), ("from_wire", 1), ("flood", FLOOD_CALLS)],
    ),
    (
        "d_uplink",
        &[("from_uplink", 1), ("from_wire", 1), ("answer", 1)],
    ),
    (
        "d_uplink",
        &[
            ("from_uplink", 1),
            ("from_wire", 1),
            ("guard_in", 1),
            ("reply", 1),
        ],
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_leaves_calls_for_programs_to_come() {
        for (dispatcher, programs) in WAYS {
            let calls: u32 = programs.iter().map(|(_, calls)| calls).sum();
            assert!(
                calls + FREE <= MAX,
                "{dispatcher} and {programs:?}: {calls} of {MAX} tail calls, {FREE} have to be left"
            );
        }
    }

    #[test]
    fn the_longest_way_is_a_flood_to_other_nodes() {
        let calls = |programs: &[Calls]| programs.iter().map(|(_, calls)| calls).sum::<u32>();
        let longest = WAYS.map(|(_, programs)| calls(programs)).into_iter().max();
        assert_eq!(longest, Some(21));
    }
}
