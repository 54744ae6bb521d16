//! Divide the subnets of a network into pools of addresses and blocks of them.

use std::net::IpAddr;

use api::Network;
use ipam::{BlockLength, IpamError, Pool};

/// The largest blocks that a node takes, prefix lengths.
pub const LENGTH: BlockLength = BlockLength {
    v4: api::BLOCK_LEN_V4,
    v6: api::BLOCK_LEN_V6,
};

/// The subnets of a network, as addresses that can be given.
///
/// # Errors
/// A subnet with a gateway or an exclusion outside of it; validation refuses such networks.
pub fn pools(network: &Network) -> Result<Vec<Pool>, IpamError> {
    let subnets = network.subnets.iter();
    subnets
        .map(|subnet| {
            let gateways: Vec<IpAddr> = subnet.gateway.into_iter().collect();
            Pool::new(subnet.prefix, &gateways, &subnet.exclude)
        })
        .collect()
}
