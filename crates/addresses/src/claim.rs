//! `IPAMClaim`s: addresses that outlive the pods that use them (NPWG v1.3 §8).
//!
//! An address of a claim has an `IPReservation` for the claim, by UID, and that is what keeps it: no
//! node lets go of it, whichever pods come and go, and the controller deletes it when the claim is
//! gone and no pod names it any more. So the claim itself needs no finalizer, and a namespace can be
//! deleted without podnet.
//!
//! `status.ips` is written before the `ADD` succeeds, if nobody has written it since the claim was
//! read. Of two nodes that serve a new claim at the same time one is too late: it gives up what it
//! has reserved, and takes what the other wrote.

use std::collections::BTreeSet;
use std::net::IpAddr;

use api::{ClaimHolder, Holder, IpamClaim, Network};
use book::ledger::Wanted;
use book::record::{Decision, ObjectRef};
use book::{AddressError, BookError};
use ipam::{IpamError, Request as IpRequest};
use kube_core::ResourceExt as _;

use super::command::{Answer, Command, Object};
use super::error::RequestError;
use super::read::{holder as holder_of, uid_of};
use super::requests::{Ask, Read, Request, RequestStep, Turn};
use super::state::{Effect, Machine};

/// Attempts at a claim that others write at the same moment.
const ATTEMPTS: usize = 4;
/// Where the addresses of such an attachment come from.
const SOURCE: &str = "status.ips of the IPAMClaim";

impl Machine {
    pub(super) fn read_claim(request: &mut Request) -> Result<Turn, AddressError> {
        let Some(claim) = request.wish.wanted.claim.clone() else {
            return Ok(Turn::Go);
        };
        if request.attempts == ATTEMPTS {
            return Err(AddressError::ClaimContended {
                claim,
                why: "others change it all the time".to_owned(),
            });
        }
        request.attempts += 1;
        request.first([RequestStep::ClaimRead]);
        Ok(Turn::Call(Command::GetClaim(claim)))
    }

    /// Makes the attachment ask for the addresses of its claim, and for no others.
    ///
    /// A claim without addresses gets some: those that the attachment asks for, else free ones of this
    /// node's blocks.
    ///
    /// # Errors
    /// When the claim does not fit.
    pub(super) fn claim_read(
        request: &mut Request,
        answer: Option<Answer>,
    ) -> Result<Turn, AddressError> {
        let (wanted, network) = (&request.wish.wanted, &request.wish.network);
        let (Some(claim), Some(Answer::Claim(found))) = (wanted.claim.clone(), answer) else {
            return Ok(Turn::Go);
        };
        let object = usable(&claim, found)?;
        fits(&object, &claim, wanted, network)?;
        let holder = Holder::Claim(ClaimHolder {
            namespace: claim.namespace.clone(),
            name: claim.name.clone(),
            uid: object.uid().unwrap_or_default(),
        });
        let known = addresses_of(&object, &claim)?;
        if known.is_empty() {
            let read = Read {
                claim,
                object,
                holder,
            };
            request.first([RequestStep::Allocate(Box::new(read))]);
        } else {
            same_as_asked(&known, wanted, &claim)?;
            request.first([RequestStep::Claimed(holder.clone(), known.clone())]);
            request.first(asks(&known, &holder));
        }
        Ok(Turn::Go)
    }

    /// Finds addresses for a claim without any.
    ///
    /// They are those that the attachment names, those that an `ADD` that failed has reserved already, or
    /// free ones.
    pub(super) fn allocate(&self, request: &mut Request, read: Box<Read>) -> Turn {
        let asked = request.wish.wanted.ips.0.iter();
        let asked: Vec<IpAddr> = asked.map(|it| it.address).collect();
        let begun = self.reserved_for(&request.wish.network, &read.holder);
        let known = [asked, begun].into_iter().find(|ips| !ips.is_empty());
        match known {
            Some(ips) => reserve(request, read, ips),
            None => request.first([RequestStep::Pick(read)]),
        }
        Turn::Go
    }

    pub(super) fn pick(request: &mut Request, read: Box<Read>) -> Turn {
        let command = Command::Pick {
            network: Box::new(request.wish.network.clone()),
            holder: read.holder.clone(),
        };
        request.first([RequestStep::Picked(read)]);
        Turn::Call(command)
    }

