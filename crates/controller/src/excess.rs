//! Limits the blocks of a network that a node takes to the need of its pods.
//!
//! A few blocks are to spare.
//!
//! A policy of admission binds a block to the node that takes it, and cannot count. So each block is
//! judged once, a moment after it was taken, by the pods of its node. An agent takes one only while
//! its blocks have fewer free addresses than pods wait for, and a few; a block beyond that, and
//! beyond what is to spare, was taken for pods that went at once, or for none, and it is taken back.
//!
//! An agent of ours gives of its blocks without a question, and may have given of such a one. So its
//! node is asked first, by the mark that a block has before it is taken back: it gives no more of the
//! block then, and deletes it if nothing of it is in use. Which of them are in use only the node can
//! say, but not how many: each has at least one address of a pod. So of those that are left when
//! [`GRACE`] is over it keeps one for each address that its pods can need, and no more.
//!
//! A block that was within the limit stays its node's, however many pods go: one of them may be
//! left in it. What is not needed for long the node gives back by itself. So a node has at no time
//! more than its pods have needed at some time.
//!
//! What counts for a node is what its own credentials cannot write: which pods are bound to it and
//! what they list. Addresses of pods that list nothing, as the kubelet says them, count too: a plugin
//! may have named the network.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use api::nad::{Meaning, NetworkRef, PLUGIN_TYPE};
use api::selection::Target;
use api::{IpBlock, Prefix, Resolved};
use ipam::{Family, LOW_WATER, Pool};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use overview::pod::Pod;
use overview::usage::selection;
use overview::view::View;
use world::blocks::LENGTH;
use world::blocks::pools;

/// Age at which a block is judged.
///
/// The pods that it was taken for are in the copies by then.
const SETTLED: SignedDuration = SignedDuration::from_secs(2);
/// Greatest age of blocks that a controller judges when it begins to lead.
///
/// While the Lease went from one controller to another, neither has judged them.
const RECENT: SignedDuration = SignedDuration::from_secs(60);
/// Time for a node to give back those blocks beyond the limit that are not in use.
pub(super) const GRACE: SignedDuration = SignedDuration::from_secs(10);

/// State of a block in the judgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// It was heard of at this time, and not judged.
    New(Timestamp),
    /// It is too much, and its node has been able to see the mark since this time.
    Asked(Timestamp),
    /// It is too much, and its node has something of it in use.
    InUse,
    /// Its node may have it.
    ///
    /// With `whole` it counts as a whole one, however few addresses it still has to give: it is a part
    /// of what others could have taken.
    Kept { whole: bool },
}

/// Judgements about blocks, by UID.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judged {
    has_begun: bool,
    blocks: HashMap<String, Standing>,
}

/// Blocks of one family of one network that a node has taken beyond its limit.
#[derive(Clone, Debug, PartialEq)]
pub struct Excess {
    /// Name of the node.
    pub node: String,
    /// Name of the network.
    pub network: String,
    /// The family.
    pub family: Family,
    /// How many blocks it keeps.
    pub kept: usize,
    /// How many addresses its pods can need.
    pub needed: u64,
    /// The blocks, oldest first: their node is to be asked for them.
    pub blocks: Vec<Arc<IpBlock>>,
    /// Blocks for which it was asked in vain: more than can be in use.
    pub withheld: Vec<Arc<IpBlock>>,
}

/// Blocks that nodes have taken beyond their limits, by the copies.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Suspects {
    /// By node, network and family.
    pub found: Vec<Excess>,
    /// When to look again though nothing has changed.
    pub again: Option<Timestamp>,
    judged: Judged,
    spare: u32,
    now: Timestamp,
}

impl Suspects {
    fn look_again(&mut self, at: Timestamp) {
        self.again = Some(self.again.map_or(at, |earliest| earliest.min(at)));
    }

    /// Suspected blocks that are beyond the limit by this view as well.
    ///
    /// The view has the nodes and their pods as they are now.
    pub fn confirmed(&self, view: &View) -> Vec<Excess> {
        let mut judged = self.judged.clone();
        let suspected: HashSet<String> = uids(&self.found).collect();
        let mut confirmed = judged.judge(view, self.spare, self.now).found;
        for excess in &mut confirmed {
            let is_suspected =
                |block: &Arc<IpBlock>| block.uid().is_some_and(|uid| suspected.contains(&uid));
            excess.blocks.retain(is_suspected);
            excess.withheld.retain(is_suspected);
        }
        confirmed.retain(|excess| !excess.blocks.is_empty() || !excess.withheld.is_empty());
        confirmed
    }
}

