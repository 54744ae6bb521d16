//! Computes all steps of the controller from the objects that exist.
//!
//! The plan is whole each time, so a missed or repeated event does no harm.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::{
    DEFAULT_NETWORK, Given, IpBlock, IpReservation, NetworkId, PodNetwork, READY, Resolved,
    Transport,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use overview::pod::Pod;
use overview::transports;
use overview::usage::Usage;
use overview::view::View;

use super::conditions::{self, Finding};
use super::excess::Suspects;
use super::gate::{self, ObjectState, States};
use super::numbers::{self, Numbered};
use super::parameters;
use super::reclaim::{self, BlockStep, Orphans};
use super::{ports, vpcs};

/// The finalizer of networks and attachments in use (KEP-PN-U1).
pub const FINALIZER: &str = "podnet.dev/in-use";

/// Choices of the controller's user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choices {
    /// The feature gate `MultiNetwork` (KEP-CTL-4).
    pub multi_network: bool,
    /// The default network is made when it is not there (KEP-DEF-1, KEP-DEF-4).
    pub create_default: bool,
    /// How long a holder of addresses has to be gone.
    pub reclaim_delay: SignedDuration,
    /// Blocks of a network that a node may take beyond what its pods can need.
    pub spare_blocks: u32,
}

/// Everything to be done now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// The default network is to be made.
    pub create_default: bool,
    /// Networks.
    pub networks: Vec<ObjectStep>,
    /// Parameterised attachments.
    pub attachments: Vec<ObjectStep>,
    /// Parameters.
    pub parameters: parameters::Steps,
    /// Steps about the status of VPCs.
    pub vpcs: Vec<ObjectStep>,
    /// Ports.
    pub ports: ports::Steps,
    /// Pods.
    pub pods: Vec<(Arc<Pod>, PodStep)>,
    /// Blocks of addresses.
    pub blocks: Vec<(Arc<IpBlock>, BlockStep)>,
    /// Reservations to be deleted.
    pub reservations: Vec<Arc<IpReservation>>,
    /// Blocks that nodes have taken beyond what their pods can need.
    pub excess: Suspects,
    /// Slices to be deleted: their nodes are gone.
    pub slices: Vec<ObjectMeta>,
    /// When to look again though nothing has changed.
    pub again: Option<Timestamp>,
    /// Networks of ours by whether they are ready: not ready, ready.
    pub ready: [usize; 2],
}

/// Kinds of objects of which the controller writes only the status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StatusOf {
    /// `PodNetworkParameters`, or in a namespace `AttachmentParameters`.
    #[default]
    Parameters,
    /// `Vpc`.
    Vpc,
    /// `Port`.
    Port,
}

/// Step about a network, an attachment or another object with a status.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObjectStep {
    /// Its kind, where it is neither a network nor an attachment.
    pub kind: StatusOf,
    /// Its namespace, if it has one.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Resource version that this was computed from; a later object is left alone.
    pub version: String,
    /// All finalizers it is to have.
    pub finalizers: Option<Vec<String>>,
    /// The finalizer goes only when no pod uses the object.
    pub must_be_unused: bool,
    /// The status it is to have.
    pub status: Option<Status>,
    /// User that keeps the object from being deleted.
    pub user: Option<String>,
    /// Nodes that a network leaves apart, and the remedy.
    pub split: Option<String>,
}

/// The status of a network, an attachment or parameters.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Status {
    /// [`READY`], `ParamsReady`, `Split` and `InUse`, or `Valid`.
    pub conditions: Vec<Condition>,
    /// The number of a network.
    pub number: Option<NetworkId>,
    /// It did not have this number before.
    pub is_new_number: bool,
    /// The transport of a network.
    pub transport: Option<Transport>,
    /// How many objects name a parameters object.
    pub used_by: Option<i64>,
    /// How many networks a VPC has.
    pub networks: Option<i64>,
}

/// Step about a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodStep {
    /// It may be scheduled.
    Release,
    /// It has to wait, for these reasons.
    Wait(Vec<String>),
    /// It waits no more; its condition says so.
    MarkReady,
    /// No controller decides about its networks; it has no condition about them.
    Unmark,
}

