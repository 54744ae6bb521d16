//! `controller`: what is decided once for a cluster, and not on each node.
//!
//! - [`conditions`] of networks and attachments, [`numbers`] of networks, the default network.
//! - [`usage`]: what is in use is not deleted. [`gate`]: which pods may be scheduled. [`reclaim`]:
//!   what those that are gone have left.
//! - [`plan`] makes one list of it all, from a [`view`] of the cluster; [`apply`] carries it out.
//!   [`copies`] keep the view, [`lease`] sees to it that one controller writes at a time: the
//!   [`leader`].
//!
//! No pod needs a controller to start, but one behind the scheduling gate.

pub mod apply;
pub mod conditions;
pub mod copies;
pub mod events;
pub mod gate;
pub mod leader;
pub mod lease;
pub mod metrics;
pub mod numbers;
pub mod options;
pub mod plan;
pub mod pod;
pub mod reclaim;
#[cfg(test)]
mod samples;
pub mod server;
pub mod usage;
pub mod view;

use std::io;
use std::sync::Arc;

use futures_util::future::select_all;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use tokio::signal::unix::{SignalKind, signal};

pub use self::options::ControllerOptions;

use self::apply::Executor;
use self::copies::Copies;
use self::leader::Leader;
use self::lease::{Candidate, Fence};
use self::metrics::Metrics;
use self::options::LeaseTimesError;
use self::plan::Choices;
use crate::kube::{ConnectError, Source};
use crate::lists::Feature;
use crate::metrics::MetricsError;
use crate::telemetry::{self, FilterError};

/// The controller could not start, or had to stop.
#[derive(Debug, thiserror::Error)]
pub enum ControllerError {
    /// The log filter is wrong.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// The options of leader election are wrong.
    #[error(transparent)]
    LeaseTimes(#[from] LeaseTimesError),
    /// Nobody can be asked.
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
    #[error("cannot start the runtime")]
    Runtime(#[source] io::Error),
    /// Another one leads now.
    #[error("no longer the leader: {why}")]
    Deposed {
        /// What happened to the Lease.
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
    let fence = Arc::new(if election.enabled {
        Fence::default()
    } else {
        Fence::open()
    });
    let mut candidate = Candidate::new(&client, election, identity.clone(), Arc::clone(&fence));
    let leader = Leader {
        copies: Arc::clone(&copies),
        executor: Executor::new(client.clone(), identity, fence, Arc::clone(&metrics)),
        metrics: Arc::clone(&metrics),
        choices: choices(&options),
        rules: options.lists.rules(),
    };
    let state = server::State {
        copies: Arc::clone(&copies),
        metrics: Arc::clone(&metrics),
    };
    let leading = async {
        if election.enabled {
            candidate.acquire().await;
        }
        tracing::info!("this controller leads");
        metrics.leader.set(1);
        tokio::select! {
            why = lose(&mut candidate, election.enabled) => why,
            () = leader.lead() => String::new(),
        }
    };
    let outcome = tokio::select! {
        why = leading => Err(ControllerError::Deposed { why }),
        _ = select_all(work) => Err(ControllerError::Stopped { what: "a watch" }),
        _ = server::serve(state, admin) => Err(ControllerError::Stopped { what: "--admin" }),
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
    };
    if outcome.is_ok() && metrics.leader.get() == 1 && election.enabled {
        candidate.release().await;
    }
    outcome
}

fn choices(options: &ControllerOptions) -> Choices {
    Choices {
        multi_network: options.features.has(Feature::MultiNetwork),
        create_default: !options.disable_default_podnetwork_creation,
        reclaim_delay: SignedDuration::from_secs(options.reclaim_delay.into()),
    }
}

/// Returns when this one leads no more; never, when there is no election.
async fn lose(candidate: &mut Candidate, enabled: bool) -> String {
    if enabled {
        candidate.keep().await
    } else {
        std::future::pending().await
    }
}

/// A name that no other controller has: the pod's or the host's, and when and as what this process
/// began.
fn identity(pod: Option<&str>) -> String {
    let host = rustix::system::uname();
    format!(
        "{}_{:x}_{:x}",
        pod.map_or_else(|| host.nodename().to_string_lossy(), Into::into),
        std::process::id(),
        Timestamp::now().as_nanosecond()
    )
}
