//! Choices for a new attachment: pools of its allocator, its MAC address.

use std::collections::HashMap;

use agent_common::addr::MacAddr;
use api::{Network, Subnet};
use cni_spec::AttachmentKey;
use cni_spec::digest::digest;
use ipam::Allocator;
use world::blocks::pools;

use super::Usage;
use crate::BookError;
use crate::record::Decision;

/// The allocator of a network; a new one when its subnets have changed.
pub(super) fn allocator<'a>(
    allocators: &'a mut HashMap<String, (Vec<Subnet>, Allocator)>,
    network: &Network,
) -> Result<&'a mut Allocator, BookError> {
    let stale = allocators
        .get(&network.name)
        .is_none_or(|(subnets, _)| *subnets != network.subnets);
    if stale {
        let fresh =
            pools(network)
                .and_then(Allocator::new)
                .map_err(|source| BookError::Address {
                    network: network.name.clone(),
                    source,
                })?;
        allocators.insert(network.name.clone(), (network.subnets.clone(), fresh));
    }
    allocators
        .get_mut(&network.name)
        .map(|(_, allocator)| allocator)
        .ok_or(BookError::NoAllocator)
}

/// The MAC address that is asked for, or one of its own.
pub(super) fn choose_mac(
    usage: &Usage,
    key: &AttachmentKey,
    network: u32,
    wanted: Option<(MacAddr, &'static str)>,
    name: &str,
    decisions: &mut Vec<Decision>,
) -> Result<MacAddr, BookError> {
    if let Some((mac, source)) = wanted {
        if usage.macs.contains(&mac) || mac == agent_common::addr::GATEWAY_MAC {
            return Err(BookError::MacHeld {
                network: name.to_owned(),
                mac,
            });
        }
        decisions.push(Decision::new("mac", &mac, source));
        return Ok(mac);
    }
    // The same container gets the same address again, unless somebody else has it meanwhile.
    let mut seed = digest(format!("{network}/{key}").as_bytes());
    loop {
        let [.., a, b, c, d, e] = seed.to_be_bytes();
        let mac = MacAddr([0x02, a, b, c, d, e]);
        if !usage.macs.contains(&mac) && mac != agent_common::addr::GATEWAY_MAC {
            decisions.push(Decision::new(
                "mac",
                &mac,
                "derived from network, container and interface",
            ));
            return Ok(mac);
        }
        seed = digest(&seed.to_be_bytes());
    }
}
