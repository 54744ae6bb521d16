//! Test a peer whose every byte is random, in both roles.
//!
//! What is visited is always inside the memory and within its limits; nothing panics. The fuzz target
//! `descriptors` is the same without an end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use memif::{Bell, MAX_SEGMENTS, MIN_FRAME, Rx, Sent, Tx};
use proptest::prelude::*;

use super::scene::{BUFFER, Desc, MAX_FRAME, Memory, SLOTS};

/// Deeds of a case.
const LONGEST: usize = if cfg!(miri) { 30 } else { 120 };

#[derive(Clone, Debug)]
enum Deed {
    Head(bool, u16),
    Tail(bool, u16),
    Flags(bool, u16),
    Desc(bool, u16, Desc),
    Bytes(u32, Vec<u8>),
    Burst(u16),
    Push(u16),
}

fn descriptor() -> impl Strategy<Value = Desc> {
    let near = prop_oneof![0_u32..6000, any::<u32>()];
    let length = prop_oneof![0_u32..300, any::<u32>()];
    let region = prop_oneof![4 => Just(0_u16), 1 => any::<u16>()];
    let flags = prop_oneof![Just(0_u16), Just(1), any::<u16>()];
    (flags, region, length, near).prop_map(|(flags, region, length, offset)| Desc {
        flags,
        region,
        length,
        offset,
    })
}

fn deed() -> impl Strategy<Value = Deed> {
    let index = || prop_oneof![4 => 0_u16..40, 1 => any::<u16>()];
    prop_oneof![
        1 => (any::<bool>(), index()).prop_map(|(c2s, index)| Deed::Head(c2s, index)),
        1 => (any::<bool>(), index()).prop_map(|(c2s, index)| Deed::Tail(c2s, index)),
        1 => (any::<bool>(), any::<u16>()).prop_map(|(c2s, flags)| Deed::Flags(c2s, flags)),
        4 => (any::<bool>(), 0..SLOTS, descriptor()).prop_map(|(c2s, slot, desc)| Deed::Desc(c2s, slot, desc)),
        1 => (0_u32..4000, prop::collection::vec(any::<u8>(), 0..64)).prop_map(|(at, bytes)| Deed::Bytes(at, bytes)),
        3 => (0_u16..20).prop_map(Deed::Burst),
        3 => (0_u16..300).prop_map(Deed::Push),
    ]
}

