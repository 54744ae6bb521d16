//! Write labels and extended resources of the `Node`, for the scheduler.
//!
//! Networks ask for it by `spec.scheduling` of their parameters; where none does, nothing is followed and
//! nothing written. `claims` says what is written, and when; here is its shell.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::{CARRIED, IpBlock, Network, Prefix, Routing, Transport};
use clap::Args;
use cluster::brief;
use cluster::copied::{Copied, Copier, settled, trim_all, unread};
use futures_util::future::{join_all, select};
use ipam::Pool;
use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::api::core::v1::{Container, Node as ApiNode, Pod as ApiPod, PodSpec, PodStatus};
use kube::api::{Patch, PatchParams};
use kube::runtime::watcher::Config;
use kube::{Api, Client, ResourceExt as _};
use reach::Reach;
use tokio::sync::Notify;
use tokio::time::timeout;
use world::World;
use world::scheduling::{addresses, bandwidth, label};

use self::claims::{Claims, Count, Settling, Written, amount, is_label, is_resource, patch};
use super::home::{Home, MANAGER};

mod claims;

/// Time between two writes of the node's object.
const PAUSE: Duration = Duration::from_secs(1);
/// Time after which everything is looked at again.
///
/// Uplinks come and go without a word.
const ROUND: Duration = Duration::from_secs(10);
/// How long the API server may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Options about the scheduler's view of this node.
#[derive(Debug, Clone, Default, Args)]
pub struct SchedulingOptions {
    /// Rate of an uplink that pods may ask for, Mbit/s; can be repeated
    ///
    /// For networks with scheduling.bandwidth in their parameters. It may be less than the interface can do:
    /// the rest is for pods without a rate, and for the node.
    #[arg(
        long,
        value_name = "NAME=MBIT",
        env = "PODNET_UPLINK_BANDWIDTH",
        value_delimiter = ',',
        value_parser = uplink_bandwidth
    )]
    pub uplink_bandwidth: Vec<(String, u64)>,
}

fn uplink_bandwidth(text: &str) -> Result<(String, u64), String> {
    let wrong = || "write NAME=MBIT, as eth1=10000".to_owned();
    let (name, rate) = text.split_once('=').ok_or_else(wrong)?;
    let rate: u64 = rate.parse().map_err(|_| wrong())?;
    if bandwidth(name).is_none() || !(1..=api::RATE_MAX / world::scheduling::UNIT).contains(&rate) {
        return Err(wrong());
    }
    Ok((name.to_owned(), rate))
}

/// Writes labels and extended resources of this node.
pub(super) struct Scheduling {
    client: Client,
    /// Name of this node.
    node: String,
    uplinks: BTreeMap<String, u64>,
    home: Home,
}

/// Copies that the counts need.
struct Copies {
    own: Copied<ApiNode>,
    nodes: Copied<ApiNode>,
    blocks: Copied<IpBlock>,
    pods: Copied<ApiPod>,
    changed: Arc<Notify>,
}

impl Copies {
    fn unread(&self) -> Option<String> {
        let kinds = [
            &self.own.kind,
            &self.nodes.kind,
            &self.blocks.kind,
            &self.pods.kind,
        ];
        unread(kinds).into_iter().next()
    }
}

impl Scheduling {
    pub(super) fn new(client: &Client, node: &str, options: SchedulingOptions, home: Home) -> Self {
        Self {
            client: client.clone(),
            node: node.to_owned(),
            uplinks: options.uplink_bandwidth.into_iter().collect(),
            home,
        }
    }

    /// Keeps the node's object as the networks ask, for ever.
    ///
    /// It begins when a network asks for it, or when an agent before has left something of it.
    pub(super) async fn work(&self, reach: &Reach) {
        self.home.until_recovered().await;
        let mut worlds = self.home.world.changes();
        let mut is_clean = false;
        loop {
            let world = self.home.world.get();
            if asking(&world).next().is_some() {
                break;
            }
            if !is_clean && world.check_read().is_ok() {
                match self.is_unmarked().await {
                    Some(true) => is_clean = true,
                    Some(false) => break,
                    None => {}
                }
            }
            // The sender lives as long as the node.
            let _ = timeout(ROUND, worlds.changed()).await;
        }
        let changed = Arc::new(Notify::new());
        let of_node = |field: &str| Config::default().fields(&format!("{field}={}", self.node));
        let mut copier = Copier::new(&self.client, &changed);
        let copies = Copies {
            own: copier.copy("this node", false, of_node("metadata.name"), trim_own),
            nodes: copier.copy("nodes", false, Config::default(), trim_node),
            blocks: copier.copy("ipblocks", false, Config::default(), trim_all),
            pods: copier.copy(
                "pods of this node",
                false,
                of_node("spec.nodeName"),
                trim_pod,
            ),
            changed,
        };
        let following = join_all(copier.work());
        let writing = Box::pin(self.keep(reach, &copies));
        // Neither ends.
        select(following, writing).await;
    }

