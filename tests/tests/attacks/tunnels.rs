//! Attack with tunnel packets that no node has sent, under the address of a node.
//!
//! They are UDP to the tunnel port of a node. The table of the node drops them, whatever program or
//! other table has let them pass; so each is sent by a way on which nothing but the table can.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use agent_common::addr::MacAddr;
use netdev::{AddrGenMode, Address, LinkChange, Netfilter, Netns, Route, VethSpec};
use tempfile::TempDir;
use testbed::frame::{
    IPV4_MF, Ipv4, Ipv6, Marker, ethernet, extension, fragment_header, marker, udp4, udp6, v4, v6,
};
use testbed::host::connection;
use testbed::{Fabric, Network, Node, Port, Setup, Tap, nat, traffic, wait};

const VXLAN: u16 = 4789;
const BLUE: u32 = 2001;
const TABLE: &str = "podnet-tunnels";
/// Comment of the rule that drops, in each chain.
const RULE: &str = "stop to UDP port 4789";
/// Where a plugin of another kind has its pod.
const STRANGER: [&str; 2] = ["10.77.0.2", "fd77::2"];
const GATEWAY: [&str; 2] = ["10.77.0.1", "fd77::1"];
/// Address and port of the Service that stands for a tunnel port.
const SERVICE: &str = "198.51.100.9:53";

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// Two nodes with a network between them; networks of node 1 leave by its stack.
struct Nodes {
    nodes: Vec<Node>,
    _fabric: Fabric,
    _shared: TempDir,
}

impl Nodes {
    fn start(is_v4: bool) -> Self {
        let fabric = Fabric::create();
        let shared = tempfile::Builder::new()
            .prefix("podnet-test-shared-")
            .tempdir()
            .expect("a directory for the nodes");
        let vtep = if is_v4 { Fabric::v4 } else { Fabric::v6 };
        let mut nodes = Vec::new();
        for number in 1..=2_u8 {
            let taken = format!("10.10.0.{}/25", u32::from(2 - number) * 128);
            let blue = Network::l2("blue", &["10.10.0.0/24"]).exclude(&[&taken]);
            let directory = shared.path().to_str().expect("a path in UTF-8");
            let setup = Setup::empty()
                .named(&format!("node-{number}"))
                .args(&[
                    "--vtep",
                    &vtep(number).to_string(),
                    "--endpoints",
                    directory,
                ])
                .network(&blue.id(BLUE).vxlan())
                .network(&Network::l3("amber", &["10.40.0.0/24"]).egress())
                .network(&Network::l3("white", &["10.30.0.0/24"]).by_node());
            nodes.push(Node::start_on(setup, fabric.host(number)));
        }
        Self {
            nodes,
            _fabric: fabric,
            _shared: shared,
        }
    }
}

/// A pod of another plugin on a node: a link to a namespace, routed by the node.
///
/// The node checks no source there.
struct Stranger {
    netns: Netns,
    node_mac: MacAddr,
    own_mac: MacAddr,
    tap: Tap,
}

