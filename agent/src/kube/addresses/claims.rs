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

use api::{ClaimHolder, Holder, IpamClaim};
use cluster::brief;
use ipam::Request;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use tokio::time::{Instant, timeout};

use super::blocks::{answer, no_answer};
use super::reservations::uid_of;
use super::{ANSWER, AddressError, Addresses};
use crate::book::BookError;
use crate::kube::MANAGER;
use crate::kube::addresses::Local;
use crate::ledger::Wanted;
use crate::record::{Decision, ObjectRef};

/// Attempts at a claim that others write at the same moment.
const ATTEMPTS: usize = 4;
/// Where the addresses of such an attachment come from.
const SOURCE: &str = "status.ips of the IPAMClaim";

impl Addresses {
    /// Makes the attachment ask for the addresses of its claim, and for no others. A claim without any
    /// gets some: those that the attachment asks for, else free ones of this node's blocks.
    ///
    /// # Errors
    /// When the claim does not fit, when one of its addresses is another's, or when the API server
    /// does not answer in time.
    pub(super) async fn serve_claim(
        &self,
        node: Local<'_>,
        wanted: &mut Wanted,
        claim: &ObjectRef,
        network: &api::Network,
        deadline: Instant,
    ) -> Result<(), BookError> {
        for _ in 0..ATTEMPTS {
            let object = self.read_claim(claim).await?;
            fits(&object, claim, wanted, network)?;
            let holder = Holder::Claim(ClaimHolder {
                namespace: claim.namespace.clone(),
                name: claim.name.clone(),
                uid: object.uid().unwrap_or_default(),
            });
            let known = addresses_of(&object, claim)?;
            let ips = if known.is_empty() {
                let ips = self
                    .allocate(node, wanted, network, &holder, deadline)
                    .await?;
                if !self.write_claim(&object, claim, network, &ips).await? {
                    // Somebody was faster. What nobody wrote down is let go.
                    self.withdraw(network, &ips, &holder).await;
                    continue;
                }
                ips
            } else {
                same_as_asked(&known, wanted, claim)?;
                for ip in &known {
                    self.ask(node, &network.name, *ip, &holder, deadline)
                        .await?;
                }
                known
            };
            wanted.ips = (ips.into_iter().map(Request::from).collect(), SOURCE);
            wanted.holder = Some(holder);
            wanted.decisions.push(Decision::new(
                "ipam-claim-reference",
                claim,
                "of the pod's list",
            ));
            return Ok(());
        }
        Err(AddressError::ClaimContended {
            claim: claim.clone(),
            why: "others change it all the time".to_owned(),
        }
        .into())
    }

