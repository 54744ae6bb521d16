//! Define the orders to the probe and its answers.
//!
//! The probe is this program once more, as a process of its own, so that it can have processors of its
//! own.

use std::net::IpAddr;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::path_of;
use super::process::Process;
use crate::interrupt;
use crate::quiet;
use crate::sandbox::Side;

/// How much longer than its time a probe may take.
const PATIENCE: Duration = Duration::from_secs(15);

/// Mode of sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// Small datagrams, sender and receiver on a processor each: how many are received.
    UdpTwoCpus,
    /// Small datagrams, both in turn on one processor: nanoseconds for each.
    ///
    /// The time is from the one's `sendmmsg` to the other's `recvmmsg`.
    UdpOneCpu,
    /// One datagram there, one back, by one thread: microseconds for both.
    UdpTrip,
    /// The same with the other side on another processor, which has to be woken.
    UdpTripTwoCpus,
    /// One byte there, one back, over TCP, by one thread.
    TcpTrip,
    /// The same with the other side on another processor.
    TcpTripTwoCpus,
    /// TCP connections per second, with a byte each way, by one thread.
    Connect,
    /// A datagram and its echo at a steady pace: microseconds for each.
    Paced {
        /// Datagrams a second.
        rate: u32,
    },
    /// Numbered datagrams at a steady pace: how many are lost, and the longest gap.
    Stream {
        /// Datagrams a second.
        rate: u32,
    },
    /// Broadcasts, each when both copies of the last have come: microseconds.
    Broadcast,
    /// Broadcasts as fast as they go: thousands a second.
    Storm,
    /// Datagrams of an application: how many are received.
    FromApplication,
    /// Datagrams to an application: how many are sent.
    ToApplication {
        /// Bytes of each.
        size: usize,
    },
    /// One datagram to an application, one back: microseconds for both.
    AskApplication {
        /// Bytes of each.
        size: usize,
    },
}

impl Mode {
    /// Whether the probe goes before other programs on its processors.
    ///
    /// What sleeps between two messages may: others would be measured with it. What never sleeps may not: it would
    /// keep its processor from the kernel's thread that moves packets (ksoftirqd).
    pub fn is_urgent(self) -> bool {
        match self {
            Self::UdpOneCpu
            | Self::UdpTrip
            | Self::UdpTripTwoCpus
            | Self::TcpTrip
            | Self::TcpTripTwoCpus
            | Self::Connect
            | Self::Paced { .. }
            | Self::Stream { .. }
            | Self::AskApplication { .. } => true,
            // The copies of a broadcast may be that thread's, too.
            Self::Broadcast
            | Self::Storm
            | Self::UdpTwoCpus
            | Self::FromApplication
            | Self::ToApplication { .. } => false,
        }
    }
}

/// One end.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct End {
    /// A file that is the namespace.
    pub netns: String,
    /// The address.
    pub ip: IpAddr,
    /// Address of a Service whose endpoint it is, to which the other end sends.
    ///
    /// Both have [`SERVICE_PORT`].
    pub service: Option<IpAddr>,
}

/// Port of Services, and of their endpoints.
pub const SERVICE_PORT: u16 = 8080;

/// Traffic that one thread sends and receives by itself, again and again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exchange {
    /// Small datagrams of one connection that was answered: each of a batch.
    Datagrams,
    /// The same from a port to which nothing was ever sent back.
    Unanswered,
    /// The same by many connections, one datagram each in turn.
    Alternating,
    /// One datagram there, one back: both.
    Trip,
    /// A TCP stream in large writes: each byte.
    Stream,
    /// A TCP connection, opened, with a byte each way, and closed.
    Connection,
}

/// Order to the probe for several ways in turns.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Turns {
    /// Traffic by each way.
    pub exchange: Exchange,
    /// The ends of each: one that starts, and one that answers.
    pub ways: Vec<[End; 2]>,
    /// For how long by each.
    pub millis: u64,
    /// Processor.
    pub cpu: usize,
    /// Turns count that something interrupted: no figure is wanted.
    pub all: bool,
}

