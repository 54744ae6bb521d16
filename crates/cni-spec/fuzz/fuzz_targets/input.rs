//! What a runtime gives the plugin, and what comes over the agent's socket.
#![no_main]

#[path = "../src/input.rs"]
mod input;

libfuzzer_sys::fuzz_target!(|input: &[u8]| input::run(input));
