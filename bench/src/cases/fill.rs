//! Fill a node with ports by real ADDs.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::Result;
use tempfile::TempDir;

use super::crowd;
use crate::plugin::Plugin;
use crate::sandbox::Sandbox;

/// Interfaces in one namespace, which is cheaper than as many pods.
const PER_POD: usize = 100;
/// Calls at a time, in namespaces of their own.
const AT_ONCE: usize = 8;

/// Attaches so many interfaces by a plugin; returns their namespaces.
///
/// # Errors
/// A call fails, or the run is interrupted.
pub(super) fn fill(
    plugin: &Plugin,
    dir: &TempDir,
    label: &str,
    count: usize,
) -> Result<Vec<Sandbox>> {
    // Calls for one container wait for each other: neighbours in time are in several.
    let pods = count.div_ceil(PER_POD).max(AT_ONCE.min(count));
    let pods: Vec<Sandbox> = (0..pods)
        .map(|number| Sandbox::create(dir, &format!("fill-{label}-{number}")))
        .collect::<Result<_>>()?;
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..AT_ONCE)
            .map(|_| {
                scope.spawn(|| -> Result<()> {
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= count {
                            return Ok(());
                        }
                        let (pod, name) = (&pods[number % pods.len()], format!("net{number}"));
                        if let Err(error) = plugin.call_as("ADD", pod, &name) {
                            // The others need not go on.
                            next.store(count, Ordering::Relaxed);
                            return Err(error);
                        }
                    }
                })
            })
            .collect();
        crowd::join(workers)
    })?;
    Ok(pods)
}
