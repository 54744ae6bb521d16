//! A listener, honest clients, and a client that says and sends what it likes.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use memif::handshake::RingPlace;
use memif::wire::{AddRegion, AddRing, Init, MESSAGE_LEN, Message, VERSION};
use memif::{
    Address, Agreed, Client, ClientConfig, Closed, Door, Event, Layout, Listener, Name, Port,
    Secret, ServerConfig, ServerConnection, Text,
};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, recvmsg, sendmsg,
};

pub(crate) fn name(text: &str) -> Name {
    Text::new(text).unwrap()
}

/// An address that no other test has.
pub(crate) fn address() -> Address {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let nth = NEXT.fetch_add(1, Ordering::Relaxed);
    Address::Abstract(format!("memif-test-{}-{nth}", std::process::id()).into_bytes())
}

pub(crate) fn config() -> ServerConfig {
    ServerConfig::new(name("server"), Door::new(0, name("server/0")))
}

/// Waits until one of them is readable.
///
/// # Panics
/// After half a minute.
pub(crate) fn wait(fds: &[BorrowedFd<'_>]) {
    let mut polled: Vec<PollFd<'_>> = fds
        .iter()
        .map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN))
        .collect();
    let patience = Timespec {
        tv_sec: 30,
        tv_nsec: 0,
    };
    let ready = poll(&mut polled, Some(&patience)).expect("poll");
    assert!(ready > 0, "waited in vain");
}

pub(crate) fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let mut polled = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut polled, Some(&now)).expect("poll") > 0
}

/// The next client of a listener.
pub(crate) fn accept(listener: &Listener) -> ServerConnection {
    wait(&[listener.fd()]);
    let accepted = listener.accept(Instant::now()).expect("accept");
    accepted.expect("there is room")
}

/// Both sides until both have their ports.
pub(crate) fn connect(client: &mut Client, listener: &Listener) -> (Port, ServerConnection, Port) {
    let now = Instant::now();
    let event = client.poll(now).expect("a server listens");
    assert!(matches!(event, Event::Nothing), "{event:?}");
    let mut connection = accept(listener);
    let (mut ours, mut theirs) = (None, None);
    while ours.is_none() || theirs.is_none() {
        wait(&[connection.fd(), client.fd().expect("it is connected")]);
        match connection.ready(now).expect("no trouble") {
            Event::Nothing => {}
            Event::Connected(port) => ours = Some(port),
            Event::Closed(why) => panic!("server: {why}"),
        }
        match client.poll(now).expect("no trouble") {
            Event::Nothing => {}
            Event::Connected(port) => theirs = Some(port),
            Event::Closed(why) => panic!("client: {why}"),
        }
    }
    (ours.unwrap(), connection, theirs.unwrap())
}

/// A client and its server, connected.
pub(crate) fn pair(client: ClientConfig) -> (Listener, ServerConnection, Port, Client, Port) {
    let address = address();
    let listener = Listener::bind(&address, config()).expect("a free address");
    let mut client = Client::new(address, client, Instant::now()).expect("a usual node");
    let (ours, connection, theirs) = connect(&mut client, &listener);
    (listener, connection, ours, client, theirs)
}

/// A client without a state machine.
pub(crate) struct Rogue {
    pub(crate) socket: OwnedFd,
}

/// Memory that is sealed as it must be.
pub(crate) fn sealed(size: u64) -> OwnedFd {
    let memory = unsealed(size);
    fcntl_add_seals(&memory, SealFlags::SHRINK).expect("a seal");
    memory
}

pub(crate) fn unsealed(size: u64) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memory = memfd_create("rogue", flags).expect("a memfd");
    ftruncate(&memory, size).expect("a size");
    memory
}

pub(crate) fn event() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an eventfd")
}

impl Rogue {
    /// Connected, with HELLO received.
    pub(crate) fn new(address: &Address, listener: &Listener) -> (Self, ServerConnection) {
        let socket = address.connect().expect("a server listens");
        let connection = accept(listener);
        let rogue = Self { socket };
        assert!(matches!(rogue.hear(), Some(Message::Hello(_))));
        (rogue, connection)
    }

