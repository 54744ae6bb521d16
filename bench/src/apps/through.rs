//! Pace packets between two memif ports, and count those that arrive.
//!
//! They go in both directions.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use agent_common::addr::MacAddr;
use anyhow::Result;
use clap::Args;
use serde::{Deserialize, Serialize};
use testbed::frame::{ethernet, udp4};

use super::verbs::PORTS;
use super::{BURST, Fate, Memif, Place as _, Wire as _};
use crate::cpu;
use crate::probe::stay_on;

/// Addresses of testpmd's packets, source and destination.
const IPS: [Ipv4Addr; 2] = [Ipv4Addr::new(198, 18, 0, 1), Ipv4Addr::new(198, 18, 0, 2)];
/// Packets taken at once: a whole ring, as a full ring loses packets.
const ROOM: u16 = 1024;
/// How long the last ones may be on their way.
const LATE: Duration = Duration::from_millis(200);
/// Ethernet, IPv4 and UDP.
const HEADERS: usize = 14 + 20 + 8;

/// The load, and the ports it goes between.
#[derive(Debug, Args)]
pub struct Through {
    /// Files of both sockets
    #[arg(long, num_args = 2, required = true)]
    socket: Vec<std::path::PathBuf>,
    /// The numbers of both interfaces behind them
    #[arg(long, num_args = 2, required = true)]
    id: Vec<u32>,
    /// Both MAC addresses
    #[arg(long, num_args = 2, required = true)]
    mac: Vec<MacAddr>,
    /// Packets a second, both directions together
    #[arg(long)]
    rate: f64,
    /// Bytes of a frame
    #[arg(long)]
    size: usize,
    /// For how long
    #[arg(long)]
    millis: u64,
    /// Stay on this processor
    #[arg(long)]
    cpu: usize,
}

/// Counters of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Passed {
    /// Sent.
    pub sent: u64,
    /// Received.
    pub received: u64,
    /// How long they were sent.
    pub seconds: f64,
    /// Part of its processor that this program has had.
    pub share: f64,
}

impl Through {
    /// Sends, and counts.
    ///
    /// # Errors
    /// A port cannot be opened, or went away.
    pub fn run(&self) -> Result<()> {
        stay_on(self.cpu)?;
        let port = |number: usize| Memif::behind(&self.socket[number], self.id[number]).open();
        let mut ports = [port(0)?, port(1)?];
        let payload = vec![0x5a; self.size.saturating_sub(HEADERS)];
        let packet = udp4(IPS[0], IPS[1], PORTS, &payload);
        let frame = |from: usize| ethernet(self.mac[1 - from], self.mac[from], 0x0800, &packet);
        let frames = [frame(0), frame(1)];
        println!("ready");
        let (start, time) = (Instant::now(), Duration::from_millis(self.millis));
        let mut tried = 0.0;
        let mut elapsed = Duration::ZERO;
        while elapsed < time {
            for (port, frame) in ports.iter_mut().zip(&frames) {
                // Who was held up does not make up for it at once.
                for _ in 0..BURST {
                    if elapsed.as_secs_f64() * self.rate - tried < 1.0 {
                        break;
                    }
                    port.send(frame)?;
                    tried += 1.0;
                }
                port.flush()?;
                port.receive(ROOM, |_| Fate::Read)?;
            }
            elapsed = start.elapsed();
        }
        let mut last = Instant::now();
        while last.elapsed() < LATE {
            for port in &mut ports {
                if port.receive(ROOM, |_| Fate::Read)? > 0 {
                    last = Instant::now();
                }
            }
        }
        let share = cpu::share_of(std::process::id())?;
        let mut passed = Passed {
            seconds: elapsed.as_secs_f64(),
            share,
            ..Passed::default()
        };
        for port in &ports {
            let tally = port.tally()?;
            passed.sent += tally.sent;
            passed.received += tally.received;
        }
        println!("{}", serde_json::to_string(&passed)?);
        Ok(())
    }
}
