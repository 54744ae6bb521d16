//! Ports of type Memif: a TAP device and two sockets each, served by a switch.
//!
//! The switch is a process of its own, which stays when the agent goes: clients of memif do not connect
//! again.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use book::Book;
use book::record::{Attachment, State};
use host::Host;
use netdev::{Connection, Netns};
use tables::{Reconciler, port_of};
use telemetry::chain;
use tokio::net::UnixStream;
use tokio::sync::Notify;
use uswitch::control::Client;
use uswitch::{PortConfig, PortStatus};

use crate::error::PortError;
use crate::sockets;

mod describe;
pub mod error;
mod listen;
mod options;
mod plan;
mod process;
mod user;

pub(super) use self::describe::{FILE, describe, device_info};
pub use self::error::SwitchError;
pub use self::options::SwitchOptions;
pub use uswitch::SwitchUser;

/// Between two attempts to reach the switch again.
const RETRY: Duration = Duration::from_secs(1);

/// The ports that a switch serves.
#[derive(Debug)]
pub struct Switch {
    book: Arc<Book>,
    host: Arc<Host>,
    line: Arc<Line>,
    /// There is a port for it.
    wanted: Notify,
}

/// Connection to the switch, and how it is started.
#[derive(Debug)]
pub struct Line {
    /// Where it answers.
    socket: PathBuf,
    /// Where ports have their socket files.
    sockets: PathBuf,
    /// Program to start when no switch answers; none where it is somebody else's task.
    program: Option<PathBuf>,
    /// User of the switch.
    user: SwitchUser,
    client: Mutex<Option<Client>>,
    /// The switch judges frames by what the kernel shows.
    judges: AtomicBool,
    /// Ports whose frames all go by their devices, one by one, by their IDs.
    slow: Mutex<BTreeSet<u16>>,
    /// Knows the ports of which policies speak, whose frames the kernel judges.
    tables: Option<Arc<Reconciler>>,
}

impl Line {
    /// As the options say; a path that is not given is next to the agent's own socket.
    pub fn of(options: &SwitchOptions, agent: &Path) -> Self {
        let socket = options.switch_socket.clone();
        // Also when the file was replaced by another version meanwhile.
        let program = || PathBuf::from("/proc/self/exe");
        if socket.is_none() {
            // Also where somebody else starts it: that has no right to.
            user::make_directory(&own_directory(agent), options.switch_user);
        }
        Self {
            user: options.switch_user,
            socket: socket.unwrap_or_else(|| control_socket(agent)),
            sockets: directory(agent),
            program: options.start_switch.then(program),
            client: Mutex::default(),
            judges: AtomicBool::new(false),
            slow: Mutex::default(),
            tables: None,
        }
    }

    fn slow(&self) -> MutexGuard<'_, BTreeSet<u16>> {
        self.slow.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A port as the switch is told of it.
    fn config(&self, record: &Attachment) -> PortConfig {
        let config = config(record);
        let slow = self.slow().contains(&record.port_id);
        let is_guarded = |tables: &Arc<Reconciler>| {
            let surroundings = tables.surroundings();
            surroundings.is_guarded(record.network.id, record.port_id)
        };
        let guarded = self.tables.as_ref().is_some_and(is_guarded);
        // The kernel has the connections of Services, of which any packet may be.
        let is_served = |tables: &Arc<Reconciler>| {
            let surroundings = tables.surroundings();
            surroundings.is_served(record.network.id)
        };
        let served = self.tables.as_ref().is_some_and(is_served);
        let fast = config.fast && !slow && !served;
        PortConfig {
            fast: fast && !guarded,
            judged: fast && guarded && self.judges.load(Ordering::Relaxed),
            trains: !slow,
            ..config
        }
    }

    fn client(&self) -> MutexGuard<'_, Option<Client>> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the switch, and starts it first where that is the agent's task.
    fn ask<T>(
        &self,
        question: impl FnMut(&mut Client) -> Result<T, uswitch::Error>,
    ) -> Result<T, PortError> {
        Ok(self.answer(question, || self.connect())?)
    }

    /// Asks it only if it is there: what it does not know of, it need not forget.
    fn ask_if_there<T>(
        &self,
        question: impl FnMut(&mut Client) -> Result<T, uswitch::Error>,
    ) -> Result<Option<T>, PortError> {
        match self.answer(question, || self.find()) {
            Err(error) if error.is_nobody_there() => Ok(None),
            other => Ok(Some(other?)),
        }
    }

