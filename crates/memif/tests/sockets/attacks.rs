//! Test attacks of a client with real files; the listener still serves others.
//!
//! Each test is a row of the table of attacks (facts 1.6).

use std::fs::File;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, Instant};

use memif::wire::{AddRegion, Init, Message, VERSION};
use memif::{Address, Closed, Event, Listener, Region, Secret, ServerConnection, Violation};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{
    FallocateFlags, MemfdFlags, OFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_getfl,
    fcntl_setfl, ftruncate, memfd_create,
};

use super::scene::{
    Rogue, accept, address, assert_alive, closed, config, event, is_readable, layout, name, sealed,
    unsealed, until, wait,
};

struct Scene {
    address: Address,
    listener: Listener,
}

impl Scene {
    fn new() -> Self {
        let address = address();
        let listener = Listener::bind(&address, config()).unwrap();
        Self { address, listener }
    }

    fn rogue(&self) -> (Rogue, ServerConnection) {
        Rogue::new(&self.address, &self.listener)
    }

    fn assert_alive(&self) {
        assert_alive(&self.address, &self.listener);
    }

    /// The server's verdict about a region; the client is told the same.
    fn judge(&self, memory: BorrowedFd<'_>, size: u64) -> Violation {
        let (rogue, mut connection) = self.rogue();
        let event = event();
        let rings = layout();
        let place = rings.c2s[0].0;
        let outcome = rogue.offer(
            &mut connection,
            memory,
            size,
            &[(place, true, event.as_fd())],
        );
        let violation = violation(outcome);
        assert_eq!(rogue.hear().map(told), Some(violation.to_string()));
        drop(connection);
        self.assert_alive();
        violation
    }
}

fn violation(event: Event) -> Violation {
    match closed(event) {
        Closed::Violation(violation) => violation,
        other => panic!("{other}"),
    }
}

fn told(message: Message) -> String {
    match message {
        Message::Disconnect(disconnect) => disconnect.reason.to_string(),
        other => panic!("{other:?}"),
    }
}

/// A region that is as it should be, with empty rings.
fn good_memory() -> OwnedFd {
    let layout = layout();
    let memory = sealed(layout.size().into());
    for (place, _) in layout.c2s.iter().chain(&layout.s2c) {
        let cookie = 0x03E3_1F20_u32.to_ne_bytes();
        rustix::io::pwrite(&memory, &cookie, place.offset.into()).expect("room");
    }
    memory
}

#[test]
fn attack_region_unsealed_then_truncated() {
    let scene = Scene::new();
    let size = u64::from(layout().size());
    let memory = unsealed(size);
    assert_eq!(scene.judge(memory.as_fd(), size), Violation::Unsealed(0));
    // Other seals are no promise not to shrink.
    fcntl_add_seals(&memory, SealFlags::GROW | SealFlags::SEAL).unwrap();
    assert_eq!(scene.judge(memory.as_fd(), size), Violation::Unsealed(0));
    // A memfd that was made without sealing can never be sealed.
    let memory = memfd_create("x", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&memory, size).unwrap();
    assert_eq!(scene.judge(memory.as_fd(), size), Violation::Unsealed(0));
    // With the seal the kernel keeps the promise.
    let memory = good_memory();
    assert!(ftruncate(&memory, 0).is_err());
}

#[test]
fn attack_region_larger_than_its_file() {
    let scene = Scene::new();
    let size = u64::from(layout().size());
    let memory = sealed(size);
    for claimed in [size + 1, size * 2, 128 << 20] {
        let expected = Violation::RegionBeyondFile {
            index: 0,
            claimed,
            actual: size,
        };
        assert_eq!(scene.judge(memory.as_fd(), claimed), expected);
    }
    let empty = sealed(0);
    assert!(matches!(
        scene.judge(empty.as_fd(), size),
        Violation::RegionBeyondFile { actual: 0, .. }
    ));
}

#[test]
fn attack_region_sealed_against_writing() {
    let scene = Scene::new();
    let size = u64::from(layout().size());
    for seal in [SealFlags::WRITE, SealFlags::FUTURE_WRITE] {
        let memory = sealed(size);
        fcntl_add_seals(&memory, seal).unwrap();
        let violation = scene.judge(memory.as_fd(), size);
        assert!(matches!(violation, Violation::Unmappable { index: 0, .. }));
    }
}

