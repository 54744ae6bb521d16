//! Agent's end of a control socket: it checks peers, limits requests, answers them.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use book::record::Attachment;
use cni_spec::AttachmentKey;
use datapath::Hook;
use listen::Door;
use netdev::{Netns, NetnsId, busy_poll};
use telemetry::chain;
use tokio::io::Interest;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};
use xsk::control::{self, Answer, Datagram, Received, Request};

use super::decide::{Facts, Step, decide};
use crate::error::PortError;

/// Conversations at once by each of the two addresses.
///
/// DPDK has one for each queue, one after the other.
const CONVERSATIONS: usize = 8;
/// Time after which a silent peer is not listened to any more.
const IDLE: Duration = Duration::from_secs(60);
/// Pause between two requests that are carried out for a port.
///
/// A pod that asks and asks gets a thousand answers a second, which the node does not notice.
const PAUSE: Duration = Duration::from_millis(1);

/// Context of the requests at a port's control socket.
#[derive(Debug)]
pub(super) struct Desk {
    key: AttachmentKey,
    host: String,
    facts: Facts,
    netns: Netns,
    hook: Hook,
    /// One thing at a time.
    turn: tokio::sync::Mutex<()>,
    /// Somebody was sent away, and it was said.
    complained: AtomicBool,
    /// Conversations that the control sockets of this node may have besides these.
    places: Arc<Semaphore>,
}

impl Desk {
    pub(super) fn new(
        record: &Attachment,
        netns: Netns,
        hook: Hook,
        places: Arc<Semaphore>,
    ) -> Arc<Self> {
        Arc::new(Self {
            key: record.key.clone(),
            host: record.host.name.clone(),
            facts: Facts {
                ifname: record.key.ifname.to_string(),
                queues: record.interface.queues.into(),
            },
            netns,
            hook,
            turn: tokio::sync::Mutex::default(),
            complained: AtomicBool::new(false),
            places,
        })
    }

    /// True when the peer is in the pod.
    ///
    /// Its namespace is that of its socket: no process number is involved, which could be another's by now,
    /// or mean nothing here.
    fn is_of_pod(&self, peer: &UnixStream) -> bool {
        match NetnsId::of_socket(peer) {
            Ok(id) if id == self.netns.identity() => true,
            Ok(id) => {
                if !self.complained.swap(true, Ordering::Relaxed) {
                    tracing::warn!(attachment = %self.key, from = %id, "a process outside of the pod called its control socket, and is sent away");
                }
                false
            }
            Err(error) => {
                tracing::warn!(attachment = %self.key, error = chain(&error), "the caller of the control socket cannot be identified, and is sent away");
                false
            }
        }
    }

