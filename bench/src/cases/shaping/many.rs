//! Measure many limited pods at once: CPU, and how exact each rate is.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::net::sockopt::{
    set_socket_recv_buffer_size, set_socket_send_buffer_size, set_tcp_congestion,
};

use super::PAYLOAD;
use super::scene::{BANDWIDTH, PODNET, Scene};
use crate::cases::{Bench, Known, ROUNDS, Run, names};
use crate::cpu::{self, Spent};
use crate::interrupt;
use crate::peers::Peer;
use crate::report::{Better, Case};
use crate::sandbox::Side;
use crate::traffic;

/// 50 limited pods.
pub(in crate::cases) const MANY: Known = Known {
    name: "many-shaped",
    title: "Many limited pods at once",
    about: "50 pods with a limit of 10 Mbit/s in both directions, and one that has none and that each of them sends a \
            TCP stream to and gets one from: 100 streams of one process, which reads and writes what there is every 5 \
            ms. After two seconds each stream's bytes are counted for four more. A limit is \
            exact at 100 %: of its rate, a TCP payload can reach 1448/1514, and the ACKs of the stream the \
            other way use some 2 % more. CPU is the whole machine's meanwhile: in interrupts (softirq) for what \
            the limits cost, and all of it.",
    run: Run::Alone(run),
};

/// Bits a second.
const RATE: u64 = 10_000_000;
/// Between two looks at all streams: less than any buffer on the way holds.
const PACE: Duration = Duration::from_millis(5);
/// Buffers of a socket: more than the queues of a limit let in.
const BUFFER: usize = 1 << 20;
/// How long a stream may take to be there.
const PATIENCE: Duration = Duration::from_secs(10);

fn run(bench: &Bench<'_>, case: &mut Case) -> Result<()> {
    case.subjects = names(&[PODNET]);
    let pods = bench.size(50, 5);
    let mut scenes = Vec::new();
    let bandwidth = bench.has(Peer::Bandwidth).then_some(BANDWIDTH);
    for who in std::iter::once(PODNET).chain(bandwidth) {
        bench
            .progress
            .stage(&format!("attaching {pods} pods: {who}"));
        match Scene::crowd(who, bench, RATE, pods) {
            Ok(scene) => scenes.push(scene),
            Err(error) => {
                interrupt::check()?;
                case.miss(who, &format!("{error:#}"));
            }
        }
    }
    let rounds = bench.rounds(ROUNDS);
    let calm = Duration::from_secs(bench.size(2, 1));
    let time = Duration::from_secs(bench.size(4, 2));
    bench.progress.stage("streams");
    bench.progress.expect(rounds * scenes.len());
    for round in 0..rounds {
        for turn in 0..scenes.len() {
            let scene = &scenes[(turn + round) % scenes.len()];
            bench.progress.say(scene.who);
            let done = Streams::open(scene).and_then(|streams| streams.measure(calm, time));
            interrupt::check()?;
            match done {
                Ok((found, spent)) => {
                    keep(case, scene.who, round, (pods, time), &found, &spent);
                }
                Err(error) => case.miss(scene.who, &format!("round {}: {error:#}", round + 1)),
            }
            bench.progress.step();
        }
    }
    Ok(())
}

/// Bytes of each stream in a time, and what they cost.
fn keep(
    case: &mut Case,
    who: &str,
    round: usize,
    (pods, time): (usize, Duration),
    bytes: &[f64],
    spent: &Spent,
) {
    let seconds = time.as_secs_f64();
    for (name, part) in [
        ("CPU in interrupts", spent.interrupts),
        ("CPU", spent.all()),
    ] {
        let name = format!("{name}, {pods} pods of 10 Mbit/s both ways");
        case.measure("", &name, "% of a core", Better::Less).put(
            who,
            round,
            part / seconds * 100.0,
        );
    }
    let mut rates: Vec<f64> = bytes.iter().map(|bytes| of_rate(*bytes, seconds)).collect();
    rates.sort_by(f64::total_cmp);
    for (line, rate) in [("slowest", rates.first()), ("fastest", rates.last())] {
        let group = format!("Rate of a stream of {pods} pods both ways");
        if let Some(rate) = rate {
            case.measure(&group, line, "% of the limit", Better::More)
                .put(who, round, *rate);
        }
    }
}

/// The share of the limit that a payload has had, with its headers, in percent.
fn of_rate(bytes: f64, seconds: f64) -> f64 {
    bytes * 8.0 / seconds / PAYLOAD / RATE as f64 * 100.0
}

/// Streams to and from all limited pods.
struct Streams {
    senders: Vec<TcpStream>,
    receivers: Vec<TcpStream>,
}

