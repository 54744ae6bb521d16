//! Serves the agent's socket: one connection, one request, one reply.
//!
//! Only root of the node is a client.

use std::fs;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use book::ledger::Made;
use cni_spec::{
    ACK, CniVersion, Command, ConfHead, FRAME_HEADER, Reply, Request, SpecError, decode_header,
    encode_frame,
};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use self::peer::Stranger;

mod peer;

use listen::Door;
use telemetry::failpoint::reached;

use crate::error::AgentError;
use crate::node::Node;
use crate::{capture, cni, explain, views};

/// Room for the descriptors of one message: one, and a few that are closed again.
const DESCRIPTORS: usize = 4;

/// Connections at a time; more of them wait to be accepted.
const CONNECTIONS: usize = 512;

/// How long a request may take to arrive.
const REQUEST: Duration = Duration::from_secs(10);

/// Time for open connections to finish when the agent stops.
///
/// A peer that neither sends nor closes must not delay the stop.
const DRAIN: Duration = Duration::from_secs(10);

/// Opens the socket, in place of one that a dead agent left.
///
/// # Errors
/// When another agent answers there, or the directory cannot be used.
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    if let Some(directory) = path.parent() {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(directory)?;
    }
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => {
            if std::os::unix::net::UnixStream::connect(path).is_ok() {
                let text = format!("another agent listens on {}", path.display());
                return Err(io::Error::new(io::ErrorKind::AddrInUse, text));
            }
            fs::remove_file(path)?;
        }
        Ok(_) => {
            let text = format!("{} is there and is no socket", path.display());
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Serves connections until `stop` is true, then those that have come.
///
/// The socket at `path` goes first, so that plugins wait for the next agent instead of connecting to
/// this one. The time for the rest is limited.
pub async fn serve(
    node: Arc<Node>,
    path: PathBuf,
    listener: UnixListener,
    mut stop: watch::Receiver<bool>,
) {
    let mut open = JoinSet::new();
    let mut door = Door::new("CNI socket");
    loop {
        tokio::select! {
            stream = door.next(&listener), if open.len() < CONNECTIONS => {
                let node = Arc::clone(&node);
                open.spawn(async move { connection(&node, stream).await });
            }
            _ = stop.wait_for(|stop| *stop) => break,
            Some(_) = open.join_next(), if !open.is_empty() => {}
        }
    }
    if let Err(error) = fs::remove_file(&path) {
        tracing::warn!(socket = %path.display(), %error, "the agent's socket could not be removed, the next agent replaces it");
    }
    for stream in waiting(listener, CONNECTIONS.saturating_sub(open.len())) {
        let node = Arc::clone(&node);
        open.spawn(async move { connection(&node, stream).await });
    }
    let finished = async { while open.join_next().await.is_some() {} };
    if timeout(DRAIN, finished).await.is_err() {
        // What they were about is recorded: the next start goes on with it.
        tracing::warn!("connections were still open, and are cut");
    }
}

/// Accepts the connections that wait in the kernel's queue, up to a number.
///
/// The listener is closed. A plugin whose connection is closed here sends its request to the next agent.
fn waiting(listener: UnixListener, most: usize) -> Vec<UnixStream> {
    // The kernel is asked: the async runtime may not have heard of the latest ones yet.
    let accepted = listener.into_std().map(|listener| {
        let next = || listener.accept().ok();
        std::iter::from_fn(next)
            .take(most)
            .filter_map(|(stream, _)| {
                stream.set_nonblocking(true).ok()?;
                UnixStream::from_std(stream).ok()
            })
            .collect()
    });
    accepted.unwrap_or_default()
}

async fn connection(node: &Arc<Node>, mut stream: UnixStream) {
    if let Err(error) = converse(node, &mut stream).await {
        tracing::debug!(%error, "a connection of the agent's socket ended early");
    }
}

/// Why a conversation ended before its end.
#[derive(Debug, thiserror::Error)]
enum Interrupted {
    #[error(transparent)]
    Stranger(#[from] Stranger),
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Frame(#[from] SpecError),
}

async fn converse(node: &Arc<Node>, stream: &mut UnixStream) -> Result<(), Interrupted> {
    peer::check(stream).inspect_err(peer::refused)?;
    let received = timeout(REQUEST, receive(stream)).await;
    let (body, descriptor) = received.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    match Request::from_body(&body) {
        Ok(Request::Cni(request)) => {
            let netns = descriptor.and_then(|fd| node.host.netlink.adopt(fd).ok());
            // A task of its own: half an attachment must not be left because its runtime went away.
            let (worker, asked) = (Arc::clone(node), request.clone());
            let work = tokio::spawn(async move { cni::serve(&worker, &asked, netns).await });
            let Ok(answer) = work.await else {
                return Ok(());
            };
            let version = ConfHead::version_of(request.config.get());
            let is_add = request.command == Command::Add;
            let heard = deliver(stream, &answer.reply, version, is_add).await;
            match (answer.attachment, &heard) {
                (Some(made), Ok(true)) => note_heard(node, &made),
                (Some(made), Ok(false) | Err(_)) => roll_back(node, &made).await,
                (None, _) => {}
            }
            heard.map(|_| ())
        }
        Ok(Request::Get(request)) => {
            let reply = as_reply(views::get(node, &request).await);
            deliver(stream, &reply, CniVersion::LATEST, false)
                .await
                .map(|_| ())
        }
        Ok(Request::Explain(request)) => {
            let reply = as_reply(views::explain(node, &request));
            deliver(stream, &reply, CniVersion::LATEST, false)
                .await
                .map(|_| ())
        }
        Ok(Request::Follow(request)) => {
            let reply = as_reply(explain::follow(node, &request).await);
            deliver(stream, &reply, CniVersion::LATEST, false)
                .await
                .map(|_| ())
        }
        Ok(Request::Capture(request)) => {
            let begun = capture::begin(node, &request).await;
            let about = begun.as_ref().map(|running| running.about.clone());
            let reply = match about {
                Ok(about) => as_reply(Ok(about)),
                Err(error) => refuse(error),
            };
            let told = deliver(stream, &reply, CniVersion::LATEST, false).await;
            match begun {
                Ok(running) if told.is_ok() => Ok(running.pass(node, stream).await?),
                Ok(running) => {
                    running.finish(node).await;
                    told.map(|_| ())
                }
                Err(_) => told.map(|_| ()),
            }
        }
        Err(error) => {
            let reply = Reply::Error(error.to_cni(CniVersion::LATEST));
            deliver(stream, &reply, CniVersion::LATEST, false)
                .await
                .map(|_| ())
        }
    }
}

/// Undoes an attachment whose runtime did not get the answer.
///
/// Keeps it when a repeated `ADD` has told it since or is about to, and when the key is another
/// attachment's by now.
async fn roll_back(node: &Arc<Node>, made: &Made) {
    let _guard = node.book.turn(&made.key.container).await;
    let unheard = if made.is_pod {
        node.book.pods().unheard(&made.key, made.generation)
    } else {
        node.book.ledger().unheard(made)
    };
    if unheard {
        tracing::warn!(attachment = %made.key, "the runtime closed its connection before the answer, the attachment is undone");
        node.undo_any(&made.key).await;
    }
}

fn note_heard(node: &Node, made: &Made) {
    if made.is_pod {
        node.book.pods().heard(&made.key, made.generation);
    } else {
        node.book.ledger().heard(made);
    }
}

fn refuse(error: &AgentError) -> Reply {
    Reply::Error(cni::error::to_cni(
        error,
        Command::Check,
        CniVersion::LATEST,
        0,
    ))
}

fn as_reply(value: Result<serde_json::Value, AgentError>) -> Reply {
    match value {
        Ok(value) => Reply::ok(&value).unwrap_or_else(|error| refuse(&error.into())),
        Err(error) => refuse(&error),
    }
}

/// Reads one frame, and the descriptor that came with its first bytes.
async fn receive(stream: &mut UnixStream) -> Result<(Vec<u8>, Option<OwnedFd>), Interrupted> {
    let mut first = vec![0; 16 * 1024];
    let (length, descriptor) = stream
        .async_io(Interest::READABLE, || receive_some(stream, &mut first))
        .await?;
    let mut received = first.get(..length).unwrap_or_default().to_vec();
    while received.len() < FRAME_HEADER {
        if stream.read_buf(&mut received).await? == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
    }
    let body = received.split_off(FRAME_HEADER);
    let header = <[u8; FRAME_HEADER]>::try_from(received.as_slice())
        .map_err(|_| io::Error::from(io::ErrorKind::UnexpectedEof))?;
    let wanted = decode_header(header)?;
    let mut body = body;
    while body.len() < wanted {
        if stream.read_buf(&mut body).await? == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
    }
    body.truncate(wanted);
    Ok((body, descriptor))
}

fn receive_some(stream: &UnixStream, into: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(
        stream,
        &mut [IoSliceMut::new(into)],
        &mut ancillary,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    let mut descriptor = None;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            for found in descriptors {
                descriptor.get_or_insert(found);
            }
        }
    }
    Ok((received.bytes, descriptor))
}

/// Sends the reply; true when the client has it.
///
/// The plugin confirms an `ADD` once its runtime has the result. A result larger than a frame is
/// replaced by an error, so the runtime does not have it.
async fn deliver(
    stream: &mut UnixStream,
    reply: &Reply,
    version: CniVersion,
    acknowledged: bool,
) -> Result<bool, Interrupted> {
    let sent = reply.to_fitting_body(version)?;
    stream.write_all(&encode_frame(&sent.body)?).await?;
    if sent.replaced {
        tracing::warn!("the reply was larger than a frame; the plugin was told so");
        return Ok(false);
    }
    if !acknowledged || matches!(reply, Reply::Error(_)) {
        return Ok(true);
    }
    reached("add.replied");
    let mut ack = [0];
    Ok(stream.read(&mut ack).await? == 1 && ack == [ACK])
}
