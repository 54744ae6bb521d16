//! VPCs: the networks that are routed to each other.
//!
//! Every agent comes to the same: of two networks or peers that overlap the older one is in, of two of one age the first
//! by name. So a new object takes nothing from those that are there.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;
use serde::Serialize;

use super::index::Slots;
use super::{NetworkEntry, ResolveError, Resolved};
use crate::meta::Kind;
use crate::validate::{Network, ValidVpc, overlap};

/// Seconds at which networks and VPCs were made, as far as that is known.
#[derive(Default)]
pub(super) struct Ages(BTreeMap<(Kind, String), i64>);

impl Ages {
    /// Notes the second of an object of either kind.
    pub(super) fn note(&mut self, kind: Kind, name: &str, created: Option<i64>) {
        if let (Kind::PodNetwork | Kind::Vpc, Some(created)) = (kind, created) {
            self.0.insert((kind, name.to_owned()), created);
        }
    }

    /// The place of an object among those of its kind, oldest first.
    fn of(&self, kind: Kind, name: &str) -> (Option<i64>, String) {
        let name = name.to_owned();
        let created = self.0.get(&(kind, name.clone())).copied();
        (created, name)
    }
}

/// All VPCs, with the networks that are in them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Vpcs(BTreeMap<String, Entry>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    definition: Result<ValidVpc, ResolveError>,
    /// Networks that are routed to each other.
    ///
    /// Disabled ones are among them: their ports are still there.
    networks: BTreeSet<String>,
    peers: Vec<VpcPeer>,
}

/// A VPC that another one names, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VpcPeer {
    /// Its name.
    pub vpc: String,
    /// Whether packets are routed there.
    pub state: PeerState,
    /// A sentence for people; empty of one that packets are routed to.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// State of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum PeerState {
    /// Packets are routed to it.
    Active,
    /// It does not exist.
    NotFound,
    /// It cannot be used.
    Invalid,
    /// It does not name this one.
    Pending,
    /// It shares addresses with this VPC, or with another peer of either.
    Overlap,
}

impl PeerState {
    /// The word for the state, as reasons of conditions are.
    const fn reason(self) -> &'static str {
        match self {
            Self::Active => "Ready",
            Self::NotFound => "PeerNotFound",
            Self::Invalid => "PeerInvalid",
            Self::Pending => "PeerPending",
            Self::Overlap => "PeerOverlap",
        }
    }
}

/// A VPC as it is in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VpcState {
    /// Its name.
    pub name: String,
    /// Its prefixes; none of one that cannot be used.
    pub cidrs: Vec<IpNet>,
    /// Names of the networks that are routed to each other.
    pub networks: Vec<String>,
    /// The VPCs that it names.
    pub peers: Vec<VpcPeer>,
    /// True when it can be used, and all of its peers are in force.
    pub ready: bool,
    /// One CamelCase word for programs; `Ready` when ready.
    pub reason: &'static str,
    /// A sentence for people; empty when ready.
    pub message: String,
}

/// A route of a network's virtual gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteTo<'a> {
    /// Where it leads.
    pub prefix: IpNet,
    /// The network that has the prefix as a subnet.
    ///
    /// Without one, what goes there is dropped: an address of the VPC that no network has.
    pub network: Option<&'a Network>,
}

impl Vpcs {
    /// Finds the networks of each VPC, and refuses those that cannot be in theirs.
    pub(super) fn of(
        written: &Slots<ValidVpc>,
        ages: &Ages,
        networks: &mut BTreeMap<String, NetworkEntry>,
    ) -> Self {
        let entry = |definition: &Result<ValidVpc, ResolveError>| Entry {
            definition: definition.clone(),
            networks: BTreeSet::new(),
            peers: Vec::new(),
        };
        let all = written.iter();
        let mut this = Self(all.map(|(key, it)| (key.name.clone(), entry(it))).collect());
        let active = this.peer(ages);
        this.admit(ages, networks, &active);
        this
    }

