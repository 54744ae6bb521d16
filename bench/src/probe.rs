//! Run the process that sends datagrams and connections, and prints its figures.
//!
//! It sends small datagrams as fast as they go, round trips, connections, and datagrams at a steady
//! pace. The figures are JSON.

mod alone;
mod broadcast;
mod connect;
mod paced;
mod small;
mod trip;
mod turns;

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use netdev::Netns;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use crate::series::percentile;
use crate::traffic::order::{Answer, End, Mode, Order, SERVICE_PORT, Turns};

/// Bytes of a small datagram: a 60-byte Ethernet frame, 64 with its check sequence.
///
/// There is no smaller frame.
pub const PAYLOAD: usize = 18;
/// Percentiles of times, in thousandths of a percent, denser where a tail begins.
const PERCENTILES: [u32; 24] = [
    0, 1_000, 5_000, 10_000, 20_000, 30_000, 40_000, 50_000, 60_000, 70_000, 75_000, 80_000,
    85_000, 90_000, 92_500, 95_000, 97_000, 98_000, 99_000, 99_500, 99_800, 99_900, 99_950, 99_990,
];

/// Does what an order says.
///
/// # Errors
/// The order cannot be read, or the kernel's.
pub fn obey(order: &str) -> Result<Answer> {
    let order: Order = serde_json::from_str(order).context("the order is no JSON")?;
    let from = Place::enter(&order.from)?;
    let time = Duration::from_millis(order.millis);
    let cpus = order.cpus;
    // Where an application is, nobody of us goes.
    let (there, own) = (order.to.ip, cpus[1]);
    let udp = || udp_pair(&from, &Place::enter(&order.to)?);
    let tcp = || tcp_pair(&from, &Place::enter(&order.to)?);
    match order.mode {
        Mode::UdpTwoCpus => small::two_cpus(&udp()?, cpus, time),
        Mode::UdpOneCpu => small::one_cpu(&udp()?, cpus[0], time),
        Mode::UdpTrip => trip::udp(&udp()?, cpus[0], time),
        Mode::UdpTripTwoCpus => trip::udp_two_cpus(udp()?, cpus, time),
        Mode::TcpTrip => trip::tcp(tcp()?, cpus[0], time),
        Mode::TcpTripTwoCpus => trip::tcp_two_cpus(tcp()?, cpus, time),
        Mode::Connect => connect::connect(&from, &Place::enter(&order.to)?, cpus[0], time),
        Mode::Paced { rate } => paced::echo(udp()?, rate, time),
        Mode::Stream { rate } => paced::stream(udp()?, rate, time),
        Mode::Broadcast => broadcast::one_by_one(&from, &Place::enter(&order.to)?, cpus[0], time),
        Mode::Storm => broadcast::storm(&from, cpus[0], time),
        Mode::FromApplication => alone::receive(&from, there, own, time),
        Mode::ToApplication { size } => alone::flood(&from, there, size, own, time),
        Mode::AskApplication { size } => alone::ask(&from, there, size, own, time),
    }
}

/// Sends what an order says by several ways in turns; returns nanoseconds of each.
///
/// # Errors
/// As of [`obey`], or something got lost.
pub fn take_turns(order: &str) -> Result<Vec<f64>> {
    let order: Turns = serde_json::from_str(order).context("the order is no JSON")?;
    let place = |end: &End| Place::enter(end);
    let ways = order.ways.iter();
    let ways = ways.map(|[from, to]| Ok([place(from)?, place(to)?]));
    let mut ways = turns::open(order.exchange, ways.collect::<Result<_>>()?)?;
    stay_on(order.cpu)?;
    turns::measure(&mut ways, Duration::from_millis(order.millis), order.all)
}

/// A namespace and an address in it.
struct Place {
    netns: Netns,
    ip: IpAddr,
    service: Option<IpAddr>,
}

impl Place {
    fn enter(end: &End) -> Result<Self> {
        Ok(Self {
            netns: Netns::open(Path::new(&end.netns))?,
            ip: end.ip,
            service: end.service,
        })
    }

    /// The port at which it is bound: any, or that of the Service.
    fn port(&self) -> u16 {
        self.service.map_or(0, |_| SERVICE_PORT)
    }

    /// Returns the address by which others reach a socket that is bound here.
    fn address(&self, bound: SocketAddr) -> SocketAddr {
        self.service
            .map_or(bound, |service| SocketAddr::new(service, SERVICE_PORT))
    }

    fn udp(&self) -> Result<UdpSocket> {
        let at = (self.ip, self.port());
        let socket = self.netns.run_in(|| UdpSocket::bind(at))?;
        let socket = socket.with_context(|| format!("a socket on {}", self.ip))?;
        socket.set_read_timeout(Some(Duration::from_secs(2)))?;
        Ok(socket)
    }

    fn listen(&self) -> Result<TcpListener> {
        let at = (self.ip, self.port());
        let listener = self.netns.run_in(|| TcpListener::bind(at))?;
        listener.with_context(|| format!("listening on {}", self.ip))
    }

    fn connect(&self, to: SocketAddr) -> Result<TcpStream> {
        let stream = self
            .netns
            .run_in(|| TcpStream::connect_timeout(&to, Duration::from_secs(5)))?;
        stream.with_context(|| format!("connecting to {to}"))
    }
}

/// Two sockets that know each other: who begins and who answers.
fn udp_pair(from: &Place, to: &Place) -> Result<(UdpSocket, UdpSocket)> {
    let (source, sink) = connected(from, to)?;
    // The neighbours learn of each other before the clock starts.
    for (a, b) in [(&source, &sink), (&sink, &source)] {
        a.send(&[0; PAYLOAD])?;
        b.recv(&mut [0; PAYLOAD])
            .context("the first datagram does not arrive")?;
    }
    Ok((source, sink))
}

/// Two UDP sockets that take nothing but what the other one sends.
fn connected(from: &Place, to: &Place) -> Result<(UdpSocket, UdpSocket)> {
    let (source, sink) = (from.udp()?, to.udp()?);
    source.connect(to.address(sink.local_addr()?))?;
    sink.connect(source.local_addr()?)?;
    Ok((source, sink))
}

fn tcp_pair(from: &Place, to: &Place) -> Result<(TcpStream, TcpStream)> {
    let listener = to.listen()?;
    let client = from.connect(to.address(listener.local_addr()?))?;
    let (server, _) = listener.accept()?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    }
    Ok((client, server))
}

pub(crate) fn stay_on(cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu)?;
    sched_setaffinity(Pid::from_raw(0), &set).with_context(|| format!("staying on CPU {cpu}"))
}

/// The median and the percentiles of times.
fn times(mut times: Vec<Duration>) -> Answer {
    times.sort();
    let micros: Vec<f64> = times.iter().map(|time| time.as_secs_f64() * 1e6).collect();
    let at = |part: u32| [f64::from(part) / 1000.0, percentile(&micros, part)];
    Answer {
        value: percentile(&micros, crate::series::MEDIAN),
        percentiles: PERCENTILES.into_iter().map(at).collect(),
        sent: micros.len() as u64,
        received: micros.len() as u64,
        ..Answer::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_times_are_in_microseconds() {
        let answer = times((0..=1000).map(Duration::from_micros).collect());
        assert!((answer.value - 500.0).abs() < 1e-6);
        assert!((answer.at(99.0) - 990.0).abs() < 1e-6);
        assert!((answer.at(99.9) - 999.0).abs() < 1e-6);
        assert!(answer.at(12.3).is_nan());
    }
}
