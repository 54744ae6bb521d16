//! Serve the requests of the agent and of the next switch.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketFlags, accept_with, sockopt};
use rustix::process::geteuid;

use super::files::File;
use super::ports::Parts;
use super::{Ended, Switch, TICK};
use crate::control::{
    OLDEST, PAGE, Received, Refusal, RefusalCode, Reply, Request, VERSION, WorkerStatus, receive,
    send,
};
use crate::error::Error;
use crate::port::{PortConfig, PortCounters, PortStatus};
use crate::worker::{Command, Counted};
use ways::Published;

/// Control connections at a time.
const ASKERS_MAX: usize = 64;
/// Longest delay of a hand-over by open handshakes, as DPDK's clients do not retry.
const HANDSHAKES: Duration = Duration::from_secs(1);

/// Somebody who asks.
#[derive(Debug)]
pub(super) struct Asker {
    pub(super) socket: OwnedFd,
    /// The version that is spoken with it; none before its hello.
    pub(super) version: Option<u32>,
}

impl Switch {
    pub(super) fn accept_asker(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = match accept_with(&self.listener, flags) {
            Ok(socket) => socket,
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => return,
            Err(error) => {
                // As long as there is no descriptor for it, it would be there again at once.
                tracing::warn!(%error, "a connection to the switch's socket has to wait");
                let (listener, token) = (self.listener.as_fd(), self.listener_token);
                self.files.pause(listener, token, true);
                self.listener_shut_until = Instant::now().checked_add(TICK);
                return;
            }
        };
        // Who asks may be in another PID namespace, and have no number here.
        let is_trusted = getsockopt(&socket, PeerCredentials)
            .is_ok_and(|peer| peer.uid() == 0 || peer.uid() == geteuid().as_raw());
        if !is_trusted || self.askers.len() >= ASKERS_MAX {
            tracing::warn!(is_trusted, "a connection to the switch's socket is refused");
            return;
        }
        match self.files.add(socket.as_fd(), File::Asker) {
            Ok(token) => {
                let asker = Asker {
                    socket,
                    version: None,
                };
                self.askers.insert(token, asker);
            }
            Err(error) => tracing::warn!(%error, "a connection to the switch's socket is closed"),
        }
    }

    /// Lets askers in again, who had to wait for descriptors.
    pub(super) fn open_listener(&mut self, now: Instant) {
        if self.listener_shut_until.is_some_and(|until| until <= now) {
            self.listener_shut_until = None;
            let (listener, token) = (self.listener.as_fd(), self.listener_token);
            self.files.pause(listener, token, false);
        }
    }

    /// An asker has said something, or is gone.
    pub(super) fn hear(&mut self, token: u64) {
        let Some(asker) = self.askers.get_mut(&token) else {
            return;
        };
        let received = receive(asker.socket.as_fd(), RecvFlags::DONTWAIT);
        let (bytes, descriptors) = match received {
            Ok(Received::Nothing) => return,
            Ok(Received::Message(bytes, descriptors)) => (bytes, descriptors),
            Ok(Received::Hangup | Received::Cut) | Err(_) => return self.forget_asker(token),
        };
        let request = match serde_json::from_slice(&bytes) {
            Ok(request) => request,
            Err(error) => {
                let refusal = Refusal::new(RefusalCode::Malformed, error);
                return self.answer(token, &Reply::Refused(refusal));
            }
        };
        match &request {
            Request::Hello { version } => {
                let version = (*version).min(VERSION);
                asker.version = Some(version).filter(|version| *version >= OLDEST);
                let reply = if asker.version.is_some() {
                    Reply::Hello {
                        version,
                        software: env!("CARGO_PKG_VERSION").to_owned(),
                        workers: self.workers.len(),
                    }
                } else {
                    let message = format!("versions {OLDEST} to {VERSION} are spoken here");
                    Reply::Refused(Refusal::new(RefusalCode::Version, message))
                };
                return self.answer(token, &reply);
            }
            _ if asker.version.is_none() => {
                let refusal = Refusal::new(RefusalCode::Malformed, "say hello first");
                return self.answer(token, &Reply::Refused(refusal));
            }
            _ => {}
        }
        if let Some(reply) = self.fulfil(token, request, descriptors) {
            self.answer(token, &reply);
        }
    }

