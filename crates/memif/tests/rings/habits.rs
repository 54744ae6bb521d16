//! Test habits and expectations of other implementations (facts 1.3 to 1.5).

use memif::{MAX_SEGMENTS, Sent};

use super::scene::{BUFFER, Desc, MASK_INT, Memory, NEXT, SLOTS, frame, receive};

/// DPDK and libmemif zero all indices again at CONNECTED, and clear the flags.
#[test]
fn a_client_that_zeroes_the_rings_after_the_server_did_is_served() {
    let memory = Memory::small();
    memory.c2s().set_head(77);
    memory.s2c().set_tail(78);
    let (mut rx, mut tx) = memory.server();
    assert_eq!((memory.c2s().head(), memory.s2c().tail()), (0, 0));
    assert_eq!(memory.c2s().flags(), MASK_INT);
    // Nothing is posted, so the server moves nothing.
    assert_eq!(tx.push(&frame(0, 60)), Ok(Sent::NoBuffer));
    tx.flush();
    assert_eq!(receive(&mut rx), Vec::<Vec<u8>>::new());
    for ring in [memory.c2s(), memory.s2c()] {
        assert_eq!((ring.head(), ring.tail()), (0, 0));
        ring.set_head(0);
        ring.set_tail(0);
        ring.set_flags(0);
    }
    let (mut client_rx, mut client_tx) = memory.client();
    memory.c2s().set_flags(0);
    assert_eq!(client_tx.push(&frame(1, 60)), Ok(Sent::Yes));
    client_tx.flush();
    assert_eq!(receive(&mut rx), [frame(1, 60)]);
    assert_eq!(memory.c2s().flags(), MASK_INT, "it polls still");
    assert_eq!(tx.push(&frame(2, 60)), Ok(Sent::Yes));
    tx.flush();
    assert_eq!(receive(&mut client_rx), [frame(2, 60)]);
}

/// A DPDK client lends no buffers before its application polls for the first time.
#[test]
fn without_posted_buffers_packets_are_dropped_and_counted() {
    let memory = Memory::small();
    let (_, mut tx) = memory.server();
    for _ in 0..3 {
        assert_eq!(tx.push(&frame(1, 60)), Ok(Sent::NoBuffer));
    }
    assert_eq!(tx.counters().no_buffer, 3);
    let (mut rx, _) = memory.client();
    assert_eq!(tx.push(&frame(2, 60)), Ok(Sent::Yes));
    tx.flush();
    assert_eq!(receive(&mut rx), [frame(2, 60)]);
}

/// DPDK always sets MASK_INT; libmemif wants interrupts; VPP changes its mind.
#[test]
fn doorbells_are_rung_only_for_who_wants_them() {
    let memory = Memory::small();
    let (mut server_rx, mut tx) = memory.server();
    let (mut client_rx, _) = memory.client();
    let ring = memory.s2c();
    let mut send = |number| {
        assert_eq!(tx.push(&frame(number, 60)), Ok(Sent::Yes));
        tx.flush();
        tx.flush();
        tx.counters().doorbells
    };
    assert_eq!(send(1), 0, "the client polls");
    assert_eq!(client_rx.arm(), Ok(false), "there is a packet already");
    assert_eq!(ring.flags(), 0);
    assert_eq!(send(2), 1, "one for a flush with news");
    client_rx.disarm();
    assert_eq!(ring.flags(), MASK_INT);
    assert_eq!(send(3), 1);
    assert_eq!(receive(&mut client_rx).len(), 3);
    assert_eq!(client_rx.arm(), Ok(true));
    // An armed ring stays armed while packets come.
    assert_eq!(send(4), 2);
    assert_eq!(receive(&mut client_rx).len(), 1);
    assert_eq!(ring.flags(), 0);
    assert_eq!(server_rx.arm(), Ok(true));
    assert_eq!(memory.c2s().flags(), 0);
}

/// libmemif moves descriptors between rings: a slot has no buffer of its own.
#[test]
fn a_slot_names_another_buffer_each_time() {
    let memory = Memory::small();
    let (mut rx, mut tx) = memory.server();
    let (c2s, s2c) = (memory.c2s(), memory.s2c());
    for (number, slot) in [(0_u16, 5_u16), (1, 2), (2, 7)] {
        let offset = memory.s2c_buffer(slot);
        memory.write(offset, &frame(number.into(), 60));
        let desc = Desc {
            flags: 0,
            region: 0,
            length: 60,
            offset,
        };
        c2s.set_desc(number, desc);
        c2s.set_head(number + 1);
        assert_eq!(receive(&mut rx), [frame(number.into(), 60)]);

        let offset = memory.c2s_buffer(slot);
        let desc = Desc {
            length: BUFFER,
            offset,
            ..desc
        };
        s2c.set_desc(number, desc);
        s2c.set_head(number + 1);
        assert_eq!(tx.push(&frame(100, 60)), Ok(Sent::Yes));
        tx.flush();
        assert_eq!(memory.read(offset, 60), frame(100, 60));
        assert_eq!(s2c.desc(number), Desc { length: 60, ..desc });
    }
}

