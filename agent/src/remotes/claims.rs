//! Which claim to an address holds. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use agent_common::addr::MacAddr;
use api::Endpoint;
use k8s_openapi::jiff::Timestamp;

use super::{Peer, RemoteEndpoint, Slice};

/// What all slices of a network say together.
#[derive(Debug, Default)]
pub struct Resolved {
    /// In order of their MAC addresses.
    pub endpoints: Vec<RemoteEndpoint>,
    /// In order of their names.
    pub peers: Vec<Arc<Peer>>,
    /// The time of the claim of each endpoint, in the same order.
    since: Vec<Timestamp>,
    /// Who holds an address: the place in that order.
    by_ip: HashMap<IpAddr, usize>,
}

impl Resolved {
    /// The latest of the claims to one of these addresses.
    pub(crate) fn latest_claim(&self, mac: MacAddr, ips: &[IpAddr]) -> Option<Timestamp> {
        let by_mac = self.endpoints.binary_search_by_key(&mac, |it| it.mac);
        let by_ip = ips.iter().filter_map(|ip| self.by_ip.get(ip).copied());
        let places = by_mac.ok().into_iter().chain(by_ip);
        places.filter_map(|it| self.since.get(it)).copied().max()
    }
}

/// One endpoint as one slice says it; the later in order holds what both claim.
#[derive(Clone, Copy)]
struct Claim<'a> {
    endpoint: &'a Endpoint,
    peer: &'a Arc<Peer>,
}

impl Claim<'_> {
    fn rank(&self) -> (Timestamp, &str, api::MacAddr) {
        (self.endpoint.since, &self.peer.node, self.endpoint.mac)
    }
}

/// What these slices, all of one network, say together; and in words what several nodes claim.
pub(super) fn resolve<'a>(
    slices: impl Iterator<Item = (&'a Slice, &'a Arc<Peer>)>,
) -> (Resolved, BTreeSet<String>) {
    let mut peers: BTreeMap<&str, &Arc<Peer>> = BTreeMap::new();
    let mut by_mac: BTreeMap<[u8; 6], Claim<'_>> = BTreeMap::new();
    let mut contested = BTreeSet::new();
    for (slice, peer) in slices {
        peers.insert(&peer.node, peer);
        for endpoint in &slice.endpoints {
            let claim = Claim { endpoint, peer };
            let mac = endpoint.mac.octets();
            let holder = by_mac.entry(mac).or_insert(claim);
            note(&mut contested, holder, &claim, &endpoint.mac);
            if holder.rank() < claim.rank() {
                *holder = claim;
            }
        }
    }
    let mut by_ip: HashMap<IpAddr, Claim<'_>> = HashMap::new();
    for claim in by_mac.values() {
        for ip in &claim.endpoint.ips {
            let holder = by_ip.entry(*ip).or_insert(*claim);
            note(&mut contested, holder, claim, ip);
            if holder.rank() < claim.rank() {
                *holder = *claim;
            }
        }
    }
    let holds = |ip: &IpAddr, claim: &Claim<'_>| {
        by_ip
            .get(ip)
            .is_some_and(|holder| holder.rank() == claim.rank())
    };
    let mut resolved = Resolved {
        peers: peers.into_values().map(Arc::clone).collect(),
        ..Resolved::default()
    };
    for (mac, claim) in &by_mac {
        let ips = claim.endpoint.ips.iter();
        let ips: Vec<IpAddr> = ips.filter(|ip| holds(ip, claim)).copied().collect();
        let place = resolved.endpoints.len();
        resolved.by_ip.extend(ips.iter().map(|ip| (*ip, place)));
        resolved.endpoints.push(RemoteEndpoint {
            mac: MacAddr(*mac),
            ips,
            peer: Arc::clone(claim.peer),
        });
        resolved.since.push(claim.endpoint.since);
    }
    (resolved, contested)
}

/// Notes that two nodes claim an address, if they do.
fn note(
    contested: &mut BTreeSet<String>,
    one: &Claim<'_>,
    other: &Claim<'_>,
    address: &impl std::fmt::Display,
) {
    let (one, other) = (&one.peer.node, &other.peer.node);
    if one != other {
        let (first, second) = (one.min(other), one.max(other));
        contested.insert(format!("{address} by {first} and {second}"));
    }
}