    async fn read_claim(&self, claim: &ObjectRef) -> Result<IpamClaim, AddressError> {
        let api: Api<IpamClaim> = Api::namespaced(self.client.clone(), &claim.namespace);
        let found = answer(api.get_opt(&claim.name)).await;
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

    /// Addresses for a claim without any, reserved for it.
    async fn allocate(
        &self,
        node: Local<'_>,
        wanted: &Wanted,
        network: &api::Network,
        holder: &Holder,
        deadline: Instant,
    ) -> Result<Vec<IpAddr>, BookError> {
        let begun = self.reserved_for(network, holder);
        let asked: Vec<IpAddr> = wanted.ips.0.iter().map(|it| it.address).collect();
        // What an ADD that failed has reserved already.
        let picked = if !asked.is_empty() || !begun.is_empty() {
            Vec::new()
        } else {
            self.pick(node, network, holder, deadline).await?
        };
        let ips = [asked, begun, picked.clone()];
        let ips = ips
            .into_iter()
            .find(|ips| !ips.is_empty())
            .unwrap_or_default();
        let mut reserved = Ok(());
        for ip in &ips {
            reserved = self.ask(node, &network.name, *ip, holder, deadline).await;
            if reserved.is_err() {
                break;
            }
        }
        node.book.ledger().unpick(&network.name, &picked);
        reserved?;
        Ok(ips)
    }

    /// Free addresses, one of each family, as soon as there are some.
    async fn pick(
        &self,
        node: Local<'_>,
        network: &api::Network,
        holder: &Holder,
        deadline: Instant,
    ) -> Result<Vec<IpAddr>, BookError> {
        self.until_room(&network.name, deadline, || {
            node.book.ledger().pick(network, holder)
        })
        .await
    }

    /// Addresses that are reserved for a holder, one of each family.
    fn reserved_for(&self, network: &api::Network, holder: &Holder) -> Vec<IpAddr> {
        let mut found: Vec<IpAddr> = Vec::new();
        let mut reservations = self.reservations.store.state();
        reservations.sort_by_key(|it| it.name_any());
        for reservation in reservations {
            let spec = &reservation.spec;
            let is_theirs = super::reservations::holder(spec)
                .is_some_and(|other| uid_of(&other) == uid_of(holder));
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

    /// Writes `status.ips`; false when the claim is not as it was read.
    async fn write_claim(
        &self,
        object: &IpamClaim,
        claim: &ObjectRef,
        network: &api::Network,
        ips: &[IpAddr],
    ) -> Result<bool, AddressError> {
        let with_length = |ip: &IpAddr| {
            let mut subnets = network.subnets.iter();
            let subnet = subnets.find(|subnet| subnet.prefix.contains(ip))?;
            Some(format!("{ip}/{}", subnet.prefix.prefix_len()))
        };
        let ips: Vec<String> = ips.iter().filter_map(with_length).collect();
        let body = json!({
            "metadata": {
                "uid": object.uid(),
                "resourceVersion": object.resource_version(),
            },
            "status": {"ips": ips},
        });
        let api: Api<IpamClaim> = Api::namespaced(self.client.clone(), &claim.namespace);
        let params = PatchParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let patch = Patch::Merge(body);
        let patched = api.patch_status(&claim.name, &params, &patch);
        let fail = |why| AddressError::ClaimUnwritten {
            claim: claim.clone(),
            why,
        };
        match timeout(ANSWER, patched).await {
            Ok(Ok(_)) => {
                tracing::info!(%claim, ?ips, "claim has addresses");
                Ok(true)
            }
            Ok(Err(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => Ok(false),
            Ok(Err(error)) => Err(fail(brief(&error))),
            Err(_) => Err(fail(no_answer())),
        }
    }

    /// Deletes the reservations that were made for a claim that others have written meanwhile, but
    /// for those of what they wrote.
    async fn withdraw(&self, network: &api::Network, ips: &[IpAddr], holder: &Holder) {
        let Holder::Claim(claim) = holder else { return };
        let object = ObjectRef {
            namespace: claim.namespace.clone(),
            name: claim.name.clone(),
        };
        let kept: BTreeSet<IpAddr> = match self.read_claim(&object).await {
            Ok(now) if now.uid().as_ref() == Some(&claim.uid) => addresses_of(&now, &object)
                .unwrap_or_default()
                .into_iter()
                .collect(),
            // It is gone, and so is the need.
            Ok(_) | Err(AddressError::ClaimAbsent { .. } | AddressError::ClaimDeleted { .. }) => {
                BTreeSet::new()
            }
            // The next attempt finds them.
            Err(_) => return,
        };
        for reservation in self.reservations.store.state() {
            let spec = &reservation.spec;
            let is_theirs =
                super::reservations::holder(spec).is_some_and(|other| uid_of(&other) == claim.uid);
            let ip = spec.address.parse::<IpAddr>();
            let is_spare = ip.is_ok_and(|ip| ips.contains(&ip) && !kept.contains(&ip));
            if is_theirs && spec.network == network.name && is_spare {
                self.delete_reservation(&reservation).await;
            }
        }
    }
}

/// NPWG-8-T3: the claim is of this network. The interface may be called otherwise: there are users
/// that name it anew for each pod.
fn fits(
    object: &IpamClaim,
    claim: &ObjectRef,
    wanted: &Wanted,
    network: &api::Network,
) -> Result<(), AddressError> {
    let spec = &object.spec;
    if spec.network != network.name && spec.network != wanted.cni_network {
        return Err(AddressError::ClaimOfAnother {
            claim: claim.clone(),
            found: spec.network.clone(),
            network: network.name.clone(),
        });
    }
    if spec.interface != wanted.key.ifname.as_str() {
        tracing::warn!(%claim, spec.interface, attachment = %wanted.key, "the claim is for another interface");
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

/// NPWG-4.1.2.1.11: what the element asks for beside the claim is what the claim has.
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
