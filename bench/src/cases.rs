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
mod remote;
mod restart;
mod scale;
mod shaping;
mod sockets;
mod steer;
mod tcp;
mod udp;

use anyhow::Result;

pub(crate) use crate::case::{
    Bench, Known, ROUNDS, Run, agent_of, millis, names, pause, wait_promoted,
};
use crate::interrupt;
use crate::peers::{Stage, TrafficPath};
use crate::report::Case;
use crate::{guarded, policies, services, vpcs};

/// Every case, in the order they are run: those that share their pods first.
pub const CASES: [Known; 26] = [
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
    guarded::CASE,
    services::CASE,
    services::API,
    vpcs::CASE,
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
