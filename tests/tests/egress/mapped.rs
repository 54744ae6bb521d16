//! Test what connections of mapped ports carry, and what others make of them.

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use agent_common::addr::{GATEWAY_MAC, MacAddr};
use netdev::{Address, Netns, Route, VethSpec};
use serde_json::json;
use testbed::frame::{Ipv4, Ipv6, Marker, checksum, ethernet, icmp6, marker, udp4, udp6, v4, v6};
use testbed::host::{UPLINK, WORLD, connection};
use testbed::talk::tcp;
use testbed::tap::contains;
use testbed::{Node, Port, Tap, nat};

use super::ports::{any, assert_mapped, attach, mapped, own, socket, with_ports};
use super::scene::{
    BEYOND, NODE, assert_closed, assert_gets_out, attached, conf, files, ip, settle_world, setup,
};

/// A client that has asked the mapped UDP port.
struct Asked {
    client: UdpSocket,
    /// The pod's socket, which has heard it.
    heard: UdpSocket,
    /// The client as the pod sees it.
    from: SocketAddr,
}

fn ask(client: &Netns, port: &Port, is_v4: bool) -> Asked {
    let address = ip(NODE[usize::from(!is_v4)]);
    let heard = socket(&port.netns, SocketAddr::new(own(port, is_v4), 53));
    let client = socket(client, SocketAddr::new(any(address), 0));
    let to = SocketAddr::new(address, 8053);
    client.connect(to).expect("connected");
    client.send(b"first").expect("sent");
    let (_, from) = heard.recv_from(&mut [0; 64]).expect("the pod hears it");
    Asked {
        client,
        heard,
        from,
    }
}

/// Fails the test if there is something to hear at the socket.
#[track_caller]
fn assert_silent(socket: &UdpSocket, what: &str) {
    socket.set_nonblocking(true).expect("a setting");
    let got = socket.recv_from(&mut [0; 64]);
    socket.set_nonblocking(false).expect("a setting");
    let is_empty = |error: &std::io::Error| error.kind() == std::io::ErrorKind::WouldBlock;
    assert!(got.as_ref().is_err_and(is_empty), "{what}: {got:?}");
}

/// Also where its port leads to the same port of its container.
#[test]
fn a_later_pod_with_address_and_port_gets_no_packet_of_old_connections_and_answers_none() {
    for is_v4 in [true, false] {
        let node = testbed::node!(setup());
        settle_world(&node);
        let (first, port) = attach(&node, "a", "amber");
        // The gateway stays, and its connections with it.
        let (other, _) = attached(&node, "n", "amber");
        let address = own(&port, is_v4);
        let asked = ask(node.host().outside(), &port, is_v4);
        drop(asked.heard);
        first.detach("amber", "eth0");
        let later = node.pod("l");
        let mut same = with_ports(&node, "amber", &mapped());
        let length = if is_v4 { 24 } else { 64 };
        same["runtimeConfig"]["ips"] = json!([format!("{address}/{length}")]);
        let port = later.attach_conf(&same, "eth0");
        assert_eq!(own(&port, is_v4), address);
        let heard = socket(&port.netns, SocketAddr::new(address, 53));
        // The kernel may know of an error already; that is as good as an end.
        let _ = asked.client.send(b"again");
        let _ = heard.send_to(b"an answer to another", asked.from);
        // What the pod asks the world after that is answered when both were processed.
        assert_gets_out(&node, &port);
        assert_silent(&heard, "the later pod heard");
        assert_silent(&asked.client, "the client of the first pod heard");
        drop(heard);
        // Its own clients are served.
        assert_mapped(node.host().outside(), &port);
        later.detach("amber", "eth0");
        other.detach("amber", "eth0");
        assert_closed(&node);
    }
    proof::of!("ATT-18c");
}

/// The node itself tells of the smaller path, by ICMP errors towards the gateway.
#[test]
fn a_smaller_path_to_a_client_of_a_mapped_port_is_learned() {
    let node = testbed::node!(setup());
    settle_world(&node);
    let (pod, port) = attach(&node, "a", "amber");
    let mut here = connection(node.netns());
    let uplink = here.by_name(UPLINK).expect("a look").expect("the uplink");
    for (beyond, length) in BEYOND.into_iter().zip([32, 128]) {
        let narrow = Route {
            mtu: Some(1300),
            ..Route::new(ip(beyond), length, None, uplink.ifindex)
        };
        here.add_route(&narrow).expect("a route");
    }
    assert_mapped(node.host().outside(), &port);
    pod.detach("amber", "eth0");
    assert_closed(&node);
}