impl Stranger {
    fn on(node: &Node) -> Self {
        let netns = Netns::create().expect("a network namespace");
        let mut spec = VethSpec::new("cali0", "eth0");
        spec.peer_netns = Some(netns.clone());
        let mut here = connection(node.netns());
        let pair = here.create_veth(&spec).expect("a link");
        let mut inside = connection(&netns);
        let link = |connection: &mut netdev::Connection, name: &str| {
            let link = connection.by_name(name).expect("links can be read");
            link.expect("the link is there")
        };
        for (connection, name, addresses) in [
            (&mut here, "cali0", GATEWAY),
            (&mut inside, "eth0", STRANGER),
        ] {
            let ifindex = link(connection, name).ifindex;
            let change = LinkChange {
                addr_gen_mode: Some(AddrGenMode::Eui64),
                ..LinkChange::updown(true)
            };
            connection
                .reconfigure(ifindex, &change)
                .expect("it goes up");
            for (address, length) in addresses.map(ip).into_iter().zip([24, 64]) {
                let address = Address {
                    nodad: true,
                    ..Address::new(address, length)
                };
                connection
                    .add_address(ifindex, address)
                    .expect("an address");
            }
        }
        let own = link(&mut inside, "eth0").ifindex;
        for gateway in GATEWAY.map(ip) {
            let route = Route::default_via(gateway, own);
            inside.add_route(&route).expect("a default route");
        }
        let lax = || {
            for link in ["all", "cali0"] {
                let path = format!("/proc/sys/net/ipv4/conf/{link}/rp_filter");
                std::fs::write(path, "0").expect("a setting");
            }
        };
        node.netns().run_in(lax).expect("entered");
        let mac = |link: netdev::Link| MacAddr(link.mac.expect("Ethernet"));
        Self {
            node_mac: mac(here
                .by_index(pair.host_ifindex)
                .expect("read")
                .expect("there")),
            own_mac: mac(link(&mut inside, "eth0")),
            tap: Tap::on(&netns, "eth0"),
            netns,
        }
    }

    /// Sends an IP packet to the node's own MAC address.
    fn send(&self, packet: &[u8]) {
        let is_v4 = packet.first().is_some_and(|first| first >> 4 == 4);
        let ether_type = if is_v4 { 0x0800 } else { 0x86dd };
        self.tap
            .send(&ethernet(self.node_mac, self.own_mac, ether_type, packet));
    }
}

/// Builds a VXLAN payload (RFC 7348 section 5): a marked datagram from pod to pod.
fn tunnelled(from: &Port, to: &Port, word: &Marker) -> Vec<u8> {
    let packet = udp4(from.v4(), to.v4(), (9, 9), word);
    let [_, a, b, c] = BLUE.to_be_bytes();
    let frame = ethernet(to.mac, from.mac, 0x0800, &packet);
    [&[8, 0, 0, 0, a, b, c, 0][..], &frame].concat()
}

/// How many packets the rules of a node's table that say so have dropped.
fn stopped(node: &Node, rule: &str) -> u64 {
    let opened = node.netns().run_in(Netfilter::open);
    let mut netfilter = opened.expect("entered").expect("a socket of netfilter");
    let rules = netfilter.stopped(TABLE).expect("a look");
    let said = rules.iter().filter(|(said, _)| said.as_str() == rule);
    said.map(|(_, packets)| packets).sum()
}

/// Asserts that the table drops the sent packet, and that the pod does not get it.
#[track_caller]
fn assert_stopped(node: &Node, rule: &str, tap: &Tap, send: impl FnOnce(&Marker)) {
    let (before, word) = (stopped(node, rule), marker());
    send(&word);
    wait::until_true("the table to drop the tunnel", || {
        assert_eq!(tap.count(&word), 0, "a forged tunnel reached the pod");
        stopped(node, rule) > before
    });
    assert_eq!(tap.count(&word), 0, "a forged tunnel reached the pod");
}

/// Sends from a namespace's own socket.
#[track_caller]
fn send_from(netns: &Netns, to: SocketAddr, payload: &[u8]) {
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = netns.run_in(|| UdpSocket::bind(any));
    let socket = socket.expect("entered").expect("a socket");
    socket.send_to(payload, to).expect("sent");
}

/// The pods `a` and `b` of the nodes, and what comes to the second.
fn pods(nodes: &[Node]) -> (Port, Port, Tap) {
    let [a, b] = [(0, "a"), (1, "b")].map(|(at, name): (usize, &str)| {
        let pod = nodes[at].pod(name);
        pod.attach("blue", "net1")
    });
    traffic_flows(&a, &b);
    let tap = b.tap();
    (a, b, tap)
}

