//! Test that ICMP errors of connections by a Service are translated, byte by byte.

use std::net::IpAddr;

use agent_common::addr::{GATEWAY_MAC, GATEWAY_V4, GATEWAY_V6, MacAddr};
use agent_common::cases::build::{self, Ipv4, Ipv6};
use agent_common::cases::{BLUE_A, BLUE_B, GREEN_A, GREEN_B, Pod, SERVICE};
use agent_common::packet::{IPPROTO_ICMP, IPPROTO_ICMPV6, IPPROTO_TCP, IPPROTO_UDP};
use agent_common::port::PORT_L3;

use super::{BACKEND, CLIENT, Packet, VIP, goes, ip_of, open, put, serve};
use crate::scratch::scene;

/// Bytes of the payload that are quoted (RFC 792).
const QUOTED: usize = 8;

/// A packet in an error, as its receiver got it.
///
/// The sum in what is quoted of a datagram is that of the packet on its way: `sums` has it.
struct Quote {
    named: Packet,
    sums: Packet,
}

impl Quote {
    const fn of(packet: Packet) -> Self {
        Self {
            named: packet,
            sums: packet,
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let frame = |packet: &Packet| packet.frame(MacAddr([0; 6]), MacAddr([0; 6]));
        let (named, sums) = (frame(&self.named), frame(&self.sums));
        let start = if self.named.from.0.is_ipv4() { 34 } else { 54 };
        let ports = start + 4;
        [&named[14..ports], &sums[ports..start + QUOTED]].concat()
    }
}

/// Types and codes of "port unreachable", of ICMP and ICMPv6.
const UNREACHABLE: [[u8; 2]; 2] = [[3, 3], [1, 4]];
/// Types and codes of "time exceeded".
const EXCEEDED: [[u8; 2]; 2] = [[11, 0], [3, 0]];

/// A frame with the error "port unreachable".
fn error(ends: (IpAddr, IpAddr), hops: u8, quote: &Quote, macs: (MacAddr, MacAddr)) -> Vec<u8> {
    message(UNREACHABLE, ends, hops, quote, macs)
}

fn message(
    kinds: [[u8; 2]; 2],
    (from, to): (IpAddr, IpAddr),
    hops: u8,
    quote: &Quote,
    macs: (MacAddr, MacAddr),
) -> Vec<u8> {
    let quote = quote.bytes();
    let message = |[kind, code]: [u8; 2], pseudo: &[u8]| {
        let mut message = [&[kind, code, 0, 0, 0, 0, 0, 0][..], &quote].concat();
        let sum = build::checksum(&[pseudo, &message].concat());
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        message
    };
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let ip = Ipv4 {
                ttl: hops,
                ..Ipv4::new(from, to)
            };
            let message = message(kinds[0], &[]);
            ip.frame(macs.0, macs.1, IPPROTO_ICMP, &message)
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let ip = Ipv6 {
                hops,
                ..Ipv6::new(from, to)
            };
            let length = u8::try_from(8 + quote.len()).expect("a short message");
            let ends = [from.octets(), to.octets()].concat();
            let pseudo = [&ends[..], &[0, 0, 0, length, 0, 0, 0, IPPROTO_ICMPV6]].concat();
            let message = message(kinds[1], &pseudo);
            ip.frame(macs.0, macs.1, IPPROTO_ICMPV6, &message)
        }
        other => unreachable!("one family, not {other:?}"),
    }
}

/// RFC 792, RFC 4443: a socket knows an error by the ends that it quotes.
#[test]
fn an_error_quotes_what_its_receiver_has_sent_and_comes_from_the_end_that_it_knows() {
    scene(|scratch| {
        let (mut datapath, mut maps) = open(scratch);
        for (client, backend) in [(&GREEN_A, &GREEN_B), (&BLUE_A, &BLUE_B)] {
            for (set, service) in (client.network * 2..).zip(SERVICE) {
                let ip = ip_of(backend, service.is_ipv4());
                serve(&mut maps, client.network, set, service, &[ip]);
                for protocol in [IPPROTO_TCP, IPPROTO_UDP] {
                    let asks = Packet {
                        from: (ip_of(client, service.is_ipv4()), CLIENT),
                        to: (service, VIP),
                        protocol,
                        hops: 64,
                    };
                    let translated = Packet {
                        to: (ip, BACKEND),
                        ..asks
                    };
                    put(&mut datapath, client);
                    goes(&datapath, &asks.frame(GATEWAY_MAC, client.mac));
                    about_question(&mut datapath, (client, backend), asks, translated);
                    about_answer(&mut datapath, (client, backend), asks, translated);
                }
            }
        }
    });
}

