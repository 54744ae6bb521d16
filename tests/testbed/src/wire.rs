//! The shim's side of the agent's socket, to die at a given moment.
//!
//! The real shim cannot be made to do that on cue.

use std::io::{IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use cni_spec::{ACK, CniRequest, Invocation, Reply, Request, encode_frame, read_frame};
use netdev::Netns;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::wait::PATIENCE;

/// A connection with one request on its way.
#[derive(Debug)]
pub struct Exchange {
    stream: UnixStream,
}

impl Exchange {
    /// Sends a CNI request with a namespace's descriptor.
    ///
    /// # Panics
    /// If that fails.
    pub fn send(socket: &Path, env: &[(&str, &str)], conf: &Value, netns: &Netns) -> Self {
        let lookup = |name: &str| {
            let found = env.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let invocation = Invocation::from_env(lookup).expect("a valid call");
        let config = RawValue::from_string(conf.to_string()).expect("JSON");
        let request = Request::Cni(CniRequest::new(&invocation, config));
        let body = request.to_body().expect("a request can be written");
        let frame = encode_frame(&body).expect("a request fits a frame");

        let mut stream = UnixStream::connect(socket).expect("the agent listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let fds = [netns.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&fds)));
        let slices = [IoSlice::new(&frame)];
        let sent = sendmsg(&stream, &slices, &mut ancillary, SendFlags::NOSIGNAL);
        let rest = frame.get(sent.expect("the agent reads")..);
        stream
            .write_all(rest.unwrap_or_default())
            .expect("the agent reads");
        Self { stream }
    }

    /// Reads the reply.
    ///
    /// # Panics
    /// If none comes.
    pub fn reply(&mut self) -> Reply {
        let body = read_frame(&mut self.stream).expect("the agent answers");
        Reply::from_body(&body).expect("the answer is a reply")
    }

    /// Tells the agent that the runtime has the result.
    ///
    /// # Panics
    /// If the agent is gone.
    pub fn acknowledge(mut self) {
        self.stream.write_all(&[ACK]).expect("the agent reads");
    }
}
