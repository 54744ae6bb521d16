//! Pods of a node: their requests, and the ports that they get.

use std::collections::BTreeSet;
use std::net::IpAddr;

use api::Holder;
use ipam::{IpamError, Request};

use super::super::super::{Command, Event, Job, Wish};
use super::cluster::Late;
use super::host::Host;
use super::network::BLUE;
use book::BookError;
use book::ledger::{ClaimKind, ClaimRef, Entry, Wanted};
use book::record::{ObjectRef, PodIdentity, State};
use book::samples;

/// How long an `ADD` waits, seconds.
pub(super) const PATIENCE: i64 = 5;

/// Addresses that a pod asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Want {
    Any,
    Named(u8),
    Claim(u8),
}

/// A pod that is bound to the node.
#[derive(Debug, Clone)]
pub(super) struct Bound {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) want: Want,
    /// Its containers are gone for ever, its object is not.
    pub(super) ended: bool,
    /// When its object was deleted though its containers run.
    pub(super) forced: Option<i64>,
}

/// A port that lives, with what was given to it, whatever the machine says.
#[derive(Debug, Clone)]
pub(super) struct Port {
    pub(super) ips: Vec<IpAddr>,
    /// UID of the claim, else of the pod.
    pub(super) holder: String,
    /// Addresses of it for which a reservation was needed.
    pub(super) reserved: BTreeSet<IpAddr>,
    /// It has the addresses of a claim.
    pub(super) by_claim: bool,
}

/// A request in the shell.
#[derive(Debug)]
pub(super) struct Asking {
    pub(super) pod: String,
    pub(super) deadline: i64,
    /// None while it waits for the end of a round.
    pub(super) call: Option<Command>,
    /// Rounds that had ended when it last looked.
    pub(super) rounds: u64,
    /// Addresses by name that need no reservation.
    pub(super) ours: BTreeSet<IpAddr>,
}

/// Result of a booking.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Booking {
    Booked,
    Full(IpamError),
    Refused,
}

impl Host {
    /// Books an attachment, and makes its port.
    pub(super) fn reserve(&mut self, wanted: Wanted, ours: &BTreeSet<IpAddr>) -> Booking {
        let Ok(network) = self.world.network(BLUE).cloned() else {
            return Booking::Refused;
        };
        let key = wanted.key.clone();
        let pod = wanted
            .pod
            .clone()
            .expect("every request of the model is a pod's");
        let (holder, is_named) = (wanted.holder.clone(), !wanted.ips.0.is_empty());
        let host = samples::host(&wanted, 7);
        let record = match self.ledger.reserve(wanted, &network, host) {
            Ok(record) => record,
            Err(BookError::Address {
                source: source @ IpamError::NoRoom { .. },
                ..
            }) => return Booking::Full(source),
            Err(_) => return Booking::Refused,
        };
        self.ledger.set_state(&key, State::Added, true);
        let ips: Vec<IpAddr> = record.leases.iter().map(|lease| lease.address).collect();
        let by_claim = matches!(holder, Some(Holder::Claim(_)));
        let reserved = ips.iter().filter(|ip| is_named && !ours.contains(ip));
        let port = Port {
            reserved: reserved.copied().collect(),
            ips,
            holder: match holder {
                Some(Holder::Claim(claim)) => claim.uid,
                _ => pod.uid.expect("every pod of the model has a UID"),
            },
            by_claim,
        };
        self.ports.insert(pod.name.clone(), port);
        self.booked.push(pod.name);
        Booking::Booked
    }

    /// Names of pods that are to be attached.
    pub(super) fn unattached(&self) -> Vec<String> {
        let waiting = self.bound.values();
        let waiting = waiting.filter(|it| !it.ended && it.forced.is_none());
        let waiting = waiting.filter(|it| !self.ports.contains_key(&it.name));
        waiting.map(|it| it.name.clone()).collect()
    }

    /// Requests addresses for a pod, unless it does already or the agent still starts.
    pub(super) fn add(&mut self, pod: &str, named: &[u8; 3], now: i64) {
        let bound = self.bound[pod].clone();
        if !self.ready || self.asking.values().any(|it| it.pod == bound.name) {
            return;
        }
        let Ok(network) = self.world.network(BLUE).cloned() else {
            return;
        };
        let claim = |number| ClaimRef {
            kind: ClaimKind::IpamClaim,
            object: ObjectRef {
                namespace: "shop".to_owned(),
                name: format!("claim-{number}"),
            },
        };
        let wanted = Wanted {
            pod: Some(PodIdentity {
                namespace: "shop".to_owned(),
                name: bound.name.clone(),
                uid: Some(bound.uid.clone()),
            }),
            ips: match bound.want {
                Want::Named(index) => {
                    let last = named[usize::from(index)];
                    (vec![Request::from(super::numbered(last))], "the model")
                }
                Want::Any | Want::Claim(_) => (Vec::new(), "the model"),
            },
            claim: match bound.want {
                Want::Claim(number) => Some(claim(number)),
                Want::Any | Want::Named(_) => None,
            },
            ..samples::wanted(&bound.name)
        };
        if bound.want == Want::Any {
            let booked = self.reserve(wanted.clone(), &BTreeSet::new());
            self.look = true;
            if !matches!(booked, Booking::Full(_)) {
                return;
            }
        }
        let share = self.ledger.share_of(BLUE).cloned().unwrap_or_default();
        let ips = wanted.ips.0.iter().map(|request| request.address);
        let ours = ips.filter(|ip| share.has(*ip) && !share.reserved.contains_key(ip));
        let wish = Wish {
            ours: ours.collect(),
            wanted,
            network,
        };
        self.requests += 1;
        let id = self.requests;
        let asking = Asking {
            pod: bound.name,
            deadline: now + PATIENCE,
            call: None,
            rounds: self.rounds,
            ours: wish.ours.clone(),
        };
        self.asking.insert(id, asking);
        self.drive(Job::Request(id), Event::Asked(id, Box::new(wish)), now);
    }

    /// Ends a pod's containers, with its request and its port.
    pub(super) fn detach(&mut self, pod: &str, late: &mut Vec<Late>, now: i64) {
        let asking = self.asking.iter().find(|(_, it)| it.pod == pod);
        if let Some(id) = asking.map(|(id, _)| *id) {
            let call = self.asking.remove(&id).and_then(|it| it.call);
            late.extend(call.map(|command| Late::of_node(now, &self.name, command)));
            self.tell(Event::Gone(id), now);
        }
        let is_of = |entry: &Entry| {
            let of = entry.record.pod.as_ref();
            of.is_some_and(|of| of.name == pod)
        };
        let key = self.ledger.entries().find(|entry| is_of(entry));
        if let Some(key) = key.map(|entry| entry.record.key.clone()) {
            self.ledger.release(&key);
        }
        self.ports.remove(pod);
        self.look = true;
    }

    /// Ends a pod's containers for ever.
    pub(super) fn remove(&mut self, pod: &str, late: &mut Vec<Late>, now: i64) {
        self.detach(pod, late, now);
        if let Some(bound) = self.bound.get_mut(pod) {
            bound.ended = true;
        }
    }

    /// Boots: no record and no container is left, what others were told still holds.
    pub(super) fn boot(&mut self, late: &mut Vec<Late>, now: i64) {
        for pod in self.ports.keys().cloned().collect::<Vec<_>>() {
            self.detach(&pod, late, now);
        }
        self.restart(late, now);
    }
}
