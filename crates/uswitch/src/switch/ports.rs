//! Ports and their clients.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use memif::{Door, Event, Limits, Listener, Secret, ServerConfig, ServerConnection, Text};

use super::Switch;
use super::files::File;
use crate::control::{Refusal, RefusalCode};
use crate::device::Device;
use crate::network::Slot;
use crate::port::{PortConfig, PortCounters};
use crate::worker::{Command, FRAME_MAX, Report};

/// Frames may be this much longer than a port's largest packet: what is too long is dropped by the
/// kernel program, which counts it.
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
    tokens: BTreeMap<HandshakeId, u64>,
    pub(super) client: Option<Connected>,
    last_closed: Option<String>,
}

/// A client that has its rings.
#[derive(Debug)]
pub(super) struct Connected {
    pub(super) connection: ServerConnection,
    serial: u64,
    pub(super) token: u64,
    pub(super) peer: String,
}

/// What a port is made of.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) config: PortConfig,
    pub(super) device: OwnedFd,
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

/// What clients of a port are told, and may have.
fn server_config(config: &PortConfig, door: &Arc<Door>) -> Result<ServerConfig, Refusal> {
    let app = Text::new("podnet").map_err(|error| Refusal::new(RefusalCode::Unable, error))?;
    // Its own door is replaced by the port's, which all of its listeners share.
    let mut server = ServerConfig::new(app, Door::new(0, door.name()));
    server.doors = vec![Arc::clone(door)];
    server.limits = Limits {
        c2s_rings: config.queues,
        s2c_rings: config.queues,
        max_frame: max_frame(config),
        ..Limits::default()
    };
    Ok(server)
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
        let device = Device::new(parts.device)
            .map_err(|errno| Refusal::new(RefusalCode::BadDescriptors, errno))?;
        let config = parts.config;
        let door = new_door(&config)?;
        let mut listeners = Vec::new();
        for socket in parts.listeners {
            let server = server_config(&config, &door)?;
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

    /// Has a worker do something soon; while ports are put together, all of them at once.
    fn tell(&mut self, worker: usize, command: Command) {
        if let Some(held) = &mut self.held {
            held.push((worker, command));
        } else if let Some(worker) = self.workers.get(worker) {
            worker.tell(command);
        }
    }

    /// Has workers do what was held back. None of them moves a packet before it has all ports.
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
        device: Option<OwnedFd>,
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
        let is_same_server = is_same_door
            && (port.config.queues, max_frame(&port.config)) == (config.queues, max_frame(&config));
        let device = match device {
            Some(file) => {
                Some(Arc::new(Device::new(file).map_err(|errno| {
                    Refusal::new(RefusalCode::BadDescriptors, errno)
                })?))
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
            for socket in sockets {
                let server = server_config(&config, &door)?;
                let listener = Listener::new(socket, server)
                    .map_err(|error| Refusal::new(RefusalCode::BadDescriptors, error))?;
                listeners.push(listener);
            }
            let listeners = self.watch_doors(&key, listeners)?;
            if let Some(port) = self.ports.get_mut(&key) {
                let old = std::mem::replace(&mut port.listeners, listeners);
                port.door = door;
                for (listener, token) in old {
                    self.files.remove(listener.fd(), token);
                }
            }
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

    /// The worker of a network, or the one with the fewest ports; and a free slot there.
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

    /// A client knocks.
    pub(super) fn accept_client(&mut self, key: &str, nth: usize, now: Instant) {
        let Some(port) = self.ports.get_mut(key) else {
            return;
        };
        let Some((listener, token)) = port.listeners.get(nth) else {
            return;
        };
        match listener.accept(now) {
            Ok(None) => {}
            Ok(Some(connection)) => {
                let id = self.serial;
                self.serial = self.serial.wrapping_add(1);
                let file = File::Handshake {
                    key: key.to_owned(),
                    id,
                };
                // Without it the client sees that it is closed.
                if let Ok(token) = self.files.add(connection.fd(), file) {
                    port.handshakes.insert(id, connection);
                    port.tokens.insert(id, token);
                }
            }
            Err(error) => {
                // As long as there is no descriptor for it, the client would be there again at once.
                tracing::warn!(port = key, %error, "a client has to wait");
                self.files.pause(listener.fd(), *token, true);
                self.stalled = true;
            }
        }
    }

    /// Listeners that had to wait may try again.
    pub(super) fn resume_doors(&mut self) {
        for port in self.ports.values() {
            for (listener, token) in &port.listeners {
                self.files.pause(listener.fd(), *token, false);
            }
        }
    }

    /// A client without rings says something.
    pub(super) fn handshake(&mut self, key: &str, id: HandshakeId, now: Instant) {
        if let Some(port) = self.ports.get_mut(key)
            && let Some(connection) = port.handshakes.get_mut(&id)
        {
            let event = connection.ready(now);
            self.handshake_event(key, id, event);
        }
    }

    /// A client without rings says nothing.
    pub(super) fn handshake_tick(&mut self, key: &str, id: HandshakeId, now: Instant) {
        if let Some(port) = self.ports.get_mut(key)
            && let Some(connection) = port.handshakes.get_mut(&id)
        {
            let event = connection.tick(now);
            self.handshake_event(key, id, event);
        }
    }

    fn handshake_event(&mut self, key: &str, id: HandshakeId, event: Result<Event, memif::Error>) {
        let rings = match event {
            Ok(Event::Nothing) => return,
            Ok(Event::Connected(rings)) => Some(rings),
            Ok(Event::Closed(why)) => {
                tracing::debug!(port = key, %why, "a client was not connected");
                None
            }
            Err(error) => {
                tracing::warn!(port = key, %error, "a client cannot be served");
                None
            }
        };
        let Some(port) = self.ports.get_mut(key) else {
            return;
        };
        let (Some(connection), Some(token)) =
            (port.handshakes.remove(&id), port.tokens.remove(&id))
        else {
            return;
        };
        match rings {
            Some(rings) => {
                let key_of = key.to_owned();
                self.files.change(token, File::Client { key: key_of });
                self.connected(key, connection, token, rings);
            }
            None => self.files.remove(connection.fd(), token),
        }
    }

    /// A client has its rings.
    pub(super) fn connected(
        &mut self,
        key: &str,
        connection: ServerConnection,
        token: u64,
        rings: memif::Port,
    ) {
        let Some(port) = self.ports.get_mut(key) else {
            return;
        };
        let serial = self.serial;
        self.serial = self.serial.wrapping_add(1);
        let peer = format!("{} of {}", rings.peer, rings.app);
        tracing::info!(port = key, peer, "a client is connected");
        port.client = Some(Connected {
            connection,
            serial,
            token,
            peer,
        });
        let (worker, command) = (
            port.worker,
            Command::Connect {
                slot: port.slot,
                serial,
                port: Box::new(rings),
            },
        );
        self.tell(worker, command);
    }

    /// A client with rings says something: that it goes, or what it must not.
    pub(super) fn client_says(&mut self, key: &str, now: Instant) {
        let client = self
            .ports
            .get_mut(key)
            .and_then(|port| port.client.as_mut());
        let event = client.map(|client| client.connection.ready(now));
        self.client_event(key, event);
    }

    pub(super) fn client_tick(&mut self, key: &str, now: Instant) {
        let client = self
            .ports
            .get_mut(key)
            .and_then(|port| port.client.as_mut());
        let event = client.map(|client| client.connection.tick(now));
        self.client_event(key, event);
    }

    fn client_event(&mut self, key: &str, event: Option<Result<Event, memif::Error>>) {
        match event {
            // It is connected once.
            None | Some(Ok(Event::Nothing | Event::Connected(_))) => {}
            Some(Ok(Event::Closed(why))) => self.client_gone(key, &why.to_string()),
            Some(Err(error)) => self.client_gone(key, &error.to_string()),
        }
    }

    fn client_gone(&mut self, key: &str, why: &str) {
        let Some(port) = self.ports.get_mut(key) else {
            return;
        };
        let Some(client) = port.client.take() else {
            return;
        };
        tracing::info!(port = key, peer = client.peer, why, "a client is gone");
        self.files.remove(client.connection.fd(), client.token);
        port.last_closed = Some(why.to_owned());
        let (worker, command) = (port.worker, Command::Disconnect { slot: port.slot });
        self.tell(worker, command);
    }

    /// A worker has found a client out.
    pub(super) fn found_out(&mut self, report: &Report) {
        let mut ports = self.ports.iter_mut();
        let found =
            ports.find(|(_, port)| (port.worker, port.slot) == (report.worker, report.slot));
        let Some((key, port)) = found else {
            return;
        };
        // Another one may have come since.
        if let Some(client) = &mut port.client
            && client.serial == report.serial
        {
            let why = client.connection.violated(report.violation.clone());
            let key = key.clone();
            self.client_gone(&key, &why.to_string());
        }
    }
}
