//! Packets of a denied sender that claim to belong to what is allowed.

use agent_common::drop::DropReason;
use testbed::frame::{Ipv4, Ipv6, icmp6, marker, tcp4, tcp6, udp4, udp6};
use testbed::{Node, Port, VirtioHeader};

use super::attacker::{Attacker, frame};
use super::scene::{answers, app, becomes, connect, denied, policy, setup, socket};

const NETWORKS: [&str; 2] = ["routed", "switched"];

/// Only `web` may send to `db`.
fn web_only(network: &str) -> String {
    let rule = "ingress: [{from: [{podSelector: {matchLabels: {app: web}}}], \
                ports: [{protocol: UDP, port: 80}, {protocol: TCP, port: 80}]}]";
    policy("db", network, "db", rule)
}

/// Opens a flow of UDP from one pod to a port of another; no answer is needed.
fn opens(from: &Port, number: u16, to: &Port, other: u16) {
    let tap = to.tap();
    let mark = marker();
    let here = socket(from, (from.v4(), number).into());
    here.send_to(&mark, (to.v4(), other)).expect("a datagram");
    tap.wait_marker("a datagram", &mark);
    let here = socket(from, (from.v6(), number).into());
    here.send_to(&mark, (to.v6(), other)).expect("a datagram");
    tap.wait_marker("a datagram", &mark);
}

/// Also of a pod that has just come: its connections began with it.
#[test]
fn no_flags_of_tcp_bring_a_denied_segment_to_a_guarded_pod() {
    for network in NETWORKS {
        let node = Node::start(setup().file("a.yaml", &web_only(network)));
        let (_web, web) = app(&node, "web", network);
        let (_db, db) = app(&node, "db", network);
        let (_mallory, mallory) = app(&node, "mallory", network);
        let attacker = Attacker::new(&mallory, &db, &web);
        for ports in [(40_000, 80), (80, 40_000), (80, 80), (40_000, 22)] {
            let mark = marker();
            let frames: Vec<Vec<u8>> = (0..=255)
                .flat_map(|flags| {
                    let v4 = tcp4(mallory.v4(), db.v4(), ports, flags, &mark);
                    let v6 = tcp6(mallory.v6(), db.v6(), ports, flags, &mark);
                    [frame(&mallory, &db, &v4), frame(&mallory, &db, &v6)]
                })
                .collect();
            attacker.unseen(&format!("TCP with ports {ports:?}"), &mark, &frames);
        }
    }
}

/// A reply is one of the very end that was asked, to the very port.
#[test]
fn a_reply_of_another_pod_or_port_is_none() {
    for network in NETWORKS {
        let node = Node::start(setup().file("a.yaml", &policy("db", network, "db", "ingress: []")));
        let (_web, web) = app(&node, "web", network);
        let (_db, db) = app(&node, "db", network);
        let (_mallory, mallory) = app(&node, "mallory", network);
        opens(&db, 5000, &web, 53);
        let attacker = Attacker::new(&mallory, &db, &web);
        let mark = marker();
        let (from, to) = (&mallory, &db);
        let frames: Vec<Vec<u8>> = [
            udp4(from.v4(), to.v4(), (53, 5000), &mark),
            udp6(from.v6(), to.v6(), (53, 5000), &mark),
            udp4(web.v4(), to.v4(), (53, 5000), &mark),
            udp6(web.v6(), to.v6(), (53, 5000), &mark),
            tcp4(from.v4(), to.v4(), (53, 5000), 0x10, &mark),
            tcp6(from.v6(), to.v6(), (53, 5000), 0x12, &mark),
        ]
        .iter()
        .map(|packet| frame(from, to, packet))
        .collect();
        attacker.unseen("a reply of a third pod", &mark, &frames);
        // The one that was asked, from and to other ports, and by another protocol.
        let asked = Attacker::new(&web, &db, &mallory);
        let mark = marker();
        let frames: Vec<Vec<u8>> = [
            udp4(web.v4(), to.v4(), (54, 5000), &mark),
            udp4(web.v4(), to.v4(), (53, 5001), &mark),
            udp4(web.v4(), to.v4(), (5000, 53), &mark),
            udp6(web.v6(), to.v6(), (54, 5000), &mark),
            tcp4(web.v4(), to.v4(), (53, 5000), 0x10, &mark),
            Ipv4::new(web.v4(), to.v4(), 132).packet(&[&[0, 53, 0x13, 0x88], &mark[..]].concat()),
        ]
        .iter()
        .map(|packet| frame(&web, to, packet))
        .collect();
        asked.unseen("a reply of another port", &mark, &frames);
        let mark = marker();
        let reply = udp4(web.v4(), to.v4(), (53, 5000), &mark);
        asked.seen("the reply", &mark, &frame(&web, to, &reply));
    }
}

