//! Measure packets and the agent's memory with more and more on the node.

mod world;

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use datapath::{Datapath, Entries, Options as DatapathOptions, PinDir, Trial};
use netdev::Netns;
use testbed::{Network, Node};

use self::world::world;
use super::fill::fill;
use super::packets::{self, Way};
use super::{Bench, Known, Run, agent_of, names, wait_promoted};
use crate::cpu;
use crate::interrupt;
use crate::peers::{podnet, podnet_plugin};
use crate::report::{Axis, Better, Case};
use crate::sandbox::{Sandbox, Side};

/// Networks and ports, 1 to 2,000.
pub(super) const CASE: Known = Known {
    name: "scale",
    title: "Many networks and ports on one node",
    about: "First the programs alone, by BPF_PROG_TEST_RUN, on maps with few and many entries; then real \
            agents with real ports, and traffic between two of them. Ratios are of the largest \
            over the node with one network and two ports: 1.00 is flat.",
    run: Run::Alone(run),
};

/// `TC_ACT_REDIRECT` of `linux/pkt_cls.h`.
const REDIRECT: u32 = 7;
/// Frames of a test run, which takes a few hundredths of a second.
///
/// Little else gets in between in that time.
const REPEAT: u32 = 200_000;
/// Interfaces in one namespace, which is cheaper than as many pods.
const PER_POD: usize = 100;
/// Ports at which the agent's memory is looked at last; in a quick run.
const MOST: (usize, usize) = (4000, 80);
const TRIAL: &str = "Programs alone";

fn run(bench: &Bench<'_>, case: &mut Case) -> Result<()> {
    let (networks, ports) = bench.size((2000, 1000), (100, 50));
    case.subjects = names(&[
        &named(1, bench.size(MOST.0, MOST.1)),
        &named(networks, 2 * networks),
        &named(1, ports),
        &named(networks, ports),
    ]);
    bench.progress.stage("programs alone");
    let netns = Netns::create()?;
    netns.run_in(|| trials(bench, networks, ports, case))??;
    real(bench, networks, ports, case)
}

fn named(networks: usize, ports: usize) -> String {
    let s = |count| if count == 1 { "" } else { "s" };
    let number = |count: usize| crate::report::text::thousands(&count.to_string());
    format!(
        "{} network{}, {} port{}",
        number(networks),
        s(networks),
        number(ports),
        s(ports)
    )
}

/// Programs on filled maps, one set after the other in each round.
fn trials(bench: &Bench<'_>, networks: usize, ports: usize, case: &mut Case) -> Result<()> {
    let object = bench
        .object
        .clone()
        .context("PODNET_EBPF_OBJECT does not name the eBPF object")?;
    let by_networks = [1, 10, 100, 1000, 2000].map(|count| (count, 2 * count));
    let by_ports = [10, 100, 1000, 2000].map(|count| (1, count));
    let sizes = by_networks
        .into_iter()
        .filter(|(count, _)| *count <= networks)
        .chain(
            by_ports
                .into_iter()
                .filter(|(_, count)| *count <= 2 * ports),
        )
        .chain([(1, ports)]);
    let mut sets: Vec<(usize, usize, Datapath, Vec<u8>, Pins)> = Vec::new();
    for (networks, ports) in sizes {
        if sets.iter().any(|set| (set.0, set.1) == (networks, ports)) {
            continue;
        }
        let name = format!("podnet-bench-{}-{}", std::process::id(), sets.len());
        let path = datapath::bpffs::find(&PathBuf::from("/sys/fs/bpf").join(name))?;
        let pins = Pins(path.clone());
        let mut datapath = Datapath::open(&DatapathOptions {
            object: Some(object.clone()),
            ..DatapathOptions::new(path)
        })?;
        let (entries, frame) = world(networks, ports)?;
        datapath.tables().apply(&Entries::default(), &entries)?;
        sets.push((networks, ports, datapath, frame, pins));
    }
    let rounds = bench.rounds(40);
    bench.progress.expect(rounds);
    for round in 0..rounds {
        interrupt::check()?;
        for turn in 0..sets.len() {
            let (networks, ports, datapath, frame, _) = &sets[(turn + round) % sets.len()];
            let result = datapath.try_frame(&Trial {
                frame,
                repeat: REPEAT,
            })?;
            if result.verdict != REDIRECT {
                bail!("the frame was not delivered: verdict {}", result.verdict);
            }
            case.measure("", TRIAL, "ns/packet", Better::Less).put(
                &named(*networks, *ports),
                round,
                result.duration.as_secs_f64() * 1e9,
            );
        }
        bench.progress.step();
    }
    let sizes: Vec<(usize, usize)> = sets.iter().map(|set| (set.0, set.1)).collect();
    for (line, of_networks) in [
        ("networks of two ports", true),
        ("ports of one network", false),
    ] {
        let mut points = Vec::new();
        for (networks, ports) in &sizes {
            let belongs = if of_networks {
                *ports == 2 * *networks
            } else {
                *networks == 1
            };
            let measure = case.measure("", TRIAL, "ns/packet", Better::Less);
            let who = named(*networks, *ports);
            let row = measure.rows.iter().find(|row| row.who == who);
            if let Some(row) = row.filter(|_| belongs) {
                let count = if of_networks { *networks } else { *ports };
                points.push([count as f64, row.values.median()]);
            }
        }
        points.sort_by(|a, b| a[0].total_cmp(&b[0]));
        case.plot(
            "Programs alone by how much there is",
            Axis::Count,
            "count",
            "ns/packet",
        )
        .line(line, points);
    }
    Ok(())
}