    /// Asks by the connection that is there.
    ///
    /// A connection that has ended is made again: the switch was replaced or has died.
    fn answer<T>(
        &self,
        mut question: impl FnMut(&mut Client) -> Result<T, uswitch::Error>,
        connect: impl FnOnce() -> Result<Client, SwitchError>,
    ) -> Result<T, SwitchError> {
        let failed = |source| SwitchError::Port { source };
        let mut held = self.client();
        if let Some(client) = held.as_mut() {
            match question(client) {
                Err(uswitch::Error::Hangup | uswitch::Error::Timeout) => *held = None,
                other => return other.map_err(failed),
            }
        }
        let mut client = connect()?;
        self.show(&mut client);
        let answer = question(&mut client).map_err(failed)?;
        *held = Some(client);
        Ok(answer)
    }

    /// Shows a switch the maps by which it judges frames of guarded ports.
    ///
    /// Without them such frames go to the kernel.
    fn show(&self, client: &mut Client) {
        let shown = self.tables.as_ref().is_some_and(|tables| {
            if !client.judges() {
                return false;
            }
            let files = match tables.guards().switch_files() {
                Ok(files) => files,
                Err(error) => {
                    tracing::warn!(error = %chain(&error), "the maps of policies cannot be given to the switch: all frames of guarded memif ports go by the kernel until it is connected to again");
                    return false;
                }
            };
            let shown = client.judge(files.flows.as_fd(), files.stamps.as_fd(), files.ports);
            if let Err(error) = &shown {
                tracing::warn!(error = %chain(error), "the switch cannot read the maps of policies: all frames of guarded memif ports go by the kernel until it is connected to again");
            }
            shown.is_ok()
        });
        self.judges.store(shown, Ordering::Relaxed);
    }

    fn find(&self) -> Result<Client, SwitchError> {
        find(&self.socket)
    }

    fn connect(&self) -> Result<Client, SwitchError> {
        match (self.find(), &self.program) {
            (Err(error), Some(program)) if error.is_nobody_there() => {
                process::start(program, &self.socket, self.user)
            }
            (other, _) => other,
        }
    }

    /// Makes the switch serve a port as recorded; returns whether it did not before.
    ///
    /// Blocks; in the node's namespace.
    fn plug_in(
        &self,
        record: &Attachment,
        netns: &Netns,
        connection: &mut Connection,
    ) -> Result<bool, PortError> {
        // What it says depends on the switch that answers.
        if self.ask(|client| client.update(&self.config(record)))? {
            return Ok(false);
        }
        let config = self.config(record);
        // Without them frames go to the kernel one by one.
        let headers = self.ask(|client| Ok(client.takes_headers()))?;
        let device = connection.open_tap(&record.host.name, record.host.ifindex, headers)?;
        let listeners = listen::listen(record, netns)?;
        let listeners: Vec<_> = listeners.iter().map(OwnedFd::as_fd).collect();
        self.ask(|client| client.add(&config, (device.as_fd(), headers), &listeners))?;
        Ok(true)
    }

    /// Makes sure that it serves a port no more. Blocks.
    fn unplug(&self, record: &Attachment) -> Result<(), PortError> {
        let key = record.key.to_string();
        self.ask_if_there(|client| client.remove(&key))?;
        sockets::remove(record);
        Ok(())
    }

    /// Lists the ports of the switch; none when it is not there.
    fn ports(&self) -> Result<Vec<PortStatus>, PortError> {
        Ok(self.ask_if_there(Client::list)?.unwrap_or_default())
    }

    /// Returns a socket that is readable when the switch goes.
    ///
    /// Also when it gives its ports to another.
    fn watch(&self) -> Result<UnixStream, PortError> {
        let socket = std::os::unix::net::UnixStream::from(self.connect()?.into_socket());
        socket
            .set_nonblocking(true)
            // Of packets, really; nobody will read.
            .and_then(|()| UnixStream::from_std(socket))
            .map_err(|_| PortError::SwitchUnwatched)
    }
}

/// A connection to the switch that answers there.
fn find(socket: &Path) -> Result<Client, SwitchError> {
    Client::connect(socket).map_err(|source| SwitchError::Absent {
        socket: socket.to_owned(),
        source,
    })
}

/// Refuses a network of which no port can be one of memif.
pub(crate) fn check_trunk(network: &api::Network) -> Result<(), PortError> {
    if network.wire.as_ref().is_some_and(api::Wire::is_trunk) {
        return Err(PortError::MemifOnTrunk);
    }
    Ok(())
}

/// A port as its record says.
fn config(record: &Attachment) -> PortConfig {
    let port = port_of(record);
    PortConfig {
        key: record.key.to_string(),
        name: record.key.ifname.to_string(),
        network: port.network,
        port_id: port.port_id,
        flags: port.flags,
        mac: port.mac,
        ips: record.leases.iter().map(|lease| lease.address).collect(),
        mtu: port.mtu,
        // Its queues are at its device.
        fast: record.limits.is_unlimited() && record.shaper.is_none() && !record.queued,
        judged: false,
        trains: true,
        queues: record.interface.queues,
        secret: None,
    }
}