fn uids(all: &[Excess]) -> impl Iterator<Item = String> {
    let blocks = all
        .iter()
        .flat_map(|excess| excess.blocks.iter().chain(&excess.withheld));
    blocks.filter_map(|block| block.uid())
}

/// Node, network and family.
type Key<'a> = (&'a str, &'a str, Family);

/// The blocks of a node of one family of a network.
#[derive(Debug, Default)]
struct Group<'a> {
    kept: Vec<(&'a IpBlock, bool)>,
    new: Vec<&'a Arc<IpBlock>>,
    /// Blocks for which the node was asked, and has had its time.
    asked: Vec<&'a Arc<IpBlock>>,
    /// Blocks that are too much and were in use when the node was asked.
    in_use: Vec<&'a Arc<IpBlock>>,
    /// Pods that do not list the network and have an address of these blocks.
    inside: u64,
}

impl Judged {
    /// Judges new blocks; each node may have `spare` blocks beyond its pods' need.
    pub fn judge(&mut self, view: &View, spare: u32, now: Timestamp) -> Suspects {
        let mut suspects = Suspects {
            spare,
            now,
            again: self.note(view, now),
            ..Suspects::default()
        };
        let mut groups = self.groups(view, now);
        if groups.is_empty() {
            return suspects;
        }
        let resolved = view.resolve();
        let needs = needs(view, &resolved, &mut groups);
        for ((node, network, family), mut group) in groups {
            // What a node that is gone has left is taken back in time, and of a network that is not
            // known nobody gets addresses.
            let (Some(uid), Some(pools)) = (view.nodes.get(node), pools_of(&resolved, network))
            else {
                continue;
            };
            let pools: Vec<Pool> = pools
                .into_iter()
                .filter(|it| it.family() == family)
                .collect();
            let none = Need::default();
            let need = needs.get(node).unwrap_or(&none);
            let limit = Limit::of(need, network, group.inside, &pools, spare);
            let of_this = |block: &IpBlock| block.spec.node_uid == *uid;
            let (mut kept, mut held) = (0, 0_u64);
            for (block, whole) in group.kept.iter().filter(|(block, _)| of_this(block)) {
                kept += 1;
                held = held.saturating_add(limit.cost(&pools, block, *whole));
            }
            for block in group.in_use.iter().filter(|block| of_this(block)) {
                held = held.saturating_add(limit.cost(&pools, block, false));
            }
            let (again, withheld) = self.withheld(&mut group, limit);
            let age = |block: &Arc<IpBlock>| (block.creation_timestamp(), block.name_any());
            group.new.sort_by_key(|block| age(block));
            let mut excess = again;
            for block in group.new {
                // An earlier or later node of this name is another one.
                if held >= limit.room || !of_this(block) {
                    if is_marked(block) {
                        self.stand(block, Standing::Asked(now));
                        suspects.look_again(after(now, GRACE));
                    } else {
                        excess.push(Arc::clone(block));
                    }
                    continue;
                }
                let whole = room(&pools, block) == 0 || is_part(&pools, block);
                held = held.saturating_add(limit.cost(&pools, block, whole));
                kept += 1;
                self.stand(block, Standing::Kept { whole });
            }
            if !excess.is_empty() || !withheld.is_empty() {
                suspects.found.push(Excess {
                    node: node.to_owned(),
                    network: network.to_owned(),
                    family,
                    kept,
                    needed: limit.needed,
                    blocks: excess,
                    withheld,
                });
            }
        }
        if !suspects.found.is_empty() {
            suspects.judged = self.clone();
        }
        suspects
    }

    /// True for a block whose node is being asked for it: its mark stays.
    pub fn is_asked(&self, block: &IpBlock) -> bool {
        let standing = block.uid().and_then(|uid| self.blocks.get(&uid));
        matches!(standing, Some(Standing::Asked(_)))
    }

    /// Notes the blocks whose nodes are asked for them since this time.
    ///
    /// The copies may never show the mark: the node removes it at once where the block is in use.
    pub fn asked(&mut self, blocks: &[Arc<IpBlock>], now: Timestamp) {
        for block in blocks {
            self.stand(block, Standing::Asked(now));
        }
    }