/// Makes a "packet too big" about a datagram from the node to a client.
///
/// The datagram has the ports `inner`; the error goes to `to`.
fn too_big(is_v4: bool, inner: (u16, u16), to: IpAddr, mark: &Marker) -> Vec<u8> {
    let [node, client] = [NODE, BEYOND].map(|both| ip(both[usize::from(!is_v4)]));
    let mtu = 1280_u16.to_be_bytes();
    if is_v4 {
        let dropped = udp4(v4(node), v4(client), inner, mark);
        // RFC 792 and RFC 1191: destination unreachable, fragmentation needed.
        let mut icmp = [&[3, 4, 0, 0, 0, 0][..], &mtu, &dropped].concat();
        let sum = checksum(&[&icmp]);
        icmp[2..4].copy_from_slice(&sum);
        Ipv4::new(v4(client), v4(to), 1).packet(&icmp)
    } else {
        let dropped = udp6(v6(node), v6(client), inner, mark);
        let body = [&[0, 0][..], &mtu, &dropped].concat();
        let icmp = icmp6(v6(client), v6(to), (2, 0), &body);
        Ipv6::new(v6(client), v6(to), 58).packet(&icmp)
    }
}

/// The world's end of the uplink, and frames from there to the node.
struct World {
    tap: Tap,
    macs: [MacAddr; 2],
}

impl World {
    fn of(node: &Node) -> Self {
        let link = |netns: &Netns, name| {
            let found = connection(netns).by_name(name).expect("a look");
            MacAddr(found.expect("the uplink").mac.expect("a MAC address"))
        };
        let outside = node.host().outside();
        Self {
            tap: Tap::on(outside, WORLD),
            macs: [link(node.netns(), UPLINK), link(outside, WORLD)],
        }
    }

    fn send(&self, packet: &[u8]) {
        let kind = match packet.first().map(|byte| byte >> 4) {
            Some(4) => 0x0800,
            _ => 0x86dd,
        };
        let [to, from] = self.macs;
        self.tap.send(&ethernet(to, from, kind, packet));
    }
}

/// An error has to be about a connection that there is, to the last port.
#[test]
fn errors_about_a_mapped_connection_reach_its_pod_and_forged_ones_do_not() {
    let node = testbed::node!(setup());
    settle_world(&node);
    let (pod, port) = attach(&node, "a", "amber");
    let (other, neighbour) = attached(&node, "n", "amber");
    let world = World::of(&node);
    for is_v4 in [true, false] {
        let asked = ask(node.host().outside(), &port, is_v4);
        asked
            .heard
            .send_to(b"answer", asked.from)
            .expect("answered");
        asked.client.recv(&mut [0; 64]).expect("heard");
        let here = ip(NODE[usize::from(!is_v4)]);
        let gateway = ip(["169.254.64.1", "fd70:6f64:6e65:7400::1"][usize::from(!is_v4)]);
        let client = asked.from.port();
        let [pods, neighbours] = [&port, &neighbour].map(Port::tap);
        let forged = [
            // Of no client, of a port that is not mapped, of the pod's own port, and of none of both.
            ((8053, client ^ 1), here),
            ((8054, client), here),
            ((53, client), here),
            ((8080, client), here),
            // To the gateway itself, past the node's own address.
            ((8053, client), gateway),
            ((8053, client ^ 1), gateway),
        ];
        let marks: Vec<Marker> = forged
            .into_iter()
            .map(|(inner, to)| {
                let mark = marker();
                world.send(&too_big(is_v4, inner, to, &mark));
                mark
            })
            .collect();
        let mark = marker();
        world.send(&too_big(is_v4, (8053, client), here, &mark));
        // The pod sees its own datagram in it.
        let seen = RefCell::new(Vec::new());
        pods.wait("the error about its connection", |frame| {
            seen.borrow_mut().push(frame.to_vec());
            contains(frame, &mark)
        });
        let seen = seen.into_inner();
        let strayed: Vec<Vec<u8>> = std::iter::from_fn(|| neighbours.next()).collect();
        for forged in &marks {
            let reached = seen.iter().any(|frame| contains(frame, forged));
            assert!(!reached, "a forged error reached the pod");
        }
        for any in marks.iter().chain([&mark]) {
            let reached = strayed.iter().any(|frame| contains(frame, any));
            assert!(!reached, "an error reached the neighbour");
        }
    }
    pod.detach("amber", "eth0");
    other.detach("amber", "eth0");
    assert_closed(&node);
    proof::of!("ATT-18b");
}

