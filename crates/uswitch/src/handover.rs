//! Encode a port for its hand-over from one switch to the next.
//!
//! Descriptors are attached, in this order: the device, the listeners, and with a connection its
//! socket, the regions, the eventfds of the rings from the client and of those to it.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use memif::{HandedRing, Handover, RingPlace, RxPosition, Text};
use serde::{Deserialize, Serialize};

use crate::port::{PortConfig, PortCounters};

/// A port that is handed over.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HandedPort {
    /// Configuration of the port.
    pub config: PortConfig,
    /// A header is in front of each frame of the device.
    #[serde(default)]
    pub headers: bool,
    /// Listening sockets.
    pub listeners: usize,
    /// Counters of the port.
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

impl HandedPlace {
    fn new(place: RingPlace, at: RxPosition) -> Self {
        Self {
            region: place.region,
            offset: place.offset,
            log2_size: place.log2_size,
            next: at.next,
            in_chain: at.in_chain,
        }
    }

    fn place(self) -> RingPlace {
        RingPlace {
            region: self.region,
            offset: self.offset,
            log2_size: self.log2_size,
        }
    }
}

impl HandedConnection {
    /// Returns the description of a connection, with its descriptors.
    pub(crate) fn describe(handover: &Handover) -> (Self, Vec<BorrowedFd<'_>>) {
        let mut descriptors = vec![handover.socket.as_fd()];
        let regions = handover.regions.iter().map(|(file, _)| file.as_fd());
        let c2s = handover.c2s.iter().map(|ring| ring.event.as_fd());
        let s2c = handover.s2c.iter().map(|ring| ring.event.as_fd());
        descriptors.extend(regions.chain(c2s).chain(s2c));
        let places = |(place, at)| HandedPlace::new(place, at);
        let c2s = handover.c2s.iter().map(|ring| (ring.place, ring.at));
        let s2c = handover.s2c.iter().map(|ring| {
            let at = RxPosition {
                next: ring.at,
                in_chain: false,
            };
            (ring.place, at)
        });
        let described = Self {
            app: handover.app.to_string(),
            peer: handover.peer.to_string(),
            regions: handover.regions.iter().map(|(_, size)| *size).collect(),
            c2s: c2s.map(places).collect(),
            s2c: s2c.map(places).collect(),
        };
        (described, descriptors)
    }

    /// Restores a connection from its description and descriptors.
    ///
    /// `None` if they do not fit.
    pub(crate) fn restore(&self, descriptors: Vec<OwnedFd>) -> Option<Handover> {
        let mut descriptors = descriptors.into_iter();
        let socket = descriptors.next()?;
        let mut regions = Vec::new();
        for size in &self.regions {
            regions.push((descriptors.next()?, *size));
        }
        let mut c2s = Vec::new();
        for ring in &self.c2s {
            c2s.push(HandedRing {
                place: ring.place(),
                event: descriptors.next()?,
                at: RxPosition {
                    next: ring.next,
                    in_chain: ring.in_chain,
                },
            });
        }
        let mut s2c = Vec::new();
        for ring in &self.s2c {
            s2c.push(HandedRing {
                place: ring.place(),
                event: descriptors.next()?,
                at: ring.next,
            });
        }
        if descriptors.next().is_some() {
            return None;
        }
        Some(Handover {
            socket,
            id: 0,
            app: Text::new(&self.app).ok()?,
            peer: Text::new(&self.peer).ok()?,
            regions,
            c2s,
            s2c,
        })
    }
}
