//! libmemif as the client and as the server of our library.

use std::net::Ipv4Addr;
use std::thread;
use std::time::Instant;

use agent_common::addr::MacAddr;
use memif::{Address, Client, ClientConfig, Event, Listener, Port, Rx, Sent, Tx};
use netdev::Netns;
use rustix::event::{Timespec, epoll};
use testbed::frame::{Arp, Ipv4, ethernet, icmp_echo, is_arp_reply_for, marker};
use testbed::libmemif::{LENS, Responder, Role, program};
use testbed::wait;

use super::testpmd::{name, server_config};

const THEIRS: (Ipv4Addr, MacAddr) = (
    Ipv4Addr::new(10, 0, 0, 1),
    MacAddr([0x02, 0, 0, 0, 0, 0x0a]),
);
const OURS: (Ipv4Addr, MacAddr) = (
    Ipv4Addr::new(10, 0, 0, 2),
    MacAddr([0x02, 0, 0, 0, 0, 0x0b]),
);
const IP: u16 = 0x0800;
const ICMP: u8 = 1;
/// More than there are numbers for slots.
const FRAMES: usize = 66_000;
/// Frames that are shown at once.
///
/// libmemif's example ends when it finds more than 256.
const TOGETHER: usize = 64;

/// Our client, until packets may flow.
fn connect(client: &mut Client, responder: &mut Responder) -> Port {
    wait::until("a connection to libmemif", || {
        responder.assert_running();
        match client.poll(Instant::now()) {
            Ok(Event::Connected(port)) => Some(port),
            // It does not listen yet.
            Ok(Event::Nothing | Event::Closed(_)) | Err(_) => None,
        }
    })
}

/// Receives the answers to frames that are shown to libmemif all at once.
fn answers(
    tx: &mut Tx,
    rx: &mut Rx,
    responder: &mut Responder,
    frames: &[Vec<u8>],
) -> Vec<Vec<u8>> {
    for frame in frames {
        wait::until_true("a buffer", || {
            responder.assert_running();
            // It has none until it has heard that it is connected.
            tx.push(frame).expect("an honest peer") == Sent::Yes
        });
    }
    tx.flush();
    let mut answers = Vec::new();
    wait::until("the answers", || {
        responder.assert_running();
        let mut looks = 0;
        while answers.len() < frames.len() && looks < 1000 {
            let taken = rx.burst(64, |packet| {
                let mut bytes = vec![0; packet.len() as usize];
                packet.read(0, &mut bytes);
                answers.push(bytes);
            });
            taken.expect("an honest peer");
            looks += 1;
            thread::yield_now();
        }
        (answers.len() >= frames.len()).then(|| std::mem::take(&mut answers))
    })
}

/// Makes an echo request of its own content, and its answer except for the sums.
fn echo(len: usize) -> (Vec<u8>, Vec<u8>) {
    let payload: Vec<u8> = marker().iter().copied().cycle().take(len).collect();
    let request = icmp_echo(&payload);
    let mut reply = request.clone();
    reply[0] = 0;
    let there = Ipv4::new(OURS.0, THEIRS.0, ICMP).packet(&request);
    let mut back = Ipv4::new(THEIRS.0, OURS.0, ICMP).packet(&reply);
    // It numbers no packets.
    back[4..6].fill(0);
    (
        ethernet(THEIRS.1, OURS.1, IP, &there),
        ethernet(OURS.1, THEIRS.1, IP, &back),
    )
}

/// Clears the sums of IPv4 and ICMP in a frame.
///
/// The example adds what was in its buffer before to the former, and makes the latter over the header
/// only.
fn without_sums(mut frame: Vec<u8>) -> Vec<u8> {
    frame[24..26].fill(0);
    frame[36..38].fill(0);
    frame
}

