//! One message with its descriptors.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::Serialize;

use super::{DESCRIPTORS_MAX, MESSAGE_MAX};
use crate::error::Error;

/// Result of a receive.
#[derive(Debug)]
pub(crate) enum Received {
    /// A message, not yet read.
    Message(Vec<u8>, Vec<OwnedFd>),
    /// Longer than any message is, or with more descriptors.
    Cut,
    /// Nothing for now, or not in time.
    Nothing,
    /// The other side is gone.
    Hangup,
}

/// Takes a message from a socket.
///
/// # Errors
/// The socket failed.
pub(crate) fn receive(socket: BorrowedFd<'_>, flags: RecvFlags) -> Result<Received, Error> {
    let mut bytes = vec![0; MESSAGE_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let mut buffers = [IoSliceMut::new(&mut bytes)];
    let message = loop {
        match recvmsg(socket, &mut buffers, &mut ancillary, flags) {
            Ok(message) => break message,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(Received::Nothing),
            Err(Errno::CONNRESET) => return Ok(Received::Hangup),
            Err(errno) => return Err(Error::system("receiving a message")(errno)),
        }
    };
    let mut descriptors = Vec::new();
    for control in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = control {
            descriptors.extend(rights);
        }
    }
    if message
        .flags
        .intersects(ReturnFlags::CTRUNC | ReturnFlags::TRUNC)
    {
        return Ok(Received::Cut);
    }
    if message.bytes == 0 {
        return Ok(Received::Hangup);
    }
    bytes.truncate(message.bytes);
    Ok(Received::Message(bytes, descriptors))
}

/// Sends a message.
///
/// # Errors
/// It is too long, the other side is gone, or does not read in time.
pub(crate) fn send(
    socket: BorrowedFd<'_>,
    message: &impl Serialize,
    descriptors: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> Result<(), Error> {
    let bytes = serde_json::to_vec(message)?;
    if bytes.len() > MESSAGE_MAX || descriptors.len() > DESCRIPTORS_MAX {
        return Err(Error::TooLong(bytes.len()));
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        // There is room for as many as were let through above.
        let _ = ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    let flags = flags | SendFlags::NOSIGNAL;
    loop {
        match sendmsg(socket, &[IoSlice::new(&bytes)], &mut ancillary, flags) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Err(Error::Timeout),
            Err(Errno::PIPE | Errno::CONNRESET) => return Err(Error::Hangup),
            Err(errno) => return Err(Error::system("sending a message")(errno)),
        }
    }
}
