//! Ports and their clients.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use memif::{Budget, Door, Limits, Listener, Secret, ServerConfig, ServerConnection, Text};

use super::Switch;
use super::files::File;
use super::memory::{self, REGIONS};
use super::pace::{Accepts, Lines};
use crate::control::{Refusal, RefusalCode};
use crate::device::Device;
use crate::port::{PortConfig, PortCounters};
use crate::worker::{Command, FRAME_MAX};
use ways::Slot;

/// Bytes that a frame may be longer than a port's largest packet.
///
/// A frame that is too long is dropped and counted by the kernel program.
const ROOM: u32 = 1024;
/// Where frames end, whatever the port.
const FRAME_MIN: u32 = 9216;

/// Number of a client among those of a port that have no rings yet.
pub(super) type HandshakeId = u64;

/// A port.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) config: PortConfig,
    pub(super) device: Arc<Device>,
    pub(super) listeners: Vec<(Listener, u64)>,
    door: Arc<Door>,
    pub(super) worker: usize,
    pub(super) slot: Slot,
    pub(super) handshakes: BTreeMap<HandshakeId, ServerConnection>,
    pub(super) tokens: BTreeMap<HandshakeId, u64>,
    pub(super) client: Option<Connected>,
    pub(super) last_closed: Option<String>,
    /// Memory of the pod's clients.
    pub(super) budget: Arc<Budget>,
    /// The last client's memory is still mapped: the next has to wait.
    pub(super) departing: bool,
    /// No client is accepted until then.
    pub(super) shut_until: Option<Instant>,
    /// No client is accepted now.
    pub(super) shut: bool,
    pub(super) accepts: Accepts,
    pub(super) lines: Lines,
}

/// A client that has its rings.
#[derive(Debug)]
pub(super) struct Connected {
    pub(super) connection: ServerConnection,
    pub(super) serial: u64,
    pub(super) token: u64,
    pub(super) peer: String,
}

/// Configuration and descriptors of a new port.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) config: PortConfig,
    pub(super) device: OwnedFd,
    /// A header is in front of each frame of the device.
    pub(super) headers: bool,
    pub(super) listeners: Vec<OwnedFd>,
}

impl Port {
    pub(super) fn is_connected(&self) -> bool {
        self.client.is_some()
    }

    pub(super) fn last_closed(&self) -> Option<String> {
        self.last_closed.clone()
    }

    pub(super) fn late_handshakes(&self, now: Instant) -> Vec<HandshakeId> {
        let late = self.handshakes.iter().filter(|(_, connection)| {
            connection
                .deadline()
                .is_some_and(|deadline| deadline <= now)
        });
        late.map(|(id, _)| *id).collect()
    }
}

/// Builds the memif server of a port, with the names and limits of its clients.
fn server_config(
    config: &PortConfig,
    door: &Arc<Door>,
    ring_slots: u16,
    budget: &Arc<Budget>,
) -> Result<ServerConfig, Refusal> {
    let app = Text::new("podnet").map_err(|error| Refusal::new(RefusalCode::Unable, error))?;
    // Its own door is replaced by the port's, which all of its listeners share.
    let mut server = ServerConfig::new(app, Door::new(0, door.name()));
    server.doors = vec![Arc::clone(door)];
    server.limits = Limits {
        c2s_rings: rings(config),
        s2c_rings: rings(config),
        max_frame: max_frame(config),
        regions: REGIONS,
        bytes: memory::of_port(config, ring_slots),
        ..Limits::default()
    };
    server.budget = Some(Arc::clone(budget));
    Ok(server)
}

/// Rings that a client may have in each direction.
///
/// At least two: the protocol says the highest index, and gomemif takes that for the number.
pub(super) fn rings(config: &PortConfig) -> u16 {
    config.queues.max(2)
}

fn max_frame(config: &PortConfig) -> u32 {
    let most = u32::try_from(FRAME_MAX).unwrap_or(u32::MAX);
    FRAME_MIN
        .max(u32::from(config.mtu).saturating_add(ROOM))
        .min(most)
}

