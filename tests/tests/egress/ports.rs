//! Test ports of the node that lead to pods, and what they must not lead to.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use netdev::Netns;
use serde_json::{Value, json};
use testbed::frame::marker;
use testbed::talk::tcp;
use testbed::{Node, Pod, Port, nat, wait};

use super::scene::{
    BEYOND, NODE, PORTS, assert_closed, assert_gets_out, attached, conf, ip, netfilter,
    settle_world, setup,
};

/// TCP port 8080 of the node leads to port 80 of the pod, and UDP port 8053 to 53.
pub(super) fn mapped() -> Value {
    json!([
        {"hostPort": 8080, "containerPort": 80, "protocol": "tcp"},
        {"hostPort": 8053, "containerPort": 53, "protocol": "udp"},
    ])
}

pub(super) fn with_ports(node: &Node, network: &str, ports: &Value) -> Value {
    let mut conf = conf(node, network);
    conf["runtimeConfig"] = json!({"portMappings": ports});
    conf
}

pub(super) fn attach<'a>(node: &'a Node, name: &str, network: &str) -> (Pod<'a>, Port) {
    let pod = node.pod(name);
    let port = pod.attach_conf(&with_ports(node, network, &mapped()), "eth0");
    (pod, port)
}

pub(super) fn own(port: &Port, is_v4: bool) -> IpAddr {
    if is_v4 {
        port.v4().into()
    } else {
        port.v6().into()
    }
}

/// Asserts that a client reaches the pod; returns clients as the pod saw them.
#[track_caller]
pub(super) fn assert_mapped(client: &Netns, port: &Port) -> Vec<IpAddr> {
    let mut seen = Vec::new();
    for address in NODE.map(ip) {
        let pod = own(port, address.is_ipv4());
        let (to, at) = (SocketAddr::new(address, 8080), SocketAddr::new(pod, 80));
        let client_seen = tcp(client, to, &port.netns, at);
        seen.push(client_seen.unwrap_or_else(|error| unreachable!("TCP to {to}: {error}")));
        let heard = socket(&port.netns, SocketAddr::new(pod, 53));
        let asking = socket(client, SocketAddr::new(any(address), 0));
        let mark = marker();
        let to = SocketAddr::new(address, 8053);
        asking.send_to(&mark, to).expect("sent");
        let mut bytes = [0; 64];
        let (length, from) = heard.recv_from(&mut bytes).expect("the pod hears it");
        assert_eq!(bytes[..length], mark[..]);
        heard.send_to(b"answer", from).expect("answered");
        let (_, from) = asking.recv_from(&mut bytes).expect("the client hears it");
        assert_eq!(from, to, "the answer comes from the node's port");
    }
    seen
}

pub(super) fn any(like: IpAddr) -> IpAddr {
    ip(if like.is_ipv4() { "0.0.0.0" } else { "::" })
}

pub(super) fn socket(netns: &Netns, at: SocketAddr) -> UdpSocket {
    let bound = netns.run_in(|| UdpSocket::bind(at));
    let socket = bound.expect("entered").expect("a socket");
    socket
        .set_read_timeout(Some(wait::PATIENCE))
        .expect("a timeout");
    socket
}

/// Fails the test if the pod at `port` hears a datagram from `client` to `to`.
///
/// One by the mapped port, which the pod hears, comes after it.
#[track_caller]
fn assert_unheard(client: &Netns, to: SocketAddr, pod: &Port, port: u16) {
    let v4 = to.is_ipv4();
    let heard = socket(&pod.netns, SocketAddr::new(own(pod, v4), port));
    let mapped = socket(&pod.netns, SocketAddr::new(own(pod, v4), 53));
    let asking = socket(client, SocketAddr::new(any(to.ip()), 0));
    // The kernel may know of an error already; that is as good as an end.
    let _ = asking.send_to(b"not for it", to);
    let after = socket(client, SocketAddr::new(any(to.ip()), 0));
    let node = ip(NODE[usize::from(!v4)]);
    after
        .send_to(b"after that", SocketAddr::new(node, 8053))
        .expect("sent");
    mapped.recv(&mut [0; 64]).expect("the pod hears the second");
    heard.set_nonblocking(true).expect("a setting");
    let got = heard.recv_from(&mut [0; 64]);
    assert!(got.is_err(), "the pod heard {to}: {got:?}");
}

#[test]
fn a_port_of_the_node_leads_to_the_pod_from_outside_and_from_the_node() {
    let node = testbed::node!(setup());
    settle_world(&node);
    let (pod, port) = attach(&node, "a", "amber");
    let seen = assert_mapped(node.host().outside(), &port);
    assert_eq!(seen, BEYOND.map(ip), "the pod sees its clients");
    assert_mapped(node.netns(), &port);
    assert_gets_out(&node, &port);
    pod.detach("amber", "eth0");
    assert_closed(&node);
}

#[test]
fn a_second_pod_with_the_port_is_refused_and_the_port_is_free_after_the_first() {
    let node = testbed::node!(setup());
    settle_world(&node);
    let (first, port) = attach(&node, "a", "amber");
    let second = node.pod("b");
    let conf = with_ports(&node, "ochre", &mapped());
    let failure = second.add_conf(&conf, "eth0").fails_with(103);
    failure.names(&["8080/tcp", "amber"]);
    assert_mapped(node.host().outside(), &port);
    first.detach("amber", "eth0");
    let port = second.attach_conf(&conf, "eth0");
    assert_mapped(node.host().outside(), &port);
    second.detach("ochre", "eth0");
    assert_closed(&node);
}