#[test]
fn attack_region_on_huge_pages() {
    let scene = Scene::new();
    let size = 2 << 20;
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB;
    // No page is taken: the file has its size without any.
    let Ok(memory) = memfd_create("huge", flags) else {
        // A kernel without huge pages has no such region either.
        return;
    };
    ftruncate(&memory, size).unwrap();
    fcntl_add_seals(&memory, SealFlags::SHRINK).unwrap();
    assert_eq!(scene.judge(memory.as_fd(), size), Violation::HugePages(0));
}

#[test]
fn attack_descriptors_that_are_no_memory() {
    let scene = Scene::new();
    let (pipe, _other) = std::io::pipe().unwrap();
    let device = File::open("/dev/zero").unwrap();
    let directory = File::open("/").unwrap();
    let path = rustix::fs::open("/", OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
    let (socket, _peer) = super::scene::seqpacket_pair();
    let event = event();
    for fd in [
        pipe.as_fd(),
        device.as_fd(),
        directory.as_fd(),
        path.as_fd(),
        socket.as_fd(),
        event.as_fd(),
    ] {
        let (rogue, mut connection) = scene.rogue();
        rogue.init(&mut connection);
        let region = Message::AddRegion(AddRegion {
            index: 0,
            size: 4096,
        });
        rogue.say(&region, &[fd]);
        let outcome = connection.ready(Instant::now()).unwrap();
        assert_eq!(violation(outcome), Violation::NotMemory(0));
        assert_eq!(rogue.hear().map(told).unwrap(), "region 0 is not a memfd");
    }
    scene.assert_alive();
}

#[test]
fn attack_descriptors_that_are_no_eventfd() {
    let scene = Scene::new();
    let place = layout().c2s[0].0;
    let (pipe, _other) = std::io::pipe().unwrap();
    // A name is easily had; this one begins with a slash all the same.
    let named = memfd_create("anon_inode:[eventfd]", MemfdFlags::CLOEXEC).unwrap();
    let epoll = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC).unwrap();
    for fd in [pipe.as_fd(), named.as_fd(), epoll.as_fd()] {
        let (rogue, mut connection) = scene.rogue();
        rogue.init(&mut connection);
        let ring = Message::AddRing(memif::wire::AddRing {
            from_client: true,
            index: 0,
            region: 0,
            offset: place.offset,
            log2_ring_size: 3,
            private_hdr_size: 0,
        });
        rogue.say(&ring, &[fd]);
        let outcome = connection.ready(Instant::now()).unwrap();
        assert_eq!(violation(outcome), Violation::NotEvent(0));
    }
    scene.assert_alive();
}

#[test]
fn attack_more_descriptors_than_belong_to_a_message() {
    let scene = Scene::new();
    let memory = sealed(4096);
    for count in [2, 3, 16, 60] {
        let (rogue, mut connection) = scene.rogue();
        rogue.init(&mut connection);
        let region = Message::AddRegion(AddRegion {
            index: 0,
            size: 4096,
        });
        let many = vec![memory.as_fd(); count];
        rogue.say(&region, &many);
        let outcome = violation(connection.ready(Instant::now()).unwrap());
        assert!(
            matches!(
                outcome,
                Violation::DescriptorsExtra { .. } | Violation::DescriptorsCut
            ),
            "{outcome}"
        );
    }
    scene.assert_alive();
    // Pipes are closed on threads of their own; of this one only our ends stay.
    let (reader, writer) = std::io::pipe().unwrap();
    let pipe = std::fs::metadata(format!("/proc/self/fd/{}", reader.as_raw_fd())).unwrap();
    let open = || {
        let files = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        // Other tests close theirs meanwhile.
        let found = files.filter_map(|file| std::fs::metadata(file.path()).ok());
        found
            .filter(|it| (it.dev(), it.ino()) == (pipe.dev(), pipe.ino()))
            .count()
    };
    for _ in 0..100 {
        let (rogue, mut connection) = scene.rogue();
        rogue.say(&Message::Ack, &[reader.as_fd(), writer.as_fd()]);
        violation(connection.ready(Instant::now()).unwrap());
        // Of more than some that wait to be closed, the rest would stay open.
        until(|| open() == 2);
    }
}

#[test]
fn attack_ring_without_a_cookie() {
    let scene = Scene::new();
    let size = u64::from(layout().size());
    let violation = scene.judge(sealed(size).as_fd(), size);
    assert_eq!(violation, Violation::Cookie { found: 0 });
}

