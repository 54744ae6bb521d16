//! Run DPDK's testpmd: memif's load, the compared forwarder, and a TAP's program.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use netdev::Netns;
use tempfile::TempDir;
use testbed::testpmd;

use super::provided;
use crate::traffic::process::Process;

/// How long it may take until it forwards.
const PATIENCE: Duration = Duration::from_secs(20);
/// Heading that it prints when it forwards.
const BEGUN: &str = "Port statistics";

/// testpmd on this machine.
#[derive(Debug)]
pub(crate) struct Testpmd {
    root: PathBuf,
    dir: TempDir,
}

impl Testpmd {
    /// # Errors
    /// It is not here.
    pub(crate) fn find() -> Result<Self> {
        Ok(Self {
            root: provided("PODNET_DPDK")?,
            dir: tempfile::Builder::new()
                .prefix("podnet-testpmd-")
                .tempdir()?,
        })
    }

    /// A place for a socket.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Returns its command line on a processor, with devices and options of testpmd.
    ///
    /// Each second it prints the counters of its ports.
    pub(crate) fn command(
        &self,
        (name, cpu): (&str, usize),
        devices: &[String],
        options: &[&str],
    ) -> Command {
        // Whichever of these a device is of.
        let drivers = ["librte_net_memif", "librte_net_tap", "librte_mempool_ring"];
        let place = (self.dir.path(), name);
        let mut command = testpmd::command(&self.root, &drivers, cpu, place);
        command
            .args(devices.iter().map(|device| format!("--vdev={device}")))
            .args(["--", "--auto-start", "--stats-period", "1"])
            .arg("--total-num-mbufs=16384")
            .args(options);
        command
    }

    /// Starts it; it listens when this returns, but may not forward yet.
    ///
    /// # Errors
    /// It cannot be started.
    pub(crate) fn start(
        &self,
        netns: &Netns,
        place: (&str, usize),
        devices: &[String],
        options: &[&str],
    ) -> Result<Process> {
        Process::start(self.command(place, devices, options), netns)
    }

    /// Waits until it forwards.
    ///
    /// # Errors
    /// It ends, or takes too long.
    pub(crate) fn wait(&self, process: &mut Process) -> Result<()> {
        process.wait_for(BEGUN, PATIENCE)
    }
}

/// Returns the total of a counter over all its ports, printed at its end.
///
/// # Errors
/// It prints no such total.
pub(crate) fn total(text: &str, counter: &str) -> Result<u64> {
    let (_, end) = text
        .split_once("Accumulated forward statistics for all ports")
        .context("testpmd has not said what it forwarded")?;
    let mut words = end.split_whitespace().skip_while(|word| *word != counter);
    let number = words.nth(1).context("testpmd has not counted that")?;
    Ok(number.parse()?)
}

/// Returns the packets per second of all its ports together, second by second.
///
/// The first second, in which it began, is left out. `counter` is `Rx-pps:` or `Tx-pps:`.
pub(crate) fn rates(text: &str, counter: &str) -> Vec<f64> {
    let mut seconds = Vec::new();
    for block in text.split(BEGUN).skip(1) {
        let mut words = block.split_whitespace();
        let mut sum = 0.0;
        while words.any(|word| word == counter) {
            let number = words.next().and_then(|word| word.parse::<f64>().ok());
            sum += number.unwrap_or_default();
        }
        seconds.push(sum);
    }
    seconds
        .into_iter()
        .filter(|rate| *rate > 0.0)
        .skip(1)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_of_all_ports_in_whole_seconds() {
        let block = |rates: [u32; 2]| {
            let port = |(number, rate): (usize, u32)| {
                format!(
                    "  ### NIC statistics for port {number} ###\n  RX-packets: 9\n  \
                     Throughput (since last show)\n  Rx-pps:      {rate}   Rx-bps: 5\n  \
                     Tx-pps: 1 Tx-bps: 1\n"
                )
            };
            let ports: String = rates.into_iter().enumerate().map(port).collect();
            format!("Port statistics ====\n{ports}")
        };
        let text = [[0, 0], [5, 6], [10, 20], [30, 11]].map(block).concat();
        assert_eq!(rates(&text, "Rx-pps:"), [30.0, 41.0]);
        assert!(rates("nothing", "Rx-pps:").is_empty());
    }

    #[test]
    fn a_total_is_that_of_all_ports() {
        let text = "  Forward statistics for port 0\n  RX-packets: 5 RX-dropped: 0\n\
                    +++ Accumulated forward statistics for all ports+++\n\
                    RX-packets: 12             RX-dropped: 1             RX-total: 13\n";
        assert_eq!(total(text, "RX-packets:").unwrap(), 12);
        assert!(total("ended", "RX-packets:").is_err());
    }
}
