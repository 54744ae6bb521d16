//! The rings of a connection, for the thread that moves packets.
//!
//! It has no part in the control channel.

use std::sync::Arc;

use crate::bell::{Bell, Bells};
use crate::descriptor::PeerFd;
use crate::error::{Error, Violation};
use crate::handshake::{Agreed, Descriptor as _, Kind, Offer, RingOffer, RingPlace, Setup};
use crate::layout::Layout;
use crate::memory;
use crate::rx::Rx;
use crate::shm::{Region, Regions};
use crate::tx::Tx;
use crate::wire::{AddRing, Name};

/// A connected interface. Rings may be given to different threads.
///
/// The memory stays mapped until the last ring is dropped, whatever becomes of the connection: drop
/// the port when the connection is closed.
#[derive(Debug)]
pub struct Port {
    /// Rings with packets for us.
    pub rx: Vec<Rx>,
    /// Rings for packets of ours.
    pub tx: Vec<Tx>,
    /// The peer's application.
    pub app: Name,
    /// The peer's interface.
    pub peer: Name,
}

/// How peers' doorbells are rung.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Doorbells {
    /// By a thread for each connection: the peer cannot make anybody wait.
    #[default]
    Thread,
    /// The sending thread rings; for trusted peers.
    ///
    /// A hostile peer can block that thread.
    Direct,
}

/// A server's end of what a client has offered.
///
/// # Errors
/// The outer one is ours, the inner one the client's fault.
pub(crate) fn of_server(
    setup: Setup<PeerFd>,
    doorbells: Doorbells,
    max_frame: u32,
) -> Result<Result<Connected, Violation>, Error> {
    let s2c: Vec<(RingPlace, Arc<PeerFd>)> = setup.s2c.into_iter().map(shared).collect();
    let (bells, ringers) = ringers(doorbells, &s2c)?;
    let made = (|| {
        let (lent, regions) = Lent::map(setup.regions)?;
        let c2s: Vec<(RingPlace, Arc<PeerFd>)> = setup.c2s.into_iter().map(shared).collect();
        let mut rx = Vec::with_capacity(c2s.len());
        for (place, event) in &c2s {
            let event = Arc::clone(event);
            rx.push(Rx::server(&regions, *place, Some(event), max_frame)?);
        }
        let mut tx = Vec::with_capacity(s2c.len());
        for ((place, _), bell) in s2c.iter().zip(ringers) {
            tx.push(Tx::server(&regions, *place, bell)?);
        }
        let port = Port {
            rx,
            tx,
            app: setup.app,
            peer: setup.peer,
        };
        let kept = Kept {
            regions: lent,
            c2s,
            s2c,
        };
        Ok((port, kept))
    })();
    Ok(made.map(|(port, kept)| Connected { port, bells, kept }))
}

/// A server's end.
pub(crate) struct Connected {
    pub(crate) port: Port,
    pub(crate) bells: Option<Bells>,
    pub(crate) kept: Kept,
}

/// Parts of a connection besides its port, kept for a handover.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) regions: Lent,
    pub(crate) c2s: Vec<(RingPlace, Arc<PeerFd>)>,
    pub(crate) s2c: Vec<(RingPlace, Arc<PeerFd>)>,
}

fn shared(ring: RingOffer<PeerFd>) -> (RingPlace, Arc<PeerFd>) {
    (ring.place, Arc::new(ring.event))
}

/// Files of regions that were mapped, and their bytes.
///
/// Their pages are given back when this is dropped, so every mapping must be gone by then: a touch
/// afterwards would be charged again.
#[derive(Debug)]
pub(crate) struct Lent(Vec<(PeerFd, u64)>);

impl Lent {
    /// Maps what was offered.
    ///
    /// # Errors
    /// A region that cannot be; what was mapped before it is given back.
    pub(crate) fn map(offered: Vec<(PeerFd, u64)>) -> Result<(Self, Arc<Regions>), Violation> {
        let mut lent = Self(Vec::with_capacity(offered.len()));
        let mut regions: Vec<Region> = Vec::with_capacity(offered.len());
        for ((file, size), index) in offered.into_iter().zip(0..) {
            if file.kind() != Kind::Memory {
                return Err(Violation::NotMemory(index));
            }
            regions.push(memory::map(file.as_fd(), index, size)?);
            lent.0.push((file, size));
        }
        Ok((lent, Arc::new(Regions::new(regions))))
    }

