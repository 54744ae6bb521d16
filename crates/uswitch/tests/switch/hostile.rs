//! Clients that do what they must not. Each is alone with it.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use memif::wire::{AddRegion, AddRing, Hello, Init, MESSAGE_LEN, Message, VERSION};
use memif::{Agreed, Layout, Name, Secret, Text};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fstat, ftruncate, memfd_create};
use rustix::io::{ioctl_fionbio, pread, pwrite};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recvmsg,
    sendmsg,
};

use super::scene::{Pod, Scene, until};

/// Two others, who send each other frames all the time.
struct Others(Pod, Pod);

impl Others {
    fn new(scene: &Scene) -> Self {
        Self(scene.pod(7, 101), scene.pod(7, 102))
    }

    fn assert_undisturbed(&mut self) {
        let Self(one, other) = self;
        let frame = one.frame_to(other, 5);
        one.send(&frame);
        assert_eq!(other.receive(), frame);
        other.deliver(&frame);
        assert_eq!(other.receive(), frame);
        assert_eq!((one.poll(), other.poll()), (None, None));
    }
}

fn name(text: &str) -> Name {
    Text::new(text).unwrap()
}

/// A client without a state machine.
pub(crate) struct Rogue {
    socket: OwnedFd,
    memory: OwnedFd,
    events: [OwnedFd; 2],
    layout: Layout,
}

impl Rogue {
    pub(crate) fn new(pod: &Pod) -> Self {
        let agreed = Agreed {
            app: name("rogue"),
            c2s_rings: 1,
            s2c_rings: 1,
            log2_ring_size: 3,
        };
        let layout = Layout::new(&agreed, 256).unwrap();
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memory = memfd_create("rogue", flags).unwrap();
        ftruncate(&memory, layout.size().into()).unwrap();
        fcntl_add_seals(&memory, SealFlags::SHRINK).unwrap();
        for (place, _) in layout.c2s.iter().chain(&layout.s2c) {
            let cookie = 0x03E3_1F20_u32.to_ne_bytes();
            pwrite(&memory, &cookie, place.offset.into()).unwrap();
        }
        let event = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        let socket = pod.address.connect().unwrap();
        ioctl_fionbio(&socket, false).unwrap();
        let patience = Some(Duration::from_secs(30));
        set_socket_timeout(&socket, Timeout::Recv, patience).unwrap();
        Self {
            socket,
            memory,
            events: [event(), event()],
            layout,
        }
    }

