//! Two state machines talk, without a socket between them.

mod attack;

use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;
use crate::budget::Budget;
use crate::error::Violation;
use crate::wire::{AddRegion, AddRing, Hello, Init, Message, Name, Secret, Text, VERSION};

/// A descriptor that is only the claim to be one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fake(Kind);

impl Descriptor for Fake {
    fn kind(&self) -> Kind {
        self.0
    }
}

const MEMORY: Fake = Fake(Kind::Memory);
const EVENT: Fake = Fake(Kind::Event);
const FOREIGN: Fake = Fake(Kind::Foreign);

type Server = ServerHandshake<Fake>;

fn name(text: &str) -> Name {
    Text::new(text).unwrap()
}

fn config() -> ServerConfig {
    ServerConfig::new(name("server"), Door::new(0, name("server/0")))
}

fn server(config: ServerConfig) -> Server {
    ServerHandshake::new(Arc::new(config), Instant::now()).0
}

fn init() -> Init {
    Init {
        version: VERSION,
        id: 0,
        mode: 0,
        secret: Secret::default(),
        name: name("client"),
    }
}

fn region(index: u16, size: u64) -> Message {
    Message::AddRegion(AddRegion { index, size })
}

fn ring(from_client: bool, index: u16, offset: u32) -> AddRing {
    AddRing {
        from_client,
        index,
        region: 0,
        offset,
        log2_ring_size: 4,
        private_hdr_size: 0,
    }
}

/// Bytes of a ring with 2^4 slots.
const RING: u32 = 128 + 16 * 16;

fn descriptors(message: &Message) -> Vec<Fake> {
    match message {
        Message::AddRegion(_) => vec![MEMORY],
        Message::AddRing(_) => vec![EVENT],
        _ => vec![],
    }
}

/// Returns a server's reaction to one more message of an ordinary client.
fn hears(server: &mut Server, message: Message) -> Step<Fake, ServerEvent<Fake>> {
    server.receive(&message.encode(), descriptors(&message))
}

fn acknowledged(step: &Step<Fake, ServerEvent<Fake>>) -> bool {
    let sent = step.send.as_ref();
    step.event.is_none() && sent.is_some_and(|sent| sent.bytes == Message::Ack.encode())
}

/// The violation that ended the connection; the peer was told its text.
fn ended(step: Step<Fake, ServerEvent<Fake>>) -> Violation {
    let Some(ServerEvent::Closed(Closed::Violation(violation))) = step.event else {
        panic!("not closed by a violation: {step:?}");
    };
    let told = Message::decode(&step.send.expect("the peer is told").bytes).unwrap();
    let Message::Disconnect(told) = told else {
        panic!("told {told:?}");
    };
    assert_eq!(told, violation.disconnect());
    let text = violation.to_string();
    assert_eq!(text.as_bytes(), told.reason.as_bytes(), "cut off");
    violation
}

/// A server that has acknowledged INIT.
fn admitted() -> Server {
    let mut server = server(config());
    assert!(acknowledged(&hears(&mut server, Message::Init(init()))));
    server
}

/// A server that knows one region.
fn with_region(size: u64) -> Server {
    let mut server = admitted();
    assert!(acknowledged(&hears(&mut server, region(0, size))));
    server
}

/// Returns a server's reaction to CONNECT with these rings in a region.
fn connect(size: u64, rings: &[AddRing]) -> Step<Fake, ServerEvent<Fake>> {
    let mut server = with_region(size);
    for ring in rings {
        assert!(acknowledged(&hears(&mut server, Message::AddRing(*ring))));
    }
    hears(&mut server, Message::Connect(name("client/0")))
}

fn offer(agreed: &Agreed) -> Offer<Fake> {
    let mut rings = Vec::new();
    let mut offset = 0;
    for (from_client, count) in [(true, agreed.c2s_rings), (false, agreed.s2c_rings)] {
        for index in 0..count {
            let ring = AddRing {
                log2_ring_size: agreed.log2_ring_size,
                ..ring(from_client, index, offset)
            };
            offset += u32::try_from(ring_bytes(agreed.log2_ring_size)).unwrap();
            rings.push((ring, EVENT));
        }
    }
    Offer {
        regions: vec![(u64::from(offset), MEMORY)],
        rings,
    }
}

