//! Limit a client's connection in time: an idle or slow one gives its place back.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep, sleep};

/// Longest time of a connection without a request.
///
/// The API server opens another when it needs one.
const IDLE: Duration = Duration::from_secs(60);
/// Longest time of a request from its first byte to its answer.
///
/// It has the head, the body, the turn and the review.
const REQUEST: Duration = Duration::from_secs(15);

/// The times of a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    pub(super) idle: Duration,
    pub(super) request: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            idle: IDLE,
            request: REQUEST,
        }
    }
}

/// A stream of bytes that ends when its client is too slow.
#[derive(Debug)]
pub(super) struct Connection<S> {
    stream: S,
    times: Times,
    /// A request has begun, and nothing was answered yet.
    in_request: bool,
    end: Pin<Box<Sleep>>,
    _place: OwnedSemaphorePermit,
}

impl<S> Connection<S> {
    pub(super) fn new(stream: S, times: Times, place: OwnedSemaphorePermit) -> Self {
        Self {
            stream,
            times,
            in_request: false,
            end: Box::pin(sleep(times.idle)),
            _place: place,
        }
    }

    fn restart(&mut self, after: Duration) {
        let end = Instant::now() + after;
        self.end.as_mut().reset(end);
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Connection<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.end.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        let before = into.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, into);
        if into.filled().len() > before && !self.in_request {
            self.in_request = true;
            let after = self.times.request;
            self.restart(after);
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Connection<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        // A client that does not read its answer is no better than one that says nothing.
        if self.end.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        if matches!(written, Poll::Ready(Ok(_))) {
            self.in_request = false;
            let after = self.times.idle;
            self.restart(after);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
    use tokio::sync::Semaphore;

    use super::*;

    const LONG: Duration = Duration::from_secs(3600);
    const SHORT: Duration = Duration::from_millis(20);

    async fn connect(
        idle: Duration,
        request: Duration,
    ) -> (
        Connection<tokio::io::DuplexStream>,
        tokio::io::DuplexStream,
        Arc<Semaphore>,
    ) {
        let places = Arc::new(Semaphore::new(1));
        let place = Arc::clone(&places).acquire_owned().await.unwrap();
        let (ours, theirs) = duplex(64);
        (
            Connection::new(ours, Times { idle, request }, place),
            theirs,
            places,
        )
    }

    /// ATT-04c
    #[tokio::test]
    async fn a_client_that_says_nothing_or_only_half_gives_its_place_back() {
        let (mut silent, _client, places) = connect(SHORT, LONG).await;
        let ended = silent.read_u8().await.unwrap_err();
        assert_eq!(ended.kind(), io::ErrorKind::TimedOut);
        drop(silent);
        assert_eq!(places.available_permits(), 1);

        // A byte now and then keeps no request open.
        let (mut slow, mut client, _places) = connect(LONG, SHORT).await;
        let drip = tokio::spawn(async move {
            while client.write_u8(b'x').await.is_ok() {
                tokio::task::yield_now().await;
            }
        });
        let ended = loop {
            if let Err(ended) = slow.read_u8().await {
                break ended;
            }
        };
        assert_eq!(ended.kind(), io::ErrorKind::TimedOut);
        drop(slow);
        drip.await.unwrap();
        proof::of!("ATT-04c");
    }

    #[tokio::test]
    async fn a_connection_is_kept_for_the_next_request() {
        let (mut kept, mut client, _places) = connect(LONG, LONG).await;
        for _ in 0..3 {
            client.write_all(b"question").await.unwrap();
            kept.read_exact(&mut [0; 8]).await.unwrap();
            assert!(kept.in_request);
            kept.write_all(b"answer").await.unwrap();
            assert!(!kept.in_request);
            client.read_exact(&mut [0; 6]).await.unwrap();
        }
    }
}
