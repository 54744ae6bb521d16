//! Run libmemif's own example `icmp_responder`, version 4.0, unchanged.
//!
//! It answers ARP and ICMP echo by memif, with libmemif's ring and socket code, asleep between packets.
//! `PODNET_LIBMEMIF` is its path; it is started as `icmp_responder -r slave|master -s SOCKET -i 0 -a IPV4
//! -h MAC`, where `@` before the name of a socket makes it abstract, and ends when it is disconnected.
//! Build it without assertions (`NDEBUG`), because it has one against everything that is neither ARP nor
//! ICMP.
//!
//! Its sums of ICMP are wrong, so answers are read where the kernel does not look at them: from a raw socket.

use std::env;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Child, Command};

use agent_common::addr::MacAddr;
use netdev::Netns;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto, recv, sendto,
    socket_with,
};
use tempfile::TempDir;

use crate::pod::Port;
use crate::{frame, skip, wait};

/// ICMP payloads from none to what makes a packet of 1500 bytes.
pub const LENS: [usize; 8] = [0, 1, 18, 63, 64, 512, 1471, 1472];
/// The IPv4 and the ICMP header of an answer.
const HEADERS: usize = 28;
/// Time without an answer after which requests are repeated.
///
/// libmemif forgets a ring of its bell that comes between its look at a ring and its nap, and sees the
/// packet with the next one.
const REPEAT: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 500_000_000,
};

/// Which end of the connection it is.
#[derive(Debug, Clone, Copy)]
pub enum Role {
    /// It connects.
    Slave,
    /// It listens.
    Master,
}

/// The example, running; ended when this is dropped.
#[derive(Debug)]
pub struct Responder {
    netns: Netns,
    program: PathBuf,
    arguments: Vec<String>,
    child: Child,
    dir: TempDir,
}

/// Where the example is; none, and the test is skipped, where it is not.
pub fn program(test: &str) -> Option<PathBuf> {
    let program = env::var_os("PODNET_LIBMEMIF").map(PathBuf::from);
    if program.is_none() {
        skip::skip(test, "needs libmemif's icmp_responder");
    }
    program
}