/// Exchanges messages until neither side has more; returns how each sees the end.
fn talk(
    server: ServerConfig,
    client: ClientConfig,
) -> (Option<ServerEvent<Fake>>, Option<ClientEvent>, Vec<String>) {
    let now = Instant::now();
    let (mut server, hello) = ServerHandshake::<Fake>::new(Arc::new(server), now);
    let mut client = ClientHandshake::new(client, now);
    let mut to_client = Some(hello);
    let mut said = Vec::new();
    let (mut server_end, mut client_end) = (None, None);
    while let Some(datagram) = to_client.take() {
        said.push(Message::decode(&datagram.bytes).unwrap().name().to_owned());
        let mut step = client.receive(&datagram.bytes, 0);
        if let Some(ClientEvent::Allocate(agreed)) = step.event {
            step.send = client.offer(offer(&agreed));
            step.event = None;
        }
        client_end = step.event.or(client_end);
        let Some(datagram) = step.send else { break };
        said.push(Message::decode(&datagram.bytes).unwrap().name().to_owned());
        let step = server.receive(&datagram.bytes, datagram.descriptor.into_iter().collect());
        to_client = step.send;
        if let Some(ServerEvent::Connect(_)) = &step.event {
            to_client = server.accept();
            assert!(server.is_connected());
        }
        server_end = step.event.or(server_end);
    }
    (server_end, client_end, said)
}

#[test]
fn a_handshake_is_in_lock_step_and_in_the_order_of_all_known_clients() {
    let client = ClientConfig {
        c2s_rings: 2,
        s2c_rings: 1,
        ..ClientConfig::new(name("client"))
    };
    let (server_end, client_end, said) = talk(config(), client);
    let expected = "HELLO INIT ACK ADD_REGION ACK ADD_RING ACK ADD_RING ACK ADD_RING ACK \
                    CONNECT CONNECTED";
    assert_eq!(said.join(" "), expected);
    let Some(ServerEvent::Connect(setup)) = server_end else {
        panic!("{server_end:?}");
    };
    assert_eq!((setup.c2s.len(), setup.s2c.len()), (2, 1));
    assert_eq!(setup.app, name("client"));
    let Some(ClientEvent::Connected(peer)) = client_end else {
        panic!("{client_end:?}");
    };
    assert_eq!(peer, name("server/0"));
}

#[test]
fn the_client_takes_no_more_rings_than_the_server_has() {
    let mut server = config();
    server.limits.c2s_rings = 2;
    server.limits.s2c_rings = 3;
    let client = ClientConfig {
        c2s_rings: 8,
        s2c_rings: 8,
        ..ClientConfig::new(name("client"))
    };
    let (end, ..) = talk(server, client);
    let Some(ServerEvent::Connect(setup)) = end else {
        panic!("{end:?}");
    };
    assert_eq!((setup.c2s.len(), setup.s2c.len()), (2, 3));
}

/// Facts 1.3: HELLO always offers the largest ring.
///
/// A VPP client lays its memory out by HELLO and asks for what it is configured with. So HELLO always
/// says 14, and what is too large is refused by itself.
#[test]
fn hello_always_offers_the_largest_ring_and_a_larger_one_than_allowed_is_refused() {
    let mut small = config();
    small.limits.log2_ring_size = 8;
    let (mut server, hello) = ServerHandshake::<Fake>::new(Arc::new(small), Instant::now());
    let Message::Hello(hello) = Message::decode(&hello.bytes).unwrap() else {
        panic!("the first message is HELLO");
    };
    assert_eq!(hello.max_log2_ring_size, 14);
    hears(&mut server, Message::Init(init()));
    hears(&mut server, region(0, 1 << 20));
    let large = AddRing {
        log2_ring_size: 9,
        ..ring(true, 0, 0)
    };
    let violation = ended(hears(&mut server, Message::AddRing(large)));
    assert_eq!(violation, Violation::RingSize { log2: 9, max: 8 });
}

#[test]
fn secrets_are_asked_for_and_compared() {
    let secret = |text| Secret::new(text).unwrap();
    let cases = [
        ("hunter2", "hunter2", None),
        ("hunter2", "", Some(Violation::SecretRequired)),
        ("hunter2", "hunter3", Some(Violation::SecretIncorrect)),
        // A client with a secret that nobody asked for is let in, as others do.
        ("", "hunter2", None),
    ];
    for (wanted, known, refused) in cases {
        let door = Door::new(0, name("door")).with_secret(secret(wanted));
        let mut server = server(ServerConfig::new(name("server"), door));
        let step = hears(
            &mut server,
            Message::Init(Init {
                secret: secret(known),
                ..init()
            }),
        );
        match refused {
            Some(refused) => {
                assert_eq!(ended(step), refused);
                assert!(server.door().is_none(), "nothing is bound");
            }
            None => assert!(acknowledged(&step), "{wanted} {known}"),
        }
    }
}

