//! Entries of one attachment, written by themselves.
//!
//! A network may have thousands of ports, and an `ADD` or a `DEL` changes one of them. All entries of a network
//! are made and compared when its surroundings change, after an error, and whenever it is not certain that the
//! entries of one attachment are apart from all others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use agent_common::addr::Ip16;
use agent_common::endpoint::{EndpointKey, FdbKey};
use agent_common::flood::{FLOOD_CLOSED, FloodKey};
use agent_common::port::PortAddressKey;
use agent_common::wire::WireKey;
use book::record::{Attachment, NetworkFacts};
use datapath::Entries;

use super::beyond::{Members, Others, Source};
use super::layers::{Change, Layers};
use super::routes::Routes;
use super::surroundings::{Routers, WayOut};
use super::{desired, mapped};

/// Inputs and ports of which the own entries of a network were made.
#[derive(Debug)]
pub(super) struct Basis {
    facts: NetworkFacts,
    inputs: Inputs,
    /// By port id, which no other attachment of the node has.
    ports: BTreeMap<u16, Place>,
}

/// Surroundings that own entries are made of.
#[derive(Debug, PartialEq, Eq)]
struct Inputs {
    way_out: Option<WayOut>,
    uplink: u32,
    routers: Routers,
    unsteered: BTreeSet<u16>,
    /// Policies speak of some port; which ones is a matter of each.
    guarded: bool,
    /// The network has Services; which ones is a matter of no port.
    served: bool,
    routes: Arc<Routes>,
}

impl Inputs {
    fn of(others: &Others) -> Self {
        Self {
            way_out: others.way_out,
            uplink: others.uplink(),
            routers: others.routers(),
            unsteered: others.unsteered.clone(),
            guarded: !others.marks.guarded.is_empty(),
            served: !others.services.is_empty(),
            routes: Arc::clone(&others.routes),
        }
    }
}

/// Parts of an attachment that are in keys of its entries.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    ifindex: u32,
    /// End of a shaper that is a port, too.
    far: Option<u32>,
    fdb: FdbKey,
    /// Addresses at which it is found: none that may be another's.
    ips: Vec<Ip16>,
}

impl Place {
    fn of(attachment: &Attachment) -> Self {
        let leases = attachment.leases.iter().map(|lease| mapped(lease.address));
        let link_local = desired::link_local(attachment).map(mapped);
        Self {
            ifindex: attachment.host.ifindex,
            far: attachment.shaper.map(|shaper| shaper.far),
            fdb: FdbKey::new(attachment.network.id, attachment.mac),
            ips: leases.chain(link_local).collect(),
        }
    }
}

/// Keys that entries of one attachment can have.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Keys {
    pub(super) ports: BTreeSet<u32>,
    pub(super) port_addresses: BTreeSet<PortAddressKey>,
    pub(super) fdb: BTreeSet<FdbKey>,
    pub(super) endpoints: BTreeSet<EndpointKey>,
    pub(super) wires: BTreeSet<WireKey>,
    pub(super) flood: BTreeSet<FloodKey>,
}

impl Keys {
    fn of(place: &Place, uplink: u32) -> Self {
        let network = place.fdb.network;
        let ips = || place.ips.iter().copied();
        let ifindex = place.ifindex;
        Self {
            ports: place.far.into_iter().chain([ifindex]).collect(),
            port_addresses: ips().map(|ip| PortAddressKey { ifindex, ip }).collect(),
            fdb: BTreeSet::from([place.fdb]),
            endpoints: ips().map(|ip| EndpointKey { network, ip }).collect(),
            wires: ips().map(|ip| WireKey::address(uplink, ip)).collect(),
            flood: BTreeSet::new(),
        }
    }

    /// Copies the entries with these keys.
    fn pick(&self, all: &Entries) -> Entries {
        let mut picked = Entries::default();
        macro_rules! each {
            ($($table:ident),+) => {$(
                let found = self.$table.iter().filter_map(|key| Some((*key, *all.$table.get(key)?)));
                picked.$table.extend(found);
            )+};
        }
        each!(ports, port_addresses, fdb, endpoints, wires);
        picked
    }

    /// True when `all` has an entry that is in `new` and not among these.
    fn meets_others(&self, new: &Entries, all: &Entries) -> bool {
        macro_rules! each {
            ($($table:ident),+) => {
                $(new.$table.keys().any(|key| !self.$table.contains(key) && all.$table.contains_key(key)))||+
            };
        }
        each!(ports, port_addresses, fdb, endpoints, wires)
    }
}

