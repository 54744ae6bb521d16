//! Three nodes and a server, and all their steps in any order.
//!
//! Nodes see old state, their messages arrive late, and they crash. The books are real.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::samples::key;

const NODES: usize = 3;

/// An `IPReservation`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Object {
    uid: u32,
    node: usize,
    answer: Option<bool>,
}

impl Object {
    fn holder(&self, address: IpAddr) -> Holder {
        pod(&format!("{}-{address}", self.node))
    }
}

type Reservations = BTreeMap<IpAddr, Object>;

/// Objects of the API server.
#[derive(Default)]
struct Server {
    blocks: BTreeMap<Prefix, usize>,
    reservations: Reservations,
    last_uid: u32,
}

struct Node {
    me: usize,
    ledger: Ledger,
    /// Reservations as they were at some time.
    copy: Reservations,
    /// Taken, and other blocks not read since.
    taken: BTreeSet<Prefix>,
    /// Blocks that overlap no other; reservations not read since.
    alone: BTreeSet<Prefix>,
    serving: BTreeSet<Prefix>,
    /// Reservations it has deleted, which the copy may still have.
    given_up: BTreeSet<u32>,
    /// Answers on their way to the server.
    sent: Vec<(IpAddr, u32, bool)>,
    containers: u32,
}

impl Node {
    fn new(me: usize) -> Self {
        let mut ledger = Ledger::new(256);
        ledger.set_shares(HashMap::new());
        Self {
            me,
            ledger,
            copy: Reservations::new(),
            taken: BTreeSet::new(),
            alone: BTreeSet::new(),
            serving: BTreeSet::new(),
            given_up: BTreeSet::new(),
            sent: Vec::new(),
            containers: 0,
        }
    }

    fn publish(&mut self) {
        let reserved = self.copy.iter().map(|(address, object)| {
            let reserved = Reserved {
                holder: object.holder(*address),
                granted: object.answer == Some(true) && !self.given_up.contains(&object.uid),
            };
            (*address, reserved)
        });
        let share = Share {
            blocks: self.serving.iter().copied().collect(),
            reserved: reserved.collect(),
        };
        self.ledger
            .set_shares(HashMap::from([("blue".to_owned(), share)]));
    }

    fn add(&mut self, address: Option<IpAddr>) {
        self.containers += 1;
        let wish = Wanted {
            ips: (address.into_iter().map(Request::from).collect(), "the test"),
            holder: address.map(|address| pod(&format!("{}-{address}", self.me))),
            ..wanted(&format!("c{}", self.containers))
        };
        // Refused or not: what counts is who has what in the end.
        let _ = reserve(&mut self.ledger, wish);
    }

    fn given(&self) -> Vec<IpAddr> {
        let leases = self.ledger.entries().flat_map(|entry| &entry.record.leases);
        leases.map(|lease| lease.address).collect()
    }

    fn decide(&mut self) {
        for (address, object) in &self.copy {
            let share = self.ledger.share_of("blue").unwrap();
            if object.answer.is_none() && share.has(*address) {
                let free = self.ledger.holder_of("blue", *address).is_none();
                self.sent.push((*address, object.uid, free));
            }
        }
    }

    fn crash(&mut self, server: &Server) {
        let mut ledger = Ledger::new(256);
        ledger.set_shares(HashMap::new());
        for entry in self.ledger.entries() {
            ledger.restore(entry.record.clone());
        }
        self.ledger = ledger;
        let own = server.blocks.iter().filter(|(_, node)| **node == self.me);
        self.taken = own.map(|(block, _)| *block).collect();
        self.alone.clear();
        self.serving.clear();
        self.copy.clone_from(&server.reservations);
    }
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Watch,
    Take(u8),
    TakeOne(u8),
    Look,
    Clear,
    Add,
    Ask(u8),
    AddNamed(u8),
    Decide,
    Deliver,
    Release(u8),
    LetGo,
    GiveBack(u8),
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Watch),
        2 => (0..4_u8).prop_map(Step::Take),
        2 => address().prop_map(Step::TakeOne),
        4 => Just(Step::Look),
        4 => Just(Step::Clear),
        4 => Just(Step::Add),
        4 => address().prop_map(Step::Ask),
        4 => address().prop_map(Step::AddNamed),
        4 => Just(Step::Decide),
        4 => Just(Step::Deliver),
        3 => (0..16_u8).prop_map(Step::Release),
        3 => Just(Step::LetGo),
        2 => (0..4_u8).prop_map(Step::GiveBack),
        1 => Just(Step::Crash),
    ]
}

