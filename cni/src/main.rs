//! Run the CNI plugin `podnet`: pass one request to the agent, print its answer.
//!
//! The request is environment and stdin; the answer goes to stdout.
//!
//! It knows the protocol of CNI and the way to the agent. It refuses to know networks, addresses
//! and links: every decision is the agent's, except those that must work without one (`VERSION`,
//! malformed requests, the tombstone of a `DEL`, and `STATUS` while the agent is restarted).

mod agent;
mod lease;
mod netns;
mod patience;
mod plugin;
mod stdio;
mod tombstone;

use std::process::ExitCode;

fn main() -> ExitCode {
    let env = |name: &str| {
        let value = std::env::var_os(name)?;
        // What is not UTF-8 is no valid parameter either; the replacement character shows where.
        Some(value.to_string_lossy().into_owned())
    };
    match plugin::run(env) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.report();
            ExitCode::FAILURE
        }
    }
}