    async fn serve(self: Arc<Self>, listener: UnixListener) {
        let mut conversations = JoinSet::new();
        let mut door = Door::new(format!("control socket of {}", self.key));
        loop {
            tokio::select! {
                peer = door.next(&listener) => {
                    if conversations.len() < CONVERSATIONS && self.is_of_pod(&peer) {
                        // All pods together leave the node's own work its descriptors.
                        if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
                            conversations.spawn(Arc::clone(&self).talk(peer, place));
                        }
                    }
                }
                Some(_) = conversations.join_next() => continue,
            }
            sleep(PAUSE).await;
        }
    }

    async fn talk(self: Arc<Self>, peer: UnixStream, _place: OwnedSemaphorePermit) {
        if let Err(error) = self.converse(peer).await {
            tracing::debug!(attachment = %self.key, %error, "a conversation at the control socket ended");
        }
    }

    async fn converse(&self, peer: UnixStream) -> io::Result<()> {
        loop {
            let Ok(heard) = timeout(IDLE, hear(&peer)).await else {
                return Ok(());
            };
            let Some(datagram) = heard? else {
                return Ok(());
            };
            let _turn = self.turn.lock().await;
            let (answer, descriptor) = self.answer(datagram).await;
            let descriptor = descriptor.as_ref().map(|it| it.as_fd());
            control::send(&peer, answer.text(), descriptor)?;
            if answer == Answer::FinAck {
                return Ok(());
            }
            sleep(PAUSE).await;
        }
    }

    /// Does what is asked for, and says what to answer.
    async fn answer(&self, datagram: Datagram) -> (Answer, Option<OwnedFd>) {
        let request = Request::parse(&datagram.bytes);
        let step = decide(&self.facts, request.as_ref(), datagram.descriptor.is_some());
        match self.carry_out(step, datagram.descriptor).await {
            Ok(answer) => answer,
            Err(error) => {
                let request = request.map(|it| it.to_string());
                tracing::warn!(attachment = %self.key, ?request, error = chain(&error), "a request at the control socket failed");
                (Answer::Error, None)
            }
        }
    }

    async fn carry_out(
        &self,
        step: Step,
        socket: Option<OwnedFd>,
    ) -> Result<(Answer, Option<OwnedFd>), PortError> {
        match step {
            Step::Say(answer) => Ok((answer, None)),
            Step::Map => Ok((Answer::FdAck, Some(self.hook.xsk_map(&self.host)?))),
            Step::NewSocket => {
                let socket = self.netns.enter(xsk::open).await?;
                let failed = |source| super::error::AfXdpError::Control {
                    ifname: self.facts.ifname.clone(),
                    source,
                };
                Ok((Answer::FdAck, Some(socket.map_err(failed)?)))
            }
            Step::Insert { queue } => {
                let Some(socket) = socket.filter(|it| self.is_socket_of_pod(it)) else {
                    return Ok((Answer::FdNak, None));
                };
                let mut sockets = self.hook.sockets(&self.host)?;
                match sockets.insert(queue, socket.as_fd())? {
                    None => Ok((Answer::FdAck, None)),
                    Some(error) => {
                        tracing::info!(attachment = %self.key, queue, %error, "the kernel refuses the socket that the pod sent for a queue");
                        Ok((Answer::FdNak, None))
                    }
                }
            }
            Step::BusyPoll { timeout, budget } => {
                let polled = socket
                    .filter(|it| self.is_socket_of_pod(it))
                    .is_some_and(|it| match busy_poll(it.as_fd(), timeout, budget) {
                        Ok(()) => true,
                        Err(error) => {
                            tracing::info!(attachment = %self.key, %error, "the kernel refuses busy polling for the pod's socket");
                            false
                        }
                    });
                let answer = if polled {
                    Answer::BusyPollAck
                } else {
                    Answer::BusyPollNak
                };
                Ok((answer, None))
            }
        }
    }

    /// True for an AF_XDP socket of the pod's own namespace.
    fn is_socket_of_pod(&self, socket: &OwnedFd) -> bool {
        xsk::require_xdp(socket.as_fd()).is_ok()
            && NetnsId::of_socket(socket).is_ok_and(|id| id == self.netns.identity())
    }
}

/// The control socket of a port; closed when this is dropped.
#[derive(Debug)]
pub(super) struct Control {
    tasks: Vec<JoinHandle<()>>,
}

impl Control {
    /// Serves requests, by file and, where there is one, by name.
    pub(super) fn open(
        desk: &Arc<Desk>,
        by_file: OwnedFd,
        by_name: Option<OwnedFd>,
    ) -> io::Result<Self> {
        let mut control = Self { tasks: Vec::new() };
        for socket in [Some(by_file), by_name].into_iter().flatten() {
            let serve = Arc::clone(desk).serve(listener(socket)?);
            control.tasks.push(tokio::spawn(serve));
        }
        Ok(control)
    }

    pub(super) fn is_open(&self) -> bool {
        self.tasks.iter().all(|task| !task.is_finished())
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// A listening socket for the runtime, which does not mind of which type it is.
fn listener(socket: OwnedFd) -> io::Result<UnixListener> {
    UnixListener::from_std(socket.into())
}

/// The next datagram; none at the end.
async fn hear(peer: &UnixStream) -> io::Result<Option<Datagram>> {
    loop {
        peer.readable().await?;
        let heard = peer.try_io(Interest::READABLE, || match control::receive(peer)? {
            Received::Datagram(datagram) => Ok(Some(datagram)),
            Received::Hangup => Ok(None),
            Received::Nothing => Err(io::ErrorKind::WouldBlock.into()),
        });
        match heard {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            heard => return heard,
        }
    }
}