    /// Each file, and the bytes of it that are mapped.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&PeerFd, u64)> {
        self.0.iter().map(|(file, size)| (file, *size))
    }

    /// The pages go on being used: by another process.
    pub(crate) fn hand_over(&mut self) {
        self.0.clear();
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        for (file, size) in &self.0 {
            let given_back = memory::give_back(file.as_fd(), *size);
            debug_assert_eq!(given_back, Ok(()), "a hole in memory that could be mapped");
        }
    }
}

pub(crate) fn ringers(
    doorbells: Doorbells,
    rings: &[(RingPlace, Arc<PeerFd>)],
) -> Result<(Option<Bells>, Vec<Bell>), Error> {
    let events = rings.iter().map(|(_, event)| Arc::clone(event));
    match doorbells {
        Doorbells::Direct => Ok((None, events.map(Bell::direct).collect())),
        Doorbells::Thread => {
            let bells = Bells::start(events)?;
            let each = (0..rings.len()).map(|nth| bells.bell(nth)).collect();
            Ok((Some(bells), each))
        }
    }
}

/// A client's memory, before the server knows of it.
pub(crate) struct Prepared {
    layout: Layout,
    regions: Arc<Regions>,
    c2s: Vec<Arc<PeerFd>>,
    s2c: Vec<Arc<PeerFd>>,
    app: Name,
}

/// The offer that is sent to the server.
pub(crate) type ClientOffer = Offer<Arc<PeerFd>>;

impl Prepared {
    /// Makes memory and eventfds.
    ///
    /// # Errors
    /// The layout is not legal, or the kernel refuses.
    pub(crate) fn new(agreed: &Agreed, buffer_size: u32) -> Result<(Self, ClientOffer), Error> {
        let layout = Layout::new(agreed, buffer_size)?;
        let (file, region) = memory::create(layout.size())?;
        let regions = layout.format(region);
        let c2s = events(layout.c2s.len())?;
        let s2c = events(layout.s2c.len())?;
        let mut rings = Vec::new();
        for (from_client, places, events) in [(true, &layout.c2s, &c2s), (false, &layout.s2c, &s2c)]
        {
            for (((place, _), event), index) in places.iter().zip(events).zip(0..) {
                let ring = AddRing {
                    from_client,
                    index,
                    region: place.region,
                    offset: place.offset,
                    log2_ring_size: place.log2_size,
                    private_hdr_size: 0,
                };
                rings.push((ring, Arc::clone(event)));
            }
        }
        let offer = Offer {
            regions: vec![(layout.size().into(), Arc::new(PeerFd::new(file)))],
            rings,
        };
        let prepared = Self {
            layout,
            regions,
            c2s,
            s2c,
            app: agreed.app,
        };
        Ok((prepared, offer))
    }

    /// The client's end, once the server has connected.
    ///
    /// # Errors
    /// The outer one is ours, the inner one the server's fault: it has written where it must not.
    pub(crate) fn connect(
        self,
        peer: Name,
        doorbells: Doorbells,
    ) -> Result<Result<(Port, Option<Bells>), Violation>, Error> {
        let places = self.layout.c2s.iter().map(|(place, _)| *place);
        let c2s: Vec<(RingPlace, Arc<PeerFd>)> = places.zip(self.c2s).collect();
        let (bells, ringers) = ringers(doorbells, &c2s)?;
        let made = (|| {
            let mut rx = Vec::new();
            for ((place, buffers), event) in self.layout.s2c.into_iter().zip(self.s2c) {
                rx.push(Rx::client(&self.regions, place, Some(event), buffers)?);
            }
            let mut tx = Vec::new();
            for ((place, buffers), bell) in self.layout.c2s.into_iter().zip(ringers) {
                tx.push(Tx::client(&self.regions, place, bell, buffers)?);
            }
            Ok(Port {
                rx,
                tx,
                app: self.app,
                peer,
            })
        })();
        Ok(made.map(|port| (port, bells)))
    }
}

fn events(count: usize) -> Result<Vec<Arc<PeerFd>>, Error> {
    use rustix::event::{EventfdFlags, eventfd};

    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    let made = (0..count).map(|_| eventfd(0, flags));
    let made: Result<Vec<_>, _> = made.collect();
    let made = made.map_err(|errno| Error::Memory {
        operation: "eventfd",
        source: errno.into(),
    })?;
    let shared = made.into_iter().map(PeerFd::own_event).map(Arc::new);
    Ok(shared.collect())
}
