//! Decide about labels and extended resources of this node, and when to write.
//!
//! Pure. Less is written at once, because pods are bound by it. More is written when it has stayed so for
//! [`RAISE`], so that a value that goes up and down is not as many writes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use api::{ADDRESSES_DOMAIN, BANDWIDTH_DOMAIN, CARRIED, NETWORK_DOMAIN, Prefix};
use cni_spec::digest::digest;
use ipam::{Family, Pool};
use k8s_openapi::api::core::v1::Node as ApiNode;
use serde_json::{Map, Value, json};
use world::blocks::LENGTH;

/// Most labels and most resources of one node.
pub(super) const KEYS_MAX: usize = 64;
/// Time for which a larger value stays before it is written.
pub(super) const RAISE: Duration = Duration::from_secs(5);
/// Time for which a removed key is remembered.
const MEMORY: Duration = Duration::from_secs(60);
/// Most addresses that a resource counts; no node has as many pods.
const ADDRESSES_MAX: u64 = 1 << 20;

/// Labels and extended resources that a node should have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Claims {
    /// Labels, all with the same value.
    pub(super) labels: BTreeSet<String>,
    /// Extended resources with their capacity.
    pub(super) resources: BTreeMap<String, u64>,
}

impl Claims {
    /// Keeps what pods that are bound to the node were bound by.
    ///
    /// A kubelet that starts admits all its pods again, and ends those whose node selector or requests the Node
    /// does not satisfy any more. So a label stays while such a pod selects it, and no amount is less than the
    /// sum of requests; a resource that is absent is not looked at.
    pub(super) fn keep(&mut self, bound: &Self) {
        self.labels.extend(bound.labels.iter().cloned());
        for (key, amount) in &mut self.resources {
            let asked = bound.resources.get(key).copied().unwrap_or(0);
            *amount = asked.max(*amount);
        }
    }

    /// Removes keys over [`KEYS_MAX`], last names first; returns their number.
    ///
    /// Those of `bound` pods go last. Pods that need a removed one stay pending.
    pub(super) fn limit(&mut self, bound: &Self) -> usize {
        let mut over = 0;
        while self.labels.len() > KEYS_MAX {
            let mut free = self.labels.iter().rev();
            let last = free.find(|key| !bound.labels.contains(*key)).cloned();
            match last {
                Some(key) => self.labels.remove(&key),
                None => self.labels.pop_last().is_some(),
            };
            over += 1;
        }
        while self.resources.len() > KEYS_MAX {
            let mut free = self.resources.keys().rev();
            let last = free
                .find(|key| !bound.resources.contains_key(*key))
                .cloned();
            match last {
                Some(key) => self.resources.remove(&key).is_some(),
                None => self.resources.pop_last().is_some(),
            };
            over += 1;
        }
        over
    }
}

/// Labels and extended resources that the node's object has, less those of others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Written {
    labels: BTreeMap<String, String>,
    /// Capacity and allocatable amount; none where that is absent or no whole number.
    resources: BTreeMap<String, [Option<u64>; 2]>,
}

fn is_of(key: &str, domains: &[&str]) -> bool {
    let domain = key.split_once('/').map(|(domain, _)| domain);
    domain.is_some_and(|domain| domains.contains(&domain))
}

/// True for a label of a node that only its agent writes.
pub(super) fn is_label(key: &str) -> bool {
    is_of(key, &[NETWORK_DOMAIN])
}

/// True for an extended resource of a node that only its agent writes.
pub(super) fn is_resource(key: &str) -> bool {
    is_of(key, &[ADDRESSES_DOMAIN, BANDWIDTH_DOMAIN])
}

/// Reads a whole number as the API server writes it back: 10000 is 10k.
pub(super) fn amount(quantity: &str) -> Option<u64> {
    let end = quantity.find(|c: char| !c.is_ascii_digit());
    let (digits, unit) = quantity.split_at(end.unwrap_or(quantity.len()));
    let exponent = match unit {
        "" => 0,
        "k" => 3,
        "M" => 6,
        "G" => 9,
        "T" => 12,
        "P" => 15,
        "E" => 18,
        _ => return None,
    };
    digits
        .parse::<u64>()
        .ok()?
        .checked_mul(10_u64.pow(exponent))
}

