//! Test a server with a client that owns the memory and writes into it.
//!
//! Each test is a row of the table of attacks (facts 1.6).

use memif::{MAX_SEGMENTS, Sent, Violation};

use super::scene::{BUFFER, Desc, MAX_FRAME, Memory, NEXT, SLOTS, frame, receive};

fn good(memory: &Memory, slot: u16) -> Desc {
    Desc {
        flags: 0,
        region: 0,
        length: 60,
        offset: memory.c2s_buffer(slot),
    }
}

/// Descriptors that name bytes in no region.
fn liars(memory: &Memory) -> Vec<Desc> {
    let size = memory.layout.size();
    let lie = |region, offset, length| Desc {
        flags: 0,
        region,
        length,
        offset,
    };
    vec![
        lie(1, 0, 60),
        lie(u16::MAX, 0, 60),
        lie(0, size, 60),
        lie(0, size - 59, 60),
        lie(0, 0, size + 1),
        lie(0, u32::MAX, 60),
        // A sum in 32 bits would be small again.
        lie(0, u32::MAX - 10, 60),
        lie(0, 64, u32::MAX),
        lie(0, u32::MAX, u32::MAX),
    ]
}

#[test]
fn attack_head_jump() {
    for jump in [SLOTS + 1, 1000, 0x8000, 0xfff0] {
        let memory = Memory::small();
        let (mut rx, mut tx) = memory.server();
        memory.c2s().set_head(jump);
        let violation = Violation::Index {
            ours: 0,
            theirs: jump,
        };
        assert_eq!(
            rx.burst(64, |_| panic!("no packet")),
            Err(violation.clone())
        );
        assert_eq!(rx.arm(), Err(violation.clone()));
        memory.s2c().set_head(jump);
        assert_eq!(tx.push(&frame(1, 60)), Err(violation.clone()));
        assert_eq!(tx.free(), Err(violation));
    }
}

#[test]
fn attack_head_backwards() {
    let memory = Memory::small();
    let (mut rx, _) = memory.server();
    let ring = memory.c2s();
    for slot in 0..3 {
        ring.set_desc(slot, good(&memory, slot));
    }
    ring.set_head(3);
    assert_eq!(receive(&mut rx).len(), 3);
    ring.set_head(2);
    let violation = Violation::Index { ours: 3, theirs: 2 };
    assert_eq!(rx.burst(64, |_| panic!("a packet twice")), Err(violation));
}

/// The server's own index is private: writes over the shared copy change nothing.
#[test]
fn attack_scribbled_tail() {
    let memory = Memory::small();
    let (mut rx, mut tx) = memory.server();
    let (mut client_rx, mut client_tx) = memory.client();
    for number in 0..40 {
        memory.c2s().set_tail(0x1234);
        memory.s2c().set_tail(client_rx_index(number));
        assert_eq!(tx.push(&frame(number, 60)), Ok(Sent::Yes));
        tx.flush();
        assert_eq!(receive(&mut client_rx), [frame(number, 60)]);
        memory.c2s().set_tail(u16::try_from(number).unwrap());
        assert_eq!(client_tx.push(&frame(number, 60)), Ok(Sent::Yes));
        client_tx.flush();
        memory.c2s().set_tail(0xffff);
        assert_eq!(receive(&mut rx), [frame(number, 60)]);
        assert_eq!(u32::from(memory.c2s().tail()), number + 1);
    }
}

/// Returns the index that the honest half of the client above expects to find.
fn client_rx_index(number: u32) -> u16 {
    u16::try_from(number).unwrap()
}

#[test]
fn attack_descriptor_outside_of_the_regions() {
    let memory = Memory::small();
    for lie in liars(&memory) {
        let (mut rx, _) = memory.server();
        let ring = memory.c2s();
        ring.set_desc(0, good(&memory, 0));
        ring.set_desc(1, lie);
        ring.set_head(2);
        let violation = Violation::Descriptor {
            region: lie.region,
            offset: lie.offset,
            length: lie.length,
        };
        let mut visited = 0;
        assert_eq!(rx.burst(64, |_| visited += 1), Err(violation), "{lie:?}");
        assert!(visited <= 1);
    }
}

#[test]
fn attack_descriptor_outside_behind_a_good_one_of_the_same_packet() {
    let memory = Memory::small();
    for lie in liars(&memory) {
        let (mut rx, _) = memory.server();
        let ring = memory.c2s();
        let first = Desc {
            flags: NEXT,
            ..good(&memory, 0)
        };
        ring.set_desc(0, first);
        ring.set_desc(1, lie);
        ring.set_head(2);
        let result = rx.burst(64, |_| panic!("no packet"));
        assert!(
            matches!(result, Err(Violation::Descriptor { .. })),
            "{lie:?}"
        );
    }
}

#[test]
fn attack_posted_buffer_outside_of_the_regions() {
    let memory = Memory::small();
    for lie in liars(&memory) {
        let (_, mut tx) = memory.server();
        let ring = memory.s2c();
        ring.set_desc(0, lie);
        ring.set_head(1);
        let violation = Violation::Descriptor {
            region: lie.region,
            offset: lie.offset,
            length: lie.length,
        };
        assert_eq!(tx.push(&frame(1, 60)), Err(violation), "{lie:?}");
    }
}

