//! Loading a path: `iperf3` for streams, the probe of this package for small datagrams.

use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use netdev::Netns;
use serde_json::Value;

use crate::interrupt;
use crate::sandbox::Side;

/// Runs at real-time priority, so that other programs of a busy machine do not count; senders on
/// one CPU, receivers on another.
fn pinned(cpus: &str, program: &PathBuf) -> Command {
    let mut command = Command::new("chrt");
    command
        .args(["-f", "1", "taskset", "-c", cpus])
        .arg(program)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// One TCP stream from `a` to `b`, in Gbit/s as received.
///
/// # Errors
/// `iperf3` is missing or fails.
pub fn tcp(a: &Side, b: &Side, time: Duration) -> Result<f64> {
    interrupt::check()?;
    let iperf = PathBuf::from("iperf3");
    let ip = b.ip.to_string();
    let mut server = pinned("1", &iperf);
    server.args(["-s", "-1", "--forceflush", "-B", &ip]);
    let mut server = b
        .netns
        .run_in(|| server.spawn())?
        .context("starting iperf3 (apt-get install iperf3)")?;
    let client = wait_listening(b).and_then(|()| {
        let mut client = pinned("0", &iperf);
        client.args(["-c", &ip, "-J", "-t", &time.as_secs().to_string()]);
        let output = a.netns.run_in(|| client.output())?;
        output.context("starting iperf3")
    });
    if client.is_err() {
        // It waits for a client that never came.
        let _ = server.kill();
    }
    server.wait().context("waiting for iperf3")?;
    let client = client?;
    let report: Value = serde_json::from_slice(&client.stdout).context("iperf3 printed no JSON")?;
    let bits = report["end"]["sum_received"]["bits_per_second"].as_f64();
    let bits = bits.with_context(|| format!("iperf3: {}", report["error"]))?;
    Ok(bits / 1e9)
}

/// Waits until the server listens, without connecting: it serves one client only.
fn wait_listening(b: &Side) -> Result<()> {
    let end = std::time::Instant::now() + Duration::from_secs(5);
    while std::time::Instant::now() < end {
        let listens = b.netns.run_in(|| -> std::io::Result<bool> {
            let sockets = std::fs::read_to_string("/proc/thread-self/net/tcp")?;
            // Port 5201, state LISTEN (proc_net_tcp(5)).
            Ok(sockets
                .lines()
                .any(|line| line.contains(":1451 ") && line.contains(" 0A ")))
        })??;
        if listens {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    bail!("iperf3 does not listen")
}

/// Small datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Udp {
    /// Sender and receiver on a CPU each: thousands of datagrams received per second.
    TwoCpus,
    /// Both in turn on one CPU: nanoseconds for each datagram, from the one's `sendmmsg` to the
    /// other's `recvmmsg`.
    OneCpu,
    /// One datagram there, one back, on one CPU: microseconds for both.
    RoundTrip,
}

/// Sends small datagrams from `a` to `b`.
///
/// # Errors
/// The probe fails.
pub fn udp(a: &Side, b: &Side, how: Udp, time: Duration) -> Result<f64> {
    interrupt::check()?;
    let probe = std::env::current_exe()?.with_file_name("udp-probe");
    let (mode, cpus) = match how {
        Udp::TwoCpus => ("two-cpus", "0,1"),
        Udp::OneCpu => ("one-cpu", "0"),
        Udp::RoundTrip => ("round-trip", "0"),
    };
    let output = pinned(cpus, &probe)
        .arg(mode)
        .arg(time.as_millis().to_string())
        .args([path_of(&a.netns), path_of(&b.netns)])
        .args([a.ip.to_string(), b.ip.to_string()])
        .output()
        .context("starting udp-probe")?;
    let text = String::from_utf8_lossy(&output.stdout);
    match text.trim().parse() {
        Ok(number) if output.status.success() => Ok(number),
        _ => bail!("udp-probe: {}", String::from_utf8_lossy(&output.stderr)),
    }
}

/// The namespace as a file that other processes can open.
fn path_of(netns: &Netns) -> String {
    let fd = netns.as_fd().as_raw_fd();
    format!("/proc/{}/fd/{fd}", std::process::id())
}