impl Written {
    /// Reads a node's object.
    pub(super) fn of(node: &ApiNode) -> Self {
        let labels = node.metadata.labels.iter().flatten();
        let labels = labels.filter(|(key, _)| is_label(key));
        let mut written = Self {
            labels: labels
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect(),
            resources: BTreeMap::new(),
        };
        let status = node.status.as_ref();
        let lists = [
            status.and_then(|status| status.capacity.as_ref()),
            status.and_then(|status| status.allocatable.as_ref()),
        ];
        for (index, list) in lists.into_iter().enumerate() {
            for (key, quantity) in list
                .into_iter()
                .flatten()
                .filter(|(key, _)| is_resource(key))
            {
                let both = written.resources.entry(key.clone()).or_default();
                if let Some(place) = both.get_mut(index) {
                    *place = amount(&quantity.0);
                }
            }
        }
        written
    }

    /// True when the node's object has nothing of ours.
    pub(super) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.resources.is_empty()
    }

    /// Amount by which the scheduler goes; none where there is none.
    fn allocatable(&self, key: &str) -> Option<u64> {
        self.resources.get(key)?[1]
    }
}

/// Returns the merge patch (RFC 7386) that makes a node's object say `claims`.
///
/// None if it does.
pub(super) fn patch(written: &Written, claims: &Claims) -> Option<Value> {
    let mut labels = Map::new();
    for label in &claims.labels {
        if written.labels.get(label).map(String::as_str) != Some(CARRIED) {
            labels.insert(label.clone(), json!(CARRIED));
        }
    }
    for label in written
        .labels
        .keys()
        .filter(|it| !claims.labels.contains(*it))
    {
        labels.insert(label.clone(), Value::Null);
    }
    let mut resources = Map::new();
    for (key, amount) in &claims.resources {
        if written.resources.get(key) != Some(&[Some(*amount); 2]) {
            resources.insert(key.clone(), json!(amount.to_string()));
        }
    }
    for key in written
        .resources
        .keys()
        .filter(|it| !claims.resources.contains_key(*it))
    {
        resources.insert(key.clone(), Value::Null);
    }
    if labels.is_empty() && resources.is_empty() {
        return None;
    }
    // Extended resources are not reserved for the system: all of them are for pods. A kubelet would copy
    // the capacity within some seconds, too.
    let mut patch = json!({});
    if !labels.is_empty() {
        patch["metadata"] = json!({ "labels": labels });
    }
    if !resources.is_empty() {
        patch["status"] = json!({ "capacity": resources, "allocatable": resources });
    }
    Some(patch)
}

/// Memory of values that are going up.
#[derive(Debug, Default)]
pub(super) struct Settling {
    /// Since when the wish is above what is written.
    rising: BTreeMap<String, Instant>,
    /// When a key was removed.
    removed: BTreeMap<String, Instant>,
}

impl Settling {
    /// Lowers amounts at once, and holds back for [`RAISE`] those that grow.
    ///
    /// A key that is new is there at once, unless it was removed a moment ago. Returns too when it has to be
    /// looked at again for that.
    pub(super) fn settle(
        &mut self,
        wanted: &Claims,
        written: &Written,
        now: Instant,
    ) -> (Claims, Option<Instant>) {
        let recent = |at: &mut Instant| now.saturating_duration_since(*at) < MEMORY;
        self.removed.retain(|_, at| recent(at));
        let mut settled = Claims::default();
        let mut rising = BTreeMap::new();
        for (key, amount) in &wanted.resources {
            let has = written.allocatable(key);
            let is_new = has.is_none() && !self.removed.contains_key(key);
            let is_less = has.is_some_and(|has| *amount <= has);
            let given = if is_new || is_less || self.has_risen(key, &mut rising, now) {
                Some(*amount)
            } else {
                has
            };
            settled
                .resources
                .extend(given.map(|amount| (key.clone(), amount)));
        }
        for key in &wanted.labels {
            let stays = written.labels.contains_key(key) || !self.removed.contains_key(key);
            if stays || self.has_risen(key, &mut rising, now) {
                settled.labels.insert(key.clone());
            }
        }
        let gone =
            |key: &&String| !wanted.labels.contains(*key) && !wanted.resources.contains_key(*key);
        let had = written.labels.keys().chain(written.resources.keys());
        self.removed
            .extend(had.filter(gone).map(|key| (key.clone(), now)));
        self.rising = rising;
        let next = self.rising.values().min().map(|since| *since + RAISE);
        (settled, next)
    }

