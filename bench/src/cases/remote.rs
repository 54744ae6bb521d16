//! Measure packets, attachments and memory with many members on other nodes.
//!
//! A further figure is the time until a member is found where it has gone.

mod crowd;
mod moves;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;
use testbed::{Fabric, Network, Node, Setup};

use self::crowd::Crowd;
use super::packets::{self, Way};
use super::{Bench, Known, Run, agent_of, millis, names, wait_promoted};
use crate::cpu;
use crate::interrupt;
use crate::peers::{meet, podnet_plugin};
use crate::report::text::thousands;
use crate::report::{Better, Case};
use crate::sandbox::{Sandbox, Side};

/// Networks and members on other nodes, 1 to 10,000.
pub(super) const CASE: Known = Known {
    name: "remote",
    title: "Many members on other nodes",
    about: "Two nodes on a veth link whose networks have members on 100 more nodes, as files say that \
            nobody but the two reads. Traffic is between pods of the two. Members have a MAC and an IPv4 \
            address, which is three entries in the tables of an L2 network. The memory of maps is what \
            the kernel says of them. A move: from the moment at which the file of the new node is \
            there, to the first packet that gets to that node. Ratios are over one network with one member: 1.00 \
            is flat.",
    run: Run::Alone(run),
};

/// Interfaces in one namespace, which is cheaper than as many pods.
const PER_POD: usize = 100;

/// How much there is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    networks: usize,
    members: usize,
}

impl Size {
    fn named(self) -> String {
        let s = |count| if count == 1 { "" } else { "s" };
        let number = |count: usize| thousands(&count.to_string());
        format!(
            "{} network{}, {} member{}",
            number(self.networks),
            s(self.networks),
            number(self.members),
            s(self.members)
        )
    }
}

fn run(bench: &Bench<'_>, case: &mut Case) -> Result<()> {
    let (networks, members) = bench.size((1000, 10_000), (20, 1000));
    let sizes = [(1, 1), (1, members), (networks, members)];
    let sizes = sizes.map(|(networks, members)| Size { networks, members });
    case.subjects = names(&[&sizes[2].named(), &sizes[1].named()]);
    let mut beds = Vec::new();
    for size in sizes {
        bench.progress.stage(&format!("starting {}", size.named()));
        beds.push(Bed::start(bench, size)?);
    }
    for bed in &beds {
        let node = bed.nodes.first().context("two nodes")?;
        let agent = agent_of(node)?;
        case.measure("Memory", "agent (RSS)", "MiB", Better::Less)
            .put(&bed.who, 0, cpu::memory_of(agent)?);
        if let Some(maps) = cpu::maps_of(agent)? {
            case.measure("Memory", "maps", "MiB", Better::Less)
                .put(&bed.who, 0, maps);
        }
    }
    let ways: Vec<Way<'_>> = beds
        .iter()
        .map(|bed| Way {
            who: &bed.who,
            a: &bed.a,
            b: &bed.b,
        })
        .collect();
    packets::measure(bench, case, "", &ways)?;
    attach(bench, &beds, case)?;
    bench.progress.say("taking it down");
    drop(beds);
    moves::run(bench, &sizes[..2], case)
}

/// One more pod on the network, and away with it.
fn attach(bench: &Bench<'_>, beds: &[Bed], case: &mut Case) -> Result<()> {
    bench.progress.stage("attaching");
    let rounds = bench.rounds(40);
    bench.progress.expect(rounds);
    let pods = beds.iter().enumerate().map(|(number, _)| {
        let name = format!("remote-more-{number}");
        Sandbox::create(bench.dir, &name)
    });
    let pods = pods.collect::<Result<Vec<_>>>()?;
    for round in 0..rounds {
        for turn in 0..beds.len() {
            let number = (turn + round) % beds.len();
            let (bed, pod) = (&beds[number], &pods[number]);
            let network = crowd::network(0);
            let plugin = podnet_plugin(&network, &bed.nodes[0], &network);
            for command in ["ADD", "DEL"] {
                let (time, _) = plugin.call(command, Some(pod))?;
                case.measure("Attaching", command, "ms", Better::Less).put(
                    &bed.who,
                    round,
                    millis(time),
                );
                super::pause();
            }
        }
        bench.progress.step();
    }
    Ok(())
}

/// Two nodes, and pods on both that talk on the last of the networks.
struct Bed {
    who: String,
    // Before the nodes: namespaces take their links along, all at once.
    _pods: Vec<Sandbox>,
    a: Side,
    b: Side,
    nodes: Vec<Node>,
    _files: TempDir,
}

impl Bed {
    fn start(bench: &Bench<'_>, size: Size) -> Result<Self> {
        let files = tempfile::tempdir()?;
        Crowd::of(size).write(files.path())?;
        let (mut nodes, mut pods, mut ends) = (Vec::new(), Vec::new(), Vec::new());
        for (number, host) in (1_u8..).zip(Fabric::pair()) {
            let node = Node::start_on(setup(size, number, &files)?, host);
            for first in (0..size.networks).step_by(PER_POD) {
                let name = format!("remote-{}-{}-{number}-{first}", size.networks, size.members);
                let pod = Sandbox::create(bench.dir, &name)?;
                for at in first..size.networks.min(first + PER_POD) {
                    interrupt::check()?;
                    let network = crowd::network(at);
                    let plugin = podnet_plugin(&network, &node, &network);
                    let (_, result) = plugin.call_as("ADD", &pod, &format!("net{at}"))?;
                    if at == 0 {
                        ends.push(Side::of_result(&pod, &result)?);
                    }
                }
                pods.push(pod);
            }
            nodes.push(node);
        }
        for node in &nodes {
            wait_promoted(node)?;
            crowd::wait_known(node, size)?;
        }
        let (Some(b), Some(a)) = (ends.pop(), ends.pop()) else {
            bail!("two pods were attached");
        };
        meet(&a, &b)?;
        meet(&b, &a)?;
        Ok(Self {
            who: size.named(),
            _pods: pods,
            a,
            b,
            nodes,
            _files: files,
        })
    }
}

/// Returns the setup of an agent with these networks.
///
/// Of their addresses it gives out those that are not reserved for other nodes.
fn setup(size: Size, number: u8, files: &TempDir) -> Result<Setup> {
    let shared = files.path().to_str().context("a path in UTF-8")?;
    let vtep = Fabric::v4_of_pair(number).to_string();
    let setup = Setup::empty().named(&format!("node-{number}"));
    let setup = setup.args(&["--vtep", &vtep, "--endpoints", shared]);
    Ok((0..size.networks).fold(setup, |setup, at| {
        let others = format!("10.10.{}.0/24", if number == 1 { 1 } else { 0 });
        let network = Network::l2(&crowd::network(at), &[crowd::SUBNET])
            .exclude(&[&others, crowd::RESERVED])
            .id(crowd::id(at));
        setup.network(&network.vxlan())
    }))
}
