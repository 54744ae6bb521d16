//! The agent's side of the socket.

use std::io::{IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};

use cni_spec::{CniRequest, FRAME_HEADER, Reply, Request, decode_header, write_frame};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use serde_json::Value;
use tempfile::TempDir;

/// A directory for one agent's socket.
#[derive(Debug)]
pub(crate) struct Place {
    dir: TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self {
            dir: TempDir::new().unwrap(),
        }
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir().join("agent.sock")
    }

    pub(crate) fn pending(&self) -> PathBuf {
        self.dir().join("pending-del")
    }

    /// A socket without a listener, as a killed agent leaves it.
    pub(crate) fn abandon_socket(&self) {
        drop(UnixListener::bind(self.socket()).unwrap());
    }

    /// Listens, takes one request, and lets `answer` do the rest of the connection.
    pub(crate) fn serve(
        &self,
        answer: impl FnOnce(&mut UnixStream) + Send + 'static,
    ) -> JoinHandle<Seen> {
        let listener = UnixListener::bind(self.socket()).unwrap();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let (request, fds) = receive(&mut stream);
            answer(&mut stream);
            let mut after = Vec::new();
            // A peer that went away with our reply unread resets the connection.
            let _ = stream.read_to_end(&mut after);
            Seen {
                request,
                fds,
                after,
            }
        })
    }

    /// As above, answering with this value.
    pub(crate) fn serve_ok(&self, value: &str) -> JoinHandle<Seen> {
        let body = format!(r#"{{"v":1,"ok":{value}}}"#);
        self.serve(move |stream| send(stream, body.as_bytes()))
    }

    /// As above, answering with an error.
    pub(crate) fn serve_error(&self, error: Value) -> JoinHandle<Seen> {
        let reply = Reply::Error(serde_json::from_value(error).unwrap());
        self.serve(move |stream| send(stream, &reply.to_body().unwrap()))
    }

    /// As above, closing the connection without an answer.
    pub(crate) fn serve_nothing(&self) -> JoinHandle<Seen> {
        self.serve(|stream| stream.shutdown(std::net::Shutdown::Both).unwrap())
    }
}

/// The request that came over the connection, and the bytes after it.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) request: CniRequest,
    pub(crate) fds: Vec<OwnedFd>,
    /// Everything after the request, until the other side closed.
    pub(crate) after: Vec<u8>,
}

/// Sends a frame; the other side may be gone already.
pub(crate) fn send(stream: &mut UnixStream, body: &[u8]) {
    let _ = write_frame(stream, body);
}

/// Sends raw bytes.
pub(crate) fn send_raw(stream: &mut UnixStream, bytes: &[u8]) {
    let _ = stream.write_all(bytes);
}

fn receive(stream: &mut UnixStream) -> (CniRequest, Vec<OwnedFd>) {
    let mut first = [0_u8; FRAME_HEADER];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(
        &*stream,
        &mut [IoSliceMut::new(&mut first)],
        &mut ancillary,
        RecvFlags::CMSG_CLOEXEC,
    )
    .unwrap();
    assert_eq!(received.bytes, FRAME_HEADER);
    let fds = ancillary
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        })
        .flatten()
        .collect();
    let mut body = vec![0; decode_header(first).unwrap()];
    stream.read_exact(&mut body).unwrap();
    match Request::from_body(&body).unwrap() {
        Request::Cni(request) => (request, fds),
        other => panic!("not a CNI request: {other:?}"),
    }
}
