//! `run`: builds everything, starts everything, and stops in order.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use book::bandwidth::FLOWS;
use book::{self, Book};
use capture::Captures;
use cluster::Source;
use cluster::access::AccessControl;
use datapath::{Datapath, Events, Options, PinDir, bpffs};
use delegate::process::Runner;
use host::{Grace, Host};
use metrics::Metrics;
use netdev::{Discipline, LinkMonitor, Netlink};
use node_stack::egress::{self, GatewayOptions};
use ports::switch::Line;
use ports::{Promotions, afxdp};
use reach::ReachOptions;
use reach::members;
use remotes::Remotes;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use store::Store;
use tables::Reconciler;
use telemetry::chain;
use telemetry::failpoint;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use world::lists::Rules;
use world::policies::PolicyCurrent;
use world::services::ServiceCurrent;
use world::{self, Current, Manifests};

use crate::capture::flow_log::FlowLog;
use crate::cli::RunOptions;
use crate::device_plugin;
use crate::devices::Devices;
use crate::error::AgentError;
use crate::heap;
use crate::install::Install;
use crate::kube::{self, Cluster};
use crate::lease::RestartLease;
use crate::node::{Node, Parts};
use crate::{admin, node_access, recover};
use crate::{door, tombstone};

mod aside;
mod error;
mod flows;
mod samples;

use self::aside::Aside;
pub use self::error::RunError;

/// Time to the next attempt at tables that the kernel refused.
const RETRY: Duration = Duration::from_secs(1);

/// Runs the agent until a signal stops it; the datapath goes on forwarding.
///
/// # Errors
/// When it cannot start, or cannot go on.
pub fn run(options: RunOptions) -> Result<(), Box<dyn std::error::Error>> {
    telemetry::init(&options.log).map_err(RunError::from)?;
    if let Some(point) = options.crash_at.clone() {
        failpoint::arm(point);
    }
    if let Some(directory) = options.pause_in.clone() {
        failpoint::pause_in(directory);
    }
    heap::limit_arenas();
    // Before Linux 5.11 maps are locked memory.
    let unlimited = Rlimit {
        current: None,
        maximum: None,
    };
    if let Err(error) = setrlimit(Resource::Memlock, unlimited) {
        tracing::debug!(%error, "locked memory stays limited");
    }
    // Each pod with an AF_XDP port may have a few connections here.
    let files = getrlimit(Resource::Nofile);
    let most = Rlimit {
        current: files.maximum,
        ..files
    };
    if let Err(error) = setrlimit(Resource::Nofile, most) {
        tracing::debug!(%error, "open files stay limited");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|source| RunError::Runtime { source })?;
    runtime.block_on(serve(options)).map_err(Into::into)
}

