//! Attack ways out of networks: flush their tables, and aim inside of the cluster.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use netdev::{Address, Netfilter, Netns};
use testbed::beyond::{BEYOND, NODE, attached, ip, settle_world};
use testbed::frame::marker;
use testbed::host::connection;
use testbed::{Network, Node, Port, Setup, nat, traffic, wait};

const OUTSIDE: &str = "podnet-egress";
const INSIDE: &str = "podnet";

/// `amber` has egress, and for `white` the node routes.
fn setup() -> Setup {
    let (amber, white) = (
        ["10.40.0.0/24", "fd40:40::/64"],
        ["10.30.0.0/24", "fd30:30::/64"],
    );
    Setup::empty()
        .network(&Network::l3("amber", &amber).egress())
        .network(&Network::l3("white", &white).by_node())
}

fn netfilter(netns: &Netns) -> Netfilter {
    let opened = netns.run_in(Netfilter::open);
    opened.expect("entered").expect("a socket of netfilter")
}

/// A socket in a namespace.
fn socket(netns: &Netns, at: SocketAddr) -> UdpSocket {
    let bound = netns.run_in(|| UdpSocket::bind(at));
    let socket = bound.expect("entered").expect("a socket");
    let patience = Some(wait::PATIENCE);
    socket.set_read_timeout(patience).expect("a timeout");
    socket
}

fn own(port: &Port, is_v4: bool) -> IpAddr {
    if is_v4 {
        port.v4().into()
    } else {
        port.v6().into()
    }
}

/// The namespace of the one gateway of a node.
fn gateway(node: &Node) -> Netns {
    let files = std::fs::read_dir(node.path("run").join("egress"));
    let mut files = files.expect("gateways").flatten();
    let path = files.next().expect("a gateway").path();
    Netns::open(&path).expect("its namespace")
}

/// Asserts that a packet from a pod to an address is not heard there.
///
/// It then sends to the world: when the world hears the second packet, the first was processed.
#[track_caller]
fn assert_unheard(node: &Node, from: &Port, listener: &Netns, address: IpAddr) {
    let heard = socket(listener, SocketAddr::new(address, 0));
    let to = heard.local_addr().expect("an address");
    let source = own(from, address.is_ipv4());
    // The kernel may know of an error already; that is as good as an end.
    let _ = traffic::shout(from, source, to, &marker());
    let beyond = ip(BEYOND[usize::from(address.is_ipv6())]);
    let world = socket(node.host().outside(), SocketAddr::new(beyond, 0));
    let at = world.local_addr().expect("an address");
    traffic::shout(from, source, at, b"after that").expect("sent");
    world.recv(&mut [0; 64]).expect("the world hears the pod");
    heard.set_nonblocking(true).expect("a setting");
    let got = heard.recv_from(&mut [0; 64]);
    assert!(got.is_err(), "{address} heard the pod: {got:?}");
}

/// Waits until a table is there again.
#[track_caller]
fn wait_for(netns: &Netns, table: &'static str) {
    let mut netfilter = netfilter(netns);
    wait::until_true("the table to be written again", || {
        netfilter.has(table).expect("a look")
    });
}

/// Waits for log lines about a table that was restored on an event of the kernel.
///
/// No audit writes such a line.
#[track_caller]
fn wait_restored(node: &Node, table: &str, times: usize) {
    let field = format!("table=\"{table}\"");
    wait::until_true("the agent to say that it has restored a table", || {
        let log = node.log();
        let said = log.lines().filter(|line| {
            line.contains("another program changed a table") && line.contains(&field)
        });
        said.count() >= times
    });
}

