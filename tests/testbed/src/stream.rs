//! A numbered stream of datagrams, both ways, to count the losses of an upheaval.

use std::net::{IpAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_socket_recv_buffer_size_force;

use crate::node::Node;
use crate::pod::Port;
use crate::traffic;
use crate::wait;

/// Between two datagrams of one direction.
const PACE: Duration = Duration::from_micros(500);
/// Room for what arrives while the receiver waits for its turn.
const BUFFER: usize = 32 << 20;

/// Two running senders and two receivers.
#[derive(Debug)]
pub struct Stream {
    stop: Arc<AtomicBool>,
    directions: Vec<Direction>,
}

#[derive(Debug)]
struct Direction {
    name: String,
    sent: Arc<AtomicU64>,
    received: Arc<AtomicU64>,
    sender: JoinHandle<()>,
    /// Returns which of the datagrams came.
    receiver: JoinHandle<Vec<bool>>,
    ends: [Port; 2],
}

impl Stream {
    /// Starts streams between `a` and `b`, both ways, and waits until both flow.
    ///
    /// The family is that of these addresses.
    pub fn start(a: &Port, from: IpAddr, b: &Port, to: IpAddr) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let directions = vec![
            Direction::start(a, from, b, to, &stop),
            Direction::start(b, to, a, from, &stop),
        ];
        let stream = Self { stop, directions };
        stream.progress();
        stream
    }

    /// Waits until more datagrams were received in each direction.
    pub fn progress(&self) {
        for direction in &self.directions {
            let goal = direction.received.load(Ordering::Acquire) + 200;
            wait::until_true("datagrams to arrive", || {
                direction.received.load(Ordering::Acquire) >= goal
            });
        }
    }

    /// Kills, starts, stops and starts each agent, with progress after each step.
    pub fn through_restarts(&self, nodes: &[Node]) {
        for node in nodes {
            node.kill_9();
            self.progress();
            node.start_agent();
            self.progress();
            node.terminate();
            self.progress();
            node.start_agent();
            self.progress();
        }
    }

    /// Stops sending and fails the test if a single datagram got lost.
    ///
    /// # Panics
    /// Then.
    #[track_caller]
    pub fn assert_nothing_lost(self) {
        self.stop.store(true, Ordering::Release);
        for direction in self.directions {
            let quiet = "the stream's threads do not panic";
            direction.sender.join().expect(quiet);
            let seen = direction.receiver.join().expect(quiet);
            let sent = direction.sent.load(Ordering::Acquire);
            let received = direction.received.load(Ordering::Acquire);
            let lost = if sent == received {
                String::new()
            } else {
                let devices = direction.ends.each_ref().map(devices).concat();
                format!("{}; interfaces of the pods:\n{devices}", gaps(&seen, sent))
            };
            assert!(
                lost.is_empty(),
                "{}: {received} of {sent} datagrams arrived: {lost}",
                direction.name
            );
        }
    }
}

/// Describes the longest gaps of a stream by their first datagram and their length.
fn gaps(seen: &[bool], sent: u64) -> String {
    let mut gaps: Vec<(u64, u64)> = Vec::new();
    for number in 0..sent {
        let at = usize::try_from(number).unwrap_or(usize::MAX);
        if seen.get(at) == Some(&true) {
            continue;
        }
        match gaps.last_mut() {
            Some((first, length)) if *first + *length == number => *length += 1,
            _ => gaps.push((number, 1)),
        }
    }
    let count = gaps.len();
    gaps.sort_by_key(|(_, length)| std::cmp::Reverse(*length));
    gaps.truncate(5);
    gaps.sort_unstable();
    format!("{count} gaps, the longest (first, length) are {gaps:?}")
}

/// The kernel's counters of a pod's interfaces, with what they dropped.
fn devices(port: &Port) -> String {
    let read = || std::fs::read_to_string("/proc/thread-self/net/dev");
    let read = port.netns.run_in(read).map_err(|error| error.to_string());
    read.map_or_else(
        |error| error,
        |text| text.unwrap_or_else(|error| error.to_string()),
    )
}

impl Direction {
    fn start(a: &Port, from: IpAddr, b: &Port, to: IpAddr, stop: &Arc<AtomicBool>) -> Self {
        let (source, sink) = (traffic::udp(a, from), traffic::udp(b, to));
        set_socket_recv_buffer_size_force(&sink, BUFFER).expect("a larger buffer");
        let target = sink.local_addr().expect("a bound socket has an address");
        source.connect(target).expect("UDP can be connected");
        let sent = Arc::new(AtomicU64::new(0));
        let received = Arc::new(AtomicU64::new(0));
        let done = Arc::new(AtomicBool::new(false));
        let sender = {
            let (sent, stop, done) = (Arc::clone(&sent), Arc::clone(stop), Arc::clone(&done));
            thread::spawn(move || {
                send(&source, &sent, &stop);
                done.store(true, Ordering::Release);
            })
        };
        let receiver = {
            let (sent, received) = (Arc::clone(&sent), Arc::clone(&received));
            thread::spawn(move || receive(&sink, &sent, &received, &done))
        };
        Self {
            name: format!("{from} -> {to}"),
            sent,
            received,
            sender,
            receiver,
            ends: [a.clone(), b.clone()],
        }
    }
}

/// Sends numbers, one each [`PACE`].
fn send(socket: &UdpSocket, sent: &AtomicU64, stop: &AtomicBool) {
    while !stop.load(Ordering::Acquire) {
        let number = sent.load(Ordering::Relaxed);
        let done = socket.send(&number.to_be_bytes());
        done.expect("a datagram can be sent");
        sent.store(number + 1, Ordering::Release);
        // Pacing, not waiting: the receiver must not be what loses datagrams.
        thread::sleep(PACE);
    }
}

/// Counts each number once, until all sent ones are there or none comes any more.
fn receive(
    socket: &UdpSocket,
    sent: &AtomicU64,
    received: &AtomicU64,
    done: &AtomicBool,
) -> Vec<bool> {
    let short = Some(Duration::from_millis(100));
    socket.set_read_timeout(short).expect("a timeout");
    let mut seen = Vec::new();
    let mut last = Instant::now();
    let mut buffer = [0; 8];
    loop {
        if socket.recv(&mut buffer).is_ok() {
            last = Instant::now();
            let number = u64::from_be_bytes(buffer);
            let index = usize::try_from(number).expect("a number of this stream");
            if seen.len() <= index {
                seen.resize(index + 1, false);
            }
            if let Some(seen) = seen.get_mut(index).filter(|seen| !**seen) {
                *seen = true;
                received.fetch_add(1, Ordering::Release);
            }
        }
        // In this order: what is sent is known once the sender is done.
        let ended = done.load(Ordering::Acquire);
        let all = received.load(Ordering::Acquire) == sent.load(Ordering::Acquire);
        if ended && (all || last.elapsed() > Duration::from_secs(3)) {
            return seen;
        }
    }
}