    fn say(&self, message: &Message, descriptor: Option<BorrowedFd<'_>>) {
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let rights = descriptor.map(|fd| [fd]);
        if let Some(rights) = &rights {
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(rights)));
        }
        let bytes = message.encode();
        let bytes = [IoSlice::new(&bytes)];
        sendmsg(&self.socket, &bytes, &mut ancillary, SendFlags::NOSIGNAL).unwrap();
    }

    fn hear(&self) -> Option<Message> {
        let mut bytes = [0; MESSAGE_LEN];
        let mut none = RecvAncillaryBuffer::default();
        let mut buffers = [IoSliceMut::new(&mut bytes)];
        let heard = recvmsg(&self.socket, &mut buffers, &mut none, RecvFlags::empty());
        match heard {
            Ok(message) if message.bytes > 0 => Some(Message::decode(&bytes).unwrap()),
            _ => None,
        }
    }

    /// The first message of the switch.
    pub(crate) fn hello(&self) -> Hello {
        match self.hear() {
            Some(Message::Hello(hello)) => hello,
            other => panic!("{other:?}"),
        }
    }

    /// Connected as soon as the port has no other client.
    pub(crate) fn when_free(pod: &Pod) -> Self {
        until("a place", || {
            let rogue = Self::new(pod);
            let connected = rogue.try_go(6);
            connected.is_ok().then_some(rogue)
        })
    }

    /// Posts all buffers of its ring from the switch.
    pub(crate) fn post_all(&self) {
        let (place, buffers) = &self.layout.s2c[0];
        let ring = u64::from(place.offset);
        let all = buffers.size() * 8;
        for slot in 0..8_u32 {
            let mut desc = [0; 16];
            desc[4..8].copy_from_slice(&buffers.size().to_ne_bytes());
            let offset = self.layout.size() - all + slot * buffers.size();
            desc[8..12].copy_from_slice(&offset.to_ne_bytes());
            pwrite(&self.memory, &desc, ring + 128 + 16 * u64::from(slot)).unwrap();
        }
        pwrite(&self.memory, &8_u16.to_ne_bytes(), ring + 6).unwrap();
    }

    /// Frames that the switch has put into those.
    pub(crate) fn received(&self) -> u16 {
        let mut tail = [0; 2];
        let ring = u64::from(self.layout.s2c[0].0.offset);
        pread(&self.memory, &mut tail, ring + 64).unwrap();
        u16::from_ne_bytes(tail)
    }

    /// Blocks of its memory that are there.
    pub(crate) fn pages(&self) -> i64 {
        fstat(&self.memory).unwrap().st_blocks
    }

    /// Its index runs ahead of its ring.
    pub(crate) fn lie(&self) {
        self.write(6, &5000_u16.to_ne_bytes());
    }

    /// Hangs up, and keeps its memory open.
    pub(crate) fn into_memory(self) -> OwnedFd {
        self.memory
    }

    /// Goes this many steps of the handshake: six are all.
    pub(crate) fn go(&self, steps: usize) {
        if let Err(answer) = self.try_go(steps) {
            panic!("{answer:?}");
        }
    }

    /// The same. Fails with what the switch has said instead of going on.
    fn try_go(&self, steps: usize) -> Result<(), Option<Message>> {
        let ring = |from_client| {
            let places = if from_client {
                &self.layout.c2s
            } else {
                &self.layout.s2c
            };
            let place = places[0].0;
            Message::AddRing(AddRing {
                from_client,
                index: 0,
                region: place.region,
                offset: place.offset,
                log2_ring_size: place.log2_size,
                private_hdr_size: 0,
            })
        };
        let init = Message::Init(Init {
            version: VERSION,
            id: 0,
            mode: 0,
            secret: Secret::default(),
            name: name("rogue"),
        });
        let size = self.layout.size().into();
        let region = Message::AddRegion(AddRegion { index: 0, size });
        let connect = Message::Connect(name("rogue/0"));
        let messages = [
            (init, None),
            (region, Some(self.memory.as_fd())),
            (ring(true), Some(self.events[0].as_fd())),
            (ring(false), Some(self.events[1].as_fd())),
            (connect, None),
        ];
        if steps > 0 {
            match self.hear() {
                Some(Message::Hello(_)) => {}
                other => return Err(other),
            }
        }
        for (message, descriptor) in messages.iter().take(steps.saturating_sub(1)) {
            self.say(message, *descriptor);
            let answer = self.hear();
            let is_last = matches!(message, Message::Connect(_));
            match answer {
                Some(Message::Ack) if !is_last => {}
                Some(Message::Connected(_)) if is_last => {}
                other => return Err(other),
            }
        }
        Ok(())
    }

    fn connected(pod: &Pod) -> Self {
        let rogue = Self::new(pod);
        rogue.go(6);
        rogue
    }

    /// Why the switch has ended it.
    pub(crate) fn reason(&self) -> String {
        match self.hear() {
            Some(Message::Disconnect(disconnect)) => disconnect.reason.to_string(),
            other => panic!("{other:?}"),
        }
    }

    /// Writes into the header of its ring to the switch.
    fn write(&self, at: u64, bytes: &[u8]) {
        let ring = u64::from(self.layout.c2s[0].0.offset);
        pwrite(&self.memory, bytes, ring + at).unwrap();
        // Somebody may sleep.
        rustix::io::write(&self.events[0], &1_u64.to_ne_bytes()).unwrap();
    }
}

