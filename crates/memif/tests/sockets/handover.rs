//! A server that is replaced under a connection.

use std::time::Instant;

use memif::{ClientConfig, Event, Handover, Listener, RxPosition, Sent, Violation};

use super::scene::{address, assert_frames, closed, config, is_readable, name, pair, wait};

fn client() -> ClientConfig {
    ClientConfig {
        c2s_rings: 2,
        s2c_rings: 2,
        log2_ring_size: 4,
        ..ClientConfig::new(name("client"))
    }
}

/// Makes the successor: a listener of its own, with nothing of the old process.
fn successor() -> Listener {
    Listener::bind(&address(), config()).unwrap()
}

#[test]
fn a_client_does_not_notice_that_its_server_is_replaced() {
    let (listener, mut connection, mut ours, mut client, mut theirs) = pair(client());
    let mut old = listener;
    for round in 0..20_u8 {
        // The indices are somewhere in the middle, and wrap around the ring.
        assert_frames(&mut theirs, &mut ours);
        assert_frames(&mut ours, &mut theirs);
        // Frames are on their way, both ways; one is pushed and not yet shown.
        for number in 0..3 {
            assert_eq!(theirs.tx[1].push(&[number; 64]), Ok(Sent::Yes));
            assert_eq!(ours.tx[1].push(&[100 + number; 64]), Ok(Sent::Yes));
        }
        theirs.tx[1].flush();
        let handover = connection.hand_over(ours).unwrap();
        assert_eq!(handover.id, 0);
        let new = successor();
        let resumed = new.resume(handover, Instant::now()).unwrap().unwrap();
        (connection, ours) = resumed;
        drop(std::mem::replace(&mut old, new));
        assert!(old.doors()[0].is_taken());
        assert_eq!((ours.app, ours.peer), (name("client"), name("client")));
        assert!(!is_readable(client.fd().unwrap()), "nothing was said");
        for (first, port) in [(0, &mut ours), (100, &mut theirs)] {
            let mut seen = Vec::new();
            port.rx[1]
                .burst(64, |packet| {
                    let mut byte = [0];
                    packet.read(10, &mut byte);
                    seen.push(byte[0]);
                })
                .unwrap();
            assert_eq!(seen, [first, first + 1, first + 2], "round {round}");
        }
    }
    assert!(matches!(client.poll(Instant::now()), Ok(Event::Nothing)));
    // And the new one is a server like any other.
    connection.disconnect("done");
    wait(&[client.fd().unwrap()]);
    let why = closed(client.poll(Instant::now()).unwrap());
    assert_eq!(why.to_string(), "disconnected by the peer: done");
    drop(connection);
    assert!(!old.doors()[0].is_taken());
}

#[test]
fn an_interface_that_has_a_client_does_not_get_a_second_one() {
    let (_first, connection, ours, _client, _theirs) = pair(client());
    let (listener, _connection, mut at_home, _other, mut other) = pair(client());
    let handover = connection.hand_over(ours).unwrap();
    let refused = listener.resume(handover, Instant::now()).unwrap();
    assert_eq!(refused.unwrap_err(), Violation::AlreadyConnected(0));
    assert_frames(&mut at_home, &mut other);
}

/// A client that sleeps is woken, whichever of the two was to ring.
#[test]
fn a_client_that_sleeps_is_woken_for_what_the_old_server_sent() {
    let (_listener, connection, mut ours, _client, mut theirs) = pair(client());
    assert_eq!(theirs.rx[0].arm(), Ok(true));
    assert_eq!(ours.tx[0].push(&[1; 60]), Ok(Sent::Yes));
    let handover = connection.hand_over(ours).unwrap();
    let _resumed = successor().resume(handover, Instant::now()).unwrap();
    wait(&[theirs.rx[0].event().unwrap()]);
    let mut seen = 0;
    theirs.rx[0].burst(64, |_| seen += 1).unwrap();
    assert_eq!(seen, 1);
}

/// Positions of the old server and rings of the client are not trusted.
#[test]
fn a_position_that_does_not_fit_is_a_violation_and_no_crash() {
    let (_listener, connection, ours, _client, _theirs) = pair(client());
    let mut handover: Handover = connection.hand_over(ours).unwrap();
    handover.c2s[0].at = RxPosition {
        next: 0x7000,
        in_chain: true,
    };
    handover.s2c[0].at = 0x7000;
    let new = successor();
    let (_connection, mut ours) = new.resume(handover, Instant::now()).unwrap().unwrap();
    let lied = ours.rx[0].burst(64, |_| panic!("no packet"));
    assert!(matches!(lied, Err(Violation::Index { .. })));
    assert!(matches!(
        ours.tx[0].push(&[0; 60]),
        Err(Violation::Index { .. })
    ));
    // A place outside of the region.
    let (_listener, connection, ours, _client, _theirs) = pair(client());
    let mut handover = connection.hand_over(ours).unwrap();
    handover.s2c[1].place.offset = u32::MAX - 15;
    let refused = successor().resume(handover, Instant::now()).unwrap();
    assert!(matches!(refused, Err(Violation::RingPlace { .. })));
}