/// It can only spoil what is its own.
#[test]
fn attack_posted_buffer_in_the_ring_itself() {
    let memory = Memory::small();
    let (_, mut tx) = memory.server();
    let ring = memory.s2c();
    // The frame is written over the header, head and tail with it.
    for slot in 0..2 {
        let desc = Desc {
            length: 128,
            offset: ring.place.offset,
            ..good(&memory, 0)
        };
        ring.set_desc(slot, desc);
    }
    ring.set_head(2);
    assert_eq!(tx.push(&frame(0x0101_0101, 128)), Ok(Sent::Yes));
    tx.flush();
    assert_eq!(ring.tail(), 1, "our index is written after the frame");
    // What the head says now is nonsense of the client's own making, and found out as such.
    assert_eq!(
        tx.push(&frame(1, 60)),
        Ok(Sent::Yes),
        "the second was seen before"
    );
    assert!(matches!(
        tx.push(&frame(1, 60)),
        Err(Violation::Index { .. })
    ));
}

#[test]
fn attack_capacity_smaller_than_the_frame() {
    let memory = Memory::small();
    let (_, mut tx) = memory.server();
    let ring = memory.s2c();
    let offset = memory.s2c_buffer(0);
    memory.write(offset, &[0xaa; 64]);
    let desc = Desc {
        length: 20,
        offset,
        ..good(&memory, 0)
    };
    ring.set_desc(0, desc);
    ring.set_head(1);
    assert_eq!(tx.push(&frame(1, 60)), Ok(Sent::TooLong));
    tx.flush();
    assert_eq!(memory.read(offset, 64), [0xaa; 64]);
    assert_eq!(ring.tail(), 0);
    assert_eq!(tx.push(&frame(2, 20)), Ok(Sent::Yes));
    assert_eq!(memory.read(offset, 20), frame(2, 20));
    assert_eq!(memory.read(offset + 20, 44), [0xaa; 44]);
    // A buffer of no bytes takes none.
    let (_, mut tx) = memory.server();
    ring.set_desc(0, Desc { length: 0, ..desc });
    ring.set_head(1);
    assert_eq!(tx.push(&frame(1, 14)), Ok(Sent::TooLong));
}

#[test]
fn attack_frame_of_no_length_or_too_much() {
    let memory = Memory::small();
    let (mut rx, _) = memory.server();
    let ring = memory.c2s();
    let lengths = [0, 1, 13, 14, MAX_FRAME, MAX_FRAME + 1];
    for (slot, length) in (0..).zip(lengths) {
        let desc = Desc {
            length,
            offset: 0,
            ..good(&memory, slot)
        };
        ring.set_desc(slot, desc);
    }
    ring.set_head(6);
    let lens: Vec<usize> = receive(&mut rx).iter().map(Vec::len).collect();
    assert_eq!(lens, [14, 2048]);
    assert_eq!(rx.counters().bad_length, 4);
    assert_eq!(ring.tail(), 6, "all slots are given back");
}

#[test]
fn attack_chain_longer_than_a_frame_may_be() {
    let memory = Memory::small();
    let (mut rx, _) = memory.server();
    let ring = memory.c2s();
    for slot in 0..3 {
        let desc = Desc {
            flags: if slot < 2 { NEXT } else { 0 },
            length: 1000,
            offset: 0,
            ..good(&memory, slot)
        };
        ring.set_desc(slot, desc);
    }
    ring.set_head(3);
    assert_eq!(receive(&mut rx), Vec::<Vec<u8>>::new());
    assert_eq!(rx.counters().bad_length, 1);
}

/// A chain without an end costs a burst its budget only, and the port lives on.
#[test]
fn attack_endless_chain() {
    let memory = Memory::small();
    let (mut rx, _) = memory.server();
    let ring = memory.c2s();
    let endless = |slot| Desc {
        flags: NEXT,
        ..good(&memory, slot)
    };
    let mut head = 0_u16;
    for _ in 0..50 {
        for slot in 0..SLOTS {
            ring.set_desc(slot, endless(slot));
        }
        head = head.wrapping_add(SLOTS);
        ring.set_head(head);
        let mut bursts = 0;
        while rx.burst(2, |_| panic!("no packet")).expect("no lie") > 0 {
            bursts += 1;
        }
        assert!(bursts <= 4, "two slots at least for each burst");
        assert_eq!(ring.tail(), head, "all slots are given back");
    }
    assert_eq!(rx.counters().bad_chain, 1, "it is one packet");
    // It ends at last, and the next packet is one.
    ring.set_desc(0, good(&memory, 0));
    memory.write(memory.c2s_buffer(1), &frame(1, 60));
    ring.set_desc(1, good(&memory, 1));
    ring.set_head(head.wrapping_add(2));
    assert_eq!(receive(&mut rx), [frame(1, 60)]);
}

