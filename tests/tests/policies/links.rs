//! Frames on L2 networks that go where their packets do not.

use agent_common::addr::MacAddr;
use testbed::Node;
use testbed::frame::{Arp, ethernet, marker, nd_option, neighbour_advertisement, udp4, udp6};

use super::attacker::{Attacker, IP, IPV6};
use super::scene::{answers, app, policy, setup};

const L2: &str = "switched";

/// `web` may be reached by all, `db` by nobody.
fn two_guarded() -> String {
    format!(
        "{}---\n{}",
        policy("web", L2, "web", "ingress: [{}]"),
        policy("db", L2, "db", "ingress: []")
    )
}

/// A connection with one pod lets nothing pass to the station of another.
#[test]
fn a_connection_with_one_pod_is_none_with_another_station() {
    let node = Node::start(setup().file("a.yaml", &two_guarded()));
    let (_web, web) = app(&node, "web", L2);
    let (_db, db) = app(&node, "db", L2);
    let (_mallory, mallory) = app(&node, "mallory", L2);
    let (_other, other) = app(&node, "other", L2);
    let to_web = Attacker::new(&mallory, &web, &other);
    let to_db = Attacker::new(&mallory, &db, &other);
    for _ in 0..2 {
        let mark = marker();
        let packet = udp4(mallory.v4(), web.v4(), (5000, 80), &mark);
        to_web.seen(
            "to the web",
            &mark,
            &ethernet(web.mac, mallory.mac, IP, &packet),
        );
        let mark = marker();
        let packet = udp4(mallory.v4(), web.v4(), (5000, 80), &mark);
        let frames = [
            ethernet(db.mac, mallory.mac, IP, &packet),
            ethernet(MacAddr::BROADCAST, mallory.mac, IP, &packet),
            ethernet(MacAddr([1, 0, 0x5e, 1, 2, 3]), mallory.mac, IP, &packet),
        ];
        to_db.unseen("a packet for another", &mark, &frames);
        let mark = marker();
        let packet = udp6(mallory.v6(), web.v6(), (5000, 80), &mark);
        to_web.seen(
            "to the web",
            &mark,
            &ethernet(web.mac, mallory.mac, IPV6, &packet),
        );
        let mark = marker();
        let packet = udp6(mallory.v6(), web.v6(), (5000, 80), &mark);
        let frames = [
            ethernet(db.mac, mallory.mac, IPV6, &packet),
            ethernet(
                MacAddr([0x33, 0x33, 0, 0, 0, 1]),
                mallory.mac,
                IPV6,
                &packet,
            ),
        ];
        to_db.unseen("a packet for another", &mark, &frames);
    }
}

/// A rule for one pod allows nothing for all.
#[test]
fn a_frame_for_all_with_an_allowed_address_is_dropped() {
    let rule = "policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {app: web}}}]}]";
    let node = Node::start(setup().file("a.yaml", &policy("m", L2, "mallory", rule)));
    let (_web, web) = app(&node, "web", L2);
    let (_friend, friend) = app(&node, "friend", L2);
    let (_mallory, mallory) = app(&node, "mallory", L2);
    answers(&mallory, &web, 80);
    let attacker = Attacker::new(&mallory, &friend, &web);
    let mark = marker();
    let v4 = udp4(mallory.v4(), web.v4(), (5000, 80), &mark);
    let v6 = udp6(mallory.v6(), web.v6(), (5000, 80), &mark);
    let frames = [
        ethernet(friend.mac, mallory.mac, IP, &v4),
        ethernet(MacAddr::BROADCAST, mallory.mac, IP, &v4),
        ethernet(MacAddr([1, 0, 0x5e, 1, 2, 3]), mallory.mac, IP, &v4),
        ethernet(friend.mac, mallory.mac, IPV6, &v6),
        ethernet(MacAddr([0x33, 0x33, 0, 0, 0, 1]), mallory.mac, IPV6, &v6),
    ];
    attacker.unseen("a packet for the web", &mark, &frames);
}

/// Neither ARP nor neighbour discovery carries more than it needs.
#[test]
fn messages_of_the_link_carry_nothing_else() {
    let both = "policyTypes: [Ingress, Egress]";
    let node = Node::start(setup().file("a.yaml", &policy("db", L2, "db", both)));
    let (_web, web) = app(&node, "web", L2);
    let (_db, db) = app(&node, "db", L2);
    let (_mallory, mallory) = app(&node, "mallory", L2);
    let attacker = Attacker::new(&mallory, &db, &web);
    let mark = marker();
    let long = [mark.as_slice(), &[0; 200]].concat();
    let arp = Arp {
        operation: 2,
        sender: (mallory.mac, mallory.v4()),
        target: (db.mac, db.v4()),
    };
    let option = nd_option(14, &long);
    let nd = neighbour_advertisement(mallory.v6(), db.v6(), mallory.v6(), mallory.mac, &option);
    let frames = [
        arp.frame(db.mac, mallory.mac, &long),
        ethernet(db.mac, mallory.mac, IPV6, &nd),
        arp.frame(MacAddr::BROADCAST, mallory.mac, &long),
        ethernet(MacAddr([0x33, 0x33, 0, 0, 0, 1]), mallory.mac, IPV6, &nd),
    ];
    attacker.unseen("a message of the link with a load", &mark, &frames);
    let nd = neighbour_advertisement(mallory.v6(), db.v6(), mallory.v6(), mallory.mac, &[]);
    let mac = mallory.mac.0;
    attacker.seen(
        "an ARP reply",
        &mac,
        &arp.frame(db.mac, mallory.mac, &[0; 18]),
    );
    attacker.seen(
        "an advertisement",
        &mac,
        &ethernet(db.mac, mallory.mac, IPV6, &nd),
    );
}

/// No policy can name what is not IP.
#[test]
fn frames_of_other_protocols_do_not_reach_a_guarded_pod() {
    let node = Node::start(setup().file("a.yaml", &policy("db", L2, "db", "ingress: [{}]")));
    let (_web, web) = app(&node, "web", L2);
    let (_db, db) = app(&node, "db", L2);
    let (_mallory, mallory) = app(&node, "mallory", L2);
    let attacker = Attacker::new(&mallory, &db, &web);
    let mark = marker();
    let frames: Vec<Vec<u8>> = [
        0x88b5, 0x8847, 0x0600, 0x8863, 0x86dc, 0x0805, 0x8100, 0x88a8, 100,
    ]
    .into_iter()
    .map(|ether_type| {
        ethernet(
            db.mac,
            mallory.mac,
            ether_type,
            &[&mark[..], &[0; 60]].concat(),
        )
    })
    .collect();
    attacker.unseen("a frame that is not IP", &mark, &frames);
}
