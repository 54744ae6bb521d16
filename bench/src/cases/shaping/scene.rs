//! Limited pods, and one that is not.

use anyhow::{Context, Result};
use netdev::{Address, VethSpec};
use serde_json::{Map, Value, json};
use tempfile::TempDir;
use testbed::host::connection;
use testbed::{Network, Node};

use crate::cases::{Bench, wait_promoted};
use crate::interrupt;
use crate::peers::{Bed, Peer, podnet, podnet_plugin};
use crate::plugin::Plugin;
use crate::sandbox::{Sandbox, Side};

/// podnet, limited by itself.
pub(super) const PODNET: &str = "podnet";
/// The reference plugin behind the reference bridge.
pub(super) const BANDWIDTH: &str = "bridge + bandwidth";
const SUBNET: &str = "10.70.0.0/24";

/// Which way is limited, as the pod sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    /// To the pod.
    Ingress,
    /// From the pod.
    Egress,
    /// Both at once.
    Both,
}

impl Direction {
    pub(super) fn name(self) -> &'static str {
        match self {
            Direction::Ingress => "ingress",
            Direction::Egress => "egress",
            Direction::Both => "both",
        }
    }

    /// Whether something flows to the pod, and from it.
    pub(super) fn flows(self) -> (bool, bool) {
        (self != Direction::Egress, self != Direction::Ingress)
    }

    /// `runtimeConfig.bandwidth` (CNI conventions; bits and bits per second).
    fn limits(self, rate: u64) -> Value {
        // 10 ms of the rate, and 32 KiB for the slowest.
        let burst = (rate / 100).max(32 * 1024 * 8);
        let mut limits = Map::new();
        let (to_pod, from_pod) = self.flows();
        for (wanted, key) in [(to_pod, "ingress"), (from_pod, "egress")] {
            if wanted {
                limits.insert(format!("{key}Rate"), rate.into());
                limits.insert(format!("{key}Burst"), burst.into());
            }
        }
        json!({"bandwidth": limits})
    }
}

/// Pods of one peer: one limited pod for each rate and direction.
///
/// Fields with interfaces are dropped before the node that they are on.
pub(super) struct Scene {
    pub(super) who: &'static str,
    limited: Vec<(u64, Direction, Side)>,
    other: Side,
    _pods: Vec<Sandbox>,
    _bed: Option<Bed>,
    _node: Option<Node>,
}

impl Scene {
    /// Attaches all.
    ///
    /// # Errors
    /// The plugin is missing or refuses, or the run is interrupted.
    pub(super) fn set(
        who: &'static str,
        bench: &Bench<'_>,
        rates: &[(&str, u64)],
        directions: &[Direction],
    ) -> Result<Self> {
        let limits = rates
            .iter()
            .flat_map(|(_, rate)| directions.iter().map(|direction| (*rate, *direction)));
        Self::with(who, bench, who, &limits.collect::<Vec<_>>())
    }

    /// Attaches so many pods with the same limit in both directions.
    ///
    /// # Errors
    /// As [`Self::set`].
    pub(super) fn crowd(
        who: &'static str,
        bench: &Bench<'_>,
        rate: u64,
        pods: usize,
    ) -> Result<Self> {
        let files = format!("{who} crowd");
        Self::with(who, bench, &files, &vec![(rate, Direction::Both); pods])
    }

    fn with(
        who: &'static str,
        bench: &Bench<'_>,
        files: &str,
        limits: &[(u64, Direction)],
    ) -> Result<Self> {
        if who == PODNET {
            let node = podnet(&[Network::l2("limited", &[SUBNET])]);
            let plugin = podnet_plugin(who, &node, "limited");
            let mut scene = Self::attach(who, bench, &plugin, files, limits)?;
            wait_promoted(&node)?;
            scene._node = Some(node);
            return Ok(scene);
        }
        let bed = Bed::make(Peer::Bandwidth, files, bench.dir, &[SUBNET])?;
        let mut scene = Self::attach(who, bench, &bed.plugin, files, limits)?;
        scene._bed = Some(bed);
        Ok(scene)
    }

