//! Files that the control thread waits for.

use std::collections::HashMap;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;

use super::ports::HandshakeId;
use crate::error::Error;

/// Files that are told of at once.
const EVENTS: usize = 64;

/// Owner of a polled file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum File {
    /// A worker has something to say.
    Reports,
    /// The socket by which the switch is spoken to.
    Listener,
    /// Somebody who speaks to it.
    Asker,
    /// A listening socket of a port.
    Door { key: String, nth: usize },
    /// A client that has no rings yet.
    Handshake { key: String, id: HandshakeId },
    /// The client that has a port's rings.
    Client { key: String },
}

/// All of them. Each has a number that no other ever has.
#[derive(Debug)]
pub(super) struct Files {
    epoll: OwnedFd,
    by_token: HashMap<u64, File>,
    next: u64,
}

impl Files {
    pub(super) fn new() -> Result<Self, Error> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(Error::system("epoll"))?;
        Ok(Self {
            epoll,
            by_token: HashMap::new(),
            next: 0,
        })
    }

    /// Waits for a file to be readable, from now on.
    pub(super) fn add(&mut self, fd: BorrowedFd<'_>, file: File) -> Result<u64, Error> {
        let token = self.next;
        epoll::add(&self.epoll, fd, EventData::new_u64(token), EventFlags::IN)
            .map_err(Error::system("waiting for a file"))?;
        self.next = self.next.wrapping_add(1);
        self.by_token.insert(token, file);
        Ok(token)
    }

    /// A file is another's now.
    pub(super) fn change(&mut self, token: u64, file: File) {
        self.by_token.insert(token, file);
    }

    /// Removes a file, before it is closed.
    ///
    /// Another process may have the file too, and then it would stay in the epoll set.
    pub(super) fn remove(&mut self, fd: BorrowedFd<'_>, token: u64) {
        // It was added.
        let _ = epoll::delete(&self.epoll, fd);
        self.by_token.remove(&token);
    }

    /// Does not look at a file, or does again.
    pub(super) fn pause(&self, fd: BorrowedFd<'_>, token: u64, paused: bool) {
        let flags = if paused {
            EventFlags::empty()
        } else {
            EventFlags::IN
        };
        // It was added.
        let _ = epoll::modify(&self.epoll, fd, EventData::new_u64(token), flags);
    }

    /// Files that are readable.
    pub(super) fn wait(&self, limit: Option<Duration>) -> Result<Vec<(u64, File)>, Error> {
        let limit = limit.map(|limit| Timespec {
            tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: limit.subsec_nanos().into(),
        });
        let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS);
        match epoll::wait(&self.epoll, spare_capacity(&mut events), limit.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(Error::system("waiting for files")(errno)),
        }
        let tokens = events.iter().map(|event| event.data.u64());
        let known = tokens.filter_map(|token| Some((token, self.by_token.get(&token)?.clone())));
        Ok(known.collect())
    }
}