/// Chooses one of a few addresses, so that many nodes want the same.
///
/// The first one that a block would give is among them.
fn address() -> impl Strategy<Value = u8> {
    prop_oneof![Just(2), Just(3), Just(16), Just(17), Just(32), Just(48)]
}

fn numbered(last: u8) -> IpAddr {
    IpAddr::from([10, 10, 0, last])
}

fn block(index: u8) -> Prefix {
    format!("10.10.0.{}/28", index * 16).parse().unwrap()
}

/// An object is named after its first address.
fn take(server: &mut Server, node: &mut Node, block: Prefix) {
    let mut names = server.blocks.keys().map(Prefix::network);
    if !names.any(|name| name == block.network()) {
        server.blocks.insert(block, node.me);
        node.taken.insert(block);
    }
}

fn play(server: &mut Server, node: &mut Node, step: Step) {
    let me = node.me;
    match step {
        Step::Watch => {
            node.copy.clone_from(&server.reservations);
            node.publish();
        }
        Step::Take(index) => take(server, node, block(index)),
        Step::TakeOne(last) => take(server, node, Prefix::from(numbered(last))),
        Step::Look => {
            for block in std::mem::take(&mut node.taken) {
                let mut others = server.blocks.keys().filter(|other| **other != block);
                if !others.any(|other| ipam::overlap(other, &block)) {
                    node.alone.insert(block);
                } else if node.ledger.given_of("blue", &block) > 0 {
                    node.taken.insert(block);
                } else {
                    server.blocks.remove(&block);
                }
            }
        }
        Step::Clear => {
            // Read from the server itself, on top of the copy.
            let read = server.reservations.iter();
            let new = std::mem::take(&mut node.alone);
            if !new.is_empty() {
                node.copy
                    .extend(read.map(|(address, object)| (*address, object.clone())));
                node.serving.extend(new);
                node.publish();
            }
        }
        Step::Add => node.add(None),
        Step::Ask(last) => {
            server.last_uid += 1;
            let object = Object {
                uid: server.last_uid,
                node: me,
                answer: None,
            };
            server.reservations.entry(numbered(last)).or_insert(object);
        }
        Step::AddNamed(last) => node.add(Some(numbered(last))),
        Step::Decide => node.decide(),
        Step::Deliver => {
            if node.sent.is_empty() {
                return;
            }
            let (address, uid, answer) = node.sent.remove(0);
            if let Some(object) = server.reservations.get_mut(&address)
                && object.uid == uid
                && object.answer.is_none()
            {
                object.answer = Some(answer);
            }
        }
        Step::Release(index) => {
            let entry = node.ledger.entries().nth(usize::from(index));
            let key = entry.map(|entry| entry.record.key.clone());
            node.ledger.release(&key.unwrap_or_else(key_of_nobody));
        }
        Step::LetGo => {
            let own = node.copy.iter().filter(|(_, object)| object.node == me);
            let unused =
                own.filter(|(address, _)| node.ledger.holder_of("blue", **address).is_none());
            let unused: Vec<_> = unused.map(|(ip, object)| (*ip, object.uid)).collect();
            // Not by the server's answer: nobody goes by it from now on.
            node.given_up.extend(unused.iter().map(|(_, uid)| *uid));
            node.publish();
            for (address, uid) in unused {
                if server.reservations.get(&address).map(|it| it.uid) == Some(uid) {
                    server.reservations.remove(&address);
                }
            }
        }
        Step::GiveBack(index) => {
            let block = node.serving.iter().nth(index.into()).copied();
            if let Some(block) = block.filter(|block| node.serving.remove(block)) {
                node.publish();
                if node.ledger.given_of("blue", &block) > 0 {
                    node.serving.insert(block);
                    node.publish();
                } else {
                    server.blocks.remove(&block);
                }
            }
        }
        Step::Crash => node.crash(server),
    }
}

fn key_of_nobody() -> cni_spec::AttachmentKey {
    key("nobody", "net1")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// PAIN-IP-2, NPWG-8-T2
    #[test]
    fn no_address_is_given_by_two_nodes_whatever_comes_late(
        steps in prop::collection::vec((0..NODES, step()), 0..120),
    ) {
        let mut server = Server::default();
        let mut nodes: Vec<Node> = (0..NODES).map(Node::new).collect();
        for (n, step) in steps {
            play(&mut server, &mut nodes[n], step);
            let all: Vec<IpAddr> = nodes.iter().flat_map(Node::given).collect();
            let different: BTreeSet<IpAddr> = all.iter().copied().collect();
            prop_assert_eq!(all.len(), different.len(), "{:?} by node {}", step, n);
        }
        proof::of!("NPWG-8-T2", "PAIN-IP-2");
    }
}