#[test]
fn a_client_that_dies_in_any_state_disturbs_nobody_and_can_come_again() {
    let scene = Scene::new();
    let mut others = Others::new(&scene);
    let mut pod = scene.port(7, 1);
    for steps in 0..=6 {
        let rogue = Rogue::new(&pod);
        rogue.go(steps);
        others.assert_undisturbed();
        drop(rogue);
        others.assert_undisturbed();
        until("the port to be free", || {
            (!scene.status(&pod).connected).then_some(())
        });
        // The door is free as soon as the switch has seen it.
        until("a new client", || {
            pod.begin(&pod.address.clone());
            until("an answer", || {
                let refused = pod.poll().is_some();
                (refused || pod.rings.is_some()).then_some(())
            });
            pod.rings.is_some().then_some(())
        });
        pod.client.as_mut().unwrap().disconnect("done");
        pod.rings = None;
        until("the port to be free", || {
            (!scene.status(&pod).connected).then_some(())
        });
    }
}

#[test]
fn a_client_that_lies_is_cut_off_alone_and_the_agent_sees_why() {
    let scene = Scene::new();
    let mut others = Others::new(&scene);
    let pod = scene.port(7, 1);
    type Lie = fn(&Rogue);
    let lies: [(&str, Lie); 3] = [
        ("ring index out of range", |rogue| {
            rogue.write(6, &5000_u16.to_ne_bytes());
        }),
        ("ring index out of range", |rogue| {
            rogue.write(6, &u16::MAX.to_ne_bytes());
        }),
        ("descriptor outside of the regions", |rogue| {
            // Region 7 does not exist.
            rogue.write(128, &[0, 0, 7, 0, 64, 0, 0, 0]);
            rogue.write(6, &1_u16.to_ne_bytes());
        }),
    ];
    for (reason, lie) in lies {
        let rogue = Rogue::connected(&pod);
        others.assert_undisturbed();
        lie(&rogue);
        assert_eq!(rogue.reason(), reason);
        others.assert_undisturbed();
        let status = scene.status(&pod);
        assert!(!status.connected);
        let closed = status.last_closed.unwrap();
        assert!(closed.contains(reason), "{closed}");
    }
}

/// Bad buffers for received frames cut a client off when a neighbour sends to it.
#[test]
fn a_client_that_posts_bad_buffers_is_cut_off_and_its_neighbour_is_not() {
    let scene = Scene::new();
    let mut neighbour = scene.pod(7, 101);
    let pod = scene.port(7, 1);
    let rogue = Rogue::connected(&pod);
    let ring = u64::from(rogue.layout.s2c[0].0.offset);
    // Bytes far behind the region's end.
    let bad = [0, 0, 0, 0, 0, 1, 0, 0, 0xff, 0xff, 0xff, 0x7f];
    pwrite(&rogue.memory, &bad, ring + 128).unwrap();
    pwrite(&rogue.memory, &1_u16.to_ne_bytes(), ring + 6).unwrap();
    // What is counted is counted by a worker that knows of it.
    assert!(scene.status(&pod).connected);
    let frame = neighbour.frame_to(&pod, 1);
    neighbour.send(&frame);
    assert_eq!(rogue.reason(), "descriptor outside of the regions");
    neighbour.deliver(&frame);
    assert_eq!(neighbour.receive(), frame);
    assert_eq!(neighbour.poll(), None);
}

#[test]
fn a_flood_of_connections_to_one_port_leaves_the_others_theirs() {
    let scene = Scene::new();
    let mut others = Others::new(&scene);
    let pod = scene.port(7, 1);
    // Fewer than there are places for those who wait to be accepted at a time.
    let mut flood = Vec::new();
    for _ in 0..40 {
        let connected = until("a place", || pod.address.connect().ok());
        flood.push(connected);
        others.assert_undisturbed();
    }
    let mut third = scene.pod(7, 3);
    let frame = third.frame_to(&others.0, 1);
    third.send(&frame);
    assert_eq!(others.0.receive(), frame);
    drop(flood);
    let mut pod = pod;
    until("a place", || {
        pod.begin(&pod.address.clone());
        until("an answer", || {
            let refused = pod.poll().is_some();
            (refused || pod.rings.is_some()).then_some(())
        });
        pod.rings.is_some().then_some(())
    });
}
