//! Share words and packet decisions between podnet's kernel programs and userspace.
//!
//! It knows map layouts (one file per map value), how to read a frame and what to do with it. It
//! refuses to know how maps are created, how a frame reached us and how it leaves: those belong to
//! `agent-ebpf` (the TC programs) and `datapath` (the loader).
//!
//! Everything here is `no_std`, free of `unsafe`, and bounded: the 5.10 verifier accepts it.
//!
//! ```
//! use agent_common::addr::MacAddr;
//! let mac: MacAddr = "02:00:00:00:00:2a".parse().unwrap();
//! assert!(mac.is_unicast());
//! ```
#![cfg_attr(not(any(test, feature = "cases")), no_std)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

pub mod addr;
mod arp;
pub mod arrival;
pub mod capture;
#[cfg(feature = "cases")]
pub mod cases;
pub mod checksum;
pub mod control;
pub mod counter;
pub mod drop;
pub mod endpoint;
pub mod event;
pub mod flood;
pub mod guard;
pub mod icmp_error;
pub mod map;
pub mod nd;
pub mod network;
pub mod outer;
pub mod packet;
pub mod partial;
pub mod policy;
pub mod port;
pub mod reply;
pub mod route;
pub mod seal;
pub mod segments;
pub mod service;
pub mod shape;
pub mod skb;
pub mod storm;
pub mod tail_call;
pub mod uplink;
pub mod vtep;
pub mod wire;
#[cfg(feature = "cases")]
mod world;

/// Version of the map layouts, part of the pin path.
///
/// Raise it whenever `tests/abi.txt` changes.
pub const ABI_VERSION: u32 = 13;