impl Streams {
    fn open(scene: &Scene) -> Result<Self> {
        let (mut senders, mut receivers) = (Vec::new(), Vec::new());
        for limited in scene.crowded() {
            for (from, to) in [(limited, scene.other()), (scene.other(), limited)] {
                interrupt::check()?;
                let (sender, receiver) = stream(from, to)?;
                senders.push(sender);
                receivers.push(receiver);
            }
        }
        Ok(Self { senders, receivers })
    }

    /// Bytes of each stream after a calm time, and the processors' time.
    fn measure(mut self, calm: Duration, time: Duration) -> Result<(Vec<f64>, Spent)> {
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let sending = scope.spawn(|| send(&mut self.senders, &stop));
            let found = receive(&mut self.receivers, calm, time);
            stop.store(true, Ordering::Relaxed);
            match sending.join() {
                Ok(sent) => sent.and(found),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }
}

/// A connection whose ends never wait.
fn stream(from: &Side, to: &Side) -> Result<(TcpStream, TcpStream)> {
    let listener = to.netns.run_in(|| TcpListener::bind((to.ip, 0)))??;
    let target = listener.local_addr()?;
    let sender = from
        .netns
        .run_in(|| TcpStream::connect_timeout(&target, PATIENCE))?;
    let sender = sender.with_context(|| format!("{} to {target}", from.ip))?;
    let (receiver, _) = listener.accept()?;
    set_tcp_congestion(&sender, traffic::congestion())?;
    set_socket_send_buffer_size(&sender, BUFFER)?;
    set_socket_recv_buffer_size(&receiver, BUFFER)?;
    sender.set_nonblocking(true)?;
    receiver.set_nonblocking(true)?;
    Ok((sender, receiver))
}

fn send(streams: &mut [TcpStream], stop: &AtomicBool) -> Result<()> {
    let block = vec![0x5a; 64 << 10];
    while !stop.load(Ordering::Relaxed) {
        for stream in &mut *streams {
            while open(stream.write(&block))?.is_some() {}
        }
        thread::sleep(PACE);
    }
    Ok(())
}

fn receive(streams: &mut [TcpStream], calm: Duration, time: Duration) -> Result<(Vec<f64>, Spent)> {
    let mut block = vec![0; 64 << 10];
    let mut bytes = vec![0_u64; streams.len()];
    let begin = Instant::now();
    let mut counting = None;
    loop {
        let now = Instant::now();
        if counting.is_none() && now >= begin + calm {
            bytes.fill(0);
            counting = Some((now, cpu::Machine::now()?));
        }
        for (stream, bytes) in streams.iter_mut().zip(&mut bytes) {
            while let Some(count) = open(stream.read(&mut block))? {
                *bytes += count as u64;
            }
        }
        if let Some((started, before)) = counting
            && started.elapsed() >= time
        {
            let spent = before.spent()?;
            // As if it had been that time to the microsecond.
            let part = time.as_secs_f64() / started.elapsed().as_secs_f64();
            let scaled = bytes.iter().map(|bytes| *bytes as f64 * part);
            return Ok((scaled.collect(), spent));
        }
        interrupt::check()?;
        thread::sleep(PACE);
    }
}

/// Bytes that went through; nothing when the stream would have to wait.
fn open(done: std::io::Result<usize>) -> Result<Option<usize>> {
    match done {
        Ok(0) => anyhow::bail!("a stream ended"),
        Ok(count) => Ok(Some(count)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error).context("a stream broke"),
    }
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn a_payload_at_the_limit_is_all_of_it_and_the_extremes_are_kept() {
        // 10 Mbit/s of full frames for a second.
        let exact = RATE as f64 / 8.0 * PAYLOAD;
        assert!((of_rate(exact, 1.0) - 100.0).abs() < 1e-6);
        let mut case = Case::new("many-shaped", "", "");
        let spent = Spent {
            program: 1.0,
            kernel: 0.5,
            interrupts: 0.5,
        };
        let bytes = [2.0 * exact, exact, 4.0 * exact];
        keep(
            &mut case,
            PODNET,
            0,
            (50, Duration::from_secs(2)),
            &bytes,
            &spent,
        );
        case.seal();
        let at = |name: &str| {
            let measure = case.measures.iter().find(|one| one.name.starts_with(name));
            measure.unwrap().summary(PODNET).unwrap().median
        };
        assert!((at("CPU in interrupts") - 25.0).abs() < 0.1);
        assert!((at("CPU, 50 pods") - 100.0).abs() < 0.1);
        assert!((at("slowest") - 50.0).abs() < 0.1);
        assert!((at("fastest") - 200.0).abs() < 0.1);
    }
}
