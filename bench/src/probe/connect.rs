//! TCP connections, one after the other: opened, a byte each way, closed.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::net::sockopt::set_socket_linger;

use super::{Place, stay_on, times};
use crate::traffic::order::Answer;

/// Both sides by one thread in the namespaces they are in; connections per second.
pub(super) fn connect(from: &Place, to: &Place, cpu: usize, time: Duration) -> Result<Answer> {
    let listener = to.listen()?;
    // A thread of `run_in` inherits the processor of the thread that makes it.
    stay_on(cpu)?;
    // A new socket belongs to the namespace of its thread: the loop has to be there.
    let answer = from.netns.run_in(|| serve(&listener, time))?;
    answer.context("a connection failed")
}

fn serve(listener: &TcpListener, time: Duration) -> Result<Answer> {
    let to = listener.local_addr()?;
    let mut all = Vec::new();
    let begin = Instant::now();
    while begin.elapsed() < time {
        let started = Instant::now();
        once(&to, listener)?;
        all.push(started.elapsed());
    }
    let count = all.len();
    let mut answer = times(all);
    answer.value = count as f64 / begin.elapsed().as_secs_f64();
    Ok(answer)
}

/// One connection.
pub(super) fn once(to: &SocketAddr, listener: &TcpListener) -> Result<()> {
    // The kernel completes the connection without the listener's thread.
    let mut client = TcpStream::connect_timeout(to, Duration::from_secs(2))?;
    // Closed by a reset: otherwise the ports are used up after some 28,000 connections.
    set_socket_linger(client.as_fd(), Some(Duration::ZERO))?;
    let (mut server, _) = listener.accept()?;
    let mut byte = [0];
    client.write_all(&byte)?;
    server.read_exact(&mut byte)?;
    server.write_all(&byte)?;
    client.read_exact(&mut byte)?;
    // The one that resets goes first.
    drop(client);
    Ok(())
}
