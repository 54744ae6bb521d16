//! The switch for pods that are attached by memif.
//!
//! A memif attachment has a host end in the kernel like every other: a TAP device, at whose ingress
//! the datapath judges what the pod sends. This process moves frames between the pod's shared memory
//! and that device. Frames from one of its pods to another one of the same network it judges by the
//! same policy and carries over itself; whatever that policy does not simply deliver to such a pod
//! goes to the device, so that refusing, answering, copying and counting are the kernel program's.
//!
//! It is a process of its own, which outlives the agent: clients of memif do not connect again. The
//! agent speaks to it over a socket ([`control`]), and a new one takes all over from the one before.
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

pub mod control;
mod device;
mod error;
mod handover;
mod port;
mod switch;
mod user;
mod worker;

pub use crate::error::Error;
pub use crate::port::{
    ConfigError, Count, PortConfig, PortCounters, PortDrops, PortStatus, QUEUES_MAX,
};
pub use crate::switch::{Ended, Memory, Options, Switch};
pub use crate::user::{NotAUser, SwitchUser};
