//! Which claim to an address holds. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use agent_common::addr::{GATEWAY_MAC, MacAddr};
use api::Endpoint;
use k8s_openapi::jiff::Timestamp;

use super::holdings::{Judge, Refusal, Standing};
use super::peer::{Peer, RemoteEndpoint, Slice};

/// Contests and refused claims of a network that are kept to be shown.
///
/// More are counted only.
const SHOWN: usize = 64;

/// Merged members of all slices of a network.
#[derive(Debug, Default)]
pub struct Resolved {
    /// In order of their MAC addresses.
    pub endpoints: Vec<RemoteEndpoint>,
    /// In order of their names.
    pub peers: Vec<Arc<Peer>>,
    /// Claims that do not count, by node and reason.
    pub(super) refused: BTreeMap<(String, Refusal), Refused>,
    /// Claims that are dated too late to hold against another.
    pub(super) early: BTreeSet<String>,
    /// The time of the claim of each endpoint, in the same order.
    since: Vec<Timestamp>,
    /// Holders of addresses: their places in the order of endpoints.
    by_ip: HashMap<IpAddr, usize>,
}

/// Claims of a node that do not count for one reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) count: usize,
    /// One of them.
    pub(super) mac: MacAddr,
    /// Its address, if it has one.
    pub(super) ip: Option<IpAddr>,
}

impl Resolved {
    /// The latest of the claims to one of these addresses.
    pub(crate) fn latest_claim(&self, mac: MacAddr, ips: &[IpAddr]) -> Option<Timestamp> {
        let first = self.endpoints.partition_point(|it| it.mac < mac);
        let with_mac = self.endpoints.iter().enumerate().skip(first);
        let with_mac = with_mac.take_while(|(_, it)| it.mac == mac);
        let by_ip = ips.iter().filter_map(|ip| self.by_ip.get(ip).copied());
        let places = with_mac.map(|(place, _)| place).chain(by_ip);
        places.filter_map(|it| self.since.get(it)).copied().max()
    }
}

/// A slice, the node it is of, and the latest date that counts in it.
#[derive(Clone, Copy)]
pub(super) struct Said<'a> {
    pub(super) slice: &'a Slice,
    pub(super) peer: &'a Arc<Peer>,
    pub(super) until: Timestamp,
}

/// One endpoint of one slice, with those addresses that the node may claim.
struct Claim<'a> {
    endpoint: &'a Endpoint,
    peer: &'a Arc<Peer>,
    ips: Vec<(IpAddr, Standing)>,
    /// When it was made; none when that is later than now.
    since: Option<Timestamp>,
}

impl Claim<'_> {
    /// Ranks the claim: of two to the same, the later in order holds.
    ///
    /// A date in the future is before all others.
    fn rank(&self) -> (Option<Timestamp>, &str, api::MacAddr) {
        (self.since, &self.peer.node, self.endpoint.mac)
    }
}

