//! Fuzz the annotations of a pod, and the definitions that they name.
#![no_main]

#[path = "../src/annotations.rs"]
mod annotations;

libfuzzer_sys::fuzz_target!(|input: &[u8]| annotations::run(input));
