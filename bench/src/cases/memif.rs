//! memif to memif through podnet, and through testpmd in the same place.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use netdev::Netns;

use super::{Bench, Known, ROUNDS, Run, names};
use crate::apps::Passed;
use crate::cpu;
use crate::interrupt;
use crate::peers::{Peer, Testpmd, forwarded, provided};
use crate::report::{Better, Case};
use crate::series::Series;
use crate::traffic::cpus;
use crate::traffic::process::{Process, pinned};

/// Packets per second, and loss at half of that.
pub(super) const CASE: Known = Known {
    name: "memif",
    title: "From memif to memif",
    about: "testpmd as the load on one CPU: a client of two memif ports that sends on one what it gets by \
            the other, so that nothing is lost and the slower side sets the pace. On the other CPU what \
            is measured: testpmd's own io forwarder, which looks at nothing; podnet's library doing the \
            same (cross_connect of crates/memif); podnet's switch with two ports of a network, which \
            checks source addresses, looks destinations up and counts (switch_forward of \
            crates/uswitch); and the same with ports that policies judge, of connections that the kernel has \
            shown. Rings of 1024, bursts of 64, packets per second of both directions \
            together. A run counts only if both CPUs' pollers had 90 % of them. \"Judged in turn\" is of runs of their own, \
            in which the switch's ports are judged for 50 ms and are not for 50 ms: a virtual machine whose processors \
            are moved apart has another pace for minutes. Then, right after one more such run, a client of ours sends at half of its pace: what is lost is what was sent and never \
            came; what found no room was not sent.",
    run: Run::Alone(run),
};

const LIBRARY: &str = "podnet cross-connect";
const SWITCH: &str = "podnet switch";
const JUDGED: &str = "podnet switch, judged";
/// The same switch, whose ports are judged and are not in turn.
const TURNS: &str = "podnet switch, judged in turn";
const IO: &str = "testpmd io";
const ALL: [&str; 4] = [LIBRARY, SWITCH, JUDGED, IO];
const SIZES: [usize; 2] = [64, 1500];
/// Of the ports, in order; the switch knows who is who.
const MACS: [&str; 2] = ["02:00:00:00:00:10", "02:00:00:00:00:11"];
/// Part of its processor that each poller must have had.
const SHARE: f64 = 0.9;
/// Times that a run is repeated when somebody had less.
const TRIES: usize = 3;
/// Figures of a run that testpmd must have told, each of a second or more.
const SECONDS: usize = 2;
/// How long a program may take to listen.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the load may take until packets flow.
const BEGIN: Duration = Duration::from_secs(2);

fn run(bench: &Bench<'_>, case: &mut Case) -> Result<()> {
    if !bench.has(Peer::Testpmd) {
        case.skip(Peer::Testpmd.label(), "it is the load, and not chosen");
        return Ok(());
    }
    let testpmd = match Testpmd::find() {
        Ok(testpmd) => testpmd,
        Err(error) => {
            case.skip(Peer::Testpmd.label(), &format!("it is the load: {error:#}"));
            return Ok(());
        }
    };
    let [own, other] = cpus();
    if own == other {
        bail!("it takes two processors");
    }
    case.subjects = names(&[LIBRARY, SWITCH, JUDGED]);
    let place = Place {
        testpmd,
        netns: Netns::create()?,
    };
    let time = Duration::from_secs(bench.size(8, 6));
    let rounds = bench.rounds(ROUNDS);
    for size in SIZES {
        bench.progress.stage(&format!("{size} B"));
        bench.progress.expect(rounds * (ALL.len() + 1));
        let name = format!("memif to memif, {size} B");
        let mut rates = ALL.map(|_| Series::default());
        for round in 0..rounds {
            for turn in 0..ALL.len() {
                let number = (turn + round) % ALL.len();
                let who = ALL[number];
                bench.progress.say(who);
                if let Some(run) = place.counted(who, size, time, round, case)? {
                    rates[number].put(round, run.rate);
                    case.measure("", &name, "Mpps", Better::More)
                        .put(who, round, run.rate / 1e6);
                }
                bench.progress.step();
            }
            bench.progress.say(TURNS);
            if let Some(run) = place.counted(TURNS, size, time, round, case)? {
                let by_turns = format!("{name}, judged in turn");
                for (who, rate) in [SWITCH, JUDGED].into_iter().zip(run.turns()?) {
                    case.measure("", &by_turns, "Mpps", Better::More)
                        .put(who, round, rate / 1e6);
                }
            }
            bench.progress.step();
        }
        for (who, rates) in ALL.iter().zip(&rates) {
            if rates.present().next().is_none() {
                case.miss(who, &format!("{size} B: in no run had everybody its CPU"));
            } else if *who != IO {
                place.lose(who, size, time, case)?;
            }
        }
    }
    Ok(())
}

