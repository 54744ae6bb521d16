//! The real binary against a peer that plays the agent's side of the socket.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "all of this crate is tests; clippy looks for #[test] and cfg(test) only"
)]

mod agent_away;
mod calls;
mod exchange;
mod lease;
mod namespace;
mod parameters;
mod peer;
mod tombstones;
mod version;
