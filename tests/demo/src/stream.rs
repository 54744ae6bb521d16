//! Count losses of numbered datagrams that go on while the agent is taken away.

use std::net::{IpAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use testbed::{Port, traffic};

use super::interrupt::Interrupt;

/// Between two datagrams of one direction.
const PACE: Duration = Duration::from_micros(500);
/// Room for datagrams that arrive while the receiver waits for its turn, bytes.
///
/// The pods' own buffers must not be what loses datagrams.
const BUFFER: usize = 32 << 20;
/// How long datagrams may take that are on their way when sending ends.
const LATE: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(20);

/// Running streams, each in one direction.
#[derive(Debug)]
pub(crate) struct Streams {
    stop: Arc<AtomicBool>,
    directions: Vec<Direction>,
}

/// Fate of all datagrams.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    /// Sent.
    pub(crate) sent: u64,
    /// Received, each number counted once.
    pub(crate) received: u64,
    /// From the first to the last.
    pub(crate) lasted: Duration,
}

#[derive(Debug)]
struct Direction {
    received: Arc<AtomicU64>,
    sender: JoinHandle<Result<u64>>,
    receiver: JoinHandle<Result<u64>>,
}

impl Streams {
    /// Starts streams both ways between the ends of each pair.
    pub(crate) fn start(pairs: &[(&Port, IpAddr, &Port, IpAddr)]) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut directions = Vec::new();
        for (a, from, b, to) in pairs {
            directions.push(Direction::start(a, *from, b, *to, &stop)?);
            directions.push(Direction::start(b, *to, a, *from, &stop)?);
        }
        Ok(Self { stop, directions })
    }

    /// Waits until `more` datagrams have arrived in each direction.
    pub(crate) fn progress(&self, more: u64, interrupt: &Interrupt) -> Result<()> {
        let now = |direction: &Direction| direction.received.load(Ordering::Acquire);
        let goals: Vec<u64> = self
            .directions
            .iter()
            .map(|each| now(each) + more)
            .collect();
        let flows = interrupt.wait(PATIENCE, || {
            Ok(self
                .directions
                .iter()
                .zip(&goals)
                .all(|(each, goal)| now(each) >= *goal))
        })?;
        if !flows {
            bail!("the streams do not flow");
        }
        Ok(())
    }

    /// Stops sending, waits for what is on its way, and counts.
    pub(crate) fn end(self, started: Instant) -> Result<Tally> {
        self.stop.store(true, Ordering::Release);
        let mut tally = Tally {
            lasted: started.elapsed(),
            ..Tally::default()
        };
        for direction in self.directions {
            tally.sent += joined(direction.sender)?;
            tally.received += joined(direction.receiver)?;
        }
        Ok(tally)
    }
}

fn joined(thread: JoinHandle<Result<u64>>) -> Result<u64> {
    thread
        .join()
        .map_err(|_| anyhow!("a stream's thread panicked"))?
}

impl Direction {
    fn start(a: &Port, from: IpAddr, b: &Port, to: IpAddr, stop: &Arc<AtomicBool>) -> Result<Self> {
        let (source, sink) = (traffic::udp(a, from), traffic::udp(b, to));
        set_socket_recv_buffer_size_force(&sink, BUFFER).context("a larger receive buffer")?;
        sink.set_read_timeout(Some(Duration::from_millis(50)))?;
        source.connect(sink.local_addr()?)?;
        let (sent, received) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let sender = {
            let (sent, stop) = (Arc::clone(&sent), Arc::clone(stop));
            thread::spawn(move || send(&source, &sent, &stop))
        };
        let receiver = {
            let (received, stop) = (Arc::clone(&received), Arc::clone(stop));
            thread::spawn(move || receive(&sink, &sent, &received, &stop))
        };
        Ok(Self {
            received,
            sender,
            receiver,
        })
    }
}

/// Sends numbers from 0 on; returns how many.
fn send(socket: &UdpSocket, sent: &AtomicU64, stop: &AtomicBool) -> Result<u64> {
    let mut number = 0_u64;
    while !stop.load(Ordering::Acquire) {
        // Counted before it is sent, so that the receiver never has more than were counted.
        sent.store(number + 1, Ordering::Release);
        socket
            .send(&number.to_be_bytes())
            .context("sending a datagram")?;
        number += 1;
        thread::sleep(PACE);
    }
    Ok(number)
}

/// Counts each number once; returns how many came.
///
/// It ends when all are there or none comes any more.
fn receive(
    socket: &UdpSocket,
    sent: &AtomicU64,
    received: &AtomicU64,
    stop: &AtomicBool,
) -> Result<u64> {
    let mut seen = Vec::new();
    let mut buffer = [0; 8];
    let mut last = Instant::now();
    loop {
        if socket.recv(&mut buffer).is_ok() {
            last = Instant::now();
            let index = usize::try_from(u64::from_be_bytes(buffer)).context("a strange number")?;
            if seen.len() <= index {
                seen.resize(index + 1, false);
            }
            if let Some(seen) = seen.get_mut(index).filter(|seen| !**seen) {
                *seen = true;
                received.fetch_add(1, Ordering::Release);
            }
            continue;
        }
        // Nothing came for a while: the sender, if it was told to stop, has stopped by now.
        let count = received.load(Ordering::Acquire);
        let all = count == sent.load(Ordering::Acquire);
        if stop.load(Ordering::Acquire) && (all || last.elapsed() > LATE) {
            return Ok(count);
        }
    }
}
