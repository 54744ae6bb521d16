//! Fuzz the input of the plugin by a runtime, and frames on the agent's socket.
#![no_main]

#[path = "../src/input.rs"]
mod input;

libfuzzer_sys::fuzz_target!(|input: &[u8]| input::run(input));
