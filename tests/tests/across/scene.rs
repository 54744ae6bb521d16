//! Nodes on one underlay, and pods that have met.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;
use testbed::stream::Stream;
use testbed::{Fabric, Network, Node, Pod, Port, Setup, traffic, wait};

/// An L2 network and an L3 network, and one of each with the same subnets.
pub(crate) const L2: [&str; 2] = ["blue", "red"];
pub(crate) const L3: [&str; 2] = ["green", "lime"];

/// Which family tunnels use.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Underlay {
    V4,
    V6,
}

/// Some nodes, numbered from 1. Dropped before what connects them.
#[derive(Debug)]
pub(crate) struct Nodes {
    pub(crate) nodes: Vec<Node>,
    pub(crate) fabric: Fabric,
    shared: TempDir,
    underlay: Underlay,
}

impl Nodes {
    /// Starts them.
    pub(crate) fn start(count: u8, underlay: Underlay) -> Self {
        Self::start_with(count, underlay, &[])
    }

    /// Starts them with further arguments.
    pub(crate) fn start_with(count: u8, underlay: Underlay, args: &[&str]) -> Self {
        Self::start_by(count, underlay, |setup| setup.args(args))
    }

    /// Starts them with whatever is added to what each starts with.
    pub(crate) fn start_by(
        count: u8,
        underlay: Underlay,
        completed: impl Fn(Setup) -> Setup,
    ) -> Self {
        let shared = tempfile::Builder::new()
            .prefix("podnet-test-shared-")
            .tempdir();
        let mut all = Self {
            nodes: Vec::new(),
            fabric: Fabric::create(),
            shared: shared.expect("a directory for the nodes"),
            underlay,
        };
        for number in 1..=count {
            let host = all.fabric.host(number);
            let setup = completed(all.setup(number));
            all.nodes.push(Node::start_on(setup, host));
        }
        all
    }

    /// Returns the setup of node `number`: all networks, with addresses of its own.
    pub(crate) fn setup(&self, number: u8) -> Setup {
        let vtep = match self.underlay {
            Underlay::V4 => Fabric::v4(number),
            Underlay::V6 => Fabric::v6(number),
        };
        let directory = self.directory().to_str().expect("a path in UTF-8");
        let mut setup = Setup::empty().named(&format!("node-{number}")).args(&[
            "--vtep",
            &vtep.to_string(),
            "--endpoints",
            directory,
        ]);
        for network in networks(number) {
            setup = setup.network(&network);
        }
        setup
    }

    /// Where the nodes tell each other who is where.
    pub(crate) fn directory(&self) -> &Path {
        self.shared.path()
    }
}

/// Returns the networks of node `number`, each with a range that only it gives out.
pub(crate) fn networks(number: u8) -> Vec<Network> {
    let mut all = Vec::new();
    let numbered = L2.into_iter().chain(L3).zip(2001..);
    for (name, id) in numbered {
        let routed = L3.contains(&name);
        let third = if routed { 20 } else { 10 };
        let (v4, v6) = (format!("10.{third}.0.0/24"), format!("fd10:{third}::/64"));
        let subnets = [v4.as_str(), v6.as_str()];
        let network = if routed {
            Network::l3(name, &subnets)
        } else {
            Network::l2(name, &subnets)
        };
        let mut exclude = Vec::new();
        for below in 0..number {
            exclude.push(format!("10.{third}.0.{}/27", u32::from(below) * 32));
            exclude.push(format!("fd10:{third}::{below:x}:0/112"));
        }
        let exclude: Vec<&str> = exclude.iter().map(String::as_str).collect();
        all.push(network.exclude(&exclude).id(id).vxlan());
    }
    all
}

/// A pod on each of the first two nodes, on one network.
#[derive(Debug)]
pub(crate) struct Pair<'a> {
    pods: [Pod<'a>; 2],
    pub(crate) a: Port,
    pub(crate) b: Port,
}

impl<'a> Pair<'a> {
    /// Attaches them and waits until they have met.
    pub(crate) fn attach(nodes: &'a Nodes, network: &str) -> Self {
        Self::named(nodes, network, ["a", "b"])
    }

    /// The same with pods of these names.
    pub(crate) fn named(nodes: &'a Nodes, network: &str, [a, b]: [&str; 2]) -> Self {
        let pods = [nodes.nodes[0].pod(a), nodes.nodes[1].pod(b)];
        let [a, b] = [0, 1].map(|index| pods[index].attach(network, "net1"));
        wait_uplinks(&nodes.nodes[..2]);
        introduce(&a, &b);
        Self { pods, a, b }
    }

    /// Detaches them.
    pub(crate) fn detach(&self) {
        for (pod, port) in self.pods.iter().zip([&self.a, &self.b]) {
            pod.detach(&port.network, "net1");
        }
    }
}

/// Waits until nodes with a pod have their program on an uplink.
///
/// A kernel without TCX stops a link for a moment when it gets its clsact qdisc, and a datagram that is
/// sent just then is lost.
pub(crate) fn wait_uplinks(nodes: &[Node]) {
    for node in nodes {
        wait::until_true("the program on the uplink", || {
            !node.get("uplinks").is_empty()
        });
    }
}

/// Waits until each node of two pods has heard of the other one's pod.
#[track_caller]
pub(crate) fn introduce(a: &Port, b: &Port) {
    for (here, there) in traffic::pairs(a, b) {
        hear(a, here, b, there);
        hear(b, there, a, here);
    }
}

/// Sends from `a` to `b` until something arrives.
#[track_caller]
fn hear(a: &Port, from: IpAddr, b: &Port, to: IpAddr) {
    let (source, sink) = (traffic::udp(a, from), traffic::udp(b, to));
    let soon = Some(Duration::from_millis(20));
    sink.set_read_timeout(soon).expect("a timeout");
    let target = sink.local_addr().expect("a bound socket has an address");
    wait::until_true(&format!("{from} to reach {to}"), || {
        // Until its node knows the way, the kernel may refuse: the address does not resolve.
        let _ = source.send_to(b"hello", target);
        sink.recv(&mut [0; 16]).is_ok()
    });
}

/// Fails the test unless they have met and reach each other.
#[track_caller]
pub(crate) fn assert_meet(a: &Port, b: &Port) {
    introduce(a, b);
    traffic::assert_reaches(a, b);
}

/// Asserts that restarts of the agents lose no datagram between two pods.
///
/// Each of the agents is killed, stopped and started.
#[track_caller]
pub(crate) fn assert_restarts_lose_nothing(nodes: &[Node], a: &Port, b: &Port) {
    for (here, there) in traffic::pairs(a, b) {
        let stream = Stream::start(a, here, b, there);
        stream.through_restarts(nodes);
        stream.assert_nothing_lost();
    }
}
