//! One CNI request's life: read, decide, do, answer.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use api::Shortened;
use book::access;
use book::ledger::Made;
use cni_spec::{
    Call, CniArgs, CniRequest, CniResult, CniVersion, Command, ConfHead, GcList, Invocation,
    NetConf, NetworkRef, Reply, SpecError, TraceParent,
};
use netdev::Netns;
use serde_json::Value;
use telemetry::{LOG_BYTES, Sparing};
use world::WorldError;

use crate::error::AgentError;
use crate::node::Node;
use crate::recover;
use crate::request::{self, Asked, Native};
use crate::tombstone;

mod device;
pub mod error;

/// Namespace of a PodNetworkAttachment that no configuration or runtime names.
const DEFAULT_NAMESPACE: &str = "default";

/// Time between two lines about the same refusal of the same pod.
const REFUSALS_EVERY: Duration = Duration::from_secs(10);

/// Reply to a request; after an `ADD` with the attachment to undo when it is lost.
#[derive(Debug)]
pub struct Answer {
    /// Reply to the runtime.
    pub reply: Reply,
    /// The attachment an `ADD` answers with.
    pub attachment: Option<Made>,
}

/// Serves one CNI request.
pub async fn serve(node: &Arc<Node>, request: &CniRequest, netns: Option<Netns>) -> Answer {
    let number = node.requests.fetch_add(1, Ordering::Relaxed) + 1;
    let command = request.command;
    let started = Instant::now();
    let span = tracing::info_span!(
        "cni",
        request = number,
        command = command.as_str(),
        container = request.container_id,
        ifname = request.ifname,
        trace_id = tracing::field::Empty,
        parent_id = tracing::field::Empty,
    );
    let parent = request.trace.parent();
    if let Some(parent) = parent {
        span.record("trace_id", parent.trace);
        span.record("parent_id", parent.span);
    }
    let exported =
        spans::Request::begin(command.as_str(), parent.map(caller), || attributes(request));
    let version = ConfHead::version_of(request.config.get());
    let work = tracing::Instrument::instrument(dispatch(node, request, netns), span.clone());
    // Large, and moved about no more from here.
    let done = exported.serve(Box::pin(work)).await;
    let elapsed = started.elapsed();
    let (reply, code, attachment) = match done {
        Ok((value, attachment)) => match Reply::ok(&value) {
            Ok(reply) => (reply, 0, attachment),
            Err(error) => refuse(&error.into(), command, version, number),
        },
        Err(error) => refuse(&error, command, version, number),
    };
    node.metrics.request(command.as_str(), code, elapsed);
    exported.end(|| match &reply {
        Reply::Error(error) => Some((code, Shortened(&error.msg, LOG_BYTES).to_string())),
        _ => None,
    });
    span.in_scope(|| match (code, command) {
        (0, Command::Status | Command::Check) => tracing::debug!(?elapsed, "the request is served"),
        (0, _) => tracing::info!(?elapsed, "the request is served"),
        _ => note_refusal(request, &reply, code, elapsed),
    });
    Answer { reply, attachment }
}

