//! Carry out a plan, with writes that name the UID and version of their object.
//!
//! An object that has changed since the plan was made is left alone, and looked at again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::GATE;
use api::{
    DEFAULT_NETWORK, IpBlock, Kind, Listed, PodNetwork, PodNetworkAttachment, PodNetworkSpec,
};
use cluster::brief;
use cluster::events::{EventWriter, Note, beginning};
use election::Fence;
use futures_util::StreamExt as _;
use futures_util::stream;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::core::ApiResource;
use kube::{Api, Client, ResourceExt as _};
use overview::pod::{NETWORKS_READY, Pod};
use overview::view::View;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::bars::Bars;
use super::gate::as_scheduler;
use super::metrics::Metrics;
use super::plan::{ObjectStep, Plan, PodStep, Status, earlier};
use super::setbacks::Setbacks;

use self::notes::{in_use_note, split_note, waiting_note};

mod addresses;
mod check;
mod excess;
mod notes;
mod parameters;
mod ports;

/// Field manager of the controller's writes.
pub(super) const MANAGER: &str = "podnet-controller";
/// Name of the reporting controller in Events.
const REPORTER: &str = "podnet.dev/controller";
/// How long the API server may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest message of a pod's condition, bytes.
///
/// It has room for as many problems as [`Listed`] names, of any length.
const MESSAGE_MAX: usize = 6144;
/// Pods that are written at the same time.
const AT_ONCE: usize = 8;
/// The most Ports that are released in one pass; each is read and written.
const RELEASED_MAX: usize = 256;

/// Result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// It is written.
    Written,
    /// The object has changed since, or is gone: the copies will say so.
    Stale(&'static str),
    /// It has to be tried again.
    Failed,
    /// The API server takes none of the object as it is.
    Refused,
    /// No longer the leader; nothing was written.
    Deposed,
}

/// Result of an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// It is written.
    Written,
    /// It was written lately.
    Known,
    /// The API server does not take it, or another controller leads.
    Failed,
}

/// Carries out plans, while the fence holds.
pub struct Executor {
    client: Client,
    fence: Arc<Fence>,
    metrics: Arc<Metrics>,
    events: Mutex<EventWriter>,
    /// Name of this controller in Events.
    instance: String,
    /// The controllers' own.
    namespace: String,
    bars: Mutex<Bars>,
    /// Statuses of parameters.
    setbacks: Mutex<Setbacks>,
}

impl std::fmt::Debug for Executor {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Executor")
            .field("fence", &self.fence)
            .finish_non_exhaustive()
    }
}

impl Executor {
    /// Makes an executor that writes with this client, and Events as `instance`.
    ///
    /// `namespace` is the controllers' own.
    pub fn new(
        client: Client,
        instance: String,
        namespace: String,
        fence: Arc<Fence>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let events = EventWriter::new(client.clone(), REPORTER, instance.clone());
        Self {
            client,
            fence,
            metrics,
            events: Mutex::new(events),
            instance,
            namespace,
            bars: Mutex::default(),
            setbacks: Mutex::default(),
        }
    }

    /// Does everything; true when all of it is done, or no longer to be done.
    ///
    /// Returns also the excess blocks whose nodes were asked for them. When to look again though nothing
    /// has changed tells [`Self::again`].
    pub async fn carry_out(&self, plan: &Plan, view: &View) -> (bool, Vec<Arc<IpBlock>>) {
        let mut done = true;
        if plan.create_default {
            done &= self.create_default().await;
        }
        done &= self.networks(&plan.networks, view).await;
        let attachments = ApiResource::erase::<PodNetworkAttachment>(&());
        for step in &plan.attachments {
            done &= self.object(&attachments, step, view).await;
        }
        let nodes = view.nodes.len();
        let pods = stream::iter(plan.pods.clone())
            .map(|(pod, step)| async move { self.pod(&pod, &step, nodes).await })
            .buffer_unordered(AT_ONCE);
        done &= pods.fold(true, async |all, done| all & done).await;
        for (block, step) in &plan.blocks {
            done &= self.block(block, *step).await;
        }
        let mut members = check::Members::default();
        for reservation in &plan.reservations {
            done &= self.reservation(reservation, &mut members).await;
        }
        let (excess, asked) = self.excess(&plan.excess, view).await;
        done &= excess;
        done &= self.slices(&plan.slices).await;
        let released = plan.ports.released.iter().take(RELEASED_MAX).cloned();
        let released = stream::iter(released.collect::<Vec<_>>())
            .map(|port| async move { self.release(&port).await })
            .buffer_unordered(AT_ONCE);
        done &= released.fold(true, async |all, done| all & done).await;
        // Last, because nothing waits for it.
        self.parameters(plan).await;
        (done, asked)
    }

