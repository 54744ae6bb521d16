//! Run the control thread: sockets, handshakes, requests, clocks and hand-overs.

mod clients;
mod files;
mod memory;
mod pace;
mod ports;
mod replace;
mod requests;

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use memif::{Address, Budget, ServerConnection};
use nix::unistd::{Gid, Uid, setgid, setgroups, setuid};
use rustix::process::{Resource, Rlimit, geteuid, getrlimit, setrlimit};
use rustix::thread::set_no_new_privs;

use self::files::{File, Files};
pub use self::memory::Memory;
use self::ports::{HandshakeId, Port};
use self::requests::Asker;
use crate::control::Client;
use crate::error::Error;
use crate::worker::{self, Command, Handle, Manner, Report, Reports};

/// Between two looks at clients that may block their doorbells.
const TICK: Duration = Duration::from_secs(1);

/// Options of the process.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where it is spoken to.
    pub socket: PathBuf,
    /// User and group that the process becomes, if it is root, when it has its socket.
    pub user: Option<(u32, u32)>,
    /// Threads that move packets, at least one. The ports of a network are one's.
    pub workers: usize,
    /// Never sleep: for nodes with a core to spare for each worker.
    pub busy_poll: bool,
    /// Processors of the workers, one each, again from the first if there are fewer.
    pub cpus: Vec<usize>,
    /// Limits of the memory that clients lend.
    pub memory: Memory,
}

impl Options {
    /// One worker that sleeps, wherever the kernel wants.
    pub fn new(socket: PathBuf) -> Self {
        Self {
            socket,
            user: None,
            workers: 1,
            busy_poll: false,
            cpus: Vec::new(),
            memory: Memory::default(),
        }
    }
}

/// Why a switch has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Somebody asked it to. Clients were told.
    Stopped,
    /// Another process is the switch now. Clients know nothing.
    Replaced,
}

/// A client that is gone, until no worker has its rings any more.
///
/// Its place and its memory are free when this is dropped.
#[derive(Debug)]
struct Departing {
    /// Its port, which may be gone too.
    key: String,
    connection: ServerConnection,
}

/// A switch.
#[derive(Debug)]
pub struct Switch {
    listener: OwnedFd,
    listener_token: u64,
    /// Time before which no connection is accepted, for lack of descriptors.
    listener_shut_until: Option<Instant>,
    files: Files,
    askers: HashMap<u64, Asker>,
    ports: BTreeMap<String, Port>,
    /// Clients that are no more, and whose rings a worker still has: by their numbers.
    departing: HashMap<u64, Departing>,
    workers: Vec<Handle>,
    memory: Memory,
    /// Memory of all clients.
    budget: Arc<Budget>,
    /// Commands that are held back from the workers while ports are put together.
    held: Option<Vec<(usize, Command)>>,
    reports: Receiver<Report>,
    report_bell: Arc<OwnedFd>,
    /// The next number of a connection.
    serial: u64,
    /// When clients are looked at, whatever happens.
    next_tick: Instant,
    /// The next switch that waits to take over, and the latest time of that.
    ///
    /// Handshakes that have begun may end first.
    replacing: Option<(u64, Instant)>,
    ended: Option<Ended>,
}

impl Switch {
    /// Becomes the switch: takes over from the one at the socket, or starts empty.
    ///
    /// # Errors
    /// The one before refuses, or goes on because this one failed; the socket cannot be bound; or the
    /// kernel has no descriptors, threads or memory to give.
    pub fn open(options: &Options) -> Result<Self, Error> {
        raise_descriptors();
        match Client::connect(&options.socket) {
            Ok(old) => {
                become_user(options.user)?;
                Self::take_over(old, options)
            }
            Err(error) if error.is_nobody_there() => {
                let address = Address::Path(options.socket.clone());
                let listener = address.listen().map_err(Error::Address)?;
                let mode = fs::Permissions::from_mode(0o600);
                let mut made = fs::set_permissions(&options.socket, mode);
                if let Some((uid, gid)) = options.user.filter(|_| geteuid().is_root()) {
                    // For the next one, which may not be root.
                    made = made.and_then(|()| chown(&options.socket, Some(uid), Some(gid)));
                }
                made.map_err(|source| Error::Mode {
                    path: options.socket.clone(),
                    source,
                })?;
                become_user(options.user)?;
                Self::new(listener, options)
            }
            Err(error) => Err(error),
        }
    }

