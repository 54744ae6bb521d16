//! memif 2.0, the shared memory packet interface of VPP and DPDK, in both roles.
//!
//! It carries Ethernet frames.
//!
//! A *client* (slave) owns the memory and connects to a *server* (master) over a Unix socket. The
//! server maps the memory, and packets go through rings in it, without a system call where both
//! sides poll.
//!
//! It is written for peers that are not trusted: a pod, say. Whatever a peer sends or writes into
//! its memory, at any moment, this side neither crashes nor waits for it, and touches nothing but
//! that peer's own memory. Who the peer is, and what its packets may be, is the caller's business;
//! so are threads, clocks and epoll. There is one thread inside, for doorbells ([`Doorbells`]).
//!
//! - [`Listener`] and [`Client`] drive sockets that never block, over the pure state machines in
//!   [`handshake`].
//! - Both give a [`Port`] with rings: [`Rx::burst`] visits packets, [`Tx::push`] and [`Tx::forward`]
//!   send them. No lock, no allocation there, and no system call but the futex of a peer's doorbell.
//! - [`ServerConnection::hand_over`] and [`Listener::resume`] replace a server under its clients.
//!
//! What VPP calls S2M and M2S is called client to server (C2S) and server to client (S2C) here, as in
//! DPDK. `fuzz/build` builds the fuzz targets; Miri runs `--test rings`, with
//! `-Zmiri-disable-weak-memory-emulation` where the peer's bytes are written by hand.
//!
//! ```
//! # #[cfg(not(miri))]
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Instant;
//! use memif::{Address, Client, ClientConfig, Door, Event, Listener, ServerConfig, Text};
//!
//! let address = Address::Abstract(format!("memif-doc-{}", std::process::id()).into_bytes());
//! let door = Door::new(0, Text::new("switch0")?);
//! let listener = Listener::bind(&address, ServerConfig::new(Text::new("switch")?, door))?;
//! let now = Instant::now();
//! let mut client = Client::new(address, ClientConfig::new(Text::new("app")?), now)?;
//!
//! assert!(matches!(client.poll(now)?, Event::Nothing));
//! let mut connection = listener.accept(now)?.expect("the client waits");
//! let (mut app, mut switch) = (None, None);
//! while app.is_none() || switch.is_none() {
//!     if let Event::Connected(port) = client.poll(now)? {
//!         app = Some(port);
//!     }
//!     if let Event::Connected(port) = connection.ready(now)? {
//!         switch = Some(port);
//!     }
//! }
//! let (mut app, mut switch) = (app.unwrap(), switch.unwrap());
//!
//! let frame = [0x42; 60];
//! let _ = app.tx[0].push(&frame)?;
//! app.tx[0].flush();
//! let mut received = Vec::new();
//! switch.rx[0].burst(64, |packet| {
//!     received.resize(packet.len() as usize, 0);
//!     packet.read(0, &mut received);
//! })?;
//! assert_eq!(received, frame);
//! # Ok(())
//! # }
//! # #[cfg(miri)]
//! # fn main() {}
//! ```
#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)
)]

mod bell;
mod budget;
mod client;
mod descriptor;
mod error;
mod handover;
pub mod handshake;
mod index;
mod layout;
mod memory;
mod packet;
mod port;
mod rx;
mod server;
mod shm;
mod socket;
mod tx;
pub mod wire;

pub use crate::bell::Bell;
pub use crate::budget::Budget;
pub use crate::client::Client;
pub use crate::descriptor::PeerFd;
pub use crate::error::{Closed, Error, Violation};
pub use crate::handover::{HandedRing, Handover};
pub use crate::handshake::{Agreed, ClientConfig, Door, Limits, RingPlace, ServerConfig};
pub use crate::layout::{Buffers, Layout};
pub use crate::packet::Packet;
pub use crate::port::{Doorbells, Port};
pub use crate::rx::{GROUP, MAX_SEGMENTS, MIN_FRAME, Rx, RxCounters, RxPosition};
pub use crate::server::{Event, Listener, ServerConnection};
pub use crate::shm::{Region, Regions, Segment};
pub use crate::socket::{Address, remove};
pub use crate::tx::{Sent, Tx, TxCounters};
pub use crate::wire::{Name, Secret, Text, TextError};
