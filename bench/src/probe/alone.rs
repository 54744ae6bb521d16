//! Run the kernel's side of a measurement against an application with its own port.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::errno::Errno;
use rustix::net::sockopt::set_socket_recv_buffer_size_force;

use super::small::{Sender, receive_for};
use super::trip::timed;
use super::{Place, stay_on};
use crate::apps::PORTS;
use crate::traffic::order::Answer;

/// Room for what arrives while the receiver waits for its turn.
const BUFFER: usize = 8 << 20;

/// The applications' port is the first of both.
fn socket(here: &Place, there: std::net::IpAddr, timeout: Duration) -> Result<UdpSocket> {
    let (theirs, ours) = PORTS;
    let socket = here.netns.run_in(|| UdpSocket::bind((here.ip, ours)))?;
    let socket = socket.with_context(|| format!("a socket on {}", here.ip))?;
    set_socket_recv_buffer_size_force(&socket, BUFFER)?;
    socket.set_read_timeout(Some(timeout))?;
    socket.connect((there, theirs))?;
    Ok(socket)
}

/// Counts what the application sends: thousands of datagrams a second.
pub(super) fn receive(
    here: &Place,
    there: std::net::IpAddr,
    cpu: usize,
    time: Duration,
) -> Result<Answer> {
    let socket = socket(here, there, Duration::from_millis(50))?;
    let (value, received) = receive_for(&socket, cpu, time)?;
    Ok(Answer {
        value,
        received,
        ..Answer::default()
    })
}

/// Sends to the application as fast as it goes; returns thousands of datagrams/s.
pub(super) fn flood(
    here: &Place,
    there: std::net::IpAddr,
    size: usize,
    cpu: usize,
    time: Duration,
) -> Result<Answer> {
    let socket = socket(here, there, Duration::from_millis(50))?;
    stay_on(cpu)?;
    let mut sender = Sender::new(size);
    let mut sent = 0_u64;
    let started = Instant::now();
    while started.elapsed() < time {
        match sender.send(&socket) {
            Ok(count) => sent += u64::from(count),
            // A queue on the way is full: that is as fast as it goes.
            Err(error) if error.downcast_ref() == Some(&Errno::ENOBUFS) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Answer {
        value: sent as f64 / started.elapsed().as_secs_f64() / 1000.0,
        sent,
        ..Answer::default()
    })
}

/// Asks the application again and again.
pub(super) fn ask(
    here: &Place,
    there: std::net::IpAddr,
    size: usize,
    cpu: usize,
    time: Duration,
) -> Result<Answer> {
    let socket = socket(here, there, Duration::from_secs(2))?;
    stay_on(cpu)?;
    let mut buffer = vec![0x5a; size];
    timed(time, || {
        socket.send(&buffer)?;
        socket.recv(&mut buffer)?;
        Ok(())
    })
}
