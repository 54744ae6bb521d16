//! Open and use AF_XDP sockets in pure Rust, with or without privileges.
//!
//! A pod without privileges gets them through the control socket.
//!
//! A socket can be opened here, or be given: a pod that may not open one asks the agent
//! ([`Control::new_socket`]), gives it memory, binds it ([`Port::bind`]) and has the agent put it into the
//! map of the interface's XDP program ([`Control::insert`]). That takes no capability at all.
//!
//! - [`Port`] is a bound socket: [`Port::receive`] visits frames where they are, [`Port::send`] and
//!   [`Port::flush`] send. One thread, no lock, no allocation there.
//! - [`control`] has the words of the control socket, which DPDK's `use_cni` speaks too, and both ends of
//!   it. What the agent answers is the agent's business.
//!
//! It loads no XDP program and knows no networks. Why none of the published crates:
//! `docs/adr/0034-af-xdp-ports.md`.
//!
//! ```no_run
//! use xsk::{Config, Control, Port, Verdict};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut control = Control::connect(&xsk::control::abstract_name("net1"))?;
//! let socket = control.new_socket("net1")?;
//! let ifindex = std::fs::read_to_string("/sys/class/net/net1/ifindex")?.trim().parse()?;
//! let mut port = Port::bind(socket, ifindex, 0, &Config::default())?;
//! control.insert("net1", 0, &port)?;
//! loop {
//!     port.wait(std::time::Duration::from_secs(1))?;
//!     port.receive(64, |frame| {
//!         println!("{} bytes", frame.len());
//!         Verdict::Done
//!     });
//! }
//! # }
//! ```
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod config;
pub mod control;
mod error;
mod port;
mod ring;
mod shm;
mod umem;

use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

pub use crate::config::Config;
pub use crate::control::Control;
pub use crate::error::Error;
pub use crate::port::{Counters, Port, Verdict, require_xdp};

/// Opens a socket in the calling thread's network namespace.
///
/// # Errors
/// Without `CAP_NET_RAW` there, or in a kernel without AF_XDP.
pub fn open() -> Result<OwnedFd, Error> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::XDP, SocketType::RAW, flags, None)
        .map_err(Error::kernel("open an AF_XDP socket"))
}