/// Order to the probe.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Order {
    /// Mode of sending.
    pub mode: Mode,
    /// The end that starts.
    pub from: End,
    /// The end that answers.
    pub to: End,
    /// For how long.
    pub millis: u64,
    /// Processors.
    pub cpus: [usize; 2],
}

/// Figures that the probe found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// The figure, where the mode has one.
    pub value: f64,
    /// Percentiles of what took time, in microseconds, where the mode measures that.
    pub percentiles: Vec<[f64; 2]>,
    /// Each time in microseconds in order, for the modes at a steady pace.
    pub times: Vec<f64>,
    /// Datagrams sent.
    pub sent: u64,
    /// Datagrams received, also before the clock started.
    pub received: u64,
    /// The longest time in which none came, in milliseconds.
    pub gap: f64,
}

impl Answer {
    /// A percentile in percent; NaN if it was not measured.
    pub fn at(&self, percent: f64) -> f64 {
        let mut points = self.percentiles.iter();
        points
            .find(|[at, _]| (at - percent).abs() < 1e-6)
            .map_or(f64::NAN, |[_, time]| *time)
    }
}

/// A probe at work.
#[derive(Debug)]
pub struct Running {
    process: Process,
    patience: Duration,
}

/// Starts a probe from `a` to `b`.
///
/// # Errors
/// It cannot be started.
pub fn start(mode: Mode, a: &Side, b: &Side, time: Duration) -> Result<Running> {
    start_on(mode, a, b, time, super::cpus())
}

/// As [`start`], on these processors.
///
/// # Errors
/// As of [`start`].
pub fn start_on(
    mode: Mode,
    a: &Side,
    b: &Side,
    time: Duration,
    cpus: [usize; 2],
) -> Result<Running> {
    let order = Order {
        mode,
        from: end(a),
        to: end(b),
        millis: u64::try_from(time.as_millis())?,
        cpus,
    };
    let order = serde_json::to_string(&order)?;
    Running::start("probe", &order, mode.is_urgent(), time)
}

fn end(side: &Side) -> End {
    End {
        netns: path_of(&side.netns),
        ip: side.ip,
        service: None,
    }
}

/// Sends by each way in turn; returns nanoseconds of each.
///
/// Each has this time in all, a few milliseconds in a turn. What changes on the machine meanwhile changes for all of them.
/// A way may lead to the address of a Service. With `all`, turns that something interrupted count, too.
///
/// # Errors
/// The probe fails.
pub fn by_turns(
    exchange: Exchange,
    ways: &[([&Side; 2], Option<IpAddr>)],
    (time, all): (Duration, bool),
) -> Result<Vec<f64>> {
    let order = Turns {
        exchange,
        ways: ways
            .iter()
            .map(|([from, to], service)| {
                let to = End {
                    service: *service,
                    ..end(to)
                };
                [end(from), to]
            })
            .collect(),
        millis: u64::try_from(time.as_millis())?,
        cpu: super::cpus()[0],
        all,
    };
    let whole = time * u32::try_from(ways.len())?;
    Running::start("turns", &serde_json::to_string(&order)?, true, whole)?.read()
}

/// Sends from `a` to `b` and waits for what is found.
///
/// # Errors
/// The probe fails.
pub fn run(mode: Mode, a: &Side, b: &Side, time: Duration) -> Result<Answer> {
    start(mode, a, b, time)?.finish()
}

impl Running {
    fn start(verb: &str, order: &str, is_urgent: bool, time: Duration) -> Result<Self> {
        interrupt::check()?;
        // This very program, also when a build has put another file in its place (proc_pid_exe(5)).
        let program = format!("/proc/{}/exe", std::process::id());
        let mut command = match is_urgent {
            true => quiet::realtime(&program),
            false => Command::new(program),
        };
        command.args([verb, order]);
        // It enters the namespaces of the order itself.
        let process = Process::start_here(command)?;
        Ok(Self {
            process,
            patience: time + PATIENCE,
        })
    }

    /// Waits for what is found.
    ///
    /// # Errors
    /// The probe fails.
    pub fn finish(self) -> Result<Answer> {
        self.read()
    }

    fn read<T: serde::de::DeserializeOwned>(self) -> Result<T> {
        let text = self.process.finish(self.patience)?;
        serde_json::from_str(&text).context("the probe printed no JSON")
    }
}