/// Asks for its MAC address, and for echos by every ring until all indices wrapped.
fn converse(port: &mut Port, responder: &mut Responder) {
    assert_eq!(port.app.to_string(), "icmp_responder_example");
    assert_eq!(port.peer.to_string(), "libmemif0");
    for (tx, rx) in port.tx.iter_mut().zip(&mut port.rx) {
        let broadcast = MacAddr([0xff; 6]);
        let question = Arp::request((OURS.1, OURS.0), THEIRS.0).frame(broadcast, OURS.1, &[]);
        let told = answers(tx, rx, responder, &[question]).remove(0);
        assert!(is_arp_reply_for(&told, THEIRS.0), "{told:02x?}");
        assert_eq!(told[22..28], THEIRS.1.0, "{told:02x?}");
        let (mut flushes, mut number, mut batch) = (1, 0, 0);
        let together = usize::from(tx.size().min(rx.size()) / 2).min(TOGETHER);
        while number < FRAMES {
            batch = batch % together + 1;
            let len = |nth: usize| LENS[(number + nth) % LENS.len()];
            let (requests, expected): (Vec<_>, Vec<_>) =
                (0..batch).map(|nth| echo(len(nth))).unzip();
            let came = answers(tx, rx, responder, &requests);
            assert_eq!(came.len(), expected.len());
            for (came, expected) in came.into_iter().zip(expected) {
                assert!(
                    without_sums(came.clone()) == without_sums(expected.clone()),
                    "{came:02x?} is not {expected:02x?}"
                );
            }
            number += batch;
            flushes += 1;
        }
        let counters = tx.counters();
        assert_eq!(counters.doorbells, flushes, "libmemif sleeps");
        assert_woken(tx, rx, responder);
    }
}

/// Asserts that an answer rings the bell of a sleeper, most of the time.
///
/// A single ring may be lost, because libmemif has no fence between its index and its look at our wish.
fn assert_woken(tx: &mut Tx, rx: &mut Rx, responder: &mut Responder) {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).expect("an epoll");
    let bell = rx.event().expect("the ring has a bell");
    let edges = epoll::EventFlags::IN | epoll::EventFlags::ET;
    epoll::add(&epoll, bell, epoll::EventData::new_u64(0), edges).expect("a new one");
    let limit = Timespec::try_from(wait::PATIENCE / 60).expect("not long");
    wait::until_true("the bell", || {
        responder.assert_running();
        rx.burst(64, |_| ()).expect("an honest peer");
        rx.arm().expect("an honest peer");
        assert_eq!(tx.push(&echo(64).0), Ok(Sent::Yes));
        tx.flush();
        let mut events = Vec::with_capacity(1);
        let events = rustix::buffer::spare_capacity(&mut events);
        let woken = epoll::wait(&epoll, events, Some(&limit)).expect("an epoll") > 0;
        rx.disarm();
        woken
    });
}

#[test]
fn our_server_serves_libmemif_byte_by_byte() {
    let Some(program) = program(testbed::test_name!()) else {
        return;
    };
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let netns = Netns::create().expect("a network namespace");
    let address = Address::Abstract(b"test".to_vec());
    let socket = netns.run_in(|| address.listen()).expect("entered");
    let listener = Listener::new(socket.expect("a free address"), server_config());
    let listener = listener.expect("a usual node");
    let mut responder = Responder::start(program, &netns, (Role::Slave, "@test"), THEIRS);
    let mut connection = wait::until("libmemif to connect", || {
        responder.assert_running();
        listener.accept(Instant::now()).expect("accept")
    });
    let mut port = wait::until("the handshake", || {
        responder.assert_running();
        match connection.ready(Instant::now()).expect("no trouble") {
            Event::Connected(port) => Some(port),
            Event::Nothing => None,
            Event::Closed(why) => panic!("{why}"),
        }
    });
    converse(&mut port, &mut responder);
    drop(connection);
    responder.wait_ended();
}

#[test]
fn our_client_is_served_by_libmemif_byte_by_byte() {
    let Some(program) = program(testbed::test_name!()) else {
        return;
    };
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let netns = Netns::create().expect("a network namespace");
    let mut responder = Responder::start(program, &netns, (Role::Master, "@test"), THEIRS);
    let address = Address::Abstract(b"test".to_vec());
    let connect_to = move || netns.run_in(|| address.connect()).expect("entered");
    let config = ClientConfig::new(name("podnet"));
    let client = Client::connecting_by(Box::new(connect_to), config, Instant::now());
    let client = client.expect("a usual node");
    let mut client = client.with_retry(wait::PATIENCE / 300);
    let mut port = connect(&mut client, &mut responder);
    converse(&mut port, &mut responder);
    drop(client);
    responder.wait_ended();
}