    fn fulfil(&mut self, token: u64, request: Request, descriptors: Vec<OwnedFd>) -> Option<Reply> {
        let done = match request {
            Request::AddPort { port, headers } => self.add_port(port, headers, descriptors),
            Request::RemovePort { key } => Ok(self.remove_port(&key)),
            Request::List { after } => {
                return Some(match self.list(after.as_deref()) {
                    Ok(reply) => reply,
                    Err(error) => Reply::Refused(Refusal::new(RefusalCode::Unable, error)),
                });
            }
            Request::Judge { ports } => self.judge(ports, &descriptors),
            Request::Stop => {
                let keys: Vec<String> = self.ports.keys().cloned().collect();
                for key in keys {
                    self.remove_port(&key);
                }
                self.ended = Some(Ended::Stopped);
                Ok(true)
            }
            Request::HandOver if self.replacing.is_some() => {
                let message = "another one takes over already";
                Err(Refusal::new(RefusalCode::Unable, message))
            }
            Request::HandOver => {
                let due = Instant::now().checked_add(HANDSHAKES);
                self.replacing = due.map(|due| (token, due));
                return None;
            }
            Request::Hello { .. } | Request::HaveAll => {
                let message = "this message may not come now";
                Err(Refusal::new(RefusalCode::Malformed, message))
            }
        };
        Some(match done {
            Ok(changed) => Reply::Done { changed },
            Err(refusal) => Reply::Refused(refusal),
        })
    }

    fn add_port(
        &mut self,
        config: PortConfig,
        headers: bool,
        mut descriptors: Vec<OwnedFd>,
    ) -> Result<bool, Refusal> {
        let invalid = |error| Refusal::new(RefusalCode::Invalid, error);
        config.check().map_err(invalid)?;
        let listeners = descriptors.split_off(descriptors.len().min(1));
        let device = descriptors.pop();
        if device.is_some() && !(1..=2).contains(&listeners.len()) {
            let message = format!(
                "{} listening sockets came, send one or two behind the device",
                listeners.len()
            );
            return Err(Refusal::new(RefusalCode::BadDescriptors, message));
        }
        for listener in &listeners {
            if sockopt::socket_acceptconn(listener) != Ok(true) {
                let message = "what came behind the device is no socket that listens";
                return Err(Refusal::new(RefusalCode::BadDescriptors, message));
            }
        }
        match device {
            Some(device) if !self.ports.contains_key(&config.key) => {
                let key = config.key.clone();
                self.make_port(Parts {
                    config,
                    device,
                    headers,
                    listeners,
                })?;
                self.start_port(&key, PortCounters::default());
                Ok(true)
            }
            device => {
                let device = device.map(|device| (device, headers));
                self.change_port(config, device, listeners)
            }
        }
    }

    /// Has all workers judge by these maps.
    fn judge(&self, ports: u32, descriptors: &[OwnedFd]) -> Result<bool, Refusal> {
        let [flows, stamps] = descriptors else {
            let message = format!("{} descriptors came, send two maps", descriptors.len());
            return Err(Refusal::new(RefusalCode::BadDescriptors, message));
        };
        let published = Published::new(flows.as_fd(), stamps.as_fd(), ports).map_err(|error| {
            let message =
                format!("what came cannot be had in memory as maps of connections: {error}");
            Refusal::new(RefusalCode::BadDescriptors, message)
        })?;
        let published = Arc::new(published);
        for worker in &self.workers {
            worker.tell(Command::Judge(Arc::clone(&published)));
        }
        Ok(true)
    }

    fn list(&self, after: Option<&str>) -> Result<Reply, Error> {
        use std::ops::Bound;

        let counted = self.count()?;
        let behind = match after {
            Some(key) => Bound::Excluded(key),
            None => Bound::Unbounded,
        };
        let (mut ports, mut bytes, mut more) = (Vec::new(), 0_usize, false);
        for (_, port) in self.ports.range::<str, _>((behind, Bound::Unbounded)) {
            if bytes > PAGE {
                more = true;
                break;
            }
            let mut config = port.config.clone();
            config.secret = None;
            let counters = counted.get(port.worker).map(|worker| &worker.ports);
            let mut counters = counters.into_iter().flatten();
            let counters = counters.find(|(slot, _)| *slot == port.slot);
            let status = PortStatus {
                config,
                connected: port.is_connected(),
                peer: port.client.as_ref().map(|client| client.peer.clone()),
                last_closed: port.last_closed(),
                counters: counters.map(|(_, counters)| *counters).unwrap_or_default(),
            };
            bytes = bytes.saturating_add(serde_json::to_vec(&status)?.len());
            ports.push(status);
        }
        let workers = counted.iter().map(|worker| WorkerStatus {
            rounds: worker.rounds,
            sleeps: worker.sleeps,
        });
        Ok(Reply::Ports {
            ports,
            more,
            workers: workers.collect(),
        })
    }

    fn count(&self) -> Result<Vec<Counted>, Error> {
        let workers = self.workers.iter().enumerate();
        workers
            .map(|(number, worker)| worker.ask(number, Command::Count))
            .collect()
    }

    pub(super) fn answer(&mut self, token: u64, reply: &Reply) {
        let Some(asker) = self.askers.get(&token) else {
            return;
        };
        if send(asker.socket.as_fd(), reply, &[], SendFlags::DONTWAIT).is_err() {
            self.forget_asker(token);
        }
    }

    pub(super) fn forget_asker(&mut self, token: u64) {
        if let Some(asker) = self.askers.remove(&token) {
            self.files.remove(asker.socket.as_fd(), token);
        }
        if self.replacing.is_some_and(|(by, _)| by == token) {
            self.replacing = None;
        }
    }
}
