//! Claims: addresses that outlive the pods that use them.
//!
//! They are `IPAMClaim`s (NPWG v1.3 §8) and `Port`s.
//!
//! An address of a claim has an `IPReservation` for the claim, by UID, and that is what keeps it: no
//! node lets go of it, whichever pods come and go, and the controller deletes it when the claim is
//! gone and no pod names it any more. So the claim itself needs no finalizer, and a namespace can be
//! deleted without podnet.
//!
//! `status.ips` is written before the `ADD` succeeds, if nobody has written it since the claim was
//! read. Of two nodes that serve a new claim at the same time one is too late: it gives up what it
//! has reserved, and takes what the other wrote.
//!
//! A Port is the same, with a MAC address, and for one pod at a time: its status names the pod, and another pod gets
//! it only when that one has ended. Of two pods that want it at the same time, the one whose node writes first has
//! it.

use std::collections::BTreeSet;
use std::net::IpAddr;

use agent_common::addr::{GATEWAY_MAC, MacAddr};
use api::{ClaimHolder, Holder, MacAddr as Written, Network, PortUser};
use book::ledger::{ClaimKind, ClaimRef, Wanted};
use book::record::Decision;
use book::{AddressError, BookError};
use ipam::{IpamError, Request as AddressRequest};
use kube_core::ResourceExt as _;
use world::blocks::check;

use super::command::{Answer, Command, Object};
use super::error::RequestError;
use super::found::{ClaimWrite, FoundClaim, PortWrite};
use super::requests::{Ask, Read, Request, RequestStep, Turn};
use super::state::{Effect, Machine};

/// Attempts at a claim that others write at the same moment.
const ATTEMPTS: usize = 4;

