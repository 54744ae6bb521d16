//! Open an interface of the kernel by AF_PACKET (packet(7)), as the baseline.
//!
//! An application has to do that where a pod has nothing better. It needs `CAP_NET_RAW`, which the
//! others do not.

use std::io::{IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use netdev::Netns;
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, MultiHeaders, SockaddrStorage, recvmmsg, sendmmsg};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::set_socket_recv_buffer_size;
use testbed::Tap;

use super::verbs::PORTS;
use super::{BURST, Fate, Place, Tally, Wire};

/// Longest frame.
const FRAME: usize = 2048;
const FRAMES: usize = BURST as usize;

/// An interface.
#[derive(Debug, Args)]
pub struct Packet {
    /// The interface
    #[arg(long, default_value = "net1")]
    interface: String,
}

/// A socket with room for a burst each way.
#[derive(Debug)]
pub struct Socket {
    tap: Tap,
    /// Socket that takes the pod's own copies of the packets, and is never read.
    ///
    /// Without it the pod's stack would answer that the port is unreachable.
    _sink: UdpSocket,
    incoming: Vec<[u8; FRAME]>,
    outgoing: Vec<([u8; FRAME], usize)>,
    waiting: usize,
    headers: [MultiHeaders<SockaddrStorage>; 2],
    tally: Tally,
}

impl Place for Packet {
    type Port = Socket;

    fn open(&self) -> Result<Socket> {
        let tap = Tap::on(&Netns::current()?, &self.interface);
        let sink =
            UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORTS.0)).context("a port of the pod")?;
        set_socket_recv_buffer_size(&sink, 1)?;
        let headers = || MultiHeaders::preallocate(FRAMES, None);
        Ok(Socket {
            tap,
            _sink: sink,
            incoming: vec![[0; FRAME]; FRAMES],
            outgoing: vec![([0; FRAME], 0); FRAMES],
            waiting: 0,
            headers: [headers(), headers()],
            tally: Tally::default(),
        })
    }
}

/// Clears the UDP checksum of a frame over IPv4, as RFC 768 allows.
///
/// A veth brings datagrams whose checksum was still to be computed.
fn forget_checksum(frame: &mut [u8]) {
    const UDP: u8 = 17;
    if frame.get(12..15) == Some(&[8, 0, 0x45])
        && frame.get(23) == Some(&UDP)
        && let Some(sum) = frame.get_mut(40..42)
    {
        sum.fill(0);
    }
}

impl Wire for Socket {
    fn receive(&mut self, budget: u16, mut visit: impl FnMut(&mut [u8]) -> Fate) -> Result<u32> {
        let count = usize::from(budget).min(FRAMES);
        let mut lengths = [0; FRAMES];
        let mut slices: Vec<[IoSliceMut<'_>; 1]> = self.incoming[..count]
            .iter_mut()
            .map(|room| [IoSliceMut::new(room)])
            .collect();
        let fd = self.tap.as_fd().as_raw_fd();
        let flags = MsgFlags::MSG_DONTWAIT;
        let came = match recvmmsg(fd, &mut self.headers[0], slices.iter_mut(), flags, None) {
            Ok(messages) => {
                let mut came = 0;
                for (length, message) in lengths.iter_mut().zip(messages) {
                    *length = message.bytes;
                    came += 1;
                }
                came
            }
            Err(Errno::EAGAIN) => 0,
            Err(error) => return Err(error).context("recvmmsg"),
        };
        for (number, length) in lengths.iter().enumerate().take(came) {
            let frame = &mut self.incoming[number][..*length];
            if visit(frame) == Fate::Returned {
                forget_checksum(frame);
                if let Some((room, waiting)) = self.outgoing.get_mut(self.waiting) {
                    room[..*length].copy_from_slice(frame);
                    *waiting = *length;
                    self.waiting += 1;
                } else {
                    self.tally.full += 1;
                }
            }
        }
        self.tally.received += came as u64;
        Ok(u32::try_from(came)?)
    }

    fn send(&mut self, frame: &[u8]) -> Result<bool> {
        let Some((room, length)) = self.outgoing.get_mut(self.waiting) else {
            return Ok(false);
        };
        let Some(room) = room.get_mut(..frame.len()) else {
            return Ok(false);
        };
        room.copy_from_slice(frame);
        *length = frame.len();
        self.waiting += 1;
        Ok(true)
    }

    /// Sends the waiting frames; the kernel drops those that it has no room for.
    fn flush(&mut self) -> Result<()> {
        let mut from = 0;
        while from < self.waiting {
            let frames = &self.outgoing[from..self.waiting];
            let slices: Vec<[IoSlice<'_>; 1]> = frames
                .iter()
                .map(|(frame, length)| [IoSlice::new(&frame[..*length])])
                .collect();
            let addresses = vec![None; slices.len()];
            let fd = self.tap.as_fd().as_raw_fd();
            let flags = MsgFlags::MSG_DONTWAIT;
            let headers = &mut self.headers[1];
            match sendmmsg(fd, headers, slices.iter(), addresses, [], flags) {
                Ok(sent) => {
                    let sent = sent.count();
                    from += sent;
                    self.tally.sent += sent as u64;
                    if sent == 0 {
                        break;
                    }
                }
                Err(Errno::EAGAIN | Errno::ENOBUFS) => break,
                Err(error) => return Err(error).context("sendmmsg"),
            }
        }
        self.tally.full += (self.waiting - from) as u64;
        self.waiting = 0;
        Ok(())
    }

    fn wait(&mut self, limit: Duration) -> Result<()> {
        let limit = Timespec::try_from(limit)?;
        let mut waiting = [PollFd::new(&self.tap, PollFlags::IN)];
        match poll(&mut waiting, Some(&limit)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error).context("waiting for packets"),
        }
    }

    fn tally(&self) -> Result<Tally> {
        Ok(self.tally.clone())
    }
}

#[cfg(test)]
mod unit {
    use agent_common::addr::MacAddr;
    use testbed::frame::{Ipv4, ethernet, icmp_echo, udp4};

    use super::*;

    #[test]
    fn datagrams_lose_their_checksum_and_nothing_else_changes() {
        let (a, b) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let frame = |packet: &[u8]| ethernet(MacAddr([2; 6]), MacAddr([4; 6]), 0x0800, packet);
        let before = frame(&udp4(a, b, (1, 2), b"text"));
        let mut after = before.clone();
        forget_checksum(&mut after);
        assert_ne!(before[40..42], [0, 0]);
        assert_eq!(after[40..42], [0, 0]);
        assert_eq!((&after[..40], &after[42..]), (&before[..40], &before[42..]));
        let ping = frame(&Ipv4::new(a, b, 1).packet(&icmp_echo(b"text")));
        let mut same = ping.clone();
        forget_checksum(&mut same);
        assert_eq!(same, ping);
    }
}
