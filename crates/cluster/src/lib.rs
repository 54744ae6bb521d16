//! Connect to the API server, follow objects, ask about access, write Events.
//!
//! Types of Kubernetes' client end in this crate and in those of its users that read and write objects:
//! `agent::kube`, the controller and the webhook.

pub mod access;
mod client;
pub mod copied;
pub mod events;
pub mod facts;
pub mod pods;
pub mod policies;
pub mod turns;
pub mod watch;

use futures_util::future::BoxFuture;
use telemetry::chain;

pub use self::client::{ConnectError, Source};

/// Work that never ends.
pub type Work = BoxFuture<'static, ()>;

/// Writes an error of the client as one line, in the API server's words if any.
pub fn brief(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => format!("{} ({})", status.message, status.code),
        other => chain(other),
    }
}