    /// When a node may take blocks again, or a status be tried again.
    pub async fn again(&self, now: Timestamp) -> Option<Timestamp> {
        let bar = self.bars.lock().await.next(now);
        earlier(bar, self.setbacks.lock().await.next(now))
    }

    /// Makes a write, counts it and tells of it.
    async fn write<T>(
        &self,
        kind: &'static str,
        name: &str,
        request: impl Future<Output = Result<T, kube::Error>>,
    ) -> (Outcome, Option<T>) {
        if !self.fence.holds() {
            return (Outcome::Deposed, None);
        }
        let (outcome, why) = match tokio::time::timeout(PATIENCE, request).await {
            Ok(Ok(answer)) => {
                self.metrics.write(kind, "written");
                return (Outcome::Written, Some(answer));
            }
            Ok(Err(kube::Error::Api(status))) if status.code == 409 => {
                (Outcome::Stale("conflict"), status.message)
            }
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => {
                (Outcome::Stale("gone"), status.message)
            }
            Ok(Err(error)) if is_refusal(&error) => (Outcome::Refused, brief(&error)),
            Ok(Err(error)) => (Outcome::Failed, brief(&error)),
            Err(_) => (Outcome::Failed, "no answer from the API server".to_owned()),
        };
        if let Outcome::Stale(label) = outcome {
            self.metrics.write(kind, label);
            tracing::debug!(kind, name, error = why, "the object was changed meanwhile");
        } else {
            self.metrics.write(kind, "failed");
            let remedy = match outcome {
                Outcome::Refused => "correct the object, or make it again",
                _ => "trying again",
            };
            tracing::warn!(
                kind,
                name,
                error = why,
                "the object is not written; {remedy}"
            );
        }
        (outcome, None)
    }

