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
use crate::port::{self, Kept, Port};
use crate::rx::{Rx, RxPosition};
use crate::server::{Listener, ServerConnection};
use crate::tx::Tx;
use crate::wire::Name;

/// A connection taken apart. Until it is put together again, its client sees rings that nobody
/// serves.
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
    /// Takes a connection apart. What was pushed into the port's rings is flushed first.
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
        let (socket, parts) = self.into_parts();
        let (id, kept) = parts.expect("a port is of a connection that is connected");
        let duplicate = |event: &PeerFd| {
            let copy = event.as_fd().try_clone_to_owned();
            copy.map_err(|source| Error::Memory {
                operation: "duplicating a descriptor to hand over",
                source,
            })
        };
        let regions = kept.regions.iter();
        let regions = regions.map(|(file, size)| Ok((duplicate(file)?, *size)));
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
        Ok(Handover {
            socket,
            id,
            app: port.app,
            peer: port.peer,
            regions: regions.collect::<Result<_, Error>>()?,
            c2s: c2s.collect::<Result<_, Error>>()?,
            s2c: s2c.collect::<Result<_, Error>>()?,
        })
    }
}

impl Listener {
    /// Puts a connection of another process together again, as a client of this listener. The memory
    /// is checked and mapped anew; rings go on where they stopped.
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
        let handshake = match ServerHandshake::resume(Arc::clone(config), handover.id, now) {
            Ok(handshake) => handshake,
            Err(violation) => return Ok(Err(violation)),
        };
        let regions = handover.regions.into_iter();
        let mut kept = Kept {
            regions: regions
                .map(|(file, size)| (PeerFd::new(file), size))
                .collect(),
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
        let made = (|| {
            let regions = port::map(&kept.regions)?;
            let mut rx = Vec::new();
            for ((place, event), at) in kept.c2s.iter().zip(rx_at) {
                let event = Some(Arc::clone(event));
                rx.push(Rx::resume(&regions, *place, event, max_frame, at)?);
            }
            let mut tx = Vec::new();
            for (((place, _), bell), at) in kept.s2c.iter().zip(ringers).zip(tx_at) {
                tx.push(Tx::resume(&regions, *place, bell, at)?);
            }
            Ok(Port {
                rx,
                tx,
                app: handover.app,
                peer: handover.peer,
            })
        })();
        Ok(made.map(|port| {
            let connection =
                ServerConnection::resumed(self, handover.socket, handshake, bells, kept);
            (connection, port)
        }))
    }
}
