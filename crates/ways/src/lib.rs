//! Decide the ways of frames between ports of the switch for memif.
//!
//! A frame goes to another port of its network without the kernel where the same policy as the kernel program's says
//! so, by tables that are a part of the kernel's ([`Network`]); between guarded ports where the kernel has judged its
//! connection ([`Published`]). All others are the kernel program's.
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod flat;
mod network;
mod published;
mod words;

pub use crate::network::{Identity, Last, Network, Slot, Way};
pub use crate::published::{Published, tick};
