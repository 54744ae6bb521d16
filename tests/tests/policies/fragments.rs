//! Packets in parts, and headers in front of the ports.

use testbed::frame::{Ipv6, checksum, extension, fragment_header, marker, udp6};
use testbed::{Node, Port};

use super::attacker::{Attacker, frame};
use super::scene::{app, policy, setup};

const UDP: u8 = 17;
const TCP: u8 = 6;
/// "More fragments".
const MORE: u16 = 0x2000;

/// Only `web` may send to `db`, to port 80.
fn web_only(network: &str) -> String {
    let rule = "ingress: [{from: [{podSelector: {matchLabels: {app: web}}}], \
                ports: [{protocol: UDP, port: 80}, {protocol: TCP, port: 80}]}]";
    policy("db", network, "db", rule)
}

/// A part of an IPv4 packet: its identification, and the field of flags and offset.
fn part4(from: &Port, to: &Port, protocol: u8, (id, field): (u16, u16), payload: &[u8]) -> Vec<u8> {
    let mut header = testbed::frame::Ipv4::new(from.v4(), to.v4(), protocol);
    header.fragment = field;
    let mut packet = header.packet(payload);
    packet[4..6].copy_from_slice(&id.to_be_bytes());
    packet[10..12].copy_from_slice(&[0, 0]);
    let sum = checksum(&[&packet[..20]]);
    packet[10..12].copy_from_slice(&sum);
    frame(from, to, &packet)
}

/// A part of an IPv6 packet.
///
/// `part` is its identification, its offset in units of 8 bytes, and whether more follow.
fn part6(from: &Port, to: &Port, next: u8, part: (u8, u16, bool), payload: &[u8]) -> Vec<u8> {
    let (id, offset, more) = part;
    let mut header = fragment_header(next, offset, more);
    header[7] = id;
    let body = [header, payload.to_vec()].concat();
    let packet = Ipv6 {
        hops: 64,
        ..Ipv6::new(from.v6(), to.v6(), 44)
    };
    frame(from, to, &packet.packet(&body))
}

/// A header of UDP from port 5000, and a load of a multiple of 8 bytes.
fn udp(port: u16, mark: &[u8]) -> Vec<u8> {
    let mut out = vec![0x13, 0x88];
    out.extend(port.to_be_bytes());
    out.extend([0, 200, 0, 0]);
    out.extend(mark);
    out.resize(out.len().next_multiple_of(8), 0);
    out
}

#[test]
fn parts_of_what_is_denied_do_not_arrive_in_any_order_c_ct_9() {
    for network in ["routed", "switched"] {
        let node = Node::start(setup().file("a.yaml", &web_only(network)));
        let (_web, web) = app(&node, "web", network);
        let (_db, db) = app(&node, "db", network);
        let (_mallory, mallory) = app(&node, "mallory", network);
        for (from, port, bystander) in [(&mallory, 80, &web), (&web, 81, &mallory)] {
            let attacker = Attacker::new(from, &db, bystander);
            let mark = marker();
            let load = [mark.as_slice(), &[0; 12]].concat();
            let mut frames = Vec::new();
            for (id, order) in [[0, 1, 2], [2, 1, 0], [1, 0, 2]].into_iter().enumerate() {
                let id = u16::try_from(id).expect("a few") + 100 * port;
                let short = id.to_be_bytes()[1];
                for at in order {
                    let more = if at < 2 { MORE } else { 0 };
                    let body = if at == 0 {
                        udp(port, &mark)
                    } else {
                        load.clone()
                    };
                    frames.push(part4(from, &db, UDP, (id, more | (at * 3)), &body));
                    frames.push(part6(from, &db, UDP, (short, at * 3, more != 0), &body));
                }
                // What overlaps the ports, and begins in the middle of the header.
                frames.push(part4(from, &db, UDP, (id, MORE), &udp(port, &mark)));
                frames.push(part4(from, &db, UDP, (id, 1), &load));
                frames.push(part6(from, &db, UDP, (short, 1, false), &load));
            }
            attacker.unseen("a part of what is denied", &mark, &frames);
        }
    }
}

/// A first part that is allowed opens the way for parts of its packet only.
#[test]
fn a_first_part_opens_nothing_for_others() {
    let node = Node::start(setup().file("a.yaml", &web_only("routed")));
    let (_web, web) = app(&node, "web", "routed");
    let (_db, db) = app(&node, "db", "routed");
    let (_mallory, mallory) = app(&node, "mallory", "routed");
    let attacker = Attacker::new(&web, &db, &mallory);
    let load = |mark: &[u8]| [mark, &[0; 12]].concat();
    let mark = marker();
    attacker.seen(
        "the first part",
        &mark,
        &part4(&web, &db, UDP, (7, MORE), &udp(80, &mark)),
    );
    let mark = marker();
    attacker.seen(
        "a later part",
        &mark,
        &part4(&web, &db, UDP, (7, MORE | 3), &load(&mark)),
    );
    let mark = marker();
    attacker.seen(
        "the first part",
        &mark,
        &part6(&web, &db, UDP, (7, 0, true), &udp(80, &mark)),
    );
    let mark = marker();
    attacker.seen(
        "a later part",
        &mark,
        &part6(&web, &db, UDP, (7, 3, true), &load(&mark)),
    );
    let mark = marker();
    let frames = [
        // Another first part with the same number, to a port that is denied.
        part4(&web, &db, UDP, (7, MORE), &udp(81, &mark)),
        part6(&web, &db, UDP, (7, 0, true), &udp(81, &mark)),
        // The same number with another protocol.
        part4(&web, &db, TCP, (7, 3), &load(&mark)),
        part4(&web, &db, 47, (7, 3), &load(&mark)),
        part4(&web, &db, 1, (7, 3), &load(&mark)),
        part6(&web, &db, TCP, (7, 3, false), &load(&mark)),
        part6(&web, &db, 58, (7, 3, false), &load(&mark)),
        part6(&web, &db, 50, (7, 3, false), &load(&mark)),
        // Another number.
        part4(&web, &db, UDP, (8, 3), &load(&mark)),
        part6(&web, &db, UDP, (8, 3, false), &load(&mark)),
    ];
    attacker.unseen("a part of another packet", &mark, &frames);
    let other = Attacker::new(&mallory, &db, &web);
    let mark = marker();
    let frames = [
        part4(&mallory, &db, UDP, (7, 3), &load(&mark)),
        part6(&mallory, &db, UDP, (7, 3, false), &load(&mark)),
    ];
    other.unseen("a part of another pod", &mark, &frames);
}

