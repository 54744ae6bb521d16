//! Serves `DEL`s that came while no agent was there.
//!
//! The plugin leaves them in a directory beside the socket, and reports success.

use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use cni_spec::{AttachmentKey, Call, PENDING_DEL, Request};
use notify::{RecursiveMode, Watcher as _};
use telemetry::chain;
use tokio::sync::mpsc;

use crate::error::AgentError;
use crate::node::Node;

/// A draft this old was left by a plugin that died.
const DRAFT_AGE: Duration = Duration::from_secs(600);

/// The directory that belongs to a socket.
pub fn directory(socket: &Path) -> PathBuf {
    socket.parent().unwrap_or(Path::new("/")).join(PENDING_DEL)
}

/// Serves what is in the directory, and what comes, for ever.
///
/// # Errors
/// When the directory cannot be watched.
pub async fn follow(node: &Arc<Node>) -> Result<(), notify::Error> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&node.tombstones)?;
    let (changed, mut changes) = mpsc::channel(1);
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        if event.is_ok_and(|event| event.kind.is_access() || event.kind.is_remove()) {
            return;
        }
        // A full channel says "changed" already.
        let _ = changed.try_send(());
    })?;
    watcher.watch(&node.tombstones, RecursiveMode::NonRecursive)?;
    loop {
        serve_all(node).await;
        if changes.recv().await.is_none() {
            return Ok(());
        }
    }
}

/// Serves every tombstone.
///
/// One that fails stays for the next time, which is the next audit at the latest.
pub async fn serve_all(node: &Arc<Node>) {
    if node.book.failure().is_some() {
        // Each of them would fail, and say so.
        return;
    }
    for (path, key) in list(&node.tombstones) {
        let _guard = node.book.turn(&key.container).await;
        if let Err(error) = serve(node, &path, &key).await {
            tracing::warn!(attachment = %key, error = %chain(&error), "a DEL that waited failed, and is kept for the next time");
        }
    }
}

/// Serves the tombstones of one attachment.
///
/// The caller holds the container's lock. An `ADD` does this first: an older `DEL` must not remove its
/// attachment, and the `ADD` must not be answered with one that the `DEL` removes.
///
/// # Errors
/// [`AgentError::Waiting`] when one of them is left.
pub async fn serve_key(node: &Arc<Node>, key: &AttachmentKey) -> Result<(), AgentError> {
    for (path, other) in list(&node.tombstones) {
        if other == *key {
            serve(node, &path, key)
                .await
                .map_err(|error| AgentError::Waiting {
                    key: key.clone(),
                    why: chain(&error),
                })?;
        }
    }
    Ok(())
}

async fn serve(node: &Arc<Node>, path: &Path, key: &AttachmentKey) -> Result<(), AgentError> {
    // Served meanwhile by whoever had the lock.
    if !path.exists() {
        return Ok(());
    }
    tracing::info!(attachment = %key, "a DEL that waited is served");
    node.remove(key).await?;
    fs::remove_file(path).map_err(|source| AgentError::Tombstone {
        path: path.to_owned(),
        source,
    })
}

/// The tombstones, by name; what is none is removed.
fn list(directory: &Path) -> Vec<(PathBuf, AttachmentKey)> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    paths.sort();
    paths.retain(|path| {
        let draft = path
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with('.'));
        if draft {
            sweep(path);
        }
        !draft
    });
    paths
        .into_iter()
        .filter_map(|path| Some((read(&path)?, path)))
        .map(|(key, path)| (path, key))
        .collect()
}

/// The attachment is in the file; its name is only unique.
fn read(path: &Path) -> Option<AttachmentKey> {
    // Gone since it was listed: served.
    let body = fs::read(path).ok()?;
    let call = match Request::from_body(&body) {
        Ok(Request::Cni(request)) => request.invocation().ok().map(|invocation| invocation.call),
        Ok(Request::Get(_) | Request::Explain(_) | Request::Follow(_) | Request::Capture(_))
        | Err(_) => None,
    };
    if let Some(Call::Del { key, .. }) = call {
        return Some(key);
    }
    tracing::warn!(path = %path.display(), "a file among the DELs that wait is none, and is removed");
    discard(path);
    None
}

fn sweep(path: &Path) {
    let old = fs::metadata(path)
        .and_then(|found| found.modified())
        .is_ok_and(|at| {
            SystemTime::now()
                .duration_since(at)
                .is_ok_and(|age| age > DRAFT_AGE)
        });
    if old {
        discard(path);
    }
}

fn discard(path: &Path) {
    if let Err(error) = fs::remove_file(path) {
        tracing::warn!(path = %path.display(), %error, "a DEL that was served could not be removed");
    }
}
