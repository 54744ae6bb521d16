//! List the packets that every engine is held to, with the decision about each.
//!
//! A case is a frame that a port sends, the decision, and the frame that leaves.
//!
//! The frames, those that leave among them, are put together by builders of their own, from the
//! RFCs and with whole checksums. They share no code with `policy` and `reply`.
//!
//! ```
//! use agent_common::cases::{self, World};
//! use agent_common::policy;
//!
//! let world = World::new();
//! for case in cases::all() {
//!     let tables = world.seen_by(case.sender.ifindex);
//!     assert_eq!(policy::decide(&case, &case.sender.port(), &tables), case.decision);
//! }
//! ```

mod arp;
pub mod build;
mod control;
mod echo;
mod egress;
mod ethernet;
mod ipv4;
mod ipv6;
mod nd;
mod node;
mod routed;
mod services;
mod vpcs;
mod wired;

pub use crate::world::{
    AMBER, AMBER_A, AMBER_B, AMBER_OUT, BEYOND, BLUE, BLUE_A, BLUE_B, BLUE_C, CORAL, CORAL_A,
    CORAL_OUT, ETHER_TYPE_OF_TEAL, GATEWAY_ON_AMBER, GATEWAY_ON_GREEN, GATEWAY_ON_JADE,
    GATEWAY_ON_WHITE, GREEN, GREEN_A, GREEN_B, GREEN_C, GREY, GREY_A, GREY_B, JADE, JADE_A, JADE_B,
    OCHRE, OCHRE_A, OLIVE, OLIVE_A, OUTSIDE, PEARL, PEARL_A, PEARL_MTU, PODS, Pod, RED, RED_A,
    RED_B, RED_D, SERVICE, STEEL, STEEL_A, STEEL_B, TEAL, TEAL_A, TEAL_B, TRUNK_VLANS, TUNNEL_PORT,
    UPLINK, View, WHITE, WHITE_A, WHITE_B, World,
};

use crate::drop::DropReason;
use crate::endpoint::Endpoint;
use crate::packet::{ETH_HLEN, ETH_P_IP, ETH_P_IPV6, Frame, IPV4_HLEN, IPV6_HLEN, Start};
use crate::policy::{Decision, Family};

/// One packet and what becomes of it.
#[derive(Debug, Clone)]
pub struct Case {
    /// A sentence.
    pub name: &'static str,
    /// Sender of the frame.
    pub sender: &'static Pod,
    /// The frame.
    pub frame: Vec<u8>,
    /// True when a VLAN tag travels next to the frame.
    pub vlan_tag: bool,
    /// Its id, if it is an 802.1Q one; else 0.
    pub vlan_id: u16,
    /// Length of each segment of a GSO packet, bytes, Ethernet header included.
    pub segment: Option<usize>,
    /// Expected decision of the policy.
    pub decision: Decision,
    /// The frame that leaves; for a flood, each copy. `None` when none does.
    pub output: Option<Vec<u8>>,
}

impl Case {
    /// Why `BPF_PROG_TEST_RUN` cannot run it, for those it cannot.
    pub fn beyond_test_run(&self) -> Option<&'static str> {
        if self.vlan_tag {
            return Some("vlan_present is not among the fields of __sk_buff a test may set");
        }
        if self.segment.is_some() {
            return Some("the trial has no way to say gso_size");
        }
        if self.frame.len() < ETH_HLEN {
            return Some("bpf_test_init refuses frames shorter than an Ethernet header");
        }
        None
    }

    /// True when a kernel may refuse the frame to `BPF_PROG_TEST_RUN`.
    ///
    /// Newer kernels want an IP header to be whole.
    pub fn may_be_refused_by_test_run(&self) -> bool {
        let header = match self.frame.load::<2>(12).map(u16::from_be_bytes) {
            Some(ETH_P_IP) => IPV4_HLEN,
            Some(ETH_P_IPV6) => IPV6_HLEN,
            _ => 0,
        };
        self.frame.len() < ETH_HLEN + header
    }
}

impl Frame for Case {
    fn length(&self) -> usize {
        self.frame.len()
    }

    fn segment_length(&self) -> usize {
        self.segment.unwrap_or(self.frame.len())
    }

    fn has_vlan_tag(&self) -> bool {
        self.vlan_tag
    }

