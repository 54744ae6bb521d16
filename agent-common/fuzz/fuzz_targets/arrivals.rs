//! Judge frames on an uplink as a compromised node sends them.
//!
//! Tunnels of other nodes are among them.
#![no_main]

#[path = "../src/arrivals.rs"]
mod arrivals;

libfuzzer_sys::fuzz_target!(|input: &[u8]| arrivals::run(input));