/// Where it is measured.
struct Place {
    testpmd: Testpmd,
    netns: Netns,
}

/// Something between two memif ports, and where these are.
struct Between {
    process: Process,
    sockets: [PathBuf; 2],
    ids: [u32; 2],
}

/// A run in a closed loop.
struct Circulated {
    /// Packets a second.
    rate: f64,
    /// The least part of its processor that a poller had.
    share: f64,
    /// Output of what is between the ports.
    said: String,
}

impl Circulated {
    /// Packets a second in turns that are not judged, and in those that are.
    fn turns(&self) -> Result<[f64; 2]> {
        let line = |line: &str| -> Option<[f64; 2]> {
            let (free, judged) = line.split_once(' ')?;
            Some([free.parse().ok()?, judged.parse().ok()?])
        };
        let told: Vec<[f64; 2]> = self.said.lines().filter_map(line).collect();
        // Before the load begins and after it has ended nothing goes through, and less in the turns next to that.
        let moves = |both: &[f64; 2]| both.iter().any(|rate| *rate > 0.0);
        let first = told.iter().position(moves).unwrap_or(told.len());
        let last = told.iter().rposition(moves).unwrap_or(0);
        let all = told.get(first + 1..last).unwrap_or_default();
        if all.iter().flatten().any(|rate| *rate <= 0.0) {
            bail!(
                "nothing went through in a turn while packets went round: the switch or the load has lost them"
            );
        }
        if all.len() < SECONDS {
            bail!("the switch tells of less than {SECONDS} turns in which anything went through");
        }
        Ok([0, 1].map(|at| all.iter().map(|both| both[at]).sum::<f64>() / all.len() as f64))
    }
}

impl Place {
    /// A run in which everybody had its processor.
    fn counted(
        &self,
        who: &str,
        size: usize,
        time: Duration,
        round: usize,
        case: &mut Case,
    ) -> Result<Option<Circulated>> {
        let mut least = 0.0;
        for _ in 0..TRIES {
            interrupt::check()?;
            let run = self.circulate(who, size, time)?;
            if run.share >= SHARE {
                return Ok(Some(run));
            }
            least = run.share;
        }
        let run = format!("{who}, {size} B, round {}", round + 1);
        case.miss(&run, &lacked(least));
        Ok(None)
    }

    /// Lets packets go round in a closed loop.
    fn circulate(&self, who: &str, size: usize, time: Duration) -> Result<Circulated> {
        let between = self.between(who)?;
        let device = |number: usize| {
            format!(
                "net_memif{number},role=client,id={},rsize=10,socket={},socket-abstract=no,mac={}",
                between.ids[number],
                between.sockets[number].display(),
                MACS[number]
            )
        };
        let peer = |number: usize| format!("--eth-peer={number},{}", MACS[1 - number]);
        let (first, second, frames) = (peer(0), peer(1), format!("--txpkts={size}"));
        let mut options = FORWARD.to_vec();
        options.extend(["--tx-first", &frames, &first, &second]);
        let [_, cpu] = cpus();
        let devices = [device(0), device(1)];
        let place = ("podnet-load", cpu);
        let mut load = self.testpmd.start(&self.netns, place, &devices, &options)?;
        self.testpmd.wait(&mut load)?;
        let end = Instant::now() + BEGIN + time;
        while Instant::now() < end {
            interrupt::check()?;
            thread::sleep(Duration::from_millis(50));
        }
        let shares = [between.process.id(), load.id()].map(cpu::share_of);
        let [ours, theirs] = shares;
        let share = ours?.min(theirs?);
        let text = load.interrupt()?;
        let rates: Series = forwarded(&text, "Rx-pps:").into_iter().collect();
        let said = between.process.interrupt()?;
        // It reads its counters and the clock one after the other, and may be held up in between.
        if rates.rounds() < SECONDS {
            bail!(
                "{who}: testpmd tells of less than {SECONDS} seconds in which anything came back"
            );
        }
        Ok(Circulated {
            rate: rates.median(),
            share,
            said,
        })
    }