/// Where the addresses of such an attachment come from.
const fn source(kind: ClaimKind) -> &'static str {
    match kind {
        ClaimKind::IpamClaim => "status.ips of the IPAMClaim",
        ClaimKind::Port => "the Port",
    }
}

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

    /// Notes the pod that is to have the Port, as the API server knows it.
    pub(super) fn user_found(
        &self,
        request: &mut Request,
        answer: Option<Answer>,
    ) -> Result<Turn, RequestError> {
        if let (Some(Answer::Pod(found)), Some(pod)) = (answer, &request.wish.wanted.pod) {
            request.user = Some(PortUser {
                pod: pod.name.clone(),
                uid: found?,
                node: self.node.clone(),
            });
        }
        Ok(Turn::Go)
    }

    /// Makes the attachment ask for the addresses of its claim, and for no others.
    ///
    /// A claim without addresses gets some: those that it was made with, those that the attachment asks for, else free
    /// ones of this node's blocks.
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
        let found = usable(&claim, found)?;
        fits(&found, &claim, wanted, network)?;
        let read = Box::new(read(claim, found, wanted, network)?);
        let user = read.found.port.as_ref().and_then(|port| port.user.clone());
        let other = user.filter(|user| request.user.as_ref().is_none_or(|own| own.uid != user.uid));
        let Some(other) = other else {
            addresses(request, read)?;
            return Ok(Turn::Go);
        };
        let command = Command::Runs {
            namespace: read.claim.object.namespace.clone(),
            user: other.clone(),
        };
        request.first([RequestStep::UserAsked(read, other)]);
        Ok(Turn::Call(command))
    }

    /// Takes a Port over from a pod that has ended.
    pub(super) fn user_asked(
        request: &mut Request,
        read: Box<Read>,
        user: &PortUser,
        answer: Option<Answer>,
    ) -> Result<Turn, AddressError> {
        let runs = match answer {
            Some(Answer::Runs(runs)) => runs,
            _ => Err("no answer".to_owned()),
        };
        let claim = read.claim.clone();
        let user = format!("pod {} on node {}", user.pod, user.node);
        match runs {
            Ok(false) => {
                addresses(request, read)?;
                Ok(Turn::Go)
            }
            Ok(true) => Err(AddressError::PortInUse { claim, user }),
            Err(why) => Err(AddressError::PortUserUnknown { claim, user, why }),
        }
    }

    /// Finds addresses for a claim without any.
    ///
    /// They are those that it was made with, those that the attachment names, those that an `ADD` that failed has
    /// reserved already, or free ones. A Port also gets some of the families that are not named.
    pub(super) fn allocate(&self, request: &mut Request, mut read: Box<Read>) -> Turn {
        if read.asked.is_empty() {
            let asked = request.wish.wanted.ips.0.iter();
            read.asked = asked.map(|it| it.address).collect();
        }
        let network = &request.wish.network;
        let may_lack_families = read.claim.kind == ClaimKind::IpamClaim;
        let is_whole = may_lack_families || has_all_families(network, &read.asked);
        let begun = self.reserved_for(network, &read.holder);
        if is_whole && !read.asked.is_empty() {
            let ips = read.asked.clone();
            reserve(request, read, ips);
        } else if begun.is_empty() {
            request.first([RequestStep::Pick(read)]);
        } else {
            let ips = with(&read.asked, begun);
            reserve(request, read, ips);
        }
        Turn::Go
    }

    pub(super) fn pick(request: &mut Request, read: Box<Read>) -> Turn {
        let mut network = Box::new(request.wish.network.clone());
        // Families that are not named; those that are need no free address.
        let is_named = |subnet: &api::Subnet| {
            let v4 = subnet.prefix.addr().is_ipv4();
            read.asked.iter().any(|ip| ip.is_ipv4() == v4)
        };
        network.subnets.retain(|subnet| !is_named(subnet));
        let command = Command::Pick {
            network,
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
                let ips = with(&read.asked, ips);
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
            let is_theirs = is_of(spec, holder);
            let Ok(ip) = spec.address.parse::<IpAddr>() else {
                continue;
            };
            let is_new = found.iter().all(|other| other.is_ipv4() != ip.is_ipv4());
            if spec.network == network.name && is_theirs && is_new {
                found.push(ip);
            }
        }
        if has_all_families(network, &found) {
            found
        } else {
            Vec::new()
        }
    }

    pub(super) fn write_claim(request: &mut Request, read: Box<Read>, ips: Vec<IpAddr>) -> Turn {
        let subnets = &request.wish.network.subnets;
        let with_length = |ip: &IpAddr| {
            let subnet = subnets.iter().find(|subnet| subnet.prefix.contains(ip))?;
            Some(format!("{ip}/{}", subnet.prefix.prefix_len()))
        };
        // What it has stays as it is written: the length of a subnet may be another by now.
        let known = addresses_of(&read.found, &read.claim).unwrap_or_default();
        let new = ips.iter().filter(|ip| !known.contains(ip));
        let written = read.found.ips.iter().cloned();
        let port = read.found.port.as_ref();
        let port = port.zip(request.user.clone()).zip(read.mac);
        let write = ClaimWrite {
            claim: read.claim.clone(),
            uid: read.found.uid.clone(),
            version: read.found.version.clone(),
            ips: written.chain(new.filter_map(with_length)).collect(),
            port: port.map(|((port, user), mac)| PortWrite {
                mac: port.mac.is_none().then_some(mac),
                user,
                epoch: port.epoch.saturating_add(1),
            }),
        };
        let command = Command::WriteClaim(Box::new(write));
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
                request.first([RequestStep::Claimed(read, ips)]);
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
        let uid = read.holder.uid();
        let kept: BTreeSet<IpAddr> = match usable(&read.claim, found) {
            // Something else of it was written: the next attempt goes on with these.
            Ok(now) if now.uid.as_deref() == Some(uid) && now.ips.is_empty() => return,
            Ok(now) if now.uid.as_deref() == Some(uid) => {
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
            let is_theirs = is_of(spec, &read.holder);
            let ip = spec.address.parse::<IpAddr>();
            let is_spare = ip.is_ok_and(|ip| ips.contains(&ip) && !kept.contains(&ip));
            if is_theirs && spec.network == request.network() && is_spare {
                steps.push(RequestStep::Delete(Object::of(&**reservation)));
            }
        }
        request.first(steps);
    }

    pub(super) fn claimed(request: &mut Request, read: Read, ips: Vec<IpAddr>) {
        let wanted = &mut request.wish.wanted;
        let source = source(read.claim.kind);
        let ips = ips.into_iter().map(AddressRequest::from);
        wanted.ips = (ips.collect(), source);
        wanted.holder = Some(read.holder);
        if let Some(mac) = read.mac {
            wanted.mac = Some((MacAddr(mac.octets()), source));
        }
        let key = read.claim.kind.key();
        let decision = Decision::new(key, &read.claim.object, "of the pod's list");
        wanted.decisions.push(decision);
    }
}

/// Goes on with a claim that the pod may have.
fn addresses(request: &mut Request, mut read: Box<Read>) -> Result<(), AddressError> {
    let (wanted, network) = (&request.wish.wanted, &request.wish.network);
    let known = addresses_of(&read.found, &read.claim)?;
    let port = read.found.port.as_ref();
    let has_it = port.is_none_or(|port| port.user == request.user);
    if port.is_some() && network.subnets.is_empty() && has_it {
        request.first([RequestStep::Claimed(read, known)]);
        return Ok(());
    }
    if !known.is_empty() {
        same_as_asked(&known, wanted, &read.claim)?;
    } else if !read.asked.is_empty() {
        same_as_asked(&read.asked, wanted, &read.claim)?;
    }
    let is_whole = port.is_none() || has_all_families(network, &known);
    if known.is_empty() || !is_whole {
        if !known.is_empty() {
            // The network has a family more than when its first pod had it.
            read.asked = known;
        }
        request.first([RequestStep::Allocate(read)]);
    } else if has_it {
        let asks = asks(&known, &read.holder);
        request.first([RequestStep::Claimed(read, known)]);
        request.first(asks);
    } else {
        reserve(request, read, known);
    }
    Ok(())
}

