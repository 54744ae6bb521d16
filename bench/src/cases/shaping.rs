//! Limits: how close to the rate, how steady, and what the rest of the pod feels.

mod many;
mod scene;

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

pub(super) use self::many::MANY;
use self::scene::{BANDWIDTH, Direction, PODNET, Scene};
use super::latency::Curves;
use super::{Bench, Known, ROUNDS, Run, names};
use crate::cpu::{self, Spent};
use crate::interrupt;
use crate::peers::Peer;
use crate::report::{Axis, Better, Case};
use crate::sandbox::Side;
use crate::series::{MEDIAN, P99, percentile};
use crate::traffic::order::{self, Mode};
use crate::traffic::{Bulk, Carried};

/// Bandwidth limits.
pub(super) const CASE: Known = Known {
    name: "shaping",
    title: "Bandwidth limits",
    about: "A pod limited in one direction or in both, and one that is not, on the same network; TCP \
            of 1 or 8 streams for some seconds. The rate counts bytes on the wire, so at MTU 1500 a \
            TCP payload can reach 1448/1514 of it: goodput is in percent of that. The worst second \
            is the largest payload of any whole second after the burst, with its headers, in \
            percent of the rate: above 100 the limit is not kept. ACKs of a stream the other way \
            use some of a limited direction and are not counted. Ping is a datagram of 64 bytes \
            and its echo, 50 a second, between the limited pod and the other one. Everybody gets the same burst: 10 \
            ms of the rate, 32 KiB at least. With both directions limited, goodput is the mean of \
            both. CPU is the whole machine's while the streams run, all of it and what is in interrupts \
            (softirq), where the limits are at work.",
    run: Run::Alone(run),
};

/// Share of the payload in a full frame: TCP with timestamps, IPv4, MTU 1500.
const PAYLOAD: f64 = 1448.0 / 1514.0;
/// Datagrams a second.
const PING: u32 = 50;
/// When the burst is over, seconds.
const STEADY: f64 = 1.0;

/// Bits a second.
const RATES: [(&str, u64); 4] = [
    ("10 Mbit/s", 10_000_000),
    ("100 Mbit/s", 100_000_000),
    ("1 Gbit/s", 1_000_000_000),
    ("5 Gbit/s", 5_000_000_000),
];
const STREAMS: [u32; 2] = [1, 8];
const DIRECTIONS: [Direction; 3] = [Direction::Ingress, Direction::Egress, Direction::Both];

fn run(bench: &Bench<'_>, case: &mut Case) -> Result<()> {
    case.subjects = names(&[PODNET]);
    let rates = bench.size(&RATES[..], &RATES[1..2]);
    bench
        .progress
        .stage("what the machine carries without a limit");
    let reach = Reach::measure(bench, case)?;
    bench.progress.stage("attaching limited pods");
    let scenes = scenes(bench, rates, case)?;
    // A round has 200 pings: the p99 of one is its two slowest.
    let rounds = bench.rounds(ROUNDS);
    let patterns = patterns(rates, &reach, case);
    bench
        .progress
        .expect(rounds * patterns.len() * scenes.len());
    let mut curves: Vec<(String, Curves)> = Vec::new();
    for round in 0..rounds {
        bench.progress.stage(&format!("round {}", round + 1));
        for pattern in &patterns {
            for turn in 0..scenes.len() {
                let scene = &scenes[(turn + round) % scenes.len()];
                let Pattern { name, rate, .. } = pattern;
                bench.progress.say(&format!("{name}: {}", scene.who));
                let (limited, other) = scene.sides(*rate, pattern.direction)?;
                let one = One {
                    limited,
                    other,
                    direction: pattern.direction,
                    rate: *rate,
                    streams: pattern.streams,
                    seconds: bench.size(4, 3),
                };
                let done = one.measure();
                interrupt::check()?;
                match done {
                    Ok(found) => {
                        found.keep(case, scene.who, (name, *rate), round);
                        keep_curve(&mut curves, name, scene.who, &found);
                    }
                    Err(error) => case.miss(scene.who, &format!("{name}: {error:#}")),
                }
                bench.progress.step();
            }
        }
    }
    for (name, curves) in curves {
        curves.draw(case, &format!("Ping beside {name}"), "us");
    }
    Ok(())
}

/// podnet's pods and the peer's; who cannot be here is missing.
fn scenes(bench: &Bench<'_>, rates: &[(&str, u64)], case: &mut Case) -> Result<Vec<Scene>> {
    let mut scenes = Vec::new();
    let bandwidth = bench.has(Peer::Bandwidth).then_some(BANDWIDTH);
    for who in std::iter::once(PODNET).chain(bandwidth) {
        match Scene::set(who, bench, rates, &DIRECTIONS) {
            Ok(scene) => scenes.push(scene),
            Err(error) => {
                interrupt::check()?;
                case.miss(who, &format!("{error:#}"));
            }
        }
    }
    Ok(scenes)
}

