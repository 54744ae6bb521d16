//! The host: what the kernel of this node has of podnet.

pub mod error;

use datapath::{Hook, Room};
use netdev::{Discipline, Netlink};

pub use error::HostError;

/// Handles of the node's kernel, which all rooms above share.
#[derive(Debug)]
pub struct Host {
    /// The node's own network namespace.
    pub netlink: Netlink,
    /// The attach point of the programs at a link.
    pub hook: Hook,
    /// Mechanism by which the kernel makes room for a tunnel's headers.
    pub room: Room,
    /// Mechanism by which the kernel limits rates; none if it has none.
    pub discipline: Option<Discipline>,
}
