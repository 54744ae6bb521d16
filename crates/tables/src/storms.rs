//! Storm control: limits of copies, and networks with too many receivers.
//!
//! A frame reaches a limited number of ports and nodes.

use std::collections::{BTreeMap, BTreeSet};

use agent_common::flood::{FLOOD_CHUNK, FLOOD_CHUNKS, FloodKey};
use agent_common::storm::{NETWORK_COPIES, NODE_COPIES, PORT_COPIES, StormLimits};
use agent_common::vtep::{VTEP_CHUNK, VTEP_CHUNKS};
use clap::Args;
use datapath::{DatapathError, Storm};

use super::layers::Layers;

/// Fewest copies per second that can be asked for.
///
/// That is one frame of a network of a few hundred ports.
const LEAST: i64 = 1000;
/// Most copies per second that can be asked for: far beyond what a node can make.
const MOST: i64 = 100_000_000;

/// How many copies of frames for all the programs make.
#[derive(Debug, Clone, Copy, Args)]
pub struct StormOptions {
    /// Copies of one port's broadcast and multicast frames, per second
    ///
    /// They are segments times receivers, 1000 to 100000000; twice as many at once.
    #[arg(long, env = "PODNET_STORM_PORT", value_name = "COPIES", default_value_t = PORT_COPIES, value_parser = clap::value_parser!(u32).range(LEAST..=MOST))]
    pub storm_port: u32,
    /// Copies of all ports of a network on this node, per second
    ///
    /// Frames that other nodes send count too. When it is spent, each port keeps an equal share.
    #[arg(long, env = "PODNET_STORM_NETWORK", value_name = "COPIES", default_value_t = NETWORK_COPIES, value_parser = clap::value_parser!(u32).range(LEAST..=MOST))]
    pub storm_network: u32,
    /// Copies of all networks of this node, per second
    ///
    /// When it is spent, each network keeps an equal share.
    #[arg(long, env = "PODNET_STORM_NODE", value_name = "COPIES", default_value_t = NODE_COPIES, value_parser = clap::value_parser!(u32).range(LEAST..=MOST))]
    pub storm_node: u32,
}

impl Default for StormOptions {
    fn default() -> Self {
        Self {
            storm_port: PORT_COPIES,
            storm_network: NETWORK_COPIES,
            storm_node: NODE_COPIES,
        }
    }
}

impl StormOptions {
    fn limits(self, networks: usize) -> StormLimits {
        let copies = [self.storm_port, self.storm_network, self.storm_node];
        StormLimits::new(copies, u32::try_from(networks.max(1)).unwrap_or(u32::MAX))
    }

    /// Receivers that one frame can reach: more cost more than a bucket holds.
    pub fn receivers_max(self) -> u64 {
        self.limits(1).most()
    }
}

/// Limits and networks that were told last.
#[derive(Debug, Default)]
pub(super) struct Storms {
    options: StormOptions,
    /// In the map; `None` until it is written.
    written: Option<StormLimits>,
    /// Networks that were complained about.
    oversized: BTreeSet<u32>,
}

impl Storms {
    pub(super) fn new(options: StormOptions) -> Self {
        Self {
            options,
            ..Self::default()
        }
    }

    pub(super) fn receivers_max(&self) -> u64 {
        self.options.receivers_max()
    }

    /// Sets what copies cost among so many networks.
    pub(super) fn settle(
        &mut self,
        networks: &BTreeMap<u32, Layers>,
        storm: &mut Storm,
    ) -> Result<(), DatapathError> {
        let limits = self.options.limits(networks.len());
        if self.written != Some(limits) {
            storm.set_limits(limits)?;
            self.written = Some(limits);
        }
        Ok(())
    }

    /// Complains, once, about a network of which one frame does not reach all.
    pub(super) fn look_at(&mut self, network: u32, layers: &Layers) {
        let Some(problem) = problem(receivers(network, layers), self.options) else {
            self.oversized.remove(&network);
            return;
        };
        if self.oversized.insert(network) {
            tracing::warn!(
                network,
                problem,
                "broadcast and multicast of a network do not reach all"
            );
        }
    }
}

/// Ports and other nodes of a network that get a copy of a frame for all.
pub(super) fn receivers(network: u32, layers: &Layers) -> (usize, usize) {
    let first = FloodKey { network, chunk: 0 };
    let ports = layers.own.flood.get(&first);
    let nodes = layers.beyond.entries.flood_vteps.get(&first);
    (
        ports.map_or(0, |ports| usize::from(ports.total)),
        nodes.map_or(0, |nodes| usize::from(nodes.total)),
    )
}

/// Names the limit that keeps a frame from reaching so many ports and nodes.
fn problem((ports, nodes): (usize, usize), options: StormOptions) -> Option<String> {
    let (most_ports, most_nodes) = (
        chunks(FLOOD_CHUNKS, FLOOD_CHUNK),
        chunks(VTEP_CHUNKS, VTEP_CHUNK),
    );
    let most = options.receivers_max();
    let all = ports.saturating_sub(1) + nodes;
    if ports > most_ports {
        Some(format!(
            "it has {ports} ports on this node, and one frame reaches {most_ports}: split the network"
        ))
    } else if nodes > most_nodes {
        Some(format!(
            "it has ports on {nodes} other nodes, and one frame reaches {most_nodes}: split the network"
        ))
    } else if all as u64 > most {
        Some(format!(
            "it has {all} receivers, and storm control allows {most} copies at once: raise --storm-port, \
             --storm-network and --storm-node"
        ))
    } else {
        None
    }
}

fn chunks(count: u32, each: usize) -> usize {
    usize::try_from(count).unwrap_or(0) * each
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_with_more_receivers_than_a_frame_reaches_is_told_about() {
        let usual = StormOptions::default();
        for fine in [(0, 0), (1, 0), (1000, 100), (3500, 504)] {
            assert_eq!(problem(fine, usual), None, "{fine:?}");
        }
        let said = |found, options| problem(found, options).unwrap();
        assert!(said((3501, 0), usual).contains("3501 ports"));
        assert!(said((2, 505), usual).contains("505 other nodes"));
        let tight = StormOptions {
            storm_network: 1000,
            ..usual
        };
        assert_eq!(tight.receivers_max(), 2000);
        assert_eq!(problem((2001, 0), tight), None);
        assert!(said((2002, 0), tight).contains("--storm-network"));
    }
}