/// Computes the steps that bring all objects to their wanted state.
pub fn plan(view: &View, choices: &Choices, orphans: &mut Orphans, now: Timestamp) -> Plan {
    if !choices.multi_network {
        return switched_off(view);
    }
    let usage = Usage::of(view);
    let taken = view.takes_default();
    let mut plan = Plan {
        // An operator who has led every node away from it is about to make another (KEP-DEF-6).
        create_default: choices.create_default
            && !view.networks.contains_key(DEFAULT_NETWORK)
            && taken.is_some(),
        ..Plan::default()
    };
    let resolved = view.resolve();
    let states = objects(view, &resolved, &usage, now, &mut plan);
    plan.parameters = parameters::steps(view, now);
    plan.vpcs = vpcs::steps(view, &resolved, now);
    plan.ports = ports::steps(view, &resolved, now);
    for pod in view.pods.values() {
        if let Some(step) = pod_step(pod, view, &states) {
            plan.pods.push((Arc::clone(pod), step));
        }
    }
    addresses(view, &usage, choices.reclaim_delay, orphans, now, &mut plan);
    plan
}

/// Plan without the feature gate: no object has effects, no pod waits (KEP-CTL-4).
fn switched_off(view: &View) -> Plan {
    let pod_step = |pod: &Arc<Pod>| {
        let step = match (pod.is_gated(), pod.networks_ready()) {
            (true, _) => PodStep::Release,
            (false, Some(_)) => PodStep::Unmark,
            (false, None) => return None,
        };
        Some((Arc::clone(pod), step))
    };
    Plan {
        networks: let_go(view.networks.values().map(|it| &it.metadata)),
        attachments: let_go(view.attachments.values().map(|it| &it.metadata)),
        pods: view.pods.values().filter_map(pod_step).collect(),
        ..Plan::default()
    }
}

/// Takes the finalizer from everything that is being deleted.
fn let_go<'a>(all: impl Iterator<Item = &'a ObjectMeta>) -> Vec<ObjectStep> {
    all.filter(|metadata| metadata.deletion_timestamp.is_some() && has_finalizer(metadata))
        .map(|metadata| {
            let mut step = step_of(metadata);
            keep(&mut step, metadata, false);
            step
        })
        .collect()
}

/// Networks and attachments: their steps into `plan`, their states for the pods.
fn objects(
    view: &View,
    resolved: &Resolved,
    usage: &Usage,
    now: Timestamp,
    plan: &mut Plan,
) -> States {
    let mut numbers = numbers::assign(&numbered(view, resolved, usage));
    let mut states = States::default();
    let unknown = unknown_user(view);
    for (name, network) in &view.networks {
        let is_ours = network.spec.is_ours(name);
        let mut step = step_of(&network.metadata);
        // A finalizer of ours stays for a user even where the network is another's by now.
        let user = usage
            .network_user(name)
            .map(str::to_owned)
            .or_else(|| unknown.clone());
        let wants = is_ours && name != DEFAULT_NETWORK;
        finalizer(&mut step, &network.metadata, wants, user.clone());
        let in_use = (name == DEFAULT_NETWORK)
            .then(|| conditions::in_use(user.as_deref(), view.takes_default().as_deref()));
        let ready = if is_ours {
            let assigned = numbers.remove(name).unwrap_or_default();
            let parameters = resolved.network(name).map(drop);
            let (ready, mut findings) = conditions::of_network(
                network,
                parameters.as_ref().copied(),
                assigned.conflict.as_ref(),
                user.as_deref(),
            );
            let is_ready = usize::from(ready.is_ok());
            if let Some(count) = plan.ready.get_mut(is_ready) {
                *count += 1;
            }
            let transport = transports::kept(network, resolved.definition(name));
            if transports::ends_at_the_node(resolved.definition(name), transport) {
                let none = BTreeSet::new();
                let nodes = usage.nodes.get(name).unwrap_or(&none);
                let (finding, split) = conditions::split(nodes);
                findings.push(finding);
                step.split = split;
            }
            findings.extend(in_use);
            let given = Given {
                number: assigned.number,
                transport,
            };
            // One that goes in this pass has no status to write.
            step.status =
                network_status(network, &findings, given, now).filter(|_| !step.must_be_unused);
            ready.map_err(|(_, message)| message)
        } else {
            let status = network.status.as_ref();
            let written = status.map_or(&[][..], |status| &status.conditions);
            step.status = in_use.and_then(|finding| in_use_of_others(network, &finding, now));
            said_by_others(written)
        };
        let terminating = network.metadata.deletion_timestamp.is_some();
        let provider = (!is_ours).then(|| network.spec.provider.clone().unwrap_or_default());
        let state = ObjectState {
            ready,
            terminating,
            provider,
        };
        states.networks.insert(name.clone(), state);
        plan.networks.extend(worth_doing(step));
    }
    for (key, attachment) in &view.attachments {
        let network = &attachment.spec.pod_network_name;
        let is_ours = view
            .networks
            .get(network)
            .is_none_or(|it| it.spec.is_ours(network));
        let mut step = step_of(&attachment.metadata);
        let user = usage.attachments.get(key).cloned();
        finalizer(&mut step, &attachment.metadata, is_ours, user.clone());
        let status = attachment.status.as_ref();
        let written = status.map_or(&[][..], |status| &status.conditions);
        let ready = if is_ours {
            let parameters = resolved.attachment(&key.0, &key.1).map(drop);
            let of_network = states.networks.get(network).map(|state| &state.ready);
            let (ready, findings) = conditions::of_attachment(
                attachment,
                parameters.as_ref().copied(),
                of_network,
                user.as_deref(),
            );
            step.status = status_of(&attachment.metadata, &findings, written, now)
                .filter(|_| !step.must_be_unused);
            ready.map_err(|(_, message)| message)
        } else {
            said_by_others(written)
        };
        let terminating = attachment.metadata.deletion_timestamp.is_some();
        let state = ObjectState {
            ready,
            terminating,
            provider: None,
        };
        states.attachments.insert(key.clone(), state);
        plan.attachments.extend(worth_doing(step));
    }
    states
}

