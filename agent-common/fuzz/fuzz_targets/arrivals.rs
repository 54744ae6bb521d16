//! Frames that arrive on an uplink, tunnels of other nodes among them, as a compromised node sends them.
#![no_main]

#[path = "../src/arrivals.rs"]
mod arrivals;

libfuzzer_sys::fuzz_target!(|input: &[u8]| arrivals::run(input));