/// The gateway's own error is about the packet as it was when it was translated.
#[test]
fn a_packet_to_a_service_that_has_no_hop_left_is_answered_as_it_was_sent() {
    scene(|scratch| {
        let (mut datapath, mut maps) = open(scratch);
        let (client, backend) = (&GREEN_A, &GREEN_B);
        put(&mut datapath, client);
        for (set, service) in (1..).zip(SERVICE) {
            let ip = ip_of(backend, service.is_ipv4());
            serve(&mut maps, client.network, set, service, &[ip]);
            let gateway = match service {
                IpAddr::V4(_) => IpAddr::from(GATEWAY_V4),
                IpAddr::V6(_) => GATEWAY_V6.into(),
            };
            for protocol in [IPPROTO_TCP, IPPROTO_UDP] {
                let asks = Packet {
                    from: (ip_of(client, service.is_ipv4()), CLIENT),
                    to: (service, VIP),
                    protocol,
                    hops: 1,
                };
                let translated = Packet {
                    to: (ip, BACKEND),
                    ..asks
                };
                let left = goes(&datapath, &asks.frame(GATEWAY_MAC, client.mac));
                let quote = Quote {
                    named: asks,
                    sums: translated,
                };
                let ends = (gateway, asks.from.0);
                let macs = (client.mac, GATEWAY_MAC);
                let expected = message(EXCEEDED, ends, 64, &quote, macs);
                // The identification of IPv4 is the gateway's, and with it the sum of the header.
                let from = if service.is_ipv4() { 26 } else { 0 };
                assert_eq!(left[from..], expected[from..], "{asks:?}");
                if service.is_ipv4() {
                    assert_eq!(build::checksum(&left[14..34]), 0);
                }
            }
        }
    });
}

/// Hops of 64 that a packet has left, and its MAC addresses at both ends.
fn way(from: &Pod, to: &Pod) -> (u8, (MacAddr, MacAddr), (MacAddr, MacAddr)) {
    if from.flags & PORT_L3 == 0 {
        (64, (to.mac, from.mac), (to.mac, from.mac))
    } else {
        (63, (GATEWAY_MAC, from.mac), (to.mac, GATEWAY_MAC))
    }
}

fn about_question(
    datapath: &mut datapath::Datapath,
    (client, backend): (&Pod, &Pod),
    asks: Packet,
    translated: Packet,
) {
    put(datapath, backend);
    let (hops, sent, _) = way(backend, client);
    let own = (translated.to.0, translated.from.0);
    let left = goes(datapath, &error(own, 64, &Quote::of(translated), sent));
    let expected = Quote {
        named: asks,
        sums: translated,
    };
    let own = (asks.to.0, asks.from.0);
    let macs = (client.mac, GATEWAY_MAC);
    assert_eq!(left, error(own, hops, &expected, macs), "{asks:?}");
    // What is about another connection stays as it is.
    let other = Packet {
        from: (asks.from.0, CLIENT + 1),
        ..translated
    };
    let own = (translated.to.0, translated.from.0);
    let left = goes(datapath, &error(own, 64, &Quote::of(other), sent));
    let (_, _, arrives) = way(backend, client);
    assert_eq!(left, error(own, hops, &Quote::of(other), arrives));
}

fn about_answer(
    datapath: &mut datapath::Datapath,
    (client, backend): (&Pod, &Pod),
    asks: Packet,
    translated: Packet,
) {
    put(datapath, client);
    let (hops, _, arrives) = way(client, backend);
    let own = (asks.from.0, asks.to.0);
    let got = Quote::of(asks.answer());
    let macs = (GATEWAY_MAC, client.mac);
    let left = goes(datapath, &error(own, 64, &got, macs));
    let expected = Quote {
        named: translated.answer(),
        sums: asks.answer(),
    };
    let own = (translated.from.0, translated.to.0);
    assert_eq!(left, error(own, hops, &expected, arrives), "{asks:?}");
}