    /// True when the node's object has nothing of ours.
    ///
    /// None when the API server does not say.
    async fn is_unmarked(&self) -> Option<bool> {
        let found = timeout(PATIENCE, self.api().get_opt(&self.node)).await;
        let found = found.ok()?.ok()?;
        Some(found.is_none_or(|node| Written::of(&node).is_empty()))
    }

    fn api(&self) -> Api<ApiNode> {
        Api::all(self.client.clone())
    }

    async fn keep(&self, reach: &Reach, copies: &Copies) {
        let mut settling = Settling::default();
        let mut complaints = Complaints::default();
        let mut worlds = self.home.world.changes();
        let mut book = self.home.book.ledger().changes();
        loop {
            worlds.mark_unchanged();
            book.mark_unchanged();
            let wait = self
                .pass(reach, copies, &mut settling, &mut complaints)
                .await;
            // All senders live as long as the node.
            tokio::select! {
                () = settled(&copies.changed) => {}
                _ = worlds.changed() => {}
                _ = book.changed() => {}
                () = tokio::time::sleep(wait) => {}
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Brings the node's object up to date; returns the time to the next look.
    async fn pass(
        &self,
        reach: &Reach,
        copies: &Copies,
        settling: &mut Settling,
        complaints: &mut Complaints,
    ) -> Duration {
        let world = self.home.world.get();
        if copies.unread().is_some() || world.check_read().is_err() {
            return ROUND;
        }
        let Some(own) = copies.own.store.state().first().cloned() else {
            return ROUND;
        };
        let pods = copies.pods.store.state();
        let Some(mut wanted) = self.claims(reach, copies, &world, &pods).await else {
            return PAUSE;
        };
        let bound = bound(&pods);
        wanted.keep(&bound);
        let over = wanted.limit(&bound);
        complaints.about_number(over);
        let now = Instant::now();
        let written = Written::of(&own);
        let (claims, next) = settling.settle(&wanted, &written, now);
        let wait = next.map_or(ROUND, |at| at.saturating_duration_since(now).min(ROUND));
        let Some(patch) = patch(&written, &claims) else {
            return wait;
        };
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        let params = PatchParams {
            field_manager: Some(MANAGER.to_owned()),
            ..params
        };
        let api = self.api();
        let patched = timeout(PATIENCE, api.patch_status(&self.node, &params, &patch)).await;
        complaints.about_writing(match patched {
            Ok(Ok(_)) => None,
            Ok(Err(error)) => Some(brief(&error)),
            Err(_) => Some("no answer from the API server".to_owned()),
        });
        wait
    }

    /// Works out what the node should say.
    ///
    /// None while this node's share of addresses is not known.
    async fn claims(
        &self,
        reach: &Reach,
        copies: &Copies,
        world: &World,
        pods: &[Arc<ApiPod>],
    ) -> Option<Claims> {
        let mut claims = Claims::default();
        let asked = requested(pods);
        let mut blocks: BTreeMap<String, Vec<Prefix>> = BTreeMap::new();
        for block in copies.blocks.store.state() {
            if let Ok(prefix) = block.spec.cidr.parse() {
                let of_network = blocks.entry(block.spec.network.clone()).or_default();
                of_network.push(prefix);
            }
        }
        let nodes = copies.nodes.store.state();
        let can_take = nodes.iter().filter(|node| {
            let spec = node.spec.as_ref();
            spec.and_then(|spec| spec.unschedulable) != Some(true)
        });
        let mut nodes: Vec<String> = can_take.map(|node| node.name_any()).collect();
        nodes.sort_unstable();
        for network in asking(world) {
            let scheduling = network.scheduling;
            let carried =
                (scheduling.nodes || scheduling.bandwidth) && self.carries(reach, network).await;
            if scheduling.nodes && carried {
                claims.labels.extend(label(&network.name));
            }
            if let Some(wire) = network
                .wire
                .as_ref()
                .filter(|_| scheduling.bandwidth && carried)
                && let (Some(key), Some(rate)) =
                    (bandwidth(&wire.uplink), self.uplinks.get(&wire.uplink))
            {
                claims.resources.insert(key, *rate);
            }
            if scheduling.addresses
                && let Some(key) = addresses(&network.name)
                // The pods of a network with pools that cannot be wait; those of others do not.
                && let Ok(pools) = world::blocks::pools(network)
            {
                let taken = blocks.get(&network.name).map_or(&[][..], Vec::as_slice);
                let asked = asked.get(&key);
                let count = self.count((network, &pools), taken, asked, &nodes)?;
                claims.resources.insert(key, count);
            }
        }
        Some(claims)
    }

    async fn carries(&self, reach: &Reach, network: &Network) -> bool {
        match network.transport {
            // A look must not make the tunnel device.
            Transport::Vxlan => !self.home.remotes.vteps().is_empty(),
            _ => reach.admit(network).await.is_ok(),
        }
    }

    /// Counts the addresses of a network here.
    ///
    /// None while the node's share of them is not known.
    fn count(
        &self,
        (network, pools): (&Network, &[Pool]),
        blocks: &[Prefix],
        asked: Option<&BTreeMap<(String, String), u64>>,
        nodes: &[String],
    ) -> Option<u64> {
        let ledger = self.home.book.ledger();
        ledger.share_of(&network.name)?;
        let mut held: BTreeMap<(String, String), u64> = BTreeMap::new();
        for entry in ledger.entries() {
            if let Some(pod) = entry
                .record
                .pod
                .as_ref()
                .filter(|_| entry.record.network.name == network.name)
            {
                *held
                    .entry((pod.namespace.clone(), pod.name.clone()))
                    .or_default() += 1;
            }
        }
        let of_pod = |(pod, asked): (&(String, String), &u64)| {
            held.get(pod).copied().unwrap_or(0).min(*asked)
        };
        let count = Count {
            network: &network.name,
            pools,
            blocks: (network.routing != Routing::Node).then_some(blocks),
            free: &ledger.free(network),
            held: asked.into_iter().flatten().map(of_pod).sum(),
            nodes,
            own: &self.node,
        };
        Some(count.addresses())
    }
}

/// Networks that pods can be attached to and that ask for something.
fn asking(world: &World) -> impl Iterator<Item = &Network> {
    world
        .resolved
        .ready_networks()
        .filter(|network| network.scheduling.is_any())
}

/// Lists the pods that have not ended.
fn living(pods: &[Arc<ApiPod>]) -> impl Iterator<Item = (&ApiPod, &PodSpec)> {
    let living = pods.iter().filter(|pod| {
        let status = pod.status.as_ref();
        let phase = status.and_then(|status| status.phase.as_deref());
        !matches!(phase, Some("Succeeded" | "Failed"))
    });
    living.filter_map(|pod| Some((pod.as_ref(), pod.spec.as_ref()?)))
}

/// Collects requests of pods, by resource and by namespace and name.
///
/// Pods that have ended ask for nothing.
fn requested(pods: &[Arc<ApiPod>]) -> BTreeMap<String, BTreeMap<(String, String), u64>> {
    let mut all: BTreeMap<String, BTreeMap<(String, String), u64>> = BTreeMap::new();
    for (pod, spec) in living(pods) {
        let name = (pod.namespace().unwrap_or_default(), pod.name_any());
        for (key, sum) in of_pod(spec) {
            all.entry(key).or_default().insert(name.clone(), sum);
        }
    }
    all
}

/// Returns the requests of a pod as the scheduler counts them.
///
/// They are those of all containers and sidecars together, or, where that is more, of an init container with
/// the sidecars before it (Kubernetes, "Sidecar Containers", resource sharing).
fn of_pod(spec: &PodSpec) -> BTreeMap<String, u64> {
    let requests = |container: &Container| -> Vec<(String, u64)> {
        let resources = container.resources.as_ref();
        let requests = resources.and_then(|it| it.requests.as_ref());
        let amounts = requests.into_iter().flatten();
        let amounts = amounts.map(|(key, it)| (key.clone(), amount(&it.0).unwrap_or(0)));
        amounts.collect()
    };
    let mut running: BTreeMap<String, u64> = BTreeMap::new();
    let mut most: BTreeMap<String, u64> = BTreeMap::new();
    for init in spec.init_containers.iter().flatten() {
        let is_sidecar = init.restart_policy.as_deref() == Some("Always");
        for (key, amount) in requests(init) {
            let before = running.get(&key).copied().unwrap_or(0);
            let together = before.saturating_add(amount);
            if is_sidecar {
                running.insert(key.clone(), together);
            }
            let most = most.entry(key).or_default();
            *most = together.max(*most);
        }
    }
    for (key, amount) in spec.containers.iter().flat_map(requests) {
        let sum = running.entry(key).or_default();
        *sum = sum.saturating_add(amount);
    }
    for (key, sum) in running {
        let most = most.entry(key).or_default();
        *most = sum.max(*most);
    }
    most
}

/// Collects what pods that have not ended were bound by.
fn bound(pods: &[Arc<ApiPod>]) -> Claims {
    let mut bound = Claims::default();
    for (key, of_pods) in requested(pods) {
        let sum = of_pods.into_values().fold(0, u64::saturating_add);
        bound.resources.insert(key, sum);
    }
    for (_, spec) in living(pods) {
        let labels = spec.node_selector.iter().flatten();
        let labels = labels.filter(|(_, value)| *value == CARRIED);
        bound.labels.extend(labels.map(|(key, _)| key.clone()));
    }
    bound
}

/// Keeps of this node's object what its agent writes.
fn trim_own(node: &mut ApiNode) {
    let mut labels = node.metadata.labels.take().unwrap_or_default();
    labels.retain(|key, _| is_label(key));
    trim_all(node);
    node.metadata.labels = Some(labels);
    node.spec = None;
    if let Some(status) = &mut node.status {
        let lists = [status.capacity.take(), status.allocatable.take()];
        let [capacity, allocatable] = lists.map(|list| {
            let mut list = list.unwrap_or_default();
            list.retain(|key, _| is_resource(key));
            Some(list)
        });
        *status = k8s_openapi::api::core::v1::NodeStatus {
            capacity,
            allocatable,
            ..Default::default()
        };
    }
}

/// Keeps of a node whether pods are bound to it.
fn trim_node(node: &mut ApiNode) {
    trim_all(node);
    node.status = None;
    let unschedulable = node.spec.take().and_then(|spec| spec.unschedulable);
    node.spec = Some(k8s_openapi::api::core::v1::NodeSpec {
        unschedulable,
        ..Default::default()
    });
}

/// Keeps of a pod its requests and selectors of what agents write.
fn trim_pod(pod: &mut ApiPod) {
    trim_all(pod);
    let phase = pod.status.take().and_then(|status| status.phase);
    pod.status = Some(PodStatus {
        phase,
        ..PodStatus::default()
    });
    let kept = |container: Container| {
        let mut requests = container.resources?.requests?;
        requests.retain(|key, _| is_resource(key));
        (!requests.is_empty()).then(|| Container {
            restart_policy: container.restart_policy,
            resources: Some(ResourceRequirements {
                requests: Some(requests),
                ..ResourceRequirements::default()
            }),
            ..Container::default()
        })
    };
    let spec = pod.spec.take().unwrap_or_default();
    let selector = spec.node_selector.map(|mut selector| {
        selector.retain(|key, _| is_label(key));
        selector
    });
    let inits = spec.init_containers.unwrap_or_default();
    pod.spec = Some(PodSpec {
        containers: spec.containers.into_iter().filter_map(kept).collect(),
        init_containers: Some(inits.into_iter().filter_map(kept).collect()),
        node_selector: selector,
        ..PodSpec::default()
    });
}

/// Complaints that were logged; a repeated one is not.
#[derive(Debug, Default)]
struct Complaints {
    writing: Option<String>,
    over: usize,
}

impl Complaints {
    fn about_writing(&mut self, why: Option<String>) {
        if let Some(error) = why
            .as_ref()
            .filter(|why| self.writing.as_ref() != Some(why))
        {
            tracing::warn!(
                error,
                "labels and extended resources of the node could not be written, trying again: pods are \
                 scheduled by the old ones; the ClusterRole podnet-agent must allow patch of nodes/status"
            );
        }
        self.writing = why;
    }

    fn about_number(&mut self, over: usize) {
        if over > 0 && self.over != over {
            tracing::error!(
                over,
                limit = claims::KEYS_MAX,
                "more networks have spec.scheduling than a node has labels or resources for, and pods of the last \
                 ones stay pending; remove spec.scheduling from some PodNetworkParameters"
            );
        }
        self.over = over;
    }
}

#[cfg(test)]
mod tests;