/// An attachment that cannot be read may name any network.
fn unknown_user(view: &View) -> Option<String> {
    let mut unreadable = view.unreadable.iter();
    unreadable
        .find(|it| it.starts_with("PodNetworkAttachment "))
        .cloned()
}

fn said_by_others(conditions: &[Condition]) -> Result<(), String> {
    match conditions.iter().find(|it| it.type_ == READY) {
        Some(ready) if ready.status == "True" => Ok(()),
        Some(ready) => Err(format!("{}: {}", ready.reason, ready.message)),
        None => Err("its provider has not said so".to_owned()),
    }
}

fn numbered(view: &View, resolved: &Resolved, usage: &Usage) -> Vec<Numbered> {
    let of_ours = view
        .networks
        .iter()
        .filter(|(name, it)| it.spec.is_ours(name));
    let numbered = of_ours.map(|(name, network)| {
        let definition = resolved.definition(name);
        let metadata = &network.metadata;
        Numbered {
            name: name.clone(),
            uid: metadata.uid.clone().unwrap_or_default(),
            created: metadata
                .creation_timestamp
                .as_ref()
                .map_or(0, |time| time.0.as_second()),
            asked: definition.and_then(|definition| definition.id),
            held: network.given().number,
            wanted: definition.is_some() && metadata.deletion_timestamp.is_none(),
            used: usage.by_pods.contains_key(name),
        }
    });
    numbered.collect()
}

pub(super) fn step_of(metadata: &ObjectMeta) -> ObjectStep {
    ObjectStep {
        namespace: metadata.namespace.clone(),
        name: metadata.name.clone().unwrap_or_default(),
        uid: metadata.uid.clone().unwrap_or_default(),
        version: metadata.resource_version.clone().unwrap_or_default(),
        ..ObjectStep::default()
    }
}

fn worth_doing(step: ObjectStep) -> Option<ObjectStep> {
    let has_writes = step.finalizers.is_some() || step.status.is_some();
    let has_work = has_writes || step.user.is_some() || step.split.is_some();
    has_work.then_some(step)
}

fn has_finalizer(metadata: &ObjectMeta) -> bool {
    let mut finalizers = metadata.finalizers.iter().flatten();
    finalizers.any(|it| it == FINALIZER)
}

/// Adds the finalizer to a living object; removes it from a deleted, unused one.
fn finalizer(step: &mut ObjectStep, metadata: &ObjectMeta, wants: bool, user: Option<String>) {
    if metadata.deletion_timestamp.is_none() {
        keep(step, metadata, wants);
    } else if user.is_none() {
        keep(step, metadata, false);
        step.must_be_unused = step.finalizers.is_some();
    } else if has_finalizer(metadata) {
        step.user = user;
    }
}