    /// Waits for a block where there is no room.
    pub(super) fn picked(
        &self,
        request: &mut Request,
        read: Box<Read>,
        answer: Option<Answer>,
        effects: &mut Vec<Effect>,
    ) -> Result<Turn, RequestError> {
        match answer {
            Some(Answer::Picked(Ok(ips))) => {
                request.starved = None;
                request.picked.clone_from(&ips);
                reserve(request, read, ips);
                Ok(Turn::Go)
            }
            Some(Answer::Picked(Err(BookError::Address {
                source: source @ IpamError::NoRoom { .. },
                ..
            }))) => {
                if request.starved.replace(source).is_none() {
                    effects.push(Effect::Look);
                }
                request.first([RequestStep::Pick(read)]);
                Ok(Turn::Wait)
            }
            Some(Answer::Picked(Err(error))) => Err(error.into()),
            _ => Ok(Turn::Go),
        }
    }

    /// Addresses that are reserved for a holder, one of each family.
    fn reserved_for(&self, network: &Network, holder: &Holder) -> Vec<IpAddr> {
        let mut found: Vec<IpAddr> = Vec::new();
        let mut reservations = self.seen.reservations.clone();
        reservations.sort_by_key(|it| it.name_any());
        for reservation in reservations {
            let spec = &reservation.spec;
            let is_theirs = holder_of(spec).is_some_and(|other| uid_of(&other) == uid_of(holder));
            let Ok(ip) = spec.address.parse::<IpAddr>() else {
                continue;
            };
            let is_new = found.iter().all(|other| other.is_ipv4() != ip.is_ipv4());
            if spec.network == network.name && is_theirs && is_new {
                found.push(ip);
            }
        }
        let families = |v4| {
            let mut subnets = network.subnets.iter();
            subnets.any(|subnet| subnet.prefix.addr().is_ipv4() == v4)
        };
        let complete = [true, false]
            .into_iter()
            .all(|v4| !families(v4) || found.iter().any(|ip| ip.is_ipv4() == v4));
        if complete { found } else { Vec::new() }
    }

    pub(super) fn write_claim(request: &mut Request, read: Box<Read>, ips: Vec<IpAddr>) -> Turn {
        let subnets = &request.wish.network.subnets;
        let with_length = |ip: &IpAddr| {
            let subnet = subnets.iter().find(|subnet| subnet.prefix.contains(ip))?;
            Some(format!("{ip}/{}", subnet.prefix.prefix_len()))
        };
        let command = Command::WriteClaim {
            claim: read.claim.clone(),
            uid: read.object.uid(),
            version: read.object.resource_version(),
            ips: ips.iter().filter_map(with_length).collect(),
        };
        request.first([RequestStep::ClaimWritten(read, ips)]);
        Turn::Call(command)
    }

    pub(super) fn claim_written(
        request: &mut Request,
        read: Box<Read>,
        ips: Vec<IpAddr>,
        answer: Option<Answer>,
    ) -> Result<Turn, AddressError> {
        match answer {
            Some(Answer::ClaimWritten(Ok(true))) => {
                request.first([RequestStep::Claimed(read.holder, ips)]);
            }
            // Somebody was faster. What nobody wrote down is let go.
            Some(Answer::ClaimWritten(Ok(false))) => {
                request.first([RequestStep::Withdraw(read, ips), RequestStep::ReadClaim]);
            }
            Some(Answer::ClaimWritten(Err(why))) => {
                return Err(AddressError::ClaimUnwritten {
                    claim: read.claim,
                    why,
                });
            }
            _ => {}
        }
        Ok(Turn::Go)
    }

    pub(super) fn withdraw(request: &mut Request, read: Box<Read>, ips: Vec<IpAddr>) -> Turn {
        let claim = read.claim.clone();
        request.first([RequestStep::Withdrawn(read, ips)]);
        Turn::Call(Command::GetClaim(claim))
    }