fn play(deeds: Vec<Deed>, as_server: bool) {
    let memory = Memory::small();
    let (mut rx, mut tx) = if as_server {
        memory.server()
    } else {
        memory.client()
    };
    let ring = |c2s| if c2s { memory.c2s() } else { memory.s2c() };
    let longest = if as_server { MAX_FRAME } else { BUFFER };
    for deed in deeds {
        match deed {
            Deed::Head(c2s, index) => ring(c2s).set_head(index),
            Deed::Tail(c2s, index) => ring(c2s).set_tail(index),
            Deed::Flags(c2s, flags) => ring(c2s).set_flags(flags),
            Deed::Desc(c2s, slot, desc) => ring(c2s).set_desc(slot, desc),
            Deed::Bytes(at, bytes) => memory.write(at, &bytes),
            Deed::Burst(budget) => {
                let mut visited = 0;
                let taken = rx.burst(budget, |packet| {
                    visited += 1;
                    assert!((MIN_FRAME..=longest).contains(&packet.len()));
                    let mut bytes = vec![0; packet.len() as usize + 1];
                    assert_eq!(packet.read(0, &mut bytes), packet.len() as usize);
                    let mut header = [0; 14];
                    packet.read(0, &mut header);
                    let sent = tx.forward(&header, &packet);
                    assert!(sent != Ok(Sent::Yes) || packet.len() <= memory.layout.size());
                });
                assert!(visited <= budget);
                if let Ok(taken) = taken {
                    assert!(usize::from(taken) <= usize::from(budget) * MAX_SEGMENTS);
                    assert!(taken <= SLOTS);
                }
                tx.flush();
            }
            Deed::Push(len) => {
                let result = tx.push(&vec![0x55; len.into()]);
                tx.flush();
                if result.is_err() {
                    return;
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 512 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_server_survives_a_random_client(deeds in prop::collection::vec(deed(), 0..LONGEST)) {
        play(deeds, true);
    }

    #[test]
    fn a_client_survives_a_random_server(deeds in prop::collection::vec(deed(), 0..LONGEST)) {
        play(deeds, false);
    }
}

/// A peer that writes over everything, all the time, changes no checked value.
///
/// What was checked must be what is used. (Under Miri a race of plain bytes is an error, and here it is
/// the point.)
#[test]
#[cfg_attr(miri, ignore = "races on purpose")]
fn a_peer_that_never_stops_writing_breaks_nothing() {
    for as_server in [true, false] {
        let memory = Memory::small();
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            // Whatever happens below, the writer ends, and with it the scope.
            let _stop = Stop(&over);
            scope.spawn(|| {
                let mut state = 0x2545_F491_u32;
                let mut next = || {
                    state ^= state << 13;
                    state ^= state >> 17;
                    state ^= state << 5;
                    state
                };
                while !over.load(Ordering::Relaxed) {
                    let ring = if next() % 2 == 0 {
                        memory.c2s()
                    } else {
                        memory.s2c()
                    };
                    match next() % 8 {
                        0 => ring.set_head(u16::try_from(next() % 32).unwrap()),
                        1 => ring.set_tail(u16::try_from(next() % 32).unwrap()),
                        2 => ring.set_flags(u16::try_from(next() % 4).unwrap()),
                        3 => memory.write((next() % memory.layout.size()) & !63, &[0xa5; 64]),
                        _ => {
                            let desc = Desc {
                                flags: u16::try_from(next() % 4 / 3).unwrap(),
                                region: u16::try_from(next() % 16 / 15).unwrap(),
                                length: next() % 300,
                                offset: next() % (memory.layout.size() + 100),
                            };
                            ring.set_desc(u16::try_from(next() % 8).unwrap(), desc);
                        }
                    }
                }
            });
            let longest = if as_server { MAX_FRAME } else { BUFFER };
            let mut visited = 0_u32;
            let end = Instant::now() + Duration::from_secs(30);
            let mut rounds = 0;
            while rounds < 3000 || visited < 1000 {
                assert!(Instant::now() < end, "nearly nothing came through");
                rounds += 1;
                for ring in [memory.c2s(), memory.s2c()] {
                    ring.set_cookie(0x03E3_1F20);
                }
                let Some((mut rx, mut tx)) = ends(&memory, as_server) else {
                    continue;
                };
                for _ in 0..64 {
                    let taken = rx.burst(8, |packet| {
                        visited += 1;
                        assert!((MIN_FRAME..=longest).contains(&packet.len()));
                        let mut bytes = [0; MAX_FRAME as usize + 1];
                        assert_eq!(packet.read(0, &mut bytes), packet.len() as usize);
                        let _ = tx.forward(&bytes[..14], &packet);
                    });
                    tx.flush();
                    if taken.is_err() || tx.push(&[0x11; 60]).is_err() {
                        break;
                    }
                }
            }
        });
    }
}

/// Ends the writer when it is dropped.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Both ends, unless the cookie has been written over meanwhile.
fn ends(memory: &Memory, as_server: bool) -> Option<(Rx, Tx)> {
    let (c2s, s2c) = (memory.layout.c2s[0], memory.layout.s2c[0]);
    let regions = &memory.regions;
    let bell = Bell::silent();
    if as_server {
        let rx = Rx::server(regions, c2s.0, None, MAX_FRAME).ok()?;
        Some((rx, Tx::server(regions, s2c.0, bell).ok()?))
    } else {
        let rx = Rx::client(regions, s2c.0, None, s2c.1).ok()?;
        Some((rx, Tx::client(regions, c2s.0, bell, c2s.1).ok()?))
    }
}
