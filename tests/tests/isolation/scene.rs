//! Set up an attacker, two neighbours, and a network with the same subnets.

use std::net::Ipv4Addr;

use agent_common::addr::MacAddr;
use agent_common::drop::DropReason;
use testbed::frame::{Marker, ethernet, marker, udp4};
use testbed::{Node, Pod, Port, Tap, Watch, traffic, wait};

/// EtherType of IPv4.
pub(crate) const IP: u16 = 0x0800;
/// EtherType of IPv6.
pub(crate) const IPV6: u16 = 0x86dd;

/// One attacker and everybody who must not notice.
#[derive(Debug)]
pub(crate) struct Scene<'a> {
    pub(crate) node: &'a Node,
    /// The attacker.
    pub(crate) mallory: Port,
    /// On the attacker's network.
    pub(crate) alice: Port,
    /// On the attacker's network.
    pub(crate) bob: Port,
    /// On another network, with Alice's very addresses.
    pub(crate) other: Port,
    pub(crate) tap: Tap,
    watch: Watch,
    fence: Tap,
    _pods: Vec<Pod<'a>>,
}

impl<'a> Scene<'a> {
    /// Pods on `network`, and one on another network with the same subnets.
    pub(crate) fn set(node: &'a Node, network: &str, beside: &str) -> Self {
        // The order of ADDs decides addresses: Alice and the other one get the first.
        let mut pods = Vec::new();
        let mut attach = |name: &str, network: &str| {
            let pod = node.pod(name);
            let port = pod.attach(network, "net1");
            pods.push(pod);
            port
        };
        let alice = attach("alice", network);
        let other = attach("other", beside);
        let bob = attach("bob", network);
        let mallory = attach("mallory", network);
        assert_eq!(alice.ips, other.ips, "the same addresses on both networks");
        traffic::assert_reaches(&mallory, &alice);
        traffic::assert_reaches(&alice, &bob);
        let watch = Watch::over(node, &[&alice, &bob, &other]);
        let fence = alice.tap();
        Self {
            node,
            tap: mallory.tap(),
            mallory,
            alice,
            bob,
            other,
            watch,
            fence,
            _pods: pods,
        }
    }

    /// Sends a frame that must be dropped for `reason` on the attacker's network.
    #[track_caller]
    pub(crate) fn dropped(&self, what: &str, reason: DropReason, marker: &Marker, frame: &[u8]) {
        let network = self.mallory.network.as_str();
        let before = self.node.drops().of(network, reason);
        self.tap.send(frame);
        let end = std::time::Instant::now() + wait::PATIENCE;
        loop {
            let drops = self.node.drops();
            if drops.of(network, reason) > before {
                break;
            }
            assert!(
                std::time::Instant::now() < end,
                "{what}: not counted as {reason} on {network}; counted: {drops:?}"
            );
        }
        self.unseen(what, marker);
    }

    /// Sends a frame that has no effect on anybody else, counted or not.
    #[track_caller]
    pub(crate) fn ignored(&self, what: &str, marker: &Marker, frame: &[u8]) {
        self.tap.send(frame);
        self.unseen(what, marker);
    }

    /// Asserts that no tap has seen `attack`, by a frame sent after it has arrived.
    #[track_caller]
    fn unseen(&self, what: &str, attack: &Marker) {
        let fence = marker();
        self.tap.send(&self.honest_to_alice(&fence));
        self.fence
            .wait_marker("the honest frame after an attack", &fence);
        self.watch.assert_unseen(what, attack);
    }

    /// An honest datagram to Alice.
    pub(crate) fn honest_to_alice(&self, payload: &[u8]) -> Vec<u8> {
        let packet = udp4(self.mallory.v4(), self.alice.v4(), (5000, 9), payload);
        let to = if self.is_routed() {
            agent_common::addr::GATEWAY_MAC
        } else {
            self.alice.mac
        };
        ethernet(to, self.mallory.mac, IP, &packet)
    }

    fn is_routed(&self) -> bool {
        ["green", "lime"].contains(&self.mallory.network.as_str())
    }

    /// A datagram from the attacker's own addresses to Alice's, in a frame to `to`.
    pub(crate) fn udp4_from(&self, from: Ipv4Addr, payload: &[u8]) -> Vec<u8> {
        udp4(from, self.alice.v4(), (5000, 9), payload)
    }

    /// An Ethernet frame from the attacker to Alice.
    pub(crate) fn to_alice(&self, ether_type: u16, packet: &[u8]) -> Vec<u8> {
        ethernet(self.alice.mac, self.mallory.mac, ether_type, packet)
    }

    /// An Ethernet frame from the attacker to any address.
    pub(crate) fn to(&self, to: MacAddr, ether_type: u16, packet: &[u8]) -> Vec<u8> {
        ethernet(to, self.mallory.mac, ether_type, packet)
    }

    /// Everything still works.
    #[track_caller]
    pub(crate) fn close(self) {
        traffic::assert_reaches(&self.mallory, &self.alice);
        traffic::assert_reaches(&self.bob, &self.alice);
        for port in [&self.alice, &self.bob, &self.mallory, &self.other] {
            self.node.gc(&port.network, &[]).silent();
        }
        self.node.assert_empty();
    }
}

/// A MAC address that no port has.
pub(crate) const NOBODY: MacAddr = MacAddr([0x02, 0xde, 0xad, 0xbe, 0xef, 0x01]);