impl Switch {
    /// Takes the line to the switch.
    pub fn new(book: Arc<Book>, host: Arc<Host>, tables: Arc<Reconciler>, line: Line) -> Self {
        Self {
            book,
            host,
            line: Arc::new(Line {
                tables: Some(tables),
                ..line
            }),
            wanted: Notify::new(),
        }
    }

    /// Where ports without a device have their socket files.
    pub fn sockets(&self) -> &Path {
        &self.line.sockets
    }

    /// Gives a port to the switch; returns whether the switch did not have it before.
    ///
    /// # Errors
    /// When the switch or the kernel refuses; what was made goes with the attachment.
    pub async fn plug_in(&self, record: &Attachment, netns: &Netns) -> Result<bool, PortError> {
        let (line, record, netns) = (Arc::clone(&self.line), record.clone(), netns.clone());
        let plug = move |connection: &mut Connection| line.plug_in(&record, &netns, connection);
        let is_new = self.host.netlink.with(plug).await?;
        self.wanted.notify_one();
        Ok(is_new)
    }

    /// Takes a port from the switch.
    ///
    /// # Errors
    /// When the switch does not answer.
    pub async fn unplug(&self, record: &Attachment) -> Result<(), PortError> {
        let (line, record) = (Arc::clone(&self.line), record.clone());
        let unplug = move |_: &mut Connection| line.unplug(&record);
        self.host.netlink.with(unplug).await
    }

    /// Tells the switch how a port is now, if it has it.
    ///
    /// # Errors
    /// When the switch refuses.
    pub async fn tell(&self, record: &Attachment) -> Result<(), PortError> {
        let (line, record) = (Arc::clone(&self.line), record.clone());
        let tell = move |_: &mut Connection| {
            let update = |client: &mut Client| client.update(&line.config(&record));
            line.ask_if_there(update).map(|_| ())
        };
        self.host.netlink.with(tell).await
    }

    /// Has all frames of a port go by its device, or not any more.
    ///
    /// A capture sees them there.
    ///
    /// # Errors
    /// When the switch refuses; it is told whenever it is asked about the port.
    pub async fn set_slow(&self, record: &Attachment, slow: bool) -> Result<(), PortError> {
        if slow {
            self.line.slow().insert(record.port_id);
        } else {
            self.line.slow().remove(&record.port_id);
        }
        self.tell(record).await
    }

