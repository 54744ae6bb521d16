//! An attacker with raw frames, a pod that policies guard, and a bystander.

use agent_common::addr::{GATEWAY_MAC, MacAddr};
use testbed::frame::{ethernet, marker, udp4};
use testbed::{Port, Tap};

/// EtherType of IPv4.
pub(crate) const IP: u16 = 0x0800;
/// EtherType of IPv6.
pub(crate) const IPV6: u16 = 0x86dd;

/// The station that a frame to a pod goes to.
pub(crate) fn station(from: &Port, to: &Port) -> MacAddr {
    if from.network == "routed" {
        GATEWAY_MAC
    } else {
        to.mac
    }
}

/// The frame of a packet from one pod to another.
pub(crate) fn frame(from: &Port, to: &Port, packet: &[u8]) -> Vec<u8> {
    let is_v4 = packet.first().is_some_and(|first| first >> 4 == 4);
    let ether_type = if is_v4 { IP } else { IPV6 };
    ethernet(station(from, to), from.mac, ether_type, packet)
}

/// A sender of raw frames, of which a pod must get those that are allowed.
#[derive(Debug)]
pub(crate) struct Attacker<'a> {
    pub(crate) port: &'a Port,
    tap: Tap,
    victim: Tap,
    bystander: &'a Port,
    fence: Tap,
}

impl<'a> Attacker<'a> {
    /// `bystander` is one that the attacker may send to.
    pub(crate) fn new(port: &'a Port, victim: &Port, bystander: &'a Port) -> Self {
        Self {
            port,
            tap: port.tap(),
            victim: victim.tap(),
            bystander,
            fence: bystander.tap(),
        }
    }

    /// Sends a frame that the other pod gets.
    #[track_caller]
    pub(crate) fn seen(&self, what: &str, mark: &[u8], frame: &[u8]) {
        self.tap.send(frame);
        self.victim.wait_marker(what, mark);
    }

    /// Sends frames that the other pod must not see, and waits until all are handled.
    #[track_caller]
    pub(crate) fn unseen(&self, what: &str, mark: &[u8], frames: &[Vec<u8>]) {
        for frame in frames {
            self.tap.send(frame);
        }
        self.fence();
        assert_eq!(self.victim.count(mark), 0, "{what} was seen");
    }

    /// Waits until all that was sent has been dealt with.
    #[track_caller]
    pub(crate) fn fence(&self) {
        let last = marker();
        let packet = udp4(self.port.v4(), self.bystander.v4(), (5000, 9), &last);
        self.tap.send(&frame(self.port, self.bystander, &packet));
        self.fence
            .wait_marker("an honest frame after an attack", &last);
    }
}