    /// KEP-DEF-1: exactly a name and `enabled`.
    async fn create_default(&self) -> bool {
        let spec = PodNetworkSpec {
            enabled: true,
            provider: None,
            parameters_refs: Vec::new(),
        };
        let network = PodNetwork::new(DEFAULT_NETWORK, spec);
        let api: Api<PodNetwork> = Api::all(self.client.clone());
        let params = PostParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PostParams::default()
        };
        let request = api.create(&params, &network);
        let (outcome, _) = self.write("PodNetwork", DEFAULT_NETWORK, request).await;
        if outcome == Outcome::Written {
            tracing::info!("PodNetwork default is created");
        }
        outcome.is_done()
    }

    async fn networks(&self, steps: &[ObjectStep], view: &View) -> bool {
        let resource = ApiResource::erase::<PodNetwork>(&());
        let is_new = |step: &ObjectStep| step.status.as_ref().is_some_and(|it| it.is_new_number);
        let mut holders = None;
        let mut done = true;
        for step in steps {
            if is_new(step) {
                if holders.is_none() {
                    holders = self.number_holders().await;
                }
                let number = step.status.as_ref().and_then(|status| status.number);
                let holder = holders
                    .as_ref()
                    .map(|holders| number.and_then(|number| holders.get(&number.get())));
                match holder {
                    None => {
                        done = false;
                        continue;
                    }
                    // It is about to give the number up, or the copy is old.
                    Some(Some(holder)) if *holder != step.name => {
                        tracing::debug!(
                            network = step.name,
                            holder,
                            "the number of the network is not free yet"
                        );
                        done = false;
                        continue;
                    }
                    Some(_) => {}
                }
            }
            done &= self.object(&resource, step, view).await;
        }
        done
    }

    /// Returns the network that holds each number, read from the API server.
    ///
    /// A leader before this one may have assigned a number that no copy has yet.
    async fn number_holders(&self) -> Option<BTreeMap<u32, String>> {
        let networks = check::list::<PodNetwork>(&self.client).await;
        let networks = networks
            .inspect_err(|why| tracing::warn!(error = why, "the PodNetworks cannot be read"))
            .ok()?;
        let holder = |network: &PodNetwork| {
            let number = network.status.as_ref()?.network_id?;
            Some((u32::try_from(number).ok()?, network.name_any()))
        };
        Some(networks.iter().filter_map(holder).collect())
    }

    /// Finalizers and status of a network or an attachment.
    async fn object(&self, resource: &ApiResource, step: &ObjectStep, view: &View) -> bool {
        if let Some(user) = &step.user {
            self.say(&in_use_note(resource, step, user)).await;
        }
        if let Some(why) = &step.split {
            self.say(&split_note(resource, step, why)).await;
        }
        let api = self.api(resource, step);
        let kind = kind_label(resource);
        let mut version = step.version.clone();
        if let Some(finalizers) = &step.finalizers {
            if step.must_be_unused {
                match check::is_unused(&self.client, step, view).await {
                    Ok(true) => {}
                    // The copies will say so.
                    Ok(false) => return true,
                    Err(error) => {
                        tracing::warn!(
                            kind,
                            name = step.name,
                            error,
                            "the use of the object is not known, trying again"
                        );
                        return false;
                    }
                }
            }
            let metadata =
                json!({"uid": step.uid, "resourceVersion": version, "finalizers": finalizers});
            let patch = Patch::Merge(json!({ "metadata": metadata }));
            let params = manager();
            let request = api.patch(&step.name, &params, &patch);
            let (outcome, object) = self.write(kind, &step.name, request).await;
            let Some(object) = object else {
                return outcome.is_done();
            };
            version = object.resource_version().unwrap_or_default();
        }
        self.status(&api, resource, step, &version).await.is_done()
    }

    /// Writes the status of an object of this version, if it is to have another.
    async fn status(
        &self,
        api: &Api<DynamicObject>,
        resource: &ApiResource,
        step: &ObjectStep,
        version: &str,
    ) -> Outcome {
        let kind = kind_label(resource);
        let Some(status) = &step.status else {
            return Outcome::Written;
        };
        let patch = Patch::Apply(status_patch(resource, step, version, status));
        let params = PatchParams::apply(MANAGER).force();
        let request = api.patch_status(&step.name, &params, &patch);
        let (outcome, _) = self.write(kind, &step.name, request).await;
        if outcome == Outcome::Written {
            tell(kind, step, status);
        }
        outcome
    }

    fn api(&self, resource: &ApiResource, step: &ObjectStep) -> Api<DynamicObject> {
        match &step.namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, resource),
            None => Api::all_with(self.client.clone(), resource),
        }
    }

    /// Writes an Event; true when it was written, and not lately.
    async fn say(&self, note: &Note) -> bool {
        let mut events = self.events.lock().await;
        self.say_by(&mut events, note).await == Said::Written
    }

    /// Returns another writer of Events, which none of those of the plan waits for.
    pub(super) fn writer(&self) -> EventWriter {
        EventWriter::new(self.client.clone(), REPORTER, self.instance.clone())
    }

    /// Writes an Event by this writer.
    pub(super) async fn say_by(&self, events: &mut EventWriter, note: &Note) -> Said {
        if !self.fence.holds() {
            return Said::Failed;
        }
        let said = tokio::time::timeout(PATIENCE, events.say(note)).await;
        let (said, outcome) = match said {
            Ok(Ok(true)) => (Said::Written, "written"),
            Ok(Ok(false)) => return Said::Known,
            Ok(Err(error)) => {
                tracing::debug!(error = brief(&error), "an Event is dropped");
                (Said::Failed, "failed")
            }
            Err(_) => (Said::Failed, "failed"),
        };
        self.metrics.write("Event", outcome);
        said
    }

    async fn pod(&self, pod: &Pod, step: &PodStep, nodes: usize) -> bool {
        let (namespace, name) = (pod.namespace(), pod.name());
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        match step {
            PodStep::Release => {
                let gates = json!([{"$patch": "delete", "name": GATE}]);
                let patch =
                    json!({"metadata": {"uid": pod.uid()}, "spec": {"schedulingGates": gates}});
                let (params, patch) = (manager(), Patch::Strategic(patch));
                let request = api.patch(name, &params, &patch);
                let (outcome, _) = self.write("Pod", name, request).await;
                if outcome == Outcome::Written {
                    tracing::info!(
                        namespace,
                        pod = name,
                        "the pod's scheduling gate is removed"
                    );
                }
                outcome.is_done()
            }
            PodStep::Wait(obstacles) => {
                let message = Listed::new(obstacles).to_string();
                let message = beginning(&message, MESSAGE_MAX);
                self.say(&waiting_note(pod, as_scheduler(obstacles, nodes)))
                    .await;
                let written = pod.networks_ready();
                if written.is_some_and(|it| {
                    it.status == "False" && it.message.as_deref() == Some(message)
                }) {
                    return true;
                }
                let is_known = written.is_some_and(|it| it.status == "False");
                let condition = condition("False", "NetworksNotReady", message, is_known);
                self.pod_condition(&api, pod, condition).await
            }
            PodStep::MarkReady => {
                let condition = condition("True", "NetworksReady", "", false);
                self.pod_condition(&api, pod, condition).await
            }
            PodStep::Unmark => {
                let condition = json!({"$patch": "delete", "type": NETWORKS_READY});
                self.pod_condition(&api, pod, condition).await
            }
        }
    }

    async fn pod_condition(&self, api: &Api<Pod>, pod: &Pod, condition: Value) -> bool {
        let patch = json!({"metadata": {"uid": pod.uid()}, "status": {"conditions": [condition]}});
        let (params, patch) = (manager(), Patch::Strategic(patch));
        let request = api.patch_status(pod.name(), &params, &patch);
        let (outcome, _) = self.write("Pod", pod.name(), request).await;
        outcome.is_done()
    }
}