    fn has_risen(&self, key: &str, rising: &mut BTreeMap<String, Instant>, now: Instant) -> bool {
        let since = self.rising.get(key).copied().unwrap_or(now);
        let has = now.saturating_duration_since(since) >= RAISE;
        if !has {
            rising.insert(key.to_owned(), since);
        }
        has
    }
}

/// Addresses of a network as one node counts them.
#[derive(Debug)]
pub(super) struct Count<'a> {
    /// Name of the network.
    pub(super) network: &'a str,
    /// All its subnets.
    pub(super) pools: &'a [Pool],
    /// Blocks of all nodes; none where the node's routes say what it has.
    pub(super) blocks: Option<&'a [Prefix]>,
    /// Addresses that this node can give without another block, by family.
    pub(super) free: &'a [(Family, u128)],
    /// Attachments of pods that ask for the resource.
    pub(super) held: u64,
    /// Names of the nodes that may take blocks, in order.
    pub(super) nodes: &'a [String],
    /// Name of this node.
    pub(super) own: &'a str,
}

impl Count<'_> {
    /// Counts the addresses that pods which ask for them have here, and can get.
    ///
    /// The blocks that no node has are divided among the nodes, so that all together claim no more than there
    /// are.
    pub(super) fn addresses(&self) -> u64 {
        let of_family = |(family, free): &(Family, u128)| free.saturating_add(self.share(*family));
        let least = self.free.iter().map(of_family).min().unwrap_or(0);
        let least = u64::try_from(least).unwrap_or(u64::MAX);
        least.saturating_add(self.held).min(ADDRESSES_MAX)
    }

    fn share(&self, family: Family) -> u128 {
        let (Some(blocks), Some(place)) = (self.blocks, self.place()) else {
            return 0;
        };
        let pools = || self.pools.iter().filter(|pool| pool.family() == family);
        let all = pools().fold(0_u128, |sum, pool| sum.saturating_add(pool.capacity()));
        let taken = blocks.iter().fold(0_u128, |sum, block| {
            pools().fold(sum, |sum, pool| sum.saturating_add(pool.capacity_in(block)))
        });
        let left = all.saturating_sub(taken);
        let size = u128::from(pools().map(|pool| LENGTH.size(pool)).max().unwrap_or(1));
        let nodes = self.nodes.len() as u128;
        let (whole, place) = (left / size, place as u128);
        let more = match place.cmp(&(whole % nodes)) {
            std::cmp::Ordering::Less => size,
            // The last block is smaller: reserved addresses are not given.
            std::cmp::Ordering::Equal => left % size,
            std::cmp::Ordering::Greater => 0,
        };
        (whole / nodes).saturating_mul(size).saturating_add(more)
    }

    /// Place of this node in the network's own order of nodes.
    ///
    /// None if it takes no blocks.
    fn place(&self) -> Option<usize> {
        let index = self.nodes.iter().position(|node| node == self.own)?;
        let first = digest(self.network.as_bytes()) % self.nodes.len() as u64;
        let first = usize::try_from(first).unwrap_or(0);
        Some((index + self.nodes.len() - first) % self.nodes.len())
    }
}

#[cfg(test)]
mod tests;