    /// Decides on the peers of all; returns the pairs that are routed to each other.
    fn peer(&mut self, ages: &Ages) -> BTreeSet<(String, String)> {
        let valid: BTreeMap<&String, &ValidVpc> = self
            .0
            .iter()
            .filter_map(|(name, entry)| Some((name, entry.definition.as_ref().ok()?)))
            .collect();
        let mut active: BTreeMap<&String, BTreeSet<&String>> = BTreeMap::new();
        let mut overlaps: BTreeMap<(&String, &String), String> = BTreeMap::new();
        let named = valid.iter().flat_map(|(name, vpc)| {
            let others = vpc.peers.iter().filter(|other| other > name);
            others.map(|other| (*name, other))
        });
        let mut pairs: Vec<(&String, &String)> = named
            .filter(|(name, other)| valid.get(other).is_some_and(|it| it.peers.contains(*name)))
            .collect();
        // A pair is as old as the younger of the two.
        pairs.sort_by_cached_key(|(one, other)| {
            let age = |name| ages.of(Kind::Vpc, name);
            (age(one).max(age(other)), age(one).min(age(other)))
        });
        for (name, other) in pairs {
            match clash(&valid, &active, name, other) {
                Some(why) => {
                    overlaps.insert((name, other), why);
                }
                None => {
                    active.entry(name).or_default().insert(other);
                    active.entry(other).or_default().insert(name);
                }
            }
        }
        let state = |name: &String, peer: &String| {
            let is_active = active.get(name).is_some_and(|it| it.contains(peer));
            if is_active {
                return (PeerState::Active, String::new());
            }
            if !self.0.contains_key(peer) {
                let why = format!("Vpc {peer} does not exist; create it, or remove the peer");
                return (PeerState::NotFound, why);
            }
            let Some(other) = valid.get(peer) else {
                let why = format!("Vpc {peer} cannot be used; correct it");
                return (PeerState::Invalid, why);
            };
            if !other.peers.contains(name) {
                let why = format!("Vpc {peer} does not name {name}; add it to spec.peers there");
                return (PeerState::Pending, why);
            }
            let pair = (name.min(peer), name.max(peer));
            let what = overlaps.get(&pair).cloned().unwrap_or_default();
            let why = format!("{what}; VPCs that reach each other have prefixes of their own");
            (PeerState::Overlap, why)
        };
        let told: Vec<(String, Vec<VpcPeer>)> = valid
            .iter()
            .map(|(name, vpc)| {
                let peers = vpc.peers.iter().map(|peer| {
                    let (state, message) = state(name, peer);
                    VpcPeer {
                        vpc: peer.clone(),
                        state,
                        message,
                    }
                });
                ((*name).clone(), peers.collect())
            })
            .collect();
        let pairs = active
            .iter()
            .flat_map(|(name, peers)| peers.iter().map(|it| ((*name).clone(), (*it).clone())))
            .collect();
        for (name, peers) in told {
            if let Some(entry) = self.0.get_mut(&name) {
                entry.peers = peers;
            }
        }
        pairs
    }

    /// Lets networks into their VPCs, and tells them the prefixes that these lead to.
    fn admit(
        &mut self,
        ages: &Ages,
        networks: &mut BTreeMap<String, NetworkEntry>,
        active: &BTreeSet<(String, String)>,
    ) {
        // By VPC: subnets of the networks that are in.
        let mut taken: BTreeMap<String, Vec<(String, IpNet)>> = BTreeMap::new();
        let mut all: Vec<(&String, &mut NetworkEntry)> = networks.iter_mut().collect();
        all.sort_by_cached_key(|(name, _)| ages.of(Kind::PodNetwork, name));
        for (name, entry) in all {
            // A number that another has leads there.
            if matches!(entry.refusal, Some(ResolveError::NetworkIdConflict { .. })) {
                continue;
            }
            let Some(network) = &mut entry.definition else {
                continue;
            };
            let Some(vpc) = network.vpc.clone() else {
                continue;
            };
            let reached = self.reached(&vpc, active);
            match self.place(network, &vpc, &reached, taken.get(&vpc)) {
                Ok(()) => {
                    network.vpc_cidrs = reached.into_iter().map(|(_, cidr)| cidr).collect();
                    let subnets = network.subnets.iter();
                    let subnets = subnets.map(|subnet| (name.clone(), subnet.prefix));
                    taken.entry(vpc.clone()).or_default().extend(subnets);
                    if let Some(entry) = self.0.get_mut(&vpc) {
                        entry.networks.insert(name.clone());
                    }
                }
                Err(refusal) => {
                    entry.refusal.get_or_insert(refusal);
                }
            }
        }
    }