/// Pins that go when the measurement ends.
struct Pins(PathBuf);

impl Drop for Pins {
    fn drop(&mut self) {
        if let Err(error) = PinDir::new(self.0.clone()).remove() {
            eprintln!("bench: {error}");
        }
    }
}

/// A node with two pods that are measured, and whatever else there is on it.
struct Real {
    who: String,
    // Before the node: namespaces take their links along, all at once.
    pods: Vec<Sandbox>,
    a: Side,
    b: Side,
    node: Node,
}

/// Agents with few and with many real ports, and traffic between two of them.
fn real(bench: &Bench<'_>, networks: usize, ports: usize, case: &mut Case) -> Result<()> {
    let some = ports.min(250);
    bench.progress.stage("starting agents");
    let mut reals = [
        Real::start(bench, "few", 1)?,
        Real::start(bench, "ports", 1)?,
        Real::start(bench, "nets", networks)?,
    ];
    let mut memory = |who: &str, node: &Node| -> Result<()> {
        let value = cpu::memory_of(agent_of(node)?)?;
        case.measure("", "Agent's memory (RSS)", "MiB", Better::Less)
            .put(who, 0, value);
        Ok(())
    };
    memory(&named(1, 2), &reals[0].node)?;
    for (index, networks) in [(1, 1), (2, networks)] {
        let real = &mut reals[index];
        memory(&named(networks, 2), &real.node)?;
        let steps = if some < ports {
            vec![some, ports]
        } else {
            vec![ports]
        };
        for ports in steps {
            bench
                .progress
                .stage(&format!("attaching {}", named(networks, ports)));
            real.attach_more(bench, ports, networks)?;
            wait_promoted(&real.node)?;
            memory(&named(networks, ports), &real.node)?;
        }
        real.who = named(networks, ports);
    }
    wait_promoted(&reals[0].node)?;
    let ways = reals.each_ref().map(|real| Way {
        who: &real.who,
        a: &real.a,
        b: &real.b,
    });
    packets::measure(bench, case, ", by scale", &ways)?;
    let most = bench.size(MOST.0, MOST.1);
    bench
        .progress
        .stage(&format!("attaching {}", named(1, most)));
    let node = &reals[1].node;
    let plugin = podnet_plugin("podnet", node, &network_name(0));
    let missing = most - node.attachments().len();
    let _more = fill(&plugin, bench.dir, "scale-more", missing)?;
    wait_promoted(node)?;
    let value = cpu::memory_of(agent_of(node)?)?;
    case.measure("", "Agent's memory (RSS)", "MiB", Better::Less)
        .put(&named(1, most), 0, value);
    bench.progress.say("taking it down");
    Ok(())
}

impl Real {
    fn start(bench: &Bench<'_>, label: &str, networks: usize) -> Result<Self> {
        let subnets = ["10.10.0.0/20", "fd10:10::/64"];
        let list: Vec<Network> = (0..networks)
            .map(|number| Network::l2(&network_name(number), &subnets))
            .collect();
        let node = podnet(&list);
        let (mut pods, mut sides) = (Vec::new(), Vec::new());
        for end in ["a", "b"] {
            let pod = Sandbox::create(bench.dir, &format!("{label}-{end}"))?;
            let first = network_name(0);
            let (_, result) = podnet_plugin(&first, &node, &first).call("ADD", Some(&pod))?;
            sides.push(Side::of_result(&pod, &result)?);
            pods.push(pod);
        }
        let (Some(b), Some(a)) = (sides.pop(), sides.pop()) else {
            bail!("two pods were attached");
        };
        Ok(Self {
            who: named(1, 2),
            pods,
            a,
            b,
            node,
        })
    }

    /// Attaches until there are that many ports, spread over the networks.
    fn attach_more(&mut self, bench: &Bench<'_>, ports: usize, networks: usize) -> Result<()> {
        let held = self.node.attachments().len();
        let mut place: Option<Sandbox> = None;
        for number in held..ports {
            if number % PER_POD == 0 || place.is_none() {
                let name = format!("{}-{number}", self.pods[0].name());
                self.pods
                    .extend(place.replace(Sandbox::create(bench.dir, &name)?));
            }
            let pod = place.as_ref().context("a pod was just made")?;
            let network = network_name(number % networks);
            podnet_plugin(&network, &self.node, &network).call_as(
                "ADD",
                pod,
                &format!("net{number}"),
            )?;
        }
        self.pods.extend(place);
        Ok(())
    }
}

fn network_name(number: usize) -> String {
    format!("n{number}")
}