/// Waits until two pods have met.
#[track_caller]
fn traffic_flows(a: &Port, b: &Port) {
    let (source, sink) = (
        traffic::udp(a, a.v4().into()),
        traffic::udp(b, b.v4().into()),
    );
    let soon = Some(std::time::Duration::from_millis(20));
    sink.set_read_timeout(soon).expect("a timeout");
    let at = sink.local_addr().expect("an address");
    wait::until_true("the pods to meet", || {
        let _ = source.send_to(b"hello", at);
        sink.recv(&mut [0; 16]).is_ok()
    });
}

/// A tunnel of the very same bytes that the node itself sends arrives.
#[track_caller]
fn assert_honest_arrives(nodes: &[Node], a: &Port, b: &Port, tap: &Tap, target: IpAddr) {
    let word = marker();
    let to = SocketAddr::new(target, VXLAN);
    send_from(nodes[0].netns(), to, &tunnelled(a, b, &word));
    tap.wait_marker("a tunnel of the node itself", &word);
}

/// ATT-01b: packets of an egress gateway to another node's tunnel port are dropped.
///
/// They get the node's own address, which is where tunnels of the node come from. They are sent from
/// the gateway's namespace itself, where no program of a pod has looked at them.
#[test]
fn what_leaves_by_egress_for_the_tunnel_port_of_another_node_ends_at_the_first() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let Nodes { nodes, .. } = &Nodes::start(true);
    let (a, b, tap) = pods(nodes);
    let mut conf = nodes[0].conf("amber");
    conf["isDefaultGateway"] = true.into();
    let amber = nodes[0].pod("amber");
    amber.attach_conf(&conf, "eth0");
    let gateway = std::fs::read_dir(nodes[0].path("run").join("egress"));
    let mut gateways = gateway.expect("gateways").flatten();
    let gateway = gateways.next().expect("a gateway").path();
    let gateway = Netns::open(&gateway).expect("its namespace");
    let to = SocketAddr::new(Fabric::v4(2), VXLAN);
    assert_honest_arrives(nodes, &a, &b, &tap, Fabric::v4(2));
    assert_stopped(&nodes[0], RULE, &tap, |word| {
        send_from(&gateway, to, &tunnelled(&a, &b, word));
    });
    amber.detach("amber", "eth0");
    proof::of!("ATT-01b");
}

/// ATT-01b: a Service whose endpoint is a node's tunnel port leads to no tunnel.
///
/// The pod sends to the Service, which no program can tell from any other; the node translates it, and
/// sends it with its own address.
#[test]
fn a_service_that_stands_for_the_tunnel_port_of_a_node_ends_at_the_first() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let Nodes { nodes, .. } = &Nodes::start(true);
    let (a, b, tap) = pods(nodes);
    let mut conf = nodes[0].conf("white");
    conf["isDefaultGateway"] = true.into();
    let white = nodes[0].pod("white");
    let port = white.attach_conf(&conf, "eth0");
    let service: SocketAddr = SERVICE.parse().expect("an address and port");
    let backend = SocketAddr::new(Fabric::v4(2), VXLAN);
    nat::service(nodes[0].netns(), service, backend);
    assert_stopped(&nodes[0], RULE, &tap, |word| {
        send_from(&port.netns, service, &tunnelled(&a, &b, word));
    });
    white.detach("white", "eth0");
    proof::of!("ATT-01b");
}

