//! Everybody who must not see a frame, watched at once.

use crate::node::Node;
use crate::pod::Port;
use crate::tap::Tap;

/// EtherTypes with which a leaked frame could reach the node's stack.
///
/// They are IPv4, ARP, IPv6, both VLAN tags, and the two for experiments (IEEE 802).
const STACK: [u16; 7] = [0x0800, 0x0806, 0x86dd, 0x8100, 0x88a8, 0x88b5, 0x88b6];

/// Taps in pods, in the node's stack and beyond its uplink.
#[derive(Debug)]
pub struct Watch {
    taps: Vec<(String, Tap)>,
}

impl Watch {
    /// Watches these ports, the node and the world behind it.
    pub fn over(node: &Node, ports: &[&Port]) -> Self {
        let mut taps: Vec<_> = ports
            .iter()
            .map(|port| (format!("{}/{}", port.container, port.ifname), port.tap()))
            .collect();
        for ether_type in STACK {
            let name = format!("the node's stack ({ether_type:#06x})");
            taps.push((name, Tap::stack(node.netns(), ether_type)));
        }
        let world = Tap::on(node.host().outside(), crate::host::WORLD);
        taps.push(("the world".to_owned(), world));
        Self { taps }
    }

    /// Fails the test if any tap has seen a frame with `marker`.
    ///
    /// Make sure that it has been dealt with before calling this: by its drop counter, or by a later
    /// frame that took the same way.
    ///
    /// # Panics
    /// Then, naming them.
    #[track_caller]
    pub fn assert_unseen(&self, what: &str, marker: &[u8]) {
        let seen: Vec<_> = self
            .taps
            .iter()
            .filter(|(_, tap)| tap.count(marker) > 0)
            .map(|(name, _)| name.as_str())
            .collect();
        assert!(seen.is_empty(), "{what} was seen by {seen:?}");
    }
}
