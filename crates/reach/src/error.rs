//! Failures of what carries networks beyond this node.

use datapath::DatapathError;
use host::HostError;
use node_stack::egress::EgressError;
use node_stack::routing::NotRouting;

use crate::overlay::OverlayError;
use crate::uplink_networks::UplinkNetworkError;
use crate::uplinks::UplinkError;

/// A network cannot leave this node.
#[derive(Debug, thiserror::Error)]
pub enum ReachError {
    /// The network spans nodes, and this one cannot take part.
    #[error(transparent)]
    Overlay(#[from] OverlayError),
    /// The network cannot have its uplink.
    #[error(transparent)]
    Wire(#[from] UplinkNetworkError),
    /// The network has egress, and no way out here.
    #[error(transparent)]
    Egress(#[from] EgressError),
    /// The node does not route for the network, or not yet.
    #[error(transparent)]
    Routing(#[from] NotRouting),
    /// Interfaces of the node are not as they should be.
    #[error(transparent)]
    Uplinks(#[from] UplinkError),
    /// The kernel refused.
    #[error(transparent)]
    Host(#[from] HostError),
}

impl From<netdev::Error> for ReachError {
    fn from(error: netdev::Error) -> Self {
        HostError::from(error).into()
    }
}

impl From<DatapathError> for ReachError {
    fn from(error: DatapathError) -> Self {
        HostError::from(error).into()
    }
}