/// ATT-01b: a pod of another plugin tunnels into no network of its node.
///
/// It writes the address of a node into its packets itself, on the node that receives: whole, in
/// fragments, and by a Service that stands for that node's own tunnel port.
#[test]
fn a_pod_of_another_plugin_tunnels_into_no_network_of_its_node() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let Nodes { nodes, .. } = &Nodes::start(true);
    let (a, b, tap) = pods(nodes);
    let stranger = Stranger::on(&nodes[1]);
    let (from, to) = (v4(Fabric::v4(1)), v4(Fabric::v4(2)));
    assert_stopped(&nodes[1], RULE, &tap, |word| {
        stranger.send(&udp4(from, to, (4096, VXLAN), &tunnelled(&a, &b, word)));
    });
    assert_stopped(&nodes[1], RULE, &tap, |word| {
        let whole = udp4(from, to, (4096, VXLAN), &tunnelled(&a, &b, word));
        let (first, rest) = whole[20..].split_at(32);
        for (payload, field) in [(first, IPV4_MF), (rest, 32 / 8)] {
            let header = Ipv4 {
                fragment: field,
                ..Ipv4::new(from, to, 17)
            };
            stranger.send(&header.packet(payload));
        }
    });
    let service: SocketAddr = SERVICE.parse().expect("an address and port");
    nat::service(nodes[1].netns(), service, SocketAddr::new(to.into(), VXLAN));
    assert_stopped(&nodes[1], RULE, &tap, |word| {
        let payload = tunnelled(&a, &b, word);
        stranger.send(&udp4(from, v4(service.ip()), (4097, 53), &payload));
    });
    assert_honest_arrives(nodes, &a, &b, &tap, Fabric::v4(2));
    // What is not a tunnel is not the table's.
    let socket = nodes[1].netns().run_in(|| UdpSocket::bind((to, 0)));
    let socket = socket.expect("entered").expect("a socket");
    socket
        .set_read_timeout(Some(wait::PATIENCE))
        .expect("a timeout");
    let at = socket.local_addr().expect("an address");
    send_from(&stranger.netns, at, b"a question");
    let (_, asker) = socket.recv_from(&mut [0; 16]).expect("a question");
    assert_eq!(asker.ip(), ip(STRANGER[0]));
    drop(stranger);
    forget_stranger(&nodes[1]);
    proof::of!("ATT-01b");
}

/// ATT-01b: a pod of another plugin tunnels into no network by IPv6 either.
///
/// The UDP header is in the first fragment, and behind a header that leaves no room for it there (RFC
/// 7112).
#[test]
fn a_pod_of_another_plugin_tunnels_into_no_network_of_its_node_by_ipv6() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let Nodes { nodes, .. } = &Nodes::start(false);
    let (a, b, tap) = pods(nodes);
    let stranger = Stranger::on(&nodes[1]);
    let (from, to) = (v6(Fabric::v6(1)), v6(Fabric::v6(2)));
    assert_stopped(&nodes[1], RULE, &tap, |word| {
        stranger.send(&udp6(from, to, (4096, VXLAN), &tunnelled(&a, &b, word)));
    });
    let in_two = |next: u8, whole: &[u8], first: usize| {
        let (first, rest) = whole.split_at(first);
        let units = u16::try_from(first.len() / 8).expect("a short fragment");
        for (payload, offset, more) in [(first, 0, true), (rest, units, false)] {
            let fragment = [&fragment_header(next, offset, more)[..], payload].concat();
            stranger.send(&Ipv6::new(from, to, 44).packet(&fragment));
        }
    };
    assert_stopped(&nodes[1], RULE, &tap, |word| {
        let whole = udp6(from, to, (4096, VXLAN), &tunnelled(&a, &b, word));
        in_two(17, &whole[40..], 32);
    });
    assert_stopped(&nodes[1], "stop of first fragments", &tap, |word| {
        let whole = udp6(from, to, (4096, VXLAN), &tunnelled(&a, &b, word));
        let behind = [&extension(17, &[1, 4, 0, 0, 0, 0])[..], &whole[40..]].concat();
        in_two(60, &behind, 8);
    });
    assert_honest_arrives(nodes, &a, &b, &tap, Fabric::v6(2));
    drop(stranger);
    forget_stranger(&nodes[1]);
    proof::of!("ATT-01b");
}

/// Waits until the link of a stranger is gone with its namespace.
#[track_caller]
fn forget_stranger(node: &Node) {
    let mut here = connection(node.netns());
    let _ = here.delete_by_name("cali0");
}
