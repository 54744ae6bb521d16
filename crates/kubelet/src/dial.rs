//! Calls over a Unix socket.

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::uri::PathAndQuery;
use prost::Message;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;

/// How long a call may take; the kubelet answers from its memory.
const PATIENCE: Duration = Duration::from_secs(10);
/// The devices of all pods of a node can be more than gRPC's 4 MiB.
const ANSWER_MAX: usize = 16 * 1024 * 1024;

/// A call that was not answered.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// No process listens there.
    #[error("cannot connect to {}", socket.display())]
    Connect {
        /// The socket.
        socket: PathBuf,
        /// Why not.
        source: tonic::transport::Error,
    },
    /// The listener refuses.
    #[error("{call} on {}: {} ({:?})", socket.display(), status.message(), status.code())]
    Refused {
        /// The socket.
        socket: PathBuf,
        /// The name of the call.
        call: &'static str,
        /// The answer.
        status: Box<Status>,
    },
}

impl CallError {
    /// True when the other side cannot be asked this, or not this way.
    pub fn is_unsupported(&self) -> bool {
        match self {
            Self::Connect { .. } => false,
            Self::Refused { status, .. } => {
                matches!(status.code(), Code::Unimplemented | Code::Unknown)
            }
        }
    }
}

/// Asks once and closes the connection.
pub(crate) async fn call<Q, A>(
    socket: &Path,
    path: &'static str,
    request: Q,
) -> Result<A, CallError>
where
    Q: Message + Send + Sync + 'static,
    A: Message + Default + Send + Sync + 'static,
{
    let mut grpc = connect(socket).await?;
    let mut request = Request::new(request);
    request.set_timeout(PATIENCE);
    let call = grpc.unary(request, PathAndQuery::from_static(path), ProstCodec::new());
    let answer = tokio::time::timeout(PATIENCE, call)
        .await
        .unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer in time")));
    answer
        .map(tonic::Response::into_inner)
        .map_err(|status| refused(socket, path, status))
}

/// Asks for what goes on being said.
pub(crate) async fn follow<Q, A>(
    socket: &Path,
    path: &'static str,
    request: Q,
) -> Result<Streaming<A>, CallError>
where
    Q: Message + Send + Sync + 'static,
    A: Message + Default + Send + Sync + 'static,
{
    let mut grpc = connect(socket).await?;
    let path_and_query = PathAndQuery::from_static(path);
    grpc.server_streaming(Request::new(request), path_and_query, ProstCodec::new())
        .await
        .map(tonic::Response::into_inner)
        .map_err(|status| refused(socket, path, status))
}

fn refused(socket: &Path, call: &'static str, status: Status) -> CallError {
    CallError::Refused {
        socket: socket.to_owned(),
        call,
        status: Box::new(status),
    }
}

async fn connect(socket: &Path) -> Result<Grpc<Channel>, CallError> {
    let connecting = async {
        let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display()))?;
        let endpoint = endpoint.connect_timeout(PATIENCE);
        let mut grpc = Grpc::new(endpoint.connect().await?).max_decoding_message_size(ANSWER_MAX);
        grpc.ready().await?;
        Ok(grpc)
    };
    connecting.await.map_err(|source| CallError::Connect {
        socket: socket.to_owned(),
        source,
    })
}
