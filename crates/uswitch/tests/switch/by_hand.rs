//! Speaking to the switch without its client.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use memif::Address;
use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recvmsg,
    sendmsg,
};
use uswitch::control::VERSION;

use super::scene::Scene;

/// Somebody who speaks to the switch by hand.
pub(crate) struct ByHand(pub(crate) OwnedFd);

impl ByHand {
    /// Connected, and nothing said.
    pub(crate) fn new(scene: &Scene) -> Self {
        let socket = Address::Path(scene.socket()).connect().unwrap();
        ioctl_fionbio(&socket, false).unwrap();
        let patience = Some(Duration::from_secs(30));
        set_socket_timeout(&socket, Timeout::Recv, patience).unwrap();
        Self(socket)
    }

    /// Hello was said, and heard.
    pub(crate) fn greeted(scene: &Scene) -> Self {
        let asker = Self::new(scene);
        asker.say(&format!(r#"{{"request":"hello","version":{VERSION}}}"#));
        assert!(asker.hear().unwrap().contains(r#""reply":"hello""#));
        asker
    }

    pub(crate) fn say(&self, text: &str) {
        self.try_say(text.as_bytes(), &[]).unwrap();
    }

    /// Says something, without waiting.
    pub(crate) fn try_say(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(128))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(fds)));
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        sendmsg(&self.0, &[IoSlice::new(bytes)], &mut ancillary, flags).map(|_| ())
    }

    /// The next message; its descriptors are closed.
    pub(crate) fn hear(&self) -> Option<String> {
        let mut bytes = vec![0; 65536];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut buffers = [IoSliceMut::new(&mut bytes)];
        let message = recvmsg(&self.0, &mut buffers, &mut ancillary, RecvFlags::empty());
        let len = message.map_or(0, |message| message.bytes);
        (len > 0).then(|| String::from_utf8(bytes[..len].to_vec()).unwrap())
    }
}