impl Basis {
    /// Notes what `own` was made of.
    ///
    /// None when there is no attachment, when attachments disagree on their network, and when an entry is
    /// claimed by two.
    pub(super) fn of(attachments: &[&Attachment], others: &Others, own: &Entries) -> Option<Self> {
        let facts = &attachments.first()?.network;
        let mut ports = BTreeMap::new();
        for attachment in attachments {
            let place = Place::of(attachment);
            if !attachment.network.is_alike(facts) || !is_apart(&place, attachment.port_id, own) {
                return None;
            }
            if ports.insert(attachment.port_id, place).is_some() {
                return None;
            }
        }
        Some(Self {
            facts: facts.clone(),
            inputs: Inputs::of(others),
            ports,
        })
    }
}

/// True when all entries at a place are those of this port.
fn is_apart(place: &Place, port_id: u16, own: &Entries) -> bool {
    let network = place.fdb.network;
    let mut ports = place.far.iter().chain([&place.ifindex]);
    let mut endpoints = place.ips.iter().map(|ip| EndpointKey { network, ip: *ip });
    ports.all(|it| own.ports.get(it).is_some_and(|it| it.port_id == port_id))
        && endpoints.all(|it| {
            let found = own.endpoints.get(&it);
            found.is_none_or(|it| it.port_id == port_id)
        })
        && own
            .fdb
            .get(&place.fdb)
            .is_none_or(|it| it.port_id == port_id)
}

/// Brings the entries of one port up to `wanted`; none for a port that goes.
///
/// Returns the change of the tables. Returns none, and has changed nothing, when all entries of the network have
/// to be made: of its first and of its last port, and when anything that they are made of is new.
pub(super) fn of_port(
    layers: &mut Layers,
    port_id: u16,
    wanted: Option<&Attachment>,
    others: &Others,
    tunnel_port: u16,
) -> Option<Change> {
    let basis = layers.basis.as_ref()?;
    let network = basis.facts.id;
    let spans = !basis.facts.transport.is_local();
    if basis.inputs != Inputs::of(others)
        || spans
            && !layers
                .beyond
                .is_of(&Source::new(&Members::of(&basis.facts), others))
        || wanted.is_some_and(|it| !it.network.is_alike(&basis.facts))
    {
        return None;
    }
    let before = basis.ports.get(&port_id);
    let place = wanted.map(Place::of);
    let count = basis.ports.len() + usize::from(place.is_some()) - usize::from(before.is_some());
    if count == 0 {
        return None;
    }
    let uplink = basis.inputs.uplink;
    let mut old = before.map_or_else(Keys::default, |place| Keys::of(place, uplink));
    let mut new = Entries::default();
    if let (Some(attachment), Some(place)) = (wanted, &place) {
        let (mut alone, _) = desired::own(network, std::iter::once(attachment), others);
        desired::guard_tunnels(&mut alone, tunnel_port);
        if !is_apart(place, port_id, &alone) {
            return None;
        }
        new = Keys::of(place, uplink).pick(&alone);
    }
    if old.meets_others(&new, &layers.own) {
        return None;
    }
    let (gone, come) = (
        before.map(|it| it.ifindex),
        place.as_ref().map(|it| it.ifindex),
    );
    if !basis.facts.routed && gone != come {
        let from = gone.into_iter().chain(come).min()?;
        let first = layers.own.flood.iter().rev();
        let mut first = first.filter(|(_, ports)| ports.ifindexes[0] & !FLOOD_CLOSED <= from);
        let first = first.next().map_or(0, |(key, _)| key.chunk);
        let mut ifindexes = Vec::new();
        for (key, ports) in layers.own.flood.range(
            FloodKey {
                network,
                chunk: first,
            }..,
        ) {
            old.flood.insert(*key);
            ifindexes.extend(ports.ifindexes.iter().take(ports.count.into()));
        }
        ifindexes.retain(|it| Some(*it & !FLOOD_CLOSED) != gone);
        ifindexes.extend(wanted.map(|it| desired::copied_to(it, others)));
        ifindexes.sort_unstable_by_key(|it| it & !FLOOD_CLOSED);
        // The first one has the number of all.
        let head = FloodKey { network, chunk: 0 };
        if let Some(ports) = layers.own.flood.get(&head).filter(|_| first > 0) {
            let mut ports = *ports;
            ports.total = desired::total_of(0, count);
            new.flood.insert(head, ports);
        }
        new.flood
            .extend(desired::flood(network, first, &ifindexes, count));
    }
    let change = layers.replace(&old, new);
    let ports = &mut layers.basis.as_mut()?.ports;
    match place {
        Some(place) => ports.insert(port_id, place),
        None => ports.remove(&port_id),
    };
    Some(change)
}

#[cfg(test)]
mod tests;
