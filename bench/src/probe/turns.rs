//! Measure several ways by one thread, some milliseconds each in turn.
//!
//! A virtual machine's processors change their pace within seconds, by a third and more. By turns all ways have
//! the same share of each pace, where one after the other they would have one each.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sched::{CloneFlags, setns};

use super::small::{BATCH, Receiver, Sender};
use super::{PAYLOAD, Place, connected, tcp_pair, udp_pair};
use crate::traffic::order::Exchange;

/// Time of a way until it is the next one's turn.
const TURN: Duration = Duration::from_millis(5);
/// Longest delay of the end of a turn that was not interrupted.
///
/// It ends with a unit of traffic after [`TURN`].
const LATE: Duration = Duration::from_millis(1);
/// Part of a way's turns that nothing may have interrupted, at least: one by this.
const WHOLE: usize = 2;
/// Bytes of a write to a stream.
const WRITE: usize = 64 << 10;

/// Traffic of a way.
pub(super) trait Traffic {
    /// Prepares a turn; it is not timed.
    fn prepare(&mut self) -> Result<()> {
        Ok(())
    }

    /// Sends and receives, and returns how many.
    fn once(&mut self) -> Result<u32>;
}

/// Opens the sockets of all ways.
///
/// # Errors
/// The kernel's, or the first packets do not arrive.
pub(super) fn open(exchange: Exchange, ways: Vec<[Place; 2]>) -> Result<Vec<Box<dyn Traffic>>> {
    ways.into_iter()
        .map(|[from, to]| one(exchange, from, &to))
        .collect()
}

fn one(exchange: Exchange, from: Place, to: &Place) -> Result<Box<dyn Traffic>> {
    Ok(match exchange {
        Exchange::Datagrams => Box::new(Datagrams::new(udp_pair(&from, to)?)),
        Exchange::Unanswered => {
            // The neighbours know each other by other ports.
            let others = udp_pair(&from, to)?;
            let pair = connected(&from, to)?;
            drop(others);
            Box::new(Datagrams::new(pair))
        }
        Exchange::Alternating => Box::new(Alternating::new(&from, to)?),
        Exchange::Trip => Box::new(Trip(udp_pair(&from, to)?)),
        Exchange::Stream => {
            let (client, server) = tcp_pair(&from, to)?;
            client.set_nonblocking(true)?;
            Box::new(Stream {
                client,
                server,
                bytes: vec![0x5a; WRITE],
            })
        }
        Exchange::Connection => {
            let listener = to.listen()?;
            Box::new(Connection {
                to: to.address(listener.local_addr()?),
                listener,
                from,
            })
        }
    })
}

/// A turn of a way.
#[derive(Debug, Clone, Copy)]
struct Turn {
    took: Duration,
    count: u64,
    /// Time of the first call of [`Traffic::once`], which is none of the turn's own.
    once: Duration,
}

/// Returns nanoseconds of each unit of all ways.
///
/// `all`: also where most of its turns were interrupted.
///
/// # Errors
/// Something got lost, or no turn of a way counts.
pub(super) fn measure(
    ways: &mut [Box<dyn Traffic>],
    time: Duration,
    all: bool,
) -> Result<Vec<f64>> {
    let turns = time.as_micros().div_ceil(TURN.as_micros());
    let mut found = vec![Vec::<Turn>::new(); ways.len()];
    // The first turn of each is for warming up.
    for turn in 0..=turns {
        for place in 0..ways.len() {
            // There and back: each way has another neighbour on each side.
            let number = match turn % 2 {
                0 => place,
                _ => ways.len() - 1 - place,
            };
            let one = one_turn(&mut *ways[number])?;
            if turn > 0 {
                found[number].push(one);
            }
        }
    }
    found.iter().map(|turns| mean(turns, all)).collect()
}

/// Returns nanoseconds of a unit in turns that nothing interrupted.
///
/// The fastest first call tells how long a unit of traffic takes.
fn mean(turns: &[Turn], all: bool) -> Result<f64> {
    let once = turns.iter().map(|turn| turn.once).min().unwrap_or_default();
    let most = TURN + once + LATE;
    let whole: Vec<&Turn> = turns
        .iter()
        .filter(|turn| all || turn.took < most)
        .collect();
    if whole.len() * WHOLE < turns.len() {
        bail!(
            "{} of {} turns were interrupted: they took more than {most:?}",
            turns.len() - whole.len(),
            turns.len()
        );
    }
    let took: Duration = whole.iter().map(|turn| turn.took).sum();
    let count: u64 = whole.iter().map(|turn| turn.count).sum();
    Ok(took.as_secs_f64() * 1e9 / count as f64)
}

