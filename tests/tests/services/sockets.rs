//! Clients and endpoints whose ports are sockets: memif and AF_XDP.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use agent_common::addr::GATEWAY_MAC;
use serde_json::json;
use testbed::afxdp;
use testbed::frame::{ethernet, udp4, v4};
use testbed::manifest::attachment;
use testbed::memif_app::MemifApp;
use testbed::{Node, Pod, Port, wait};
use xsk::Verdict;

use super::scene::{
    Echo, NETWORKS, PORT, addresses, app, ask, client, connect, service, setup, slices, talk,
    wait_served,
};

/// The source port of a client that is a socket.
const CLIENT: u16 = 40_000;

fn attach<'a>(node: &'a Node, app: &str, network: &str, kind: &str) -> (Pod<'a>, Port) {
    let pod = node.pod(app);
    let mut conf = node.attachment_conf(network, &format!("{kind}-{network}"));
    conf["labels"] = json!({"app": app});
    let port = pod.attach_conf(&conf, "net1");
    (pod, port)
}

#[test]
fn memif_ports_are_clients_and_endpoints_of_services() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    for network in NETWORKS {
        let name = format!("memif-{network}");
        let text = attachment(&name, network, "{interface: {type: Memif}}");
        let node = Node::start(setup().file("memif.yaml", &text));
        let (_one, one) = attach(&node, "one", network, "memif");
        let (_web, web) = attach(&node, "web", network, "memif");
        let (_kernel, kernel) = app(&node, "kernel", network);
        let _apps = [&one, &web].map(MemifApp::start);
        for (endpoint, clients) in [(&one, [&web, &kernel]), (&kernel, [&web, &one])] {
            let text = [
                service("web", network, addresses(10), ""),
                slices("web", network, node.name(), &[(endpoint, "")]),
            ]
            .concat();
            node.write_manifest("services.yaml", &text);
            wait_served(&node, network, 4);
            for ip in addresses(10) {
                for from in clients {
                    let echo = Echo::at(&[endpoint], ip);
                    wait::until_true("the endpoint that is meant", || {
                        connect(from, ip, &[endpoint]).is_ok()
                    });
                    ask(&client(from, ip), &echo, b"question");
                    let (mut here, mut there, _) =
                        connect(from, ip, &[endpoint]).expect("a connection");
                    talk(&mut here, &mut there);
                }
            }
        }
    }
}

/// Reports whether a frame is a Service's datagram with this payload.
fn is_answer(frame: &[u8], from: Ipv4Addr, to: Ipv4Addr, payload: &[u8]) -> bool {
    let expected = udp4(from, to, (PORT, CLIENT), payload);
    // Protocol, addresses and ports; what the stack of the other end writes in between is its own.
    let of = |packet: &[u8]| {
        let fields = [packet.get(9..10)?, packet.get(12..24)?, packet.get(28..)?];
        Some(fields.concat())
    };
    frame.get(14..).and_then(of) == of(&expected)
}

#[test]
fn af_xdp_ports_are_clients_and_endpoints_of_services() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let service_ip = addresses(10)[0];
    for network in NETWORKS {
        let name = format!("afxdp-{network}");
        let text = attachment(&name, network, "{interface: {type: AFXDP}}");
        let node = Node::start(setup().file("afxdp.yaml", &text));
        let (_one, one) = attach(&node, "one", network, "afxdp");
        let (_web, web) = attach(&node, "web", network, "afxdp");
        let (_kernel, kernel) = app(&node, "kernel", network);
        let serve = |endpoint: &Port| {
            let text = [
                service("web", network, addresses(10), ""),
                slices("web", network, node.name(), &[(endpoint, "")]),
            ]
            .concat();
            node.write_manifest("services.yaml", &text);
            wait::until_true("the endpoint to be in force", || {
                let rows = node.get("services");
                let ip = endpoint.v4().to_string();
                rows.iter()
                    .any(|row| row["endpoints"].to_string().contains(&ip))
            });
        };
        serve(&one);
        let echo = afxdp::Echo::start(vec![afxdp::open(&one, 0)]);
        let asking = client(&kernel, service_ip);
        asking
            .set_read_timeout(Some(Duration::from_millis(20)))
            .expect("a timeout");
        wait::until_true("an answer of the program", || {
            let _ = asking.send(b"question");
            asking.recv(&mut [0; 16]).is_ok_and(|length| length == 8)
        });
        let mut socket = afxdp::open(&web, 0);
        let question = |to: IpAddr, payload: &[u8]| {
            let packet = udp4(web.v4(), v4(to), (CLIENT, PORT), payload);
            ethernet(GATEWAY_MAC, web.mac, 0x0800, &packet)
        };
        let mut asks = |payload: &[u8], answer: &dyn Fn()| {
            wait::until_true("an answer of the Service", || {
                assert!(socket.send(&question(service_ip, payload)), "room");
                socket.flush().expect("the port is there");
                answer();
                let mut found = false;
                socket
                    .wait(Duration::from_millis(20))
                    .expect("the port is there");
                socket.receive(64, |frame| {
                    found |= is_answer(frame, v4(service_ip), web.v4(), payload);
                    Verdict::Done
                });
                found
            });
        };
        asks(b"one socket to another", &|| {});
        assert!(echo.stop() >= 2);
        serve(&kernel);
        let there = Echo::at(&[&kernel], service_ip);
        // The socket's source port goes to the next endpoint within a second.
        asks(b"a socket to a kernel", &|| {
            let _ = there.answer();
        });
    }
}
