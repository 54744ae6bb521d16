//! Small datagrams as fast as they go.

use std::io::{IoSlice, IoSliceMut};
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::socket::{MsgFlags, MultiHeaders, SockaddrStorage, recvmmsg, sendmmsg};

use super::{PAYLOAD, stay_on};
use crate::traffic::order::Answer;

/// Datagrams for one system call.
pub(super) const BATCH: usize = 32;

/// Sends on one processor, receives on another; returns thousands of datagrams/s.
pub(super) fn two_cpus(
    (source, sink): &(UdpSocket, UdpSocket),
    cpus: [usize; 2],
    time: Duration,
) -> Result<Answer> {
    let stop = AtomicBool::new(false);
    sink.set_read_timeout(Some(Duration::from_millis(50)))?;
    thread::scope(|scope| {
        let receiver = scope.spawn(|| -> Result<(f64, u64)> {
            // A failed receiver must not leave the sender sending for ever.
            let received = receive_for(sink, cpus[1], time);
            stop.store(true, Ordering::Relaxed);
            received
        });
        stay_on(cpus[0])?;
        let mut sender = Sender::new(PAYLOAD);
        let mut sent = 0;
        while !stop.load(Ordering::Relaxed) {
            sent += u64::from(sender.send(source)?);
        }
        match receiver.join() {
            Ok(received) => {
                let (value, received) = received?;
                Ok(Answer {
                    value,
                    sent,
                    received,
                    ..Answer::default()
                })
            }
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

pub(super) fn receive_for(sink: &UdpSocket, cpu: usize, time: Duration) -> Result<(f64, u64)> {
    stay_on(cpu)?;
    let mut receiver = Receiver::new();
    // What arrives before the clock starts is for warming up.
    let started = Instant::now() + time / 5;
    let (mut count, mut all) = (0_u32, 0_u64);
    while Instant::now() < started + time {
        let got = receiver.receive(sink, MsgFlags::MSG_WAITFORONE)?;
        all += u64::from(got);
        if Instant::now() >= started {
            count += got;
        }
    }
    Ok((f64::from(count) / time.as_secs_f64() / 1000.0, all))
}

/// Sends and receives in turn on one processor; nanoseconds for each datagram.
pub(super) fn one_cpu(
    (source, sink): &(UdpSocket, UdpSocket),
    cpu: usize,
    time: Duration,
) -> Result<Answer> {
    stay_on(cpu)?;
    let (mut sender, mut receiver) = (Sender::new(PAYLOAD), Receiver::new());
    let (mut count, mut all, mut lost) = (0_u32, 0_u64, 0_u64);
    let mut started = Instant::now();
    let (warm, end) = (started + time / 5, started + time);
    while Instant::now() < end {
        if count > 0 && Instant::now() < warm {
            (count, started) = (0, Instant::now());
        }
        let sent = sender.send(source)?;
        let got = receiver.receive_all(sink, sent)?;
        count += got;
        all += u64::from(got);
        lost += u64::from(sent.saturating_sub(got));
    }
    Ok(Answer {
        value: started.elapsed().as_secs_f64() * 1e9 / f64::from(count),
        sent: all + lost,
        received: all,
        ..Answer::default()
    })
}

pub(super) struct Sender {
    payload: Vec<u8>,
    headers: MultiHeaders<SockaddrStorage>,
}

impl Sender {
    /// For datagrams of this size.
    pub(super) fn new(size: usize) -> Self {
        Self {
            payload: vec![0x5a; size],
            headers: MultiHeaders::preallocate(BATCH, None),
        }
    }

    pub(super) fn send(&mut self, socket: &UdpSocket) -> Result<u32> {
        let slices: [[IoSlice<'_>; 1]; BATCH] =
            std::array::from_fn(|_| [IoSlice::new(&self.payload)]);
        let addresses = [None; BATCH];
        let sent = sendmmsg(
            socket.as_raw_fd(),
            &mut self.headers,
            slices.iter(),
            addresses,
            [],
            MsgFlags::empty(),
        )
        .context("sendmmsg")?;
        Ok(u32::try_from(sent.count())?)
    }
}

pub(super) struct Receiver {
    room: [[u8; 64]; BATCH],
    headers: MultiHeaders<SockaddrStorage>,
}

impl Receiver {
    pub(super) fn new() -> Self {
        Self {
            room: [[0; 64]; BATCH],
            headers: MultiHeaders::preallocate(BATCH, None),
        }
    }

    /// Receives this many datagrams; fewer when one does not come in time.
    pub(super) fn receive_all(&mut self, socket: &UdpSocket, wanted: u32) -> Result<u32> {
        let mut count = 0;
        while count < wanted {
            match self.receive(socket, MsgFlags::MSG_WAITFORONE)? {
                0 => break,
                got => count += got,
            }
        }
        Ok(count)
    }

    /// How many datagrams came; none when none came in time.
    fn receive(&mut self, socket: &UdpSocket, flags: MsgFlags) -> Result<u32> {
        let mut slices: Vec<[IoSliceMut<'_>; 1]> = self
            .room
            .iter_mut()
            .map(|room| [IoSliceMut::new(room)])
            .collect();
        let got = recvmmsg(
            socket.as_raw_fd(),
            &mut self.headers,
            slices.iter_mut(),
            flags,
            None,
        );
        match got {
            Ok(messages) => Ok(u32::try_from(messages.count())?),
            Err(nix::errno::Errno::EAGAIN) => Ok(0),
            Err(error) => Err(error).context("recvmmsg"),
        }
    }
}
