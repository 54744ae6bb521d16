//! Test a client's file whose close never ends, on a file system without answers.

use std::fs::File;
use std::io::{IoSlice, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use memif::wire::{AddRegion, Init, MESSAGE_LEN, Message, VERSION};
use memif::{Closed, Event, Listener, Secret, Violation};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tempfile::TempDir;
use testbed::wait;

use super::testpmd::{Place, name, server_config};

/// Requests of the kernel (linux/fuse.h).
mod opcode {
    pub(super) const LOOKUP: u32 = 1;
    pub(super) const FORGET: u32 = 2;
    pub(super) const GETATTR: u32 = 3;
    pub(super) const OPEN: u32 = 14;
    pub(super) const FLUSH: u32 = 25;
    pub(super) const INIT: u32 = 26;
    pub(super) const INTERRUPT: u32 = 36;
    pub(super) const BATCH_FORGET: u32 = 42;
}
const ENOSYS: i32 = 38;
const DIRECTORY: u32 = 0o040_755;
const FILE: u32 = 0o100_666;

/// A file system with one file, `file`, whose close is never answered.
///
/// Dropping this ends it and all waits for it.
struct Fuse {
    dir: TempDir,
    server: Option<JoinHandle<()>>,
    closes: Receiver<()>,
}

impl Fuse {
    fn mount() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let device = File::options().read(true).write(true).open("/dev/fuse");
        let device = Arc::new(device.expect("FUSE"));
        let options = format!(
            "fd={},rootmode=40000,user_id=0,group_id=0",
            device.as_raw_fd()
        );
        let options = std::ffi::CString::new(options).expect("no NUL");
        let flags = MountFlags::NODEV | MountFlags::NOSUID;
        mount("podnet", dir.path(), "fuse", flags, options.as_c_str()).expect("mounted");
        let (said, closes) = channel();
        let server = thread::spawn(move || serve(&device, &said));
        Self {
            dir,
            server: Some(server),
            closes,
        }
    }

    fn file(&self) -> File {
        let path = self.dir.path().join("file");
        File::options()
            .read(true)
            .write(true)
            .open(path)
            .expect("the one file")
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        let flags = UnmountFlags::FORCE | UnmountFlags::DETACH;
        unmount(self.dir.path(), flags).expect("it was mounted");
        if let Some(server) = self.server.take() {
            server.join().expect("it ends with its file system");
        }
    }
}

/// Answers the kernel until the file system is gone.
fn serve(device: &File, closes: &Sender<()>) {
    let mut request = vec![0; 1 << 20];
    while let Ok(len) = (&mut &*device).read(&mut request) {
        let request = &request[..len];
        let number = |at: usize| u32::from_ne_bytes(request[at..at + 4].try_into().expect("4"));
        let unique = &request[8..16];
        let node = number(16);
        let answer: Result<Vec<u8>, i32> = match number(4) {
            opcode::INIT => {
                let mut answer = Vec::new();
                for word in [7_u32, 31, 0, 0, 0, 4096, 1] {
                    answer.extend(word.to_ne_bytes());
                }
                answer.resize(64, 0);
                Ok(answer)
            }
            opcode::LOOKUP => {
                let mut answer = Vec::new();
                // Node 2, good for a minute.
                for word in [2_u64, 1, 60, 60, 0] {
                    answer.extend(word.to_ne_bytes());
                }
                answer.extend(attributes(2, FILE));
                Ok(answer)
            }
            opcode::GETATTR => {
                let mut answer = Vec::new();
                for word in [60_u64, 0] {
                    answer.extend(word.to_ne_bytes());
                }
                answer.extend(attributes(node, if node == 1 { DIRECTORY } else { FILE }));
                Ok(answer)
            }
            opcode::OPEN => Ok(vec![0; 16]),
            opcode::FLUSH => {
                // And there it stays.
                let _ = closes.send(());
                continue;
            }
            opcode::FORGET | opcode::BATCH_FORGET | opcode::INTERRUPT => continue,
            _ => Err(ENOSYS),
        };
        let (error, body) = match answer {
            Ok(body) => (0, body),
            Err(error) => (-error, Vec::new()),
        };
        let len = u32::try_from(16 + body.len()).expect("a short answer");
        let mut reply = len.to_ne_bytes().to_vec();
        reply.extend(i32::to_ne_bytes(error));
        reply.extend(unique);
        reply.extend(body);
        if (&mut &*device).write(&reply).is_err() {
            break;
        }
    }
}

/// `struct fuse_attr` of a file of one page.
fn attributes(node: u32, mode: u32) -> Vec<u8> {
    let mut attributes = Vec::new();
    for word in [u64::from(node), 4096, 8, 0, 0, 0] {
        attributes.extend(word.to_ne_bytes());
    }
    for word in [0, 0, 0, mode, 1, 0, 0, 0, 4096, 0] {
        attributes.extend(u32::to_ne_bytes(word));
    }
    attributes
}

/// Facts 1.6: a descriptor that is no memory is refused.
///
/// A FUSE file is the worst: even to close it is to wait for the client.
#[test]
fn attack_file_that_never_closes() {
    let test = testbed::test_name!();
    if testbed::skip::without_root(test) {
        return;
    }
    if !Path::new("/dev/fuse").exists() {
        testbed::skip::skip(test, "needs FUSE");
        return;
    }
    let fuse = Fuse::mount();
    let file = fuse.file();
    let address = Place::abstract_address(&format!("podnet/close-{}", std::process::id()));
    let listener = Listener::bind(&address, server_config()).expect("a free address");
    let socket = address.connect().expect("it listens");
    let mut connection = wait::until("a client", || {
        listener.accept(Instant::now()).expect("accept")
    });
    let say = |message: Message, with_file: bool| {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let rights = [file.as_fd()];
        if with_file {
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(&rights)));
        }
        let bytes: [u8; MESSAGE_LEN] = message.encode();
        let sent = sendmsg(
            &socket,
            &[IoSlice::new(&bytes)],
            &mut ancillary,
            SendFlags::empty(),
        );
        sent.expect("it is there");
    };
    let init = Init {
        version: VERSION,
        id: 0,
        mode: 0,
        secret: Secret::default(),
        name: name("rogue"),
    };
    say(Message::Init(init), false);
    let region = AddRegion {
        index: 0,
        size: 4096,
    };
    say(Message::AddRegion(region), true);
    let (done, outcome) = channel();
    let server = thread::spawn(move || {
        let event = connection.ready(Instant::now()).expect("no trouble");
        // The connection goes too, with all that it has.
        drop(connection);
        let _ = done.send(event);
    });
    let event = outcome.recv_timeout(wait::PATIENCE);
    // Somebody does wait: otherwise this would prove nothing.
    let closed = fuse.closes.recv_timeout(wait::PATIENCE);
    drop(fuse);
    drop(file);
    server.join().expect("nobody waits any more");
    closed.expect("the file was closed by somebody");
    let event = event.expect("the server does not wait for the client's file");
    let Event::Closed(Closed::Violation(violation)) = event else {
        panic!("{event:?}");
    };
    assert_eq!(violation, Violation::NotMemory(0));
}
