//! Datagrams with descriptors, as a peer may send them, for both sides of the control channel.
#![no_main]

#[path = "../src/control.rs"]
mod control;

libfuzzer_sys::fuzz_target!(|input: &[u8]| control::run(input));
