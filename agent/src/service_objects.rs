//! Services of the API server, as far as a node serves them or leads to them.

mod named;
mod of_networks;

pub(crate) use named::Named;
pub(crate) use of_networks::{OfNetworks, Placed};
