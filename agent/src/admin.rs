//! `/metrics`, `/livez`, `/readyz` and `/debug/state` over HTTP.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Json, Router};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::error::AgentError;
use crate::node::Node;
use crate::views;
use listen::Limited;
use telemetry::chain;

/// Opens the port.
///
/// # Errors
/// When it is taken.
pub async fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address).await
}

/// Serves until `stop` says so.
///
/// # Errors
/// When the listener fails.
pub async fn serve(
    node: Arc<Node>,
    listener: TcpListener,
    mut stop: watch::Receiver<bool>,
) -> io::Result<()> {
    let routes = Router::new()
        .route("/metrics", get(metrics))
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/debug/state", get(state))
        .with_state(node);
    axum::serve(Limited::new(listener, "admin address"), routes)
        .with_graceful_shutdown(async move {
            // Either way it is time to stop.
            let _ = stop.wait_for(|stop| *stop).await;
        })
        .await
}

async fn metrics(State(node): State<Arc<Node>>) -> Response {
    let text = views::snapshot(&node)
        .await
        .map(|snapshot| node.metrics.render(&snapshot));
    match text {
        Ok(Ok(text)) => ([("content-type", "text/plain; version=0.0.4")], text).into_response(),
        Ok(Err(error)) => (StatusCode::INTERNAL_SERVER_ERROR, chain(&error)).into_response(),
        Err(error) => failure(&error),
    }
}

/// Fails when the store has failed for long, so that the agent is restarted.
///
/// A lasting failure of the store is the one fault that a restart may mend and this process cannot.
async fn livez(State(node): State<Arc<Node>>) -> Response {
    match node.book.lasting_failure() {
        Some(error) => (StatusCode::SERVICE_UNAVAILABLE, chain(&error)).into_response(),
        None => "ok\n".into_response(),
    }
}

async fn readyz(State(node): State<Arc<Node>>) -> Response {
    if let Some(failure) = node.book.failure() {
        (StatusCode::SERVICE_UNAVAILABLE, chain(&failure.error)).into_response()
    } else if node.is_ready() {
        match node.world.get().check_read() {
            Ok(()) => "ok\n".into_response(),
            Err(error) => (StatusCode::SERVICE_UNAVAILABLE, chain(&error)).into_response(),
        }
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "starting\n").into_response()
    }
}

async fn state(State(node): State<Arc<Node>>) -> Response {
    match views::state(&node).await {
        Ok(value) => Json(value).into_response(),
        Err(error) => failure(&error),
    }
}

fn failure(error: &AgentError) -> Response {
    (StatusCode::INTERNAL_SERVER_ERROR, chain(error)).into_response()
}
