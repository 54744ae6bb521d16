//! An API server in memory.
//!
//! Objects have UIDs and versions, and writes conflict.

use api::{GRANTED, IpBlock, IpBlockStatus, IpReservation, IpReservationStatus, IpamClaim};
use k8s_openapi::api::core::v1::Node as ApiNode;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use kube_core::PartialObjectMeta;
use kube_core::{Resource, ResourceExt as _};
use overview::pod::Pod;

use super::super::super::{Answer, BY, Command, Object};
use super::kind::{Kind, is_meant};

pub(super) type Node = PartialObjectMeta<ApiNode>;

/// A time of the model, seconds from its beginning.
pub(super) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

/// The server.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) now: i64,
    version: u64,
    uids: u64,
    pub(super) blocks: Kind<IpBlock>,
    pub(super) reservations: Kind<IpReservation>,
    pub(super) claims: Kind<IpamClaim>,
    pub(super) pods: Kind<Pod>,
    pub(super) nodes: Kind<Node>,
}

impl Server {
    pub(super) fn new() -> Self {
        Self {
            now: 0,
            version: 0,
            uids: 0,
            blocks: Kind::new(),
            reservations: Kind::new(),
            claims: Kind::new(),
            pods: Kind::new(),
            nodes: Kind::new(),
        }
    }

    /// Gives an object a UID and a version, unless there is one of its name.
    pub(super) fn create<K>(&mut self, kind: fn(&mut Self) -> &mut Kind<K>, object: &K) -> Option<K>
    where
        K: Resource<DynamicType = ()> + Clone,
    {
        if kind(self).get(&object.name_any()).is_some() {
            return None;
        }
        self.uids += 1;
        self.version += 1;
        let mut object = object.clone();
        let metadata = object.meta_mut();
        metadata.uid = Some(format!("uid-{}", self.uids));
        metadata.resource_version = Some(self.version.to_string());
        metadata.creation_timestamp = Some(Time(at(self.now)));
        metadata.generation = Some(1);
        let now = self.now;
        kind(self).put(now, object.clone());
        Some(object)
    }

    /// Changes an object if it has this UID and this version, where they are named.
    pub(super) fn patch<K>(
        &mut self,
        kind: fn(&mut Self) -> &mut Kind<K>,
        object: &Object,
        version: Option<&str>,
        change: impl FnOnce(&mut K),
    ) -> bool
    where
        K: Resource<DynamicType = ()> + Clone,
    {
        let Some(found) = kind(self).get(&object.name).cloned() else {
            return false;
        };
        if !is_meant(&*found, object.uid.as_deref(), version) {
            return false;
        }
        self.version += 1;
        let mut object = K::clone(&found);
        change(&mut object);
        object.meta_mut().resource_version = Some(self.version.to_string());
        let now = self.now;
        kind(self).put(now, object);
        true
    }

    /// Carries out a command of node `node`, as the real one does.
    pub(super) fn carry_out(&mut self, node: &str, command: &Command) -> Answer {
        match command {
            Command::ListBlocks { .. } => {
                let listed = self.blocks.all().map(|it| IpBlock::clone(it));
                Answer::Blocks(Ok(listed.collect()))
            }
            Command::ListReservations { .. } => {
                let listed = self.reservations.all().map(|it| IpReservation::clone(it));
                Answer::Reservations(Ok(listed.collect()))
            }
            Command::GetReservation { name } => {
                let found = self
                    .reservations
                    .get(name)
                    .map(|it| IpReservation::clone(it));
                Answer::Reservation(Ok(found))
            }
            Command::FindReservation { name } => {
                let found = self.reservations.get(name);
                Answer::ReservationUid(Ok(found.and_then(|it| it.uid())))
            }
            Command::CreateBlock(block) => {
                Answer::BlockMade(Ok(self.create(|it| &mut it.blocks, &**block)))
            }
            Command::CreateReservation(reservation) => {
                let made = self.create(|it| &mut it.reservations, &**reservation);
                Answer::ReservationMade(Ok(made))
            }
            Command::DeleteBlock(object) => {
                self.blocks.delete(self.now, object, None);
                Answer::Done
            }
            Command::DeleteReservation(object) => {
                self.reservations.delete(self.now, object, None);
                Answer::Done
            }
            Command::TellUsed(object, used, reason) => {
                let used = i64::try_from(*used).ok();
                self.patch(
                    |it| &mut it.blocks,
                    object,
                    None,
                    |block| {
                        status(block).used = used;
                        status(block).reason = Some(reason.as_str().to_owned());
                    },
                );
                Answer::Done
            }
            Command::Unmark(object) => {
                self.patch(
                    |it| &mut it.blocks,
                    object,
                    None,
                    |block| {
                        status(block).reclaim_after = None;
                    },
                );
                Answer::Done
            }
            Command::AnswerReservation {
                object,
                version,
                generation,
                refused,
            } => {
                let condition = Condition {
                    type_: GRANTED.to_owned(),
                    status: if refused.is_none() { "True" } else { "False" }.to_owned(),
                    reason: "Model".to_owned(),
                    message: refused.clone().unwrap_or_else(|| format!("{BY}{node}")),
                    observed_generation: *generation,
                    last_transition_time: Time(at(self.now)),
                };
                self.patch(
                    |it| &mut it.reservations,
                    object,
                    version.as_deref(),
                    |reservation| {
                        reservation.status = Some(IpReservationStatus {
                            conditions: vec![condition],
                        });
                    },
                );
                Answer::Done
            }
            Command::GetClaim(claim) => {
                let found = self.claims.get(&claim.object.name);
                let found = found.map(|it| IpamClaim::clone(it).into());
                Answer::Claim(Ok(found))
            }
            Command::WriteClaim(write) => {
                let object = Object {
                    name: write.claim.object.name.clone(),
                    uid: write.uid.clone(),
                };
                let written = self.patch(
                    |it| &mut it.claims,
                    &object,
                    write.version.as_deref(),
                    |claim| {
                        let status = claim.status.get_or_insert_default();
                        status.ips.clone_from(&write.ips);
                    },
                );
                Answer::ClaimWritten(Ok(written))
            }
            local => unreachable!("{local:?} is not for the API server"),
        }
    }
}

pub(super) fn status(block: &mut IpBlock) -> &mut IpBlockStatus {
    block.status.get_or_insert_default()
}

/// The answer that a client has when there is none.
pub(super) fn unanswered(command: &Command) -> Answer {
    let why = || "no answer".to_owned();
    match command {
        Command::ListBlocks { .. } => Answer::Blocks(Err(why())),
        Command::ListReservations { .. } => Answer::Reservations(Err(why())),
        Command::GetReservation { .. } => Answer::Reservation(Err(why())),
        Command::FindReservation { .. } => Answer::ReservationUid(Err(why())),
        Command::CreateBlock(_) => Answer::BlockMade(Err(why())),
        Command::CreateReservation(_) => Answer::ReservationMade(Err(why())),
        Command::GetClaim(_) => Answer::Claim(Err(why())),
        Command::WriteClaim(_) => Answer::ClaimWritten(Err(why())),
        _ => Answer::Done,
    }
}
