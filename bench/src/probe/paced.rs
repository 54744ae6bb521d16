//! Send numbered datagrams at a steady pace; find the time and the loss of each.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::net::sockopt::set_socket_recv_buffer_size_force;

use super::times;
use crate::traffic::order::Answer;

/// Bytes of a numbered datagram.
const SIZE: usize = 64;
/// How long one may be on its way when sending has ended.
const LATE: Duration = Duration::from_secs(1);
/// Receive buffer for the time in which the receiver waits for its processor.
///
/// Its own socket must not be what loses datagrams.
const BUFFER: usize = 8 << 20;

/// Datagrams that come back; each one's time, lost ones left out but counted.
pub(super) fn echo(
    (source, sink): (UdpSocket, UdpSocket),
    rate: u32,
    time: Duration,
) -> Result<Answer> {
    let done = AtomicBool::new(false);
    sink.set_read_timeout(Some(Duration::from_millis(100)))?;
    source.set_read_timeout(Some(Duration::from_millis(100)))?;
    let begin = Instant::now();
    let count = u64::from(rate) * u64::try_from(time.as_millis())? / 1000;
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut buffer = [0; SIZE];
            while !done.load(Ordering::Acquire) {
                if let Ok(length) = sink.recv(&mut buffer) {
                    // One that cannot be sent is one that does not come back.
                    let _ = sink.send(&buffer[..length]);
                }
            }
        });
        let receiver = scope.spawn(|| collect(&source, count, begin + time + LATE, &done));
        let sent = send(&source, rate, count, begin);
        let trips = receiver.join();
        done.store(true, Ordering::Release);
        let arrivals = match trips {
            Ok(arrivals) => arrivals,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        let sent = sent?;
        let mut trips = Vec::new();
        for (number, at) in arrivals {
            let started = usize::try_from(number)
                .ok()
                .and_then(|index| sent.get(index));
            trips.extend(started.map(|started| at.duration_since(*started)));
        }
        let in_order = trips.iter().map(|trip| trip.as_secs_f64() * 1e6).collect();
        let mut answer = times(trips);
        answer.times = in_order;
        answer.sent = sent.len() as u64;
        Ok(answer)
    })
}

/// Datagrams one way: the lost ones, and the longest time in which none came.
pub(super) fn stream(
    (source, sink): (UdpSocket, UdpSocket),
    rate: u32,
    time: Duration,
) -> Result<Answer> {
    let done = AtomicBool::new(false);
    sink.set_read_timeout(Some(Duration::from_millis(100)))?;
    set_socket_recv_buffer_size_force(&sink, BUFFER).context("a larger receive buffer")?;
    let begin = Instant::now();
    let count = u64::from(rate) * u64::try_from(time.as_millis())? / 1000;
    thread::scope(|scope| {
        let receiver = scope.spawn(|| collect(&sink, count, begin + time + LATE, &done));
        let sent = send(&source, rate, count, begin);
        let arrivals = match receiver.join() {
            Ok(arrivals) => arrivals,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        let gaps = arrivals
            .windows(2)
            .map(|pair| pair[1].1.duration_since(pair[0].1));
        let sent = sent?.len() as u64;
        let received = arrivals.len() as u64;
        Ok(Answer {
            value: sent.saturating_sub(received) as f64,
            sent,
            received,
            gap: gaps.max().unwrap_or_default().as_secs_f64() * 1e3,
            ..Answer::default()
        })
    })
}

/// Sends numbers at their moments; returns when each was sent.
fn send(socket: &UdpSocket, rate: u32, count: u64, begin: Instant) -> Result<Vec<Instant>> {
    let mut sent = Vec::new();
    for number in 0..count {
        let due = begin + Duration::from_secs_f64(number as f64 / f64::from(rate));
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let mut message = [0; SIZE];
        message[..8].copy_from_slice(&number.to_be_bytes());
        sent.push(Instant::now());
        socket.send(&message).context("sending a datagram")?;
    }
    Ok(sent)
}

/// Receives the numbered datagrams with their moments, until all came or `end`.
///
/// Each number counts once.
fn collect(socket: &UdpSocket, count: u64, end: Instant, done: &AtomicBool) -> Vec<(u64, Instant)> {
    let mut seen = vec![false; usize::try_from(count).unwrap_or_default()];
    let mut arrivals = Vec::new();
    let mut buffer = [0; SIZE];
    while arrivals.len() < seen.len() && Instant::now() < end && !done.load(Ordering::Acquire) {
        if socket.recv(&mut buffer).is_err() {
            continue;
        }
        let now = Instant::now();
        let Some(number) = buffer.first_chunk().map(|bytes| u64::from_be_bytes(*bytes)) else {
            continue;
        };
        let place = usize::try_from(number)
            .ok()
            .and_then(|index| seen.get_mut(index));
        if let Some(seen) = place.filter(|seen| !**seen) {
            *seen = true;
            arrivals.push((number, now));
        }
    }
    arrivals
}
