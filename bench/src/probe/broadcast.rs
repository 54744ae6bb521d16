//! Send broadcasts, each when the last has come, or as fast as it goes.

use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::{PAYLOAD, Place, stay_on};
use crate::traffic::order::Answer;

/// The limited broadcast address (RFC 919).
///
/// A bound socket sends to it by its own interface.
const EVERYBODY: Ipv4Addr = Ipv4Addr::BROADCAST;
/// UDP port that nobody listens on (discard, RFC 863).
const NOBODY: u16 = 9;
/// Interfaces of the receiver: it is the first port of the network, and the last.
const COPIES: u32 = 2;

fn socket(from: &Place) -> Result<UdpSocket> {
    let socket = from.netns.run_in(|| UdpSocket::bind((from.ip, 0)))?;
    let socket = socket.with_context(|| format!("a socket on {}", from.ip))?;
    socket.set_broadcast(true)?;
    Ok(socket)
}

/// Sends one when the receiver has its copies of the last; microseconds each.
pub(super) fn one_by_one(from: &Place, to: &Place, cpu: usize, time: Duration) -> Result<Answer> {
    let source = socket(from)?;
    let sink = to
        .netns
        .run_in(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)))??;
    sink.set_read_timeout(Some(Duration::from_secs(2)))?;
    let target = (EVERYBODY, sink.local_addr()?.port());
    stay_on(cpu)?;
    let mut buffer = [0x5a; PAYLOAD];
    let (mut count, mut all) = (0_u32, 0_u64);
    let begin = Instant::now();
    let (warm, end) = (begin + time / 10, begin + time);
    let mut started = begin;
    loop {
        let now = Instant::now();
        if now >= end {
            break;
        }
        if count > 0 && started == begin && now >= warm {
            (count, started) = (0, now);
        }
        source.send_to(&buffer, target).context("a broadcast")?;
        for _ in 0..COPIES {
            sink.recv(&mut buffer).context("a copy got lost")?;
        }
        count += 1;
        all += 1;
    }
    Ok(Answer {
        value: started.elapsed().as_secs_f64() * 1e6 / f64::from(count),
        sent: all,
        received: all * u64::from(COPIES),
        ..Answer::default()
    })
}

/// Sends as fast as it goes; thousands of frames a second.
pub(super) fn storm(from: &Place, cpu: usize, time: Duration) -> Result<Answer> {
    let source = socket(from)?;
    stay_on(cpu)?;
    let mut sent = 0_u64;
    let started = Instant::now();
    while started.elapsed() < time {
        // A full queue on the way is no reason to stop.
        sent += u64::from(
            source
                .send_to(&[0x5a; PAYLOAD], (EVERYBODY, NOBODY))
                .is_ok(),
        );
    }
    Ok(Answer {
        value: sent as f64 / started.elapsed().as_secs_f64() / 1000.0,
        sent,
        ..Answer::default()
    })
}
