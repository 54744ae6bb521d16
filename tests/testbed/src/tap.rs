//! Raw frames: what a pod that is root can send, and what an interface gets to see.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use netdev::Netns;
use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::libc;
use nix::sys::socket::sockopt::SetStruct;
use nix::sys::socket::{LinkAddr, bind, recvfrom, setsockopt};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, Protocol, SendFlags, SocketFlags, SocketType, eth, send, socket_with, sockopt,
};

use crate::frame::{Marker, marker};
use crate::wait;

/// `PACKET_OUTGOING` (linux/if_packet.h): frames the namespace sent itself.
const PACKET_OUTGOING: u8 = 4;
/// Room for what arrives between two looks.
const BUFFER: usize = 8 << 20;
/// Largest frame there is: a GSO packet.
const FRAME: usize = 128 << 10;

/// The option by which a [`VirtioHeader`] stands before each frame (packet(7)).
#[derive(Debug, Clone, Copy)]
struct PacketVnetHdr;
nix::setsockopt_impl!(
    PacketVnetHdr,
    libc::SOL_PACKET,
    libc::PACKET_VNET_HDR,
    i32,
    SetStruct<'_, i32>
);

/// `struct virtio_net_hdr` (linux/virtio_net.h): work that a sender left to others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VirtioHeader {
    /// `VIRTIO_NET_HDR_F_*`.
    pub flags: u8,
    /// `VIRTIO_NET_HDR_GSO_*`.
    pub gso_type: u8,
    /// Length of all headers, bytes.
    pub hdr_len: u16,
    /// Payload of a segment, bytes.
    pub gso_size: u16,
    /// Where the sum begins in the frame.
    pub csum_start: u16,
    /// Where it goes, from there.
    pub csum_offset: u16,
}

impl VirtioHeader {
    /// A checksum is to be written (`VIRTIO_NET_HDR_F_NEEDS_CSUM`).
    pub const fn checksum(csum_start: u16, csum_offset: u16) -> Self {
        Self {
            flags: 1,
            gso_type: 0,
            hdr_len: 0,
            gso_size: 0,
            csum_start,
            csum_offset,
        }
    }

    fn bytes(self) -> [u8; 10] {
        let mut bytes = [self.flags, self.gso_type, 0, 0, 0, 0, 0, 0, 0, 0];
        let words = [
            self.hdr_len,
            self.gso_size,
            self.csum_start,
            self.csum_offset,
        ];
        for (to, word) in bytes[2..].chunks_mut(2).zip(words) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }
}

/// An `AF_PACKET` socket (packet(7)).
#[derive(Debug)]
pub struct Tap {
    socket: OwnedFd,
}

impl Tap {
    /// Taps everything that arrives at an interface, before any program sees it.
    ///
    /// It is before the programs of this namespace.
    ///
    /// # Panics
    /// If there is no such interface.
    pub fn on(netns: &Netns, ifname: &str) -> Self {
        let inside = netns.run_in(|| {
            let tap = Self::open(eth::ALL);
            let address = link_address(ifname);
            bind(tap.socket.as_raw_fd(), &address).expect("a packet socket can be bound");
            tap
        });
        let tap = inside.expect("the namespace can be entered");
        // What came between socket(2) and bind(2) is of other interfaces.
        tap.drain();
        tap
    }

    /// Taps all that reaches the network stack of a namespace, on any interface.
    ///
    /// Packet sockets for one protocol come after TC ingress programs, those for all protocols before.
    pub fn stack(netns: &Netns, ether_type: u16) -> Self {
        let number = std::num::NonZeroU32::new(u32::from(ether_type.to_be()));
        let protocol = Protocol::from_raw(number.expect("an EtherType is not zero"));
        let inside = netns.run_in(|| Self::open(protocol));
        inside.expect("the namespace can be entered")
    }

    /// Everything that arrives anywhere in a namespace, on interfaces to come too.
    pub fn everything(netns: &Netns) -> Self {
        let inside = netns.run_in(|| Self::open(eth::ALL));
        inside.expect("the namespace can be entered")
    }