    /// Deletes this node's reservations for a claim that others have written.
    ///
    /// Reservations of the addresses that they wrote stay.
    pub(super) fn withdrawn(
        &self,
        request: &mut Request,
        read: &Read,
        ips: &[IpAddr],
        answer: Option<Answer>,
    ) {
        let Some(Answer::Claim(found)) = answer else {
            return;
        };
        let uid = uid_of(&read.holder);
        let kept: BTreeSet<IpAddr> = match usable(&read.claim, found) {
            Ok(now) if now.metadata.uid.as_deref() == Some(uid) => {
                let kept = addresses_of(&now, &read.claim).unwrap_or_default();
                kept.into_iter().collect()
            }
            // It is gone, and so is the need.
            Ok(_) | Err(AddressError::ClaimAbsent { .. } | AddressError::ClaimDeleted { .. }) => {
                BTreeSet::new()
            }
            // The next attempt finds them.
            Err(_) => return,
        };
        let mut steps = Vec::new();
        for reservation in &self.seen.reservations {
            let spec = &reservation.spec;
            let is_theirs = holder_of(spec).is_some_and(|other| uid_of(&other) == uid);
            let ip = spec.address.parse::<IpAddr>();
            let is_spare = ip.is_ok_and(|ip| ips.contains(&ip) && !kept.contains(&ip));
            if is_theirs && spec.network == request.network() && is_spare {
                steps.push(RequestStep::Delete(Object::of(&**reservation)));
            }
        }
        request.first(steps);
    }

    pub(super) fn claimed(request: &mut Request, holder: Holder, ips: Vec<IpAddr>) {
        let wanted = &mut request.wish.wanted;
        wanted.ips = (ips.into_iter().map(IpRequest::from).collect(), SOURCE);
        wanted.holder = Some(holder);
        if let Some(claim) = &wanted.claim {
            wanted.decisions.push(Decision::new(
                "ipam-claim-reference",
                claim,
                "of the pod's list",
            ));
        }
    }
}

/// Reserves addresses for the claim, and writes them into it.
fn reserve(request: &mut Request, read: Box<Read>, ips: Vec<IpAddr>) {
    let asks = asks(&ips, &read.holder);
    request.first([RequestStep::WriteClaim(read, ips)]);
    request.first(asks);
}

fn asks(ips: &[IpAddr], holder: &Holder) -> Vec<RequestStep> {
    let asks = ips.iter().map(|ip| Ask::new(*ip, holder.clone()));
    asks.map(|ask| RequestStep::Ask(Box::new(ask))).collect()
}

/// The claim that was found, unless it is of no use.
fn usable(
    claim: &ObjectRef,
    found: Result<Option<IpamClaim>, String>,
) -> Result<IpamClaim, AddressError> {
    let found = found.map_err(|why| AddressError::ClaimUnread {
        claim: claim.clone(),
        why,
    })?;
    let found = found.ok_or_else(|| AddressError::ClaimAbsent {
        claim: claim.clone(),
    })?;
    if found.metadata.deletion_timestamp.is_some() {
        return Err(AddressError::ClaimDeleted {
            claim: claim.clone(),
        });
    }
    Ok(found)
}

/// NPWG-8-T3: checks that the claim is of this network.
///
/// The interface may have another name: there are users that name it differently for each pod.
fn fits(
    object: &IpamClaim,
    claim: &ObjectRef,
    wanted: &Wanted,
    network: &Network,
) -> Result<(), AddressError> {
    let spec = &object.spec;
    if spec.network != network.name && Some(&spec.network) != wanted.claim_network.as_ref() {
        return Err(AddressError::ClaimOfAnother {
            claim: claim.clone(),
            found: spec.network.clone(),
            network: network.name.clone(),
        });
    }
    if spec.interface != wanted.key.ifname.as_str() {
        tracing::warn!(%claim, spec.interface, attachment = %wanted.key, "the claim names another interface than the attachment has");
    }
    Ok(())
}

/// `status.ips`, with or without lengths of prefixes.
fn addresses_of(object: &IpamClaim, claim: &ObjectRef) -> Result<Vec<IpAddr>, AddressError> {
    let ips = object.status.iter().flat_map(|status| &status.ips);
    let parse = |text: &String| {
        let address = text.split('/').next().unwrap_or(text);
        let unparsed = |_| AddressError::ClaimUnparsed {
            claim: claim.clone(),
            text: text.clone(),
        };
        address.parse::<IpAddr>().map_err(unparsed)
    };
    ips.map(parse).collect()
}

/// NPWG-4.1.2.1.11: checks that the claim has the addresses the element asks for.
fn same_as_asked(known: &[IpAddr], wanted: &Wanted, claim: &ObjectRef) -> Result<(), AddressError> {
    let mut asked = wanted.ips.0.iter().map(|request| request.address);
    match asked.find(|ip| !known.contains(ip)) {
        None => Ok(()),
        Some(ip) => Err(AddressError::ClaimDiffers {
            claim: claim.clone(),
            ip,
        }),
    }
}

#[cfg(test)]
mod tests;