#[test]
fn ports_lead_to_pods_after_the_agent_is_killed_and_after_a_flush() {
    let node = testbed::node!(setup());
    settle_world(&node);
    let (pod, port) = attach(&node, "a", "amber");
    node.kill_9();
    assert_mapped(node.host().outside(), &port);
    nat::flush(node.netns());
    node.start_agent();
    assert_mapped(node.host().outside(), &port);
    nat::flush(node.netns());
    wait::until_true("the table of ports to be written again", || {
        netfilter(&node).has(PORTS).expect("a look")
    });
    wait::until_true("the agent to say so", || {
        let log = node.log();
        log.lines()
            .any(|line| line.contains("another program changed a table") && line.contains(PORTS))
    });
    assert_mapped(node.host().outside(), &port);
    let failure = node
        .pod("b")
        .add_conf(&with_ports(&node, "ochre", &mapped()), "eth0")
        .fails_with(103);
    failure.names(&["8080/tcp", "amber"]);
    pod.detach("amber", "eth0");
    assert_closed(&node);
}

/// A mapped port opens this port of this pod, to the outside and to the node.
#[test]
fn a_mapped_port_opens_nothing_else() {
    let node = testbed::node!(setup());
    settle_world(&node);
    let (pod, port) = attach(&node, "a", "amber");
    let (other, neighbour) = attached(&node, "n", "amber");
    let (stranger, strange) = attached(&node, "o", "ochre");
    let (white, served) = attached(&node, "w", "white");
    for (node_ip, gateway) in NODE
        .map(ip)
        .into_iter()
        .zip(["169.254.64.1", "fd70:6f64:6e65:7400::1"])
    {
        let outside = node.host().outside();
        // Of the node, and of the gateway itself: numbers that are not mapped, and the pod's own number.
        for number in [80, 8054] {
            let to = SocketAddr::new(node_ip, number);
            assert_unheard(outside, to, &port, number);
        }
        let to = SocketAddr::new(ip(gateway), 8054);
        assert_unheard(node.netns(), to, &port, 8054);
        // Pods do not reach it by the node: of other networks, of its own, of the node's network.
        for from in [&strange.netns, &neighbour.netns, &served.netns] {
            let heard = socket(
                &port.netns,
                SocketAddr::new(own(&port, node_ip.is_ipv4()), 53),
            );
            let asking = socket(from, SocketAddr::new(any(node_ip), 0));
            let _ = asking.send_to(b"a pod", SocketAddr::new(node_ip, 8053));
            let after = socket(outside, SocketAddr::new(any(node_ip), 0));
            after
                .send_to(b"after that", SocketAddr::new(node_ip, 8053))
                .expect("sent");
            let mut bytes = [0; 64];
            let length = heard.recv(&mut bytes).expect("the second");
            assert_eq!(&bytes[..length], b"after that", "a pod reached {node_ip}");
        }
    }
    // The neighbour has no port: the number leads to the pod with the mapping alone.
    let heard = socket(&neighbour.netns, SocketAddr::new(own(&neighbour, true), 53));
    heard.set_nonblocking(true).expect("a setting");
    assert_mapped(node.host().outside(), &port);
    assert!(
        heard.recv_from(&mut [0; 64]).is_err(),
        "the neighbour heard it"
    );
    for (pod, network) in [
        (pod, "amber"),
        (other, "amber"),
        (stranger, "ochre"),
        (white, "white"),
    ] {
        pod.detach(network, "eth0");
    }
    assert_closed(&node);
}

/// A connection ends with its mapping, also where a later pod has the address.
#[test]
fn a_later_pod_with_the_address_gets_nothing_of_old_connections() {
    let node = testbed::node!(setup());
    settle_world(&node);
    let (first, port) = attach(&node, "a", "amber");
    // The gateway stays, and its connections with it.
    let (other, _) = attached(&node, "n", "amber");
    let address = own(&port, true);
    let asking = socket(node.host().outside(), SocketAddr::new(any(address), 0));
    let to = SocketAddr::new(ip(NODE[0]), 8053);
    let heard = socket(&port.netns, SocketAddr::new(address, 53));
    asking.send_to(b"first", to).expect("sent");
    heard.recv(&mut [0; 64]).expect("the pod hears it");
    first.detach("amber", "eth0");
    let later = node.pod("l");
    let mut same = conf(&node, "amber");
    same["runtimeConfig"] = json!({"ips": [format!("{address}/24")]});
    let port = later.attach_conf(&same, "eth0");
    assert_eq!(own(&port, true), address);
    let heard = socket(&port.netns, SocketAddr::new(address, 53));
    asking.send_to(b"again", to).expect("sent");
    // What the pod asks the world after that is answered when the datagram was processed.
    assert_gets_out(&node, &port);
    heard.set_nonblocking(true).expect("a setting");
    let got = heard.recv_from(&mut [0; 64]);
    assert!(got.is_err(), "the later pod heard {got:?}");
    later.detach("amber", "eth0");
    other.detach("amber", "eth0");
    assert_closed(&node);
}
