//! One switch takes over from another.
//!
//! ```text
//! next                     the one before
//! HAND_OVER          --->  waits for handshakes to end, stops its workers
//!                    <---  HANDING_OVER   the socket of this protocol
//!                    <---  HANDED         … each port with its client
//! makes all ports
//! HAVE_ALL           --->
//!                    <---  YOURS          from here the next moves packets
//!                          ends
//! ```
//!
//! Exactly one of the two moves packets at any time. If anything fails before `YOURS` is sent the
//! one before goes on with what it has kept, and the next, which never hears it, gives up. A client sees
//! rings that nobody serves for the time it takes.

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use memif::Handover;
use rustix::io::ioctl_fionbio;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{RecvFlags, SendFlags};

use super::files::File;
use super::ports::{Parts, Port};
use super::{Ended, Options, Switch};
use crate::control::{
    Client, DEVICE_HEADERS, Received, Refusal, RefusalCode, Reply, Request, receive, send,
    unexpected,
};
use crate::error::Error;
use crate::handover::{HandedConnection, HandedPort};
use crate::port::PortCounters;
use crate::worker::Command;

/// How long the next may take for each step, before this one goes on.
const PATIENCE: Duration = Duration::from_secs(5);

/// Counters and connection of a port that is handed over.
struct Given {
    counters: PortCounters,
    handover: Option<Handover>,
}

impl Switch {
    /// Hands over if somebody waits for that, and no handshake is in the way any more.
    pub(super) fn replace_when_due(&mut self, now: Instant) {
        let Some((token, due)) = self.replacing else {
            return;
        };
        let goes_on = self.ports.values().any(|port| !port.handshakes.is_empty());
        if goes_on && now < due {
            return;
        }
        self.replacing = None;
        let Some(asker) = self.askers.remove(&token) else {
            return;
        };
        self.files.remove(asker.socket.as_fd(), token);
        let mut devices = self.ports.values().map(|port| &port.device);
        if asker.version < Some(DEVICE_HEADERS) && devices.any(|device| device.has_headers()) {
            let message = "an older switch would not understand the devices of these ports: stop this one \
                           before, and clients connect again";
            let reply = Reply::Refused(Refusal::new(RefusalCode::Version, message));
            let _ = send(asker.socket.as_fd(), &reply, &[], SendFlags::DONTWAIT);
            return;
        }
        let started = Instant::now();
        let given = match self.stop_workers() {
            Ok(given) => given,
            Err(error) => {
                let refusal = Refusal::new(RefusalCode::Unable, error);
                let reply = Reply::Refused(refusal);
                // It sees that the connection is closed.
                let _ = send(asker.socket.as_fd(), &reply, &[], SendFlags::DONTWAIT);
                return;
            }
        };
        match self.give(asker.socket.as_fd(), &given) {
            Ok(()) => {
                let took = started.elapsed();
                tracing::info!(
                    ports = given.len(),
                    ?took,
                    "another process has taken over as the switch"
                );
                self.ended = Some(Ended::Replaced);
            }
            Err(error) => {
                tracing::warn!(%error, "the switch that was to take over failed; this one goes on");
                // Before anything moves: it must see that it is not the switch.
                drop(asker);
                self.go_on(given);
            }
        }
    }

    /// Takes everything from the workers, and connections apart.
    fn stop_workers(&mut self) -> Result<BTreeMap<String, Given>, Error> {
        let mut given = BTreeMap::new();
        let mut failed = None;
        for (number, worker) in self.workers.iter().enumerate() {
            // What one worker does not give back, all the others go on with.
            let yielded = match worker.ask(number, Command::Yield) {
                Ok(yielded) => yielded,
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            };
            for yielded in yielded {
                let mut ports = self.ports.iter_mut();
                let place = (number, yielded.slot);
                let port = ports.find(|(_, port)| (port.worker, port.slot) == place);
                if let Some((key, port)) = port {
                    let handover = take_apart(&mut self.files, key, port, yielded.rings);
                    let counters = yielded.counters;
                    given.insert(key.clone(), Given { counters, handover });
                }
            }
        }
        // What workers gave back before: it does not go to the next one.
        self.hear_reports();
        match failed {
            None => Ok(given),
            Some(error) => {
                self.go_on(given);
                Err(error)
            }
        }
    }

