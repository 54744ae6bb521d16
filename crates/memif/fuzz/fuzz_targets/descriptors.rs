//! Fuzz both ends with a peer that writes into rings and buffers between calls.
#![no_main]

#[path = "../src/descriptors.rs"]
mod descriptors;

libfuzzer_sys::fuzz_target!(|input: &[u8]| descriptors::run(input));