impl Outcome {
    /// True when nothing is left to be done before something changes.
    fn is_done(self) -> bool {
        matches!(self, Self::Written | Self::Stale(_))
    }
}

/// True for an object that breaks a rule: another write is refused, too.
fn is_refusal(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if matches!(status.code, 400 | 422))
}

fn manager() -> PatchParams {
    PatchParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

fn kind_label(resource: &ApiResource) -> &'static str {
    // No file has a Port, so it is no kind of manifests.
    let mut kinds = Kind::ALL.into_iter().map(Kind::as_str).chain(["Port"]);
    let found = kinds.find(|kind| *kind == resource.kind);
    found.unwrap_or(Kind::PodNetworkAttachment.as_str())
}

fn status_patch(
    resource: &ApiResource,
    step: &ObjectStep,
    version: &str,
    status: &Status,
) -> Value {
    let mut fields = json!({ "conditions": status.conditions });
    if let Some(number) = status.number {
        fields["networkID"] = number.get().into();
    }
    if let Some(count) = status.used_by {
        fields["usedBy"] = count.into();
    }
    if let Some(count) = status.networks {
        fields["networks"] = count.into();
    }
    if let Some(transport) = status.transport {
        fields["transport"] = transport.as_str().into();
    }
    json!({
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {
            "name": step.name,
            "namespace": step.namespace,
            "uid": step.uid,
            "resourceVersion": version,
        },
        "status": fields,
    })
}

fn tell(kind: &str, step: &ObjectStep, status: &Status) {
    let number = status.number.map(api::NetworkId::get);
    let conditions: BTreeSet<String> = status
        .conditions
        .iter()
        .map(|it| format!("{}={} ({})", it.type_, it.status, it.reason))
        .collect();
    let (namespace, name) = (step.namespace.as_deref(), step.name.as_str());
    // Users of namespaces make as many parameters as they like.
    if status.used_by.is_some() {
        tracing::debug!(
            kind,
            namespace,
            name,
            used_by = status.used_by,
            ?conditions,
            "the status of the object is written"
        );
        return;
    }
    tracing::info!(
        kind,
        namespace,
        name,
        number,
        transport = status.transport.map(api::Transport::as_str),
        ?conditions,
        "the status of the object is written"
    );
}

/// Returns a pod's condition; a known one keeps the time of its last change.
fn condition(status: &str, reason: &str, message: &str, is_known: bool) -> Value {
    let mut condition = json!({
        "type": NETWORKS_READY,
        "status": status,
        "reason": reason,
        "message": message,
    });
    if !is_known {
        condition["lastTransitionTime"] = Timestamp::now().to_string().into();
    }
    condition
}
