//! TCP streams by `iperf3`.

use std::fs;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::process::{Process, pinned};
use crate::interrupt;
use crate::sandbox::Side;

/// How much longer than its time `iperf3` may take.
const PATIENCE: Duration = Duration::from_secs(15);

/// TCP streams from one pod to another.
#[derive(Debug, Clone)]
pub struct Bulk<'a> {
    /// The sender.
    pub from: &'a Side,
    /// The receiver.
    pub to: &'a Side,
    /// How many streams.
    pub streams: u32,
    /// For how long.
    pub time: Duration,
    /// Processors of the sender and of the receiver.
    pub cpus: [usize; 2],
    /// The receiver's port: two at a time need two.
    pub port: u16,
    /// Bytes of a write and of a read; `iperf3` counts a read only when it is whole.
    pub chunk: u32,
}

/// Streams at work.
#[derive(Debug)]
pub struct Running {
    server: Process,
    client: Process,
    patience: Duration,
}

/// Result of a transfer.
#[derive(Debug, Clone, PartialEq)]
pub struct Carried {
    /// Payload received, bits per second.
    pub rate: f64,
    /// Payload received, bytes.
    pub bytes: f64,
    /// Segments sent again.
    pub retransmits: f64,
    /// End of each tenth of a second since the start, with the bytes received by then.
    pub course: Vec<(f64, f64)>,
}

impl<'a> Bulk<'a> {
    /// One stream of this long, sender and receiver on two processors.
    pub fn new(from: &'a Side, to: &'a Side, time: Duration) -> Self {
        Self {
            from,
            to,
            streams: 1,
            time,
            cpus: super::cpus(),
            port: 5201,
            chunk: 128 * 1024,
        }
    }

    /// Starts sending.
    ///
    /// # Errors
    /// `iperf3` is missing or does not listen.
    pub fn start(&self) -> Result<Running> {
        interrupt::check()?;
        let (ip, port) = (self.to.ip.to_string(), self.port.to_string());
        let common = |cpu| {
            let mut command = pinned(cpu, "iperf3");
            command.args(["-J", "-p", &port]);
            command
        };
        let mut server = common(self.cpus[1]);
        server.args(["-s", "-1", "-B", &ip, "-i", "0.1"]);
        let mut server =
            Process::start(server, &self.to.netns).context("iperf3 (apt-get install iperf3)")?;
        self.wait_listening(&mut server)?;
        let mut client = common(self.cpus[0]);
        let seconds = format!("{}", self.time.as_secs_f64().ceil());
        client.args(["-c", &ip, "-t", &seconds, "-C", super::congestion()]);
        client.args(["-P", &self.streams.to_string()]);
        client.args(["-l", &self.chunk.to_string(), "-i", "1"]);
        let client = Process::start(client, &self.from.netns)?;
        Ok(Running {
            server,
            client,
            patience: self.time + PATIENCE,
        })
    }

    /// Sends and waits until all is there.
    ///
    /// # Errors
    /// As [`Self::start`], and when `iperf3` fails.
    pub fn run(&self) -> Result<Carried> {
        self.start()?.finish()
    }

    /// Waits until the server listens, without connecting: it serves one client only.
    fn wait_listening(&self, server: &mut Process) -> Result<()> {
        let port = format!(":{:04X} ", self.port);
        let end = Instant::now() + Duration::from_secs(5);
        while Instant::now() < end {
            let listens = self.to.netns.run_in(|| -> io::Result<bool> {
                let sockets = fs::read_to_string("/proc/thread-self/net/tcp")?;
                // State LISTEN (proc_net_tcp(5)).
                Ok(sockets
                    .lines()
                    .any(|line| line.contains(&port) && line.contains(" 0A ")))
            })??;
            if listens {
                return Ok(());
            }
            if !server.runs()? {
                bail!("iperf3 does not listen: {}", server.complaint().trim());
            }
            thread::sleep(Duration::from_millis(2));
        }
        bail!("iperf3 does not listen")
    }
}

impl Running {
    /// Waits until all is there.
    ///
    /// # Errors
    /// `iperf3` fails, or the run is interrupted.
    pub fn finish(self) -> Result<Carried> {
        let client = self.client.finish(self.patience)?;
        let server = self.server.finish(PATIENCE)?;
        carried(&client, &server)
    }
}