/// Pods of its network and of another one, and hosts outside, forge it.
#[test]
fn the_answer_of_a_mapped_connection_is_of_its_pod_alone() {
    let node = testbed::node!(setup());
    settle_world(&node);
    let (pod, port) = attach(&node, "a", "amber");
    let (other, neighbour) = attached(&node, "n", "amber");
    let (stranger, strange) = attached(&node, "o", "ochre");
    let world = World::of(&node);
    let clients = [node.host().outside(), node.netns()];
    let both = [true, false];
    let cases = both.into_iter().flat_map(|v4| clients.map(|it| (it, v4)));
    for (client, is_v4) in cases {
        let asked = ask(client, &port, is_v4);
        let ports = (53, asked.from.port());
        let answer = |from: IpAddr, ports, says: &[u8]| match (from, asked.from.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => udp4(from, to, ports, says),
            (from, to) => udp6(v6(from), v6(to), ports, says),
        };
        let kind = if is_v4 { 0x0800 } else { 0x86dd };
        for liar in [&neighbour, &strange] {
            for from in [own(&port, is_v4), own(liar, is_v4)] {
                let packet = answer(from, ports, b"forged by a pod");
                let frame = ethernet(GATEWAY_MAC, liar.mac, kind, &packet);
                liar.tap().send(&frame);
            }
            // Its own on the same way: what was before it was processed.
            assert_gets_out(&node, liar);
        }
        // With the pod's address, and with that of the gateway, which the node's own stack would translate.
        let gateway = ip(["169.254.64.1", "fd70:6f64:6e65:7400::1"][usize::from(!is_v4)]);
        for (from, ports) in [
            (own(&port, is_v4), ports),
            (gateway, (8053, asked.from.port())),
        ] {
            world.send(&answer(from, ports, b"forged outside"));
        }
        // By the uplink, too: what was before it was processed.
        assert_gets_out(&node, &neighbour);
        let says = asked.heard.send_to(b"the pod", asked.from);
        says.expect("answered");
        let mut bytes = [0; 64];
        let length = asked.client.recv(&mut bytes).expect("an answer");
        assert_eq!(&bytes[..length], b"the pod", "{is_v4}");
        assert_silent(&asked.client, "another answer");
    }
    for (pod, network) in [(pod, "amber"), (other, "amber"), (stranger, "ochre")] {
        pod.detach(network, "eth0");
    }
    assert_closed(&node);
    proof::of!("ATT-18a");
}

/// A NodePort has no socket that shows it taken.
#[test]
fn a_port_that_another_program_translates_stays_its_own_in_whatever_order() {
    for is_first in [true, false] {
        let node = testbed::node!(setup());
        settle_world(&node);
        let (white, backend) = attached(&node, "w", "white");
        let at = SocketAddr::new(own(&backend, true), 80);
        let to = SocketAddr::new(ip(NODE[0]), 8080);
        if is_first {
            nat::service(node.netns(), to, at);
        }
        let (pod, port) = attach(&node, "a", "amber");
        if !is_first {
            nat::service(node.netns(), to, at);
        }
        for client in [node.netns(), node.host().outside()] {
            let seen = tcp(client, to, &backend.netns, at);
            assert!(seen.is_ok(), "made first: {is_first}: {seen:?}");
        }
        // Other ports of the pod, and the same of the other family, lead to it.
        let six = SocketAddr::new(ip(NODE[1]), 8080);
        let at = SocketAddr::new(own(&port, false), 80);
        tcp(node.host().outside(), six, &port.netns, at).expect("the pod's");
        pod.detach("amber", "eth0");
        white.detach("white", "eth0");
        nat::flush(node.netns());
    }
}

