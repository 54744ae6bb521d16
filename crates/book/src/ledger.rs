//! Holders of attachments, addresses, MAC addresses, network numbers, port indexes.
//!
//! In memory, and the same as in the store but for the moment between a change and its commit. All
//! choices are made here, under one short lock, so no two attachments can choose the same.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;

use agent_common::addr::MacAddr;
use api::{Holder, Network, Subnet};
use cni_spec::AttachmentKey;
use ipam::Allocator;
use tokio::sync::watch;

use crate::host_ports;
use crate::record::{Attachment, Decision, DefaultRoutes, HostEnd, Lease, NetworkFacts, State};
use crate::{AddressError, BookError};

mod choose;
mod found;
mod free;
mod restored;
mod share;
mod taken;
mod wanted;

use choose::{allocator, choose_mac};
use found::Found;
pub use share::{Reserved, Share};
pub use wanted::{ClaimKind, ClaimRef, Wanted};

/// Numbers below this are for people to choose; ours come from here on.
const FIRST_OWN_ID: u32 = 0x0080_0000;
const LAST_ID: u32 = 0x00ff_ffff;

/// Identity of an attachment at a certain time.
///
/// The same key can be another attachment later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    /// Container and interface.
    pub key: AttachmentKey,
    /// Which of the attachments with this key; see [`Entry::generation`].
    pub generation: u64,
    /// True for a whole pod; the key is that of its first interface.
    ///
    /// The number is then that of [`crate::pods::PodEntry::generation`].
    pub is_pod: bool,
}

/// An attachment and what is not worth writing down.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The record.
    pub record: Attachment,
    /// It has, or shall have, entries in the datapath.
    pub live: bool,
    /// Different for every attachment this process has known.
    pub generation: u64,
    /// Its runtime has the result, or had it before this process started.
    pub acknowledged: bool,
    /// Answers that are on their way to plugins, and may be acknowledged yet.
    pub answers: usize,
    /// When it was made in this process; `GC` spares what is younger than its request.
    pub since: std::time::Instant,
}

#[derive(Debug, Default)]
struct Usage {
    ips: HashSet<IpAddr>,
    macs: HashSet<MacAddr>,
    keys: BTreeSet<AttachmentKey>,
    /// Facts that attachments were made with, each with the number of these.
    facts: Vec<(NetworkFacts, usize)>,
}

/// The book of the node.
#[derive(Debug)]
pub struct Ledger {
    max_ports: u16,
    generations: u64,
    entries: BTreeMap<AttachmentKey, Entry>,
    usage: BTreeMap<u32, Usage>,
    found: Found,
    ids: BTreeMap<String, u32>,
    ports: BTreeSet<u16>,
    /// The rest of the ports there can be.
    free_ports: BTreeSet<u16>,
    allocators: HashMap<String, (Vec<Subnet>, Allocator)>,
    /// Shares of this node, by network; none where there are no other nodes.
    shares: Option<HashMap<String, Share>>,
    /// Network that the node routes for, and the node's share of it.
    ///
    /// Sharing of the rest does not change that share.
    own: Option<(String, Share)>,
    /// Addresses that are about to be reserved for somebody.
    picked: BTreeMap<(String, IpAddr), Holder>,
    /// How often attachments, or what the datapath shall know of them, changed.
    version: watch::Sender<u64>,
}

impl Ledger {
    /// An empty book.
    pub fn new(max_ports: u16) -> Self {
        Self {
            max_ports,
            generations: 0,
            entries: BTreeMap::new(),
            usage: BTreeMap::new(),
            found: Found::default(),
            ids: BTreeMap::new(),
            ports: BTreeSet::new(),
            free_ports: (0..max_ports).collect(),
            allocators: HashMap::new(),
            shares: None,
            own: None,
            picked: BTreeMap::new(),
            version: watch::Sender::new(0),
        }
    }