    fn open(protocol: Protocol) -> Self {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(
            AddressFamily::PACKET,
            SocketType::RAW,
            flags,
            Some(protocol),
        )
        .expect("a packet socket (CAP_NET_RAW)");
        sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER).expect("a larger buffer");
        Self { socket }
    }

    /// Sends a frame as it is.
    ///
    /// # Panics
    /// If the kernel does not take it.
    pub fn send(&self, frame: &[u8]) {
        let until = Instant::now() + wait::PATIENCE;
        loop {
            match self.try_send(frame) {
                // Copies of a broadcast count against the socket until every pod has taken its own.
                Err(rustix::io::Errno::AGAIN) if Instant::now() < until => std::thread::yield_now(),
                other => return other.expect("the frame can be sent"),
            }
        }
    }

    /// Sends a frame as it is, if the kernel takes it.
    ///
    /// # Errors
    /// `EMSGSIZE` above the interface's MTU.
    pub fn try_send(&self, frame: &[u8]) -> Result<(), rustix::io::Errno> {
        send(&self.socket, frame, SendFlags::empty()).map(|sent| assert_eq!(sent, frame.len()))
    }

    /// Makes it one to send with [`Self::try_send_with`] only.
    ///
    /// # Panics
    /// If the kernel refuses.
    #[must_use]
    pub fn with_headers(self) -> Self {
        setsockopt(&self.socket, PacketVnetHdr, &1).expect("an option of packet sockets");
        self
    }

    /// Sends a frame and what is still to be done to it, if the kernel takes that.
    ///
    /// # Errors
    /// `EINVAL` for a header that contradicts itself or the frame.
    pub fn try_send_with(
        &self,
        header: VirtioHeader,
        frame: &[u8],
    ) -> Result<(), rustix::io::Errno> {
        self.try_send(&[&header.bytes(), frame].concat())
    }

    /// The next frame that arrived, if there is one already.
    pub fn next(&self) -> Option<Vec<u8>> {
        let mut buffer = vec![0; FRAME];
        loop {
            match recvfrom::<LinkAddr>(self.socket.as_raw_fd(), &mut buffer) {
                Ok((_, Some(from))) if from.pkttype() == PACKET_OUTGOING => {}
                Ok((length, _)) => {
                    buffer.truncate(length);
                    return Some(buffer);
                }
                Err(Errno::EAGAIN) => return None,
                // The interface went down or away; there is nothing more.
                Err(Errno::ENETDOWN) => return None,
                Err(Errno::EINTR) => {}
                Err(error) => {
                    assert_eq!(error, Errno::EAGAIN, "a packet socket can be read");
                }
            }
        }
    }

    /// Forgets what arrived so far.
    pub fn drain(&self) {
        while self.next().is_some() {}
    }

    /// Waits for a frame that `wanted` accepts, dropping the others.
    ///
    /// # Panics
    /// If none comes.
    #[track_caller]
    pub fn wait(&self, what: &str, wanted: impl Fn(&[u8]) -> bool) -> Vec<u8> {
        let end = Instant::now() + wait::PATIENCE;
        let found = self.look(end, wanted);
        assert!(found.is_some(), "waited in vain for {what}");
        found.unwrap_or_default()
    }

    /// Looks for a frame until a deadline.
    fn look(&self, end: Instant, wanted: impl Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
        loop {
            while let Some(frame) = self.next() {
                if wanted(&frame) {
                    return Some(frame);
                }
            }
            let left = end.saturating_duration_since(Instant::now());
            if left == Duration::ZERO {
                return None;
            }
            let timeout = Timespec::try_from(left).ok();
            let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
            // Interrupted or not, the loop looks again.
            let _ = poll(&mut fds, timeout.as_ref());
        }
    }

    /// Waits for a frame that contains `marker`.
    ///
    /// # Panics
    /// If none comes.
    #[track_caller]
    pub fn wait_marker(&self, what: &str, marker: &[u8]) -> Vec<u8> {
        self.wait(what, |frame| contains(frame, marker))
    }

    /// How many of the frames that arrived contain `marker`; all are dropped.
    pub fn count(&self, marker: &[u8]) -> usize {
        let mut count = 0;
        while let Some(frame) = self.next() {
            count += usize::from(contains(&frame, marker));
        }
        count
    }
}

impl AsFd for Tap {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Asserts that each tap sees a marked frame of `send` once; returns its mark.
///
/// It waits for the frame, and has `send` send something else: a tap that sees that has not seen the
/// first a second time.
///
/// # Panics
/// If one is not seen, or the first more than once.
pub fn assert_each_gets_one(taps: &[Tap], mut send: impl FnMut(&[u8])) -> Marker {
    let (word, last) = (marker(), marker());
    send(&word);
    for tap in taps {
        tap.wait_marker("what was sent", &word);
    }
    send(&last);
    for tap in taps {
        tap.wait("what was sent later", |frame| {
            assert!(!contains(frame, &word), "a second copy");
            contains(frame, &last)
        });
    }
    word
}

/// Whether a frame contains these bytes.
pub fn contains(frame: &[u8], marker: &[u8]) -> bool {
    frame.windows(marker.len()).any(|window| window == marker)
}

/// The packet address of an interface of the calling thread's namespace.
fn link_address(ifname: &str) -> LinkAddr {
    let mut addresses = getifaddrs().expect("interfaces can be listed");
    addresses
        .find_map(|entry| {
            let address = entry.address?;
            (entry.interface_name == ifname).then(|| address.as_link_addr().copied())?
        })
        .expect("the interface is there")
}
