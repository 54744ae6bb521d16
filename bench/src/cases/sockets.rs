//! Ports that are sockets, talking to pods of the kernel.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use testbed::{Network, Node, Setup, manifest};

use super::{Bench, Known, ROUNDS, Run, names, wait_promoted};
use crate::cpu;
use crate::interrupt;
use crate::peers::{Role, Spot, other_sockets};
use crate::report::{Better, Case};
use crate::traffic::process::Process;
use crate::traffic::{Mode, cpus, order};

/// Packets, round trips, and what an idle switch takes.
pub(super) const CASE: Known = Known {
    name: "sockets",
    title: "Between ports that are sockets and pods of the kernel",
    about: "An application moves packets by itself on one CPU; a pod of the kernel on the same L2 \
            network, a UDP socket on the other CPU, counts what arrives of what the application sends, \
            sends to it as fast as it goes, or asks it and waits for the answer. 64 B are 18 bytes of \
            payload, 1500 B are packets as long as the MTU. podnet's memif and AF_XDP ports, beside \
            AF_PACKET (sendmmsg, recvmmsg) on podnet's and on a bare veth, and testpmd whose TAP device \
            is the very interface of the kernel's pod, with no network between. Applications sleep \
            when nothing comes, but testpmd cannot. The switch of memif has no CPU of its own here: \
            it shares the two.",
    run: Run::Alone(run),
};

const MEMIF: &str = "podnet memif";
const AF_XDP: &str = "podnet AF_XDP";
const AF_PACKET: &str = "podnet veth, AF_PACKET";
pub(super) const NETWORK: &str = "blue";
/// For tables, and bytes of payload.
const SIZES: [(&str, usize); 2] = [("64 B", 18), ("1500 B", 1500 - 28)];
/// Attempts: the kernel starts a new interface's queue a moment after it is up.
const TRIES: usize = 3;
/// Ports that nothing happens at.
const IDLE_PORTS: usize = 20;

fn run(bench: &Bench<'_>, case: &mut Case) -> Result<()> {
    case.subjects = names(&[MEMIF, AF_XDP]);
    bench.progress.stage("setting up");
    let node = node();
    idle(bench, case, &node)?;
    traffic(bench, case, &node)
}

/// A node with a network on which ports may be of every kind.
fn node() -> Node {
    Node::start(with_sockets(
        Setup::empty().network(&Network::l2(NETWORK, &["10.10.0.0/24"])),
    ))
}

/// With attachments to the network whose ports are sockets: `memif` and `afxdp`.
pub(super) fn with_sockets(setup: Setup) -> Setup {
    ["Memif", "AFXDP"].into_iter().fold(setup, |setup, kind| {
        let spec = format!("{{interface: {{type: {kind}}}}}");
        let name = kind.to_lowercase();
        let text = manifest::attachment(&name, NETWORK, &spec);
        setup.file(&format!("{name}.yaml"), &text)
    })
}

/// The configuration of a port of a kind.
fn conf(node: &Node, kind: &str) -> serde_json::Value {
    node.attachment_conf(NETWORK, &format!("default/{kind}"))
}

/// Measures the switch with ports and connected clients, but without traffic.
fn idle(bench: &Bench<'_>, case: &mut Case, node: &Node) -> Result<()> {
    bench.progress.stage("an idle switch");
    let pods: Vec<_> = (0..IDLE_PORTS)
        .map(|number| node.pod(&format!("idle{number}")))
        .collect();
    let mut applications = Vec::new();
    for pod in &pods {
        pod.attach_conf(&conf(node, "memif"), "net1");
        let mut command = Command::new("/proc/self/exe");
        command.args(["app", "memif", "count"]);
        let mut process = Process::start(command, pod.netns())?;
        process.wait_for("ready", Duration::from_secs(10))?;
        applications.push(process);
    }
    let switch = switch_of(node)?;
    // Clients are new, and the switch has not gone to sleep for long yet.
    thread::sleep(Duration::from_secs(1));
    let rest = Duration::from_secs(bench.size(10, 1));
    for round in 0..bench.rounds(ROUNDS) {
        interrupt::check()?;
        let (before, started) = (cpu::run_time_of(switch)?, Instant::now());
        thread::sleep(rest);
        let spent = cpu::run_time_of(switch)?.saturating_sub(before);
        let share = spent.as_secs_f64() / started.elapsed().as_secs_f64();
        let line = format!("{IDLE_PORTS} connected ports, nothing to do");
        case.measure("CPU of the switch", &line, "% of a core", Better::Less)
            .put(MEMIF, round, share * 100.0);
    }
    for process in applications {
        process.terminate()?;
    }
    for pod in &pods {
        pod.call("DEL", "net1")
            .conf(&conf(node, "memif"))
            .run()
            .silent();
    }
    Ok(())
}

/// The process that answers at the switch's socket.
fn switch_of(node: &Node) -> Result<u32> {
    let socket = node.socket().with_file_name("switch").join("switch.sock");
    let socket = socket.to_str().context("a path that is text")?.as_bytes();
    for entry in fs::read_dir("/proc")?.flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse() else {
            continue;
        };
        // It may have ended meanwhile.
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let mut words = line.split(|byte| *byte == 0);
        if words.any(|word| word == b"switch") && words.any(|word| word == socket) {
            return Ok(pid);
        }
    }
    bail!("no switch runs")
}