impl Responder {
    /// Starts it in a namespace, with addresses that it answers for.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start(
        program: PathBuf,
        netns: &Netns,
        (role, socket): (Role, &str),
        (ip, mac): (Ipv4Addr, MacAddr),
    ) -> Self {
        let role = match role {
            Role::Slave => "slave",
            Role::Master => "master",
        };
        let (ip, mac) = (ip.to_string(), mac.to_string());
        let arguments = ["-r", role, "-s", socket, "-i", "0", "-a", &ip, "-h", &mac];
        let arguments: Vec<String> = arguments.map(str::to_owned).into();
        let dir = tempfile::tempdir().expect("a directory");
        let child = spawn(&program, netns, &arguments, &dir);
        Self {
            netns: netns.clone(),
            program,
            arguments,
            child,
            dir,
        }
    }

    /// Starts it as the client of a memif port, by the name in the pod's namespace.
    ///
    /// # Panics
    /// As [`Self::start`].
    pub fn of(program: PathBuf, port: &Port) -> Self {
        let socket = format!("@podnet/{}", port.ifname);
        let addresses = (port.v4(), port.mac);
        Self::start(program, &port.netns, (Role::Slave, &socket), addresses)
    }

    /// # Panics
    /// If it has ended.
    #[track_caller]
    pub fn assert_running(&mut self) {
        let ended = self.child.try_wait().expect("a child of ours");
        assert!(
            ended.is_none(),
            "icmp_responder ended: {ended:?}\n{}",
            self.log()
        );
    }

    /// Returns its output so far.
    fn log(&self) -> String {
        let log = fs::read(self.dir.path().join("log")).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    /// Waits until it has ended.
    ///
    /// # Panics
    /// If it does not end in time.
    #[track_caller]
    pub fn wait_ended(&mut self) {
        wait::until_true("icmp_responder to end", || {
            self.child.try_wait().expect("a child of ours").is_some()
        });
    }

    /// Starts it once more, as a container is when its program has ended.
    ///
    /// # Panics
    /// As [`Self::start`].
    pub fn restart(&mut self) {
        self.wait_ended();
        self.child = spawn(&self.program, &self.netns, &self.arguments, &self.dir);
    }

    /// Asserts that it answers echo requests of a pod's kernel, byte by byte.
    ///
    /// There are `count` of each of these lengths, all at once.
    ///
    /// # Panics
    /// If one is missing, or is not what was sent.
    #[track_caller]
    pub fn assert_answers(&mut self, asker: &Port, to: Ipv4Addr, lens: &[usize], count: u16) {
        let socket = asker.netns.run_in(raw_icmp).expect("entered");
        let mut open: Vec<Option<Vec<u8>>> = Vec::new();
        for len in lens.iter().flat_map(|len| (0..count).map(|_| *len)) {
            let number = u16::try_from(open.len()).expect("not that many");
            open.push(Some(request(number, len)));
        }
        wait::until_true("all answers", || {
            self.assert_running();
            for request in open.iter().flatten() {
                let to = SocketAddrV4::new(to, 0);
                let sent = sendto(&socket, request, SendFlags::empty(), &to);
                assert_eq!(sent, Ok(request.len()));
            }
            while open.iter().any(Option::is_some) {
                let Some(packet) = next(&socket) else {
                    break;
                };
                assert_eq!(packet[12..16], to.octets(), "{packet:02x?}");
                assert_eq!(packet[16..20], asker.v4().octets(), "{packet:02x?}");
                let number = u16::from_be_bytes([packet[26], packet[27]]);
                let of = open.get_mut(usize::from(number));
                // The second answer to a request that was repeated has nothing to be compared with.
                if let Some(request) = of.expect("somebody asked").take() {
                    assert_eq!(packet[24..26], request[4..6], "of somebody else");
                    assert!(
                        packet[HEADERS..] == request[8..],
                        "{packet:02x?} for {request:02x?}"
                    );
                }
            }
            open.iter().all(Option::is_none)
        });
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(program: &PathBuf, netns: &Netns, arguments: &[String], dir: &TempDir) -> Child {
    let log = File::create(dir.path().join("log")).expect("a log can be written");
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdout(log.try_clone().expect("a second handle"))
        .stderr(log);
    let child = netns.run_in(move || command.spawn()).expect("entered");
    child.expect("PODNET_LIBMEMIF can be started")
}

fn raw_icmp() -> OwnedFd {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let kind = SocketType::RAW;
    socket_with(AddressFamily::INET, kind, flags, Some(ipproto::ICMP)).expect("a raw socket")
}

/// An echo request of its own content.
fn request(number: u16, len: usize) -> Vec<u8> {
    let marker = frame::marker();
    let payload: Vec<u8> = marker.iter().copied().cycle().take(len).collect();
    let mut request = frame::icmp_echo(&payload);
    request[6..8].copy_from_slice(&number.to_be_bytes());
    request[2..4].fill(0);
    let sum = frame::checksum(&[&request]);
    request[2..4].copy_from_slice(&sum);
    request
}

/// Returns the next echo reply with its IPv4 header.
///
/// `None` when requests are to be repeated before it comes.
fn next(socket: &OwnedFd) -> Option<Vec<u8>> {
    let mut buffer = [0; 2048];
    loop {
        match recv(socket, &mut buffer, RecvFlags::empty()) {
            Err(Errno::AGAIN) => {
                let mut waiting = [PollFd::new(socket, PollFlags::IN)];
                if poll(&mut waiting, Some(&REPEAT)) == Ok(0) {
                    return None;
                }
            }
            received => {
                let (_, length) = received.expect("a raw socket can be read");
                // Nothing is asked here of what else there is, such as errors of the kernel.
                if length >= HEADERS && buffer[20..22] == [0, 0] {
                    return Some(buffer[..length].to_vec());
                }
            }
        }
    }
}