/// RFC 1858: no first part ends before what is judged.
#[test]
fn first_parts_without_ports_and_flags_do_not_arrive() {
    let node = Node::start(setup().file("a.yaml", &web_only("routed")));
    let (_web, web) = app(&node, "web", "routed");
    let (_db, db) = app(&node, "db", "routed");
    let (_mallory, mallory) = app(&node, "mallory", "routed");
    let attacker = Attacker::new(&web, &db, &mallory);
    // A port of the source that is a mark, as the header has no room for another.
    let mark = [0xa7, 0x5b, 0, 80, 0xfe, 0xed, 0xca, 0xfe];
    let frames = [
        part4(&web, &db, TCP, (9, MORE), &mark),
        part6(&web, &db, TCP, (9, 0, true), &mark),
        part4(&web, &db, 1, (9, MORE), &mark[..4]),
        part4(&web, &db, UDP, (10, MORE), &[]),
        part6(&web, &db, UDP, (10, 0, true), &[]),
    ];
    attacker.unseen("a tiny part", &mark, &frames);
}

/// Headers of IPv6 in front of the ports hide none.
///
/// A packet whose ports they hide belongs to no rule with ports.
#[test]
fn headers_of_ipv6_hide_no_port() {
    for network in ["routed", "switched"] {
        let node = Node::start(setup().file("a.yaml", &web_only(network)));
        let (_web, web) = app(&node, "web", network);
        let (_db, db) = app(&node, "db", network);
        let (_mallory, mallory) = app(&node, "mallory", network);
        let chain = |headers: &[u8], port: u16, mark: &[u8]| {
            let mut payload = Vec::new();
            for (index, header) in headers.iter().enumerate() {
                let next = headers.get(index + 1).copied().unwrap_or(UDP);
                payload.extend(match header {
                    44 => fragment_header(next, 0, false),
                    // AH counts in units of 4 bytes, without the first two.
                    51 => [&[next, 1], &[0; 10][..]].concat(),
                    _ => extension(next, &[1, 4, 0, 0, 0, 0]),
                });
            }
            let whole = udp6(web.v6(), db.v6(), (5000, port), mark);
            payload.extend(&whole[40..]);
            let first = headers.first().copied().unwrap_or(UDP);
            let packet = Ipv6 {
                hops: 64,
                ..Ipv6::new(web.v6(), db.v6(), first)
            };
            frame(&web, &db, &packet.packet(&payload))
        };
        let chains: [&[u8]; 10] = [
            &[0],
            &[60],
            &[43],
            &[51],
            &[44],
            &[0, 60, 43],
            &[44, 60],
            &[60, 44],
            &[44, 44],
            &[0, 44, 51],
        ];
        let attacker = Attacker::new(&web, &db, &mallory);
        let mark = marker();
        let frames: Vec<Vec<u8>> = chains.iter().map(|it| chain(it, 81, &mark)).collect();
        attacker.unseen("a port behind other headers", &mark, &frames);
        for headers in [&[60_u8][..], &[44], &[0, 60]] {
            let mark = marker();
            attacker.seen("an allowed port", &mark, &chain(headers, 80, &mark));
        }
        // A jumbogram (RFC 2675) has no length where others have it.
        let mark = marker();
        let jumbo = extension(UDP, &[0xc2, 4, 0, 1, 0, 1]);
        let whole = udp6(web.v6(), db.v6(), (5000, 81), &mark);
        let packet = Ipv6::new(web.v6(), db.v6(), 0);
        let mut packet = packet.packet(&[jumbo, whole[40..].to_vec()].concat());
        packet[4..6].copy_from_slice(&[0, 0]);
        attacker.unseen("a jumbogram", &mark, &[frame(&web, &db, &packet)]);
        // A later part within a part.
        let mark = marker();
        let inner = fragment_header(UDP, 3, false);
        let body = [inner, mark.to_vec()].concat();
        let frames = [
            part6(&web, &db, 44, (3, 0, false), &body),
            part6(&web, &db, 44, (3, 0, true), &body),
        ];
        attacker.unseen("a part in a part", &mark, &frames);
    }
}