    fn new(listener: OwnedFd, options: &Options) -> Result<Self, Error> {
        let mut files = Files::new()?;
        let (sender, reports) = channel();
        let report_bell = Arc::new(worker::new_bell()?);
        files.add(report_bell.as_fd(), File::Reports)?;
        let listener_token = files.add(listener.as_fd(), File::Listener)?;
        let mut workers = Vec::new();
        for number in 0..options.workers.max(1) {
            let cpu = number.checked_rem(options.cpus.len());
            let manner = Manner {
                busy_poll: options.busy_poll,
                cpu: cpu.and_then(|nth| options.cpus.get(nth).copied()),
            };
            let reports = Reports {
                sender: sender.clone(),
                bell: Arc::clone(&report_bell),
            };
            workers.push(Handle::start(number, manner, reports)?);
        }
        Ok(Self {
            listener,
            listener_token,
            listener_shut_until: None,
            files,
            askers: HashMap::new(),
            ports: BTreeMap::new(),
            departing: HashMap::new(),
            workers,
            memory: options.memory,
            budget: Budget::new("switch", options.memory.switch),
            held: None,
            reports,
            report_bell,
            serial: 0,
            next_tick: Instant::now(),
            replacing: None,
            ended: None,
        })
    }

    /// Is the switch, until it is asked to end or is replaced.
    ///
    /// # Errors
    /// The kernel does not say any more which files are ready.
    pub fn run(mut self) -> Result<Ended, Error> {
        loop {
            let now = Instant::now();
            for (token, file) in self.files.wait(self.limit(now))? {
                self.serve(token, &file, Instant::now());
                if let Some(ended) = self.ended {
                    return Ok(self.finish(ended));
                }
            }
            let now = Instant::now();
            self.tick(now);
            self.replace_when_due(now);
            if let Some(ended) = self.ended {
                return Ok(self.finish(ended));
            }
        }
    }

    /// Takes back the rings that workers still have, which frees the clients' memory.
    fn finish(mut self, ended: Ended) -> Ended {
        self.workers.clear();
        self.hear_reports();
        ended
    }

    /// For how long nothing has to be done.
    fn limit(&self, now: Instant) -> Option<Duration> {
        let handshakes = self
            .ports
            .values()
            .flat_map(|port| port.handshakes.values());
        let deadlines = handshakes.filter_map(ServerConnection::deadline);
        let due = self.replacing.map(|(_, due)| due);
        let doors = self.ports.values().filter_map(|port| port.shut_until);
        let doors = doors.chain(self.listener_shut_until);
        let first = deadlines.chain(due).chain(doors).min();
        let first = first.map(|first| first.saturating_duration_since(now));
        let has_clients = self.ports.values().any(Port::is_connected);
        let tick = has_clients.then_some(TICK);
        [first, tick].into_iter().flatten().min()
    }

    fn serve(&mut self, token: u64, file: &File, now: Instant) {
        match file {
            File::Reports => {
                worker::hush(self.report_bell.as_fd());
                self.hear_reports();
            }
            File::Listener => self.accept_asker(),
            File::Asker => self.hear(token),
            File::Door { key, nth } => self.accept_client(key, *nth, now),
            File::Handshake { key, id } => self.handshake(key, *id, now),
            File::Client { key } => self.client_says(key, now),
        }
    }

    /// Takes what workers have given back.
    fn hear_reports(&mut self) {
        while let Ok(report) = self.reports.try_recv() {
            self.given_back(report);
        }
    }

    /// Ends handshakes that take too long, and clients that block their doorbells.
    fn tick(&mut self, now: Instant) {
        self.open_doors(now);
        self.open_listener(now);
        let is_late = |port: &Port| !port.late_handshakes(now).is_empty();
        if now < self.next_tick && !self.ports.values().any(is_late) {
            return;
        }
        self.next_tick = now.checked_add(TICK).unwrap_or(now);
        let keys: Vec<String> = self.ports.keys().cloned().collect();
        for key in keys {
            let Some(port) = self.ports.get_mut(&key) else {
                continue;
            };
            let late: Vec<HandshakeId> = port.late_handshakes(now);
            for id in late {
                self.handshake_tick(&key, id, now);
            }
            self.client_tick(&key, now);
        }
    }
}

/// Drops root for good, before client data is read and other threads exist.
fn become_user(user: Option<(u32, u32)>) -> Result<(), Error> {
    let Some((uid, gid)) = user.filter(|(uid, _)| *uid != 0 && geteuid().is_root()) else {
        return Ok(());
    };
    let become_it = || {
        setgroups(&[])?;
        setgid(Gid::from_raw(gid))?;
        // All capabilities go with it.
        setuid(Uid::from_raw(uid))
    };
    become_it()
        .map_err(io::Error::from)
        .and_then(|()| Ok(set_no_new_privs(true)?))
        .map_err(|source| Error::User { uid, gid, source })
}

/// Raises the limit of descriptors to its maximum.
///
/// A connection has ten descriptors, of which most systems give a process 1024 unless it asks.
fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let raised = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        },
    );
    if let Err(errno) = raised {
        let error = io::Error::from(errno);
        tracing::warn!(%error, "the limit of the switch's descriptors could not be raised");
    }
}