#[test]
fn reserved_ports_and_link_local_addresses_are_refused_and_nothing_is_begun() {
    let node = testbed::node!(setup());
    settle_world(&node);
    let pod = node.pod("a");
    let cases = [
        (json!({"hostPort": 30080}), 7, "--reserved-host-ports"),
        // No tunnel is made yet that a socket would show.
        (
            json!({"hostPort": 4789, "protocol": "udp"}),
            7,
            "--vxlan-port",
        ),
        (
            json!({"hostPort": 8080, "hostIP": "169.254.64.0"}),
            2,
            "hostIP",
        ),
        (json!({"hostPort": 8080, "hostIP": "fe80::1"}), 2, "hostIP"),
        (
            json!({"hostPort": 8080, "hostIP": "2001:db8::99"}),
            7,
            "hostIP",
        ),
    ];
    for (mut mapping, code, names) in cases {
        mapping["containerPort"] = 80.into();
        if mapping["protocol"].is_null() {
            mapping["protocol"] = "tcp".into();
        }
        let conf = with_ports(&node, "amber", &json!([mapping]));
        let failure = pod.add_conf(&conf, "eth0").fails_with(code);
        failure.names(&[names]);
        assert_closed(&node);
    }
    let many: Vec<_> = (9000..9017)
        .map(|it| json!({"hostPort": it, "containerPort": 80, "protocol": "tcp"}))
        .collect();
    let conf = with_ports(&node, "amber", &json!(many));
    pod.add_conf(&conf, "eth0")
        .fails_with(2)
        .names(&["17", "16"]);
    assert_closed(&node);
    proof::of!("ATT-18d");
}

/// The node goes on to translate them to the place of the gateway that is gone.
#[test]
fn connections_to_a_gateway_that_is_gone_reach_no_pod_behind_the_next_one() {
    let both = [true, false];
    for (is_v4, restarts) in both.into_iter().flat_map(|v4| both.map(|it| (v4, it))) {
        let node = testbed::node!(setup());
        settle_world(&node);
        let (first, port) = attach(&node, "a", "amber");
        // Connections try again, the one datagram does not.
        assert_gets_out(&node, &port);
        let asked = ask(node.host().outside(), &port, is_v4);
        drop(asked.heard);
        first.detach("amber", "eth0");
        assert_closed(&node);
        if restarts {
            node.kill_9();
            node.start_agent();
        }
        let (later, port) = attach(&node, "l", "ochre");
        let heard = socket(&port.netns, SocketAddr::new(own(&port, is_v4), 53));
        let _ = asked.client.send(b"again");
        assert_gets_out(&node, &port);
        assert_silent(&heard, "the later pod heard");
        drop(heard);
        assert_mapped(node.host().outside(), &port);
        later.detach("ochre", "eth0");
        assert_closed(&node);
    }
    proof::of!("ATT-18c");
}

/// The node has no way to there but its default route.
#[test]
fn connections_to_the_last_gateway_that_is_gone_leave_the_node_by_no_other_way() {
    let node = testbed::node!(setup());
    settle_world(&node);
    let world = World::of(&node);
    for (is_v4, name) in [(true, "a"), (false, "b")] {
        let (pod, port) = attach(&node, name, "amber");
        let outside = node.host().outside();
        let clients = [outside, node.netns()].map(|client| ask(client, &port, is_v4).client);
        pod.detach("amber", "eth0");
        assert_closed(&node);
        let beyond = SocketAddr::new(ip(BEYOND[usize::from(!is_v4)]), 9);
        let mark = marker();
        for client in &clients {
            // The kernel may know of an error already; that is as good as an end.
            let _ = client.send(&mark);
            let _ = client.send(&mark);
        }
        // What the node itself sends is behind it, and it forwards what comes from outside in its order.
        let last = marker();
        let after = socket(node.netns(), SocketAddr::new(any(beyond.ip()), 0));
        let here = SocketAddr::new(ip(NODE[usize::from(!is_v4)]), 9);
        let asking = socket(outside, SocketAddr::new(any(here.ip()), 0));
        asking.connect(here).expect("connected");
        asking.send(b"after that").expect("sent");
        assert!(asking.recv(&mut [0; 64]).is_err(), "nobody listens there");
        after.send_to(&last, beyond).expect("sent");
        let leaked = RefCell::new(false);
        world.tap.wait("what the node sends last", |frame| {
            // Frames of the client to the node are seen at this end, too.
            let to_transit = if is_v4 {
                frame.get(30..32) == Some(&[169, 254])
            } else {
                frame.get(38..42) == Some(&[0xfd, 0x70, 0x6f, 0x64])
            };
            *leaked.borrow_mut() |= contains(frame, &mark) && to_transit;
            contains(frame, &last)
        });
        assert!(!leaked.into_inner(), "a datagram left by the default route");
    }
}