/// The finalizers there are, with or without ours.
fn keep(step: &mut ObjectStep, metadata: &ObjectMeta, ours: bool) {
    if ours == has_finalizer(metadata) {
        return;
    }
    let all = metadata.finalizers.iter().flatten();
    let mut finalizers: Vec<String> = all.filter(|it| *it != FINALIZER).cloned().collect();
    if ours {
        finalizers.push(FINALIZER.to_owned());
    }
    step.finalizers = Some(finalizers);
}

fn network_status(
    network: &PodNetwork,
    findings: &[Finding],
    given: Given,
    now: Timestamp,
) -> Option<Status> {
    let status = network.status.as_ref();
    let written = status.map_or(&[][..], |status| &status.conditions);
    let before = network.given();
    let conditions = status_of(&network.metadata, findings, written, now);
    if conditions.is_none() && given == before {
        return None;
    }
    let conditions = conditions.map_or_else(
        || {
            let generation = network.metadata.generation;
            conditions::with_history(findings, now, generation, written)
        },
        |status| status.conditions,
    );
    Some(Status {
        conditions,
        number: given.number,
        is_new_number: given.number.is_some() && given.number != before.number,
        transport: given.transport,
        ..Status::default()
    })
}

/// Condition `InUse` of a network `default` of another provider.
///
/// The rest of its status is not ours.
fn in_use_of_others(network: &PodNetwork, finding: &Finding, now: Timestamp) -> Option<Status> {
    let status = network.status.as_ref();
    let written = status.map_or(&[][..], |status| &status.conditions);
    let ours: Vec<Condition> = written
        .iter()
        .filter(|it| it.type_ == finding.type_)
        .cloned()
        .collect();
    let finding = std::slice::from_ref(finding);
    status_of(&network.metadata, finding, &ours, now)
}

fn status_of(
    metadata: &ObjectMeta,
    findings: &[Finding],
    written: &[Condition],
    now: Timestamp,
) -> Option<Status> {
    let conditions = conditions::with_history(findings, now, metadata.generation, written);
    (!conditions::are_written(&conditions, written)).then(|| Status {
        conditions,
        ..Status::default()
    })
}

fn pod_step(pod: &Pod, view: &View, states: &States) -> Option<PodStep> {
    if pod.has_ended() || pod.metadata.deletion_timestamp.is_some() {
        return None;
    }
    if !pod.is_gated() {
        let waits = pod.networks_ready().is_some_and(|it| it.status != "True");
        return waits.then_some(PodStep::MarkReady);
    }
    let obstacles = gate::obstacles(pod, view, states);
    Some(if obstacles.is_empty() {
        PodStep::Release
    } else {
        PodStep::Wait(obstacles)
    })
}

fn addresses(
    view: &View,
    usage: &Usage,
    delay: SignedDuration,
    orphans: &mut Orphans,
    now: Timestamp,
    plan: &mut Plan,
) {
    let busy = reclaim::busy_nodes(view);
    for block in &view.blocks {
        match reclaim::block_step(block, view, &busy, now, delay) {
            None => {}
            Some(BlockStep::Wait(time)) => plan.again = earlier(plan.again, Some(time)),
            Some(step) => plan.blocks.push((Arc::clone(block), step)),
        }
    }
    let nodes = view.nodes.keys().map(String::as_str);
    let nodes = reclaim::labels_of_nodes(nodes.chain(busy.iter().copied()));
    let slices = view.slices.iter().map(|slice| &slice.metadata);
    let left = slices.filter(|slice| reclaim::is_left(slice, &nodes));
    plan.slices.extend(left.cloned());
    let by_uid: BTreeMap<&str, &Arc<IpReservation>> = view
        .reservations
        .iter()
        .filter(|it| it.metadata.deletion_timestamp.is_none())
        .filter(|it| reclaim::is_orphan(it, view, usage))
        .map(|it| (it.metadata.uid.as_deref().unwrap_or_default(), it))
        .collect();
    let found: BTreeSet<String> = by_uid.keys().map(|uid| (*uid).to_owned()).collect();
    let (due, again) = orphans.due(&found, now, delay);
    plan.again = earlier(plan.again, again);
    let due = due.iter().filter_map(|uid| by_uid.get(uid.as_str()));
    plan.reservations.extend(due.map(|it| Arc::clone(it)));
}

pub(super) fn earlier(a: Option<Timestamp>, b: Option<Timestamp>) -> Option<Timestamp> {
    a.into_iter().chain(b).min()
}

#[cfg(test)]
mod tests;