    fn stand(&mut self, block: &IpBlock, standing: Standing) {
        if let Some(uid) = block.uid() {
            self.blocks.insert(uid, standing);
        }
    }

    /// Picks blocks for which a node is asked again, and those that cannot be in use.
    ///
    /// By their number. Pods of a block that was in use may be gone by now, and one that is in use now
    /// must not go for it: so the node is asked for all of them at once.
    fn withheld(
        &mut self,
        group: &mut Group<'_>,
        limit: Limit,
    ) -> (Vec<Arc<IpBlock>>, Vec<Arc<IpBlock>>) {
        // A node removes the mark of one that is in use; which ones it keeps is its own business.
        group.asked.sort_by_key(|block| {
            let age = (block.creation_timestamp(), block.name_any());
            (is_marked(block), age)
        });
        let in_use = u64::try_from(group.in_use.len()).unwrap_or(u64::MAX);
        let left = limit.needed.saturating_sub(in_use);
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        let withheld = group.asked.split_off(left.min(group.asked.len()));
        let of_all = |blocks: Vec<&Arc<IpBlock>>| blocks.into_iter().cloned().collect();
        if !group.in_use.is_empty() && withheld.iter().any(|block| !is_marked(block)) {
            let (silent, said): (Vec<_>, Vec<_>) =
                withheld.into_iter().partition(|it| is_marked(it));
            let again = [&group.in_use[..], &group.asked, &said].concat();
            return (of_all(again), of_all(silent));
        }
        for block in &group.asked {
            self.stand(block, Standing::InUse);
        }
        (Vec::new(), of_all(withheld))
    }

    /// Takes note of all blocks; when the next one is to be judged.
    fn note(&mut self, view: &View, now: Timestamp) -> Option<Timestamp> {
        let uids: HashSet<&str> = view
            .blocks
            .iter()
            .filter_map(|block| block.metadata.uid.as_deref())
            .collect();
        self.blocks.retain(|uid, _| uids.contains(uid.as_str()));
        let begins = !std::mem::replace(&mut self.has_begun, true);
        let mut again: Option<Timestamp> = None;
        for block in &view.blocks {
            let Some(uid) = block.metadata.uid.as_deref() else {
                continue;
            };
            let standing = self.blocks.get(uid).copied().unwrap_or_else(|| {
                let taken = block.creation_timestamp().map(|time| time.0);
                let is_recent = taken.is_some_and(|taken| after(taken, RECENT) > now);
                let standing = if begins && !is_recent {
                    Standing::Kept { whole: false }
                } else {
                    Standing::New(now)
                };
                self.blocks.insert(uid.to_owned(), standing);
                standing
            });
            if let Some(due) = due(standing).filter(|due| *due > now) {
                again = Some(again.map_or(due, |earliest| earliest.min(due)));
            }
        }
        again
    }

    /// The blocks that are to be judged now, with those that their nodes keep.
    fn groups<'a>(&self, view: &'a View, now: Timestamp) -> BTreeMap<Key<'a>, Group<'a>> {
        let mut groups: BTreeMap<Key<'a>, Group<'a>> = BTreeMap::new();
        let known = |block: &'a Arc<IpBlock>| {
            let standing = *self.blocks.get(block.metadata.uid.as_deref()?)?;
            let family = Family::of(cidr(block)?.addr());
            let spec = &block.spec;
            let is_going = block.metadata.deletion_timestamp.is_some();
            let key = (spec.node.as_str(), spec.network.as_str(), family);
            (!is_going).then_some((key, standing, block))
        };
        let all = || view.blocks.iter().filter_map(known);
        for (key, standing, block) in all() {
            if due(standing).is_some_and(|due| due <= now) {
                let group = groups.entry(key).or_default();
                match standing {
                    Standing::Asked(_) => group.asked.push(block),
                    _ => group.new.push(block),
                }
            }
        }
        if groups.is_empty() {
            return groups;
        }
        for (key, standing, block) in all() {
            let Some(group) = groups.get_mut(&key) else {
                continue;
            };
            match standing {
                Standing::Kept { whole } => group.kept.push((block, whole)),
                Standing::InUse => group.in_use.push(block),
                Standing::New(_) | Standing::Asked(_) => {}
            }
        }
        groups
    }
}

