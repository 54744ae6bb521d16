//! Addresses by name: asked for with an `IPReservation`, granted by the node with the block.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::{
    GRANTED, Holder, IpBlock, IpReservation, IpReservationSpec, NODE_LABEL, PodHolder, Prefix,
};
use cluster::brief;
use ipam::Occupied;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use telemetry::chain;
use tokio::time::{timeout, timeout_at};

use super::blocks::{answer as answered, cidr, no_answer, of_network};
use super::{ANSWER, AddressError, Addresses, LENGTH, View};
use crate::kube::MANAGER;
use crate::kube::addresses::Local;
use crate::ledger::pools;
use crate::node::Node;
use crate::record::Attachment;

/// How long a reservation is kept for a pod whose `ADD` failed: the runtime tries again.
const ASKED: Duration = Duration::from_secs(90);

/// How a grant begins; the node's name follows.
const BY: &str = "by node ";

/// Who a reservation is for.
pub(super) fn holder(spec: &IpReservationSpec) -> Option<Holder> {
    let pod = spec.pod.clone().map(Holder::Pod);
    pod.or_else(|| spec.claim.clone().map(Holder::Claim))
}

/// What the holder of the block says: whether it agrees, and why not.
pub(super) fn answer(reservation: &IpReservation) -> Option<(bool, &str)> {
    let status = reservation.status.as_ref()?;
    let granted = status.conditions.iter().find(|it| it.type_ == GRANTED)?;
    match granted.status.as_str() {
        "True" => Some((true, "")),
        "False" => Some((false, &granted.message)),
        _ => None,
    }
}

/// The node that says it has granted a reservation. Admission policies bind that to the node.
pub(in crate::kube) fn granted_by(reservation: &IpReservation) -> Option<&str> {
    let status = reservation.status.as_ref()?;
    let granted = status.conditions.iter().find(|it| it.type_ == GRANTED)?;
    let by = granted.message.strip_prefix(BY)?;
    (granted.status == "True").then_some(by)
}

pub(super) fn uid_of(holder: &Holder) -> &str {
    match holder {
        Holder::Pod(pod) => &pod.uid,
        Holder::Claim(claim) => &claim.uid,
    }
}

impl Addresses {
    /// Reserves an address for `holder` and waits until the ledger may give it to it.
    ///
    /// # Errors
    /// When somebody else has it, or the answer does not come in time.
    pub(super) async fn ask(
        &self,
        node: Local<'_>,
        network: &str,
        ip: IpAddr,
        holder: &Holder,
        deadline: tokio::time::Instant,
    ) -> Result<(), AddressError> {
        let until = Instant::now() + ASKED;
        let asked = (network.to_owned(), ip, uid_of(holder).to_owned());
        self.state().asked.insert(asked, until);
        let mut rounds = self.rounds.subscribe();
        let mut reservation = self.create_reservation(network, ip, holder).await?;
        let mut block_holder = None;
        loop {
            rounds.mark_unchanged();
            let known = self.known(&reservation);
            if self.is_given_up(&reservation) {
                // It is being deleted, and the address may be another's soon: not by this one.
                if known.is_none() {
                    reservation = self.create_reservation(network, ip, holder).await?;
                }
            } else {
                let now = known.as_deref().unwrap_or(&reservation);
                match answer(now) {
                    // The ledger must know, not only this request.
                    Some((true, _)) if self.is_usable(node, network, ip, holder) => {
                        return self.check_grant(now, network, ip).await;
                    }
                    Some((true, _)) => {}
                    Some((false, why)) => {
                        let message = why.to_owned();
                        self.delete_reservation(now).await;
                        return Err(AddressError::InUse {
                            network: network.to_owned(),
                            ip,
                            message,
                        });
                    }
                    None if block_holder.is_none() => {
                        block_holder = Some(self.block_holder(node, network, ip).await?);
                    }
                    None => {}
                }
            }
            self.look_again();
            if timeout_at(deadline, rounds.changed()).await.is_err() {
                return Err(AddressError::NotGranted {
                    network: network.to_owned(),
                    ip,
                    node: block_holder,
                });
            }
        }
    }

    /// The ledger knows that an address is granted to this holder.
    fn is_usable(&self, node: Local<'_>, network: &str, ip: IpAddr, holder: &Holder) -> bool {
        let ledger = node.book.ledger();
        let share = ledger.share_of(network);
        let reserved = share.and_then(|share| share.reserved.get(&ip));
        reserved.is_some_and(|it| it.granted && uid_of(&it.holder) == uid_of(holder))
    }