/// DPDK before 26.03 leaves NEXT in descriptors that it uses again.
#[test]
fn flags_of_a_taken_descriptor_are_cleared_before_it_is_given_back() {
    let memory = Memory::small();
    let (mut rx, _) = memory.server();
    let ring = memory.c2s();
    for (slot, flags) in [(0, NEXT), (1, 0xfffe)] {
        let desc = Desc {
            flags,
            region: 0,
            length: 60,
            offset: memory.c2s_buffer(slot),
        };
        ring.set_desc(slot, desc);
    }
    ring.set_head(2);
    assert_eq!(receive(&mut rx)[0].len(), 120);
    assert_eq!(ring.tail(), 2);
    for slot in [0, 1] {
        let left = ring.desc(slot);
        assert_eq!((left.flags, left.length), (0, 60));
        assert_eq!(left.offset, memory.c2s_buffer(slot));
    }
}

/// DPDK's fast path reads flags of a descriptor that the server has filled.
#[test]
fn flags_of_a_filled_descriptor_are_stored_completely() {
    let memory = Memory::small();
    let (_, mut tx) = memory.server();
    let ring = memory.s2c();
    let posted = Desc {
        flags: 0xffff,
        region: 0,
        length: BUFFER,
        offset: memory.s2c_buffer(0),
    };
    ring.set_desc(0, posted);
    ring.set_head(1);
    assert_eq!(tx.push(&frame(1, 60)), Ok(Sent::Yes));
    tx.flush();
    let filled = Desc {
        flags: 0,
        length: 60,
        ..posted
    };
    assert_eq!(ring.desc(0), filled);
}

#[test]
fn chains_are_accepted_from_a_client_and_from_a_server() {
    let memory = Memory::small();
    let whole = frame(3, MAX_SEGMENTS * 20);
    let parts: Vec<&[u8]> = whole.chunks(20).collect();
    for segments in 2..=MAX_SEGMENTS {
        let (mut rx, _) = memory.server();
        let ring = memory.c2s();
        for (slot, part) in (0..).zip(&parts[..segments]) {
            let offset = memory.c2s_buffer(slot);
            memory.write(offset, part);
            let goes_on = usize::from(slot) + 1 < segments;
            let desc = Desc {
                flags: if goes_on { NEXT } else { 0 },
                region: 0,
                length: 20,
                offset,
            };
            ring.set_desc(slot, desc);
        }
        let segments = u16::try_from(segments).unwrap();
        ring.set_head(segments);
        let len = usize::from(segments) * 20;
        let taken = rx.burst(64, |packet| {
            let mut bytes = [0; 160];
            assert_eq!(packet.read(0, &mut bytes), len);
            assert_eq!(bytes[..len], whole[..len]);
            // From the middle of a segment, into less than there is.
            assert_eq!(packet.read(25, &mut bytes[..7]), 7);
            assert_eq!(bytes[..7], whole[25..32]);
            assert_eq!(packet.read(packet.len(), &mut bytes), 0);
        });
        assert_eq!(taken, Ok(segments));
        assert_eq!(rx.counters().packets, 1);
    }

    let (mut rx, _) = memory.client();
    let ring = memory.s2c();
    for (slot, part) in (0..).zip(&parts) {
        memory.write(memory.s2c_buffer(slot), part);
        let goes_on = usize::from(slot) + 1 < parts.len();
        let desc = Desc {
            flags: if goes_on { NEXT } else { 0 },
            length: 20,
            ..ring.desc(slot)
        };
        ring.set_desc(slot, desc);
    }
    ring.set_tail(SLOTS);
    assert_eq!(receive(&mut rx), [whole]);
    assert_eq!(ring.head(), 2 * SLOTS, "all slots are lent again");
    assert_eq!(ring.desc(0).length, BUFFER);
    assert_eq!(ring.desc(0).flags, 0);
}

/// A chain goes to another peer as one packet in one buffer.
#[test]
fn a_chain_is_sent_on_as_one_piece() {
    let memory = Memory::small();
    let (mut rx, mut tx) = memory.server();
    let (mut client_rx, _) = memory.client();
    let ring = memory.c2s();
    let whole = frame(9, 100);
    for (slot, part) in (0..).zip(whole.chunks(40)) {
        let offset = memory.c2s_buffer(slot);
        memory.write(offset, part);
        let desc = Desc {
            flags: if slot < 2 { NEXT } else { 0 },
            region: 0,
            length: u32::try_from(part.len()).unwrap(),
            offset,
        };
        ring.set_desc(slot, desc);
    }
    ring.set_head(3);
    let taken = rx.burst(64, |packet| {
        let mut header = [0; 50];
        packet.read(0, &mut header);
        assert_eq!(tx.forward(&header, &packet), Ok(Sent::Yes));
    });
    assert_eq!(taken, Ok(3));
    tx.flush();
    assert_eq!(receive(&mut client_rx), [whole]);
}
