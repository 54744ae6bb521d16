//! Measure a packet between pods while the flow log samples both of their ports.

use anyhow::{Result, bail};
use testbed::flow_log::FlowLog;
use testbed::{Network, Node, Setup, wait};

use super::packets::{self, Way};
use super::{Bench, Known, Run, names, wait_promoted};
use crate::peers::podnet_plugin;
use crate::report::Case;
use crate::sandbox::{Sandbox, Side};

/// Cost of the flow log.
pub(super) const CASE: Known = Known {
    name: "flows",
    title: "The flow log at both ports",
    about: "Two pods of an L2 network on a node, without the flow log, and with it at several rates: taps \
            at both ports look at each packet, and of one in so many the agent gets the first bytes \
            and writes flows each second. What is sampled and finds no room in its ring costs less: \
            at 1 of 1 that is most of it.",
    run: Run::Alone(run),
};

const NETWORK: &str = "blue";
/// Frames of which one is sampled; none without the flow log.
const RATES: [(&str, Option<u32>); 4] = [
    ("no flow log", None),
    ("1 of 1000", Some(1000)),
    ("1 of 100", Some(100)),
    ("1 of 1", Some(1)),
];

/// A node at one rate, with its pods.
struct Ground {
    who: &'static str,
    sides: [Side; 2],
    _pods: [Sandbox; 2],
    node: Node,
    log: FlowLog,
    sampled: bool,
}

impl Ground {
    fn start(bench: &Bench<'_>, who: &'static str, one_of: Option<u32>) -> Result<Self> {
        let log = FlowLog::default();
        let mut setup = Setup::empty().network(&Network::l2(NETWORK, &["10.10.0.0/24"]));
        if let Some(one_of) = one_of {
            setup = log.of(setup, one_of);
        }
        let node = Node::start(setup);
        let plugin = podnet_plugin(who, &node, NETWORK);
        let side = |end: &str| -> Result<(Side, Sandbox)> {
            let place = one_of.unwrap_or(0);
            let pod = Sandbox::create(bench.dir, &format!("flows-{place}-{end}"))?;
            let (_, result) = plugin.call("ADD", Some(&pod))?;
            Ok((Side::of_result(&pod, &result)?, pod))
        };
        let ((a, first), (b, second)) = (side("a")?, side("b")?);
        if one_of.is_some() {
            FlowLog::wait_for_ports(&node, 2);
        }
        wait_promoted(&node)?;
        Ok(Self {
            who,
            sides: [a, b],
            _pods: [first, second],
            node,
            log,
            sampled: one_of.is_some(),
        })
    }
}

fn run(bench: &Bench<'_>, case: &mut Case) -> Result<()> {
    case.subjects = names(&RATES.map(|(who, _)| who));
    bench.progress.stage("setting up");
    let mut grounds = Vec::new();
    for (who, one_of) in RATES {
        grounds.push(Ground::start(bench, who, one_of)?);
    }
    let ways: Vec<Way<'_>> = grounds
        .iter()
        .map(|ground| Way {
            who: ground.who,
            a: &ground.sides[0],
            b: &ground.sides[1],
        })
        .collect();
    packets::measure(bench, case, "", &ways)?;
    for ground in &grounds {
        let samples = FlowLog::metric(
            &ground.node,
            "podnet_flow_log_samples_total{outcome=\"logged\"}",
        );
        if samples.is_some_and(|count| count > 0) != ground.sampled {
            bail!("{}: the flow log has {samples:?} samples", ground.who);
        }
        if ground.sampled {
            // Lines are written each second, and a quick run may be over before.
            let what = format!("a line of the flow log at {}", ground.who);
            wait::until_true(&what, || !ground.log.lines().is_empty());
        }
    }
    Ok(())
}
