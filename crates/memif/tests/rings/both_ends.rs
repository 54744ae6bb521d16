//! Server and client, both ours.

use std::thread;

use memif::{Rx, Sent, Tx};

use super::scene::{BUFFER, MAX_FRAME, Memory, SLOTS, agreed, frame, receive};

fn send(tx: &mut Tx, frame: &[u8]) {
    assert_eq!(tx.push(frame), Ok(Sent::Yes));
    tx.flush();
}

#[test]
fn packets_travel_both_ways_whole_and_in_order() {
    let memory = Memory::small();
    let (mut server_rx, mut server_tx) = memory.server();
    let (mut client_rx, mut client_tx) = memory.client();
    let lens = [14, 15, 60, 64, 65, 255, 256];
    let frames: Vec<Vec<u8>> = (0..).zip(lens).map(|(nth, len)| frame(nth, len)).collect();
    for (tx, rx) in [
        (&mut client_tx, &mut server_rx),
        (&mut server_tx, &mut client_rx),
    ] {
        for frame in &frames {
            assert_eq!(tx.push(frame), Ok(Sent::Yes));
        }
        assert_eq!(receive(rx), Vec::<Vec<u8>>::new(), "not shown yet");
        tx.flush();
        assert_eq!(receive(rx), frames);
        assert_eq!(rx.counters().packets, 7);
        assert_eq!(tx.counters().packets, 7);
        let bytes = lens.iter().map(|len| *len as u64).sum::<u64>();
        assert_eq!((rx.counters().bytes, tx.counters().bytes), (bytes, bytes));
    }
}

#[test]
fn indices_wrap_and_every_legal_ring_size_works() {
    let sizes: &[u8] = if cfg!(miri) {
        &[1, 3]
    } else {
        &[1, 2, 3, 7, 10, 14]
    };
    for log2 in sizes {
        let memory = Memory::new(&agreed(1, 1, *log2), 64);
        let (mut server_rx, mut server_tx) = memory.server();
        let (mut client_rx, mut client_tx) = memory.client();
        // Twice around the ring; and around 2^16 for one of them.
        let around = if *log2 == 3 && !cfg!(miri) { 16 } else { *log2 };
        let rounds = (2 << around) + 3;
        for number in 0..rounds {
            let sent = frame(number, 14 + (number as usize % 51));
            for (tx, rx) in [
                (&mut client_tx, &mut server_rx),
                (&mut server_tx, &mut client_rx),
            ] {
                send(tx, &sent);
                assert_eq!(
                    receive(rx),
                    std::slice::from_ref(&sent),
                    "2^{log2}, {number}"
                );
            }
        }
    }
}

#[test]
fn a_full_ring_drops_and_counts_and_goes_on() {
    let memory = Memory::small();
    let (mut server_rx, mut server_tx) = memory.server();
    let (mut client_rx, mut client_tx) = memory.client();
    for (tx, rx) in [
        (&mut client_tx, &mut server_rx),
        (&mut server_tx, &mut client_rx),
    ] {
        for number in 0..u32::from(SLOTS) {
            assert_eq!(tx.push(&frame(number, 60)), Ok(Sent::Yes));
        }
        assert_eq!(tx.push(&frame(99, 60)), Ok(Sent::NoBuffer));
        tx.flush();
        assert_eq!(tx.push(&frame(99, 60)), Ok(Sent::NoBuffer));
        assert_eq!(tx.counters().no_buffer, 2);
        assert_eq!(receive(rx).len(), usize::from(SLOTS));
        send(tx, &frame(100, 60));
        assert_eq!(receive(rx), [frame(100, 60)]);
    }
}

#[test]
fn a_frame_longer_than_a_buffer_is_dropped_and_never_sent_in_parts() {
    let memory = Memory::small();
    let (mut server_rx, mut server_tx) = memory.server();
    let (mut client_rx, mut client_tx) = memory.client();
    for (tx, rx) in [
        (&mut client_tx, &mut server_rx),
        (&mut server_tx, &mut client_rx),
    ] {
        assert_eq!(tx.push(&frame(1, BUFFER as usize + 1)), Ok(Sent::TooLong));
        assert_eq!(tx.counters().too_long, 1);
        // The buffer is still there for the next.
        send(tx, &frame(2, BUFFER as usize));
        assert_eq!(receive(rx), [frame(2, BUFFER as usize)]);
    }
}

