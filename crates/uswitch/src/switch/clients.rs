//! Clients of ports: their handshakes, and their ends.

use std::time::Instant;

use memif::{Event, ServerConnection};

use super::Switch;
use super::files::File;
use super::ports::{Connected, HandshakeId};
use crate::worker::{Command, Report};

impl Switch {
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