    /// Succeeds when the node that granted an address could: it holds the block, or did when the address
    /// was asked for. Any node can write the same, and does not know whether the address is in use.
    ///
    /// # Errors
    /// When it could not; the reservation is given up then. Or when the API server does not answer.
    async fn check_grant(
        &self,
        reservation: &IpReservation,
        network: &str,
        ip: IpAddr,
    ) -> Result<(), AddressError> {
        let by = granted_by(reservation).unwrap_or_default();
        if by == self.node {
            return Ok(());
        }
        let fail = |why| AddressError::GrantUnknown {
            ip,
            network: network.to_owned(),
            why,
        };
        let api: Api<IpBlock> = Api::all(self.client.clone());
        let listed = answered(api.list(&of_network(network))).await;
        let listed = listed.map_err(fail)?.items;
        let of_ip = |it: &&IpBlock| cidr(it).is_some_and(|block| block.contains(&ip));
        let blocks = listed.iter().filter(of_ip);
        // A later holder keeps to what was granted before it came.
        let first = blocks.min_by_key(|it| it.creation_timestamp());
        let Some(block) = first.filter(|it| {
            it.spec.node != by && it.creation_timestamp() <= reservation.creation_timestamp()
        }) else {
            return Ok(());
        };
        self.delete_reservation(reservation).await;
        let holder = &block.spec.node;
        Err(fail(format!(
            "node {by} says that it is, and node {holder} holds the block"
        )))
    }

    /// The reservation as the copy has it by now.
    fn known(&self, reservation: &IpReservation) -> Option<Arc<IpReservation>> {
        let uid = reservation.uid();
        let all = self.reservations.store.state();
        all.into_iter().find(|it| it.uid() == uid)
    }