/// A SYN is judged, whatever is there (C-CT-4).
#[test]
fn a_syn_on_a_connection_of_the_other_direction_is_judged() {
    let node = Node::start(setup().file("a.yaml", &policy("db", "routed", "db", "ingress: []")));
    let (_web, web) = app(&node, "web", "routed");
    let (_db, db) = app(&node, "db", "routed");
    let (_other, other) = app(&node, "other", "routed");
    let (here, _there) = connect(&db, &web, 5000);
    let local = here.local_addr().expect("an address").port();
    let attacker = Attacker::new(&web, &db, &other);
    let mark = marker();
    // With and without what is no part of a decision: ECE, CWR, URG, PSH, FIN, RST.
    let frames: Vec<Vec<u8>> = (0..=255_u8)
        .filter(|flags| flags & 0x12 == 0x02)
        .map(|flags| tcp4(web.v4(), db.v4(), (5000, local), flags, &mark))
        .map(|packet| frame(&web, &db, &packet))
        .collect();
    attacker.unseen("a SYN", &mark, &frames);
    let mark = marker();
    let data = tcp4(web.v4(), db.v4(), (5000, local), 0x18, &mark);
    attacker.seen("data of the connection", &mark, &frame(&web, &db, &data));
}

/// C-CT-1: the addresses are the same, the networks are not.
#[test]
fn a_connection_of_one_network_lets_nothing_pass_in_another() {
    let text = format!(
        "{}---\n{}",
        policy("one", "routed", "db", "ingress: []"),
        policy("two", "switched", "db", "ingress: []")
    );
    let node = Node::start(setup().file("a.yaml", &text));
    let (_web, web) = app(&node, "web", "routed");
    let (_db, db) = app(&node, "db", "routed");
    let (_other, other) = app(&node, "other", "routed");
    opens(&db, 5000, &web, 53);
    let attach = |name: &str, label: &str| {
        let labels = serde_json::json!({"app": label});
        super::scene::attach(&node, name, "switched", ("default", labels))
    };
    let (_web2, web2) = attach("web2", "web");
    let (_db2, db2) = attach("db2", "db");
    let (_other2, other2) = attach("other2", "other");
    assert_eq!((web.v4(), db.v4()), (web2.v4(), db2.v4()));
    let attacker = Attacker::new(&web2, &db2, &other2);
    let mark = marker();
    let packet = udp4(web2.v4(), db2.v4(), (53, 5000), &mark);
    attacker.unseen("a reply", &mark, &[frame(&web2, &db2, &packet)]);
    let attacker = Attacker::new(&web, &db, &other);
    let mark = marker();
    let packet = udp4(web.v4(), db.v4(), (53, 5000), &mark);
    attacker.seen("the reply", &mark, &frame(&web, &db, &packet));
}

/// An error about a packet, from one pod to another.
fn error4(from: &Port, to: &Port, about: &[u8], mark: &[u8]) -> Vec<u8> {
    let mut message = vec![3, 3, 0, 0, 0, 0, 0, 0];
    message.extend(about.get(..28.min(about.len())).unwrap_or_default());
    message.extend(mark);
    let sum = testbed::frame::checksum(&[&message]);
    message[2..4].copy_from_slice(&sum);
    Ipv4::new(from.v4(), to.v4(), 1).packet(&message)
}

