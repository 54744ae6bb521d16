//! The API server's side of [`Command`]s: requests and their answers.

use std::time::Duration;

use ::addresses::{Answer, BY, Command, Object};
use api::{GRANTED, IpBlock, IpReservation};
use cluster::brief;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::claims::Claims;
use crate::kube::home::MANAGER;

/// How long the API server may take for one answer.
pub(super) const ANSWER: Duration = Duration::from_secs(3);

/// The API server, as node `node` asks it.
pub(super) struct Server {
    pub(super) client: Client,
    pub(super) node: String,
}

impl Server {
    fn blocks(&self) -> Api<IpBlock> {
        Api::all(self.client.clone())
    }

    fn reservations(&self) -> Api<IpReservation> {
        Api::all(self.client.clone())
    }

    /// Carries out a command that is for the API server; any other comes to nothing.
    pub(super) async fn carry_out(&self, command: Command) -> Answer {
        match command {
            Command::ListBlocks { network, cached } => {
                let mut params = of_network(&network);
                if cached {
                    params = params.match_any();
                }
                let listed = answer(self.blocks().list(&params)).await;
                Answer::Blocks(listed.map(|listed| listed.items))
            }
            Command::ListReservations { network } => {
                let listed = answer(self.reservations().list(&of_network(&network))).await;
                Answer::Reservations(listed.map(|listed| listed.items))
            }
            Command::GetReservation { name } => {
                Answer::Reservation(answer(self.reservations().get_opt(&name)).await)
            }
            Command::FindReservation { name } => {
                let found = answer(self.reservations().get_metadata_opt(&name)).await;
                Answer::ReservationUid(found.map(|found| found.and_then(|found| found.uid())))
            }
            Command::CreateBlock(block) => Answer::BlockMade(create(&self.blocks(), &block).await),
            Command::CreateReservation(reservation) => {
                Answer::ReservationMade(create(&self.reservations(), &reservation).await)
            }
            Command::DeleteBlock(object) => self.delete_block(&object).await,
            Command::DeleteReservation(object) => self.delete_reservation(&object).await,
            Command::TellUsed(object, used, reason) => {
                let status = json!({"used": used, "reason": reason.as_str()});
                self.patch_block(&object, &status).await
            }
            Command::Unmark(object) => {
                self.patch_block(&object, &json!({"reclaimAfter": null}))
                    .await
            }
            Command::AnswerReservation {
                object,
                version,
                generation,
                refused,
            } => {
                let condition = self.condition(refused, generation);
                self.write_answer(&object, version.as_deref(), &condition)
                    .await
            }
            Command::GetClaim(claim) => Answer::Claim(self.claims().read(&claim).await),
            Command::WriteClaim(write) => Answer::ClaimWritten(self.claims().write(&write).await),
            Command::Runs { namespace, user } => {
                Answer::Runs(self.claims().runs(&namespace, &user).await)
            }
            Command::Publish(_)
            | Command::Survey
            | Command::IsUsable { .. }
            | Command::Pick { .. }
            | Command::FindPod { .. } => Answer::Done,
        }
    }

    fn claims(&self) -> Claims<'_> {
        Claims(&self.client)
    }

    async fn delete_block(&self, object: &Object) -> Answer {
        let block = &object.name;
        match timeout(ANSWER, self.blocks().delete(block, &only(object))).await {
            Ok(Ok(_)) => {}
            // Gone, or another node's by now.
            Ok(Err(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => {}
            Ok(Err(error)) => {
                let error = brief(&error);
                tracing::warn!(block, error, "the IPBlock is not given back yet");
            }
            Err(_) => tracing::warn!(block, "the IPBlock is not given back yet"),
        }
        Answer::Done
    }

    async fn delete_reservation(&self, object: &Object) -> Answer {
        let reservation = &object.name;
        let request = self.reservations();
        match timeout(ANSWER, request.delete(reservation, &only(object))).await {
            Ok(Ok(_)) => tracing::info!(reservation, "the IPReservation is deleted"),
            // Gone, or another's by now.
            Ok(Err(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => {}
            Ok(Err(error)) => {
                let error = brief(&error);
                tracing::warn!(reservation, error, "the IPReservation is not deleted yet");
            }
            Err(_) => tracing::warn!(reservation, "the IPReservation is not deleted yet"),
        }
        Answer::Done
    }

    async fn patch_block(&self, object: &Object, status: &Value) -> Answer {
        let body = json!({"metadata": {"uid": object.uid}, "status": status});
        let (name, patch) = (&object.name, Patch::Merge(body));
        let api = self.blocks();
        if let Err(why) = answer(api.patch_status(name, &patched(), &patch)).await {
            tracing::debug!(
                block = name,
                why,
                "the status of the IPBlock is not written yet"
            );
        }
        Answer::Done
    }

    fn condition(&self, refused: Option<String>, generation: Option<i64>) -> Condition {
        let (status, reason) = match &refused {
            None => ("True", "Granted"),
            Some(_) => ("False", "InUse"),
        };
        Condition {
            type_: GRANTED.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: refused.unwrap_or_else(|| format!("{BY}{}", self.node)),
            observed_generation: generation,
            last_transition_time: Time(Timestamp::now()),
        }
    }

    async fn write_answer(
        &self,
        object: &Object,
        version: Option<&str>,
        condition: &Condition,
    ) -> Answer {
        // Not if anybody has written since: the answer is given once.
        let body = json!({
            "metadata": {"uid": object.uid, "resourceVersion": version},
            "status": {"conditions": [condition]},
        });
        let (name, patch) = (&object.name, Patch::Merge(body));
        let api = self.reservations();
        match answer(api.patch_status(name, &patched(), &patch)).await {
            Ok(_) => {
                let granted = &condition.status;
                tracing::info!(
                    reservation = name,
                    granted,
                    "the IPReservation has its answer"
                );
            }
            Err(why) => tracing::debug!(
                reservation = name,
                why,
                "the IPReservation has no answer yet"
            ),
        }
        Answer::Done
    }
}

/// Creates an object; none when one of its name is there.
async fn create<K>(api: &Api<K>, object: &K) -> Result<Option<K>, String>
where
    K: kube::Resource + Clone + serde::Serialize + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let params = PostParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PostParams::default()
    };
    match timeout(ANSWER, api.create(&params, object)).await {
        Ok(Ok(created)) => Ok(Some(created)),
        Ok(Err(kube::Error::Api(status))) if status.reason == "AlreadyExists" => Ok(None),
        Ok(Err(error)) => Err(brief(&error)),
        Err(_) => Err(no_answer()),
    }
}

/// Deletes no other object of the same name.
fn only(object: &Object) -> DeleteParams {
    DeleteParams::default().preconditions(Preconditions {
        uid: object.uid.clone(),
        resource_version: None,
    })
}

pub(super) fn patched() -> PatchParams {
    PatchParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

/// Selects the objects of a network.
///
/// The request has no resource version, so that no cache answers.
fn of_network(network: &str) -> ListParams {
    ListParams::default().fields(&format!("spec.network={network}"))
}

pub(super) fn no_answer() -> String {
    format!("no answer from the API server in {} s", ANSWER.as_secs())
}

/// Waits for the API server's answer; the error is in one line.
pub(in crate::kube) async fn answer<T>(
    asked: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, String> {
    match timeout(ANSWER, asked).await {
        Ok(answered) => answered.map_err(|error| brief(&error)),
        Err(_) => Err(no_answer()),
    }
}
