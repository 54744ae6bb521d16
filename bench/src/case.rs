//! A case that is measured: its name, its inputs, and what most of them do.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::Node;

use crate::interrupt;
use crate::peers::{Peer, Stage};
use crate::progress::Progress;
use crate::report::{Better, Case};
use crate::series::{MEDIAN, Percentile, percentile};

/// Rounds of a whole run, at least.
///
/// Of fewer, the quartiles are two single values.
pub const ROUNDS: usize = 9;

/// Inputs of a case.
#[derive(Debug)]
pub struct Bench<'a> {
    /// Short, for function rather than for figures.
    pub quick: bool,
    /// Rounds of everything, where the caller chooses.
    pub rounds: Option<usize>,
    /// Peers that are compared.
    pub peers: &'a [Peer],
    /// Files of this run.
    pub dir: &'a TempDir,
    /// The eBPF object.
    pub object: &'a Option<PathBuf>,
    /// How far it is.
    pub progress: &'a Progress,
}

impl Bench<'_> {
    /// One of two sizes.
    pub fn size<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }

    /// Rounds of a case: one in a quick run, else [`ROUNDS`] at least.
    pub fn rounds(&self, wanted: usize) -> usize {
        let own = self.size(wanted.max(ROUNDS), 1);
        self.rounds.unwrap_or(own)
    }

    /// Calls of a case that counts each as a round.
    ///
    /// They are twenty a round, where the caller chooses rounds.
    pub fn calls(&self, full: usize, quick: usize) -> usize {
        let own = self.size(full, quick);
        self.rounds.map_or(own, |rounds| rounds * 20)
    }

    /// Whether somebody is compared.
    pub fn has(&self, peer: Peer) -> bool {
        self.peers.contains(&peer)
    }
}

/// Function of a case.
#[derive(Debug, Clone, Copy)]
pub enum Run {
    /// Sends traffic through everybody's pods.
    Traffic(fn(&Bench<'_>, &mut Stage, &mut Case) -> Result<()>),
    /// Sets up what it needs by itself.
    Alone(fn(&Bench<'_>, &mut Case) -> Result<()>),
}

/// A case as it is known by name.
#[derive(Debug, Clone, Copy)]
pub struct Known {
    /// For `--case`.
    pub name: &'static str,
    /// The heading.
    pub title: &'static str,
    /// How it is measured and how to read it.
    pub about: &'static str,
    /// Function that measures it.
    pub run: Run,
}

/// Waits until the ports have their TCX links, as they have most of their lives.
///
/// They get them when the node is quiet.
///
/// # Errors
/// They do not get them.
pub(crate) fn wait_promoted(node: &Node) -> Result<()> {
    if testbed::skip::without_tcx("waiting for TCX links") {
        return Ok(());
    }
    let started = Instant::now();
    loop {
        let attachments = node.get("attachments");
        let patience = Duration::from_secs(300 + attachments.len() as u64 / 5);
        let waiting = attachments
            .iter()
            .filter(|row| row["hook"] != "tcx")
            .count();
        if waiting == 0 {
            return Ok(());
        }
        interrupt::check()?;
        if started.elapsed() >= patience {
            bail!("{waiting} of {} ports got no TCX link", attachments.len());
        }
        // Asking is work for the agent, too.
        let many = attachments.len() > 100;
        thread::sleep(Duration::from_millis(if many { 1000 } else { 100 }));
    }
}

/// Waits for work that the kernel has put off, so that the next call does not pay.
pub(crate) fn pause() {
    thread::sleep(Duration::from_millis(50));
}

pub(crate) fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

pub(crate) fn names(list: &[&str]) -> Vec<String> {
    list.iter().map(ToString::to_string).collect()
}

/// Keeps percentiles of a round's times, in milliseconds.
pub(crate) fn put_times(case: &mut Case, what: &str, who: &str, round: usize, times: &mut [f64]) {
    const P90: Percentile = 90_000;
    times.sort_by(f64::total_cmp);
    for (part, name) in [(MEDIAN, "p50"), (P90, "p90")] {
        case.measure("", &format!("{what}, {name}"), "ms", Better::Less)
            .put(who, round, percentile(times, part));
    }
}

/// The document of a node that is not there about its members of a network.
pub(crate) fn slice(
    (network, id): (&str, u32),
    node: &str,
    vtep: Ipv4Addr,
    endpoints: &[Value],
) -> Result<String> {
    let slice = json!({
        "apiVersion": "podnet.dev/v1alpha1",
        "kind": "PodNetworkEndpointSlice",
        "metadata": {"name": format!("{network}.{node}.0")},
        "spec": {
            "network": network,
            "networkID": id,
            "node": node,
            "vteps": [vtep],
            "endpoints": endpoints,
        },
    });
    Ok(format!("---\n{}\n", serde_json::to_string(&slice)?))
}

/// When members that stay have come.
pub(crate) const BEGIN: &str = "2026-01-02T03:04:05.000000Z";

/// The agent's process: it was started with the node's directory as an argument.
///
/// # Errors
/// It does not run.
pub(crate) fn agent_of(node: &Node) -> Result<u32> {
    let state = node.path("state").to_string_lossy().into_owned();
    for entry in std::fs::read_dir("/proc")? {
        let Ok(pid) = entry?.file_name().to_string_lossy().parse::<u32>() else {
            continue;
        };
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        if String::from_utf8_lossy(&command).contains(&state) {
            return Ok(pid);
        }
    }
    bail!("the agent's process was not found")
}