const fn caller(parent: TraceParent<'_>) -> spans::Caller<'_> {
    spans::Caller {
        trace: parent.trace,
        span: parent.span,
        sampled: parent.sampled,
    }
}

/// Attributes of the span of a request, by OpenTelemetry's names where it has some.
fn attributes(request: &CniRequest) -> Vec<(&'static str, String)> {
    let args = CniArgs::parse(&request.args);
    let pod = args.pod().map(|pod| {
        [
            ("k8s.namespace.name", pod.namespace.to_string()),
            ("k8s.pod.name", pod.name.to_string()),
        ]
    });
    let own = [
        ("container.id", request.container_id.clone()),
        ("cni.ifname", request.ifname.clone()),
    ];
    let all = own.into_iter().chain(pod.into_iter().flatten());
    let short = |text: String| Shortened(&text, LOG_BYTES).to_string();
    all.map(|(name, value)| (name, short(value))).collect()
}

/// Logs a refusal, once per [`REFUSALS_EVERY`] for the same pod and error.
///
/// The kubelet repeats a request for a pod whose annotation is wrong.
fn note_refusal(request: &CniRequest, reply: &Reply, code: u32, elapsed: Duration) {
    static REFUSALS: Sparing = Sparing::new(REFUSALS_EVERY);
    let Reply::Error(error) = reply else { return };
    let args = CniArgs::parse(&request.args);
    let whose = args.pod().map_or_else(
        || request.container_id.clone(),
        |pod| format!("{}/{}", pod.namespace, pod.name),
    );
    let Some(unsaid) = REFUSALS.admit(&(request.command.as_str(), whose, code, &error.msg)) else {
        return;
    };
    let reason = Shortened(&error.msg, LOG_BYTES);
    let details = Shortened(&error.details, LOG_BYTES);
    tracing::warn!(?elapsed, code, %reason, %details, unsaid, "the request is refused");
}

fn refuse(
    error: &AgentError,
    command: Command,
    version: CniVersion,
    number: u64,
) -> (Reply, u32, Option<Made>) {
    let error = error::to_cni(error, command, version, number);
    let code = error.code.0;
    (Reply::Error(error), code, None)
}

type Served = Result<(Value, Option<Made>), AgentError>;

async fn dispatch(node: &Arc<Node>, request: &CniRequest, netns: Option<Netns>) -> Served {
    let invocation = request.invocation()?;
    let conf = request.conf()?;
    if request.command == Command::Status {
        return answer_status(node, request, &conf).await;
    }
    let key = invocation.call.key();
    if key.is_some_and(|key| access::is_of_node(&key.container)) {
        return Err(AgentError::NodeContainer);
    }
    node.until_ready().await?;
    match &invocation.call {
        Call::Add { key, netns: path } => {
            let netns = require(netns, path)?;
            node.world.until_read(node.start_patience()).await?;
            let _guard = node.book.turn(&key.container).await;
            tombstone::serve_key(node, key).await?;
            if conf.network == Some(NetworkRef::FromPod) {
                // Plugins of others make its future large.
                return Box::pin(add_pod(node, request, &invocation, &conf, &netns)).await;
            }
            let repeated = node.book.ledger().get(key).is_some();
            let asked = Asked {
                request,
                invocation: &invocation,
                conf: &conf,
                netns: &netns,
                digest: &request::digest_of(request),
            };
            let native = named(node, asked)?;
            let (mut wanted, network) = (native.wanted_alone(asked)?, native.network);
            let raw = serde_json::from_str(request.config.get()).unwrap_or_default();
            Box::pin(device::choose(node, &mut wanted, &network.name, &raw)).await?;
            let record = Box::pin(node.attachments.add(wanted, &network, &netns)).await?;
            let value = match record.result().map(|ours| answer(ours, &conf)) {
                Ok(Ok(value)) => value,
                Ok(Err(error)) | Err(error) => {
                    // What cannot be told must not stay; what was told before must.
                    if !repeated {
                        node.attachments.undo(key).await;
                    }
                    return Err(error.into());
                }
            };
            let made = node.book.ledger().answer(key);
            Ok((value, made))
        }
        Call::Del { key, .. } => {
            let _guard = node.book.turn(&key.container).await;
            node.remove(key).await?;
            Ok((Value::Null, None))
        }
        Call::Check { key, netns: path } => {
            let netns = require(netns, path)?;
            let previous = conf.required_prev_result(Command::Check)?;
            let _guard = node.book.turn(&key.container).await;
            match node.book.pods().get(key) {
                Some(pod) => node.check_pod(&pod, &netns, &previous, &invocation).await?,
                None => node.attachments.check(key, &netns, &previous).await?,
            }
            Ok((Value::Null, None))
        }
        Call::Gc => collect(node, &conf).await,
        // The first is answered above, the plugin answers the other one itself.
        Call::Status | Call::Version => Ok((Value::Null, None)),
    }
}

fn require(netns: Option<Netns>, path: &str) -> Result<Netns, AgentError> {
    let netns = netns.ok_or_else(|| AgentError::NoNetns {
        path: path.to_owned(),
    })?;
    if netns.same_as_current()? {
        return Err(AgentError::HostNetns {
            path: path.to_owned(),
        });
    }
    Ok(netns)
}

/// Serves `ADD` for a pod that lists its networks itself.
///
/// The answer has only the attachment behind the interface that the runtime has asked for: the runtime
/// takes every address of it for the pod's own.
async fn add_pod(
    node: &Arc<Node>,
    request: &CniRequest,
    invocation: &Invocation,
    conf: &NetConf,
    netns: &Netns,
) -> Served {
    let Some(key) = invocation.call.key() else {
        return Err(AgentError::AddWithoutContainer);
    };
    let repeated = node.book.pods().get(key).is_some();
    let asked = Asked {
        request,
        invocation,
        conf,
        netns,
        digest: &request::digest_of(request),
    };
    let record = Box::pin(node.add_pod(key, asked)).await?;
    let told = node
        .primary_result(&record)
        .and_then(|ours| Ok(answer(ours, conf)?));
    let value = match told {
        Ok(value) => value,
        Err(error) => {
            if !repeated {
                node.undo_any(key).await;
            }
            return Err(error);
        }
    };
    let made = node.book.pods().answer(key).map(|generation| Made {
        key: key.clone(),
        generation,
        is_pod: true,
    });
    Ok((value, made))
}

/// Result of `ADD`: the previous result and ours (CNI SPEC section 2, ADD).
fn answer(ours: CniResult, conf: &NetConf) -> Result<Value, SpecError> {
    let mut result = conf.prev_result()?.unwrap_or_default();
    let first = result.interfaces.len();
    result.interfaces.extend(ours.interfaces);
    result
        .ips
        .extend(ours.ips.into_iter().map(|ip| cni_spec::IpConfig {
            interface: ip.interface.map(|index| index + first),
            ..ip
        }));
    result.routes.extend(ours.routes);
    if ours.dns != cni_spec::Dns::default() {
        result.dns = ours.dns;
    }
    result.to_version(conf.head.cni_version)
}

/// Finds the network of a configuration, if the pod's namespace may name it.
fn named(node: &Node, asked: Asked<'_>) -> Result<Native, AgentError> {
    let pod = asked.invocation.args.pod();
    let namespace = pod
        .as_ref()
        .map_or(DEFAULT_NAMESPACE, |pod| pod.namespace.as_str());
    if let Some(NetworkRef::Attachment {
        namespace: Some(other),
        ..
    }) = &asked.conf.network
    {
        let rules = node.rules.lists.rules();
        rules.check_namespace(namespace, other)?;
    }
    Native::configured(&node.world.get(), asked.conf, namespace)
}

async fn collect(node: &Arc<Node>, conf: &NetConf) -> Served {
    let before = Instant::now();
    let name = conf.head.name.as_str();
    let removed = match &conf.valid_attachments {
        GcList::List(valid) => {
            let pods = node.collect_pods(name, before, |key| valid.contains(key));
            let pods = pods.await;
            let alone = node
                .attachments
                .collect(name, before, |record| valid.contains(&record.key));
            // One kind must not keep the other from being looked at.
            let alone = alone.await;
            pods? + alone?
        }
        // The runtime said nothing about what is valid. That cannot mean that nothing is: only
        // what has lost its pod goes.
        GcList::Absent => {
            recover::audit(node).await?;
            0
        }
    };
    tracing::info!(
        network = name,
        removed,
        "attachments that the runtime does not list are removed"
    );
    Ok((Value::Null, None))
}

/// Answers `STATUS` at once: it is asked to find out whether one has to wait.
///
/// A start that goes on within the lease of the agent before has that agent's answer (CNI-ST-05).
async fn answer_status(node: &Node, request: &CniRequest, conf: &NetConf) -> Served {
    let config = request.config.get();
    match status(node, request, conf).await {
        Ok(()) => node.lease.note(config, true),
        Err(AgentError::Starting | AgentError::World(WorldError::NotSynced { .. }))
            if node.lease.covers(config) => {}
        Err(error) => {
            if node.is_ready() {
                node.lease.note(config, false);
            }
            return Err(error);
        }
    }
    Ok((Value::Null, None))
}

/// Whether an `ADD` with this configuration would be served.
///
/// Networks that have no free address are served: their `ADD`s fail, and those of others do not.
async fn status(node: &Node, request: &CniRequest, conf: &NetConf) -> Result<(), AgentError> {
    if !node.is_ready() {
        return Err(AgentError::Starting);
    }
    node.book.require_store()?;
    let ports = node.attachments.impaired();
    if ports > 0 {
        return Err(AgentError::Impaired { ports });
    }
    let world = node.world.get();
    match &conf.network {
        Some(NetworkRef::FromPod) => node.default_network_status(&request.path).await?,
        Some(NetworkRef::PodNetwork(name)) => {
            world.network(name)?;
        }
        Some(NetworkRef::Attachment {
            namespace: Some(namespace),
            name,
        }) => {
            world.network(&world.attachment(namespace, name)?.network)?;
        }
        // The pod, and with it the namespace, is not known to STATUS.
        Some(NetworkRef::Attachment {
            namespace: None, ..
        })
        | None => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests;
