//! Gives the node a port of its own on networks that say so (`spec.nodeAccess`).
//!
//! By it the kubelet probes pods, and API servers reach their webhooks. A network gets it with its first pod here, or as soon as it is
//! known where all nodes have one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use api::{Network, NetworkId, NodeAccess, Prefix};
use book::access::{self, PRIORITY, TABLE};
use book::ledger::Wanted;
use book::record::{Attachment, Decision, NetworkFacts, Sandbox, State};
use cni_spec::digest::digest;
use cni_spec::{AttachmentKey, SpecError};
use host::PROTOCOL;
use netdev::{Connection, OwnTable, Route};
use telemetry::chain;
use tokio::time::Instant;
use world::World;

use crate::error::AgentError;
use crate::node::Node;

/// Time after which everything is looked at, even without a change.
const ROUND: Duration = Duration::from_secs(30);
/// Time to the next attempt at what failed.
const RETRY: Duration = Duration::from_secs(2);
/// Time within which changes that come together are one.
const SETTLE: Duration = Duration::from_millis(50);
/// Time for which a port stays when the last pod of its network has gone.
const GRACE: Duration = Duration::from_secs(5);
/// Path of the agent's namespace, which is the node's.
const NETNS: &str = "/proc/self/ns/net";

/// The table of the ports' routes, and the rule that leads there.
const OWN_TABLE: OwnTable = OwnTable {
    table: TABLE,
    priority: PRIORITY,
    protocol: PROTOCOL,
};

/// A port that the node cannot have.
#[derive(Debug, thiserror::Error)]
enum AccessError {
    /// Packets to the subnet have another way.
    #[error(
        "{subnet} overlaps {route}, to which the node has a route: give the network other subnets, or its nodeAccess None"
    )]
    Overlap {
        /// A subnet of the network.
        subnet: Prefix,
        /// Destination of the route.
        route: String,
    },
    /// Another network has the name of the link.
    #[error(
        "network {other} has a port of the same name: rename one of the two networks, or give one of them nodeAccess None"
    )]
    SameName {
        /// The other network.
        other: String,
    },
    /// The kernel refuses.
    #[error(transparent)]
    Kernel(#[from] netdev::Error),
    /// A name is none.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// As for an attachment of a pod.
    #[error(transparent)]
    Agent(#[from] Box<AgentError>),
}

/// Attempts at a port that have failed.
#[derive(Debug, Clone)]
struct Failure {
    why: String,
    again: Instant,
    pause: Duration,
}

/// Ports of the node, and what is known of them.
struct Keeper<'a> {
    node: &'a Arc<Node>,
    /// Since when a port is the last one of its network.
    alone: BTreeMap<AttachmentKey, Instant>,
    /// Networks whose port could not be made.
    failed: BTreeMap<String, Failure>,
    /// The rule for the ports' routes may be there.
    led: bool,
}

/// Wish of a network for a port of this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    /// A port of the node.
    Port,
    /// The port that is there, for now.
    Stay,
    /// The port that is there, and none in a while.
    Leave,
    /// None.
    Nothing,
}

/// Keeps the ports as networks say, for ever.
pub(crate) async fn keep(node: &Arc<Node>) {
    let mut keeper = Keeper {
        node,
        alone: BTreeMap::new(),
        failed: BTreeMap::new(),
        // An agent before may have made it.
        led: true,
    };
    let mut worlds = node.world.changes();
    let mut attachments = node.book.ledger().changes();
    let mut looked = None::<Instant>;
    loop {
        worlds.mark_unchanged();
        attachments.mark_unchanged();
        // Between rounds only what is not there is made.
        let is_round = looked.is_none_or(|at| at.elapsed() >= ROUND);
        if is_round {
            looked = Some(Instant::now());
        }
        let wait = keeper.settle(is_round).await;
        let change = async {
            tokio::select! {
                // The senders live as long as the node.
                _ = worlds.changed() => {}
                _ = attachments.changed() => {}
            }
            tokio::time::sleep(SETTLE).await;
        };
        let _ = tokio::time::timeout(wait, change).await;
    }
}

/// Removes the rule that leads to the ports' routes; these go with their links.
///
/// # Errors
/// When the kernel refuses.
pub(crate) fn remove(
    connection: &mut Connection,
    dry_run: bool,
) -> Result<Option<String>, netdev::Error> {
    let is_there = match dry_run {
        true => connection.leads_own_packets(&OWN_TABLE)?,
        false => connection.release_own_packets(&OWN_TABLE)?,
    };
    Ok(is_there.then(|| format!("routing rule for table {TABLE}")))
}

