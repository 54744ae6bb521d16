//! Test rate limits by the kernel's counts, without timing.
//!
//! At the slow rates used here, packets wait for seconds unless something lets them go.
#![expect(
    clippy::panic,
    reason = "all of this is tests; clippy looks for #[test] and cfg(test) only"
)]

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use netdev::{
    Address, Connection, Discipline, Error, Flows, RootQueue, Shape, ShapeState, Sysctl, VethPair,
    VethSpec, sysctl,
};
use nix::sys::socket::{setsockopt, sockopt};
use rustix::io::Errno;

use crate::Scene;

#[path = "shape/foreign.rs"]
mod foreign;
#[path = "shape/queues.rs"]
mod queues;
#[path = "shape/tree.rs"]
mod tree;

const FLOWS: Flows = Flows::new(0x0f10, 16, 17);
const NODE: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
const POD: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
/// Ethernet, IPv4 and UDP headers.
const HEADERS: u64 = 14 + 20 + 8;
const PAYLOAD: usize = 1000;
const WIRE: u64 = PAYLOAD as u64 + HEADERS;
/// Ends a test that would hang.
const PATIENCE: Duration = Duration::from_secs(20);

/// One packet a second after the first two.
const SLOW: Shape = Shape {
    rate: 1000,
    burst: 3028,
    segment: 3028,
    queue: 200_000,
};
const FAST: Shape = Shape {
    rate: 125_000_000,
    burst: 125_000,
    ..SLOW
};

/// The disciplines of this kernel. Tests go through all of them;
/// `tree::fq_codel_is_chosen_where_it_can_be` is the one that is skipped where the best is missing.
fn disciplines(scene: &Scene) -> Vec<Discipline> {
    let mut node = scene.node();
    let spec = VethSpec::new("probe0", "probe1");
    let pair = node.create_veth(&spec).expect("a pair to try them on");
    let found = [
        Discipline::FqCodel,
        Discipline::Htb(FLOWS),
        Discipline::Fifo,
    ]
    .into_iter()
    .filter(
        |discipline| match node.shape(pair.host_ifindex, &SLOW, *discipline) {
            Ok(()) => true,
            Err(Error::Shape { source, .. }) if source.errno() == Errno::NOENT => {
                println!("not tried: {discipline}, this kernel has no such queue");
                false
            }
            Err(error) => panic!("{discipline}: {}", crate::chain(&error)),
        },
    )
    .collect();
    node.delete(pair.host_ifindex).expect("deleted");
    found
}

/// A node and a pod that reach each other by IPv4, with nothing else on the wire.
struct Wire {
    node: Connection,
    pair: VethPair,
    sender: UdpSocket,
    receiver: UdpSocket,
}

impl Wire {
    fn lay(scene: &Scene) -> Self {
        let (mut node, mut pod) = (scene.node(), scene.pod());
        let spec = VethSpec {
            peer_netns: Some(scene.pod.clone()),
            ..VethSpec::new("host0", "net1")
        };
        let pair = node.create_veth(&spec).expect("a pair");
        for (netns, name) in [(&scene.node, "host0"), (&scene.pod, "net1")] {
            // IPv6 would send on its own.
            netns
                .run_in(|| sysctl::write(name, &[Sysctl::v6("disable_ipv6", "1")]))
                .expect("entered")
                .expect("IPv6 off");
        }
        for (end, ifindex, address) in [
            (&mut node, pair.host_ifindex, NODE),
            (&mut pod, pair.peer_ifindex, POD),
        ] {
            end.add_address(ifindex, Address::new(address.into(), 24))
                .expect("an address");
            end.set_up(ifindex).expect("up");
        }
        let receiver = scene.pod.run_in(|| bound(POD)).expect("entered");
        receiver
            .set_read_timeout(Some(PATIENCE))
            .expect("a timeout");
        let sender = scene.node.run_in(|| bound(NODE)).expect("entered");
        let wire = Self {
            node,
            pair,
            sender,
            receiver,
        };
        // The neighbour is known from here on.
        wire.send(&wire.sender, 0);
        assert_eq!(wire.receive(), 0);
        wire
    }

    /// Limits what leaves the node's end.
    fn shape(&mut self, shape: &Shape, discipline: Discipline) {
        self.node
            .shape(self.pair.host_ifindex, shape, discipline)
            .unwrap_or_else(|error| panic!("{discipline}: {}", crate::chain(&error)));
    }

    fn state(&mut self) -> ShapeState {
        state_of(&mut self.node, self.pair.host_ifindex)
    }

    fn flow(&self, scene: &Scene) -> UdpSocket {
        let _ = self;
        scene.node.run_in(|| bound(NODE)).expect("entered")
    }

    fn send(&self, from: &UdpSocket, number: u32) {
        let mut payload = [0; PAYLOAD];
        payload[..4].copy_from_slice(&number.to_be_bytes());
        let to = self.receiver.local_addr().expect("an address");
        assert_eq!(from.send_to(&payload, to).expect("sent"), PAYLOAD);
    }

    fn send_all(&self, numbers: std::ops::Range<u32>) {
        for number in numbers {
            self.send(&self.sender, number);
        }
    }

    /// The number of the next datagram that arrives.
    fn receive(&self) -> u32 {
        let mut payload = [0; 2048];
        let length = self.receiver.recv(&mut payload).expect("a datagram");
        assert_eq!(length, PAYLOAD);
        u32::from_be_bytes(payload[..4].try_into().expect("four bytes"))
    }

    fn receive_all(&self, count: usize) -> Vec<u32> {
        (0..count).map(|_| self.receive()).collect()
    }

    /// One send of many datagrams, which stay one packet until somebody splits it.
    fn send_segments(&self, count: usize) {
        let segment = i32::try_from(PAYLOAD).expect("a small number");
        setsockopt(&self.sender, sockopt::UdpGsoSegment, &segment).expect("UDP_SEGMENT");
        let to = self.receiver.local_addr().expect("an address");
        let payload = vec![0; PAYLOAD * count];
        let sent = self.sender.send_to(&payload, to).expect("sent");
        assert_eq!(sent, payload.len());
        setsockopt(&self.sender, sockopt::UdpGsoSegment, &0).expect("UDP_SEGMENT off");
    }
}

fn bound(address: Ipv4Addr) -> UdpSocket {
    UdpSocket::bind(SocketAddr::new(IpAddr::V4(address), 0)).expect("a socket")
}

fn state_of(connection: &mut Connection, ifindex: u32) -> ShapeState {
    match connection.shape_of(ifindex).expect("an answer") {
        RootQueue::Ours(state) => state,
        other => panic!("no limit of ours: {other:?}"),
    }
}
