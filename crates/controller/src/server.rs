//! `/metrics`, `/livez` and `/readyz` of the controller.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State as Extract;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use listen::Limited;
use overview::copies::Copies;
use telemetry::chain;
use tokio::net::TcpListener;

use super::metrics::Metrics;

/// Sources of the answers about health and metrics.
#[derive(Clone, Debug)]
pub struct ServerState {
    /// Ready when everything was read once.
    pub copies: Arc<Copies>,
    /// The metrics.
    pub metrics: Arc<Metrics>,
}

/// Opens the port.
///
/// # Errors
/// When it is taken.
pub async fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address).await
}

/// Serves for ever.
///
/// # Errors
/// When the listener fails.
pub async fn serve(state: ServerState, listener: TcpListener) -> io::Result<()> {
    let routes = Router::new()
        .route("/metrics", get(metrics))
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .with_state(state);
    axum::serve(Limited::new(listener, "admin address"), routes).await
}

async fn metrics(Extract(state): Extract<ServerState>) -> Response {
    match state.metrics.render() {
        Ok(text) => ([("content-type", "text/plain; version=0.0.4")], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, chain(&error)).into_response(),
    }
}

/// One that stands by is ready, too: it could lead at once.
async fn readyz(Extract(state): Extract<ServerState>) -> Response {
    let unread = state.copies.unread();
    if unread.is_empty() {
        "ok\n".into_response()
    } else {
        let why = format!("{}\n", unread.join("\n"));
        (StatusCode::SERVICE_UNAVAILABLE, why).into_response()
    }
}
