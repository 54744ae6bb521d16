//! The inputs that fuzzing kept, run again.

use corpus::replay;

#[path = "../fuzz/src/input.rs"]
mod input;

#[test]
fn input_of_runtimes_and_peers_is_read_or_refused_within_limits() {
    replay(env!("CARGO_MANIFEST_DIR"), "input", input::run);
}
