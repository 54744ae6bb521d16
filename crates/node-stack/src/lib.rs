//! Lead packets of networks through the node's own network stack.
//!
//! - [`egress`] leads a network's pods to the outside through a network namespace of its own.
//! - [`routing`] is what the stack needs for the one network that the node routes for.
//!
//! Neither knows tunnels, uplinks or kinds of ports.

pub mod egress;
pub mod routing;