    /// The prefixes that a VPC leads to, with the name of the VPC that has each.
    fn reached(&self, vpc: &str, active: &BTreeSet<(String, String)>) -> Vec<(String, IpNet)> {
        let all = self.0.iter().filter(|(other, _)| {
            *other == vpc || active.contains(&(vpc.to_owned(), (*other).clone()))
        });
        all.filter_map(|(name, entry)| Some((name, entry.definition.as_ref().ok()?)))
            .flat_map(|(name, it)| it.cidrs.iter().map(|cidr| (name.clone(), *cidr)))
            .collect()
    }

    /// Checks that a network can be in its VPC.
    fn place(
        &self,
        network: &Network,
        vpc: &str,
        reached: &[(String, IpNet)],
        taken: Option<&Vec<(String, IpNet)>>,
    ) -> Result<(), ResolveError> {
        let name = || network.name.clone();
        let definition = match self.0.get(vpc).map(|entry| &entry.definition) {
            Some(Ok(definition)) => definition,
            Some(Err(source)) => {
                return Err(ResolveError::VpcUnusable {
                    name: name(),
                    vpc: vpc.to_owned(),
                    source: Box::new(source.clone()),
                });
            }
            None => {
                return Err(ResolveError::VpcNotFound {
                    name: name(),
                    vpc: vpc.to_owned(),
                });
            }
        };
        let prefixes = || network.subnets.iter().map(|subnet| subnet.prefix);
        let within = |subnet: &IpNet| definition.cidrs.iter().any(|cidr| cidr.contains(subnet));
        if let Some(subnet) = prefixes().find(|subnet| !within(subnet)) {
            return Err(ResolveError::SubnetOutsideVpc {
                name: name(),
                vpc: vpc.to_owned(),
                subnet,
                cidrs: definition.cidrs.clone(),
            });
        }
        let services = network.service_cidrs.iter().copied();
        let of_networks = taken.map_or(&[][..], Vec::as_slice);
        let with_network = first_overlap(prefixes(), "PodNetwork", of_networks);
        match with_network.or_else(|| first_overlap(services, "Vpc", reached)) {
            Some((prefix, first, other)) => Err(ResolveError::VpcOverlap {
                name: name(),
                vpc: vpc.to_owned(),
                prefix,
                first,
                other,
            }),
            None => Ok(()),
        }
    }
}

/// Says which addresses two VPCs would both lead to, if they became peers.
fn clash(
    valid: &BTreeMap<&String, &ValidVpc>,
    active: &BTreeMap<&String, BTreeSet<&String>>,
    one: &String,
    other: &String,
) -> Option<String> {
    let peers_of = |vpc| active.get(vpc).into_iter().flatten().copied();
    let mut pairs = std::iter::once((one, other))
        .chain(peers_of(one).map(|peer| (other, peer)))
        .chain(peers_of(other).map(|peer| (one, peer)));
    pairs.find_map(|(one, other)| {
        let (own, theirs) = valid.get(one)?.overlap(valid.get(other)?)?;
        Some(format!(
            "{own} of Vpc {one} overlaps {theirs} of Vpc {other}"
        ))
    })
}

/// Finds a prefix that shares addresses with one of others.
///
/// Those are of objects of this kind, by name.
/// Returns the prefix, the object in words, and its prefix.
fn first_overlap(
    prefixes: impl Iterator<Item = IpNet>,
    kind: &str,
    others: &[(String, IpNet)],
) -> Option<(IpNet, String, IpNet)> {
    let mut prefixes = prefixes;
    prefixes.find_map(|prefix| {
        let mut others = others.iter();
        let (name, other) = others.find(|(_, other)| overlap(other, &prefix))?;
        Some((prefix, format!("{kind} {name}"), *other))
    })
}

