//! Reclaims addresses and slices of nodes, pods, claims and Ports that are gone.
//!
//! The objects are blocks and reservations of addresses, and slices of members of networks.
//!
//! An object that is gone proves little. A node may be cut off with its pods running, a pod may have
//! been deleted by force. So a block is marked first, where its node sees it, and deleted when the
//! time has come and nothing has changed. A reservation is deleted when its holder has been gone for
//! as long. Before either is deleted, the API server itself is asked, not a copy.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use api::{IpBlock, IpReservation, NODE_LABEL, label_value};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use overview::usage::Usage;
use overview::view::{View, addresses_of_port};

/// Step about a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockStep {
    /// Say when it will be taken back.
    Mark(Timestamp),
    /// Say that it will not.
    Unmark,
    /// Take it back.
    Delete,
    /// Look again at this time.
    Wait(Timestamp),
}

/// Decides about a block; `None` when there is no step.
pub fn block_step(
    block: &IpBlock,
    view: &View,
    busy_nodes: &BTreeSet<&str>,
    now: Timestamp,
    delay: SignedDuration,
) -> Option<BlockStep> {
    if block.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let spec = &block.spec;
    let lives = view.nodes.get(&spec.node) == Some(&spec.node_uid);
    // Also pods of a later node of the same name: it may be the same machine.
    let in_use = lives || busy_nodes.contains(spec.node.as_str());
    let status = block.status.as_ref();
    let marked = status.and_then(|status| status.reclaim_after.as_ref());
    match (in_use, marked) {
        (true, None) => None,
        (true, Some(_)) => Some(BlockStep::Unmark),
        (false, None) => Some(BlockStep::Mark(now.saturating_add(delay).unwrap_or(now))),
        (false, Some(time)) if time.0 <= now => Some(BlockStep::Delete),
        (false, Some(time)) => Some(BlockStep::Wait(time.0)),
    }
}

/// Labels by which slices of members name these nodes.
///
/// Callers name the nodes that exist, and those that pods are still bound to.
pub fn labels_of_nodes<'a>(nodes: impl Iterator<Item = &'a str>) -> BTreeSet<String> {
    nodes.map(label_value).collect()
}

/// True when a slice is of none of these nodes; one without a label is nobody's.
pub fn is_left(slice: &ObjectMeta, nodes: &BTreeSet<String>) -> bool {
    let label = slice.labels.as_ref().and_then(|it| it.get(NODE_LABEL));
    slice.deletion_timestamp.is_none() && !label.is_some_and(|label| nodes.contains(label))
}

/// Names of the nodes that pods are bound to.
///
/// A pod that has ended counts: on a node that is cut off, it may still run.
pub fn busy_nodes(view: &View) -> BTreeSet<&str> {
    let nodes = view.pods.values();
    nodes
        .filter_map(|pod| pod.spec.node_name.as_deref())
        .collect()
}

/// True when a reservation's holder is gone and no pod may use the address.
///
/// Also when its claim has other addresses: see [`keeps`].
pub fn is_orphan(reservation: &IpReservation, view: &View, usage: &Usage) -> bool {
    let spec = &reservation.spec;
    if let Some(holder) = &spec.pod {
        let pod = view
            .pods
            .get(&(holder.namespace.clone(), holder.name.clone()));
        return pod.is_none_or(|pod| pod.uid() != holder.uid);
    }
    if let Some(holder) = &spec.port {
        let key = (holder.namespace.clone(), holder.name.clone());
        return match view.ports.get(&key) {
            Some(port) if port.metadata.uid.as_ref() == Some(&holder.uid) => {
                !keeps(&addresses_of_port(port), &spec.address)
            }
            // Pods that name it wait for the Port of now. Nodes tell of one that has an address of the one before.
            Some(_) => true,
            // A pod that names the Port may have the address still.
            None => !usage.ports.contains(&key),
        };
    }
    match (&spec.claim, &view.claims) {
        (Some(holder), Some(claims)) => {
            let key = (holder.namespace.clone(), holder.name.clone());
            let ips = claims.get(&holder.uid);
            // A pod that names the claim may have the address still.
            !ips.is_some_and(|ips| keeps(ips, &spec.address)) && !usage.claims.contains(&key)
        }
        _ => false,
    }
}

/// True when a claim with these addresses keeps the reservation of an address.
///
/// Until a claim has addresses, it keeps all that an `ADD` may have begun with. The others are left by an
/// `ADD` that failed before it wrote what it had reserved, and after which another node wrote its own.
pub fn keeps(ips: &BTreeSet<IpAddr>, address: &str) -> bool {
    let address = address.parse::<IpAddr>();
    ips.is_empty() || address.is_ok_and(|address| ips.contains(&address))
}

/// Times since when reservations have no holder, by UID.
///
/// A controller that restarts begins to wait again.
#[derive(Clone, Debug, Default)]
pub struct Orphans(BTreeMap<String, Timestamp>);

impl Orphans {
    /// Notes the orphans of `now`; those of at least `delay`, and the time of the next.
    pub fn due(
        &mut self,
        orphans: &BTreeSet<String>,
        now: Timestamp,
        delay: SignedDuration,
    ) -> (BTreeSet<String>, Option<Timestamp>) {
        self.0.retain(|uid, _| orphans.contains(uid));
        let mut due = BTreeSet::new();
        let mut again: Option<Timestamp> = None;
        for uid in orphans {
            let since = *self.0.entry(uid.clone()).or_insert(now);
            let end = since.saturating_add(delay).unwrap_or(now);
            if end <= now {
                due.insert(uid.clone());
            } else {
                again = Some(again.map_or(end, |earliest| earliest.min(end)));
            }
        }
        (due, again)
    }
}

#[cfg(test)]
mod tests;
