//! The agent is killed and started again under a stream.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use tempfile::TempDir;
use testbed::{Network, Node};

use super::{Bench, Known, ROUNDS, Run, millis, names, wait_promoted};
use crate::peers::{L2, L3, podnet, podnet_plugin};
use crate::report::{Better, Case};
use crate::sandbox::{Sandbox, Side};
use crate::traffic::order::{self, Mode};

/// Survival of the datapath.
pub(super) const CASE: Known = Known {
    name: "restart",
    title: "The agent is killed under a stream",
    about: "Numbered datagrams, 2,000 a second, from pod to pod, while the agent is killed (SIGKILL) \
            and started again, or asked to end (SIGTERM) and started again, or nothing happens. Lost \
            is what never arrived; the gap is the longest time in which nothing did, and on a busy \
            machine mostly the sender's own.",
    run: Run::Alone(run),
};

/// Datagrams a second.
const RATE: u32 = 2000;
/// How long datagrams flow before and, at least, after.
const CALM: Duration = Duration::from_millis(500);

/// Subject, sender and receiver.
type Way = (&'static str, Side, Side);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Upheaval {
    Nothing,
    Kill,
    Terminate,
}

fn run(bench: &Bench<'_>, case: &mut Case) -> Result<()> {
    case.subjects = names(&[L2, L3]);
    let node = podnet(&[
        Network::l2("blue", &["10.10.0.0/24"]),
        Network::l3("green", &["10.20.0.0/24"]),
    ]);
    let (pods, sides) = attach(&node, bench.dir)?;
    wait_promoted(&node)?;
    let upheavals = [
        ("nothing happens", Upheaval::Nothing),
        ("kill -9 and start", Upheaval::Kill),
        ("SIGTERM and start", Upheaval::Terminate),
    ];
    let rounds = bench.rounds(ROUNDS);
    bench.progress.expect(rounds * upheavals.len());
    for round in 0..rounds {
        for (name, upheaval) in upheavals {
            bench.progress.say(name);
            one(&node, &sides, (name, upheaval), round, case)?;
            bench.progress.step();
        }
    }
    drop(pods);
    Ok(())
}

fn attach(node: &Node, dir: &TempDir) -> Result<(Vec<Sandbox>, Vec<Way>)> {
    let (mut pods, mut sides) = (Vec::new(), Vec::new());
    for (who, network) in [(L2, "blue"), (L3, "green")] {
        let plugin = podnet_plugin(who, node, network);
        let mut side = |end: &str| -> Result<Side> {
            let pod = Sandbox::create(dir, &format!("restart-{network}-{end}"))?;
            let (_, result) = plugin.call("ADD", Some(&pod))?;
            let side = Side::of_result(&pod, &result)?;
            pods.push(pod);
            Ok(side)
        };
        sides.push((who, side("a")?, side("b")?));
    }
    Ok((pods, sides))
}

fn one(
    node: &Node,
    sides: &[Way],
    (name, upheaval): (&str, Upheaval),
    round: usize,
    case: &mut Case,
) -> Result<()> {
    let time = Duration::from_secs(5);
    let begin = Instant::now();
    let mut streams = Vec::new();
    for (who, a, b) in sides {
        streams.push((*who, order::start(Mode::Stream { rate: RATE }, a, b, time)?));
    }
    // The stream has to run before it is disturbed.
    std::thread::sleep(CALM);
    let disturbed = Instant::now();
    match upheaval {
        Upheaval::Nothing => {}
        Upheaval::Kill => node.restart(),
        Upheaval::Terminate => {
            node.terminate();
            node.start_agent();
        }
    }
    let back = disturbed.elapsed();
    if begin.elapsed() + CALM > time {
        bail!("the agent was back only after {} ms", back.as_millis());
    }
    for (who, stream) in streams {
        let answer = stream.finish()?;
        case.measure("Datagrams lost", name, "of 10,000", Better::Less)
            .put(who, round, answer.value);
        case.measure("Longest gap", name, "ms", Better::Less)
            .put(who, round, answer.gap);
    }
    if upheaval != Upheaval::Nothing {
        case.measure("Agent ready again", name, "ms", Better::Less)
            .put(L2, round, millis(back));
    }
    Ok(())
}