/// Takes what is needed out of a claim.
///
/// # Errors
/// A field of a Port is wrong, the network cannot give one of its addresses, or it has another MAC address than the
/// attachment asks for.
fn read(
    claim: ClaimRef,
    found: FoundClaim,
    wanted: &Wanted,
    network: &Network,
) -> Result<Read, AddressError> {
    let keeper = ClaimHolder {
        namespace: claim.object.namespace.clone(),
        name: claim.object.name.clone(),
        uid: found.uid.clone().unwrap_or_default(),
    };
    let holder = match claim.kind {
        ClaimKind::IpamClaim => Holder::Claim(keeper),
        ClaimKind::Port => Holder::Port(keeper),
    };
    let (mut mac, mut asked) = (None, Vec::new());
    if let Some(port) = &found.port {
        let invalid = |why| AddressError::PortInvalid {
            claim: claim.clone(),
            why,
        };
        let request = port.request.as_ref();
        let request = request.map_err(|error| invalid(error.to_string()))?;
        let known = addresses_of(&found, &claim)?;
        // The subnet of one that it has may have another length by now.
        let new = request.ips.iter().filter(|ip| !known.contains(&ip.address));
        let new = new.map(|ip| (ip.address, ip.prefix_len));
        // Before anything is reserved.
        check(network, new.chain(known.iter().map(|ip| (*ip, None))))
            .map_err(|error| invalid(format!("network {}: {error}", network.name)))?;
        let own = port.mac.unwrap_or(request.mac);
        if own.octets() == GATEWAY_MAC.0 {
            let why = format!(
                "{own} is the gateway's MAC address; make a Port with another spec.macRequest"
            );
            return Err(invalid(why));
        }
        mac = Some(own);
        asked = request.ips.iter().map(|ip| ip.address).collect();
    }
    check_mac(&claim, mac, wanted)?;
    Ok(Read {
        claim,
        found,
        holder,
        mac,
        asked,
    })
}

fn check_mac(claim: &ClaimRef, mac: Option<Written>, wanted: &Wanted) -> Result<(), AddressError> {
    let (Some(mac), Some((asked, source_of))) = (mac, wanted.mac) else {
        return Ok(());
    };
    let found = MacAddr(mac.octets());
    if found == asked {
        return Ok(());
    }
    Err(AddressError::PortMacDiffers {
        claim: claim.clone(),
        found,
        asked,
        source_of,
    })
}

/// True for a reservation of this holder.
fn is_of(spec: &api::IpReservationSpec, holder: &Holder) -> bool {
    spec.holder().is_some_and(|other| other.is_same(holder))
}

/// Some addresses, and those of others whose family none of them has.
fn with(some: &[IpAddr], others: Vec<IpAddr>) -> Vec<IpAddr> {
    let is_new = |ip: &IpAddr| some.iter().all(|it| it.is_ipv4() != ip.is_ipv4());
    let rest = others.into_iter().filter(is_new);
    some.iter().copied().chain(rest).collect()
}

/// True when the addresses have each family that the network has.
fn has_all_families(network: &Network, ips: &[IpAddr]) -> bool {
    let mut subnets = network.subnets.iter();
    subnets.all(|subnet| {
        let v4 = subnet.prefix.addr().is_ipv4();
        ips.iter().any(|ip| ip.is_ipv4() == v4)
    })
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
    claim: &ClaimRef,
    found: Result<Option<FoundClaim>, String>,
) -> Result<FoundClaim, AddressError> {
    let found = found.map_err(|why| AddressError::ClaimUnread {
        claim: claim.clone(),
        why,
    })?;
    let found = found.ok_or_else(|| AddressError::ClaimAbsent {
        claim: claim.clone(),
    })?;
    if found.is_deleted {
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
    found: &FoundClaim,
    claim: &ClaimRef,
    wanted: &Wanted,
    network: &Network,
) -> Result<(), AddressError> {
    let of = &found.network;
    let by_definition = wanted.claim_network.as_ref();
    let by_definition = by_definition.filter(|_| claim.kind == ClaimKind::IpamClaim);
    if *of != network.name && Some(of) != by_definition {
        return Err(AddressError::ClaimOfAnother {
            claim: claim.clone(),
            found: of.clone(),
            network: network.name.clone(),
        });
    }
    let interface = found.interface.as_deref();
    if let Some(interface) = interface.filter(|it| *it != wanted.key.ifname.as_str()) {
        tracing::warn!(%claim, interface, attachment = %wanted.key, "the claim names another interface than the attachment has");
    }
    Ok(())
}

/// `status.ips`, with or without lengths of prefixes.
fn addresses_of(found: &FoundClaim, claim: &ClaimRef) -> Result<Vec<IpAddr>, AddressError> {
    let parse = |text: &String| {
        let address = text.split('/').next().unwrap_or(text);
        let unparsed = |_| AddressError::ClaimUnparsed {
            claim: claim.clone(),
            text: text.clone(),
        };
        address.parse::<IpAddr>().map_err(unparsed)
    };
    found.ips.iter().map(parse).collect()
}

/// NPWG-4.1.2.1.11: checks that the claim has the addresses the element asks for.
fn same_as_asked(known: &[IpAddr], wanted: &Wanted, claim: &ClaimRef) -> Result<(), AddressError> {
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
