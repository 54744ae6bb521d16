//! The podnet node agent: what a node's attachments should be, made so and kept so.
//!
//! A tour, in the order of a CNI `ADD`:
//!
//! - [`cni`] takes the request from the socket and answers it; every CNI code is chosen there.
//! - [`world`] knows which networks exist and what they are.
//! - [`ledger`] chooses addresses and remembers attachments; [`attach`] makes and unmakes them,
//!   record before effect.
//! - [`bandwidth`] says which rates an attachment has; [`shaping`] makes them real.
//! - [`ports`] names the host ends of links, and gives them their TCX links when nobody waits.
//! - [`reconcile`] is the only writer of BPF maps: from records to map entries.
//! - [`recover`] runs the same path at start and on a timer, whatever happened in between.
//!
//! [`run`] puts it together; [`admin`], [`metrics`] and [`commands`] show it.

pub mod admin;
pub mod attach;
pub mod bandwidth;
pub mod cli;
pub mod cni;
pub mod commands;
pub mod error;
pub mod failpoint;
pub mod ledger;
pub mod metrics;
pub mod node;
pub mod ports;
pub mod reconcile;
pub mod record;
pub mod recover;
pub mod run;
#[cfg(test)]
mod samples;
pub mod shaping;
pub mod telemetry;
pub mod views;
pub mod world;