    /// Starts something on the first processor, and waits until it listens.
    fn between(&self, who: &str) -> Result<Between> {
        let path = self.testpmd.path("memif");
        let text = path.to_str().context("a path that is text")?;
        let [cpu, _] = cpus();
        let numbered = |number: u32| PathBuf::from(format!("{text}.{number}"));
        let (command, sockets, ids) = match who {
            LIBRARY => {
                let mut command = pinned(cpu, &example("PODNET_CROSS_CONNECT")?);
                command.arg(&path);
                (command, [path.clone(), path.clone()], [0, 1])
            }
            SWITCH | JUDGED | TURNS => {
                let mut command = pinned(cpu, &example("PODNET_SWITCH_FORWARD")?);
                command.arg(&path);
                command.args((who == JUDGED).then_some("judged"));
                command.args((who == TURNS).then_some("turns"));
                (command, [numbered(0), numbered(1)], [0, 0])
            }
            _ => {
                let device = |id: u32| {
                    format!("net_memif{id},role=server,id={id},socket={text},socket-abstract=no")
                };
                let devices = [device(0), device(1)];
                let place = ("podnet-io", cpu);
                let command = self.testpmd.command(place, &devices, &FORWARD);
                (command, [path.clone(), path.clone()], [0, 1])
            }
        };
        let old = ["", ".0", ".1", ".control"];
        for file in old.map(|end| PathBuf::from(format!("{text}{end}"))) {
            // It is there when one was killed.
            let _ = std::fs::remove_file(file);
        }
        let mut process = Process::start(command, &self.netns)?;
        wait_for_file(&mut process, &sockets[1])?;
        Ok(Between {
            process,
            sockets,
            ids,
        })
    }

    /// Measures the loss at half of the pace, when each poller has had its processor.
    ///
    /// The pace is measured again first: a virtual machine whose processors are moved apart has another
    /// one for minutes.
    fn lose(&self, who: &str, size: usize, time: Duration, case: &mut Case) -> Result<()> {
        let mut least = 0.0;
        for _ in 0..TRIES {
            let run = self.circulate(who, size, time)?;
            let half = run.rate / 2.0;
            let passed = self.pass(who, size, half, time / 2)?;
            least = run.share.min(passed.share);
            if least < SHARE {
                continue;
            }
            let lost = passed.sent.saturating_sub(passed.received) as f64;
            let sent = passed.sent as f64 / passed.seconds;
            for (what, unit, better, value) in [
                ("lost", "packets", Better::Less, lost),
                ("sent", "% of it", Better::More, sent / half * 100.0),
            ] {
                let name = format!("{size} B at half of its pace, {what}");
                case.measure("", &name, unit, better).put(who, 0, value);
            }
            return Ok(());
        }
        let run = format!("{who}, {size} B, at half of its pace");
        case.miss(&run, &lacked(least));
        Ok(())
    }

    /// Sends at this pace.
    fn pass(&self, who: &str, size: usize, rate: f64, time: Duration) -> Result<Passed> {
        interrupt::check()?;
        let between = self.between(who)?;
        let [_, cpu] = cpus();
        let mut command = Command::new("/proc/self/exe");
        command.args(["app", "through", "--socket"]);
        command.args(&between.sockets).arg("--id");
        command.args(between.ids.map(|id| id.to_string()));
        command.arg("--mac").args(MACS);
        command.args(["--rate", &rate.to_string(), "--size", &size.to_string()]);
        command.args(["--millis", &time.as_millis().to_string()]);
        command.args(["--cpu", &cpu.to_string()]);
        let through = Process::start(command, &self.netns)?;
        let text = through.finish(time + PATIENCE)?;
        let share = cpu::share_of(between.process.id())?;
        between.process.terminate()?;
        let line = text.lines().last().unwrap_or_default();
        let mut passed: Passed = serde_json::from_str(line)?;
        if passed.sent == 0 {
            bail!("{who}: nothing could be sent");
        }
        passed.share = passed.share.min(share);
        Ok(passed)
    }
}

/// Why a run does not count.
fn lacked(share: f64) -> String {
    let percent = share * 100.0;
    format!("one side had {percent:.0} % of its CPU only, {TRIES} times")
}

/// Options that the load and the forwarder share.
const FORWARD: [&str; 3] = ["--forward-mode=io", "--port-topology=paired", "--burst=64"];

/// An example that `cargo xtask bench` has built.
fn example(variable: &str) -> Result<String> {
    let path = provided(variable)?;
    path.into_os_string()
        .into_string()
        .map_err(|_| anyhow::anyhow!("{variable} is no text"))
}

fn wait_for_file(process: &mut Process, path: &Path) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    while !path.exists() {
        if !process.runs()? || Instant::now() >= end {
            let said = process.complaint();
            bail!("{} is not there: {}", path.display(), said.trim());
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