fn error6(from: &Port, to: &Port, about: &[u8], mark: &[u8]) -> Vec<u8> {
    let mut body = vec![0; 4];
    body.extend(about.get(..48.min(about.len())).unwrap_or_default());
    body.extend(mark);
    let message = icmp6(from.v6(), to.v6(), (1, 4), &body);
    Ipv6 {
        hops: 64,
        ..Ipv6::new(from.v6(), to.v6(), 58)
    }
    .packet(&message)
}

#[test]
fn an_error_that_no_connection_calls_for_is_dropped_c_ct_8() {
    for network in NETWORKS {
        let node = Node::start(setup().file("a.yaml", &policy("db", network, "db", "ingress: []")));
        let (_web, web) = app(&node, "web", network);
        let (_db, db) = app(&node, "db", network);
        let (_mallory, mallory) = app(&node, "mallory", network);
        opens(&db, 5000, &web, 53);
        let sent = udp4(db.v4(), web.v4(), (5000, 53), b"12345678");
        let sent6 = udp6(db.v6(), web.v6(), (5000, 53), b"12345678");
        let attacker = Attacker::new(&mallory, &db, &web);
        let mark = marker();
        let mut frames = Vec::new();
        // Of a third pod about another's connection, and about ones that are not there.
        frames.push(error4(&mallory, &db, &sent, &mark));
        frames.push(error6(&mallory, &db, &sent6, &mark));
        let none = udp4(db.v4(), mallory.v4(), (5000, 53), b"12345678");
        frames.push(error4(&mallory, &db, &none, &mark));
        let none = udp6(db.v6(), mallory.v6(), (5000, 53), b"12345678");
        frames.push(error6(&mallory, &db, &none, &mark));
        // About its own packet, about an error, and about nothing.
        let own = udp4(mallory.v4(), db.v4(), (53, 5000), b"12345678");
        frames.push(error4(&mallory, &db, &own, &mark));
        let nested = error4(&db, &mallory, &own, &mark);
        frames.push(error4(&mallory, &db, &nested, &mark));
        frames.push(error4(&mallory, &db, &[], &mark));
        frames.push(error6(&mallory, &db, &[], &mark));
        let frames: Vec<Vec<u8>> = frames.iter().map(|it| frame(&mallory, &db, it)).collect();
        attacker.unseen("a forged error", &mark, &frames);
        // Of the end itself, about other ports, a later fragment, and the wrong direction.
        let asked = Attacker::new(&web, &db, &mallory);
        let mark = marker();
        let mut later = sent.clone();
        later[7] = 1;
        let other = udp4(db.v4(), web.v4(), (5001, 53), b"12345678");
        let back = udp4(web.v4(), db.v4(), (53, 5000), b"12345678");
        let frames: Vec<Vec<u8>> = [later, other, back]
            .iter()
            .map(|about| frame(&web, &db, &error4(&web, &db, about, &mark)))
            .collect();
        asked.unseen("an error about nothing that was sent", &mark, &frames);
        let mark = marker();
        asked.seen(
            "an error",
            &mark,
            &frame(&web, &db, &error4(&web, &db, &sent, &mark)),
        );
        let mark = marker();
        asked.seen(
            "an error",
            &mark,
            &frame(&web, &db, &error6(&web, &db, &sent6, &mark)),
        );
    }
}

/// The connection was let pass once; errors about it are not let pass for ever.
#[test]
fn errors_about_a_connection_end_when_a_policy_denies_it() {
    let node = Node::start(setup().file("a.yaml", &web_only("routed")));
    let (_web, web) = app(&node, "web", "routed");
    let (_db, db) = app(&node, "db", "routed");
    let (_mallory, mallory) = app(&node, "mallory", "routed");
    opens(&web, 5000, &db, 80);
    let answer = udp4(db.v4(), web.v4(), (80, 5000), b"12345678");
    let answer6 = udp6(db.v6(), web.v6(), (80, 5000), b"12345678");
    let attacker = Attacker::new(&web, &db, &mallory);
    let mark = marker();
    attacker.seen(
        "an error",
        &mark,
        &frame(&web, &db, &error4(&web, &db, &answer, &mark)),
    );
    node.write_manifest("a.yaml", &policy("db", "routed", "db", "ingress: []"));
    becomes(&web, &db, 80, false);
    // No other packet of that connection tells it.
    let mark = marker();
    let frames = [
        frame(&web, &db, &error4(&web, &db, &answer, &mark)),
        frame(&web, &db, &error6(&web, &db, &answer6, &mark)),
    ];
    attacker.unseen(
        "an error about a connection that is denied now",
        &mark,
        &frames,
    );
}