#[test]
fn what_is_wrong_with_init_is_said_in_the_words_of_others() {
    let cases = [
        (
            Init {
                version: 0x0100,
                ..init()
            },
            "Incompatible memif version",
        ),
        (Init { id: 1, ..init() }, "unmatched interface id"),
        (Init { mode: 1, ..init() }, "Only ethernet mode supported"),
    ];
    for (init, text) in cases {
        let mut server = server(config());
        let violation = ended(hears(&mut server, Message::Init(init)));
        assert_eq!(violation.to_string(), text);
        assert!(server.door().is_none(), "nothing is bound");
    }
}

#[test]
fn an_interface_has_one_client_at_a_time_and_is_free_when_it_goes() {
    let config = Arc::new(config());
    let now = Instant::now();
    let mut first = ServerHandshake::<Fake>::new(Arc::clone(&config), now).0;
    let mut second = ServerHandshake::<Fake>::new(Arc::clone(&config), now).0;
    connected(&mut first);
    let refused = ended(hears(&mut second, Message::Init(init())));
    assert_eq!(refused, Violation::AlreadyConnected(0));
    assert!(config.doors[0].is_taken());
    // Whatever ends it, here a message that may not come: its memory is mapped until it is dropped.
    ended(hears(&mut first, Message::Ack));
    assert!(config.doors[0].is_taken());
    drop(first);
    assert!(!config.doors[0].is_taken());
    let mut third = ServerHandshake::<Fake>::new(Arc::clone(&config), now).0;
    assert!(acknowledged(&hears(&mut third, Message::Init(init()))));
    // Without rings nothing is mapped.
    ended(hears(&mut third, Message::Ack));
    assert!(!config.doors[0].is_taken());
}

/// Up to CONNECTED.
fn connected(server: &mut Server) {
    let messages = [
        Message::Init(init()),
        region(0, 1 << 20),
        Message::AddRing(ring(true, 0, 0)),
    ];
    for message in messages {
        assert!(acknowledged(&hears(server, message)));
    }
    let step = hears(server, Message::Connect(name("client/0")));
    assert!(matches!(step.event, Some(ServerEvent::Connect(_))));
    assert!(server.accept().is_some());
}

/// ATT-03c: a client that stalls before it has its rings keeps no other out.
///
/// This holds in every state, and what it had registered counts no more.
#[test]
fn a_half_open_handshake_gives_way_to_a_newer_one() {
    let overhead = Limits::default().overhead;
    let budget = Budget::new("switch", (1 << 20) + 2048 + overhead);
    let steps = [
        Message::Init(init()),
        region(0, 1 << 20),
        Message::AddRing(ring(true, 0, 0)),
    ];
    for stalls_after in 0..=steps.len() {
        let mut config = config();
        config.budget = Some(Arc::clone(&budget));
        let config = Arc::new(config);
        let now = Instant::now();
        let mut half_open = ServerHandshake::<Fake>::new(Arc::clone(&config), now).0;
        for message in steps.iter().take(stalls_after) {
            assert!(acknowledged(&hears(&mut half_open, *message)));
        }
        let mut own = ServerHandshake::<Fake>::new(Arc::clone(&config), now).0;
        connected(&mut own);
        assert_eq!(budget.used(), budget.max());
        if stalls_after > 0 {
            let told = ended(hears(&mut half_open, region(0, 4096)));
            assert_eq!(told, Violation::Displaced(0));
        }
        // Neither its end nor that of one that was refused is the other's.
        drop(half_open);
        assert!(config.doors[0].is_taken());
        drop(own);
        assert!(!config.doors[0].is_taken());
        assert_eq!(budget.used(), 0);
    }
    // One that has said all, and is displaced before its rings are made.
    let config = Arc::new(config());
    let mut late = ServerHandshake::<Fake>::new(Arc::clone(&config), Instant::now()).0;
    for message in steps {
        assert!(acknowledged(&hears(&mut late, message)));
    }
    let step = hears(&mut late, Message::Connect(name("client/0")));
    assert!(matches!(step.event, Some(ServerEvent::Connect(_))));
    let mut own = ServerHandshake::<Fake>::new(config, Instant::now()).0;
    connected(&mut own);
    assert!(late.accept().is_none());
    proof::of!("ATT-03c");
}

