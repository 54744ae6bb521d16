//! Send requests to the switch, from the agent or from the next switch.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use memif::Address;
use rustix::io::ioctl_fionbio;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{RecvFlags, SendFlags};

use super::datagram::{Received, receive, send};
use super::{DEVICE_HEADERS, JUDGES, RefusalCode, Reply, Request, VERSION, WorkerStatus};
use crate::error::Error;
use crate::port::{PortConfig, PortStatus};

/// Longest time to a reply of the switch, which waits for no peer itself.
const PATIENCE: Duration = Duration::from_secs(10);

/// Ports, whether there are more, and what workers have done.
type Page = (Vec<PortStatus>, bool, Vec<WorkerStatus>);

/// A connection to the switch. Each call waits for the answer.
#[derive(Debug)]
pub struct Client {
    socket: OwnedFd,
    version: u32,
    software: String,
    workers: usize,
}

impl Client {
    /// Connects to the switch at this socket.
    ///
    /// # Errors
    /// Nobody listens there ([`Error::is_nobody_there`]), or no version is spoken by both.
    pub fn connect(path: &Path) -> Result<Self, Error> {
        let address = Address::Path(path.to_owned());
        let socket = address.connect().map_err(Error::Address)?;
        ioctl_fionbio(&socket, false).map_err(Error::system("making the socket wait"))?;
        for timeout in [Timeout::Recv, Timeout::Send] {
            set_socket_timeout(&socket, timeout, Some(PATIENCE))
                .map_err(Error::system("setting the socket's patience"))?;
        }
        let mut client = Self {
            socket,
            version: 0,
            software: String::new(),
            workers: 0,
        };
        match client.ask(&Request::Hello { version: VERSION }, &[])? {
            Reply::Hello {
                version,
                software,
                workers,
            } => {
                client.version = version;
                client.software = software;
                client.workers = workers;
                Ok(client)
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Returns the connection itself, to be polled for its end.
    ///
    /// When nothing is asked on it, it only ever becomes readable by ending: the switch has gone, or
    /// has handed all over to another.
    pub fn into_socket(self) -> OwnedFd {
        self.socket
    }

    /// The version of the switch's software.
    pub fn software(&self) -> &str {
        &self.software
    }

    /// Whether the switch takes devices with a header in front of each frame.
    ///
    /// That is a `struct virtio_net_hdr` of 10 bytes (linux/virtio_net.h).
    pub fn takes_headers(&self) -> bool {
        self.version >= DEVICE_HEADERS
    }

    /// Whether the switch judges frames itself by what [`Self::judge`] gives it.
    pub fn judges(&self) -> bool {
        self.version >= JUDGES
    }

    /// Gives it the maps of connections and stamps, the latter of so many ports.
    ///
    /// # Errors
    /// [`Error::Refused`], or the switch does not answer.
    pub fn judge(
        &mut self,
        flows: BorrowedFd<'_>,
        stamps: BorrowedFd<'_>,
        ports: u32,
    ) -> Result<(), Error> {
        self.done(&Request::Judge { ports }, &[flows, stamps])
            .map(|_| ())
    }

    /// Workers that move packets.
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// Adds a port, or updates it with the new descriptors.
    ///
    /// The device is the file of a TAP device without packet information, with headers where
    /// [`Self::takes_headers`] allows it and it was opened so; the listeners are one or two
    /// `SOCK_SEQPACKET` sockets that listen. If the port exists already, the new descriptors take the
    /// place of those it has, and its client stays.
    ///
    /// # Errors
    /// [`Error::Refused`], or the switch does not answer.
    pub fn add(
        &mut self,
        port: &PortConfig,
        (device, headers): (BorrowedFd<'_>, bool),
        listeners: &[BorrowedFd<'_>],
    ) -> Result<(), Error> {
        if headers && !self.takes_headers() {
            return Err(Error::Headers(self.version));
        }
        let mut descriptors = vec![device];
        descriptors.extend(listeners);
        let request = Request::AddPort {
            port: port.clone(),
            headers,
        };
        self.done(&request, &descriptors).map(|_| ())
    }

    /// Updates a port, with the descriptors that the switch has of it.
    ///
    /// Returns whether the port exists; if it does not, [`Self::add`] it.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub fn update(&mut self, port: &PortConfig) -> Result<bool, Error> {
        let request = Request::AddPort {
            port: port.clone(),
            headers: false,
        };
        match self.done(&request, &[]) {
            Ok(_) => Ok(true),
            Err(Error::Refused(refusal)) if refusal.code == RefusalCode::NeedsDescriptors => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Removes a port and tells its client; returns whether it existed.
    ///
    /// # Errors
    /// The switch does not answer.
    pub fn remove(&mut self, key: &str) -> Result<bool, Error> {
        let key = key.to_owned();
        self.done(&Request::RemovePort { key }, &[])
    }

    /// All ports, in the order of their keys.
    ///
    /// # Errors
    /// The switch does not answer.
    pub fn list(&mut self) -> Result<Vec<PortStatus>, Error> {
        let mut all: Vec<PortStatus> = Vec::new();
        loop {
            let after = all.last().map(|port| port.config.key.clone());
            let (ports, more, _) = self.page(after)?;
            let is_last = !more || ports.is_empty();
            all.extend(ports);
            if is_last {
                return Ok(all);
            }
        }
    }

    /// Returns the counters of each worker.
    ///
    /// # Errors
    /// As [`Self::list`].
    pub fn work(&mut self) -> Result<Vec<WorkerStatus>, Error> {
        self.page(None).map(|(_, _, workers)| workers)
    }

    fn page(&mut self, after: Option<String>) -> Result<Page, Error> {
        match self.ask(&Request::List { after }, &[])? {
            Reply::Ports {
                ports,
                more,
                workers,
            } => Ok((ports, more, workers)),
            other => Err(unexpected(&other)),
        }
    }

    /// Ends the switch. Its clients are told.
    ///
    /// # Errors
    /// The switch does not answer.
    pub fn stop(&mut self) -> Result<(), Error> {
        self.done(&Request::Stop, &[]).map(|_| ())
    }

    fn done(&mut self, request: &Request, descriptors: &[BorrowedFd<'_>]) -> Result<bool, Error> {
        match self.ask(request, descriptors)? {
            Reply::Done { changed } => Ok(changed),
            other => Err(unexpected(&other)),
        }
    }

    fn ask(&mut self, request: &Request, descriptors: &[BorrowedFd<'_>]) -> Result<Reply, Error> {
        self.say(request, descriptors)?;
        self.hear().map(|(reply, _)| reply)
    }

    pub(crate) fn say(
        &mut self,
        request: &Request,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), Error> {
        send(
            self.socket.as_fd(),
            request,
            descriptors,
            SendFlags::empty(),
        )
    }

    /// The next reply with its descriptors; a refusal is an error.
    pub(crate) fn hear(&mut self) -> Result<(Reply, Vec<OwnedFd>), Error> {
        match receive(self.socket.as_fd(), RecvFlags::empty())? {
            Received::Message(bytes, descriptors) => match serde_json::from_slice(&bytes)? {
                Reply::Refused(refusal) => Err(refusal.into()),
                reply => Ok((reply, descriptors)),
            },
            Received::Cut => Err(Error::TooLong(super::MESSAGE_MAX)),
            Received::Nothing => Err(Error::Timeout),
            Received::Hangup => Err(Error::Hangup),
        }
    }
}

pub(crate) fn unexpected(reply: &Reply) -> Error {
    Error::Unexpected(reply.name().to_owned())
}