fn carried(client: &str, server: &str) -> Result<Carried> {
    let client: Value = serde_json::from_str(client).context("iperf3 printed no JSON")?;
    let server: Value = serde_json::from_str(server).context("iperf3 printed no JSON")?;
    let received = &client["end"]["sum_received"];
    let number = |value: &Value, key: &str| {
        value[key]
            .as_f64()
            .with_context(|| format!("iperf3 tells no {key}: {}", client["error"]))
    };
    let mut bytes = 0.0;
    let mut course = Vec::new();
    for interval in server["intervals"].as_array().into_iter().flatten() {
        let sum = &interval["sum"];
        bytes += number(sum, "bytes")?;
        course.push((number(sum, "end")?, bytes));
    }
    Ok(Carried {
        rate: number(received, "bits_per_second")?,
        bytes: number(received, "bytes")?,
        retransmits: client["end"]["sum_sent"]["retransmits"]
            .as_f64()
            .unwrap_or_default(),
        course,
    })
}

impl Carried {
    /// Bytes received until a moment, between two that were told.
    fn until(&self, moment: f64) -> f64 {
        let mut before = (0.0, 0.0);
        for point in &self.course {
            if point.0 >= moment {
                let part = (moment - before.0) / (point.0 - before.0).max(1e-9);
                return before.1 + (point.1 - before.1) * part;
            }
            before = *point;
        }
        before.1
    }

    /// Payload in bits per second from one moment to another, seconds since the start.
    pub fn between(&self, from: f64, to: f64) -> f64 {
        (self.until(to) - self.until(from)) * 8.0 / (to - from)
    }

    /// The most of any whole second from a moment on, in bits per second.
    pub fn worst_second(&self, from: f64, to: f64) -> f64 {
        let ends = self.course.iter().map(|(end, _)| *end);
        let within = ends.filter(|end| *end - 1.0 >= from && *end <= to);
        within
            .map(|end| self.between(end - 1.0, end))
            .fold(0.0, f64::max)
    }

    /// The end of what was told, in seconds.
    pub fn end(&self) -> f64 {
        self.course.last().map_or(0.0, |(end, _)| *end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn course(bytes: &[f64]) -> Carried {
        let mut sum = 0.0;
        let course = bytes.iter().enumerate().map(|(number, bytes)| {
            sum += bytes;
            ((number + 1) as f64 / 10.0, sum)
        });
        Carried {
            rate: 0.0,
            bytes: 0.0,
            retransmits: 0.0,
            course: course.collect(),
        }
    }

    #[test]
    fn what_iperf3_prints_is_read() {
        let client = r#"{"end": {"sum_sent": {"retransmits": 3},
            "sum_received": {"bits_per_second": 8e6, "bytes": 1e6}}}"#;
        let server = r#"{"intervals": [{"sum": {"end": 0.1, "bytes": 100}},
            {"sum": {"end": 0.2, "bytes": 50}}]}"#;
        let carried = carried(client, server).unwrap();
        assert!((carried.rate - 8e6).abs() < 1.0);
        assert!((carried.retransmits - 3.0).abs() < 1e-9);
        assert_eq!(carried.course, [(0.1, 100.0), (0.2, 150.0)]);
    }

    #[test]
    fn an_error_of_iperf3_is_told() {
        let error = carried(r#"{"error": "unable to connect"}"#, "{}").unwrap_err();
        assert!(error.to_string().contains("unable to connect"), "{error}");
    }

    #[test]
    fn a_rate_is_told_between_any_two_moments() {
        // A megabyte in the first tenth, then 100 kB each.
        let mut bytes = vec![1e6];
        bytes.extend([1e5; 29]);
        let carried = course(&bytes);
        assert!((carried.between(1.0, 3.0) - 8e6).abs() < 1.0);
        assert!((carried.between(1.05, 1.15) - 8e6).abs() < 1.0);
        assert!((carried.between(0.0, 0.1) - 8e7).abs() < 1.0);
    }

    #[test]
    fn the_worst_second_may_begin_at_any_tenth_but_not_before_the_start() {
        let mut bytes = vec![1e6];
        bytes.extend([1e5; 14]);
        bytes.push(2e5);
        bytes.extend([1e5; 14]);
        let carried = course(&bytes);
        assert!((carried.worst_second(0.5, 3.0) - 8.8e6).abs() < 1.0);
        assert!((carried.worst_second(0.0, 3.0) - 15.2e6).abs() < 1.0);
        assert!((carried.worst_second(1.7, 3.0) - 8e6).abs() < 1.0);
    }
}