fn one_turn(way: &mut dyn Traffic) -> Result<Turn> {
    way.prepare()?;
    // The processor has forgotten this way.
    let begun = Instant::now();
    way.once()?;
    let once = begun.elapsed();
    let (begun, mut count) = (Instant::now(), 0);
    loop {
        count += u64::from(way.once()?);
        let took = begun.elapsed();
        if took >= TURN {
            return Ok(Turn { took, count, once });
        }
    }
}

/// Datagrams by batches.
struct Datagrams {
    source: UdpSocket,
    sink: UdpSocket,
    sender: Sender,
    receiver: Receiver,
}

impl Datagrams {
    fn new((source, sink): (UdpSocket, UdpSocket)) -> Self {
        Self {
            source,
            sink,
            sender: Sender::new(PAYLOAD),
            receiver: Receiver::new(),
        }
    }
}

impl Traffic for Datagrams {
    fn once(&mut self) -> Result<u32> {
        let sent = self.sender.send(&self.source)?;
        receive(&mut self.receiver, &self.sink, sent)
    }
}

fn receive(receiver: &mut Receiver, sink: &UdpSocket, sent: u32) -> Result<u32> {
    let got = receiver.receive_all(sink, sent)?;
    if got < sent {
        bail!("{} of {sent} datagrams did not arrive", sent - got);
    }
    Ok(got)
}

/// A datagram of each of many connections, which were answered, to one socket.
struct Alternating {
    sources: Vec<UdpSocket>,
    sink: UdpSocket,
    receiver: Receiver,
}

impl Alternating {
    fn new(from: &Place, to: &Place) -> Result<Self> {
        let sink = to.udp()?;
        let sources = (0..BATCH).map(|_| -> Result<UdpSocket> {
            let source = from.udp()?;
            source.connect(to.address(sink.local_addr()?))?;
            source.send(&[0; PAYLOAD])?;
            let (_, address) = sink.recv_from(&mut [0; PAYLOAD])?;
            sink.send_to(&[0; PAYLOAD], address)?;
            source
                .recv(&mut [0; PAYLOAD])
                .context("the first answer does not arrive")?;
            Ok(source)
        });
        Ok(Self {
            sources: sources.collect::<Result<_>>()?,
            sink,
            receiver: Receiver::new(),
        })
    }
}

impl Traffic for Alternating {
    fn once(&mut self) -> Result<u32> {
        for source in &self.sources {
            source.send(&[0x5a; PAYLOAD])?;
        }
        let sent = u32::try_from(self.sources.len())?;
        receive(&mut self.receiver, &self.sink, sent)
    }
}

/// A datagram there and one back.
struct Trip((UdpSocket, UdpSocket));

impl Traffic for Trip {
    fn once(&mut self) -> Result<u32> {
        let (source, sink) = &self.0;
        let mut buffer = [0; PAYLOAD];
        for (from, to) in [(source, sink), (sink, source)] {
            from.send(&buffer)?;
            to.recv(&mut buffer).context("a datagram got lost")?;
        }
        Ok(1)
    }
}

/// A stream, of which is read at once what was written.
struct Stream {
    client: TcpStream,
    server: TcpStream,
    bytes: Vec<u8>,
}

impl Traffic for Stream {
    fn once(&mut self) -> Result<u32> {
        // It takes what it has room for, and sends more when some of that is read.
        let written = self.client.write(&self.bytes)?;
        let read = &mut self.bytes[..written];
        self.server.read_exact(read).context("a segment got lost")?;
        Ok(u32::try_from(written)?)
    }
}

/// Connections, one after the other.
struct Connection {
    to: SocketAddr,
    listener: TcpListener,
    from: Place,
}

impl Traffic for Connection {
    fn prepare(&mut self) -> Result<()> {
        // A new socket belongs to the namespace of its thread, and this program has one.
        setns(self.from.netns.as_fd(), CloneFlags::CLONE_NEWNET).context("entering a namespace")
    }

    fn once(&mut self) -> Result<u32> {
        super::connect::once(&self.to, &self.listener)?;
        Ok(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(took: Duration, count: u64) -> Turn {
        Turn {
            took,
            count,
            once: TURN / 2,
        }
    }

    #[test]
    fn a_turn_that_was_interrupted_does_not_count() {
        let turns = [turn(TURN, 10), turn(2 * TURN, 1), turn(TURN, 15)];
        assert!((mean(&turns, false).unwrap() - 400_000.0).abs() < 1e-6);
        let error = mean(&turns[1..2], false).unwrap_err().to_string();
        assert!(error.contains("1 of 1 turns were interrupted"), "{error}");
        assert!(
            mean(&turns[1..2], true).is_ok(),
            "where no figure is wanted"
        );
    }

    #[test]
    fn a_turn_may_be_late_by_one_unit_of_traffic() {
        let turns = [turn(TURN + TURN / 2, 3), turn(TURN, 2)];
        assert!((mean(&turns, false).unwrap() - 2_500_000.0).abs() < 1e-6);
    }
}