    /// Makes the reservation; one that is there for the same holder serves as well.
    async fn create_reservation(
        &self,
        network: &str,
        ip: IpAddr,
        holder: &Holder,
    ) -> Result<IpReservation, AddressError> {
        let fail = |why| AddressError::NotReserved {
            ip,
            network: network.to_owned(),
            why,
        };
        let wanted = IpReservation::ask(network, ip, holder.clone());
        let mut wanted = wanted.map_err(|error| fail(chain(&error)))?;
        // That of a claim is taken back by the node that made it: see agent-policy.yaml.
        let maker = (NODE_LABEL.to_owned(), self.node.clone());
        wanted.metadata.annotations = Some([maker].into());
        let api: Api<IpReservation> = Api::all(self.client.clone());
        let params = PostParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PostParams::default()
        };
        match timeout(ANSWER, api.create(&params, &wanted)).await {
            Ok(Ok(made)) => return Ok(made),
            Ok(Err(kube::Error::Api(status))) if status.reason == "AlreadyExists" => {}
            Ok(Err(error)) => return Err(fail(brief(&error))),
            Err(_) => return Err(fail(no_answer())),
        }
        let found = answered(api.get_opt(&wanted.name_any()))
            .await
            .map_err(fail)?;
        // It went in between.
        let found = found.ok_or_else(|| fail("it was another's a moment ago".to_owned()))?;
        match self::holder(&found.spec) {
            Some(other) if uid_of(&other) != uid_of(holder) => {
                Err(AddressError::reserved(network, ip, &other))
            }
            _ => Ok(found),
        }
    }

    /// The node that has to grant an address; this one, if it can take the block.
    async fn block_holder(
        &self,
        node: Local<'_>,
        network: &str,
        ip: IpAddr,
    ) -> Result<String, AddressError> {
        let fail = |why| AddressError::NodeUnknown {
            ip,
            network: network.to_owned(),
            why,
        };
        let api: Api<IpBlock> = Api::all(self.client.clone());
        let uid = self.node_uid();
        let uid = uid.ok_or_else(|| fail(format!("the API server has no Node {}", self.node)))?;
        let holder = |blocks: &[IpBlock]| {
            let of_ip = |it: &&IpBlock| cidr(it).is_some_and(|block| block.contains(&ip));
            blocks.iter().find(of_ip).map(|it| it.spec.node.clone())
        };
        let listed = answered(api.list(&of_network(network))).await;
        let listed = listed.map_err(fail)?.items;
        if let Some(found) = holder(&listed) {
            return Ok(found);
        }
        let world = node.world.get();
        let pools = world.network(network).ok().and_then(|it| pools(it).ok());
        let pools = pools.unwrap_or_default();
        let taken = Occupied::new(LENGTH, listed.iter().filter_map(cidr));
        let block = LENGTH.free_block_of(&pools, ip, &taken);
        let block = block.ok_or_else(|| fail("its subnets have no such address".to_owned()))?;
        let made = self.create(&api, network, block, &uid).await;
        if made.map_err(fail)? {
            return Ok(self.node.clone());
        }
        let listed = answered(api.list(&of_network(network))).await;
        Ok(holder(&listed.map_err(fail)?.items).unwrap_or_default())
    }

    /// Answers those who ask for an address of a block here. The ledger knows of all of them before,
    /// so what it has not given by now it will not give.
    pub(super) async fn grant(&self, node: &Node, view: &View) {
        for reservation in &view.reservations {
            let spec = &reservation.spec;
            let (Ok(ip), None) = (spec.address.parse::<IpAddr>(), answer(reservation)) else {
                continue;
            };
            let answer = {
                let ledger = node.book.ledger();
                let share = ledger.share_of(&spec.network);
                if !share.is_some_and(|share| share.has(ip)) {
                    continue;
                }
                let given = ledger.holder_of(&spec.network, ip);
                given.map(|record| format!("{} has it", describe(record, &self.node)))
            };
            self.write_answer(reservation, answer).await;
        }
    }

    async fn write_answer(&self, reservation: &IpReservation, refused: Option<String>) {
        let (status, reason) = match &refused {
            None => ("True", "Granted"),
            Some(_) => ("False", "InUse"),
        };
        let condition = Condition {
            type_: GRANTED.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: refused.unwrap_or_else(|| format!("{BY}{}", self.node)),
            observed_generation: reservation.metadata.generation,
            last_transition_time: Time(Timestamp::now()),
        };
        // Not if anybody has written since: the answer is given once.
        let body = json!({
            "metadata": {
                "uid": reservation.uid(),
                "resourceVersion": reservation.resource_version(),
            },
            "status": {"conditions": [condition]},
        });
        let api: Api<IpReservation> = Api::all(self.client.clone());
        let params = PatchParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let name = reservation.name_any();
        match answered(api.patch_status(&name, &params, &Patch::Merge(body))).await {
            Ok(_) => tracing::info!(reservation = name, granted = status, "answered"),
            Err(why) => tracing::debug!(reservation = name, why, "not answered yet"),
        }
    }

    /// Deletes reservations of this node's pods that no attachment needs any more.
    pub(super) async fn let_go(&self, node: &Node, view: &View) {
        let now = Instant::now();
        {
            let mut state = self.state();
            state.asked.retain(|_, until| *until > now);
            state.given_up.retain(|_, until| *until > now);
        }
        for reservation in &view.reservations {
            let spec = &reservation.spec;
            let (Some(pod), Ok(ip)) = (&spec.pod, spec.address.parse::<IpAddr>()) else {
                continue;
            };
            if pod.node != self.node {
                continue;
            }
            let key = (spec.network.clone(), ip, pod.uid.clone());
            let held = || {
                let ledger = node.book.ledger();
                let record = ledger.holder_of(&spec.network, ip);
                record.is_some_and(|record| is_of(record, pod))
            };
            if held() || !self.give_up(reservation, &key, now) {
                continue;
            }
            // Again, for it may have been booked until then. And first other nodes hear that nobody here
            // has the address any more.
            if held() || self.slices.claim(&spec.network, &Prefix::from(ip)) {
                self.keep(reservation);
            } else {
                self.delete_reservation(reservation).await;
            }
        }
    }

    /// From now on no request of this node goes by a reservation: before the server is told, or one
    /// that comes meanwhile would get an address that is another's a moment later. False when one does
    /// already.
    fn give_up(
        &self,
        reservation: &IpReservation,
        key: &(String, IpAddr, String),
        now: Instant,
    ) -> bool {
        let Some(uid) = reservation.uid() else {
            return false;
        };
        let mut state = self.state();
        // One that was given up once stays so, whoever asks for it: it may be gone.
        if state.asked.contains_key(key) && !state.given_up.contains_key(&uid) {
            return false;
        }
        state.given_up.insert(uid, now + ASKED);
        true
    }

    fn keep(&self, reservation: &IpReservation) {
        if let Some(uid) = reservation.uid() {
            self.state().given_up.remove(&uid);
        }
    }

    pub(super) fn is_given_up(&self, reservation: &IpReservation) -> bool {
        let state = self.state();
        let uid = reservation.uid();
        uid.is_some_and(|uid| state.given_up.contains_key(&uid))
    }

    pub(super) async fn delete_reservation(&self, reservation: &IpReservation) {
        let api: Api<IpReservation> = Api::all(self.client.clone());
        let params = DeleteParams::default().preconditions(Preconditions {
            uid: reservation.uid(),
            resource_version: None,
        });
        let name = reservation.name_any();
        match timeout(ANSWER, api.delete(&name, &params)).await {
            Ok(Ok(_)) => tracing::info!(reservation = name, "given up"),
            // Gone, or another's by now.
            Ok(Err(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => {}
            Ok(Err(error)) => {
                tracing::warn!(
                    reservation = name,
                    error = brief(&error),
                    "not given up yet"
                );
            }
            Err(_) => tracing::warn!(reservation = name, "not given up yet"),
        }
    }
}

/// True when an attachment is this pod's. Without a UID it goes by its name: the reservation was made
/// for the UID of that time, and is let go with the attachment.
fn is_of(record: &Attachment, holder: &PodHolder) -> bool {
    record.pod.as_ref().is_some_and(|pod| match &pod.uid {
        Some(uid) => *uid == holder.uid,
        None => (&pod.namespace, &pod.name) == (&holder.namespace, &holder.name),
    })
}

/// Who has an address, for people on other nodes.
fn describe(record: &Attachment, node: &str) -> String {
    match &record.pod {
        Some(pod) => format!("pod {}/{} on node {node}", pod.namespace, pod.name),
        None => format!("container {} on node {node}", record.key.container),
    }
}
