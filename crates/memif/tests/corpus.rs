//! The inputs that fuzzing kept, run again.

use corpus::replay;

#[path = "../fuzz/src/control.rs"]
mod control;
#[path = "../fuzz/src/descriptors.rs"]
mod descriptors;

#[test]
fn no_message_breaks_the_control_channel() {
    replay(env!("CARGO_MANIFEST_DIR"), "control", control::run);
}

#[test]
fn no_descriptor_leads_out_of_the_regions() {
    replay(env!("CARGO_MANIFEST_DIR"), "descriptors", descriptors::run);
}