impl Resolved {
    /// True when there is a VPC, in whatever state.
    #[must_use]
    pub fn has_vpcs(&self) -> bool {
        !self.vpcs.0.is_empty()
    }

    /// Returns all VPCs as they are in force, by name.
    pub fn vpcs(&self) -> impl Iterator<Item = VpcState> {
        self.vpcs.0.iter().map(|(name, entry)| {
            let peers = entry.peers.iter();
            let broken = peers.clone().find(|peer| peer.state != PeerState::Active);
            let (reason, message) = match (&entry.definition, broken) {
                (Err(error), _) => (error.reason(), error.to_string()),
                (Ok(_), Some(peer)) => (peer.state.reason(), peer.message.clone()),
                (Ok(_), None) => ("Ready", String::new()),
            };
            let definition = entry.definition.as_ref();
            VpcState {
                name: name.clone(),
                cidrs: definition.map_or_else(|_| Vec::new(), |vpc| vpc.cidrs.clone()),
                networks: entry.networks.iter().cloned().collect(),
                peers: entry.peers.clone(),
                ready: message.is_empty(),
                reason,
                message,
            }
        })
    }

    /// Returns the routes of the virtual gateway of a network in a VPC.
    ///
    /// A prefix is in the list once. Its own subnets are not: the gateway has them anyway.
    #[must_use]
    pub fn routes_of(&self, network: &str) -> Vec<RouteTo<'_>> {
        let Some((own, entry)) = self.vpc_of(network) else {
            return Vec::new();
        };
        let active = entry
            .peers
            .iter()
            .filter(|it| it.state == PeerState::Active);
        let names = active.map(|peer| &peer.vpc).chain([own]);
        let reached: Vec<&Entry> = names.filter_map(|name| self.vpcs.0.get(name)).collect();
        let networks = reached.iter().flat_map(|it| &it.networks);
        let networks = networks.filter(|name| name.as_str() != network);
        let mut routes: BTreeMap<IpNet, Option<&Network>> = reached
            .iter()
            .filter_map(|it| it.definition.as_ref().ok())
            .flat_map(|vpc| vpc.cidrs.iter().map(|cidr| (*cidr, None)))
            .collect();
        for network in networks.filter_map(|name| self.definition(name)) {
            let prefixes = network.subnets.iter().map(|subnet| subnet.prefix);
            routes.extend(prefixes.map(|prefix| (prefix, Some(network))));
        }
        let routes = routes.into_iter();
        routes
            .map(|(prefix, network)| RouteTo { prefix, network })
            .collect()
    }

    /// Returns the networks that these networks are routed to, each once.
    ///
    /// They are among them, if they are in a VPC.
    #[must_use]
    pub fn reached_from<'a>(&self, networks: impl IntoIterator<Item = &'a str>) -> Vec<&Network> {
        let own = networks.into_iter().filter_map(|name| self.vpc_of(name));
        let own: BTreeMap<&String, &Entry> = own.collect();
        let peers = own.values().flat_map(|entry| &entry.peers);
        let active = peers.filter(|it| it.state == PeerState::Active);
        let vpcs: BTreeSet<&String> = active
            .map(|it| &it.vpc)
            .chain(own.keys().copied())
            .collect();
        let entries = vpcs.into_iter().filter_map(|name| self.vpcs.0.get(name));
        let names: BTreeSet<&String> = entries.flat_map(|entry| &entry.networks).collect();
        let found = names.into_iter().filter_map(|name| self.definition(name));
        found.collect()
    }

    fn vpc_of(&self, network: &str) -> Option<(&String, &Entry)> {
        let name = self.definition(network)?.vpc.as_ref()?;
        let (name, entry) = self.vpcs.0.get_key_value(name)?;
        entry.networks.contains(network).then_some((name, entry))
    }
}

#[cfg(test)]
mod tests;
