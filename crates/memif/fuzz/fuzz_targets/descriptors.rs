//! A peer that writes what it likes into rings and buffers, between the calls of both ends.
#![no_main]

#[path = "../src/descriptors.rs"]
mod descriptors;

libfuzzer_sys::fuzz_target!(|input: &[u8]| descriptors::run(input));