    fn attach(
        who: &'static str,
        bench: &Bench<'_>,
        plugin: &Plugin,
        files: &str,
        limits: &[(u64, Direction)],
    ) -> Result<Self> {
        let mut pods = Vec::new();
        let mut add = |name: &str, plugin: &Plugin| -> Result<Side> {
            interrupt::check()?;
            let word = files.replace([' ', '+'], "-");
            let pod = Sandbox::create(bench.dir, &format!("{word}-{name}"))?;
            let (_, result) = plugin.call("ADD", Some(&pod))?;
            let side = Side::of_result(&pod, &result)?;
            pods.push(pod);
            Ok(side)
        };
        let none = plugin.clone().with("runtimeConfig", &json!({}));
        let other = add("other", &none)?;
        let mut limited = Vec::new();
        for (number, (rate, direction)) in limits.iter().enumerate() {
            let limits = direction.limits(*rate);
            let plugin = plugin.clone().with("runtimeConfig", &limits);
            let side = add(&format!("{}-{rate}-{number}", direction.name()), &plugin)?;
            limited.push((*rate, *direction, side));
        }
        Ok(Self {
            who,
            limited,
            other,
            _pods: pods,
            _bed: None,
            _node: None,
        })
    }

    /// The pod that is not limited.
    pub(super) fn other(&self) -> &Side {
        &self.other
    }

    /// All pods that are.
    pub(super) fn crowded(&self) -> impl Iterator<Item = &Side> {
        self.limited.iter().map(|(_, _, side)| side)
    }

    /// The limited pod and the other one.
    pub(super) fn sides(&self, rate: u64, direction: Direction) -> Result<(&Side, &Side)> {
        let mut limited = self.limited.iter();
        let found = limited.find(|one| (one.0, one.1) == (rate, direction));
        let (_, _, side) = found.context("no pod has this limit")?;
        Ok((side, &self.other))
    }
}

/// Two pods with nothing between them.
pub(super) struct Bare {
    pub(super) a: Side,
    pub(super) b: Side,
    _pods: [Sandbox; 2],
}

pub(super) fn bare(dir: &TempDir) -> Result<Bare> {
    let pods = [
        Sandbox::create(dir, "unlimited-a")?,
        Sandbox::create(dir, "unlimited-b")?,
    ];
    let mut spec = VethSpec::new("net1", "net1");
    spec.peer_netns = Some(pods[1].netns().clone());
    spec.queues = Some(1);
    let pair = connection(pods[0].netns()).create_veth(&spec)?;
    let side = |pod: &Sandbox, ifindex, ip: [u8; 4]| -> Result<Side> {
        let mut netlink = connection(pod.netns());
        netlink.add_address(ifindex, Address::new(ip.into(), 24))?;
        netlink.set_up(ifindex)?;
        Ok(Side {
            netns: pod.netns().clone(),
            ip: ip.into(),
        })
    };
    Ok(Bare {
        a: side(&pods[0], pair.host_ifindex, [10, 30, 0, 1])?,
        b: side(&pods[1], pair.peer_ifindex, [10, 30, 0, 2])?,
        _pods: pods,
    })
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn limits_are_those_of_the_direction_and_bursts_are_never_tiny() {
        let limits = Direction::Ingress.limits(10_000_000);
        let expected = json!({"bandwidth": {"ingressRate": 10_000_000, "ingressBurst": 262_144}});
        assert_eq!(limits, expected);
        let both = Direction::Both.limits(1_000_000_000);
        assert_eq!(both["bandwidth"].as_object().unwrap().len(), 4);
        assert_eq!(both["bandwidth"]["egressBurst"], 10_000_000);
    }
}
