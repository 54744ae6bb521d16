//! The agent's side of the socket.

use std::fs;
use std::io::{IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use cni_spec::{
    CniRequest, FRAME_HEADER, Lease, Question, Reply, Request, decode_header, write_frame,
};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::time::{ClockId, clock_gettime};
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

    /// Leaves a lease that ends so long from now, and answers these configurations.
    pub(crate) fn lease(&self, left: Duration, ready: &[Question]) {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        let lease = Lease::ending(&boot, boottime() + left, ready);
        self.write_lease(&lease.to_string());
    }

    pub(crate) fn write_lease(&self, text: &str) {
        fs::write(self.lease_file(), text).unwrap();
        fs::set_permissions(self.lease_file(), fs::Permissions::from_mode(0o600)).unwrap();
    }

    pub(crate) fn lease_file(&self) -> PathBuf {
        self.dir().join("lease")
    }

    /// Listens, loses some requests, and answers the next one with success.
    pub(crate) fn lose_then_serve(&self, lost: usize, value: &str) -> JoinHandle<Vec<CniRequest>> {
        let listener = UnixListener::bind(self.socket()).unwrap();
        let body = format!(r#"{{"v":1,"ok":{value}}}"#);
        thread::spawn(move || {
            let mut requests = Vec::new();
            for _ in 0..lost {
                let (mut stream, _) = listener.accept().unwrap();
                requests.push(receive(&mut stream).0);
            }
            let (mut stream, _) = listener.accept().unwrap();
            requests.push(receive(&mut stream).0);
            send(&mut stream, body.as_bytes());
            let mut after = Vec::new();
            let _ = stream.read_to_end(&mut after);
            requests
        })
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

/// The clock that leases end by.
pub(crate) fn boottime() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap()
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
