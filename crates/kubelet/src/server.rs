//! Answers on a Unix socket.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt as _, StreamExt as _, future};
use prost::Message;
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::body::Body;
use tonic::server::Grpc;
use tonic::transport::Server;
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;
use tower::service_fn;

/// Between two attempts while the kernel gives no connection.
const PAUSE: Duration = Duration::from_millis(100);

/// Messages that go on coming.
pub(crate) type Stream<A> = BoxStream<'static, Result<A, Status>>;
type Work = Box<dyn FnOnce(http::Request<Body>) -> BoxFuture<'static, http::Response<Body>> + Send>;

/// The treatment of one call.
pub(crate) enum Answer {
    /// Something.
    Work(Work),
    /// There is no such call.
    Unknown,
}

impl fmt::Debug for Answer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Work(_) => "Work",
            Self::Unknown => "Unknown",
        })
    }
}

/// One message for one.
pub(crate) fn unary<Q, A>(answer: impl Fn(Q) -> Result<A, Status> + Send + 'static) -> Answer
where
    Q: Message + Default + Send + 'static,
    A: Message + Send + 'static,
{
    Answer::Work(Box::new(|request| {
        async move {
            let service = service_fn(move |asked: Request<Q>| {
                future::ready(answer(asked.into_inner()).map(Response::new))
            });
            let mut grpc = Grpc::new(ProstCodec::<A, Q>::new());
            grpc.unary(service, request).await
        }
        .boxed()
    }))
}

/// Messages that go on coming, for one.
pub(crate) fn stream<Q, A>(messages: Stream<A>) -> Answer
where
    Q: Message + Default + Send + 'static,
    A: Message + Send + 'static,
{
    Answer::Work(Box::new(|request| {
        async move {
            let mut messages = Some(messages);
            let service = service_fn(move |_: Request<Q>| {
                // A call is answered once.
                let messages = messages
                    .take()
                    .ok_or_else(|| Status::internal("asked twice"));
                future::ready(messages.map(Response::new))
            });
            let mut grpc = Grpc::new(ProstCodec::<A, Q>::new());
            grpc.server_streaming(service, request).await
        }
        .boxed()
    }))
}

/// Answers until `stop` says so or is gone, and until the last answer is given.
pub(crate) async fn serve(
    listener: UnixListener,
    route: impl Fn(&str) -> Answer + Clone + Send + 'static,
    mut stop: watch::Receiver<bool>,
) -> io::Result<()> {
    let service = service_fn(move |request: http::Request<Body>| {
        let answer = match route(request.uri().path()) {
            Answer::Work(work) => work(request),
            Answer::Unknown => {
                let status = Status::unimplemented("there is no such call");
                future::ready(status.into_http()).boxed()
            }
        };
        answer.map(Ok::<_, Infallible>)
    });
    let stopped = async move {
        // Either way it is time to stop.
        let _ = stop.wait_for(|stop| *stop).await;
    };
    // A process without descriptors would else try again at once, and again.
    let connections = UnixListenerStream::new(listener).then(|accepted| async move {
        if accepted.is_err() {
            sleep(PAUSE).await;
        }
        accepted
    });
    Server::builder()
        .serve_with_incoming_shutdown(service, connections, stopped)
        .await
        .map_err(io::Error::other)
}