/// IPVS has them on a link of the node, without sockets.
#[test]
fn ports_of_the_addresses_of_services_are_refused() {
    const SERVICE: &str = "10.96.0.10";
    let node = testbed::node!(setup());
    settle_world(&node);
    let mut here = connection(node.netns());
    here.create_veth(&VethSpec::new("kube-ipvs0", "kube-ipvs1"))
        .expect("a link");
    let link = here.by_name("kube-ipvs0").expect("a look").expect("a link");
    let address = Address::new(ip(SERVICE), 32);
    here.add_address(link.ifindex, address).expect("an address");
    let pod = node.pod("a");
    for host_ip in [None, Some("0.0.0.0"), Some(SERVICE)] {
        let mut ports = mapped();
        for port in ports.as_array_mut().expect("a list") {
            port["hostIP"] = json!(host_ip.unwrap_or_default());
        }
        let conf = with_ports(&node, "amber", &ports);
        let failure = pod.add_conf(&conf, "eth0").fails_with(7);
        failure.names(&["kube-ipvs0", "hostIP"]);
        assert_closed(&node);
    }
    // The address of the node itself is the pod's to ask for.
    let ports =
        json!([{"hostPort": 8080, "containerPort": 80, "protocol": "tcp", "hostIP": NODE[0]}]);
    let port = pod.attach_conf(&with_ports(&node, "amber", &ports), "eth0");
    let at = SocketAddr::new(own(&port, true), 80);
    let to = SocketAddr::new(ip(NODE[0]), 8080);
    tcp(node.host().outside(), to, &port.netns, at).expect("the pod's");
    pod.detach("amber", "eth0");
    here.delete(link.ifindex).expect("the link goes");
    assert_closed(&node);
    proof::of!("ATT-18d");
}

/// A start finds a gateway that cannot be set up, with ports of the agent before.
#[test]
fn a_gateway_that_could_not_be_opened_keeps_no_ports_of_pods_that_are_gone() {
    let node = testbed::node!(setup());
    settle_world(&node);
    let (first, port) = attach(&node, "a", "amber");
    let (other, _) = attached(&node, "n", "amber");
    let address = own(&port, true);
    let asked = ask(node.host().outside(), &port, true);
    drop(asked.heard);
    node.kill_9();
    let [gateway] = &files(&node)[..] else {
        unreachable!("one gateway");
    };
    let gateway = Netns::open(gateway).expect("a namespace");
    let Some(owner) = nat::own(&gateway, "podnet") else {
        return;
    };
    node.start_agent();
    first.detach("amber", "eth0");
    drop(owner);
    let later = node.pod("l");
    let mut same = conf(&node, "amber");
    same["runtimeConfig"] = json!({"ips": [format!("{address}/24")]});
    let port = later.attach_conf(&same, "eth0");
    assert_eq!(own(&port, true), address);
    let heard = socket(&port.netns, SocketAddr::new(address, 53));
    let _ = asked.client.send(b"again");
    assert_gets_out(&node, &port);
    assert_silent(&heard, "the later pod heard");
    later.detach("amber", "eth0");
    other.detach("amber", "eth0");
    assert_closed(&node);
    proof::of!("ATT-18c");
}

/// Its namespace cannot be entered, until an agent makes it again.
#[test]
fn a_gateway_that_is_broken_takes_no_ports_from_pods_of_other_networks() {
    let node = testbed::node!(setup());
    settle_world(&node);
    let mut theirs = conf(&node, "ochre");
    let ports = json!([{"hostPort": 9090, "containerPort": 90, "protocol": "tcp"}]);
    theirs["runtimeConfig"] = json!({"portMappings": ports});
    let broken = node.pod("o");
    broken.attach_conf(&theirs, "eth0");
    super::scene::break_gateways(&node);
    let (pod, port) = attach(&node, "a", "amber");
    assert_mapped(node.host().outside(), &port);
    pod.detach("amber", "eth0");
    node.kill_9();
    node.start_agent();
    broken.detach("ochre", "eth0");
    assert_closed(&node);
}

/// It is made again first, and no removal waits for an audit.
#[test]
fn a_pod_behind_a_gateway_that_is_broken_is_removed_at_once() {
    let node = testbed::node!(setup());
    settle_world(&node);
    let (pod, _) = attach(&node, "a", "amber");
    let (other, port) = attached(&node, "n", "amber");
    super::scene::break_gateways(&node);
    pod.detach("amber", "eth0");
    assert_gets_out(&node, &port);
    other.detach("amber", "eth0");
    assert_closed(&node);
}