#[test]
fn one_socket_serves_several_interfaces() {
    let mut both = config();
    both.doors.push(Arc::new(Door::new(7, name("server/7"))));
    let mut server = server(both);
    let seventh = Init { id: 7, ..init() };
    assert!(acknowledged(&hears(&mut server, Message::Init(seventh))));
    assert_eq!(server.door().unwrap().name(), name("server/7"));
}

#[test]
fn a_closed_handshake_says_nothing_more() {
    let mut server = admitted();
    ended(hears(&mut server, Message::Ack));
    let step = hears(&mut server, Message::Init(init()));
    assert!(step.send.is_none() && step.event.is_none());
    assert!(server.accept().is_none());
    // Found by the fuzz target `control`: nor to what is no message at all.
    let step = server.receive(&[], vec![]);
    assert!(step.send.is_none() && step.event.is_none());
    let mut client = ClientHandshake::<Fake>::new(ClientConfig::new(name("c")), Instant::now());
    client.receive(&[], 0);
    for (datagram, descriptors) in [(vec![], 0), (Message::Ack.encode().to_vec(), 1)] {
        let step = client.receive(&datagram, descriptors);
        assert!(step.send.is_none() && step.event.is_none());
    }
}

/// Facts 1.5: rings for cache lines of 128 bytes are refused by name.
///
/// DPDK's rings follow its build's cache line, and ours are laid out for 64 bytes.
#[test]
fn rings_for_cache_lines_of_128_bytes_are_refused_by_name() {
    let wide = RING + 128;
    let step = connect(1 << 20, &[ring(true, 0, 0), ring(false, 0, wide)]);
    let violation = ended(step);
    assert_eq!(violation, Violation::CacheLine128);
    assert!(violation.to_string().contains("128 bytes"), "{violation}");
    let three = [
        ring(true, 0, 0),
        ring(true, 1, wide),
        ring(false, 0, 2 * wide),
    ];
    assert_eq!(ended(connect(1 << 20, &three)), Violation::CacheLine128);
    // A ring alone, other distances, and one right behind the other are as good as any.
    for rings in [
        vec![ring(true, 0, 0)],
        vec![ring(true, 0, 0), ring(false, 0, RING)],
        vec![ring(true, 0, 0), ring(false, 0, wide + 128)],
        vec![
            ring(true, 0, 0),
            ring(true, 1, RING),
            ring(false, 0, RING + wide),
        ],
    ] {
        let step = connect(1 << 20, &rings);
        assert!(
            matches!(step.event, Some(ServerEvent::Connect(_))),
            "{step:?}"
        );
    }
}

#[test]
fn a_connection_has_no_deadline() {
    let mut server = with_region(4096);
    hears(&mut server, Message::AddRing(ring(true, 0, 0)));
    hears(&mut server, Message::Connect(name("x")));
    server.accept().expect("the setup was good");
    assert_eq!(server.deadline(), None);
    let far = Instant::now() + Duration::from_secs(86_400);
    assert!(server.expire(far).event.is_none());
}

#[test]
fn a_disconnect_is_understood_in_every_state() {
    let goodbye = Message::Disconnect(crate::wire::Disconnect {
        code: 3,
        reason: Text::new("bye").unwrap(),
    });
    let mut connected = with_region(4096);
    hears(&mut connected, Message::AddRing(ring(true, 0, 0)));
    hears(&mut connected, Message::Connect(name("x")));
    connected.accept().expect("the setup was good");
    for mut server in [server(config()), admitted(), connected] {
        let step = hears(&mut server, goodbye);
        assert!(step.send.is_none(), "nobody answers a DISCONNECT");
        let Some(ServerEvent::Closed(Closed::Peer(peer))) = step.event else {
            panic!("{:?}", step.event);
        };
        assert_eq!((peer.code, peer.reason.as_bytes()), (3, b"bye".as_slice()));
    }
}