async fn serve(options: RunOptions) -> Result<(), RunError> {
    let mut terminate =
        signal(SignalKind::terminate()).map_err(|source| RunError::Runtime { source })?;
    let mut interrupt =
        signal(SignalKind::interrupt()).map_err(|source| RunError::Runtime { source })?;
    let (stop, stopping) = watch::channel(false);
    let install = Install::new(&options.install, &options.cni, &options.places.socket)?;
    let mut manifests = options.standalone.as_deref().map(Manifests::of);
    let (node, pins, events, flow_log) = build(&options, manifests.as_mut()).await?;
    let _exporting = spans::start(&options.spans, "podnet-agent", &node.name)?;
    // First: what other nodes say counts for these.
    node.reach.serve_now();
    // At once: what the cluster's networks are is to be known when the first request comes.
    let networks = tokio::spawn(networks(
        Arc::clone(&node),
        manifests,
        options.spanning.endpoints.clone(),
    ));

    let listener =
        door::listen(&options.places.socket).map_err(file("listen on", &options.places.socket))?;
    let http = admin::listen(options.admin)
        .await
        .map_err(|source| RunError::Admin {
            address: options.admin,
            source,
        })?;
    // From here on requests are answered, at first with "starting".
    let socket = options.places.socket.clone();
    let door = door::serve(Arc::clone(&node), socket, listener, stopping.clone());
    let mut requests = tokio::spawn(door);
    let pages = tokio::spawn(admin::serve(Arc::clone(&node), http, stopping));
    samples::log(Arc::clone(&node), events).map_err(|source| RunError::Runtime { source })?;
    // Opened first: what happens to a link from now on is not missed.
    let mut links = node.host.netlink.monitor().map_err(AgentError::from)?;
    failpoint::pause("start.recover");
    recover::recover(&node, &pins).await?;
    // Removals that waited come before anything a runtime asks for now.
    tombstone::serve_all(&node).await;
    node.set_ready(true);
    tracing::info!(
        node = node.name, attachments = node.book.ledger().len(),
        socket = %options.places.socket.display(), admin = %options.admin, "the agent is ready",
    );

    let (served, ended) = {
        let mut work = pin!(background(&node, networks, &mut links, flow_log.as_ref()));
        let ended = tokio::select! {
            _ = terminate.recv() => None,
            _ = interrupt.recv() => None,
            why = &mut work => Some(why),
            why = installed(&node, install) => Some(why),
        };
        tracing::info!("the agent stops; the datapath goes on forwarding");
        // Nobody can be left to hear it only if all tasks are gone already.
        let _ = stop.send(true);
        // Requests that have come are still served, and may need the background work.
        if let Some(error) = ended {
            (requests.await, Some(error))
        } else {
            tokio::select! {
                served = &mut requests => (served, None),
                why = work => (requests.await, Some(why)),
            }
        }
    };
    if ended.is_none() {
        node.lease.write(node.is_well());
    }
    node.set_ready(false);
    if let Some(flow_log) = flow_log {
        flow_log.end().await;
    }
    for task in [served.err(), pages.await.err()].into_iter().flatten() {
        tracing::error!(error = %task, "a server of the agent died");
    }
    match ended {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

/// Updates the node's world from files or the cluster; returns only on failure.
async fn networks(
    node: Arc<Node>,
    manifests: Option<Manifests>,
    endpoints: Option<PathBuf>,
) -> RunError {
    let stopped = |what, why| RunError::Stopped { what, why };
    if let Some(cluster) = node.cluster.clone() {
        let end = cluster.run(&node.reach, || node.pod_networks()).await;
        stopped("following the cluster", reason(end.err().as_ref()))
    } else if let Some(manifests) = manifests {
        let (current, tunnels) = (Arc::clone(&node.world), Arc::clone(&node.remotes));
        let has_tunnels = move || !tunnels.vteps().is_empty();
        let others = (Arc::clone(&node.policies), Arc::clone(&node.services));
        let manifests = world::follow(manifests, current, others, has_tunnels);
        let members = async {
            match &endpoints {
                Some(directory) => node.reach.share(directory, node.readiness()).await,
                None => {
                    // Nobody will say anything.
                    node.remotes.set_complete();
                    std::future::pending().await
                }
            }
        };
        tokio::select! {
            end = manifests => stopped("watching --standalone", reason(end.err().as_ref())),
            why = members => stopped("watching --endpoints", why),
        }
    } else {
        stopped(
            "following networks",
            "there is neither a cluster nor a directory".into(),
        )
    }
}

async fn build(
    options: &RunOptions,
    manifests: Option<&mut Manifests>,
) -> Result<(Arc<Node>, PinDir, Events, Option<FlowLog>), RunError> {
    let state_dir = &options.places.state_dir;
    let boot_dir = options.places.boot_dir();
    for directory in [state_dir, &boot_dir] {
        std::fs::create_dir_all(directory).map_err(file("create", directory))?;
    }
    let database = state_dir.join(book::DATABASE);
    let store = Store::open_apart(&database, boot_dir.join(book::DATABASE));
    let store = store.map_err(AgentError::from)?;
    if store.was_repaired() {
        tracing::warn!(database = %database.display(), "the records were damaged and have been mended; the newest may be missing, and what belongs to them on the node is removed");
    }
    let metrics = Arc::new(Metrics::new()?);
    let name = options.node_name.clone().unwrap_or_else(host_name);
    members::check(&options.spanning, &name)?;
    let remotes = Arc::new(match options.standalone {
        Some(_) => Remotes::new(&name),
        None => Remotes::judged(&name),
    });
    remotes.set_vteps(&options.spanning.vteps);
    let found = book::read(&store, state_dir, options.max_ports)
        .await
        .map_err(AgentError::from)?;
    let patience = Duration::from_secs(options.store_patience);
    let book = Arc::new(Book::new(found, store, patience));
    let current = Arc::new(Current::default());
    let policies = Arc::new(PolicyCurrent::default());
    let services = Arc::new(ServiceCurrent::default());
    let ready = watch::Sender::new(false);
    let (world, cluster) = if let Some(manifests) = manifests {
        let read = manifests.read();
        let (world, written, served) =
            read.map_err(file("read --standalone", manifests.directory()))?;
        policies.set(written);
        policies.get().complain();
        services.set(served);
        services.get().complain();
        let world = world.on_node(!remotes.vteps().is_empty());
        (world, None)
    } else {
        let source = Source::new(options.kubeconfig.as_deref());
        let settings = kube::Settings {
            keep_blocks: Duration::from_secs(options.keep_blocks),
            access_control: options.access_control,
            node_tunnels: options.spanning.vteps.is_empty(),
            scheduling: options.scheduling.clone(),
        };
        let home = kube::Home {
            book: Arc::clone(&book),
            world: Arc::clone(&current),
            policies: Arc::clone(&policies),
            services: Arc::clone(&services),
            remotes: Arc::clone(&remotes),
            lists: options.pods.lists.clone(),
            metrics: Arc::clone(&metrics),
            ready: ready.subscribe(),
        };
        let cluster = Cluster::connect(&source, &name, settings, home).await?;
        (cluster.world(), Some(cluster))
    };
    world.complain();
    let clustered = cluster.is_some();
    let limits_plugins = options.pods.lists.delegates_allowed.is_some();
    if options.access_control != AccessControl::Off && !limits_plugins {
        tracing::warn!(
            "access to networks is controlled, and NetworkAttachmentDefinitions may name any plugin, \
             which runs as root: set --delegates-allowed where tenants may create them"
        );
    }
    let bpffs = bpffs::find(&options.places.bpffs)?;
    let pins = PinDir::new(bpffs.clone());
    let mut datapath = Datapath::open(&Options {
        object: options.ebpf_object.clone(),
        max_ports: options.max_ports,
        ..Options::new(bpffs)
    })?;
    tracing::info!(pins = %options.places.bpffs.display(), adopted = datapath.adopted(), "the datapath is loaded");
    let host = Host {
        netlink: Netlink::current().map_err(AgentError::from)?,
        hook: datapath.hook().clone(),
        room: datapath.try_room()?,
        discipline: shaping().await,
        grace: grace(&options.places.socket),
    };
    let events = datapath.events()?;
    let captures = Captures::new(datapath.marks()?).map_err(|source| RunError::Runtime {
        source: source.into(),
    })?;
    let flow_log = FlowLog::begin(&options.flow_log, &name, &mut datapath)?;
    current.set(world);
    let node = Node::new(Parts {
        name,
        world: current,
        policies,
        services,
        promotions: Promotions::new(host.hook.clone(), Duration::from_secs(options.tcx_after)),
        host,
        tables: Reconciler::new(
            datapath,
            Arc::clone(&book),
            options.vxlan_port,
            options.storms,
            Arc::clone(&remotes),
        )?,
        book,
        delegates: Runner::new(
            options.pods.host_root.clone(),
            Duration::from_secs(options.pods.delegate_timeout),
            usize::from(options.pods.delegates),
        )
        .with_plugins(options.cni.cni_bin_dir.as_deref()),
        devices: Devices::new(&options.devices, &options.places.socket, &pins),
        rules: Rules {
            invalid: options.pods.invalid_annotation,
            lists: options.pods.lists.clone(),
            conf_dir: options.cni.cni_conf_dir.clone(),
        },
        remotes,
        cluster,
        metrics,
        captures,
        flows: flow_log.as_ref().map(FlowLog::counted),
        port_metrics: options.port_metrics,
        tombstones: tombstone::directory(&options.places.socket),
        lease: RestartLease::open(
            &options.places.socket,
            Duration::from_secs(options.restart_lease),
        ),
        ready,
        controls: afxdp::directory(&options.places.socket),
        reserved_ports: options
            .egress
            .reserved_host_ports
            .clone()
            .with_tunnels(options.vxlan_port),
        reach: ReachOptions {
            vxlan_port: options.vxlan_port,
            early: options.early,
            gateways: GatewayOptions {
                directory: egress::directory(&options.places.socket),
                inside: options.egress.inside(),
                connections: egress::Connections::new(
                    options.egress.connections_per_network,
                    options.egress.connections_per_pod,
                ),
                clustered,
            },
        },
        line: Line::of(&options.switch, &options.places.socket),
    });
    Ok((node, pins, events, flow_log))
}

/// The switch for grace periods, as it is when nothing is removed.
fn grace(socket: &Path) -> Grace {
    let grace = Grace::of(socket);
    match grace.recover() {
        Ok(true) => tracing::info!(
            "grace periods of the kernel are no longer short: an agent was killed while it removed ports"
        ),
        Ok(false) => {}
        Err(error) => {
            tracing::error!(%error, "grace periods of the kernel stay short, which costs the node interrupts: write 0 to /sys/kernel/rcu_expedited");
        }
    }
    grace
}

/// How this kernel limits rates. One that cannot serves everything but rates.
async fn shaping() -> Option<Discipline> {
    let probed = tokio::task::spawn_blocking(|| netdev::shape_support(FLOWS)).await;
    match probed {
        Ok(Ok(Some(discipline))) => {
            tracing::info!(mechanism = %discipline, "rates can be limited");
            return Some(discipline);
        }
        Ok(Ok(None)) => tracing::warn!("no tbf in this kernel: an ADD with a rate will fail"),
        Ok(Err(error)) => tracing::error!(
            error = chain(&error),
            "an ADD with a rate will fail: the kernel did not let us try one"
        ),
        Err(_) => tracing::error!("an ADD with a rate will fail: the attempt at one died"),
    }
    None
}

/// Keeps the plugin in its place; returns only when that cannot be done at all.
async fn installed(node: &Arc<Node>, install: Option<Install>) -> RunError {
    let Some(install) = install else {
        return std::future::pending().await;
    };
    let end = Box::pin(install.keep(Arc::clone(node))).await;
    RunError::Stopped {
        what: "installing the CNI plugin",
        why: reason(end.err().as_ref()),
    }
}

/// Runs all tasks besides requests; returns only when one of them cannot go on.
async fn background(
    node: &Arc<Node>,
    networks: JoinHandle<RunError>,
    links: &mut LinkMonitor,
    flow_log: Option<&FlowLog>,
) -> RunError {
    let stopped = |what, why: String| RunError::Stopped { what, why };
    let mut reach = match Aside::run(Arc::clone(node)) {
        Ok(reach) => reach,
        Err(source) => return RunError::Runtime { source },
    };
    tokio::select! {
        () = FlowLog::follow(flow_log, node) => stopped("following ports for the flow log", "it ended".into()),
        () = node.ports.promote() => stopped("attaching links", "it ended".into()),
        () = node.ports.follow_guards() => stopped("telling the switch of policies", "it ended".into()),
        () = node.serving.follow(|took| node.metrics.services_applied(took)) => stopped("following Services", "it ended".into()),
        () = node.guards.follow(|took| node.metrics.policies_applied(took)) => stopped("following policies", "it ended".into()),
        () = flows::watch(node) => stopped("counting connections", "it ended".into()),
        () = audits(node) => stopped("the audit", "it ended".into()),
        () = keep_lease(node) => stopped("keeping the lease", "it ended".into()),
        end = networks => end.unwrap_or_else(|died| stopped("following networks", died.to_string())),
        end = reach.ended() => match end {
            Some(end) => stopped(end.what, end.why),
            None => stopped("following the paths to other nodes", "its thread died".into()),
        },
        () = follow_members(node) => stopped("following members on other nodes", "it ended".into()),
        () = node_access::keep(node) => stopped("keeping the node's ports on networks", "it ended".into()),
        () = node.ports.keep_switch() => stopped("watching the switch", "it ended".into()),
        () = limits(node) => stopped("following rates", "it ended".into()),
        end = tombstone::follow(node) => {
            stopped("watching for DELs that waited", reason(end.err().as_ref()))
        }
        end = device_plugin::serve(node) => stopped("telling the kubelet of devices", reason(end.err().as_ref())),
        end = recover::follow_links(node, links) => stopped("watching links", reason(end.err().as_ref())),
    }
}

fn reason<E: std::error::Error>(error: Option<&E>) -> String {
    error.map_or_else(|| "it ended".to_owned(), |error| chain(error))
}

/// The tables follow what other nodes say of their members.
async fn follow_members(node: &Arc<Node>) {
    let mut changes = node.remotes.changes();
    loop {
        // At first too: what came while this node was starting.
        let changed = node.remotes.take_changed();
        let failed = node.tables.reconcile_all(changed).await;
        if failed.is_empty()
            && node.remotes.is_complete()
            && let Err(error) = node.tables.forget_nodes()
        {
            let error = chain(&error);
            tracing::error!(
                error,
                "the numbers of nodes that are gone are not forgotten yet"
            );
        }
        if !failed.is_empty() {
            tokio::time::sleep(RETRY).await;
            node.remotes.look_again(&failed);
        }
        // The sender lives as long as the node.
        if changes.changed().await.is_err() {
            return;
        }
    }
}

/// Rates of attachments follow the manifests.
async fn limits(node: &Arc<Node>) {
    let mut changes = node.world.changes();
    loop {
        // At first too: the manifests may have changed while no agent was there.
        node.ports.follow_limits().await;
        if changes.changed().await.is_err() {
            return;
        }
    }
}

/// Keeps the lease for a restart as long as this agent is well.
async fn keep_lease(node: &Arc<Node>) {
    loop {
        node.lease.write(node.is_well());
        node.lease.due().await;
    }
}

async fn audits(node: &Arc<Node>) {
    let mut ticks = tokio::time::interval(recover::AUDIT_INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    // The first tick is at once, and recovery has just done the same.
    ticks.tick().await;
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = node.audit_wanted.notified() => {}
        }
        if let Err(error) = recover::audit(node).await {
            tracing::warn!(error = %chain(&error), "the audit is incomplete");
        }
        Box::pin(node.reach.settle()).await;
        // Not here: signals and the lease do not wait for it. One that dies has said so.
        let _ = tokio::task::spawn_blocking(heap::give_back).await;
    }
}

fn host_name() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

fn file(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> RunError {
    let path = path.to_owned();
    move |source| RunError::File {
        operation,
        path,
        source,
    }
}
