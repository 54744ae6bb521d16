//! What one switch tells the next of a port. Descriptors are beside it, in this order: the device,
//! the listeners, and with a connection its socket, the regions, the eventfds of the rings from the
//! client and of those to it.

use serde::{Deserialize, Serialize};

use crate::port::{PortConfig, PortCounters};

/// A port that is handed over.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HandedPort {
    /// What it is.
    pub config: PortConfig,
    /// Listening sockets.
    pub listeners: usize,
    /// What went through.
    #[serde(default)]
    pub counters: PortCounters,
    /// Its client, if it has one.
    #[serde(default)]
    pub connection: Option<HandedConnection>,
}

/// A connection that is handed over.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HandedConnection {
    /// The client's application.
    pub app: String,
    /// The client's interface.
    pub peer: String,
    /// Bytes of each region.
    pub regions: Vec<u64>,
    /// Rings from the client.
    pub c2s: Vec<HandedPlace>,
    /// Rings to the client.
    pub s2c: Vec<HandedPlace>,
}

/// A ring that is handed over.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct HandedPlace {
    /// The region.
    pub region: u16,
    /// The offset of the ring's header in the region, in bytes.
    pub offset: u32,
    /// Slots, as a power of two.
    pub log2_size: u8,
    /// The index of the next slot.
    pub next: u16,
    /// That slot is in the middle of a packet that is dropped.
    #[serde(default)]
    pub in_chain: bool,
}
