//! The cluster at one moment, as the controller reads it.
//!
//! [`copies`] of all objects become a [`view`], which is plain data. [`usage`] finds in it which pods use what,
//! [`transports`] decides on those of networks, and [`pod`] is what is read of a pod.

pub mod copies;
pub mod pod;
#[cfg(any(test, feature = "samples"))]
pub mod samples;
pub mod transports;
pub mod usage;
pub mod view;
