//! The inputs that fuzzing kept, run again.

use corpus::replay;

#[path = "../fuzz/src/annotations.rs"]
mod annotations;

#[test]
fn annotations_are_read_or_refused_within_limits() {
    replay(env!("CARGO_MANIFEST_DIR"), "annotations", annotations::run);
}