/// ATT-09: tables that another program flushes are written again at once.
///
/// It flushes all tables of the node, again and again, and those of a gateway: the agent hears of it
/// from the kernel, and does not wait for an audit.
#[test]
fn tables_that_another_program_flushes_are_written_again_at_once() {
    let node = testbed::node!(setup());
    settle_world(&node);
    let (pod, port) = attached(&node, "a", "amber");
    let (white, _) = attached(&node, "w", "white");
    for times in 1..=3 {
        nat::flush(node.netns());
        for table in [OUTSIDE, INSIDE] {
            wait_for(node.netns(), table);
            wait_restored(&node, table, times);
        }
    }
    let gateway = gateway(&node);
    nat::flush(&gateway);
    wait_for(&gateway, INSIDE);
    wait_restored(&node, "podnet of a way out", 1);
    for address in NODE.map(ip) {
        assert_unheard(&node, &port, node.netns(), address);
    }
    pod.detach("amber", "eth0");
    white.detach("white", "eth0");
    proof::of!("ATT-09");
}

/// ATT-09: tables flushed after their first write are restored, and this is logged.
///
/// The flush comes within the pause of the agent's watch: what removed the table is known by what the
/// agent wrote, and not by an earlier look of the watch, which found no table.
#[test]
fn tables_flushed_right_after_their_first_write_are_reported() {
    let node = testbed::node!(setup());
    settle_world(&node);
    let (pod, _) = attached(&node, "a", "amber");
    nat::flush(node.netns());
    wait_for(node.netns(), OUTSIDE);
    wait_restored(&node, OUTSIDE, 1);
    pod.detach("amber", "eth0");
    proof::of!("ATT-09");
}

/// ATT-09: without tables and agent, a way out leads to nothing of the node.
///
/// The pod reaches no address of the node, none of the loopback's services, and no pod that the node
/// routes to.
#[test]
fn without_tables_and_without_an_agent_a_way_out_leads_to_nothing_of_the_node() {
    let node = testbed::node!(setup());
    settle_world(&node);
    let (pod, port) = attached(&node, "a", "amber");
    let (white, served) = attached(&node, "w", "white");
    let mut transit = Vec::new();
    let mut here = connection(node.netns());
    for link in node.links() {
        if link.name.starts_with("podnet-e") {
            let addresses = here.addresses(link.ifindex).expect("a list");
            transit.extend(addresses.into_iter().map(|address| address.ip));
        }
    }
    assert_eq!(transit.len(), 2, "of both families");
    node.kill_9();
    nat::flush(node.netns());
    for address in NODE.map(ip).into_iter().chain(transit) {
        assert_unheard(&node, &port, node.netns(), address);
    }
    for is_v4 in [true, false] {
        assert_unheard(&node, &port, &served.netns, own(&served, is_v4));
    }
    node.start_agent();
    wait_for(node.netns(), OUTSIDE);
    for address in NODE.map(ip) {
        assert_unheard(&node, &port, node.netns(), address);
    }
    pod.detach("amber", "eth0");
    white.detach("white", "eth0");
    proof::of!("ATT-09");
}

/// ATT-10b: pods and Services of the cluster are inside, whatever the route.
///
/// Another plugin routes natively by the uplink: pods and Services of the cluster are where the node
/// sends everything else to, too.
#[test]
fn pods_and_services_of_the_cluster_are_not_outside_whatever_way_leads_there() {
    let inside = [
        "198.51.100.7",
        "203.0.113.9",
        "2001:db8:7::7",
        "2001:db8:9::9",
    ];
    let node = testbed::node!(
        setup()
            .env("PODNET_CLUSTER_CIDR", "198.51.100.0/24,2001:db8:7::/48")
            .env("PODNET_SERVICE_CIDR", "203.0.113.0/24,2001:db8:9::/112")
    );
    settle_world(&node);
    let (mut world, link) = node.host().world();
    for address in inside.map(ip) {
        let length = if address.is_ipv4() { 32 } else { 128 };
        let address = Address {
            nodad: true,
            ..Address::new(address, length)
        };
        world.add_address(link, address).expect("an address");
    }
    let (pod, port) = attached(&node, "a", "amber");
    for address in inside.map(ip) {
        assert_unheard(&node, &port, node.host().outside(), address);
    }
    pod.detach("amber", "eth0");
    proof::of!("ATT-10b");
}