    /// Sends all of it, and waits until it has arrived.
    fn give(&self, to: BorrowedFd<'_>, given: &BTreeMap<String, Given>) -> Result<(), Error> {
        ioctl_fionbio(to, false).map_err(Error::system("making the socket wait"))?;
        for timeout in [Timeout::Recv, Timeout::Send] {
            set_socket_timeout(to, timeout, Some(PATIENCE))
                .map_err(Error::system("setting the socket's patience"))?;
        }
        let waits = SendFlags::empty();
        let announced = Reply::HandingOver { ports: given.len() };
        send(to, &announced, &[self.listener.as_fd()], waits)?;
        for (key, given) in given {
            let Some(port) = self.ports.get(key) else {
                continue;
            };
            let mut descriptors = vec![port.device.fd()];
            descriptors.extend(port.listeners.iter().map(|(listener, _)| listener.fd()));
            let described = given.handover.as_ref().map(HandedConnection::describe);
            let connection = described.map(|(connection, more)| {
                descriptors.extend(more);
                connection
            });
            let handed = HandedPort {
                config: port.config.clone(),
                headers: port.device.has_headers(),
                listeners: port.listeners.len(),
                counters: given.counters,
                connection,
            };
            send(to, &Reply::Handed(Box::new(handed)), &descriptors, waits)?;
        }
        match receive(to, RecvFlags::empty())? {
            Received::Message(bytes, _) => match serde_json::from_slice(&bytes)? {
                Request::HaveAll => {}
                _ => return Err(Error::Unexpected("another request".to_owned())),
            },
            Received::Hangup | Received::Cut => return Err(Error::Hangup),
            Received::Nothing => return Err(Error::Timeout),
        }
        send(to, &Reply::Yours, &[], waits)
    }

    /// Ports move packets, with the clients that they had here or in the switch before.
    fn go_on(&mut self, given: impl IntoIterator<Item = (String, Given)>) {
        let now = Instant::now();
        self.held = Some(Vec::new());
        for (key, Given { counters, handover }) in given {
            self.start_port(&key, counters);
            if let Some(handover) = handover {
                self.put_together(&key, handover, now);
            }
        }
        self.release();
    }

    /// A port's client that was taken apart, here or there.
    fn put_together(&mut self, key: &str, handover: Handover, now: Instant) {
        let Some((listener, _)) = self.ports.get(key).and_then(|port| port.listeners.first())
        else {
            return;
        };
        let (connection, rings) = match listener.resume(handover, now) {
            Ok(Ok(resumed)) => resumed,
            Ok(Err(violation)) => {
                tracing::warn!(port = key, %violation, "a client is lost");
                return;
            }
            Err(error) => {
                tracing::error!(port = key, %error, "a client is lost");
                return;
            }
        };
        let file = File::Client {
            key: key.to_owned(),
        };
        match self.files.add(connection.fd(), file) {
            Ok(token) => self.connected(key, connection, token, rings),
            Err(error) => tracing::error!(port = key, %error, "a client is lost"),
        }
    }

    /// The next switch: takes everything from the one before.
    pub(super) fn take_over(mut old: Client, options: &Options) -> Result<Self, Error> {
        old.say(&Request::HandOver, &[])?;
        let (announced, listener) = match old.hear()? {
            (Reply::HandingOver { ports }, mut descriptors) => (ports, descriptors.pop()),
            (other, _) => return Err(unexpected(&other)),
        };
        let incomplete = |got| Error::Incomplete { got, announced };
        let listener = listener.ok_or(incomplete(0))?;
        let mut handed = Vec::new();
        while handed.len() < announced {
            match old.hear()? {
                (Reply::Handed(port), descriptors) => {
                    let parts = unpack(*port, descriptors).ok_or(incomplete(handed.len()))?;
                    handed.push(parts);
                }
                (other, _) => return Err(unexpected(&other)),
            }
        }
        // What can fail is done before the other one lets go. Memory and devices are not touched: they
        // are still the other's.
        let mut switch = Self::new(listener, options)?;
        let mut ports = Vec::new();
        for (parts, given) in handed {
            let key = parts.config.key.clone();
            switch.make_port(parts)?;
            ports.push((key, given));
        }
        old.say(&Request::HaveAll, &[])?;
        match old.hear()? {
            (Reply::Yours, _) => {}
            (other, _) => return Err(unexpected(&other)),
        }
        switch.go_on(ports);
        tracing::info!(
            ports = announced,
            "the switch has taken over from the one before it"
        );
        Ok(switch)
    }
}

/// A port's client, as it is handed over. If that fails the client is gone.
fn take_apart(
    files: &mut super::Files,
    key: &str,
    port: &mut Port,
    rings: Option<memif::Port>,
) -> Option<Handover> {
    let client = port.client.take()?;
    files.remove(client.connection.fd(), client.token);
    match client.connection.hand_over(rings?) {
        Ok(handover) => Some(handover),
        Err(error) => {
            tracing::error!(port = key, %error, "a client is lost");
            None
        }
    }
}

/// A port that was handed over. Nothing if its descriptors do not fit.
fn unpack(port: HandedPort, mut descriptors: Vec<OwnedFd>) -> Option<(Parts, Given)> {
    let behind = port.listeners.checked_add(1)?;
    if port.listeners == 0 || descriptors.len() < behind {
        return None;
    }
    let of_connection = descriptors.split_off(behind);
    let listeners = descriptors.split_off(1);
    let device = descriptors.pop()?;
    let handover = match &port.connection {
        Some(connection) => Some(connection.restore(of_connection)?),
        None => None,
    };
    let parts = Parts {
        config: port.config,
        device,
        headers: port.headers,
        listeners,
    };
    let given = Given {
        counters: port.counters,
        handover,
    };
    Some((parts, given))
}
