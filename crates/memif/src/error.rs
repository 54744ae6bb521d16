//! Violations that end a connection, and errors that keep one from being made.

use std::io;

use rustix::io::Errno;
use thiserror::Error;

use crate::wire::{Disconnect, ReasonText, WireError};

/// A peer's violation of the protocol or of our limits.
///
/// The text goes to the peer in a DISCONNECT, in the words of other implementations where they have some.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Violation {
    /// A datagram that is no message.
    #[error("{0}")]
    Wire(#[from] WireError),
    /// A message that may not come now.
    #[error("unexpected message {0}")]
    Unexpected(&'static str),
    /// The peer's versions do not include 2.0.
    #[error("Incompatible memif version")]
    Version {
        /// The oldest it speaks.
        min: u16,
        /// The newest it speaks.
        max: u16,
    },
    /// No interface of this number is behind the socket.
    #[error("unmatched interface id")]
    Id(u32),
    /// Another client has the interface.
    #[error("Already connected")]
    AlreadyConnected(u32),
    /// A newer client took the interface before this one had its rings.
    #[error("displaced by a newer connection")]
    Displaced(u32),
    /// IP or punt mode.
    #[error("Only ethernet mode supported")]
    Mode(u8),
    /// The interface has a secret and the client sent none.
    #[error("secret required")]
    SecretRequired,
    /// The client sent another secret.
    #[error("incorrect secret")]
    SecretIncorrect,
    /// A message without the descriptor that belongs to it.
    #[error("{0} without a file descriptor")]
    DescriptorMissing(&'static str),
    /// A message with more descriptors than belong to it.
    #[error("{message} with {count} file descriptors")]
    DescriptorsExtra {
        /// The message.
        message: &'static str,
        /// Descriptors that came with it.
        count: usize,
    },
    /// More ancillary data than any message has.
    #[error("too many file descriptors in a message")]
    DescriptorsCut,
    /// A region that is no memory the peer could promise not to take away.
    #[error("region {0} is not a memfd")]
    NotMemory(u16),
    /// A ring's descriptor that is no eventfd.
    #[error("ring {0} has no eventfd")]
    NotEvent(u16),
    /// Without F_SEAL_SHRINK the peer can cut the file while we read it.
    #[error("region {0} is not sealed with F_SEAL_SHRINK (VPP: use no-zero-copy)")]
    Unsealed(u16),
    /// Huge pages can be missing when they are touched, seals or not.
    #[error("region {0} is on huge pages, use ordinary pages")]
    HugePages(u16),
    /// The file is smaller than the peer says.
    #[error("region {index} claims {claimed} bytes, its file has {actual}")]
    RegionBeyondFile {
        /// The region.
        index: u16,
        /// Bytes the peer says it has.
        claimed: u64,
        /// Bytes of the file.
        actual: u64,
    },
    /// The kernel refuses to map it, for example because of F_SEAL_WRITE.
    #[error("region {index} cannot be mapped: {errno}")]
    Unmappable {
        /// The region.
        index: u16,
        /// The kernel's reason.
        errno: Errno,
    },
    /// No bytes.
    #[error("region {0} is empty")]
    RegionEmpty(u16),
    /// Regions must be announced in order.
    #[error("Invalid region index")]
    RegionIndex {
        /// The number that was due.
        expected: u16,
        /// The one that came.
        actual: u16,
    },
    /// More regions than we allow.
    #[error("too many regions, {0} are allowed")]
    Regions(u16),
    /// More memory than we allow.
    #[error("memory of this {of} would be {bytes} bytes, {max} are allowed")]
    Memory {
        /// The holder of the limit.
        of: &'static str,
        /// Bytes of all regions that count against it.
        bytes: u64,
        /// Bytes we allow.
        max: u64,
    },
    /// Rings must be announced in order, for each direction.
    #[error("Invalid ring index")]
    RingIndex {
        /// The number that was due.
        expected: u16,
        /// The one that came.
        actual: u16,
    },
    /// More rings than we allow.
    #[error("too many rings, {0} are allowed")]
    Rings(u16),
    /// No ring in either direction.
    #[error("no ring was added")]
    NoRing,
    /// A ring of 1, or of more than we allow.
    #[error("ring of 2^{log2} slots, 2^1 to 2^{max} are allowed")]
    RingSize {
        /// The size that was asked for.
        log2: u8,
        /// The largest that is allowed.
        max: u8,
    },
    /// No implementation uses it, so its meaning is unknown.
    #[error("private header of {0} bytes, must be 0")]
    PrivateHeader(u16),
    /// A ring that is not inside its region, or not aligned.
    #[error("ring at {offset} of region {region} is not inside it or not aligned to 16")]
    RingPlace {
        /// The region it names.
        region: u16,
        /// Its offset there.
        offset: u32,
    },
    /// Two rings in one place.
    #[error("rings overlap in region {0}")]
    RingsOverlap(u16),
    /// The peer lays rings out for cache lines of 128 bytes, as some DPDK builds do.
    ///
    /// All others use 64.
    #[error("rings laid out for cache lines of 128 bytes, only 64 are supported")]
    CacheLine128,
    /// Something else is where a ring's header should be.
    #[error("Invalid cookie")]
    Cookie {
        /// The cookie that is there.
        found: u32,
    },
    /// An index of the peer went backwards, or ahead by more than the ring has slots.
    #[error("ring index out of range")]
    Index {
        /// Ours.
        ours: u16,
        /// The peer's.
        theirs: u16,
    },
    /// A descriptor names bytes that are in no region.
    #[error("descriptor outside of the regions")]
    Descriptor {
        /// The region it names.
        region: u16,
        /// The offset.
        offset: u32,
        /// The length.
        length: u32,
    },
    /// The peer does not read its socket.
    #[error("control messages are not read")]
    NotReading,
    /// The connection was not made in time.
    #[error("handshake timed out")]
    Deadline,
    /// Writing to the peer's eventfd does not return.
    #[error("eventfd is full and blocks")]
    Doorbell,
    /// A server that offers less than anybody can use.
    #[error("server offers rings of 2^{0} slots at most")]
    ServerRingSize(u8),
}

impl Violation {
    /// The message that tells the peer.
    pub fn disconnect(&self) -> Disconnect {
        Disconnect {
            code: 0,
            reason: ReasonText::cut(&self.to_string()),
        }
    }
}

/// Why a connection is no more.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Closed {
    /// The peer said so.
    #[error("disconnected by the peer: {}", .0.reason)]
    Peer(Disconnect),
    /// The peer is gone and gave no reason.
    #[error("the peer closed the connection")]
    Hangup,
    /// The peer did what it must not.
    #[error("the peer broke the protocol: {0}")]
    Violation(#[from] Violation),
    /// The socket failed.
    #[error("the control socket failed: {0}")]
    Socket(Errno),
    /// This side ended it.
    #[error("the connection was ended at this side: {0}")]
    Local(ReasonText),
}

/// A failure of the library's own side.
#[derive(Debug, Error)]
pub enum Error {
    /// A socket that cannot be made, bound or connected.
    #[error("memif socket {address}: {operation}: {source}")]
    Socket {
        /// The operation.
        operation: &'static str,
        /// The socket's address.
        address: String,
        /// The kernel's reason.
        source: io::Error,
    },
    /// An address that no socket can have.
    #[error(
        "memif socket {address}: a name of {len} bytes, use 1 to {max} bytes without a NUL byte"
    )]
    Address {
        /// The address that was given.
        address: String,
        /// Its length.
        len: usize,
        /// The longest there can be.
        max: usize,
    },
    /// Rings and buffers that do not make a legal layout.
    #[error("{field}: {value} is not allowed, use {min} to {max}")]
    Layout {
        /// The setting.
        field: &'static str,
        /// Its value.
        value: u64,
        /// The smallest that is allowed.
        min: u64,
        /// The largest that is allowed.
        max: u64,
    },
    /// Memory for a client's regions that cannot be had.
    #[error("{operation}: {source}")]
    Memory {
        /// The operation.
        operation: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },
    /// `vm.overcommit_memory=2`: touching a page of a sealed memfd may kill by SIGBUS.
    ///
    /// The touch can fail for want of memory.
    #[error(
        "vm.overcommit_memory is 2, with which the peer's memory is not safe to touch: set it to 0 or 1"
    )]
    StrictOvercommit,
    /// The thread that rings a peer's doorbells cannot be started.
    #[error("cannot start the thread for doorbells: {0}")]
    Thread(#[source] io::Error),
}