/// A limit, and what is sent against it.
struct Pattern {
    name: String,
    rate: u64,
    direction: Direction,
    streams: u32,
}

/// All that the machine can carry.
fn patterns(rates: &[(&str, u64)], reach: &Reach, case: &mut Case) -> Vec<Pattern> {
    let mut patterns = Vec::new();
    for (name, rate) in rates {
        for direction in DIRECTIONS {
            for streams in STREAMS {
                let name = format!("{name}, {}, {}", direction.name(), of(streams));
                match reach.check(*rate, direction, streams) {
                    Ok(()) => patterns.push(Pattern {
                        name,
                        rate: *rate,
                        direction,
                        streams,
                    }),
                    Err(reason) => case.miss(&format!("a limit of {name}"), &reason),
                }
            }
        }
    }
    patterns
}

fn keep_curve(curves: &mut Vec<(String, Curves)>, name: &str, who: &str, found: &Found) {
    let place = curves.iter().position(|(other, _)| other == name);
    let place = place.unwrap_or_else(|| {
        curves.push((name.to_owned(), Curves::default()));
        curves.len() - 1
    });
    let points = [0, 10, 25, 50, 75, 90, 95, 98, 99];
    let points = points.map(|part| [f64::from(part), percentile(&found.pings, part * 1000)]);
    curves[place].1.add(who, &points);
}

/// Payload that the machine carries without a limit, bits/s in each direction.
struct Reach(Vec<((bool, u32), f64)>);

impl Reach {
    fn measure(bench: &Bench<'_>, case: &mut Case) -> Result<Self> {
        let pair = scene::bare(bench.dir)?;
        let mut all = Vec::new();
        for both in [false, true] {
            for streams in STREAMS {
                // The best of some tries: one that was disturbed must not take a limit away.
                let mut rate = 0.0_f64;
                for _ in 0..bench.size(3, 2) {
                    rate = rate.max(carried(&pair, both, streams)?);
                }
                let ways = if both { "both ways" } else { "one way" };
                let line = format!("{ways}, {}", of(streams));
                case.measure("Without a limit", &line, "Gbit/s", Better::More)
                    .put(Peer::Veth.label(), 0, rate / 1e9);
                all.push(((both, streams), rate));
            }
        }
        Ok(Self(all))
    }

    /// Whether there is some air above a limit; otherwise how much the machine carries.
    fn check(&self, rate: u64, direction: Direction, streams: u32) -> Result<(), String> {
        let pattern = (direction == Direction::Both, streams);
        let found = self.0.iter().find(|(other, _)| *other == pattern);
        let carried = found.map_or(0.0, |(_, carried)| *carried);
        if carried > 1.1 * rate as f64 * PAYLOAD {
            return Ok(());
        }
        Err(format!(
            "the machine carries {:.1} Gbit/s of it without a limit",
            carried / 1e9
        ))
    }
}

/// Measures a bare link for a second; returns the rate of the slower direction.
fn carried(pair: &scene::Bare, both: bool, streams: u32) -> Result<f64> {
    let mut there = Bulk::new(&pair.a, &pair.b, Duration::from_secs(1));
    there.streams = streams;
    let mut back = there.clone();
    (back.from, back.to, back.port) = (there.to, there.from, there.port + 1);
    let there = there.start()?;
    let back = both.then(|| back.start()).transpose()?;
    let rate = there.finish()?.rate;
    Ok(match back {
        Some(back) => rate.min(back.finish()?.rate),
        None => rate,
    })
}

fn of(streams: u32) -> String {
    let s = if streams == 1 { "" } else { "s" };
    format!("{streams} stream{s}")
}

/// Streams and a limit that are measured at once.
struct One<'a> {
    limited: &'a Side,
    other: &'a Side,
    direction: Direction,
    rate: u64,
    streams: u32,
    seconds: u64,
}

/// Results of one measurement.
struct Found {
    /// Payload in each tenth of a second, bits per second, of all directions.
    course: Vec<[f64; 2]>,
    /// Percent of what the rate allows.
    goodput: f64,
    /// Percent of the rate.
    worst: f64,
    retransmits: f64,
    /// Microseconds, sorted.
    pings: Vec<f64>,
    lost: u64,
    /// The same without any other load.
    idle: Vec<f64>,
    /// Percent of a core meanwhile: in interrupts, and everywhere.
    cpu: [f64; 2],
}