fn traffic(bench: &Bench<'_>, case: &mut Case, node: &Node) -> Result<()> {
    let pods = ["memif", "afxdp", "packet", "kernel"].map(|name| node.pod(name));
    let [memif, afxdp, packet, kernel] = &pods;
    let memif = memif.attach_conf(&conf(node, "memif"), "net1");
    let afxdp = afxdp.attach_conf(&conf(node, "afxdp"), "net1");
    let (packet, kernel) = (
        packet.attach(NETWORK, "net1"),
        kernel.attach(NETWORK, "net1"),
    );
    wait_promoted(node)?;
    let mut spots = vec![
        Spot::of_podnet(MEMIF, "memif", &memif, &kernel),
        Spot::of_podnet(AF_XDP, "af-xdp", &afxdp, &kernel),
        Spot::of_podnet(AF_PACKET, "packet", &packet, &kernel),
    ];
    for (who, spot) in other_sockets(bench.peers, bench.dir) {
        match spot {
            Ok(spot) => spots.push(spot),
            Err(error) => case.miss(&who, &format!("{error:#}")),
        }
    }
    let time = Duration::from_millis(bench.size(800, 150));
    alternate(bench, case, &spots, |spot, round, case| {
        measure(spot, round, time, case)
    })
}

/// Measures all spots round by round, each round starting with another spot.
///
/// A spot that fails is left out from then on, with the reason.
///
/// # Errors
/// The run is interrupted.
pub(super) fn alternate(
    bench: &Bench<'_>,
    case: &mut Case,
    spots: &[Spot],
    mut one: impl FnMut(&Spot, usize, &mut Case) -> Result<()>,
) -> Result<()> {
    let rounds = bench.rounds(ROUNDS);
    let mut out = vec![false; spots.len()];
    bench.progress.stage("packets and round trips");
    bench.progress.expect(rounds * spots.len());
    for round in 0..rounds {
        for turn in 0..spots.len() {
            let number = (turn + round) % spots.len();
            let spot = &spots[number];
            bench.progress.say(&spot.who);
            if !out[number]
                && let Err(error) = one(spot, round, case)
            {
                interrupt::check()?;
                case.miss(&spot.who, &format!("round {}: {error:#}", round + 1));
                out[number] = true;
            }
            bench.progress.step();
        }
    }
    Ok(())
}

/// Everything once, of one of them.
fn measure(spot: &Spot, round: usize, time: Duration, case: &mut Case) -> Result<()> {
    let [own, _] = cpus();
    let run = |mode| order::run(mode, &spot.kernel, &spot.app, time);
    for (size, bytes) in SIZES {
        let mut answer = order::Answer::default();
        for _ in 0..TRIES {
            let application = spot.start(Role::Generate(bytes), own)?;
            answer = run(Mode::FromApplication)?;
            application.end().context("the generator")?;
            if answer.received > 0 {
                break;
            }
        }
        if answer.received == 0 {
            bail!("nothing arrives of what the application sends");
        }
        let name = format!("UDP {size}, to a kernel pod");
        case.measure("", &name, "kpps", Better::More)
            .put(&spot.who, round, answer.value);

        to_application(spot, round, time, (size, bytes), case)?;
    }
    ask(spot, round, time, SIZES[0].1, case)
}

/// Packets of a size, in words and bytes of payload, to the application.
///
/// # Errors
/// None arrives.
pub(super) fn to_application(
    spot: &Spot,
    round: usize,
    time: Duration,
    (name, size): (&str, usize),
    case: &mut Case,
) -> Result<()> {
    let application = spot.start(Role::Count, cpus()[0])?;
    let answer = order::run(Mode::ToApplication { size }, &spot.kernel, &spot.app, time)?;
    let tally = application.end().context("the counter")?;
    if tally.received == 0 {
        bail!("nothing arrives at the application");
    }
    let name = format!("UDP {name}, from a kernel pod");
    // Of what was sent at that pace, a part arrived.
    let share = tally.received as f64 / answer.sent as f64;
    case.measure("", &name, "kpps", Better::More)
        .put(&spot.who, round, answer.value * share);
    Ok(())
}

/// Round trips with so many bytes of payload.
///
/// # Errors
/// The application does not answer.
pub(super) fn ask(
    spot: &Spot,
    round: usize,
    time: Duration,
    size: usize,
    case: &mut Case,
) -> Result<()> {
    let application = spot.start(Role::Echo, cpus()[0])?;
    let mode = Mode::AskApplication { size };
    let answer = order::run(mode, &spot.kernel, &spot.app, time)?;
    application.end().context("the echo")?;
    for (percent, suffix) in [(50.0, "p50"), (99.0, "p99")] {
        let name = format!("UDP round trip from a kernel pod, {suffix}");
        case.measure("", &name, "us", Better::Less)
            .put(&spot.who, round, answer.at(percent));
    }
    Ok(())
}