/// All steps together lead to an address by name on another node.
///
/// Without that, the steps of the model would do nothing.
#[test]
fn a_node_gets_an_address_of_anothers_block_by_asking() {
    let mut server = Server::default();
    let mut nodes: Vec<Node> = (0..NODES).map(Node::new).collect();
    let story = [
        (0, Step::Take(1)),
        (0, Step::Look),
        (0, Step::Clear),
        (1, Step::Ask(17)),
        (1, Step::AddNamed(17)),
        (0, Step::Watch),
        (0, Step::Decide),
        (0, Step::Deliver),
        (1, Step::AddNamed(17)),
        (1, Step::Watch),
        (1, Step::AddNamed(17)),
        (0, Step::AddNamed(17)),
    ];
    for (n, step) in story {
        play(&mut server, &mut nodes[n], step);
    }
    assert_eq!(nodes[1].given(), [numbered(17)]);
    assert!(nodes[0].given().is_empty());
}

/// Rule 6: the copy of who deletes a reservation has it for some time more.
#[test]
fn nobody_goes_by_a_reservation_that_his_node_gives_up() {
    let mut server = Server::default();
    let mut nodes: Vec<Node> = (0..NODES).map(Node::new).collect();
    let story = [
        (2, Step::Take(2)),
        (1, Step::Ask(32)),
        (2, Step::Look),
        (2, Step::Clear),
        (2, Step::Decide),
        (2, Step::Deliver),
        (1, Step::Watch),
        (1, Step::LetGo),
        (1, Step::AddNamed(32)),
        (2, Step::Watch),
        (2, Step::AddNamed(32)),
    ];
    for (n, step) in story {
        play(&mut server, &mut nodes[n], step);
    }
    assert!(nodes[1].given().is_empty());
    assert_eq!(nodes[2].given(), [numbered(32)]);
}

/// Rule 4: the next holder of a block knows the grants of an earlier one.
#[test]
fn a_block_that_changes_hands_keeps_what_was_granted_of_it() {
    let mut server = Server::default();
    let mut nodes: Vec<Node> = (0..NODES).map(Node::new).collect();
    let story = [
        (0, Step::Take(1)),
        (0, Step::Look),
        (0, Step::Clear),
        (1, Step::Ask(16)),
        (0, Step::Watch),
        (0, Step::Decide),
        (0, Step::GiveBack(0)),
        // It has seen nothing of the reservation yet, and the answer is on its way.
        (2, Step::Take(1)),
        (2, Step::Look),
        (2, Step::Clear),
        (0, Step::Deliver),
        (2, Step::Add),
        (1, Step::Watch),
        (1, Step::AddNamed(16)),
    ];
    for (n, step) in story {
        play(&mut server, &mut nodes[n], step);
    }
    assert_eq!(nodes[1].given(), [numbered(16)]);
    assert_eq!(nodes[2].given(), [numbered(17)]);
}

/// Rule 5: of two blocks that overlap, the later one gives way.
///
/// The length of blocks changes with the subnets, and nodes hear of that at different times.
#[test]
fn who_takes_a_block_with_a_part_of_anothers_gives_way_and_the_other_goes_on() {
    let mut server = Server::default();
    let mut nodes: Vec<Node> = (0..NODES).map(Node::new).collect();
    let story = [
        (0, Step::TakeOne(17)),
        (0, Step::Look),
        (0, Step::Clear),
        (0, Step::Add),
        (1, Step::Take(1)),
        (1, Step::Look),
        (1, Step::Clear),
        (1, Step::Add),
    ];
    for (n, step) in story {
        play(&mut server, &mut nodes[n], step);
    }
    assert_eq!(nodes[0].given(), [numbered(17)]);
    assert!(nodes[1].given().is_empty());
    assert_eq!(server.blocks.len(), 1);
    // The other way round, and the first one begins anew in between.
    let story = [
        (2, Step::Take(2)),
        (2, Step::Look),
        (2, Step::Clear),
        (2, Step::Add),
        (1, Step::TakeOne(33)),
        (2, Step::Crash),
        (2, Step::Look),
        (2, Step::Clear),
        (2, Step::Add),
        (1, Step::Look),
        (2, Step::Look),
        (2, Step::Clear),
        (2, Step::Add),
    ];
    for (n, step) in story {
        play(&mut server, &mut nodes[n], step);
    }
    assert_eq!(nodes[2].given(), [numbered(32), numbered(33)]);
    assert!(nodes[1].given().is_empty());
}
