//! Refusals of the kernel.

use datapath::DatapathError;

/// A step that the kernel refused.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// Links, addresses, routes, queues or nf_tables could not be read or changed.
    #[error(transparent)]
    Netdev(#[from] netdev::Error),
    /// Programs or maps could not be read or changed.
    #[error(transparent)]
    Datapath(#[from] DatapathError),
}
