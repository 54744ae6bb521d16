//! Test the crate on the running kernel, in unnamed namespaces of each test.
//!
//! They end with the test. Needs root; skipped with a line on stdout otherwise.

use std::net::IpAddr;

use netdev::{Connection, Error, Link, LinkFilter, Netns, VethPair, VethSpec};

#[path = "kernel/addresses.rs"]
mod addresses;
#[path = "kernel/handle.rs"]
mod handle;
#[path = "kernel/links.rs"]
mod links;
#[path = "kernel/monitor.rs"]
mod monitor;
#[path = "kernel/netfilter.rs"]
mod netfilter;
#[path = "kernel/netns.rs"]
mod netns;
#[path = "kernel/offload.rs"]
mod offload;
#[path = "kernel/pod.rs"]
mod pod;
#[path = "kernel/reach.rs"]
mod reach;
#[path = "kernel/rule.rs"]
mod rule;
#[path = "kernel/shape.rs"]
mod shape;
#[path = "kernel/tap.rs"]
mod tap;

const HOST_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x10];
const POD_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x2a];

/// A node and a pod, without names and with nothing but a loopback that is down.
struct Scene {
    node: Netns,
    pod: Netns,
}

impl Scene {
    fn set() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            println!("SKIP: needs root (CAP_SYS_ADMIN and CAP_NET_ADMIN)");
            return None;
        }
        let netns = || Netns::create().expect("a network namespace");
        Some(Self {
            node: netns(),
            pod: netns(),
        })
    }

    fn node(&self) -> Connection {
        connect(&self.node)
    }

    fn pod(&self) -> Connection {
        connect(&self.pod)
    }
}

fn connect(netns: &Netns) -> Connection {
    netns
        .run_in(Connection::open)
        .expect("entered")
        .expect("a socket")
}

fn pair(node: &mut Connection) -> VethPair {
    let spec = VethSpec {
        host_mac: Some(HOST_MAC),
        ..VethSpec::new("host0", "peer0")
    };
    node.create_veth(&spec).expect("a pair")
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn named(connection: &mut Connection, name: &str) -> Link {
    connection
        .by_name(name)
        .expect("an answer")
        .expect("a link of that name")
}

fn names(connection: &mut Connection, filter: &LinkFilter) -> Vec<String> {
    connection
        .list(filter)
        .expect("a list")
        .into_iter()
        .map(|link| link.name)
        .collect()
}

fn chain(error: &Error) -> String {
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}"));
    format!("{error}{}", cause.unwrap_or_default())
}
