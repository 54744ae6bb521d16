//! `webhook`: what the API server asks before it takes a pod.
//!
//! - [`review`] decides about a pod's lists of networks, and which pods wait for them; [`access`]
//!   decides who may use which network. Both are functions of the request and of [`facts`].
//! - [`inject`] adds to a pod what its networks want of it, which [`wants`] reads.
//! - [`downward`] gives containers the file that says their networks, where a pod asks for it.
//! - `services` has kube-proxy leave Services of networks alone.
//! - [`certificates`] says when which certificate is made; the keeper keeps them in a Secret that
//!   all replicas share, and tells the API server its authority.
//!
//! - [`lookup`] asks the API server what a pod names; copies answer where it does not in time.
//!
//! A review that cannot be done stops no pod: the agent checks the lists of every pod again.

pub mod access;
pub mod callers;
pub mod certificates;
mod connection;
mod copies;
pub mod downward;
pub mod facts;
pub mod inject;
mod intake;
mod keeper;
pub mod lookup;
mod metrics;
mod options;
pub mod review;
#[cfg(test)]
mod samples;
mod server;
mod services;
mod tls;
pub mod wants;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use cluster::{ConnectError, Source};
use futures_util::future::join_all;
use telemetry::exposition::MetricsError;
use telemetry::{self, FilterError};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use self::callers::CallersError;
use self::certificates::{CertificateError, Lifetimes, Names};
use self::copies::Copies;
use self::keeper::{Keeper, Place};
pub use self::metrics::METRICS;
use self::metrics::Metrics;
pub use self::options::WebhookOptions;
use self::server::{Injections, Reviewer};
use self::tls::{Identity, TlsListener};

/// The webhook could not start, or had to stop.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// The log filter is wrong.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// The API server cannot be asked anything.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// Metrics could not be made.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// The options about certificates contradict each other.
    #[error(transparent)]
    Certificates(#[from] CertificateError),
    /// TLS could not be set up, or the callers' authority is not readable.
    #[error(transparent)]
    Callers(#[from] CallersError),
    /// A port is taken.
    #[error("cannot listen on {option} {address}")]
    Listen {
        /// The option that names it.
        option: &'static str,
        /// The address.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// The async runtime or a signal handler could not be set up.
    #[error(
        "cannot start threads or signal handlers; raise the limits of processes and open files (ulimit -u and -n)"
    )]
    Runtime(#[source] io::Error),
    /// A server ended by itself.
    #[error("the server of {option} stopped; the webhook ends, and Kubernetes starts it again")]
    Stopped {
        /// The option that names its address.
        option: &'static str,
        /// Why.
        source: io::Error,
    },
}

/// Serves reviews until it is told to stop.
///
/// # Errors
/// When it cannot start, or cannot go on.
pub fn run(options: &WebhookOptions) -> Result<(), Box<dyn std::error::Error>> {
    telemetry::init(&options.log).map_err(WebhookError::from)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(WebhookError::Runtime)?;
    runtime.block_on(serve(options)).map_err(Into::into)
}

async fn serve(options: &WebhookOptions) -> Result<(), WebhookError> {
    let mut terminate = signal(SignalKind::terminate()).map_err(WebhookError::Runtime)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(WebhookError::Runtime)?;
    let lifetimes = Lifetimes::new(options.ca_lifetime, options.certificate_lifetime)?;
    let client = Source::new(options.kubeconfig.as_deref()).connect().await?;
    let metrics = Arc::new(Metrics::new()?);
    let identity = Arc::new(Identity::default());
    let keeper = Keeper::new(
        client.clone(),
        Place {
            namespace: options.namespace.clone(),
            secret: options.secret_name.clone(),
            configuration: options.configuration.clone(),
        },
        Names::of_service(
            &options.service_name,
            &options.namespace,
            &options.server_name,
        ),
        lifetimes,
        Arc::clone(&identity),
        Arc::clone(&metrics),
    );
    let (copies, copying) = Copies::new(&client, metrics.copied.clone());
    let reviewer = Reviewer::new(
        client,
        Arc::clone(&copies),
        options.rules(),
        options.access_control,
        Injections::of(options),
        Arc::clone(&metrics),
    );

    let (stop, stopping) = watch::channel(false);
    let pages = listen("--admin", options.admin).await?;
    let reviews = listen("--listen", options.listen).await?;
    let reviews = TlsListener::new(reviews, &identity, &options.clients)?;
    let pages = tokio::spawn(server::serve_admin(
        pages,
        metrics,
        keeper.readiness(),
        copies,
        stopping.clone(),
    ));
    let reviews = tokio::spawn(server::serve_reviews(reviews, reviewer, stopping));
    tracing::info!(listen = %options.listen, admin = %options.admin, "the webhook serves reviews");

    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        () = keeper.run() => {}
        _ = join_all(copying) => {}
    }
    tracing::info!("the webhook stops");
    // Nobody can be left to hear it only if both servers are gone already.
    let _ = stop.send(true);
    for (option, task) in [("--admin", pages), ("--listen", reviews)] {
        task.await
            .unwrap_or_else(|died| Err(io::Error::other(died)))
            .map_err(|source| WebhookError::Stopped { option, source })?;
    }
    Ok(())
}

async fn listen(option: &'static str, address: SocketAddr) -> Result<TcpListener, WebhookError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| WebhookError::Listen {
            option,
            address,
            source,
        })
}