/// Limit of a node's blocks of a network.
#[derive(Clone, Copy, Debug)]
struct Limit {
    /// As long as its blocks have fewer addresses, it may take one more.
    room: u64,
    /// Addresses of a block.
    size: u64,
    /// Addresses that its pods can need.
    needed: u64,
}

impl Limit {
    fn of(need: &Need, network: &str, inside: u64, pools: &[Pool], spare: u32) -> Self {
        let size = pools
            .iter()
            .map(|pool| LENGTH.size(pool))
            .max()
            .unwrap_or(1);
        let listed = need.listed.get(network).copied().unwrap_or_default();
        let silent = need.silent.saturating_sub(listed.silent);
        let needed = [listed.count, need.any, silent, inside];
        let needed = needed.into_iter().fold(0, u64::saturating_add);
        // An address by name may be in a block of its own.
        let blocks = listed.named.saturating_add(spare.into());
        let ahead = LOW_WATER
            .min(size)
            .saturating_add(blocks.saturating_mul(size));
        Self {
            room: needed.saturating_add(ahead),
            size,
            needed,
        }
    }

    /// How many addresses a block counts for.
    fn cost(&self, pools: &[Pool], block: &IpBlock, whole: bool) -> u64 {
        if whole { self.size } else { room(pools, block) }
    }
}

/// How many addresses of a block can be given.
fn room(pools: &[Pool], block: &IpBlock) -> u64 {
    let Some(cidr) = cidr(block) else { return 0 };
    let room: u128 = pools.iter().map(|pool| pool.capacity_in(&cidr)).sum();
    u64::try_from(room).unwrap_or(u64::MAX)
}

/// True for a part of what a node would take.
fn is_part(pools: &[Pool], block: &IpBlock) -> bool {
    let Some(cidr) = cidr(block) else { return true };
    let mut of = pools
        .iter()
        .filter(|pool| pool.prefix().contains(&cidr.addr()));
    of.any(|pool| cidr.prefix_len() > LENGTH.of(pool))
}

/// Addresses that the pods of a node need, by network.
#[derive(Debug, Default)]
struct Need {
    listed: HashMap<String, Listed>,
    /// Attachments of which it is not known to which network they are.
    any: u64,
    /// Pods that may be about to get addresses of networks that they do not list.
    silent: u64,
}

/// Attachments to one network that pods list.
#[derive(Clone, Copy, Debug, Default)]
struct Listed {
    /// Attachments.
    count: u64,
    /// Addresses by name.
    named: u64,
    /// Pods without an address yet.
    silent: u64,
}

/// Needs of the pods of all nodes in `groups`, by node.
///
/// Counts in `groups` the pods inside of blocks.
fn needs<'a>(
    view: &'a View,
    resolved: &Resolved,
    groups: &mut BTreeMap<Key<'a>, Group<'a>>,
) -> HashMap<&'a str, Need> {
    let mut needs: HashMap<&str, Need> = HashMap::new();
    let mut networks: HashMap<(&str, Prefix), BTreeSet<&str>> = HashMap::new();
    for ((node, network, _), group) in groups.iter() {
        needs.entry(*node).or_default();
        let kept = group.kept.iter().map(|(block, _)| *block);
        let new = group.new.iter().chain(&group.asked);
        let new = new.map(|block| &***block);
        let in_use = group.in_use.iter().map(|block| &***block);
        for cidr in kept.chain(new).chain(in_use).filter_map(cidr) {
            networks.entry((*node, cidr)).or_default().insert(*network);
        }
    }
    for pod in view.pods.values().filter(|pod| !pod.spec.host_network) {
        let Some(node) = pod.spec.node_name.as_deref() else {
            continue;
        };
        let Some(need) = needs.get_mut(node) else {
            continue;
        };
        let wishes = wishes(pod, view, resolved);
        let addresses = pod.status.pod_ips.iter();
        let addresses: Vec<IpAddr> = addresses.filter_map(|it| it.ip.parse().ok()).collect();
        let is_silent = addresses.is_empty() && !pod.has_ended();
        need.any = need.any.saturating_add(wishes.any);
        need.silent = need.silent.saturating_add(is_silent.into());
        for ip in addresses {
            let around = lengths(ip).filter_map(|len| {
                let cidr = Prefix::new(ip, len).ok()?.trunc();
                networks.get(&(node, cidr))
            });
            let unlisted = around.flatten();
            for network in unlisted.filter(|network| !wishes.networks.contains_key(**network)) {
                if let Some(group) = groups.get_mut(&(node, *network, Family::of(ip))) {
                    group.inside = group.inside.saturating_add(1);
                }
            }
        }
        for (network, wish) in wishes.networks {
            let listed = need.listed.entry(network).or_default();
            listed.count = listed.count.saturating_add(wish.count);
            listed.named = listed.named.saturating_add(wish.named);
            listed.silent = listed.silent.saturating_add(is_silent.into());
        }
    }
    needs
}

