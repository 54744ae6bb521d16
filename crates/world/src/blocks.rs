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

/// Checks that a network can give these addresses, whoever has them now.
///
/// A length of a prefix is that of the subnet, or of the address alone.
///
/// # Errors
/// The first address that it cannot give.
pub fn check(
    network: &Network,
    ips: impl IntoIterator<Item = (IpAddr, Option<u8>)>,
) -> Result<(), IpamError> {
    let pools = pools(network)?;
    for (ip, length) in ips {
        let Some(pool) = pools.iter().find(|pool| pool.prefix().contains(&ip)) else {
            let subnets = pools.iter().map(Pool::prefix).collect();
            return Err(IpamError::OutOfSubnets { ip, subnets });
        };
        let subnet = pool.prefix();
        let lengths = [subnet.prefix_len(), subnet.max_prefix_len()];
        if let Some(asked) = length.filter(|length| !lengths.contains(length)) {
            return Err(IpamError::PrefixLength { ip, asked, subnet });
        }
        pool.request(ip, &|_| false)?;
    }
    Ok(())
}