/// ATT-03a: memory of a file that a client keeps open is charged to nobody.
///
/// Pages that this process touched first are charged to it for as long as the file is there. The client
/// keeps the file and what it had written; at the end nothing of it is charged.
#[test]
fn attack_memory_that_is_kept_open_after_the_connection() {
    let scene = Scene::new();
    let layout = layout();
    let pages = |memory: &OwnedFd| rustix::fs::fstat(memory).unwrap().st_blocks;
    for ends_by_itself in [true, false] {
        let memory = good_memory();
        let events = [event(), event()];
        let (rogue, mut connection) = scene.rogue();
        let outcome = rogue.offer(
            &mut connection,
            memory.as_fd(),
            layout.size().into(),
            &[
                (layout.c2s[0].0, true, events[0].as_fd()),
                (layout.s2c[0].0, false, events[1].as_fd()),
            ],
        );
        let Event::Connected(port) = outcome else {
            panic!("{outcome:?}");
        };
        assert!(pages(&memory) > 0, "its rings are there");
        // With this seal the kernel would not let us make a hole.
        let sealed = fcntl_add_seals(&memory, SealFlags::FUTURE_WRITE);
        assert_eq!(sealed, Err(rustix::io::Errno::PERM));
        if ends_by_itself {
            drop(rogue);
            wait(&[connection.fd()]);
            let why = closed(connection.ready(Instant::now()).unwrap());
            assert!(matches!(why, Closed::Hangup | Closed::Peer(_)), "{why}");
        } else {
            connection.violated(Violation::Doorbell);
        }
        assert!(scene.listener.doors()[0].is_taken(), "it is still mapped");
        drop(port);
        drop(connection);
        assert_eq!(pages(&memory), 0, "all pages are given back");
        assert!(!scene.listener.doors()[0].is_taken());
    }
    // What is refused is not kept either.
    let memory = sealed(layout.size().into());
    rustix::io::pwrite(&memory, &[1; 4096], 0).unwrap();
    let violation = scene.judge(memory.as_fd(), layout.size().into());
    assert!(matches!(violation, Violation::Cookie { .. }), "{violation}");
    assert_eq!(pages(&memory), 0);
    scene.assert_alive();
    proof::of!("ATT-03a");
}

/// F_SEAL_SHRINK permits holes; they read as zeroes and are filled again.
#[test]
fn attack_holes_punched_under_the_seal() {
    let scene = Scene::new();
    let layout = layout();
    let size = u64::from(layout.size());
    let memory = good_memory();
    let events = [event(), event()];
    let (rogue, mut connection) = scene.rogue();
    let outcome = rogue.offer(
        &mut connection,
        memory.as_fd(),
        size,
        &[
            (layout.c2s[0].0, true, events[0].as_fd()),
            (layout.s2c[0].0, false, events[1].as_fd()),
        ],
    );
    let Event::Connected(mut port) = outcome else {
        panic!("{outcome:?}");
    };
    assert!(matches!(rogue.hear(), Some(Message::Connected(_))));
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&memory, punch, 0, size).unwrap();
    assert_eq!(port.rx[0].burst(64, |_| panic!("zeroes")), Ok(0));
    assert_eq!(port.tx[0].push(&[1; 60]), Ok(memif::Sent::NoBuffer));
    fallocate(&memory, punch, 0, size).unwrap();
    assert_eq!(port.rx[0].arm(), Ok(true));
    drop(connection);
    scene.assert_alive();
}

