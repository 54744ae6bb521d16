//! The inputs that fuzzing kept, run again.

use corpus::replay;

#[path = "../fuzz/src/arrivals.rs"]
#[expect(clippy::panic, reason = "a panic is how a target tells the fuzzer")]
mod arrivals;

#[test]
fn what_arrives_is_what_its_sender_may_say() {
    replay(env!("CARGO_MANIFEST_DIR"), "arrivals", arrivals::run);
}