/// Lengths that a block with this address can have.
fn lengths(ip: IpAddr) -> std::ops::RangeInclusive<u8> {
    match ip {
        IpAddr::V4(_) => LENGTH.v4..=32,
        IpAddr::V6(_) => LENGTH.v6..=128,
    }
}

/// Attachments that one pod lists, by network.
#[derive(Debug, Default)]
struct Wishes {
    networks: BTreeMap<String, Listed>,
    any: u64,
}

/// Attachments that a pod lists.
///
/// An element that cannot be read or followed counts for any network: it could be when the pod was
/// attached.
fn wishes(pod: &Pod, view: &View, resolved: &Resolved) -> Wishes {
    let mut wishes = Wishes::default();
    let Ok(selection) = selection(pod, view) else {
        wishes.any = 1;
        return wishes;
    };
    let attachment = |namespace: &str, name: &str| {
        let known = resolved.attachment(namespace, name);
        if let Ok(known) = known {
            return Some((known.network.clone(), known.request.ips.len()));
        }
        let key = (namespace.to_owned(), name.to_owned());
        let object = view.attachments.get(&key)?;
        Some((object.spec.pod_network_name.clone(), 0))
    };
    for selected in selection.attachments {
        let found = match selected.target {
            Target::PodNetwork(name) => Some((name, 0)),
            Target::Attachment { namespace, name } => attachment(&namespace, &name),
            Target::Definition { namespace, name } => {
                match view.definitions.get(&(namespace, name)) {
                    Some(Ok(Meaning::ByName(network))) => Some((network.clone(), 0)),
                    Some(Ok(Meaning::Own(own))) => {
                        let network = match &own.network {
                            NetworkRef::PodNetwork(network) => Some((network.clone(), 0)),
                            NetworkRef::Attachment { namespace, name } => {
                                attachment(namespace, name)
                            }
                        };
                        network.map(|(network, ips)| (network, ips + own.request.ips.len()))
                    }
                    Some(Ok(Meaning::Delegate(chain))) if !chain.leads_to(PLUGIN_TYPE) => continue,
                    Some(Ok(Meaning::Delegate(_)) | Err(_)) | None => None,
                }
            }
        };
        let Some((network, of_object)) = found else {
            wishes.any += 1;
            continue;
        };
        let options = &selected.options;
        let by_claim = usize::from(options.ipam_claim_reference.is_some());
        let named = of_object + options.ips.len().max(by_claim);
        let wish = wishes.networks.entry(network).or_default();
        wish.count += 1;
        wish.named = wish
            .named
            .saturating_add(u64::try_from(named).unwrap_or(u64::MAX));
    }
    wishes
}

/// When a block is to be judged.
fn due(standing: Standing) -> Option<Timestamp> {
    match standing {
        Standing::New(heard) => Some(after(heard, SETTLED)),
        Standing::Asked(since) => Some(after(since, GRACE)),
        Standing::InUse | Standing::Kept { .. } => None,
    }
}

fn is_marked(block: &IpBlock) -> bool {
    let status = block.status.as_ref();
    status.is_some_and(|status| status.reclaim_after.is_some())
}

fn pools_of(resolved: &Resolved, network: &str) -> Option<Vec<Pool>> {
    pools(resolved.definition(network)?).ok()
}

fn cidr(block: &IpBlock) -> Option<Prefix> {
    block.spec.cidr.parse().ok()
}

pub(super) fn after(time: Timestamp, duration: SignedDuration) -> Timestamp {
    time.saturating_add(duration).unwrap_or(time)
}

#[cfg(test)]
mod tests;
