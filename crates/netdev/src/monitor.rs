//! Link changes as the kernel announces them.

use std::collections::VecDeque;
use std::fmt;
use std::io;

use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{AsyncSocket, AsyncSocketExt, SocketAddr, TokioSocket};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_recv_buffer_size_force;

use crate::connection::is_look;
use crate::error::Error;
use crate::link::Link;
use crate::wire;

/// `RTMGRP_LINK`, the group RTNLGRP_LINK as a bit of `nl_groups`.
const RTMGRP_LINK: u32 = 1;
/// `RTMGRP_TC`, the group RTNLGRP_TC.
const RTMGRP_TC: u32 = 8;
// Parents, linux/pkt_sched.h: of the root qdisc, of the clsact qdisc (`TC_H_CLSACT`), and of filters on
// the ingress side of that (with `TC_H_MIN_INGRESS`).
const ROOT: u32 = 0xffff_ffff;
const CLSACT: u32 = 0xffff_fff1;
const INGRESS: u32 = 0xffff_fff2;
/// Room for a thousand announcements or so.
const SOCKET_BUFFER: usize = 2 * 1024 * 1024;
/// Announcements are one datagram each, a few KiB at most.
const RECEIVE_BUFFER: usize = 32 * 1024;

/// Something happened to a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkEvent {
    /// It appeared or changed; this is its state now.
    Changed(Link),
    /// It was deleted or moved to another namespace.
    Removed {
        /// Its index here, free to be used again from now on.
        ifindex: u32,
        /// Its name.
        name: String,
    },
    /// Its clsact qdisc, or a filter on the ingress side of it, was taken away.
    Unhooked {
        /// The link.
        ifindex: u32,
    },
    /// Its root qdisc was set, changed or taken away.
    Requeued {
        /// The link.
        ifindex: u32,
    },
    /// Events came faster than they were read, and some are lost: list the links again.
    Overrun,
}

/// The stream of [`LinkEvent`]s of one namespace.
///
/// See [`Netlink::monitor`](crate::Netlink::monitor).
pub struct LinkMonitor {
    socket: TokioSocket,
    buffer: Vec<u8>,
    queue: VecDeque<LinkEvent>,
}

impl LinkMonitor {
    /// Opens the socket in the calling thread's namespace.
    ///
    /// It is registered with the tokio runtime that the thread is in.
    pub(crate) fn open() -> Result<Self, Error> {
        let open = || -> io::Result<TokioSocket> {
            let mut socket = TokioSocket::new(NETLINK_ROUTE)?;
            let inner = socket.socket_mut();
            // Needs CAP_NET_ADMIN; with the default size there are just more overruns.
            let _ = set_socket_recv_buffer_size_force(&*inner, SOCKET_BUFFER);
            inner.bind(&SocketAddr::new(0, RTMGRP_LINK | RTMGRP_TC))?;
            Ok(socket)
        };
        Ok(Self {
            socket: open().map_err(|source| Error::OpenSocket { source })?,
            buffer: Vec::with_capacity(RECEIVE_BUFFER),
            queue: VecDeque::new(),
        })
    }

    /// The next event. May be dropped and called again without losing one.
    ///
    /// # Errors
    /// [`Error::Receive`]; the monitor should be replaced then.
    pub async fn next(&mut self) -> Result<LinkEvent, Error> {
        loop {
            if let Some(event) = self.queue.pop_front() {
                return Ok(event);
            }
            self.buffer.clear();
            match self.socket.recv_from(&mut self.buffer).await {
                // Only the kernel, port 0, is heard.
                Ok(from) if from.port_number() != 0 => {}
                Ok(_) => self.queue.extend(events(&self.buffer)),
                Err(error) if Errno::from_io_error(&error) == Some(Errno::NOBUFS) => {
                    self.discard();
                    return Ok(LinkEvent::Overrun);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(Error::Receive { source }),
            }
        }
    }

    /// Drops all datagrams that are queued in the socket.
    ///
    /// After an overrun the kernel drops everything, and says so only once, until the queue has been
    /// empty (`NETLINK_S_CONGESTED`); were the overrun reported before that, what happens after the
    /// caller's listing could be lost.
    fn discard(&mut self) {
        let socket = self.socket.socket_ref();
        loop {
            self.buffer.clear();
            match socket.recv_from(&mut self.buffer, 0) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if Errno::from_io_error(&error) == Some(Errno::NOBUFS) => {}
                // Empty; any other error comes again where it can be reported.
                Err(_) => return,
            }
        }
    }
}

impl fmt::Debug for LinkMonitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinkMonitor")
            .field("queue", &self.queue)
            .finish_non_exhaustive()
    }
}

fn events(datagram: &[u8]) -> impl Iterator<Item = LinkEvent> {
    wire::messages(datagram)
        // Bridges announce their ports under AF_BRIDGE as well; AF_UNSPEC is the link itself.
        .filter(|message| message.body.first() == Some(&0))
        .filter(|message| !is_look(message.sequence))
        .filter_map(|message| match message.kind {
            wire::RTM_NEWLINK => Some(LinkEvent::Changed(Link::parse(message.body)?)),
            wire::RTM_DELLINK => {
                let Link { ifindex, name, .. } = Link::parse(message.body)?;
                Some(LinkEvent::Removed { ifindex, name })
            }
            wire::RTM_NEWQDISC => queues(message.body).filter(|event| !is_unhooked(event)),
            wire::RTM_DELQDISC | wire::RTM_DELTFILTER => queues(message.body),
            _ => None,
        })
}

/// Returns the event of the queues or the hook of a link.
///
/// The body is a `struct tcmsg`: family and padding, ifindex, handle, parent, info.
fn queues(body: &[u8]) -> Option<LinkEvent> {
    let ifindex = wire::u32_at(body, 4)?;
    match wire::u32_at(body, 12)? {
        ROOT => Some(LinkEvent::Requeued { ifindex }),
        CLSACT | INGRESS => Some(LinkEvent::Unhooked { ifindex }),
        _ => None,
    }
}

const fn is_unhooked(event: &LinkEvent) -> bool {
    matches!(event, LinkEvent::Unhooked { .. })
}
