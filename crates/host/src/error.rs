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
    /// A link of an agent of before, on a kernel without TCX.
    #[error(
        "interface {ifindex} is of an agent of before, and policies cannot judge what the node sends to its pod: \
         restart the pod"
    )]
    OneSided {
        /// Its index.
        ifindex: u32,
    },
}
