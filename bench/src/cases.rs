//! List the cases that are measured.

mod across;
mod add_by_ports;
mod agent;
mod cni;
mod connect;
mod crowd;
mod fill;
mod flood;
mod flows;
mod latency;
mod memif;
mod packets;
mod policies;
mod remote;
mod restart;
mod scale;
mod shaping;
mod sockets;
mod steer;
mod tcp;
mod udp;

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use tempfile::TempDir;
use testbed::Node;

use crate::interrupt;
use crate::peers::{Peer, Stage, TrafficPath};
use crate::progress::Progress;
use crate::report::Case;

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

/// Every case, in the order they are run: those that share their pods first.
pub const CASES: [Known; 22] = [
    tcp::CASE,
    udp::CASE,
    latency::CASE,
    connect::CASE,
    across::CASE,
    cni::CASE,
    crowd::PARALLEL,
    crowd::BURST,
    crowd::BUSY,
    add_by_ports::CASE,
    scale::CASE,
    flood::CASE,
    remote::CASE,
    shaping::CASE,
    shaping::MANY,
    sockets::CASE,
    steer::CASE,
    flows::CASE,
    policies::CASE,
    memif::CASE,
    agent::CASE,
    restart::CASE,
];

/// Measures all paths round by round, each round starting with another path.
///
/// A path that fails is left out from then on, with the reason.
///
/// # Errors
/// The run is interrupted.
pub(crate) fn rounds(
    bench: &Bench<'_>,
    stage: &mut Stage,
    case: &mut Case,
    rounds: usize,
    mut one: impl FnMut(&TrafficPath, usize, &mut Case) -> Result<()>,
) -> Result<()> {
    for absent in &stage.absent {
        case.miss(&absent.who, &absent.reason);
    }
    let mut out = vec![false; stage.paths.len()];
    bench.progress.expect(rounds * stage.paths.len());
    for round in 0..rounds {
        for turn in 0..stage.paths.len() {
            let number = (turn + round) % stage.paths.len();
            let path = &stage.paths[number];
            bench.progress.say(&path.who);
            if !out[number] {
                let done = path.prepare().and_then(|()| one(path, round, case));
                interrupt::check()?;
                if let Err(error) = done {
                    case.miss(&path.who, &format!("round {}: {error:#}", round + 1));
                    out[number] = true;
                }
            }
            bench.progress.step();
        }
    }
    Ok(())
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
