//! Clients of ports: their handshakes, and their ends.

use std::time::Instant;

use memif::{Closed, Event, ServerConnection};

use super::files::File;
use super::pace::Cause;
use super::ports::{Connected, HandshakeId, Port};
use super::{Departing, Switch, TICK};
use crate::worker::{Command, Report};

/// Clients of a port without rings at a time: a newer one displaces the oldest.
const HALF_OPEN_MAX: usize = 8;

impl Switch {
    /// A client knocks.
    pub(super) fn accept_client(&mut self, key: &str, nth: usize, now: Instant) {
        let Some(port) = self.ports.get_mut(key) else {
            return;
        };
        if port.shut {
            // The event is older than that.
            return;
        }
        if let Err(until) = port.accepts.take(now) {
            if let Some(suppressed) = port.lines.admit(Cause::Churns, now) {
                tracing::warn!(
                    port = key,
                    suppressed,
                    "clients come and go too fast: the next have to wait"
                );
            }
            port.shut_until = Some(until);
            return self.set_doors(key);
        }
        if port.handshakes.len() >= HALF_OPEN_MAX {
            self.displace_handshake(key);
        }
        let Some(port) = self.ports.get_mut(key) else {
            return;
        };
        let Some((listener, _)) = port.listeners.get(nth) else {
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
                if let Some(suppressed) = port.lines.admit(Cause::Waits, now) {
                    tracing::warn!(port = key, %error, suppressed, "a client has to wait");
                }
                port.shut_until = now.checked_add(TICK);
                self.set_doors(key);
            }
        }
    }

    /// Disconnects the oldest client without rings, to make room for a newer one.
    ///
    /// Clients that have not even asked for the interface go first.
    fn displace_handshake(&mut self, key: &str) {
        let Some(port) = self.ports.get_mut(key) else {
            return;
        };
        let mut ids = port.handshakes.iter();
        let idle = ids.find(|(_, connection)| connection.door().is_none());
        let oldest = idle.or_else(|| port.handshakes.iter().next());
        let Some(id) = oldest.map(|(id, _)| *id) else {
            return;
        };
        if let (Some(mut connection), Some(token)) =
            (port.handshakes.remove(&id), port.tokens.remove(&id))
        {
            self.files.remove(connection.fd(), token);
            connection.disconnect("displaced by a newer connection");
        }
    }

    /// Looks at a port's listening sockets, or does not.
    pub(super) fn set_doors(&mut self, key: &str) {
        let Some(port) = self.ports.get_mut(key) else {
            return;
        };
        let shut = port.departing || port.shut_until.is_some();
        if shut == std::mem::replace(&mut port.shut, shut) {
            return;
        }
        for (listener, token) in &port.listeners {
            self.files.pause(listener.fd(), *token, shut);
        }
    }

    /// Ports whose clients had to wait accept some again.
    pub(super) fn open_doors(&mut self, now: Instant) {
        let due = |port: &Port| port.shut_until.is_some_and(|until| until <= now);
        let ports = self.ports.iter_mut().filter(|(_, port)| due(port));
        let keys: Vec<String> = ports
            .map(|(key, port)| {
                port.shut_until = None;
                key.clone()
            })
            .collect();
        for key in keys {
            self.set_doors(&key);
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
        let Some(port) = self.ports.get_mut(key) else {
            return;
        };
        let now = Instant::now();
        let rings = match event {
            Ok(Event::Nothing) => return,
            Ok(Event::Connected(rings)) => Some(rings),
            Ok(Event::Closed(Closed::Violation(why))) => {
                if let Some(suppressed) = port.lines.admit(Cause::Refused, now) {
                    tracing::info!(port = key, %why, suppressed, "a client was refused");
                }
                port.last_closed = Some(why.to_string());
                None
            }
            Ok(Event::Closed(why)) => {
                tracing::debug!(port = key, %why, "a client was not connected");
                None
            }
            Err(error) => {
                if let Some(suppressed) = port.lines.admit(Cause::Unserved, now) {
                    tracing::warn!(port = key, %error, suppressed, "a client cannot be served");
                }
                None
            }
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
        if let Some(suppressed) = port.lines.admit(Cause::Connected, Instant::now()) {
            tracing::info!(port = key, peer, suppressed, "a client is connected");
        }
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
        if let Some(suppressed) = port.lines.admit(Cause::Gone, Instant::now()) {
            let peer = &client.peer;
            tracing::info!(port = key, peer, why, suppressed, "a client is gone");
        }
        self.files.remove(client.connection.fd(), client.token);
        port.last_closed = Some(why.to_owned());
        let (worker, command) = (port.worker, Command::Disconnect { slot: port.slot });
        self.depart(key, client);
        self.tell(worker, command);
    }

    /// Keeps a client that is no more until its worker has given its rings back.
    pub(super) fn depart(&mut self, key: &str, client: Connected) {
        let departing = Departing {
            key: key.to_owned(),
            connection: client.connection,
        };
        self.departing.insert(client.serial, departing);
        if let Some(port) = self.ports.get_mut(key) {
            port.departing = true;
        }
        self.set_doors(key);
    }

    /// Handles rings that a worker has given back.
    ///
    /// Their client is gone, or the worker has found a violation.
    pub(super) fn given_back(&mut self, report: Report) {
        let Report {
            serial,
            rings,
            violation,
        } = report;
        let mut ports = self.ports.iter_mut();
        let is_it = |port: &Port| {
            let client = port.client.as_ref();
            client.is_some_and(|client| client.serial == serial)
        };
        if let Some(violation) = violation
            && let Some((key, port)) = ports.find(|(_, port)| is_it(port))
            && let Some(client) = &mut port.client
        {
            let why = client.connection.violated(violation);
            let key = key.clone();
            self.client_gone(&key, &why.to_string());
        }
        // In this order: then no page of the client's memory is touched after it was given back.
        drop(rings);
        let Some(Departing { key, connection }) = self.departing.remove(&serial) else {
            return;
        };
        drop(connection);
        let others = self.departing.values().any(|other| other.key == key);
        if let Some(port) = self.ports.get_mut(&key)
            && !others
        {
            port.departing = false;
            self.set_doors(&key);
        }
    }
}