impl One<'_> {
    fn measure(&self) -> Result<Found> {
        let ping = Mode::Paced { rate: PING };
        let idle = order::run(ping, self.other, self.limited, Duration::from_millis(500))?;
        let time = Duration::from_secs(self.seconds);
        let (before, begin) = (cpu::Machine::now()?, Instant::now());
        let mut flows = Vec::new();
        let (to_pod, from_pod) = self.direction.flows();
        if to_pod {
            flows.push(self.bulk(self.other, self.limited, 5201, time).start()?);
        }
        if from_pod {
            flows.push(self.bulk(self.limited, self.other, 5202, time).start()?);
        }
        // After the burst, and not beyond the end of the streams.
        std::thread::sleep(Duration::from_secs_f64(STEADY));
        let beside =
            Duration::from_secs(self.seconds - 1).saturating_sub(Duration::from_millis(200));
        let loaded = order::run(ping, self.other, self.limited, beside)?;
        let carried: Vec<Carried> = flows
            .into_iter()
            .map(crate::traffic::iperf::Running::finish)
            .collect::<Result<_>>()?;
        let cpu = shares(&before.spent()?, begin.elapsed());
        self.judge(&carried, loaded, idle.times, cpu)
    }

    fn bulk<'a>(&self, from: &'a Side, to: &'a Side, port: u16, time: Duration) -> Bulk<'a> {
        let mut bulk = Bulk::new(from, to, time);
        bulk.streams = self.streams;
        bulk.port = port;
        // A millisecond of the rate: what is read late must not look like an uneven rate.
        let chunk = self.rate / 8 / 1000 / u64::from(self.streams);
        bulk.chunk = u32::try_from(chunk.clamp(1448, 128 * 1024)).unwrap_or(1448);
        bulk
    }

    fn judge(
        &self,
        carried: &[Carried],
        loaded: crate::traffic::Answer,
        idle: Vec<f64>,
        cpu: [f64; 2],
    ) -> Result<Found> {
        let rate = self.rate as f64;
        let flows = carried.len() as f64;
        let ends = carried.iter().map(Carried::end);
        let end = ends.fold(f64::INFINITY, f64::min).min(self.seconds as f64);
        let total = |from, to| -> f64 { carried.iter().map(|one| one.between(from, to)).sum() };
        let steps = (1..=self.seconds * 10).map(|step| step as f64 / 10.0);
        let course = steps
            .filter(|step| *step <= end + 0.05)
            .map(|step| [step, total(step - 0.1, step) / flows / 1e6])
            .collect();
        let worst = carried.iter().map(|one| one.worst_second(STEADY, end));
        let worst = worst.fold(0.0, f64::max);
        let mut pings = loaded.times;
        pings.sort_by(f64::total_cmp);
        let mut idle = idle;
        idle.sort_by(f64::total_cmp);
        (!pings.is_empty())
            .then_some(())
            .context("no datagram came back beside the streams")?;
        Ok(Found {
            course,
            goodput: total(STEADY, end) / flows / (rate * PAYLOAD) * 100.0,
            worst: worst / PAYLOAD / rate * 100.0,
            retransmits: carried.iter().map(|one| one.retransmits).sum(),
            lost: loaded.sent.saturating_sub(pings.len() as u64),
            pings,
            idle,
            cpu,
        })
    }
}

/// Percent of a core in interrupts, and everywhere.
fn shares(spent: &Spent, time: Duration) -> [f64; 2] {
    [spent.interrupts, spent.all()].map(|part| part / time.as_secs_f64() * 100.0)
}

impl Found {
    fn keep(&self, case: &mut Case, who: &str, (name, rate): (&str, u64), round: usize) {
        let at = |times: &[f64], part| percentile(times, part) / 1000.0;
        for (group, unit, better, value) in [
            (
                "Goodput",
                "% of what the rate allows",
                Better::More,
                self.goodput,
            ),
            ("Worst second", "% of the rate", Better::Less, self.worst),
            (
                "Ping beside the streams, p50",
                "ms",
                Better::Less,
                at(&self.pings, MEDIAN),
            ),
            (
                "Ping beside the streams, p99",
                "ms",
                Better::Less,
                at(&self.pings, P99),
            ),
            (
                "Ping alone, p50",
                "ms",
                Better::Less,
                at(&self.idle, MEDIAN),
            ),
            (
                "CPU in interrupts",
                "% of a core",
                Better::Less,
                self.cpu[0],
            ),
            ("CPU", "% of a core", Better::Less, self.cpu[1]),
            ("Pings lost", "datagrams", Better::Less, self.lost as f64),
            (
                "Segments sent again",
                "segments",
                Better::Less,
                self.retransmits,
            ),
        ] {
            case.measure(group, name, unit, better)
                .put(who, round, value);
        }
        if round == 0 {
            let plot = case.plot(name, Axis::Time, "time", "Mbit/s of payload");
            plot.limit = Some(rate as f64 * PAYLOAD / 1e6);
            plot.line(who, self.course.iter().copied());
        }
    }
}