    pub(crate) fn say_bytes(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(descriptors)));
        }
        let sent = sendmsg(
            &self.socket,
            &[IoSlice::new(bytes)],
            &mut ancillary,
            SendFlags::NOSIGNAL,
        );
        sent.expect("the server is there");
    }

    pub(crate) fn say(&self, message: &Message, descriptors: &[BorrowedFd<'_>]) {
        self.say_bytes(&message.encode(), descriptors);
    }

    /// Returns the server's message; `None` when it has closed.
    pub(crate) fn hear(&self) -> Option<Message> {
        wait(&[self.socket.as_fd()]);
        let mut bytes = [0; MESSAGE_LEN];
        let mut ancillary = RecvAncillaryBuffer::default();
        let mut buffers = [IoSliceMut::new(&mut bytes)];
        let message = recvmsg(
            &self.socket,
            &mut buffers,
            &mut ancillary,
            RecvFlags::empty(),
        );
        match message {
            Ok(message) if message.bytes > 0 => {
                Some(Message::decode(&bytes).expect("a message of memif"))
            }
            _ => None,
        }
    }

    /// Says something that the server acknowledges.
    pub(crate) fn agree(
        &self,
        connection: &mut ServerConnection,
        message: &Message,
        descriptors: &[BorrowedFd<'_>],
    ) {
        self.say(message, descriptors);
        let event = connection.ready(Instant::now()).expect("no trouble");
        assert!(matches!(event, Event::Nothing), "{event:?}");
        assert!(matches!(self.hear(), Some(Message::Ack)));
    }

    pub(crate) fn init(&self, connection: &mut ServerConnection) {
        let init = Message::Init(Init {
            version: VERSION,
            id: 0,
            mode: 0,
            secret: Secret::default(),
            name: name("rogue"),
        });
        self.agree(connection, &init, &[]);
    }

    /// Runs the handshake to CONNECT, with this memory and these rings.
    ///
    /// Returns the server's event.
    pub(crate) fn offer(
        &self,
        connection: &mut ServerConnection,
        memory: BorrowedFd<'_>,
        size: u64,
        rings: &[(RingPlace, bool, BorrowedFd<'_>)],
    ) -> Event {
        self.init(connection);
        let region = Message::AddRegion(AddRegion { index: 0, size });
        self.agree(connection, &region, &[memory]);
        let (mut c2s, mut s2c) = (0, 0);
        for (place, from_client, event) in rings {
            let next = if *from_client { &mut c2s } else { &mut s2c };
            let ring = Message::AddRing(AddRing {
                from_client: *from_client,
                index: *next,
                region: place.region,
                offset: place.offset,
                log2_ring_size: place.log2_size,
                private_hdr_size: 0,
            });
            *next += 1;
            self.agree(connection, &ring, &[*event]);
        }
        self.say(&Message::Connect(name("rogue/0")), &[]);
        connection.ready(Instant::now()).expect("no trouble")
    }
}

/// Two rings of 8 slots and buffers of 256 bytes.
pub(crate) fn layout() -> Layout {
    let agreed = Agreed {
        app: name("rogue"),
        c2s_rings: 1,
        s2c_rings: 1,
        log2_ring_size: 3,
    };
    Layout::new(&agreed, 256).expect("a legal layout")
}

/// Why a connection was closed.
pub(crate) fn closed(event: Event) -> Closed {
    match event {
        Event::Closed(why) => why,
        other => panic!("not closed: {other:?}"),
    }
}

/// The listener still serves an honest client, and all it sends.
pub(crate) fn assert_alive(address: &Address, listener: &Listener) {
    let config = ClientConfig::new(name("honest"));
    let mut client = Client::new(address.clone(), config, Instant::now()).expect("a usual node");
    let (mut ours, _connection, mut theirs) = connect(&mut client, listener);
    assert_frames(&mut theirs, &mut ours);
    assert_frames(&mut ours, &mut theirs);
}

/// A frame on every ring of one port comes out of the other.
pub(crate) fn assert_frames(from: &mut Port, to: &mut Port) {
    assert_eq!(from.tx.len(), to.rx.len());
    for (nth, (tx, rx)) in (0_u8..).zip(from.tx.iter_mut().zip(&mut to.rx)) {
        let frame = [nth; 100];
        assert_eq!(tx.push(&frame), Ok(memif::Sent::Yes));
        tx.flush();
        let mut received = Vec::new();
        rx.burst(64, |packet| {
            let mut bytes = vec![0; packet.len() as usize];
            packet.read(0, &mut bytes);
            received.push(bytes);
        })
        .expect("an honest peer");
        assert_eq!(received, [frame]);
    }
}

/// Two ends of a socket, for a driver without a listener.
pub(crate) fn seqpacket_pair() -> (OwnedFd, OwnedFd) {
    rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .expect("a pair of sockets")
}

/// Looks again and again.
pub(crate) fn until(what: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !what() {
        assert!(Instant::now() < end, "waited in vain");
        std::thread::yield_now();
    }
}
