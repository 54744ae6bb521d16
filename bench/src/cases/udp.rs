//! Small datagrams as fast as they go.

use std::time::Duration;

use anyhow::{Result, bail};

use super::{Bench, Known, ROUNDS, Run, names, rounds};
use crate::cpu;
use crate::peers::{L2, L3, Stage};
use crate::report::{Better, Case};
use crate::traffic::Mode;
use crate::traffic::order;

/// UDP packets per second.
pub(super) const CASE: Known = Known {
    name: "udp",
    title: "Small UDP packets from pod to pod on one node",
    about: "Frames of 64 bytes, the smallest there are: 18 bytes of payload, 60 bytes of frame, 4 of \
            check sequence. On 2 CPUs the sender sends more than arrives, and what arrives in a \
            second counts; CPU is the whole machine's time for each packet received. On 1 CPU \
            sender and receiver take turns: what a packet costs in all, system calls included, but \
            for Open vSwitch, whose own threads run on the other CPU.",
    run: Run::Traffic(run),
};

fn run(bench: &Bench<'_>, stage: &mut Stage, case: &mut Case) -> Result<()> {
    case.subjects = names(&[L2, L3]);
    let time = Duration::from_millis(bench.size(800, 300));
    bench.progress.stage("2 CPUs");
    rounds(
        bench,
        stage,
        case,
        bench.rounds(ROUNDS),
        |path, round, case| {
            let before = cpu::Machine::now()?;
            let answer = order::run(Mode::UdpTwoCpus, &path.a, &path.b, time)?;
            let spent = before.spent()?;
            if answer.received == 0 {
                bail!("nothing arrived");
            }
            case.measure("", "UDP 64 B, 2 CPUs", "kpps", Better::More)
                .put(&path.who, round, answer.value);
            case.measure("", "CPU of a UDP packet, 2 CPUs", "ns", Better::Less)
                .put(&path.who, round, spent.all() * 1e9 / answer.received as f64);
            Ok(())
        },
    )?;
    bench.progress.stage("1 CPU");
    rounds(
        bench,
        stage,
        case,
        bench.rounds(ROUNDS),
        |path, round, case| {
            let answer = order::run(Mode::UdpOneCpu, &path.a, &path.b, time / 2)?;
            case.measure("", "UDP 64 B, 1 CPU", "ns/packet", Better::Less)
                .put(&path.who, round, answer.value);
            Ok(())
        },
    )
}
