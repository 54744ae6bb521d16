//! A client, whose memory the server has mapped too and writes into what it likes.

use memif::{Sent, Violation};

use super::scene::{BUFFER, Desc, Memory, SLOTS, frame, receive};

#[test]
fn attack_tail_jump() {
    for jump in [SLOTS + 1, 0x8000, 0xffff] {
        let memory = Memory::small();
        let (mut rx, mut tx) = memory.client();
        memory.s2c().set_tail(jump);
        let violation = Violation::Index {
            ours: 0,
            theirs: jump,
        };
        assert_eq!(rx.burst(64, |_| panic!("no packet")), Err(violation));
        // One step back is only a slot less for us.
        memory.c2s().set_tail(jump & 0xff00 | 0x88);
        let pushed = tx.push(&frame(1, 60));
        assert!(matches!(pushed, Err(Violation::Index { .. })), "{pushed:?}");
    }
}

/// A tail ahead of what was sent would be more free slots than there are.
#[test]
fn attack_tail_ahead_of_the_head() {
    let memory = Memory::small();
    let (_, mut tx) = memory.client();
    for number in 0..3 {
        assert_eq!(tx.push(&frame(number, 60)), Ok(Sent::Yes));
    }
    tx.flush();
    memory.c2s().set_tail(4);
    assert!(matches!(tx.free(), Err(Violation::Index { .. })));
}

#[test]
fn attack_length_beyond_the_buffer() {
    for length in [BUFFER + 1, u32::MAX] {
        let memory = Memory::small();
        let (mut rx, _) = memory.client();
        let ring = memory.s2c();
        ring.set_desc(
            0,
            Desc {
                length,
                ..ring.desc(0)
            },
        );
        ring.set_tail(1);
        let result = rx.burst(64, |_| panic!("no packet"));
        assert!(
            matches!(result, Err(Violation::Descriptor { .. })),
            "{result:?}"
        );
    }
}

/// A slot's buffer is where the client put it, whatever is over its descriptor.
#[test]
fn attack_descriptors_scribbled_over() {
    let memory = Memory::small();
    let (mut rx, mut tx) = memory.client();
    let (c2s, s2c) = (memory.c2s(), memory.s2c());
    let lie = Desc {
        flags: 0,
        region: 77,
        length: 60,
        offset: u32::MAX,
    };
    for slot in 0..SLOTS {
        c2s.set_desc(slot, lie);
        s2c.set_desc(slot, lie);
    }
    memory.write(memory.s2c_buffer(0), &frame(1, 60));
    s2c.set_tail(1);
    assert_eq!(receive(&mut rx), [frame(1, 60)]);
    let lent = Desc {
        flags: 0,
        region: 0,
        length: BUFFER,
        offset: memory.s2c_buffer(0),
    };
    assert_eq!(s2c.desc(0), lent, "lent again as it was");
    assert_eq!(tx.push(&frame(2, 60)), Ok(Sent::Yes));
    tx.flush();
    let sent = Desc {
        length: 60,
        offset: memory.c2s_buffer(0),
        ..lent
    };
    assert_eq!(c2s.desc(0), sent);
    assert_eq!(memory.read(memory.c2s_buffer(0), 60), frame(2, 60));
}

#[test]
fn attack_scribbled_head() {
    let memory = Memory::small();
    let (mut rx, mut tx) = memory.client();
    let (mut server_rx, mut server_tx) = memory.server();
    // The server's ends emptied the rings; the client lends its buffers again.
    memory.s2c().set_head(SLOTS);
    for number in 0..20_u16 {
        assert_eq!(server_tx.push(&frame(number.into(), 60)), Ok(Sent::Yes));
        server_tx.flush();
        memory.s2c().set_head(0x4444);
        assert_eq!(receive(&mut rx), [frame(number.into(), 60)]);
        assert_eq!(memory.s2c().head(), number + 1 + SLOTS);
        memory.c2s().set_head(0x4444);
        assert_eq!(tx.push(&frame(number.into(), 60)), Ok(Sent::Yes));
        tx.flush();
        assert_eq!(memory.c2s().head(), number + 1);
        assert_eq!(receive(&mut server_rx), [frame(number.into(), 60)]);
    }
}
