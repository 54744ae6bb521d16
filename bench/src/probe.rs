//! Small UDP datagrams as fast as they go: 18 bytes, the payload of the smallest Ethernet frame.

use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use netdev::Netns;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::socket::{MsgFlags, MultiHeaders, SockaddrStorage, recvmmsg, sendmmsg};
use nix::unistd::Pid;

/// Bytes of a datagram.
const PAYLOAD: usize = 18;
/// Datagrams for one system call.
const BATCH: usize = 32;

/// Two sockets that know each other.
#[derive(Debug)]
pub struct Pair {
    source: UdpSocket,
    sink: UdpSocket,
}

impl Pair {
    /// Sockets in two namespaces.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open(from: (&Netns, IpAddr), to: (&Netns, IpAddr)) -> Result<Self> {
        let open = |(netns, ip): (&Netns, IpAddr)| -> Result<UdpSocket> {
            let socket = netns.run_in(|| UdpSocket::bind((ip, 0)))?;
            socket.with_context(|| format!("a socket on {ip}"))
        };
        let (source, sink) = (open(from)?, open(to)?);
        source.connect(sink.local_addr()?)?;
        sink.connect(source.local_addr()?)?;
        sink.set_read_timeout(Some(Duration::from_secs(1)))?;
        // The neighbours learn of each other before the clock starts.
        source.send(&[0; PAYLOAD])?;
        sink.recv(&mut [0; PAYLOAD])?;
        Ok(Self { source, sink })
    }

    /// Sends on one CPU, receives on another; thousands of datagrams received per second.
    ///
    /// # Errors
    /// The kernel's.
    pub fn two_cpus(&self, time: Duration) -> Result<f64> {
        let stop = AtomicBool::new(false);
        self.sink
            .set_read_timeout(Some(Duration::from_millis(50)))?;
        thread::scope(|scope| {
            let receiver = scope.spawn(|| -> Result<f64> {
                stay_on(1)?;
                let mut receiver = Receiver::new();
                // What arrives before the clock starts is for warming up.
                let started = Instant::now() + time / 5;
                let mut count = 0_u32;
                while Instant::now() < started + time {
                    let got = receiver.receive(&self.sink, MsgFlags::MSG_WAITFORONE)?;
                    if Instant::now() >= started {
                        count += got;
                    }
                }
                stop.store(true, Ordering::Relaxed);
                Ok(f64::from(count) / time.as_secs_f64() / 1000.0)
            });
            stay_on(0)?;
            let mut sender = Sender::new();
            while !stop.load(Ordering::Relaxed) && !receiver.is_finished() {
                sender.send(&self.source)?;
            }
            match receiver.join() {
                Ok(rate) => rate,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }

    /// Sends and receives in turn on one CPU; nanoseconds for each datagram.
    ///
    /// # Errors
    /// The kernel's.
    pub fn one_cpu(&self, time: Duration) -> Result<f64> {
        stay_on(0)?;
        let (mut sender, mut receiver) = (Sender::new(), Receiver::new());
        let (mut count, mut started) = (0_u32, Instant::now());
        let (warm, end) = (started + time / 5, started + time);
        while Instant::now() < end {
            if count > 0 && Instant::now() < warm {
                (count, started) = (0, Instant::now());
            }
            let mut open = sender.send(&self.source)?;
            while open > 0 {
                let got = receiver.receive(&self.sink, MsgFlags::MSG_WAITFORONE)?;
                count += got;
                open = open.saturating_sub(got);
            }
        }
        Ok(started.elapsed().as_secs_f64() * 1e9 / f64::from(count))
    }

    /// There and back on one CPU; microseconds for both, the median.
    ///
    /// # Errors
    /// The kernel's.
    pub fn round_trip(&self, time: Duration) -> Result<f64> {
        stay_on(0)?;
        let mut buffer = [0; PAYLOAD];
        let mut times = Vec::new();
        let end = Instant::now() + time;
        while Instant::now() < end {
            let started = Instant::now();
            self.source.send(&buffer)?;
            self.sink.recv(&mut buffer)?;
            self.sink.send(&buffer)?;
            self.source.recv(&mut buffer)?;
            times.push(started.elapsed());
        }
        times.sort();
        let median = times.get(times.len() / 2).copied().unwrap_or_default();
        Ok(median.as_secs_f64() * 1e6)
    }
}

fn stay_on(cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu)?;
    sched_setaffinity(Pid::from_raw(0), &set).with_context(|| format!("staying on CPU {cpu}"))
}

struct Sender {
    payload: [u8; PAYLOAD],
    headers: MultiHeaders<SockaddrStorage>,
}

impl Sender {
    fn new() -> Self {
        Self {
            payload: [0x5a; PAYLOAD],
            headers: MultiHeaders::preallocate(BATCH, None),
        }
    }

    fn send(&mut self, socket: &UdpSocket) -> Result<u32> {
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

struct Receiver {
    room: [[u8; 64]; BATCH],
    headers: MultiHeaders<SockaddrStorage>,
}

impl Receiver {
    fn new() -> Self {
        Self {
            room: [[0; 64]; BATCH],
            headers: MultiHeaders::preallocate(BATCH, None),
        }
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
