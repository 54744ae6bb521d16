//! Nodes on one segment of Ethernet, where networks have VLANs, or what has no tag.

use std::net::IpAddr;
use std::path::Path;

use agent_common::addr::MacAddr;
use agent_common::drop::DropReason;
use netdev::{Address, Netns};
use tempfile::TempDir;
use testbed::host::{UPLINK, connection};
use testbed::{Fabric, Network, Node, Port, Setup, Tap, talk, traffic, wait};

/// Networks of a node, by the node's number.
pub(crate) type Networks = fn(u8) -> Vec<Network>;

/// Some nodes, numbered from 1. Dropped before what connects them.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) nodes: Vec<Node>,
    pub(crate) fabric: Fabric,
    shared: TempDir,
    networks: Networks,
}

impl Segment {
    /// Starts nodes with these networks, whose addresses depend on the node's number.
    pub(crate) fn start(count: u8, networks: Networks) -> Self {
        let shared = tempfile::Builder::new()
            .prefix("podnet-test-shared-")
            .tempdir();
        let mut all = Self {
            nodes: Vec::new(),
            fabric: Fabric::segment(),
            shared: shared.expect("a directory for the nodes"),
            networks,
        };
        for number in 1..=count {
            let host = all.fabric.host(number);
            let directory = all.shared.path().to_str().expect("a path in UTF-8");
            let setup = all.setup(number, directory);
            all.nodes.push(Node::start_on(setup, host));
        }
        all
    }

    /// Starts a node that tells the others nothing, nor hears of them.
    pub(crate) fn start_stranger(&self, number: u8, networks: Networks) -> Node {
        let mut setup = Setup::empty().named(&format!("node-{number}"));
        for network in networks(number) {
            setup = setup.network(&network);
        }
        Node::start_on(setup, self.fabric.host(number))
    }

    /// Where the nodes tell each other who is where.
    pub(crate) fn directory(&self) -> &Path {
        self.shared.path()
    }

    fn setup(&self, number: u8, directory: &str) -> Setup {
        let mut setup = Setup::empty().named(&format!("node-{number}"));
        for address in Fabric::on_segment(number) {
            setup = setup.args(&["--vtep", &address.to_string()]);
        }
        setup = setup.args(&["--endpoints", directory]);
        for network in (self.networks)(number) {
            setup = setup.network(&network);
        }
        setup
    }

    /// The fabric's end of a node's uplink: what is sent here the node gets.
    pub(crate) fn tap(&self, number: u8) -> Tap {
        Tap::on(self.fabric.netns(), &Fabric::link(number))
    }

    /// A host that no agent runs on. It has the addresses of node `n` without a tag.
    pub(crate) fn stranger(&self, n: u8) -> (Netns, u32) {
        let netns = Netns::create().expect("a network namespace for a host");
        let uplink = self.fabric.connect(&netns, n);
        talk::wait_for_host(&netns, Fabric::on_segment(1)[0]);
        (netns, uplink)
    }
}

/// Gives an interface addresses at once.
pub(crate) fn give(netns: &Netns, ifindex: u32, addresses: &[(IpAddr, u8)]) {
    let mut there = connection(netns);
    for (ip, length) in addresses {
        let address = Address {
            nodad: true,
            ..Address::new(*ip, *length)
        };
        there.add_address(ifindex, address).expect("an address");
    }
    there.set_up(ifindex).expect("it goes up");
}

/// An interface that podnet has not made, as tests see those it has.
pub(crate) fn as_port(netns: &Netns, ifname: &str, ips: &[(IpAddr, u8)]) -> Port {
    let link = connection(netns).by_name(ifname).expect("links");
    let mac = link.expect("the interface").mac.expect("a MAC address");
    Port {
        netns: netns.clone(),
        container: "a stranger".to_owned(),
        network: String::new(),
        ifname: ifname.to_owned(),
        mac: MacAddr(mac),
        ips: ips.to_vec(),
        result: serde_json::Value::Null,
    }
}

/// Part of a subnet for each node, as `10.10.0.32/27` for the first.
pub(crate) fn part(network: Network, third: u8, number: u8) -> Network {
    let mut exclude = Vec::new();
    for below in 0..number {
        exclude.push(format!("10.{third}.0.{}/27", u32::from(below) * 32));
        exclude.push(format!("fd10:{third}::{below:x}:0/112"));
    }
    let exclude: Vec<&str> = exclude.iter().map(String::as_str).collect();
    network.exclude(&exclude)
}

/// The subnets of a network.
pub(crate) fn subnets(third: u8) -> [String; 2] {
    [format!("10.{third}.0.0/24"), format!("fd10:{third}::/64")]
}

/// An L2 network with addresses of a node's own.
pub(crate) fn l2(name: &str, third: u8, number: u8) -> Network {
    let [v4, v6] = subnets(third);
    part(Network::l2(name, &[&v4, &v6]), third, number)
}

/// An L3 network with addresses of a node's own.
pub(crate) fn l3(name: &str, third: u8, number: u8) -> Network {
    let [v4, v6] = subnets(third);
    part(Network::l3(name, &[&v4, &v6]), third, number)
}

/// Whether an uplink is as podnet finds and leaves it.
pub(crate) fn assert_untouched(node: &Node) {
    let mut there = connection(node.netns());
    let link = there.by_name(UPLINK).expect("links").expect("the uplink");
    let filters = there.ingress_filters(link.ifindex).expect("filters");
    assert_eq!(filters, [], "filters are left");
    assert!(!link.promiscuous, "still promiscuous");
}

/// Checks that a node drops a packet for a reason, and that it reaches no port.
pub(crate) struct Judge<'a> {
    node: &'a Node,
    network: &'a str,
    reason: DropReason,
    before: u64,
}

impl<'a> Judge<'a> {
    pub(crate) fn new(node: &'a Node, network: &'a str, reason: DropReason) -> Self {
        let before = node.drops().of(network, reason);
        Self {
            node,
            network,
            reason,
            before,
        }
    }

    #[track_caller]
    pub(crate) fn assert_dropped(&self, unseen: &[&Tap], word: &[u8]) {
        wait::until_true(&format!("a drop for {}", self.reason), || {
            self.node.drops().of(self.network, self.reason) > self.before
        });
        for tap in unseen {
            assert_eq!(tap.count(word), 0, "{} was delivered", self.reason);
        }
    }
}

/// Megabytes there and back, in packets as large as they come.
#[track_caller]
pub(crate) fn assert_carries(a: &Port, b: &Port) {
    for (_, there) in traffic::pairs(a, b) {
        let moved = traffic::tcp_round_trip(a, b, there, 20 << 20);
        assert!(moved.is_ok(), "{there}: {moved:?}");
    }
}
