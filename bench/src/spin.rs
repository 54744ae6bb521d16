//! Be a program that only computes, as others on a node may be.

use std::time::{Duration, Instant};

/// Between two looks for the parent.
const LOOK: Duration = Duration::from_millis(50);

/// Computes until the parent is gone: nothing is left behind, however that ends.
pub fn spin() {
    let parent = rustix::process::getppid();
    let mut value = 1_u64;
    while rustix::process::getppid() == parent {
        let end = Instant::now() + LOOK;
        while Instant::now() < end {
            for _ in 0..10_000 {
                value =
                    std::hint::black_box(value.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(7));
            }
        }
    }
}
