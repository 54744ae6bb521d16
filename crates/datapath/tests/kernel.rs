//! Test the programs in the running kernel, behind pins of each test's own.
//!
//! Needs root and the eBPF object; skipped with a line on stdout otherwise.

#[path = "kernel/answers.rs"]
mod answers;
#[path = "kernel/cases.rs"]
mod cases;
#[path = "kernel/cost.rs"]
mod cost;
#[path = "kernel/early.rs"]
mod early;
#[path = "kernel/flood.rs"]
mod flood;
#[path = "kernel/flows.rs"]
mod flows;
#[path = "kernel/generations.rs"]
mod generations;
#[path = "kernel/hooks.rs"]
mod hooks;
#[path = "kernel/ports.rs"]
mod ports;
#[path = "kernel/remote.rs"]
mod remote;
#[path = "kernel/scratch.rs"]
mod scratch;
#[path = "kernel/seals.rs"]
mod seals;
#[path = "kernel/services.rs"]
mod services;
#[path = "kernel/shaped.rs"]
mod shaped;
#[path = "kernel/sides.rs"]
mod sides;
#[path = "kernel/switched.rs"]
mod switched;