#[test]
fn attack_eventfd_filled_and_made_blocking() {
    let scene = Scene::new();
    let layout = layout();
    let memory = good_memory();
    let full = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    rustix::io::write(&full, &(u64::MAX - 1).to_ne_bytes()).unwrap();
    let flags = fcntl_getfl(&full).unwrap();
    fcntl_setfl(&full, flags - OFlags::NONBLOCK).unwrap();
    let (rogue, mut connection) = scene.rogue();
    let outcome = rogue.offer(
        &mut connection,
        memory.as_fd(),
        layout.size().into(),
        &[(layout.s2c[0].0, false, full.as_fd())],
    );
    let Event::Connected(mut port) = outcome else {
        panic!("{outcome:?}");
    };
    // The client posts buffers by hand, and wants doorbells.
    let mine = Region::heap(1);
    assert!(!mine.is_empty());
    let ring = layout.s2c[0].0;
    for slot in 0..8_u64 {
        let at = u64::from(ring.offset) + 128 + 16 * slot;
        rustix::io::pwrite(&memory, &256_u32.to_ne_bytes(), at + 4).unwrap();
        let offset = layout.size() - 256;
        rustix::io::pwrite(&memory, &offset.to_ne_bytes(), at + 8).unwrap();
    }
    let at = u64::from(ring.offset);
    rustix::io::pwrite(&memory, &8_u16.to_ne_bytes(), at + 6).unwrap();
    // Each flush rings. None of these waits, or the test would not end.
    for _ in 0..8 {
        assert_eq!(port.tx[0].push(&[1; 60]), Ok(memif::Sent::Yes));
        port.tx[0].flush();
    }
    assert_eq!(port.tx[0].counters().doorbells, 8);
    // Its own thread hangs, and a second later by the caller's clock the client is found out.
    let start = Instant::now();
    let mut now = start;
    let found = loop {
        match connection.tick(now).unwrap() {
            Event::Nothing => now += Duration::from_millis(600),
            event => break violation(event),
        }
        assert!(start.elapsed() < Duration::from_secs(30), "waited in vain");
        std::thread::yield_now();
    };
    assert_eq!(found, Violation::Doorbell);
    drop(connection);
    scene.assert_alive();
}

#[test]
fn attack_slow_handshakes_fill_only_their_own_places() {
    let scene = Scene::new();
    let now = Instant::now();
    let mut idle = Vec::new();
    for _ in 0..16 {
        idle.push((scene.address.connect().unwrap(), accept(&scene.listener)));
    }
    // One more is sent away at once.
    let extra = scene.address.connect().unwrap();
    wait(&[scene.listener.fd()]);
    assert!(scene.listener.accept(now).unwrap().is_none());
    let rogue = Rogue { socket: extra };
    assert!(rogue.hear().is_none(), "closed without a word");
    for (_, connection) in &mut idle {
        let deadline = connection.deadline().unwrap();
        assert!(matches!(connection.tick(now), Ok(Event::Nothing)));
        let outcome = connection.tick(deadline).unwrap();
        assert_eq!(violation(outcome), Violation::Deadline);
    }
    drop(idle);
    scene.assert_alive();
}

#[test]
fn attack_flood_of_messages_that_are_not_read() {
    let scene = Scene::new();
    let (rogue, mut connection) = scene.rogue();
    rogue.init(&mut connection);
    // More than one look takes: whatever the first unexpected message is, it ends the connection.
    let init = Message::Init(Init {
        version: VERSION,
        id: 0,
        mode: 0,
        secret: Secret::default(),
        name: name("rogue"),
    });
    for _ in 0..10 {
        rogue.say(&init, &[]);
    }
    let outcome = violation(connection.ready(Instant::now()).unwrap());
    assert_eq!(outcome, Violation::Unexpected("INIT"));
    drop(connection);
    scene.assert_alive();
}

/// Kill -9 in every state of the handshake.
#[test]
fn attack_disappearance_at_every_step() {
    let scene = Scene::new();
    let layout = layout();
    for steps in 0..4 {
        let (rogue, mut connection) = scene.rogue();
        let memory = good_memory();
        let event = event();
        if steps >= 1 {
            rogue.init(&mut connection);
        }
        if steps >= 2 {
            let region = Message::AddRegion(AddRegion {
                index: 0,
                size: layout.size().into(),
            });
            rogue.agree(&mut connection, &region, &[memory.as_fd()]);
        }
        if steps >= 3 {
            let ring = Message::AddRing(memif::wire::AddRing {
                from_client: true,
                index: 0,
                region: 0,
                offset: layout.c2s[0].0.offset,
                log2_ring_size: 3,
                private_hdr_size: 0,
            });
            rogue.agree(&mut connection, &ring, &[event.as_fd()]);
            // It is gone before it hears CONNECTED.
            rogue.say(&Message::Connect(name("x")), &[]);
        }
        drop(rogue);
        let why = loop {
            match connection.ready(Instant::now()).unwrap() {
                Event::Closed(why) => break why,
                Event::Connected(_) | Event::Nothing => wait(&[connection.fd()]),
            }
        };
        assert_eq!(why, Closed::Hangup);
        drop(connection);
        assert!(!scene.listener.doors()[0].is_taken());
        assert!(!is_readable(scene.listener.fd()));
    }
    scene.assert_alive();
}
