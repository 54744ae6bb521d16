//! One message there, one back.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::{PAYLOAD, stay_on, times};
use crate::traffic::order::Answer;

/// Ends the other side's thread.
const LAST: u8 = 0xff;

/// Runs both sides on one thread: the network's time, without any wake-up.
pub(super) fn udp(
    (source, sink): &(UdpSocket, UdpSocket),
    cpu: usize,
    time: Duration,
) -> Result<Answer> {
    stay_on(cpu)?;
    let mut buffer = [0; PAYLOAD];
    timed(time, || {
        source.send(&buffer)?;
        sink.recv(&mut buffer)?;
        sink.send(&buffer)?;
        source.recv(&mut buffer)?;
        Ok(())
    })
}

/// Each side on a processor of its own, asleep until its message comes.
pub(super) fn udp_two_cpus(
    (source, sink): (UdpSocket, UdpSocket),
    cpus: [usize; 2],
    time: Duration,
) -> Result<Answer> {
    let other = thread::spawn(move || -> Result<()> {
        stay_on(cpus[1])?;
        let mut buffer = [0; PAYLOAD];
        loop {
            sink.recv(&mut buffer).context("the other side")?;
            if buffer[0] == LAST {
                return Ok(());
            }
            sink.send(&buffer)?;
        }
    });
    stay_on(cpus[0])?;
    let mut buffer = [0; PAYLOAD];
    let answer = timed(time, || {
        source.send(&buffer)?;
        source.recv(&mut buffer)?;
        Ok(())
    });
    source.send(&[LAST; PAYLOAD])?;
    join(other)?;
    answer
}

/// As [`udp`], a byte each way over TCP.
pub(super) fn tcp(
    (mut client, mut server): (TcpStream, TcpStream),
    cpu: usize,
    time: Duration,
) -> Result<Answer> {
    stay_on(cpu)?;
    let mut byte = [0];
    timed(time, || {
        client.write_all(&byte)?;
        server.read_exact(&mut byte)?;
        server.write_all(&byte)?;
        client.read_exact(&mut byte)?;
        Ok(())
    })
}

/// As [`udp_two_cpus`], a byte each way over TCP.
pub(super) fn tcp_two_cpus(
    (mut client, mut server): (TcpStream, TcpStream),
    cpus: [usize; 2],
    time: Duration,
) -> Result<Answer> {
    let other = thread::spawn(move || -> Result<()> {
        stay_on(cpus[1])?;
        let mut byte = [0];
        while server.read(&mut byte).context("the other side")? > 0 {
            server.write_all(&byte)?;
        }
        Ok(())
    });
    stay_on(cpus[0])?;
    let mut byte = [0];
    let answer = timed(time, || {
        client.write_all(&byte)?;
        client.read_exact(&mut byte)?;
        Ok(())
    });
    client.shutdown(Shutdown::Write)?;
    join(other)?;
    answer
}

/// Again and again; the first tenth is for warming up.
pub(super) fn timed(
    time: Duration,
    mut once: impl FnMut() -> std::io::Result<()>,
) -> Result<Answer> {
    let mut all = Vec::new();
    let begin = Instant::now();
    let (warm, end) = (begin + time / 10, begin + time);
    loop {
        let started = Instant::now();
        if started >= end {
            return Ok(times(all));
        }
        once().context("a message got lost")?;
        if started >= warm {
            all.push(started.elapsed());
        }
    }
}

fn join(thread: thread::JoinHandle<Result<()>>) -> Result<()> {
    match thread.join() {
        Ok(ended) => ended,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}
