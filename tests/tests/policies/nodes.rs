//! Senders on another node, behind a tunnel.

use serde_json::json;
use tempfile::TempDir;
use testbed::frame::{Ipv4, ethernet, marker, tcp4, udp4};
use testbed::{Fabric, Network, Node, Pod, Port, Setup};

use super::attacker::{Attacker, IP, frame};
use super::scene::{answers, app, becomes, policy};

/// Two nodes, of which the second enforces policies.
struct Two {
    here: Node,
    there: Node,
    _fabric: Fabric,
    _shared: TempDir,
}

fn network(name: &str, mode: &'static str, id: u32, number: u8) -> Network {
    let mut exclude = vec!["fd61::/112".to_owned()];
    for other in (0..4).filter(|other| *other != number) {
        exclude.push(format!("10.61.0.{}/26", other * 64));
        exclude.push(format!("fd61::{other}:0/112"));
    }
    let exclude: Vec<&str> = exclude.iter().map(String::as_str).collect();
    Network {
        subnets: vec!["10.61.0.0/24".into(), "fd61::/64".into()],
        ..Network::new(name, mode)
    }
    .exclude(&exclude)
    .id(id)
    .vxlan()
}

fn two(policies: &str) -> Two {
    let shared = tempfile::Builder::new()
        .prefix("podnet-test-shared-")
        .tempdir()
        .expect("a directory for the nodes");
    let fabric = Fabric::create();
    let start = |number: u8| {
        let directory = shared.path().to_str().expect("a path in UTF-8");
        let vtep = Fabric::v4(number).to_string();
        let setup = Setup::empty()
            .named(&format!("node-{number}"))
            .args(&["--vtep", &vtep, "--endpoints", directory])
            .network(&network("routed", "L3", 3001, number))
            .network(&network("switched", "L2", 3002, number))
            .file("a.yaml", policies);
        Node::start_on(setup, fabric.host(number))
    };
    Two {
        here: start(1),
        there: start(2),
        _fabric: fabric,
        _shared: shared,
    }
}

fn on<'a>(node: &'a Node, name: &str, network: &str) -> (Pod<'a>, Port) {
    app(node, name, network)
}

fn rules(network: &str) -> String {
    let from = "ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}]";
    format!(
        "{}---\n{}",
        policy("db", network, "db", from),
        policy("open", network, "open", "ingress: [{}]")
    )
}

/// Denied traffic of another node's pod does not arrive, whatever the pod claims.
#[test]
fn a_denied_pod_of_another_node_reaches_nobody_that_is_guarded() {
    for network in ["routed", "switched"] {
        let two = two(&rules(network));
        let (_web, web) = on(&two.here, "web", network);
        let (_evil, evil) = on(&two.here, "evil", network);
        let (_db, db) = on(&two.there, "db", network);
        let (_open, open) = on(&two.there, "open", network);
        becomes(&web, &db, 80, true);
        becomes(&evil, &open, 80, true);
        answers(&web, &db, 80);
        let attacker = Attacker::new(&evil, &db, &open);
        let mark = marker();
        let mut frames: Vec<Vec<u8>> = (0..=255)
            .map(|flags| tcp4(evil.v4(), db.v4(), (40_000, 80), flags, &mark))
            .map(|packet| frame(&evil, &db, &packet))
            .collect();
        let mut nd = Ipv4::new(evil.v4(), db.v4(), 58);
        nd.ttl = 255;
        for packet in [
            udp4(evil.v4(), db.v4(), (5000, 80), &mark),
            udp4(web.v4(), db.v4(), (5000, 80), &mark),
            nd.packet(&[&[135, 0, 0, 0], mark.as_slice()].concat()),
        ] {
            frames.push(frame(&evil, &db, &packet));
        }
        attacker.unseen("a packet of another node", &mark, &frames);
        if network == "routed" {
            continue;
        }
        // A connection with one pod there is none with another.
        let to_open = Attacker::new(&evil, &open, &web);
        let mark = marker();
        let packet = udp4(evil.v4(), open.v4(), (5001, 80), &mark);
        to_open.seen("an allowed packet", &mark, &frame(&evil, &open, &packet));
        let mark = marker();
        let packet = udp4(evil.v4(), open.v4(), (5001, 80), &mark);
        let frames = [ethernet(db.mac, evil.mac, IP, &packet)];
        attacker.unseen("a packet for another pod", &mark, &frames);
    }
}

/// One sender elsewhere that opens connections takes none from another one.
#[test]
fn a_pod_of_another_node_that_opens_connections_takes_none_from_others() {
    let two = two(&rules("routed"));
    let (_web, web) = on(&two.here, "web", "routed");
    let (_evil, evil) = on(&two.here, "evil", "routed");
    let (_open, open) = on(&two.there, "open", "routed");
    let (_near, near) = super::scene::attach(
        &two.there,
        "near",
        "routed",
        ("default", json!({"app": "near"})),
    );
    becomes(&web, &open, 80, true);
    becomes(&evil, &open, 80, true);
    let tap = evil.tap();
    for round in 0..10_u16 {
        for port in 0..10_000 {
            let packet = udp4(evil.v4(), open.v4(), (port, 1000 + round), &[]);
            tap.send(&frame(&evil, &open, &packet));
        }
        answers(&web, &open, 80);
        answers(&near, &open, 81);
    }
    let refused = two
        .there
        .drops()
        .of("routed", agent_common::drop::DropReason::FlowLimit);
    assert!(refused > 0, "the sender was not limited");
}