fn new_door(config: &PortConfig) -> Result<Arc<Door>, Refusal> {
    let invalid = |error| Refusal::new(RefusalCode::Invalid, error);
    let door = Door::new(0, Text::new(&config.name).map_err(invalid)?);
    Ok(Arc::new(match &config.secret {
        Some(secret) => door.with_secret(Secret::new(secret).map_err(invalid)?),
        None => door,
    }))
}

impl Switch {
    /// A port that is not there is made. Nothing moves before [`Self::start_port`].
    pub(super) fn make_port(&mut self, parts: Parts) -> Result<(), Refusal> {
        let unusable = |error| Refusal::new(RefusalCode::BadDescriptors, error);
        let device = Device::new(parts.device, parts.headers)
            .map_err(|errno| Refusal::new(RefusalCode::BadDescriptors, errno))?;
        let config = parts.config;
        let door = new_door(&config)?;
        let budget = self.budget_of(&config);
        let mut listeners = Vec::new();
        for socket in parts.listeners {
            let server = server_config(&config, &door, self.memory.ring_slots, &budget)?;
            listeners.push(Listener::new(socket, server).map_err(unusable)?);
        }
        let key = config.key.clone();
        let listeners = self.watch_doors(&key, listeners)?;
        let device = Arc::new(device);
        let (worker, slot) = self.place(config.network);
        let port = Port {
            config,
            device,
            listeners,
            door,
            worker,
            slot,
            handshakes: BTreeMap::new(),
            tokens: BTreeMap::new(),
            client: None,
            last_closed: None,
            budget,
            departing: false,
            shut_until: None,
            shut: false,
            accepts: Accepts::new(Instant::now()),
            lines: Lines::default(),
        };
        self.ports.insert(key, port);
        Ok(())
    }

    /// A port's worker gets it, without a client.
    pub(super) fn start_port(&mut self, key: &str, counters: PortCounters) {
        if let Some(port) = self.ports.get(key) {
            let command = Command::Add {
                slot: port.slot,
                config: Box::new(port.config.clone()),
                device: Arc::clone(&port.device),
                counters,
            };
            self.tell(port.worker, command);
        }
    }

    /// Sends a command to a worker, or holds it back while ports are put together.
    pub(super) fn tell(&mut self, worker: usize, command: Command) {
        if let Some(held) = &mut self.held {
            held.push((worker, command));
        } else if let Some(worker) = self.workers.get(worker) {
            worker.tell(command);
        }
    }

    /// Sends the held commands, so that a worker moves packets only with all its ports.
    pub(super) fn release(&mut self) {
        let mut each: Vec<Vec<Command>> = self.workers.iter().map(|_| Vec::new()).collect();
        for (worker, command) in self.held.take().unwrap_or_default() {
            if let Some(commands) = each.get_mut(worker) {
                commands.push(command);
            }
        }
        for (worker, commands) in self.workers.iter().zip(each) {
            worker.tell(Command::Many(commands));
        }
    }

