//! Read frames of pods: headers, their spread over rings, and trains of one flow.
//!
//! The job: tell what a frame is from its bytes, and put frames of a flow into one packet that the kernel cuts into
//! the same frames again.
//!
//! Refuses to know: ports, networks, devices and files. Nothing here makes a system call.

pub mod header;
pub mod spread;
pub mod train;