    /// Lists the ports of the switch by their keys.
    ///
    /// It is asked only if there should be some.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn ports(&self) -> Result<BTreeMap<String, PortStatus>, PortError> {
        if !self
            .book
            .ledger()
            .entries()
            .any(|entry| entry.record.is_switched())
        {
            return Ok(BTreeMap::new());
        }
        let line = Arc::clone(&self.line);
        let ports = self.host.netlink.with(move |_| line.ports()).await?;
        let by_key = ports
            .into_iter()
            .map(|port| (port.config.key.clone(), port));
        Ok(by_key.collect())
    }

    /// Lists ports as the switch has them, by their keys; blocks.
    ///
    /// There are none without a switch.
    ///
    /// # Errors
    /// When it does not answer.
    pub(crate) fn held(&self) -> Result<BTreeMap<String, PortConfig>, PortError> {
        let ports = self.line.ports()?.into_iter();
        let by_key = ports.map(|port| (port.config.key.clone(), port.config));
        Ok(by_key.collect())
    }

    /// False when [`Self::tell`] would change the port at the switch.
    pub(crate) fn is_told(&self, record: &Attachment, held: &BTreeMap<String, PortConfig>) -> bool {
        let config = self.line.config(record);
        held.get(&config.key).is_none_or(|found| *found == config)
    }

    /// Lists the faults of a port at the switch.
    ///
    /// # Errors
    /// When the switch does not answer.
    pub async fn faults(&self, record: &Attachment) -> Result<Vec<String>, PortError> {
        let config = self.line.config(record);
        let ports = self.ports().await?;
        let found = ports.get(&config.key).map(|port| &port.config);
        let fault = plan::fault(&config, found);
        Ok(fault.map(ToOwned::to_owned).into_iter().collect())
    }

    /// Has frames of ports judged, or left to the kernel; for ever.
    ///
    /// Judged while policies speak of a port, left to the kernel while the network has Services.
    pub async fn follow_guards(&self) {
        let Some(tables) = &self.line.tables else {
            return std::future::pending().await;
        };
        let mut changes = tables.surroundings().marks_changes();
        loop {
            for record in self.switched() {
                let _turn = self.book.turn(&record.key.container).await;
                let is_there = self
                    .book
                    .ledger()
                    .get(&record.key)
                    .is_some_and(|entry| entry.live && entry.record.port_id == record.port_id);
                if is_there && let Err(error) = self.tell(&record).await {
                    tracing::error!(attachment = %record.key, error = %chain(&error), "the switch could not be told whether policies judge the port; the audit tries again");
                }
            }
            // The sender lives as long as the tables.
            let _ = changes.changed().await;
        }
    }

    /// Keeps every port on the switch, also when it was replaced or died. For ever.
    pub async fn keep(&self) {
        loop {
            let records = self.switched();
            if records.is_empty() {
                self.wanted.notified().await;
                continue;
            }
            let watch = {
                let line = Arc::clone(&self.line);
                // Before the ports: what happens from now on is seen.
                self.host.netlink.with(move |_| line.watch()).await
            };
            let watch = match watch {
                Ok(watch) => watch,
                Err(error) => {
                    tracing::error!(error = %chain(&error), "ports of type Memif are not served");
                    tokio::time::sleep(RETRY).await;
                    continue;
                }
            };
            if let Err(error) = self.unplug_strays().await {
                tracing::warn!(error = %chain(&error), "ports of the switch that no attachment owns could not be looked for");
            }
            for record in records {
                self.plug_in_again(&record).await;
            }
            // Nothing is ever said on this connection but that it ends.
            match watch.readable().await {
                Ok(()) => tracing::warn!("the switch has gone, or was replaced"),
                Err(error) => tracing::error!(%error, "cannot watch the switch"),
            }
        }
    }

    /// Ports that the switch has and no record names are leftovers.
    async fn unplug_strays(&self) -> Result<(), PortError> {
        let ports = self.ports().await?;
        for key in plan::strays(&ports, &self.recorded()) {
            // One that came while others were removed stays.
            if self.recorded().contains(&key) {
                continue;
            }
            tracing::info!(
                port = key,
                "a port of the switch that no attachment owns is removed"
            );
            let line = Arc::clone(&self.line);
            let remove = move |_: &mut Connection| line.ask(|client| client.remove(&key));
            self.host.netlink.with(remove).await?;
        }
        Ok(())
    }

    /// Lists the keys of all records.
    fn recorded(&self) -> BTreeSet<String> {
        let ledger = self.book.ledger();
        let entries = ledger.entries();
        entries.map(|entry| entry.record.key.to_string()).collect()
    }

    /// Lists live switched attachments, also those that are still being made.
    ///
    /// A runtime that waits for their containers finds them made.
    fn switched(&self) -> Vec<Attachment> {
        let ledger = self.book.ledger();
        ledger
            .entries()
            .filter(|entry| entry.live && entry.record.is_switched())
            .map(|entry| entry.record.clone())
            .collect()
    }

    async fn plug_in_again(&self, record: &Attachment) {
        let _guard = self.book.turn(&record.key.container).await;
        // A request that was under way may have changed or removed it.
        let now = match self.book.ledger().get(&record.key) {
            Some(entry) if entry.live && entry.record.state == State::Added => entry.record.clone(),
            Some(_) | None => return,
        };
        let plugged = match now.sandbox.open() {
            Ok(Some(netns)) => self.plug_in(&now, &netns).await,
            Ok(None) => {
                tracing::warn!(attachment = %now.key, "the pod's network namespace was replaced, and its memif port is not given to the switch");
                return;
            }
            Err(error) => {
                tracing::warn!(attachment = %now.key, error = %chain(&error), "the pod is gone, and its memif port is not given to the switch");
                return;
            }
        };
        if let Err(error) = plugged {
            tracing::error!(attachment = %now.key, error = %chain(&error), "the memif port could not be given to the switch; the audit tries again");
        }
    }
}

/// Where ports have their socket files, each in a directory of its own.
pub fn directory(agent: &Path) -> PathBuf {
    agent.with_file_name("memif")
}

/// Where the switch of the agent with this socket answers, if nothing else is said.
pub fn control_socket(agent: &Path) -> PathBuf {
    own_directory(agent).join("switch.sock")
}

/// Directory of the switch alone, next to this socket of its agent.
pub fn own_directory(agent: &Path) -> PathBuf {
    agent.with_file_name("switch")
}

/// Ends the switch that answers there, or says that it would; none without one.
///
/// # Errors
/// When it does not end.
pub fn stop(agent: &Path, dry_run: bool) -> Result<Option<String>, PortError> {
    let socket = control_socket(agent);
    let mut client = match find(&socket) {
        Err(error) if error.is_nobody_there() => return Ok(None),
        other => other?,
    };
    if !dry_run {
        client
            .stop()
            .map_err(|source| SwitchError::Port { source })?;
    }
    Ok(Some(format!("switch at {}", socket.display())))
}
