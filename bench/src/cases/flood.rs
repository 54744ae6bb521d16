//! Measure the cost of broadcasts by the number of ports, and of a flood to others.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use testbed::{Network, Node, Setup};

use super::fill::fill;
use super::latency::Curves;
use super::{Bench, Known, ROUNDS, Run, names, wait_promoted};
use crate::cpu;
use crate::interrupt;
use crate::peers::{Bed, Peer, podnet_plugin, without_nf_call};
use crate::plugin::Plugin;
use crate::report::text::thousands;
use crate::report::{Better, Case};
use crate::sandbox::{Sandbox, Side};
use crate::traffic::cpus;
use crate::traffic::order::{self, Mode};

/// Broadcasts on an L2 network.
pub(super) const CASE: Known = Known {
    name: "flood",
    title: "Broadcasts on an L2 network",
    about: "A pod sends a datagram of 18 bytes to 255.255.255.255, on a network of so many ports, all on one CPU. The \
            next one follows when a pod that has the first and the last port of the network has got both of \
            its copies: the time of one is what all copies cost, up to each pod's stack. Storm control is \
            set to its highest here. Then a pod sends broadcasts as fast as it goes on one CPU, with storm control \
            as it is by default, and two other pods of its network send each other datagrams on the other CPU. CPU \
            in interrupts is the whole machine's meanwhile.",
    run: Run::Alone(run),
};

const PODNET: &str = "podnet";
const NETWORK: &str = "flood";
const SUBNET: &str = "10.10.0.0/20";
/// Ports; a bridge has 1,023 at most.
const SIZES: [usize; 4] = [16, 64, 250, 1000];
const QUICK: [usize; 2] = [8, 16];
/// Largest value of an option of storm control.
const HIGHEST: &str = "100000000";
const STORMS: [&str; 3] = ["--storm-port", "--storm-network", "--storm-node"];
/// Ports of the flooder, the receiver, which has two, and the pair.
const OWN_PORTS: usize = 5;

/// A network of somebody, with a pod that floods and pods that suffer.
struct Ground {
    who: &'static str,
    ports: usize,
    flooder: Side,
    receiver: Side,
    pair: [Side; 2],
    // Before what they are attached to.
    pods: Vec<Sandbox>,
    _bed: Option<Bed>,
    _podnet: Option<Node>,
}

fn run(bench: &Bench<'_>, case: &mut Case) -> Result<()> {
    case.subjects = names(&[PODNET]);
    let sizes = bench.size(&SIZES[..], &QUICK[..]);
    let mut grounds = Vec::new();
    for ports in sizes {
        bench.progress.stage(&format!("attaching {ports} ports"));
        grounds.push(Ground::podnet(bench, *ports, true)?);
        bridge(bench, *ports, &mut grounds, case)?;
    }
    one_by_one(bench, &grounds, case)?;
    // The largest but one: that of a large node.
    let ports = sizes[sizes.len() - 2];
    grounds.retain(|ground| ground.ports == ports && ground.who != PODNET);
    bench.progress.stage("beside one who floods");
    grounds.push(Ground::podnet(bench, ports, false)?);
    beside(bench, &grounds, case)
}

/// The usual way, where it is wanted and can be had.
fn bridge(
    bench: &Bench<'_>,
    ports: usize,
    grounds: &mut Vec<Ground>,
    case: &mut Case,
) -> Result<()> {
    let peer = Peer::Bridge;
    if !bench.has(peer) {
        return Ok(());
    }
    match Ground::bridge(bench, ports) {
        Ok(ground) => grounds.push(ground),
        Err(error) => {
            interrupt::check()?;
            case.miss(peer.label(), &format!("{ports} ports: {error:#}"));
        }
    }
    Ok(())
}

fn one_by_one(bench: &Bench<'_>, grounds: &[Ground], case: &mut Case) -> Result<()> {
    bench.progress.stage("one by one");
    let rounds = bench.rounds(ROUNDS);
    let time = Duration::from_millis(bench.size(600, 200));
    bench.progress.expect(rounds * grounds.len());
    for round in 0..rounds {
        for turn in 0..grounds.len() {
            let ground = &grounds[(turn + round) % grounds.len()];
            let count = thousands(&ground.ports.to_string());
            bench
                .progress
                .say(&format!("{count} ports: {}", ground.who));
            let before = ground.received()?;
            let (from, to) = (&ground.flooder, &ground.receiver);
            let answer = order::run(Mode::Broadcast, from, to, time)?;
            let copies = (ground.received()? - before) as f64;
            let wanted = answer.sent as f64 * (ground.ports - 1) as f64;
            case.measure(
                "",
                &format!("Broadcast to {count} ports, 1 CPU"),
                "us",
                Better::Less,
            )
            .put(ground.who, round, answer.value);
            let line = format!("{count} ports");
            case.measure("Copies that came", &line, "% of all", Better::More)
                .put(ground.who, round, (copies / wanted * 100.0).min(100.0));
            bench.progress.step();
        }
    }
    Ok(())
}

