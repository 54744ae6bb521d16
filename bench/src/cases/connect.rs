//! TCP connections.

use std::time::Duration;

use anyhow::Result;

use super::{Bench, Known, ROUNDS, Run, names, rounds};
use crate::peers::{L2, L3, Stage};
use crate::report::{Better, Case};
use crate::traffic::Mode;
use crate::traffic::order;

/// TCP_CRR.
pub(super) const CASE: Known = Known {
    name: "connect",
    title: "TCP connections from pod to pod on one node",
    about: "Opened, a byte each way, closed, one after the other by one thread on one CPU, as in \
            netperf's TCP_CRR: connection tracking pays here.",
    run: Run::Traffic(run),
};

fn run(bench: &Bench<'_>, stage: &mut Stage, case: &mut Case) -> Result<()> {
    case.subjects = names(&[L2, L3]);
    let time = Duration::from_millis(bench.size(500, 200));
    rounds(
        bench,
        stage,
        case,
        bench.rounds(ROUNDS),
        |path, round, case| {
            let answer = order::run(Mode::Connect, &path.a, &path.b, time)?;
            case.measure("", "TCP connections, 1 CPU", "per second", Better::More)
                .put(&path.who, round, answer.value);
            let tail = case.measure("Time of a connection", "p99", "us", Better::Less);
            tail.put(&path.who, round, answer.at(99.0));
            Ok(())
        },
    )
}
