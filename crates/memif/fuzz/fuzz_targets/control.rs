//! Fuzz both sides of the control channel with datagrams and descriptors.
#![no_main]

#[path = "../src/control.rs"]
mod control;

libfuzzer_sys::fuzz_target!(|input: &[u8]| control::run(input));
