//! Traffic between pods of two nodes.

use std::time::Duration;

use anyhow::{Result, bail};

use super::latency::trips;
use super::tcp::streams;
use super::{Bench, Known, ROUNDS, Run, names, rounds};
use crate::peers::{L2, L3, Stage};
use crate::report::{Better, Case};
use crate::traffic::{Mode, order};

/// Everything about two nodes.
pub(super) const CASE: Known = Known {
    name: "across",
    title: "Between pods of two nodes",
    about: "Two nodes on a veth link, tunnels over IPv4, MTU 1450 inside. The peer is a bridge and the \
            kernel's VXLAN device on either node, its forwarding table filled by hand, no \
            bridge-nf-call. Neither has UDP checksums on the outside. Streams, packets and round trips \
            as in the cases for one node.",
    run: Run::Alone(run),
};

fn run(bench: &Bench<'_>, case: &mut Case) -> Result<()> {
    case.subjects = names(&[L2, L3]);
    let stage = &mut Stage::across(bench.dir, bench.progress)?;
    streams(bench, stage, case)?;
    let time = Duration::from_millis(bench.size(800, 300));
    for (name, mode) in [
        ("UDP 64 B, 2 CPUs", Mode::UdpTwoCpus),
        ("UDP 64 B, 1 CPU", Mode::UdpOneCpu),
    ] {
        bench.progress.stage(name);
        rounds(
            bench,
            stage,
            case,
            bench.rounds(ROUNDS),
            |path, round, case| {
                let answer = order::run(mode, &path.a, &path.b, time)?;
                if answer.received == 0 {
                    bail!("nothing arrived");
                }
                let (unit, better) = match mode {
                    Mode::UdpOneCpu => ("ns/packet", Better::Less),
                    _ => ("kpps", Better::More),
                };
                case.measure("", name, unit, better)
                    .put(&path.who, round, answer.value);
                Ok(())
            },
        )?;
    }
    trips(bench, stage, case)
}
