//! The handshake of a connection, as two state machines without I/O of their own.
//!
//! Datagrams with their descriptors go in, datagrams with theirs come out.
//!
//! ```text
//! client                      server
//!                      <---   HELLO
//! INIT                 --->
//!                      <---   ACK          the interface is this client's now
//! ADD_REGION + memfd   --->
//!                      <---   ACK          … for each region
//! ADD_RING + eventfd   --->
//!                      <---   ACK          … for each ring
//! CONNECT              --->
//!                      <---   CONNECTED    packets may flow
//! ```
//!
//! It is in lock-step: every client known sends one message for each that it receives.

mod client;
mod door;
mod place;
mod server;

use crate::error::Closed;
use crate::wire::MessageBytes;

pub use self::client::{Agreed, ClientConfig, ClientEvent, ClientHandshake, Offer};
pub use self::door::{Claim, Door};
pub use self::place::RingPlace;
#[cfg(test)]
pub(crate) use self::place::check as check_places;
pub(crate) use self::place::{DESCRIPTORS_AT, ring_bytes};
pub use self::server::{RingOffer, ServerConfig, ServerEvent, ServerHandshake, Setup};

/// The kind of a file descriptor, as far as this protocol distinguishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Memory that can be sealed: a memfd.
    Memory,
    /// An eventfd.
    Event,
    /// Anything else.
    ///
    /// Even closing it may block: it can be a file of the peer's own file system.
    Foreign,
}

/// A descriptor of a peer: an open file, or in tests only the claim to be one.
pub trait Descriptor {
    /// Returns its kind.
    fn kind(&self) -> Kind;
}

/// A message to send, with the descriptor that belongs to it.
#[derive(Debug)]
pub struct Datagram<F> {
    /// The message.
    pub bytes: MessageBytes,
    /// Its descriptor.
    pub descriptor: Option<F>,
}

impl<F> Datagram<F> {
    pub(crate) fn plain(bytes: MessageBytes) -> Self {
        Self {
            bytes,
            descriptor: None,
        }
    }
}

/// Effects of a message: datagrams to send, then an event.
#[derive(Debug)]
pub struct Step<F, E> {
    /// To be sent.
    pub send: Option<Datagram<F>>,
    /// To be acted upon.
    pub event: Option<E>,
}

impl<F, E> Step<F, E> {
    fn nothing() -> Self {
        Self {
            send: None,
            event: None,
        }
    }

    fn send(datagram: Datagram<F>) -> Self {
        Self {
            send: Some(datagram),
            event: None,
        }
    }

    fn event(event: E) -> Self {
        Self {
            send: None,
            event: Some(event),
        }
    }

    fn closed(send: Option<Datagram<F>>, why: Closed) -> Self
    where
        E: From<Closed>,
    {
        Self {
            send,
            event: Some(E::from(why)),
        }
    }
}

/// A server's limits for each client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Regions, 1 to 256. Known clients have one or two.
    pub regions: u16,
    /// Bytes of all regions together, each rounded up to 64 KiB.
    ///
    /// They count as this process's memory once it touches them.
    pub bytes: u64,
    /// Bytes of a [`Budget`](crate::Budget) for a connection besides its regions.
    ///
    /// These are page tables, descriptors, a thread.
    pub overhead: u64,
    /// Rings from the client, 1 to 256.
    pub c2s_rings: u16,
    /// Rings to the client, 1 to 256.
    pub s2c_rings: u16,
    /// Slots of the largest ring, as a power of two, 1 to 14.
    pub log2_ring_size: u8,
    /// Bytes of the longest packet that is accepted, all its segments together.
    pub max_frame: u32,
}

impl Limits {
    /// Bytes that a client with regions of these sizes takes of a budget.
    fn counted(&self, regions: &[u64]) -> u64 {
        let bytes = crate::budget::counted(regions.iter().copied());
        // A page table has 8 bytes for each page of 4096.
        let tables = bytes.checked_div(512).unwrap_or(0);
        let all = bytes.saturating_add(tables);
        all.saturating_add(self.overhead)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            regions: 4,
            bytes: 128 << 20,
            overhead: 128 << 10,
            c2s_rings: 8,
            s2c_rings: 8,
            log2_ring_size: crate::wire::MAX_LOG2_RING_SIZE,
            max_frame: 9216,
        }
    }
}

#[cfg(test)]
mod tests;