/// Merges these slices, all of one network.
///
/// Returns in words, too, the addresses that several nodes claim.
pub(super) fn resolve<'a>(
    slices: impl Iterator<Item = Said<'a>>,
    judge: Judge<'_>,
) -> (Resolved, BTreeSet<String>) {
    let mut peers: BTreeMap<&str, &Arc<Peer>> = BTreeMap::new();
    let mut resolved = Resolved::default();
    let mut claims: Vec<Claim<'_>> = Vec::new();
    for said in slices {
        peers.insert(&said.peer.node, said.peer);
        for endpoint in &said.slice.endpoints {
            claims.extend(resolved.judged(&said, endpoint, judge));
        }
    }
    let mut contested = BTreeSet::new();
    if !judge.served.routed {
        claims = hold_macs(claims, &mut contested);
    }
    claims.sort_by(|one, other| {
        let key = |it: &Claim<'a>| (it.endpoint.mac, &it.peer.node);
        key(one).cmp(&key(other))
    });
    let mut by_ip: HashMap<IpAddr, (Standing, usize)> = HashMap::new();
    for (place, claim) in claims.iter().enumerate() {
        for (ip, standing) in &claim.ips {
            let holder = by_ip.entry(*ip).or_insert((*standing, place));
            let Some(other) = claims.get(holder.1) else {
                continue;
            };
            note(&mut contested, other, claim, ip);
            if (holder.0, other.rank()) < (*standing, claim.rank()) {
                *holder = (*standing, place);
            }
        }
    }
    resolved.peers = peers.into_values().map(Arc::clone).collect();
    for (number, claim) in claims.iter().enumerate() {
        let holds = |ip: &IpAddr| by_ip.get(ip).is_some_and(|(_, holder)| *holder == number);
        let ips = claim.ips.iter().map(|(ip, _)| *ip);
        let ips: Vec<IpAddr> = ips.filter(holds).collect();
        if judge.served.routed && ips.is_empty() {
            // Its MAC address alone leads nowhere.
            continue;
        }
        let place = resolved.endpoints.len();
        resolved.by_ip.extend(ips.iter().map(|ip| (*ip, place)));
        resolved.endpoints.push(RemoteEndpoint {
            mac: MacAddr(claim.endpoint.mac.octets()),
            ips,
            peer: Arc::clone(claim.peer),
            pod: claim.endpoint.pod.clone(),
        });
        resolved
            .since
            .push(claim.since.unwrap_or(Timestamp::UNIX_EPOCH));
    }
    (resolved, contested)
}

impl Resolved {
    /// Returns the claim of an endpoint, with its addresses that count, if any.
    fn judged<'a>(
        &mut self,
        said: &Said<'a>,
        endpoint: &'a Endpoint,
        judge: Judge<'_>,
    ) -> Option<Claim<'a>> {
        let node = &said.peer.node;
        let mac = MacAddr(endpoint.mac.octets());
        let mut refuse = |why: Refusal, ip: Option<IpAddr>| {
            let first = || Refused { count: 0, mac, ip };
            let of_node = self.refused.entry((node.clone(), why));
            of_node.or_insert_with(first).count += 1;
        };
        if mac == GATEWAY_MAC {
            // All that is sent to the gateway would be that node's.
            refuse(Refusal::Gateway, None);
            return None;
        }
        let mut ips = Vec::with_capacity(endpoint.ips.len());
        for ip in &endpoint.ips {
            match judge.standing(node, *ip) {
                Ok(standing) => ips.push((*ip, standing)),
                Err(why) => refuse(why, Some(*ip)),
            }
        }
        if ips.is_empty() && judge.wants_address() {
            if endpoint.ips.is_empty() {
                refuse(Refusal::NoAddress, None);
            }
            return None;
        }
        let is_past = endpoint.since <= said.until;
        if !is_past && self.early.len() < SHOWN {
            self.early.insert(node.clone());
        }
        Some(Claim {
            endpoint,
            peer: said.peer,
            ips,
            since: is_past.then_some(endpoint.since),
        })
    }
}

/// Of the claims to each MAC address the one that holds it.
fn hold_macs<'a>(claims: Vec<Claim<'a>>, contested: &mut BTreeSet<String>) -> Vec<Claim<'a>> {
    let mut by_mac: BTreeMap<api::MacAddr, Claim<'a>> = BTreeMap::new();
    for claim in claims {
        let mac = claim.endpoint.mac;
        match by_mac.entry(mac) {
            std::collections::btree_map::Entry::Vacant(free) => {
                free.insert(claim);
            }
            std::collections::btree_map::Entry::Occupied(mut holder) => {
                note(contested, holder.get(), &claim, &mac);
                if holder.get().rank() < claim.rank() {
                    holder.insert(claim);
                }
            }
        }
    }
    by_mac.into_values().collect()
}

/// Notes that two nodes claim an address, if they do.
fn note(
    contested: &mut BTreeSet<String>,
    one: &Claim<'_>,
    other: &Claim<'_>,
    address: &impl std::fmt::Display,
) {
    let (one, other) = (&one.peer.node, &other.peer.node);
    if one != other && contested.len() < SHOWN {
        let (first, second) = (one.min(other), one.max(other));
        contested.insert(format!("{address} by {first} and {second}"));
    }
}