#[test]
fn a_client_refuses_what_no_server_says() {
    let hello = Hello {
        name: name("x"),
        min_version: VERSION,
        max_version: VERSION,
        max_region: 0,
        max_s2c_ring: 0,
        max_c2s_ring: 0,
        max_log2_ring_size: 14,
    };
    let fresh = || ClientHandshake::<Fake>::new(ClientConfig::new(name("c")), Instant::now());
    let violation = |step: Step<Fake, ClientEvent>| match step.event {
        Some(ClientEvent::Closed(Closed::Violation(violation))) => violation,
        other => panic!("{other:?}"),
    };
    for message in [
        Message::Ack,
        Message::Init(init()),
        Message::Connected(name("x")),
        region(0, 1),
    ] {
        let step = fresh().receive(&message.encode(), 0);
        assert_eq!(violation(step), Violation::Unexpected(message.name()));
    }
    for (min_version, max_version) in [(0x0201, 0x0300), (0x0100, 0x01ff), (0x0201, 0x0100)] {
        let hello = Message::Hello(Hello {
            min_version,
            max_version,
            ..hello
        });
        let step = fresh().receive(&hello.encode(), 0);
        assert!(matches!(violation(step), Violation::Version { .. }));
    }
    let none = Message::Hello(Hello {
        max_log2_ring_size: 0,
        ..hello
    });
    let step = fresh().receive(&none.encode(), 0);
    assert_eq!(violation(step), Violation::ServerRingSize(0));
    let step = fresh().receive(&Message::Hello(hello).encode(), 1);
    assert!(matches!(
        violation(step),
        Violation::DescriptorsExtra { .. }
    ));
    // CONNECTED before all was told, and an ACK after.
    let mut client = fresh();
    client.receive(&Message::Hello(hello).encode(), 0);
    client.receive(&Message::Ack.encode(), 0);
    let agreed = Agreed {
        app: name("x"),
        c2s_rings: 1,
        s2c_rings: 1,
        log2_ring_size: 4,
    };
    client.offer(offer(&agreed)).expect("it was asked for");
    let step = client.receive(&Message::Connected(name("x")).encode(), 0);
    assert_eq!(violation(step), Violation::Unexpected("CONNECTED"));
}

/// A message with fields that are often almost right.
fn some_message() -> impl Strategy<Value = Vec<u8>> {
    let small = prop_oneof![0_u16..3, any::<u16>()];
    let ring = (
        any::<bool>(),
        small.clone(),
        small.clone(),
        0_u32..20_000,
        0_u8..16,
    );
    prop_oneof![
        4 => Just(Message::Init(init()).encode().to_vec()),
        4 => (small, 1_u64..1 << 20).prop_map(|(index, size)| region(index, size).encode().to_vec()),
        6 => ring.prop_map(|(from_client, index, region, offset, log2_ring_size)| {
            let ring = AddRing { from_client, index, region, offset: offset & !15, log2_ring_size, private_hdr_size: 0 };
            Message::AddRing(ring).encode().to_vec()
        }),
        3 => Just(Message::Connect(name("x")).encode().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..200),
    ]
}

fn some_descriptors() -> impl Strategy<Value = Vec<Fake>> {
    let one = prop_oneof![Just(MEMORY), Just(EVENT), Just(FOREIGN)];
    prop_oneof![
        3 => Just(vec![MEMORY]),
        3 => Just(vec![EVENT]),
        3 => Just(vec![]),
        1 => prop::collection::vec(one, 0..4),
    ]
}

proptest! {
    /// Whatever comes, a setup that is to be judged keeps its promises.
    #[test]
    fn only_sound_setups_come_through(
        script in prop::collection::vec((some_message(), some_descriptors()), 0..24),
    ) {
        let mut server = server(config());
        let limits = Limits::default();
        for (datagram, descriptors) in script {
            // An honest start, so that more than the first message is tried.
            let step = server.receive(&datagram, descriptors);
            match step.event {
                Some(ServerEvent::Closed(_)) => prop_assert!(server.door().is_none()),
                Some(ServerEvent::Connect(setup)) => {
                    prop_assert!(setup.regions.len() <= usize::from(limits.regions));
                    prop_assert!(setup.regions.iter().all(|(fd, size)| *fd == MEMORY && *size > 0));
                    for ring in setup.c2s.iter().chain(&setup.s2c) {
                        let (_, size) = setup.regions[usize::from(ring.place.region)];
                        let end = u64::from(ring.place.offset) + ring_bytes(ring.place.log2_size);
                        prop_assert!(end <= size);
                        prop_assert!((1..=14).contains(&ring.place.log2_size));
                        prop_assert_eq!(ring.event, EVENT);
                    }
                }
                None => {}
            }
        }
    }
}
