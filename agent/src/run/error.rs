//! Reasons for which an agent does not start, or stops.

use std::io;
use std::path::PathBuf;

use cluster::ConnectError;
use datapath::DatapathError;
use reach::members::SpanningError;
use spans::SpanError;
use telemetry::FilterError;
use telemetry::exposition::MetricsError;

use crate::capture::flow_log::FlowLogError;
use crate::error::AgentError;
use crate::install::InstallError;

/// The agent could not start, or had to stop.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The log filter is wrong.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// Spans cannot be exported.
    #[error(transparent)]
    Spans(#[from] SpanError),
    /// Metrics could not be made.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// A file or socket.
    #[error("cannot {operation} {}", path.display())]
    File {
        /// Verb of the failed operation.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The port for metrics is taken.
    #[error("cannot listen on --admin {address}")]
    Admin {
        /// The address.
        address: std::net::SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// The datapath could not be opened.
    #[error(transparent)]
    Datapath(#[from] DatapathError),
    /// An option of networks across nodes does not fit.
    #[error(transparent)]
    Spanning(#[from] SpanningError),
    /// The CNI plugin to install cannot be found.
    #[error(transparent)]
    Install(#[from] InstallError),
    /// The cluster cannot be reached.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The flow log could not be begun.
    #[error(transparent)]
    FlowLog(#[from] FlowLogError),
    /// Start-up failed.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// The async runtime or a signal handler could not be set up.
    #[error(
        "cannot start threads or signal handlers; raise the limits of processes and open files (ulimit -u and -n)"
    )]
    Runtime {
        /// Why not.
        source: io::Error,
    },
    /// A task that never ends has ended.
    #[error("{what} stopped: {why}")]
    Stopped {
        /// Which.
        what: &'static str,
        /// Why.
        why: String,
    },
}