#[test]
fn attack_chain_of_one_segment_too_many() {
    let memory = Memory::new(&super::scene::agreed(1, 1, 4), BUFFER);
    let (mut rx, _) = memory.server();
    let ring = memory.c2s();
    let last = u16::try_from(MAX_SEGMENTS).unwrap();
    for slot in 0..=last {
        let desc = Desc {
            flags: if slot < last { NEXT } else { 0 },
            offset: 0,
            ..good(&memory, 0)
        };
        ring.set_desc(slot, desc);
    }
    let after = Desc {
        length: 33,
        offset: 0,
        ..good(&memory, 0)
    };
    ring.set_desc(last + 1, after);
    ring.set_head(last + 2);
    let lens: Vec<usize> = receive(&mut rx).iter().map(Vec::len).collect();
    assert_eq!(lens, [33], "the packet behind it is whole");
    assert_eq!(rx.counters().bad_chain, 1);
}

/// The end of a chain that was not sent with its beginning is no packet of its own.
#[test]
fn attack_chain_in_two_halves() {
    let memory = Memory::small();
    let (mut rx, _) = memory.server();
    let ring = memory.c2s();
    ring.set_desc(
        0,
        Desc {
            flags: NEXT,
            ..good(&memory, 0)
        },
    );
    ring.set_head(1);
    assert_eq!(receive(&mut rx), Vec::<Vec<u8>>::new());
    assert_eq!((rx.counters().bad_chain, ring.tail()), (1, 1));
    ring.set_desc(1, good(&memory, 1));
    ring.set_head(2);
    assert_eq!(receive(&mut rx), Vec::<Vec<u8>>::new());
    memory.write(memory.c2s_buffer(2), &frame(2, 60));
    ring.set_desc(2, good(&memory, 2));
    ring.set_head(3);
    assert_eq!(receive(&mut rx), [frame(2, 60)]);
}

/// The descriptor was read once: what it says later is not asked.
#[test]
fn attack_descriptor_changed_after_the_check() {
    let memory = Memory::small();
    let (mut rx, _) = memory.server();
    let ring = memory.c2s();
    memory.write(memory.c2s_buffer(0), &frame(5, 60));
    ring.set_desc(0, good(&memory, 0));
    ring.set_head(1);
    let taken = rx.burst(64, |packet| {
        let lie = Desc {
            flags: NEXT,
            region: 9,
            length: u32::MAX,
            offset: u32::MAX,
        };
        memory.c2s().set_desc(0, lie);
        let mut bytes = [0; 200];
        assert_eq!(packet.len(), 60);
        assert_eq!(packet.read(0, &mut bytes), 60);
        assert_eq!(bytes[..60], frame(5, 60));
    });
    assert_eq!(taken, Ok(1));
}

/// The part between check and store of a posted buffer is ours, whatever is there.
#[test]
fn attack_posted_buffer_over_the_frame_that_is_sent_on() {
    let memory = Memory::small();
    let (mut rx, mut tx) = memory.server();
    let (c2s, s2c) = (memory.c2s(), memory.s2c());
    let offset = memory.c2s_buffer(0);
    memory.write(offset, &frame(5, 100));
    c2s.set_desc(
        0,
        Desc {
            length: 100,
            ..good(&memory, 0)
        },
    );
    c2s.set_head(1);
    // Source and destination overlap, shifted by a few bytes.
    let posted = Desc {
        length: BUFFER,
        offset: offset + 7,
        ..good(&memory, 0)
    };
    s2c.set_desc(0, posted);
    s2c.set_head(1);
    let taken = rx.burst(64, |packet| {
        assert_eq!(tx.forward(&[], &packet), Ok(Sent::Yes));
    });
    assert_eq!(taken, Ok(1));
    tx.flush();
    assert_eq!(memory.read(offset + 7, 100), frame(5, 100));
}

#[test]
fn attack_header_that_is_no_ring() {
    use memif::{Bell, Rx, Tx};

    for cookie in [0, 1, 0x03E3_1F21, u32::MAX] {
        let memory = Memory::small();
        memory.c2s().set_cookie(cookie);
        memory.s2c().set_cookie(cookie);
        let (place, _) = memory.layout.c2s[0];
        let violation = Violation::Cookie { found: cookie };
        let rx = Rx::server(&memory.regions, place, None, MAX_FRAME);
        assert_eq!(rx.unwrap_err(), violation);
        let (place, _) = memory.layout.s2c[0];
        let tx = Tx::server(&memory.regions, place, Bell::silent());
        assert_eq!(tx.unwrap_err(), violation);
    }
}

#[test]
fn attack_ring_outside_of_its_region_is_refused_by_the_ring_too() {
    use memif::{RingPlace, Rx};

    let memory = Memory::small();
    let size = memory.layout.size();
    for (region, offset, log2_size) in [
        (1, 0, 3),
        (0, size, 3),
        (0, size - 128, 3),
        (0, 8, 3),
        (0, !15, 3),
        (0, 0, 20),
        (0, 0, 63),
        (0, 0, 64),
        (0, 0, 255),
    ] {
        let place = RingPlace {
            region,
            offset,
            log2_size,
        };
        let rx = Rx::server(&memory.regions, place, None, MAX_FRAME);
        assert_eq!(rx.unwrap_err(), Violation::RingPlace { region, offset });
    }
}
