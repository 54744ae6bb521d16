//! `DEL`s that came while no agent was there: the plugin leaves them in a directory beside the
//! socket, and says success.

use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use cni_spec::{PENDING_DEL, Request};
use notify::{RecursiveMode, Watcher as _};
use tokio::sync::mpsc;

use crate::cni;
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
pub async fn follow(node: Arc<Node>, directory: PathBuf) -> Result<(), notify::Error> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
    let (changed, mut changes) = mpsc::channel(1);
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        if event.is_ok_and(|event| event.kind.is_access() || event.kind.is_remove()) {
            return;
        }
        // A full channel says "changed" already.
        let _ = changed.try_send(());
    })?;
    watcher.watch(&directory, RecursiveMode::NonRecursive)?;
    loop {
        serve_all(&node, &directory).await;
        if changes.recv().await.is_none() {
            return Ok(());
        }
    }
}

/// Serves every tombstone there is. One that cannot be served stays for the next time.
pub async fn serve_all(node: &Arc<Node>, directory: &Path) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    for path in paths {
        let draft = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        if draft {
            sweep(&path);
            continue;
        }
        let request = fs::read(&path).ok().and_then(|body| Request::from_body(&body).ok());
        let Some(Request::Cni(request)) = request else {
            tracing::warn!(path = %path.display(), "not a request, removed");
            discard(&path);
            continue;
        };
        tracing::info!(container = request.container_id, ifname = request.ifname, "serving a DEL that waited");
        let answer = cni::serve(node, &request, None).await;
        if matches!(answer.reply, cni_spec::Reply::Ok(_)) {
            discard(&path);
        }
    }
}

fn sweep(path: &Path) {
    let old = fs::metadata(path)
        .and_then(|found| found.modified())
        .is_ok_and(|at| SystemTime::now().duration_since(at).is_ok_and(|age| age > DRAFT_AGE));
    if old {
        discard(path);
    }
}

fn discard(path: &Path) {
    if let Err(error) = fs::remove_file(path) {
        tracing::warn!(path = %path.display(), %error, "not removed");
    }
}