    fn vlan_id(&self) -> u16 {
        self.vlan_id
    }

    fn load<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        self.frame.load(offset)
    }

    fn start(&self) -> Start {
        self.frame.start()
    }
}

/// Every case.
pub fn all() -> Vec<Case> {
    let mut list = List::default();
    ethernet::add(&mut list);
    arp::add(&mut list);
    ipv4::add(&mut list);
    ipv6::add(&mut list);
    nd::add(&mut list);
    routed::add(&mut list);
    node::add(&mut list);
    egress::add(&mut list);
    echo::add(&mut list);
    wired::add(&mut list);
    vpcs::add(&mut list);
    services::add(&mut list);
    control::add(&mut list);
    list.cases
}

/// The table in the making.
#[derive(Default)]
struct List {
    cases: Vec<Case>,
}

impl List {
    fn push(
        &mut self,
        name: &'static str,
        sender: &'static Pod,
        frame: Vec<u8>,
        decision: Decision,
        output: Option<Vec<u8>>,
    ) -> &mut Case {
        let case = Case {
            name,
            sender,
            frame,
            vlan_tag: false,
            vlan_id: 0,
            segment: None,
            decision,
            output,
        };
        self.cases.push_mut(case)
    }

    fn drops(
        &mut self,
        name: &'static str,
        sender: &'static Pod,
        frame: Vec<u8>,
        reason: DropReason,
    ) -> &mut Case {
        self.push(name, sender, frame, Decision::Drop(reason), None)
    }

    fn ignores(&mut self, name: &'static str, sender: &'static Pod, frame: Vec<u8>) {
        self.push(name, sender, frame, Decision::Ignore, None);
    }

    fn floods(&mut self, name: &'static str, sender: &'static Pod, frame: Vec<u8>) {
        let output = Some(frame.clone());
        self.push(name, sender, frame, Decision::Flood, output);
    }

    fn translates(&mut self, name: &'static str, sender: &'static Pod, frame: Vec<u8>) {
        self.push(name, sender, frame, Decision::Service, None);
    }

    fn goes_to_node(
        &mut self,
        name: &'static str,
        sender: &'static Pod,
        frame: Vec<u8>,
    ) -> &mut Case {
        let output = Some(frame.clone());
        self.push(name, sender, frame, Decision::Node, output)
    }

    fn switches(
        &mut self,
        name: &'static str,
        sender: &'static Pod,
        frame: Vec<u8>,
        to: &Pod,
    ) -> &mut Case {
        let output = Some(frame.clone());
        self.push(name, sender, frame, Decision::Switch(to.endpoint()), output)
    }

    /// The output has the MAC address of the receiver.
    fn moves(&mut self, name: &'static str, sender: &'static Pod, frame: Vec<u8>, to: &Pod) {
        let mut output = frame.clone();
        output.splice(..to.mac.0.len(), to.mac.0);
        let decision = Decision::Moved(to.endpoint());
        self.push(name, sender, frame, decision, Some(output));
    }

    fn routes_v4(
        &mut self,
        name: &'static str,
        frames: [Vec<u8>; 2],
        from: &'static Pod,
        to: &Pod,
    ) {
        self.routes(name, frames, from, to.endpoint(), Family::V4);
    }

    fn routes_v6(
        &mut self,
        name: &'static str,
        frames: [Vec<u8>; 2],
        from: &'static Pod,
        to: &Pod,
    ) {
        self.routes(name, frames, from, to.endpoint(), Family::V6);
    }

    fn routes(
        &mut self,
        name: &'static str,
        [frame, output]: [Vec<u8>; 2],
        from: &'static Pod,
        to: Endpoint,
        family: Family,
    ) {
        self.push(name, from, frame, Decision::Route(to, family), Some(output));
    }

    fn leaves(&mut self, name: &'static str, [frame, output]: [Vec<u8>; 2], from: &'static Pod) {
        let decision = Decision::Leave(AMBER_OUT.endpoint());
        self.push(name, from, frame, decision, Some(output));
    }

    fn answers(
        &mut self,
        name: &'static str,
        sender: &'static Pod,
        [question, answer]: [Vec<u8>; 2],
        decision: Decision,
    ) {
        self.push(name, sender, question, decision, Some(answer));
    }
}
