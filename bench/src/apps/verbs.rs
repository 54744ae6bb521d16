//! Implement the applications for every kind of port.

use std::net::Ipv4Addr;
use std::thread;
use std::time::{Duration, Instant};

use agent_common::addr::MacAddr;
use anyhow::Result;
use clap::Args;
use testbed::frame::{ethernet, reflect, udp4};

use super::{BURST, Fate, Place, Tally, Trips, Wire};
use crate::interrupt;
use crate::probe::stay_on;

/// How long nothing may come before somebody is looked for who wants us to end.
const IDLE: Duration = Duration::from_millis(100);
/// How long an answer is waited for.
const LATE: Duration = Duration::from_secs(1);
/// The UDP ports: ours, and the receiver's.
pub(crate) const PORTS: (u16, u16) = (4242, 4243);
/// Ethernet, IPv4 and UDP.
const HEADERS: usize = 14 + 20 + 8;
/// Bytes of a ping's number.
const NUMBER: usize = 8;

/// How long, where, and how it waits.
#[derive(Debug, Args)]
pub struct Manner {
    /// End after so many seconds, instead of when told to
    #[arg(long)]
    seconds: Option<u64>,
    /// Stay on this processor
    #[arg(long)]
    cpu: Option<usize>,
    /// Never sleep
    #[arg(long)]
    busy_poll: bool,
}

/// The receiver of a load, and the load.
#[derive(Debug, Args)]
pub struct Target {
    /// MAC addresses: ours, and the receiver's
    #[arg(long, num_args = 2, required = true)]
    mac: Vec<MacAddr>,
    /// Addresses: ours, and the receiver's
    #[arg(long, num_args = 2, required = true)]
    ip: Vec<Ipv4Addr>,
    /// Bytes of a datagram
    #[arg(long, default_value_t = 18)]
    size: usize,
}

impl Manner {
    /// Opens a port, and has something done with it.
    pub(super) fn with<P: Place>(
        &self,
        place: &P,
        work: impl FnOnce(&mut P::Port, &Self) -> Result<Option<Trips>>,
    ) -> Result<Tally> {
        if let Some(cpu) = self.cpu {
            stay_on(cpu)?;
        }
        let mut port = place.open()?;
        println!("ready");
        let start = Instant::now();
        let trips = work(&mut port, self)?;
        Ok(Tally {
            seconds: start.elapsed().as_secs_f64(),
            trips,
            ..port.tally()?
        })
    }

    /// Goes on until it is told to end, or the time is over.
    fn until_told(&self, mut step: impl FnMut() -> Result<()>) -> Result<()> {
        let limit = self.seconds.map(Duration::from_secs);
        let start = Instant::now();
        while !interrupt::wanted() && limit.is_none_or(|limit| start.elapsed() < limit) {
            step()?;
        }
        Ok(())
    }

    /// Before each look at a port that had nothing.
    fn pause(&self, port: &mut impl Wire, limit: Duration) -> Result<()> {
        if self.busy_poll {
            return Ok(());
        }
        port.wait(limit)
    }
}

/// Answers.
pub(super) fn echo(port: &mut impl Wire, manner: &Manner) -> Result<Option<Trips>> {
    manner.until_told(|| {
        let came = port.receive(BURST, |frame| {
            if reflect(frame) {
                Fate::Returned
            } else {
                Fate::Read
            }
        })?;
        port.flush()?;
        if came == 0 {
            manner.pause(port, IDLE)?;
        }
        Ok(())
    })?;
    Ok(None)
}

/// Counts.
pub(super) fn count(port: &mut impl Wire, manner: &Manner) -> Result<Option<Trips>> {
    manner.until_told(|| {
        if port.receive(BURST, |_| Fate::Read)? == 0 {
            manner.pause(port, IDLE)?;
        }
        Ok(())
    })?;
    Ok(None)
}

/// Gives a frame of IPv4 an identification; those of a stack count its packets.
fn identify(frame: &mut [u8], id: u16) {
    let Some(header) = frame.get_mut(14..34) else {
        return;
    };
    header[4..6].copy_from_slice(&id.to_be_bytes());
    header[10..12].fill(0);
    let words = header.as_chunks().0.iter();
    let mut sum: u32 = words.map(|word| u32::from(u16::from_be_bytes(*word))).sum();
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    let field = !u16::try_from(sum & 0xffff).unwrap_or_default();
    header[10..12].copy_from_slice(&field.to_be_bytes());
}

impl Target {
    fn frame(&self, payload: &[u8]) -> Vec<u8> {
        let packet = udp4(self.ip[0], self.ip[1], PORTS, payload);
        ethernet(self.mac[1], self.mac[0], 0x0800, &packet)
    }

    /// Sends.
    pub(super) fn generate(&self, port: &mut impl Wire, manner: &Manner) -> Result<Option<Trips>> {
        let mut frame = self.frame(&vec![0x5a; self.size]);
        let mut id = 0_u16;
        manner.until_told(|| {
            let mut room = true;
            for _ in 0..BURST {
                identify(&mut frame, id);
                room = port.send(&frame)?;
                if !room {
                    break;
                }
                id = id.wrapping_add(1);
            }
            port.flush()?;
            let came = port.receive(BURST, |_| Fate::Read)?;
            if !room && came == 0 && !manner.busy_poll {
                // Whoever makes room may want this very processor.
                thread::yield_now();
            }
            Ok(())
        })?;
        Ok(None)
    }

    /// Asks.
    pub(super) fn ping(&self, port: &mut impl Wire, manner: &Manner) -> Result<Option<Trips>> {
        let (mut micros, mut lost, mut number) = (Vec::new(), 0, 0_u64);
        let mut payload = vec![0x5a; self.size.max(NUMBER)];
        manner.until_told(|| {
            number += 1;
            payload[..NUMBER].copy_from_slice(&number.to_be_bytes());
            let frame = self.frame(&payload);
            let started = Instant::now();
            let sent = port.send(&frame)?;
            port.flush()?;
            let mut answered = false;
            while sent && !answered && started.elapsed() < LATE && !interrupt::wanted() {
                let came = port.receive(BURST, |frame| {
                    answered |= frame.get(HEADERS..HEADERS + NUMBER) == Some(&number.to_be_bytes());
                    Fate::Read
                })?;
                if came == 0 {
                    manner.pause(port, IDLE)?;
                }
            }
            if answered {
                micros.push(started.elapsed().as_secs_f64() * 1e6);
            } else {
                lost += 1;
            }
            Ok(())
        })?;
        Ok(Some(Trips::of(micros, lost)))
    }
}
