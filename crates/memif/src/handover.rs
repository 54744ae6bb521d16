//! A connection that goes on in another process, without a client knowing.
//!
//! DPDK's clients never connect again, and may crash when their server goes. So a server that is
//! replaced gives its connections to its successor: this is what has to be sent, over a Unix socket
//! with SCM_RIGHTS. How it is written there is the caller's business.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use crate::descriptor::PeerFd;
use crate::error::{Error, Violation};
use crate::handshake::{RingPlace, ServerHandshake};
use crate::port::{self, Kept, Lent, Port};
use crate::rx::{Rx, RxPosition};
use crate::server::{Listener, ServerConnection};
use crate::tx::Tx;
use crate::wire::Name;

/// A connection taken apart.
///
/// Until it is put together again, its client sees rings that no process serves.
#[derive(Debug)]
pub struct Handover {
    /// The control socket.
    pub socket: OwnedFd,
    /// The number of the interface.
    pub id: u32,
    /// The client's application.
    pub app: Name,
    /// The client's interface.
    pub peer: Name,
    /// Files of the regions, and their sizes.
    pub regions: Vec<(OwnedFd, u64)>,
    /// Rings from the client.
    pub c2s: Vec<HandedRing<RxPosition>>,
    /// Rings to the client, with the index of the next slot.
    pub s2c: Vec<HandedRing<u16>>,
}

/// A ring of a connection taken apart.
#[derive(Debug)]
pub struct HandedRing<P> {
    /// Where it is.
    pub place: RingPlace,
    /// Its eventfd.
    pub event: OwnedFd,
    /// Where to go on. It is not read from the ring, which the client can write.
    pub at: P,
}

impl ServerConnection {
    /// Takes a connection apart, after a flush of the port's rings.
    ///
    /// # Errors
    /// The process has no descriptor left. The connection is closed then.
    ///
    /// # Panics
    /// If the port is not of this connection.
    pub fn hand_over(self, mut port: Port) -> Result<Handover, Error> {
        for tx in &mut port.tx {
            tx.flush();
        }
        let (socket, claim, parts) = self.into_parts();
        let (id, mut kept) = parts.expect("a port is of a connection that is connected");
        let duplicate = |event: &PeerFd| {
            let copy = event.as_fd().try_clone_to_owned();
            copy.map_err(|source| Error::Memory {
                operation: "duplicating a descriptor to hand over",
                source,
            })
        };
        let regions = kept.regions.iter();
        let regions = regions.map(|(file, size)| Ok((duplicate(file)?, size)));
        let c2s = kept.c2s.iter().zip(&port.rx).map(|((place, event), rx)| {
            Ok(HandedRing {
                place: *place,
                event: duplicate(event)?,
                at: rx.position(),
            })
        });
        let s2c = kept.s2c.iter().zip(&port.tx).map(|((place, event), tx)| {
            Ok(HandedRing {
                place: *place,
                event: duplicate(event)?,
                at: tx.position(),
            })
        });
        let handover = (|| {
            Ok(Handover {
                socket,
                id,
                app: port.app,
                peer: port.peer,
                regions: regions.collect::<Result<_, Error>>()?,
                c2s: c2s.collect::<Result<_, Error>>()?,
                s2c: s2c.collect::<Result<_, Error>>()?,
            })
        })();
        if handover.is_ok() {
            kept.regions.hand_over();
        }
        // The mapping, the pages, the place of the client: in this order.
        drop((port.rx, port.tx));
        drop(kept);
        drop(claim);
        handover
    }
}

impl Listener {
    /// Resumes a connection of another process, as a client of this listener.
    ///
    /// The memory is checked and mapped again; rings go on where they stopped.
    ///
    /// # Errors
    /// The outer one is ours. The inner one: the interface is not here or has a client, or the
    /// memory is not as it was.
    pub fn resume(
        &self,
        handover: Handover,
        now: Instant,
    ) -> Result<Result<(ServerConnection, Port), Violation>, Error> {
        let (config, doorbells) = self.settings();
        let max_frame = config.limits.max_frame;
        let sizes: Vec<u64> = handover.regions.iter().map(|(_, size)| *size).collect();
        let id = handover.id;
        let handshake = match ServerHandshake::resume(Arc::clone(config), id, &sizes, now) {
            Ok(handshake) => handshake,
            Err(violation) => return Ok(Err(violation)),
        };
        let regions = handover.regions.into_iter();
        let regions = regions.map(|(file, size)| (PeerFd::new(file), size));
        let (lent, regions) = match Lent::map(regions.collect()) {
            Ok(mapped) => mapped,
            Err(violation) => return Ok(Err(violation)),
        };
        let mut kept = Kept {
            regions: lent,
            c2s: Vec::new(),
            s2c: Vec::new(),
        };
        let mut rx_at = Vec::new();
        for ring in handover.c2s {
            kept.c2s
                .push((ring.place, Arc::new(PeerFd::new(ring.event))));
            rx_at.push(ring.at);
        }
        let mut tx_at = Vec::new();
        for ring in handover.s2c {
            kept.s2c
                .push((ring.place, Arc::new(PeerFd::new(ring.event))));
            tx_at.push(ring.at);
        }
        let (bells, ringers) = port::ringers(doorbells, &kept.s2c)?;
        let made = (move || {
            // Where this fails they go in the other order: the mapping before the pages are given back.
            let kept = kept;
            let regions = regions;
            let mut rx = Vec::new();
            for ((place, event), at) in kept.c2s.iter().zip(rx_at) {
                let event = Some(Arc::clone(event));
                rx.push(Rx::resume(&regions, *place, event, max_frame, at)?);
            }
            let mut tx = Vec::new();
            for (((place, _), bell), at) in kept.s2c.iter().zip(ringers).zip(tx_at) {
                tx.push(Tx::resume(&regions, *place, bell, at)?);
            }
            let port = Port {
                rx,
                tx,
                app: handover.app,
                peer: handover.peer,
            };
            Ok((port, kept))
        })();
        Ok(made.map(|(port, kept)| {
            let connection =
                ServerConnection::resumed(self, handover.socket, handshake, bells, kept);
            (connection, port)
        }))
    }
}