impl Node {
    /// Networks on which the node has no port that it should have, with the reason.
    pub(crate) fn without_access(&self) -> BTreeMap<String, String> {
        let failed = self.without_access.lock();
        failed.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Keeper<'_> {
    /// Makes and removes ports; returns the time to the next look.
    async fn settle(&mut self, is_round: bool) -> Duration {
        let world = self.node.world.get();
        if !world.unread.is_empty() {
            return ROUND;
        }
        let mut wait = self.leave(&world).await;
        let definitions = world.resolved.definitions().map(|it| &it.name);
        let wanted: BTreeSet<&String> = definitions
            .filter(|name| self.wish(&world, name) == Wish::Port)
            .collect();
        self.failed.retain(|name, _| wanted.contains(name));
        for name in wanted {
            let before = self.failed.get(name).cloned();
            let rest = before
                .as_ref()
                .map(|it| it.again.saturating_duration_since(Instant::now()));
            if let Some(rest) = rest.filter(|rest| !rest.is_zero()) {
                wait = wait.min(rest);
                continue;
            }
            let Ok(network) = world.network(name) else {
                continue;
            };
            if let Err(error) = self.ensure(network, is_round).await {
                let failure = Failure::after(before, chain(&error), name);
                wait = wait.min(failure.pause);
                self.failed.insert(name.clone(), failure);
            } else {
                self.failed.remove(name);
            }
        }
        let told = self.failed.iter();
        let told = told.map(|(name, failure)| (name.clone(), failure.why.clone()));
        let mut known = self
            .node
            .without_access
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *known = told.collect();
        wait
    }

    /// True for a network that has a pod here.
    fn is_used(&self, network: &str) -> bool {
        self.node.book.ledger().has_pods(network)
    }

    /// Finds the wish of a network.
    fn wish(&self, world: &World, name: &str) -> Wish {
        let Some(network) = world.resolved.definition(name) else {
            // One that cannot be read for now goes on for the pods that are there.
            let mut names = world.resolved.network_names();
            return match names.any(|it| it == name) {
                true => Wish::Stay,
                false => Wish::Nothing,
            };
        };
        match network.node_access {
            NodeAccess::None => Wish::Nothing,
            NodeAccess::Local if !self.is_used(name) => Wish::Leave,
            NodeAccess::Local | NodeAccess::All => match world.network(name) {
                Ok(_) => Wish::Port,
                Err(_) => Wish::Stay,
            },
        }
    }

    /// Removes ports that no network wants; returns the time to the next look.
    async fn leave(&mut self, world: &World) -> Duration {
        let records: Vec<Attachment> = {
            let ledger = self.node.book.ledger();
            let records = ledger.entries().map(|entry| &entry.record);
            records.filter(|it| it.is_of_node()).cloned().collect()
        };
        let (mut wait, mut left) = (ROUND, 0);
        let before = std::mem::take(&mut self.alone);
        for record in records {
            let wish = self.wish(world, &record.network.name);
            let since = before
                .get(&record.key)
                .copied()
                .unwrap_or_else(Instant::now);
            let rest = GRACE.saturating_sub(since.elapsed());
            if wish == Wish::Leave && !rest.is_zero() {
                wait = wait.min(rest);
                self.alone.insert(record.key, since);
                left += 1;
                continue;
            }
            if matches!(wish, Wish::Port | Wish::Stay) {
                left += 1;
                continue;
            }
            let _turn = self.node.book.turn(&record.key.container).await;
            if let Err(error) = self.node.attachments.remove(&record.key).await {
                wait = RETRY;
                left += 1;
                tracing::error!(
                    network = record.network.name,
                    error = chain(&error),
                    "the node's port on the network is not removed yet; trying again"
                );
            }
        }
        if left == 0 && self.led {
            let released = self
                .node
                .host
                .netlink
                .with(|it| it.release_own_packets(&OWN_TABLE));
            match released.await {
                Ok(_) => self.led = false,
                Err(error) => {
                    wait = RETRY;
                    tracing::warn!(
                        error = chain(&error),
                        "the rule for routes of the node's ports on networks is not removed yet; trying again"
                    );
                }
            }
        }
        wait
    }

    /// Has the node's port on a network there, as it shall be.
    ///
    /// `looks`: also when all seems to be as it shall.
    async fn ensure(&mut self, network: &Network, looks: bool) -> Result<(), AccessError> {
        let node = self.node;
        let key = access::key(&network.name)?;
        let netns = node.host.netlink.netns();
        let wanted = wanted(&key, network, Sandbox::of(NETNS, netns));
        let _turn = node.book.turn(&key.container).await;
        let known = {
            let ledger = node.book.ledger();
            let entry = ledger.get(&key);
            entry.map(|entry| (entry.record.clone(), entry.live))
        };
        let mut is_new = known.is_none();
        if let Some((record, live)) = known {
            if record.network.name != network.name {
                let other = record.network.name;
                return Err(AccessError::SameName { other });
            }
            let is_whole = live && record.state == State::Added && record.sandbox.is(netns);
            let is_same = record.request_digest == wanted.request_digest;
            let number = network.id.map_or(record.network.id, NetworkId::get);
            let facts = NetworkFacts::of(network, number);
            // Pods of before keep what cannot change while they are there, and are probed on.
            let waits = || {
                self.is_used(&network.name) && node.book.ledger().refuse_changed(&facts).is_err()
            };
            if is_whole && (is_same && !looks || !is_same && waits()) {
                return Ok(());
            }
            if !is_whole || !is_same {
                node.attachments.remove(&key).await.map_err(Box::new)?;
                is_new = true;
            }
        }
        if is_new {
            let routes = node.host.netlink.with(|it| it.routes_beside(TABLE)).await?;
            refuse_overlaps(network, &routes)?;
        }
        self.led = true;
        node.host
            .netlink
            .with(|it| it.lead_own_packets(&OWN_TABLE))
            .await?;
        let added = Box::pin(node.attachments.add(wanted, network, netns)).await;
        added.map_err(Box::new)?;
        Ok(())
    }
}

impl Failure {
    /// One more attempt that failed.
    fn after(before: Option<Self>, why: String, network: &str) -> Self {
        if before.as_ref().is_none_or(|before| before.why != why) {
            tracing::error!(
                network,
                error = why,
                "the node has no port on the network, so probes and the API server do not reach its pods from here; trying again"
            );
        }
        let pause = before.map_or(RETRY, |before| (before.pause * 2).min(ROUND));
        Self {
            why,
            again: Instant::now() + pause,
            pause,
        }
    }
}

/// Describes the port.
fn wanted(key: &AttachmentKey, network: &Network, sandbox: Sandbox) -> Wanted {
    // A number that nobody has asked for is not known yet.
    let number = network.id.map_or(0, NetworkId::get);
    let facts = NetworkFacts {
        // The node's port has no routes there.
        vpc_cidrs: Vec::new(),
        ..NetworkFacts::of(network, number)
    };
    let facts = serde_json::to_string(&facts).unwrap_or_default();
    let because = format!(
        "spec.nodeAccess of the network is {}",
        network.node_access.as_str()
    );
    Wanted {
        decisions: vec![Decision::new("the node's port", &network.name, &because)],
        ..Wanted::plain(
            key.clone(),
            format!("{:016x}", digest(facts.as_bytes())),
            sandbox,
        )
    }
}

/// Refuses a network to whose subnets packets of the node have another way.
///
/// A longer way that holds one of them, as one by a router, is none.
fn refuse_overlaps(network: &Network, routes: &[Route]) -> Result<(), AccessError> {
    for subnet in &network.subnets {
        let subnet = subnet.prefix;
        let meets = |route: &&Route| {
            let Ok(to) = Prefix::new(route.dst, route.prefix_len) else {
                return false;
            };
            let inside = subnet.contains(&to);
            let around = to.contains(&subnet) && route.prefix_len > 0;
            inside || around && (route.gateway.is_none() || route.table == Some(TABLE))
        };
        if let Some(route) = routes.iter().find(meets) {
            return Err(AccessError::Overlap {
                subnet,
                route: format!("{}/{}", route.dst, route.prefix_len),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use book::samples;
    use std::net::IpAddr;

    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_network_whose_subnet_the_node_reaches_otherwise_is_refused() {
        let network = samples::network(
            "blue",
            api::Mode::L3,
            &[("10.40.0.0/24", ""), ("fd40::/64", "")],
        );
        let default = Route::default_via(ip("192.0.2.1"), 2);
        let by_router = Route::new(ip("10.0.0.0"), 8, Some(ip("192.0.2.1")), 2);
        let elsewhere = Route::new(ip("10.41.0.0"), 24, None, 2);
        assert!(refuse_overlaps(&network, &[default, by_router, elsewhere]).is_ok());
        let on_link = Route::new(ip("10.0.0.0"), 8, None, 2);
        let inside = Route::new(ip("10.40.0.128"), 25, Some(ip("192.0.2.1")), 2);
        let six = Route::new(ip("fd40::7"), 128, None, 2);
        let of_another = Route {
            table: Some(TABLE),
            ..Route::new(ip("10.40.0.0"), 16, Some(ip("10.40.0.1")), 9)
        };
        for route in [on_link, inside, six, of_another] {
            let error = refuse_overlaps(&network, &[route]).unwrap_err().to_string();
            assert!(
                error.contains("overlaps") && error.contains("nodeAccess None"),
                "{error}"
            );
        }
    }
}
