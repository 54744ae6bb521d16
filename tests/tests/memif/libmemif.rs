//! libmemif as the server: its example listens, and we connect to it. As the client it is where ports are tested.

use std::net::Ipv4Addr;
use std::time::Instant;

use agent_common::addr::MacAddr;
use memif::{Address, Client, ClientConfig, Event, Port, Sent};
use netdev::Netns;
use tests::frame::{Arp, Ipv4, ethernet, icmp_echo, is_arp_reply_for, marker};
use tests::libmemif::{LENS, Responder, Role, program};
use tests::wait;

use super::testpmd::name;

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
/// More than a ring has slots, so that indices go round; fewer than 2^16 at once.
const FRAMES: u32 = 3000;

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

/// What comes in answer to a frame. It is sent again when libmemif has overheard the bell.
fn answer(port: &mut Port, responder: &mut Responder, frame: &[u8]) -> Vec<u8> {
    let (tx, rx) = (&mut port.tx[0], &mut port.rx[0]);
    wait::until("an answer", || {
        responder.assert_running();
        assert_eq!(tx.push(frame), Ok(Sent::Yes));
        tx.flush();
        let mut answer = None;
        let until = Instant::now() + wait::PATIENCE / 60;
        while answer.is_none() && Instant::now() < until {
            let taken = rx.burst(64, |packet| {
                let mut bytes = vec![0; packet.len() as usize];
                packet.read(0, &mut bytes);
                answer = Some(bytes);
            });
            taken.expect("an honest peer");
            std::thread::yield_now();
        }
        answer
    })
}

/// An echo request of its own content, and the bytes of the answer but for the sums.
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

/// A frame without the sums of IPv4 and ICMP: the example adds what was in its buffer before to the former, and
/// makes the latter over the header only.
fn without_sums(mut frame: Vec<u8>) -> Vec<u8> {
    frame[24..26].fill(0);
    frame[36..38].fill(0);
    frame
}

#[test]
fn our_client_is_served_by_libmemif_byte_by_byte() {
    let Some(program) = program(tests::test_name!()) else {
        return;
    };
    if tests::skip::without_root(tests::test_name!()) {
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
    assert_eq!(port.app.to_string(), "icmp_responder_example");

    let broadcast = MacAddr([0xff; 6]);
    let question = Arp::request((OURS.1, OURS.0), THEIRS.0).frame(broadcast, OURS.1, &[]);
    let told = answer(&mut port, &mut responder, &question);
    assert!(is_arp_reply_for(&told, THEIRS.0), "{told:02x?}");
    assert_eq!(told[22..28], THEIRS.1.0, "{told:02x?}");

    for number in 0..FRAMES {
        let len = LENS[number as usize % LENS.len()];
        let (request, expected) = echo(len);
        let came = answer(&mut port, &mut responder, &request);
        assert!(
            without_sums(came.clone()) == without_sums(expected),
            "{came:02x?} for {request:02x?}"
        );
    }
    let counters = port.tx[0].counters();
    assert_eq!(counters.doorbells, counters.packets, "it sleeps");
    drop(client);
    responder.wait_ended();
}
