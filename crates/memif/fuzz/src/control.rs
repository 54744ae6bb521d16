//! Feed both sides of the control channel with datagrams and descriptors of a peer.
//!
//! Input: the side, then for each message a byte for its descriptors, a byte for its length, and
//! its bytes.

use std::sync::Arc;
use std::time::Instant;

use memif::handshake::{
    Agreed, ClientConfig, ClientEvent, ClientHandshake, Descriptor, Kind, Limits, Offer,
    ServerConfig, ServerEvent, ServerHandshake, Step,
};
use memif::wire::{AddRing, MESSAGE_LEN, Message};
use memif::{Budget, Door, Secret, Text};

#[derive(Debug)]
struct Fake(Kind);

impl Descriptor for Fake {
    fn kind(&self) -> Kind {
        self.0
    }
}

/// The rest of the input.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (first, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        first
    }

    /// A datagram: as a rule of the right length, with the end of the input zeroed.
    fn datagram(&mut self) -> Option<Vec<u8>> {
        let len = self.byte()?;
        let given = if len < 250 {
            MESSAGE_LEN.min(usize::from(len))
        } else {
            MESSAGE_LEN
        };
        let mut datagram = self.bytes(given).to_vec();
        if len != 249 {
            datagram.resize(MESSAGE_LEN, 0);
        }
        Some(datagram)
    }

    fn descriptors(&mut self) -> Option<Vec<Fake>> {
        Some(match self.byte()? % 8 {
            0 | 1 => vec![],
            2 | 3 => vec![Fake(Kind::Memory)],
            4 | 5 => vec![Fake(Kind::Event)],
            6 => vec![Fake(Kind::Foreign)],
            _ => vec![Fake(Kind::Memory), Fake(Kind::Event)],
        })
    }
}

fn check_goodbye<F, E>(step: &Step<F, E>, closed: bool) {
    let Some(datagram) = &step.send else { return };
    let said = Message::decode(&datagram.bytes).expect("we send messages only");
    assert_eq!(matches!(said, Message::Disconnect(_)), closed);
}

fn server(input: &mut Input<'_>) -> Option<()> {
    let limits = Limits::default();
    let mut door = Door::new(0, Text::cut("door"));
    if input.byte()? % 2 == 1 {
        door = door.with_secret(Secret::new("x").expect("a short one"));
    }
    let budget = Budget::new("switch", limits.bytes);
    let mut config = ServerConfig::new(Text::cut("server"), door);
    config.budget = Some(Arc::clone(&budget));
    let config = Arc::new(config);
    let doors = config.doors.clone();
    let (mut server, _) = ServerHandshake::<Fake>::new(config, Instant::now());
    let (mut over, mut connected) = (false, false);
    while let (Some(descriptors), Some(datagram)) = (input.descriptors(), input.datagram()) {
        let step = server.receive(&datagram, descriptors);
        if over {
            assert!(step.send.is_none() && step.event.is_none());
            continue;
        }
        check_goodbye(&step, matches!(step.event, Some(ServerEvent::Closed(_))));
        match step.event {
            None => assert!(step.send.is_some(), "every message has an answer"),
            Some(ServerEvent::Closed(why)) => {
                let _ = why.to_string();
                // Memory of a client that was connected is mapped until its connection is dropped.
                assert_eq!(
                    doors[0].is_taken(),
                    connected,
                    "what was bound is free again"
                );
                over = true;
            }
            Some(ServerEvent::Connect(setup)) => {
                let sizes: Vec<u64> = setup.regions.iter().map(|(_, size)| *size).collect();
                assert!(sizes.len() <= usize::from(limits.regions));
                assert!(sizes.iter().sum::<u64>() <= budget.used());
                assert!(budget.used() <= budget.max());
                let mut taken: Vec<(u16, u64, u64)> = Vec::new();
                for ring in setup.c2s.iter().chain(&setup.s2c) {
                    assert_eq!(ring.event.kind(), Kind::Event);
                    assert!((1..=14).contains(&ring.place.log2_size));
                    let start = u64::from(ring.place.offset);
                    let end = start + 128 + (16 << ring.place.log2_size);
                    assert!(start % 16 == 0);
                    assert!(end <= sizes[usize::from(ring.place.region)]);
                    for (region, from, to) in &taken {
                        assert!(*region != ring.place.region || end <= *from || start >= *to);
                    }
                    taken.push((ring.place.region, start, end));
                }
                assert!(!taken.is_empty());
                assert!(server.accept().is_some() && server.is_connected());
                connected = true;
            }
        }
    }
    drop(server);
    assert!(!doors[0].is_taken() && budget.used() == 0);
    None
}

fn client(input: &mut Input<'_>) -> Option<()> {
    let config = ClientConfig {
        c2s_rings: 2,
        s2c_rings: 2,
        ..ClientConfig::new(Text::cut("client"))
    };
    let mut client = ClientHandshake::<Fake>::new(config, Instant::now());
    let mut over = false;
    while let (Some(descriptors), Some(datagram)) = (input.byte(), input.datagram()) {
        let step = client.receive(&datagram, usize::from(descriptors / 128));
        if over {
            assert!(step.send.is_none() && step.event.is_none());
            continue;
        }
        check_goodbye(&step, matches!(step.event, Some(ClientEvent::Closed(_))));
        match step.event {
            None => assert!(step.send.is_some()),
            Some(ClientEvent::Closed(why)) => {
                let _ = why.to_string();
                over = true;
            }
            Some(ClientEvent::Connected(_)) => assert!(client.is_connected()),
            Some(ClientEvent::Allocate(agreed)) => {
                assert!(agreed.c2s_rings <= 2 && agreed.s2c_rings <= 2);
                assert!(agreed.c2s_rings >= 1 && agreed.s2c_rings >= 1);
                assert!((1..=10).contains(&agreed.log2_ring_size));
                assert!(client.offer(offer(&agreed)).is_some());
            }
        }
    }
    None
}

fn offer(agreed: &Agreed) -> Offer<Fake> {
    let mut rings = Vec::new();
    for (from_client, count) in [(true, agreed.c2s_rings), (false, agreed.s2c_rings)] {
        for index in 0..count {
            let ring = AddRing {
                from_client,
                index,
                region: 0,
                offset: 0,
                log2_ring_size: agreed.log2_ring_size,
                private_hdr_size: 0,
            };
            rings.push((ring, Fake(Kind::Event)));
        }
    }
    Offer {
        regions: vec![(4096, Fake(Kind::Memory))],
        rings,
    }
}

/// Runs one input.
pub(crate) fn run(data: &[u8]) {
    let mut input = Input(data);
    match input.byte() {
        Some(side) if side % 4 == 0 => client(&mut input),
        Some(_) => server(&mut input),
        None => None,
    };
}
