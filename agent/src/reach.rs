//! The reach of networks beyond this node: tunnels, uplinks, ways out, the node's own stack.

pub mod error;

pub use error::ReachError;
