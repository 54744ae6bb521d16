//! Changes of tables as the kernel announces them.

use std::fmt;
use std::io;

use netlink_sys::protocols::NETLINK_NETFILTER;
use netlink_sys::{AsyncSocket, AsyncSocketExt, SocketAddr, TokioSocket};
use rustix::io::Errno;
use tokio::runtime::Handle;

use super::message::table_of;
use crate::error::Error;
use crate::netns::Netns;
use crate::wire;

/// `NFNLGRP_NFTABLES` of linux/netfilter/nfnetlink.h as a bit of `nl_groups`.
const GROUP: u32 = 1 << 6;
/// Announcements are at most a page each, and several to a datagram.
const RECEIVE_BUFFER: usize = 32 * 1024;

/// Tells when tables of nf_tables of these names were changed, by anybody; see
/// [`Netlink::watch_rules`](crate::Netlink::watch_rules).
pub struct RulesetMonitor {
    socket: TokioSocket,
    tables: Vec<String>,
    buffer: Vec<u8>,
}

impl RulesetMonitor {
    /// Watches a namespace, which lives for as long as that.
    ///
    /// # Errors
    /// [`Error::OpenSocket`], [`Error::EnterNetns`].
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn within(netns: &Netns, tables: &[&str]) -> Result<Self, Error> {
        let runtime = Handle::current();
        netns.run_in(|| {
            let _inside = runtime.enter();
            Self::open(tables)
        })?
    }

    /// Opens the socket in the calling thread's namespace.
    pub(crate) fn open(tables: &[&str]) -> Result<Self, Error> {
        let open = || -> io::Result<TokioSocket> {
            let mut socket = TokioSocket::new(NETLINK_NETFILTER)?;
            socket.socket_mut().bind(&SocketAddr::new(0, GROUP))?;
            Ok(socket)
        };
        Ok(Self {
            socket: open().map_err(|source| Error::OpenSocket { source })?,
            tables: tables.iter().map(ToString::to_string).collect(),
            buffer: Vec::with_capacity(RECEIVE_BUFFER),
        })
    }

    /// Waits until one of the tables, or a chain or rule in it, was made or removed.
    ///
    /// May be dropped and called again. Changes between two calls are one change, with those that were
    /// lost.
    ///
    /// # Errors
    /// [`Error::Receive`]; the monitor should be replaced then.
    pub async fn changed(&mut self) -> Result<(), Error> {
        loop {
            self.buffer.clear();
            let touched = match self.socket.recv_from(&mut self.buffer).await {
                // Only the kernel, port 0, is heard.
                Ok(from) if from.port_number() != 0 => false,
                Ok(_) => self.touches(),
                // Some were lost, whatever they said.
                Err(error) if Errno::from_io_error(&error) == Some(Errno::NOBUFS) => true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => false,
                Err(source) => return Err(Error::Receive { source }),
            };
            if touched {
                self.drain();
                return Ok(());
            }
        }
    }

    fn touches(&self) -> bool {
        let mut tables = wire::messages(&self.buffer).filter_map(table_of);
        tables.any(|table| self.tables.contains(&table))
    }

    fn drain(&mut self) {
        loop {
            self.buffer.clear();
            match self.socket.socket_ref().recv_from(&mut self.buffer, 0) {
                Ok(_) => {}
                Err(error) if Errno::from_io_error(&error) == Some(Errno::NOBUFS) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    }
}

impl fmt::Debug for RulesetMonitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RulesetMonitor")
            .field("tables", &self.tables)
            .finish_non_exhaustive()
    }
}