/// The number of neighbour discovery's protocol in a packet of the other family.
#[test]
fn icmpv6_in_ipv4_is_no_neighbour_discovery() {
    for network in NETWORKS {
        let both = "policyTypes: [Ingress, Egress]";
        let node = Node::start(setup().file("a.yaml", &policy("db", network, "db", both)));
        let (_web, web) = app(&node, "web", network);
        let (_db, db) = app(&node, "db", network);
        let (_mallory, mallory) = app(&node, "mallory", network);
        let attacker = Attacker::new(&mallory, &db, &web);
        let mark = marker();
        let frames: Vec<Vec<u8>> = (130..=140)
            .map(|kind| {
                let mut header = Ipv4::new(mallory.v4(), db.v4(), 58);
                header.ttl = 255;
                let packet = header.packet(&[&[kind, 0, 0, 0], mark.as_slice()].concat());
                frame(&mallory, &db, &packet)
            })
            .collect();
        attacker.unseen("protocol 58 in IPv4", &mark, &frames);
    }
}

#[test]
fn what_is_denied_is_counted_and_told() {
    let node = Node::start(setup().file("a.yaml", &web_only("routed")));
    let (_web, web) = app(&node, "web", "routed");
    let (_db, db) = app(&node, "db", "routed");
    let (_mallory, mallory) = app(&node, "mallory", "routed");
    answers(&web, &db, 80);
    denied(&node, &mallory, &db, 80, DropReason::PolicyIngress);
    denied(&node, &web, &db, 81, DropReason::PolicyIngress);
}

/// Frames that leave work to others: checksums, and the cutting of segments.
#[test]
fn trains_and_open_checksums_bring_nothing_that_is_denied() {
    for network in NETWORKS {
        let node = Node::start(setup().file("a.yaml", &web_only(network)));
        let (_web, web) = app(&node, "web", network);
        let (_db, db) = app(&node, "db", network);
        let (_mallory, mallory) = app(&node, "mallory", network);
        let attacker = Attacker::new(&mallory, &db, &web);
        let tap = mallory.tap().with_headers();
        let mark = marker();
        let load = mark.repeat(400);
        // In the header of UDP and of TCP; TSO over IPv4, and USO.
        let (start, udp_sum, tcp_sum) = (14 + 20, 6, 16);
        let small = udp4(mallory.v4(), db.v4(), (5000, 80), &mark);
        let packets = [
            (VirtioHeader::checksum(start, udp_sum), small),
            (
                VirtioHeader {
                    gso_type: 1,
                    gso_size: 1200,
                    hdr_len: 14 + 40,
                    ..VirtioHeader::checksum(start, tcp_sum)
                },
                tcp4(mallory.v4(), db.v4(), (40_000, 80), 0x10, &load),
            ),
            (
                VirtioHeader {
                    gso_type: 5,
                    gso_size: 1200,
                    hdr_len: 14 + 28,
                    ..VirtioHeader::checksum(start, udp_sum)
                },
                udp4(mallory.v4(), db.v4(), (5000, 80), &load),
            ),
        ];
        let mut taken = 0;
        for (header, packet) in packets {
            // Kernels that know no trains of UDP refuse them.
            let sent = tap.try_send_with(header, &frame(&mallory, &db, &packet));
            taken += usize::from(sent.is_ok());
        }
        assert!(taken >= 2, "{taken} were sent");
        attacker.unseen("a train", &mark, &[]);
    }
}
