//! Limit the connections that others open: their number and their duration.
//!
//! While the kernel has no descriptor for the next connection, a listener waits. Every listening socket
//! of the agent is served by [`Door::next`]. [`Limited`] adds the limits of HTTP, where a peer can
//! connect and say nothing.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::serve::Listener;
use futures_util::task::AtomicWaker;
use rustix::process::{Resource, getrlimit};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::time::{Instant, Sleep, sleep, sleep_until};

/// Time between two attempts while the kernel gives no connection.
///
/// The missing resource has to be given back by another connection or process.
const PAUSE: Duration = Duration::from_millis(100);
/// Between two lines of the log about that.
const LINE: Duration = Duration::from_secs(1);
/// The most connections that pods may have, whatever the limit of descriptors is.
const GUESTS_MAX: usize = 1 << 16;
/// HTTP connections at a time, for each address.
const CONNECTIONS: usize = 32;
/// Time limits of an HTTP connection.
const PATIENCE: Patience = Patience {
    idle: Duration::from_secs(10),
    life: Duration::from_secs(60),
};

/// Returns the most connections that all pods together may have with this process.
///
/// That is a quarter of the descriptors that it may open. The rest is for the node's own requests.
pub fn guests() -> usize {
    let limit = getrlimit(Resource::Nofile).current;
    let quarter = limit.unwrap_or(u64::MAX) / 4;
    usize::try_from(quarter).map_or(GUESTS_MAX, |quarter| quarter.min(GUESTS_MAX))
}

/// A socket that listens.
pub trait Accept: Send + Sync {
    /// Type of an accepted connection.
    type Stream: Send;

    /// The next connection.
    ///
    /// # Errors
    /// The kernel has none to give, or it was gone again.
    fn accept(&self) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

impl Accept for UnixListener {
    type Stream = UnixStream;

    async fn accept(&self) -> io::Result<UnixStream> {
        Self::accept(self).await.map(|(stream, _)| stream)
    }
}

impl Accept for TcpListener {
    type Stream = (TcpStream, SocketAddr);

    async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        Self::accept(self).await
    }
}

/// Accepts connections, and says at most once a second why it cannot.
#[derive(Debug)]
pub struct Door {
    name: String,
    /// Not before.
    again: Option<Instant>,
    said: Option<Instant>,
    unsaid: u64,
}

impl Door {
    /// A listening socket, as the log shall call it.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            again: None,
            said: None,
            unsaid: 0,
        }
    }

    /// Waits for the next connection, however long that takes. May be cancelled.
    pub async fn next<L: Accept>(&mut self, listener: &L) -> L::Stream {
        loop {
            if let Some(again) = self.again {
                sleep_until(again).await;
                self.again = None;
            }
            match listener.accept().await {
                Ok(stream) => return stream,
                Err(error) if is_of_peer(&error) => {}
                Err(error) => {
                    if let Some(attempts) = self.failed(Instant::now()) {
                        let socket = &self.name;
                        tracing::warn!(socket, attempts, %error, "connections to the socket are not accepted");
                    }
                }
            }
        }
    }

    /// Takes note of a failed attempt; how many to tell of, if it is time for a line.
    fn failed(&mut self, now: Instant) -> Option<u64> {
        self.again = now.checked_add(PAUSE);
        self.unsaid += 1;
        let is_time = self
            .said
            .is_none_or(|said| now.duration_since(said) >= LINE);
        is_time.then(|| {
            self.said = Some(now);
            std::mem::take(&mut self.unsaid)
        })
    }
}

/// Errors of the connection, which went away before its turn (accept(2)).
fn is_of_peer(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}

/// How long a connection is borne.
#[derive(Clone, Copy, Debug)]
struct Patience {
    /// Without a byte in either direction.
    idle: Duration,
    /// At all, so that a byte now and then does not keep it.
    life: Duration,
}

/// A TCP listener for an HTTP server, with [`CONNECTIONS`] connections at a time.
///
/// A new connection displaces the oldest, so that idle ones keep nobody out.
#[derive(Debug)]
pub struct Limited {
    listener: TcpListener,
    door: Door,
    open: Open,
}

type Open = Arc<Mutex<VecDeque<Arc<Ticket>>>>;

fn lock(open: &Open) -> MutexGuard<'_, VecDeque<Arc<Ticket>>> {
    open.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says to a connection that another one needs its place.
#[derive(Debug, Default)]
struct Ticket {
    displaced: AtomicBool,
    waker: AtomicWaker,
}

impl Limited {
    /// Serves this listener, which the log shall call `name`.
    pub fn new(listener: TcpListener, name: &str) -> Self {
        Self {
            listener,
            door: Door::new(name),
            open: Open::default(),
        }
    }
}

impl Listener for Limited {
    type Io = Guarded<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        let (stream, peer) = self.door.next(&self.listener).await;
        (Guarded::new(stream, &self.open, PATIENCE), peer)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that ends when it is idle too long, too old, or displaced.
#[derive(Debug)]
pub struct Guarded<S> {
    stream: S,
    ticket: Arc<Ticket>,
    open: Open,
    idle: Pin<Box<Sleep>>,
    life: Pin<Box<Sleep>>,
    patience: Patience,
}

impl<S> Guarded<S> {
    fn new(stream: S, open: &Open, patience: Patience) -> Self {
        let ticket = Arc::new(Ticket::default());
        let mut all = lock(open);
        all.push_back(Arc::clone(&ticket));
        if all.len() > CONNECTIONS
            && let Some(oldest) = all.pop_front()
        {
            oldest.displaced.store(true, Ordering::Release);
            oldest.waker.wake();
        }
        drop(all);
        Self {
            stream,
            ticket,
            open: Arc::clone(open),
            idle: Box::pin(sleep(patience.idle)),
            life: Box::pin(sleep(patience.life)),
            patience,
        }
    }

    /// An error when the connection is over.
    fn guard(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        self.ticket.waker.register(context.waker());
        if self.ticket.displaced.load(Ordering::Acquire) {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        let over = [&mut self.idle, &mut self.life]
            .into_iter()
            .any(|limit| limit.as_mut().poll(context).is_ready());
        if over {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(())
    }

    fn moved(&mut self) {
        if let Some(end) = Instant::now().checked_add(self.patience.idle) {
            self.idle.as_mut().reset(end);
        }
    }
}

impl<S> Drop for Guarded<S> {
    fn drop(&mut self) {
        lock(&self.open).retain(|other| !Arc::ptr_eq(other, &self.ticket));
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Guarded<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.guard(context)?;
        ready!(Pin::new(&mut this.stream).poll_read(context, into))?;
        this.moved();
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Guarded<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.guard(context)?;
        let written = ready!(Pin::new(&mut this.stream).poll_write(context, bytes))?;
        this.moved();
        Poll::Ready(Ok(written))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.guard(context)?;
        Pin::new(&mut this.stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.guard(context)?;
        Pin::new(&mut this.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests;