/// Round trips of two pods, alone and while a third floods.
fn beside(bench: &Bench<'_>, grounds: &[Ground], case: &mut Case) -> Result<()> {
    let rounds = bench.rounds(ROUNDS);
    let time = Duration::from_millis(bench.size(800, 200));
    let [own, other] = cpus();
    let mut curves = Curves::default();
    bench.progress.expect(rounds * grounds.len());
    for round in 0..rounds {
        for turn in 0..grounds.len() {
            let ground = &grounds[(turn + round) % grounds.len()];
            bench.progress.say(ground.who);
            let [a, b] = &ground.pair;
            let idle = order::run(Mode::UdpTrip, a, b, time)?;
            let longer = time + Duration::from_millis(400);
            let (from, to) = (&ground.flooder, &ground.receiver);
            let storm = order::start_on(Mode::Storm, from, to, longer, [other, own])?;
            std::thread::sleep(Duration::from_millis(200));
            let before = cpu::Machine::now()?;
            let loaded = order::run(Mode::UdpTrip, a, b, time)?;
            let interrupts = before.spent()?.interrupts;
            let storm = storm.finish()?;
            let name = "UDP round trip beside one who floods, 1 CPU";
            for (percent, suffix) in [(50.0, "p50"), (99.0, "p99")] {
                case.measure("", &format!("{name}, {suffix}"), "us", Better::Less)
                    .put(ground.who, round, loaded.at(percent));
                let line = format!("round trip, {suffix}");
                case.measure("With nobody who floods", &line, "us", Better::Less)
                    .put(ground.who, round, idle.at(percent));
            }
            curves.add(ground.who, &loaded.percentiles);
            let share = interrupts / time.as_secs_f64() * 100.0;
            case.measure(
                "",
                "CPU in interrupts beside one who floods",
                "% of a core",
                Better::Less,
            )
            .put(ground.who, round, share);
            case.measure("Who floods", "sends", "thousand/s", Better::Less)
                .put(ground.who, round, storm.value);
            bench.progress.step();
        }
    }
    curves.draw(case, "UDP round trip beside one who floods", "us");
    Ok(())
}

impl Ground {
    fn podnet(bench: &Bench<'_>, ports: usize, free: bool) -> Result<Self> {
        let mut setup = Setup::empty().network(&Network::l2(NETWORK, &[SUBNET]));
        if free {
            for option in STORMS {
                setup = setup.args(&[option, HIGHEST]);
            }
        }
        let node = Node::start(setup);
        let plugin = podnet_plugin(PODNET, &node, NETWORK);
        let label = format!("podnet-{ports}-{free}");
        let mut ground = Self::attach(bench, PODNET, &plugin, (&label, ports))?;
        wait_promoted(&node)?;
        ground._podnet = Some(node);
        Ok(ground)
    }

    fn bridge(bench: &Bench<'_>, ports: usize) -> Result<Self> {
        let peer = Peer::Bridge;
        let label = format!("bridge-{ports}");
        let bed = Bed::make(peer, &format!("flood {label}"), bench.dir, &[SUBNET])?;
        without_nf_call(bed.host.netns())?;
        let mut ground = Self::attach(bench, peer.label(), &bed.plugin, (&label, ports))?;
        ground._bed = Some(bed);
        Ok(ground)
    }

    /// The receiver's ports are the first and the last of the network.
    fn attach(
        bench: &Bench<'_>,
        who: &'static str,
        plugin: &Plugin,
        (label, ports): (&str, usize),
    ) -> Result<Self> {
        let Some(others) = ports.checked_sub(OWN_PORTS) else {
            bail!("{ports} ports are too few");
        };
        let mut pods = Vec::new();
        let mut side = |name: &str| -> Result<Side> {
            let pod = Sandbox::create(bench.dir, &format!("flood-{label}-{name}"))?;
            // Copies of one frame come by two interfaces of the receiver.
            pod.netns().run_in(|| {
                ["all", "default"].into_iter().try_for_each(|which| {
                    fs::write(format!("/proc/sys/net/ipv4/conf/{which}/rp_filter"), "0")
                })
            })??;
            let (_, result) = plugin.call_as("ADD", &pod, "net1")?;
            let side = Side::of_result(&pod, &result)?;
            pods.push(pod);
            Ok(side)
        };
        let receiver = side("receiver")?;
        let flooder = side("flooder")?;
        let pair = [side("a")?, side("b")?];
        pods.extend(fill(plugin, bench.dir, &format!("flood-{label}"), others)?);
        let last = pods.first().context("the receiver was just made")?;
        plugin.call_as("ADD", last, "net2")?;
        Ok(Self {
            who,
            ports,
            flooder,
            receiver,
            pair,
            pods,
            _bed: None,
            _podnet: None,
        })
    }

    /// Packets that interfaces of all pods have received.
    fn received(&self) -> Result<u64> {
        let mut sum = 0;
        for pod in &self.pods {
            let text = pod
                .netns()
                .run_in(|| fs::read_to_string("/proc/thread-self/net/dev"))??;
            sum += received(&text);
        }
        Ok(sum)
    }
}

/// Packets received by all interfaces `net…` (proc_net_dev(5)).
fn received(text: &str) -> u64 {
    text.lines()
        .filter_map(|line| line.trim().strip_prefix("net")?.split_once(':'))
        .filter_map(|(_, numbers)| numbers.split_whitespace().nth(1)?.parse::<u64>().ok())
        .sum()
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn received_packets_are_those_of_all_ports_but_loopback() {
        let text = "Inter-|   Receive  |  Transmit\n face |bytes    packets errs\n    \
                    lo:     100       7    0    0\n  net1: 1000      12    0    0\n\
                    net20:     60       3    0    0\n";
        assert_eq!(received(text), 15);
        assert_eq!(received(""), 0);
    }
}