    /// A port that is there becomes what is wanted. Returns whether it was not.
    pub(super) fn change_port(
        &mut self,
        config: PortConfig,
        device: Option<(OwnedFd, bool)>,
        sockets: Vec<OwnedFd>,
    ) -> Result<bool, Refusal> {
        let key = config.key.clone();
        let Some(port) = self.ports.get(&key) else {
            let message = format!("port {key} is not here, so its device and listeners are needed");
            return Err(Refusal::new(RefusalCode::NeedsDescriptors, message));
        };
        if port.config.network != config.network {
            let message = format!("port {key} is of network {}", port.config.network);
            return Err(Refusal::new(RefusalCode::Fixed, message));
        }
        if port.config == config && device.is_none() {
            return Ok(false);
        }
        let is_same_door =
            (&port.config.name, &port.config.secret) == (&config.name, &config.secret);
        let is_same_server =
            is_same_door && (port.config.queues, port.config.mtu) == (config.queues, config.mtu);
        let device = match device {
            Some((file, headers)) => {
                let device = Device::new(file, headers)
                    .map_err(|errno| Refusal::new(RefusalCode::BadDescriptors, errno))?;
                Some(Arc::new(device))
            }
            None => None,
        };
        // Clients keep what they have; those that come find what is wanted now.
        let door = if is_same_door {
            Arc::clone(&port.door)
        } else if port.door.is_taken() {
            let message = format!("port {key} has a client: its name and secret cannot change");
            return Err(Refusal::new(RefusalCode::Fixed, message));
        } else {
            new_door(&config)?
        };
        let sockets = if sockets.is_empty() && !is_same_server {
            let same = port.listeners.iter();
            let same = same.map(|(listener, _)| listener.fd().try_clone_to_owned());
            same.collect::<Result<_, _>>()
                .map_err(|error| Refusal::new(RefusalCode::Unable, error))?
        } else {
            sockets
        };
        if !sockets.is_empty() {
            let mut listeners = Vec::new();
            let budget = Arc::clone(&port.budget);
            for socket in sockets {
                let server = server_config(&config, &door, self.memory.ring_slots, &budget)?;
                let listener = Listener::new(socket, server)
                    .map_err(|error| Refusal::new(RefusalCode::BadDescriptors, error))?;
                listeners.push(listener);
            }
            let listeners = self.watch_doors(&key, listeners)?;
            if let Some(port) = self.ports.get_mut(&key) {
                let old = std::mem::replace(&mut port.listeners, listeners);
                port.door = door;
                port.shut = false;
                for (listener, token) in old {
                    self.files.remove(listener.fd(), token);
                }
            }
            self.set_doors(&key);
        }
        let Some(port) = self.ports.get_mut(&key) else {
            return Ok(false);
        };
        if let Some(device) = &device {
            port.device = Arc::clone(device);
        }
        port.config = config.clone();
        let (worker, command) = (
            port.worker,
            Command::Update {
                slot: port.slot,
                config: Box::new(config),
                device,
            },
        );
        self.tell(worker, command);
        Ok(true)
    }

    /// A port is no more. Returns whether it was there.
    pub(super) fn remove_port(&mut self, key: &str) -> bool {
        let Some(mut port) = self.ports.remove(key) else {
            return false;
        };
        for (listener, token) in &port.listeners {
            self.files.remove(listener.fd(), *token);
        }
        for (id, mut connection) in std::mem::take(&mut port.handshakes) {
            if let Some(token) = port.tokens.remove(&id) {
                self.files.remove(connection.fd(), token);
            }
            connection.disconnect("the port is removed");
        }
        if let Some(mut client) = port.client.take() {
            self.files.remove(client.connection.fd(), client.token);
            client.connection.disconnect("the port is removed");
            self.depart(key, client);
        }
        let (worker, command) = (port.worker, Command::Remove { slot: port.slot });
        self.tell(worker, command);
        true
    }

    fn watch_doors(
        &mut self,
        key: &str,
        listeners: Vec<Listener>,
    ) -> Result<Vec<(Listener, u64)>, Refusal> {
        let mut watched: Vec<(Listener, u64)> = Vec::new();
        for (nth, listener) in listeners.into_iter().enumerate() {
            let key = key.to_owned();
            match self.files.add(listener.fd(), File::Door { key, nth }) {
                Ok(token) => watched.push((listener, token)),
                Err(error) => {
                    for (listener, token) in watched {
                        self.files.remove(listener.fd(), token);
                    }
                    return Err(Refusal::new(RefusalCode::BadDescriptors, error));
                }
            }
        }
        Ok(watched)
    }

    /// Chooses the network's worker, or the one with the fewest ports, and a free slot.
    fn place(&self, network: u32) -> (usize, Slot) {
        let mut ports = self.ports.values();
        let same = ports.find(|port| port.config.network == network);
        let has = |worker: &usize| {
            let ports = self.ports.values();
            ports.filter(|port| port.worker == *worker).count()
        };
        let worker = same
            .map(|port| port.worker)
            .or_else(|| (0..self.workers.len()).min_by_key(has))
            .unwrap_or(0);
        let ports = self.ports.values().filter(|port| port.worker == worker);
        let taken: BTreeSet<Slot> = ports.map(|port| port.slot).collect();
        let free = (0..Slot::MAX).find(|slot| !taken.contains(slot));
        (worker, free.unwrap_or(Slot::MAX))
    }
}
