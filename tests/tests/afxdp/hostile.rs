//! Programs that keep what is not theirs any more, and floods.

use std::os::fd::OwnedFd;

use testbed::{traffic, wait};
use xsk::control::abstract_name;
use xsk::{Config, Control, Port};

use super::scene::{Echo, assert_answers, attach, conf, in_pod, open, setup, socket_path};

/// A map and a socket that a program holds after DEL lead nowhere.
///
/// Nothing of the attachment stays, packets of the socket are dropped, and the next port of that name
/// is another one.
#[test]
fn what_a_program_holds_after_del_leads_nowhere() {
    let node = testbed::node!(setup());
    let (fast, plain) = (node.pod("fast"), node.pod("plain"));
    let (pf, pp) = (
        attach(&node, &fast, "blue", "fast-blue"),
        plain.attach("blue", "net1"),
    );
    let mut held = open(&pf, 0);
    let map = in_pod(&pf, || {
        let mut control = Control::connect(&abstract_name("net1")).expect("let in");
        control.map("net1").expect("the map")
    });
    fast.detach("blue", "net1");
    assert!(!node.bpffs().join("ports").exists() || is_empty(&node.bpffs().join("ports")));
    assert!(held.send(&[0xff; 60]));
    assert!(held.flush().is_err(), "its interface is gone");

    let again = attach(&node, &fast, "blue", "fast-blue");
    traffic::assert_reaches(&again, &pp);
    assert_answers(open(&again, 0), &again, &pp);
    let mut heard = false;
    held.receive(64, |bytes| {
        heard |= testbed::tap::contains(bytes, b"hello");
        xsk::Verdict::Done
    });
    assert!(!heard, "it is of another port");
    drop((held, map));
    fast.detach("blue", "net1");
    plain.detach("blue", "net1");
    node.assert_empty();
}

fn is_empty(path: &std::path::Path) -> bool {
    std::fs::read_dir(path).is_ok_and(|mut it| it.next().is_none())
}

/// A program that changes the map loses its own packets only.
///
/// It can empty slots and put any socket of its own there.
#[test]
fn a_socket_of_another_queue_costs_the_program_its_own_packets_only() {
    let node = testbed::node!(setup());
    let (wide, fast, plain) = (node.pod("wide"), node.pod("fast"), node.pod("plain"));
    let pw = attach(&node, &wide, "blue", "wide-blue");
    let pf = attach(&node, &fast, "blue", "fast-blue");
    let pp = plain.attach("blue", "net1");
    let echo = Echo::start(vec![open(&pf, 0)]);
    // Bound to the third queue, and put into all.
    let ifindex = pw.link().expect("the interface is there").ifindex;
    let mut claimed = in_pod(&pw, || {
        let mut control = Control::connect(&abstract_name("net1")).expect("let in");
        let socket = control.new_socket("net1").expect("a socket");
        let port = Port::bind(socket, ifindex, 2, &Config::default()).expect("bound");
        for queue in 0..4 {
            control.insert("net1", queue, &port).expect("inserted");
        }
        port
    });
    let socket = traffic::udp(&pp, pp.v4().into());
    for round in 0..50_u8 {
        socket.send_to(&[round], (pw.v4(), 4242)).expect("sent");
        socket.send_to(&[round], (pf.v4(), 4242)).expect("sent");
        let mut byte = [0; 8];
        let (came, from) = socket.recv_from(&mut byte).expect("an answer");
        assert_eq!((&byte[..came], from.ip()), (&[round][..], pf.v4().into()));
    }
    claimed.receive(64, |_| xsk::Verdict::Done);
    drop(claimed);
    traffic::assert_reaches(&pw, &pp);
    assert_eq!(echo.stop(), 50);
    for pod in [&wide, &fast, &plain] {
        pod.detach("blue", "net1");
    }
    node.assert_empty();
}

/// A pod that floods its control socket delays neither others nor its own `DEL`.
///
/// It opens as many connections as it can, and sends nothing on them.
#[test]
fn a_pod_that_floods_its_control_socket_keeps_nobody_waiting() {
    let node = testbed::node!(setup());
    let (fast, other) = (node.pod("fast"), node.pod("other"));
    let pf = attach(&node, &fast, "blue", "fast-blue");
    let path = xsk::control::Address::Path(socket_path(&pf));
    let _crowd: Vec<OwnedFd> = in_pod(&pf, || {
        let connect = || {
            let it = rustix::net::socket(
                rustix::net::AddressFamily::UNIX,
                rustix::net::SocketType::SEQPACKET,
                None,
            );
            let it = it.expect("a socket");
            let xsk::control::Address::Path(path) = &path else {
                unreachable!("a path")
            };
            let to = rustix::net::SocketAddrUnix::new(path.as_path()).expect("an address");
            rustix::net::connect(&it, &to).map(|()| it)
        };
        (0..200).filter_map(|_| connect().ok()).collect()
    });
    // By name it is still served: the crowd is at the file.
    let port = open(&pf, 0);
    let po = attach(&node, &other, "blue", "fast-blue");
    traffic::assert_reaches(&po, &po);
    drop(port);
    fast.call("DEL", "net1")
        .conf(&conf(&node, "blue", "fast-blue"))
        .run()
        .silent();
    other.detach("blue", "net1");
    wait::until_true("all pins to go", || node.attachments().is_empty());
    node.assert_empty();
}
