//! `controller`: what is decided once for a cluster, and not on each node.
//!
//! - [`conditions`] of networks and attachments, the status of [`parameters`], [`numbers`] and transports of networks, the default
//!   network.
//! - What is in use is not deleted. [`gate`]: which pods may be scheduled. [`reclaim`]:
//!   what those that are gone have left. [`excess`]: what nodes take beyond their pods' needs, [`bars`]: those that do not
//!   stop.
//! - [`plan`] makes one list of it all, from a view of the cluster, which `overview` keeps; [`apply`] carries it out.
//!   One controller writes at a time, as `election` decides: the [`leader`].
//! - [`advise`] writes Events about network [`policies`].
//! - `service-slices` writes the endpoints of Services on networks.
//!
//! No pod needs a controller to start, but one behind the scheduling gate.

mod advise;
pub mod apply;
pub mod bars;
pub mod conditions;
pub mod excess;
pub mod gate;
pub mod leader;
pub mod metrics;
pub mod numbers;
pub mod options;
pub mod parameters;
pub mod plan;
mod policies;
mod ports;
pub mod reclaim;
pub mod server;
mod setbacks;
mod vpcs;

use std::io;
use std::sync::Arc;

use cluster::{ConnectError, Source};
use election::{Candidate, LeaseTimesError};
use futures_util::future::select_all;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use overview::copies::Copies;
use service_slices::Mirror;
use telemetry::exposition::MetricsError;
use telemetry::failpoint;
use telemetry::{self, FilterError};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use world::lists::Feature;

use self::apply::Executor;
use self::leader::Leader;
use self::metrics::Metrics;
pub use self::options::ControllerOptions;
use self::plan::Choices;

/// The controller could not start, or had to stop.
#[derive(Debug, thiserror::Error)]
pub enum ControllerError {
    /// The log filter is wrong.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// The options of leader election are wrong.
    #[error(transparent)]
    LeaseTimes(#[from] LeaseTimesError),
    /// Connection to the API server.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// Metrics could not be made.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// The port for metrics is taken.
    #[error("cannot listen on --admin {address}")]
    Admin {
        /// The address.
        address: std::net::SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// The async runtime or a signal handler could not be set up.
    #[error(
        "cannot start threads or signal handlers; raise the limits of processes and open files (ulimit -u and -n)"
    )]
    Runtime(#[source] io::Error),
    /// Another one leads now.
    #[error("the controller is no longer the leader: {why}")]
    Deposed {
        /// The change of the Lease that ended the leadership.
        why: String,
    },
    /// A task that never ends has ended.
    #[error("{what} stopped")]
    Stopped {
        /// Which.
        what: &'static str,
    },
}

/// Runs the controller until it is told to stop, or another one leads.
///
/// # Errors
/// When it cannot start, or leads no more: then the process is to be started anew.
pub fn run(options: ControllerOptions) -> Result<(), Box<dyn std::error::Error>> {
    telemetry::init(&options.log).map_err(ControllerError::from)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(ControllerError::Runtime)?;
    runtime.block_on(serve(options))?;
    Ok(())
}

async fn serve(options: ControllerOptions) -> Result<(), ControllerError> {
    if let Some(point) = &options.hold_at {
        failpoint::hold(point);
    }
    let election = &options.leader_election;
    if election.enabled {
        election.check()?;
    }
    let mut terminate = signal(SignalKind::terminate()).map_err(ControllerError::Runtime)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(ControllerError::Runtime)?;
    let metrics = Arc::new(Metrics::new()?);
    let client = Source::new(options.kubeconfig.as_deref()).connect().await?;
    let (copies, work) = Copies::new(&client);
    let copies = Arc::new(copies);
    let admin = server::listen(options.admin).await.map_err(|source| {
        let address = options.admin;
        ControllerError::Admin { address, source }
    })?;
    let identity = identity(options.pod_name.as_deref());
    let candidate = Candidate::new(&client, election, identity.clone());
    let mirror = Mirror::new(client.clone(), candidate.fence(), identity.clone());
    let leader = Leader {
        copies: Arc::clone(&copies),
        executor: Executor::new(
            client.clone(),
            identity,
            election.namespace(&client),
            candidate.fence(),
            Arc::clone(&metrics),
        ),
        metrics: Arc::clone(&metrics),
        choices: choices(&options),
        rules: options.lists.rules(),
    };
    let state = server::ServerState {
        copies,
        metrics: Arc::clone(&metrics),
    };
    // A task for each: whatever one of them has to think about, the others go on, and above all the
    // Lease is renewed and /livez answered.
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let _ = select_all(work).await;
        Ended::Other("a watch")
    });
    tasks.spawn(async move {
        let _ = server::serve(state, admin).await;
        Ended::Other("--admin")
    });
    let (stop, stopping) = watch::channel(false);
    let (lead, leads) = oneshot::channel();
    tasks.spawn(async move {
        let why = candidate.lead(lead, stopping).await;
        why.map_or(Ended::Stopped, Ended::Deposed)
    });
    tasks.spawn(async move {
        if leads.await.is_err() {
            return Ended::Stopped;
        }
        tracing::info!("this controller leads");
        metrics.leader.set(1);
        tokio::join!(leader.lead(), leader.advise(&client), mirror.work());
        Ended::Other("the leader")
    });
    loop {
        tokio::select! {
            Some(ended) = tasks.join_next() => match ended {
                Ok(Ended::Deposed(why)) => return Err(ControllerError::Deposed { why }),
                Ok(Ended::Other(what)) => return Err(ControllerError::Stopped { what }),
                Ok(Ended::Stopped) => {}
                Err(_) => return Err(ControllerError::Stopped { what: "a task" }),
            },
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
        }
    }
    // The election gives the Lease away, if it has it. It is the only one that ends by itself now.
    if stop.send(true).is_ok() {
        while let Some(ended) = tasks.join_next().await {
            if matches!(ended, Ok(Ended::Stopped | Ended::Deposed(_)) | Err(_)) {
                break;
            }
        }
    }
    Ok(())
}

/// How a task of the controller came to its end.
enum Ended {
    /// It was told to.
    Stopped,
    /// Another one leads, and why.
    Deposed(String),
    /// It never should.
    Other(&'static str),
}

fn choices(options: &ControllerOptions) -> Choices {
    Choices {
        multi_network: options.features.has(Feature::MultiNetwork),
        create_default: !options.disable_default_podnetwork_creation,
        reclaim_delay: SignedDuration::from_secs(options.reclaim_delay.into()),
        spare_blocks: options.spare_blocks,
    }
}

/// Makes a name that no other controller has.
///
/// It has the pod's or the host's name, and the process's number and start time.
fn identity(pod: Option<&str>) -> String {
    let host = rustix::system::uname();
    format!(
        "{}_{:x}_{:x}",
        pod.map_or_else(|| host.nodename().to_string_lossy(), Into::into),
        std::process::id(),
        Timestamp::now().as_nanosecond()
    )
}
