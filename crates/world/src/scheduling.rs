//! Needs of a network's pods of a node, as the scheduler counts them.
//!
//! The agent tells a node's part as labels and extended resources; the webhook asks for it in new pods.

use std::collections::{BTreeMap, BTreeSet};

use api::nad::{Definition, Meaning, NetworkRef, read_definition};
use api::selection::{SelectedAttachment, Target};
use api::{ADDRESSES_DOMAIN, BANDWIDTH_DOMAIN, Bandwidth, NETWORK_DOMAIN, Network, scheduling_key};

use crate::World;

/// Bits per second of one unit of a bandwidth resource.
pub const UNIT: u64 = 1_000_000;

/// Needs of attachments, as extended resources and labels of nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Needs {
    /// Extended resources with the amount of each.
    pub resources: BTreeMap<String, u64>,
    /// Labels that the node has.
    pub labels: BTreeSet<String>,
}

impl Needs {
    /// Adds the needs of one attachment.
    pub fn add(&mut self, world: &World, attachment: &SelectedAttachment) {
        let Some((network, wished)) = of_target(world, &attachment.target) else {
            return;
        };
        let own = attachment.options.bandwidth.unwrap_or_default();
        let mut add = |key: Option<String>, amount: u64| {
            if let Some(key) = key.filter(|_| amount > 0) {
                let sum = self.resources.entry(key).or_default();
                *sum = sum.saturating_add(amount);
            }
        };
        // One that brings its addresses takes none of those that are counted.
        let options = &attachment.options;
        let brings = !options.ips.is_empty() || options.ipam_claim_reference.is_some();
        if network.scheduling.addresses && !brings {
            add(addresses(&network.name), 1);
        }
        if network.scheduling.bandwidth {
            let sources = [own, wished, network.bandwidth];
            add(
                network
                    .wire
                    .as_ref()
                    .and_then(|wire| bandwidth(&wire.uplink)),
                units(&sources),
            );
        }
        if network.scheduling.nodes {
            self.labels.extend(label(&network.name));
        }
    }
}

/// Resource that counts the addresses of a network.
pub fn addresses(network: &str) -> Option<String> {
    scheduling_key(ADDRESSES_DOMAIN, network)
}

/// Resource that counts the rate of an uplink, Mbit/s.
pub fn bandwidth(uplink: &str) -> Option<String> {
    scheduling_key(BANDWIDTH_DOMAIN, uplink)
}

/// Label of nodes that can carry a network.
pub fn label(network: &str) -> Option<String> {
    scheduling_key(NETWORK_DOMAIN, network)
}

/// Returns the larger rate of both directions in Mbit/s, rounded up.
///
/// The first source that has a rate of a direction decides it.
fn units(sources: &[Bandwidth]) -> u64 {
    let first = |rate: fn(&Bandwidth) -> Option<u64>| sources.iter().find_map(rate).unwrap_or(0);
    let ingress = first(|it| it.ingress.rate);
    let egress = first(|it| it.egress.rate);
    ingress.max(egress).div_ceil(UNIT)
}

/// Returns the network behind an object that a pod names.
///
/// With the rates that objects on the way wish.
fn of_target<'a>(world: &'a World, target: &Target) -> Option<(&'a Network, Bandwidth)> {
    let of_network = |name: &str| world.resolved.definition(name);
    let of_attachment = |namespace: &str, name: &str| {
        let found = world.resolved.attachment(namespace, name).ok()?;
        Some((of_network(&found.network)?, found.request.bandwidth))
    };
    match target {
        Target::PodNetwork(name) => Some((of_network(name)?, Bandwidth::default())),
        Target::Attachment { namespace, name } => of_attachment(namespace, name),
        Target::Definition { namespace, name } => {
            let key = (namespace.clone(), name.clone());
            let object = world.definitions.get(&key)?;
            let read = read_definition(&Definition {
                namespace,
                name,
                annotations: &object.annotations,
                config: &object.config,
            });
            match read.ok()?.meaning {
                Meaning::ByName(name) => Some((of_network(&name)?, Bandwidth::default())),
                Meaning::Own(own) => {
                    let (network, wished) = match &own.network {
                        NetworkRef::PodNetwork(name) => (of_network(name)?, Bandwidth::default()),
                        NetworkRef::Attachment { namespace, name } => {
                            of_attachment(namespace, name)?
                        }
                    };
                    let own = own.request.bandwidth;
                    let both = Bandwidth {
                        ingress: own.ingress.or(wished.ingress),
                        egress: own.egress.or(wished.egress),
                    };
                    Some((network, both))
                }
                Meaning::Delegate(_) => None,
            }
        }
    }
}