#[test]
fn attack_flood_ends_with_the_budget_and_the_rest_comes_next() {
    let memory = Memory::small();
    let (mut rx, _) = memory.server();
    let (_, mut tx) = memory.client();
    for number in 0..6 {
        assert_eq!(tx.push(&frame(number, 60)), Ok(Sent::Yes));
    }
    tx.flush();
    let mut visited = 0;
    assert_eq!(rx.burst(4, |_| visited += 1), Ok(4));
    assert_eq!(visited, 4);
    assert_eq!(rx.burst(0, |_| visited += 1), Ok(0));
    assert_eq!(receive(&mut rx), [frame(4, 60), frame(5, 60)]);
}

#[test]
fn attack_header_changed_after_the_decision() {
    let from = Memory::small();
    let to = Memory::small();
    let (mut rx, _) = from.server();
    let (_, mut source) = from.client();
    let (_, mut tx) = to.server();
    let (mut sink, _) = to.client();
    for len in [14, 64, 200] {
        send(&mut source, &frame(7, len));
        let taken = rx.burst(1, |packet| {
            let mut header = [0; 64];
            let copied = packet.read(0, &mut header);
            // The peer changes its mind after the decision.
            from.write(from.c2s_buffer(0), &[0xee; 64]);
            from.write(from.c2s_buffer(1), &[0xee; 64]);
            from.write(from.c2s_buffer(2), &[0xee; 64]);
            assert_eq!(tx.forward(&header[..copied], &packet), Ok(Sent::Yes));
        });
        assert_eq!(taken, Ok(1));
        tx.flush();
        assert_eq!(receive(&mut sink), [frame(7, len)]);
    }
}

#[test]
fn several_rings_do_not_touch_each_other() {
    let memory = Memory::new(&agreed(3, 2, 2), 64);
    let regions = &memory.regions;
    let mut ends: Vec<(Tx, Rx)> = Vec::new();
    for (place, buffers) in &memory.layout.c2s {
        let rx = Rx::server(regions, *place, None, MAX_FRAME).unwrap();
        let tx = Tx::client(regions, *place, memif::Bell::silent(), *buffers).unwrap();
        ends.push((tx, rx));
    }
    for (place, buffers) in &memory.layout.s2c {
        let tx = Tx::server(regions, *place, memif::Bell::silent()).unwrap();
        let rx = Rx::client(regions, *place, None, *buffers).unwrap();
        ends.push((tx, rx));
    }
    for (number, (tx, _)) in (0..).zip(&mut ends) {
        for nth in 0..4 {
            assert_eq!(tx.push(&frame(10 * number + nth, 64)), Ok(Sent::Yes));
        }
        tx.flush();
    }
    for (number, (_, rx)) in (0..).zip(&mut ends) {
        let expected: Vec<Vec<u8>> = (0..4).map(|nth| frame(10 * number + nth, 64)).collect();
        assert_eq!(receive(rx), expected);
    }
}

/// Ends on two threads, with real atomics between them, lose nothing.
///
/// Under Miri a missing release or acquire is a data race, and an index in two halves would be a jump.
#[test]
fn two_threads_lose_and_change_nothing() {
    let memory = Memory::small();
    let (mut server_rx, mut server_tx) = memory.server();
    let (mut client_rx, mut client_tx) = memory.client();
    let count: u32 = if cfg!(miri) { 60 } else { 10_000 };
    thread::scope(|scope| {
        let stream = |tx: &mut Tx| {
            let mut number = 0;
            while number < count {
                if tx.free().expect("an honest peer") == 0 {
                    thread::yield_now();
                    continue;
                }
                assert_eq!(tx.push(&frame(number, 60)), Ok(Sent::Yes));
                tx.flush();
                number += 1;
            }
        };
        let check = |rx: &mut Rx| {
            let mut number = 0;
            while number < count {
                let taken = rx.burst(32, |packet| {
                    let mut bytes = [0; 60];
                    packet.read(0, &mut bytes);
                    assert_eq!(bytes.as_slice(), frame(number, 60));
                    number += 1;
                });
                if taken.expect("an honest peer") == 0 {
                    thread::yield_now();
                }
            }
        };
        scope.spawn(move || stream(&mut client_tx));
        scope.spawn(move || check(&mut server_rx));
        scope.spawn(move || stream(&mut server_tx));
        scope.spawn(move || check(&mut client_rx));
    });
}