    /// Follows the attachments that come, go, or change for the datapath.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    fn tell(&self) {
        self.version.send_modify(|version| *version += 1);
    }

    /// Takes over a network number from the store.
    pub fn restore_id(&mut self, network: String, id: u32) {
        self.ids.insert(network, id);
    }

    /// Takes over a record from the store.
    pub fn restore(&mut self, record: Attachment) {
        self.claim_id(record.network.name.clone(), record.network.id);
        let live = record.state == State::Added;
        self.insert(record, live);
    }

    /// The attachment with this key.
    pub fn get(&self, key: &AttachmentKey) -> Option<&Entry> {
        self.entries.get(key)
    }

    /// True when the number of a port is an attachment's other than this one's.
    pub fn is_port_of_another(&self, record: &Attachment) -> bool {
        let own = self.entries.get(&record.key);
        let is_own = own.is_some_and(|entry| entry.record.port_id == record.port_id);
        !is_own && self.ports.contains(&record.port_id)
    }

    /// Every attachment, in order of container and interface.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values()
    }

    /// How many attachments there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True when there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The attachments of a network, in whatever state.
    pub fn entries_on(&self, network: u32) -> impl Iterator<Item = &Attachment> {
        let keys = self.usage.get(&network).into_iter();
        keys.flat_map(|usage| &usage.keys)
            .filter_map(|key| self.entries.get(key))
            .map(|entry| &entry.record)
    }

    /// Lists the attachments to the network that the datapath shall know.
    pub fn live_on(&self, network: u32) -> impl Iterator<Item = &Attachment> {
        self.usage
            .get(&network)
            .into_iter()
            .flat_map(|usage| &usage.keys)
            .filter_map(|key| self.entries.get(key))
            .filter(|entry| entry.live)
            .map(|entry| &entry.record)
    }

    /// Numbers of the networks with attachments that the datapath shall know.
    pub fn live_networks(&self) -> BTreeSet<u32> {
        let live = self.entries.values().filter(|entry| entry.live);
        live.map(|entry| entry.record.network.id).collect()
    }

    /// Facts of networks with attachments in any state, by their numbers.
    ///
    /// A network is there more than once when it was changed between its attachments.
    pub fn networks(&self) -> impl Iterator<Item = &NetworkFacts> {
        let facts = self.usage.values().flat_map(|usage| &usage.facts);
        facts.map(|(facts, _)| facts)
    }

    /// True when a live attachment is on a network with tunnels to other nodes.
    pub fn has_tunnelled(&self) -> bool {
        let mut tunnelled = self.networks().filter(|facts| facts.spans_nodes());
        tunnelled.any(|facts| self.live_on(facts.id).any(|it| it.network.spans_nodes()))
    }

    /// The number of a network, if it has one.
    pub fn id_of(&self, network: &str) -> Option<u32> {
        self.ids.get(network).copied()
    }

    /// Every network with its number.
    pub fn ids(&self) -> impl Iterator<Item = (&str, u32)> {
        self.ids.iter().map(|(name, id)| (name.as_str(), *id))
    }

    /// The name of a network by its number.
    pub fn name_of(&self, id: u32) -> Option<&str> {
        self.ids
            .iter()
            .find(|(_, other)| **other == id)
            .map(|(name, _)| name.as_str())
    }

    /// Attachments and held addresses of a network.
    pub fn usage_of(&self, id: u32) -> (usize, usize) {
        self.usage
            .get(&id)
            .map_or((0, 0), |usage| (usage.keys.len(), usage.ips.len()))
    }

    /// Chooses everything about a new attachment and books it, in state `Adding`.
    ///
    /// # Errors
    /// When something wanted cannot be had. Nothing is booked then.
    pub fn reserve(
        &mut self,
        wanted: Wanted,
        network: &Network,
        host: HostEnd,
    ) -> Result<Attachment, BookError> {
        if let (Some(claim), None) = (&wanted.claim, &wanted.holder)
            && claim.kind == ClaimKind::Port
        {
            let claim = claim.clone();
            return Err(AddressError::PortWithoutCluster { claim }.into());
        }
        let id = self.network_id(network)?;
        let facts = NetworkFacts::of(network, id);
        self.refuse_changed(&facts)?;
        let mut decisions = wanted.decisions;
        let because = match (network.id.map(api::NetworkId::get), &self.shares) {
            (None, _) => "allocated, and kept for this name",
            (Some(_), None) => "spec.networkID",
            (Some(given), Some(_)) if given == id => "networkID of the PodNetwork in the cluster",
            (Some(_), Some(_)) => "that of its attachments here; in the cluster it has another",
        };
        decisions.push(Decision::new("network id", &id, because));

        let free_port = self.free_port();
        let usage = self.usage.entry(id).or_default();
        let mac = choose_mac(
            usage,
            &wanted.key,
            id,
            wanted.mac,
            &network.name,
            &mut decisions,
        )?;
        let port_id = free_port.ok_or(BookError::NoPort {
            max: self.max_ports,
        })?;
        let allocator = allocator(&mut self.allocators, network)?;
        let (requests, source) = &wanted.ips;
        let scope = share::Scope::new(
            share::of(self.own.as_ref(), self.shares.as_ref(), &network.name),
            &self.picked,
            &network.name,
        );
        scope.check(requests, wanted.holder.as_ref())?;
        let leases = scope
            .allocate(allocator, requests, &usage.ips)
            .map_err(|source| BookError::Address {
                network: network.name.clone(),
                source,
            })?;
        for lease in &leases {
            let asked = requests
                .iter()
                .any(|request| request.address == lease.address);
            let because = if asked {
                *source
            } else {
                "next free address of the subnet"
            };
            decisions.push(Decision::new("address", lease, because));
        }
        let leases: Vec<Lease> = leases
            .into_iter()
            .map(|lease| Lease {
                address: lease.address,
                prefix: lease.prefix,
                gateway: lease.gateway,
            })
            .collect();
        self.limit_host_ports(&network.name, &wanted.host_ports)?;
        self.check_host_ports(id, &wanted.host_ports, &leases)?;
        decisions.extend(host_ports::decisions(&wanted.host_ports));
        if leases.is_empty() {
            decisions.push(Decision::new(
                "address",
                "none",
                "the network has no subnets",
            ));
        }
        if let (Some(claim), None) = (&wanted.claim, &wanted.holder) {
            let because = format!("{claim}: the node has no cluster that keeps its addresses");
            decisions.push(Decision::new(claim.kind.key(), "ignored", &because));
        }
        decisions.push(Decision::new(
            "mtu",
            &network.mtu,
            "spec.mtu of the network",
        ));
        decisions.push(Decision::new(
            "host interface",
            &host.name,
            "digest of container and interface",
        ));

        let record = Attachment {
            key: wanted.key,
            state: State::Adding,
            cni_network: wanted.cni_network,
            request_digest: wanted.request_digest,
            network: facts,
            pod: wanted.pod,
            labels: wanted.labels,
            mac,
            leases,
            sandbox: wanted.sandbox,
            host,
            port_id,
            default_gateway: wanted.default_gateway,
            nameservers: wanted.nameservers,
            decisions,
            object: wanted.object,
            asked: wanted.asked,
            limits: wanted.limits,
            interface: wanted.interface,
            device: wanted.device,
            socket_path: wanted.socket_path,
            host_ports: wanted.host_ports,
            queued: false,
            shaper: None,
        };
        self.claim_id(network.name.clone(), id);
        self.insert(record.clone(), false);
        Ok(record)
    }

    /// Changes how far an attachment is, and whether the datapath shall know it.
    pub fn set_state(&mut self, key: &AttachmentKey, state: State, live: bool) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.record.state = state;
            entry.live = live;
            self.tell();
        }
    }

    /// The attachment has its links; the datapath shall know it.
    pub fn set_live(&mut self, record: &Attachment) {
        let is_known = self.edit(&record.key, |entry| {
            shape(&mut entry.record, record);
            entry.record.host = record.host.clone();
            entry.live = true;
        });
        if is_known {
            self.tell();
        }
    }

    /// The attachment has these limits and queues now.
    pub fn set_shaping(&mut self, record: &Attachment) {
        self.edit(&record.key, |entry| shape(&mut entry.record, record));
    }

    /// Changes what an attachment is found by; false when there is none with this key.
    fn edit(&mut self, key: &AttachmentKey, change: impl FnOnce(&mut Entry)) -> bool {
        let Some(entry) = self.entries.get_mut(key) else {
            return false;
        };
        self.found.remove(&entry.record);
        change(entry);
        self.found.insert(&entry.record);
        true
    }

    /// The pod's default routes that go through an attachment are others now.
    pub fn set_default_gateway(&mut self, key: &AttachmentKey, routes: DefaultRoutes) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.record.default_gateway = routes;
        }
    }

    /// The attachment is made; what the datapath shall know stays as it is.
    pub fn set_added(&mut self, key: &AttachmentKey) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.record.state = State::Added;
        }
    }

    /// The live attachment whose host end, or an end of whose shaper, has this index.
    pub fn on_link(&self, ifindex: u32) -> Option<AttachmentKey> {
        Some(self.live_with_link(ifindex).next()?.key.clone())
    }

    /// Notes that the host end with this index is gone.
    ///
    /// The datapath shall not know its attachment any more. Returns that attachment, if there was one.
    pub fn lose_link(&mut self, ifindex: u32) -> Option<Attachment> {
        let lost = {
            let mut live = self.live_with_link(ifindex);
            live.find(|it| it.host.ifindex == ifindex)?.clone()
        };
        self.entries.get_mut(&lost.key)?.live = false;
        self.tell();
        Some(lost)
    }

    fn live_with_link(&self, ifindex: u32) -> impl Iterator<Item = &Attachment> {
        let keys = self.found.on_link(ifindex);
        let entries = keys.filter_map(|key| self.entries.get(key));
        entries
            .filter(|entry| entry.live)
            .map(|entry| &entry.record)
    }

    /// The attachments that ports of the node lead to, in whatever state.
    pub fn with_host_ports(&self) -> impl Iterator<Item = &Attachment> {
        let keys = self.found.with_host_ports();
        keys.filter_map(|key| self.entries.get(key))
            .map(|entry| &entry.record)
    }

    /// Notes that an answer with this attachment goes out.
    ///
    /// [`Self::heard`] or [`Self::unheard`] ends it.
    pub fn answer(&mut self, key: &AttachmentKey) -> Option<Made> {
        let entry = self.entries.get_mut(key)?;
        entry.answers += 1;
        Some(Made {
            key: key.clone(),
            generation: entry.generation,
            is_pod: false,
        })
    }

    /// The runtime has the result of this attachment.
    pub fn heard(&mut self, made: &Made) {
        if let Some(entry) = self.answered(made) {
            entry.acknowledged = true;
        }
    }

    /// Notes that the answer did not arrive; true when no runtime knows of it.
    ///
    /// That is so when no other answer arrived, and none is on its way.
    pub fn unheard(&mut self, made: &Made) -> bool {
        self.answered(made)
            .is_some_and(|entry| entry.answers == 0 && !entry.acknowledged)
    }

    /// The attachment an answer was about, unless the key is another one's by now.
    fn answered(&mut self, made: &Made) -> Option<&mut Entry> {
        let entry = self.entries.get_mut(&made.key)?;
        if entry.generation != made.generation {
            return None;
        }
        entry.answers = entry.answers.saturating_sub(1);
        Some(entry)
    }

    /// Forgets an attachment; what it held is free.
    pub fn release(&mut self, key: &AttachmentKey) {
        let Some(entry) = self.entries.remove(key) else {
            return;
        };
        let record = entry.record;
        self.found.remove(&record);
        self.ports.remove(&record.port_id);
        if record.port_id < self.max_ports {
            self.free_ports.insert(record.port_id);
        }
        if let Some(usage) = self.usage.get_mut(&record.network.id) {
            usage.keys.remove(key);
            usage.macs.remove(&record.mac);
            for lease in &record.leases {
                usage.ips.remove(&lease.address);
            }
            if let Some((_, count)) = usage.facts.iter_mut().find(|(it, _)| *it == record.network) {
                *count -= 1;
            }
            usage.facts.retain(|(_, count)| *count > 0);
        }
        self.tell();
    }

    fn insert(&mut self, record: Attachment, live: bool) {
        let usage = self.usage.entry(record.network.id).or_default();
        usage.keys.insert(record.key.clone());
        usage.macs.insert(record.mac);
        usage
            .ips
            .extend(record.leases.iter().map(|lease| lease.address));
        match usage.facts.iter_mut().find(|(it, _)| *it == record.network) {
            Some((_, count)) => *count += 1,
            None => usage.facts.push((record.network.clone(), 1)),
        }
        self.ports.insert(record.port_id);
        self.free_ports.remove(&record.port_id);
        if let Some(before) = self.entries.get(&record.key) {
            self.found.remove(&before.record);
        }
        self.found.insert(&record);
        let since = std::time::Instant::now();
        self.generations += 1;
        let generation = self.generations;
        // One that is live when it is booked comes from the store.
        let entry = Entry {
            record,
            live,
            generation,
            acknowledged: live,
            answers: 0,
            since,
        };
        self.entries.insert(entry.record.key.clone(), entry);
        self.tell();
    }

    /// Gives a number to one network; an unused network that had it loses it.
    fn claim_id(&mut self, network: String, id: u32) {
        self.ids.retain(|_, other| *other != id);
        self.ids.insert(network, id);
    }

    fn network_id(&self, network: &Network) -> Result<u32, BookError> {
        let known = self.ids.get(&network.name).copied();
        if let Some(id) = network.id.map(api::NetworkId::get) {
            // What the cluster says meanwhile does not change what runs. With the last attachment of
            // the time before, the network gets the number it has everywhere.
            let kept = known.filter(|known| *known != id && self.usage_of(*known).0 > 0);
            if let (Some(kept), Some(_)) = (kept, &self.shares) {
                tracing::warn!(
                    network = network.name,
                    number = id,
                    kept,
                    "attachments here have another number than the network has in the cluster"
                );
                return Ok(kept);
            }
            return match self
                .ids
                .iter()
                .find(|(name, other)| **other == id && **name != network.name)
            {
                Some((owner, _)) if self.usage_of(id).0 > 0 => Err(BookError::IdTaken {
                    id,
                    network: network.name.clone(),
                    owner: owner.clone(),
                }),
                _ => Ok(id),
            };
        }
        if let Some(id) = known {
            return Ok(id);
        }
        let taken: BTreeSet<u32> = self.ids.values().copied().collect();
        (FIRST_OWN_ID..=LAST_ID)
            .find(|id| !taken.contains(id))
            .ok_or_else(|| BookError::NoId {
                network: network.name.clone(),
            })
    }
}

/// Gives a record the limits and queues of another.
fn shape(record: &mut Attachment, like: &Attachment) {
    record.limits = like.limits;
    record.queued = like.queued;
    record.shaper = like.shaper;
}

#[cfg(test)]
mod tests;
