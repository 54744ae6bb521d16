//! The host: what the kernel of this node has of podnet.

pub mod error;

pub use error::HostError;
