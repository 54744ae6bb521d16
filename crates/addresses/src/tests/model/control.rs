//! The controller: its real plans, and writes as its executor makes them.

use std::collections::VecDeque;
use std::sync::Arc;

use api::{IpBlock, IpReservation, IpamClaim};
use controller::excess::{Judged, Suspects};
use controller::plan::{Choices, plan};
use controller::pod::Pod;
use controller::reclaim::{BlockStep, Orphans};
use controller::view::View;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::SignedDuration;
use kube_core::ResourceExt as _;

use super::super::super::Object;
use super::server::{Mirror, Node, Server, at, status};

/// How long holders have to be gone, seconds.
const DELAY: i64 = 60;
const SPARE: u32 = 2;

/// One thing of a plan.
#[derive(Debug)]
enum Todo {
    Block(Arc<IpBlock>, BlockStep),
    Reservation(Arc<IpReservation>),
    Excess(Box<Suspects>),
}

pub(super) struct Control {
    /// Networks and definitions.
    base: View,
    pub(super) blocks: Mirror<IpBlock>,
    pub(super) reservations: Mirror<IpReservation>,
    pub(super) claims: Mirror<IpamClaim>,
    pub(super) pods: Mirror<Pod>,
    pub(super) nodes: Mirror<Node>,
    orphans: Orphans,
    judged: Judged,
    todo: VecDeque<Todo>,
    /// Reservations that were removed, blocks that were taken back.
    pub(super) removed: u64,
    pub(super) taken_back: u64,
    pub(super) asked: u64,
    pub(super) revoked: u64,
}

impl Control {
    pub(super) fn new(base: View) -> Self {
        Self {
            base,
            blocks: Mirror::new(),
            reservations: Mirror::new(),
            claims: Mirror::new(),
            pods: Mirror::new(),
            nodes: Mirror::new(),
            orphans: Orphans::default(),
            judged: Judged::default(),
            todo: VecDeque::new(),
            removed: 0,
            taken_back: 0,
            asked: 0,
            revoked: 0,
        }
    }

    fn is_read(&self) -> bool {
        let objects = self.blocks.read && self.reservations.read && self.claims.read;
        objects && self.pods.read && self.nodes.read
    }

    fn view(&self) -> View {
        let mut view = View {
            blocks: self.blocks.all().cloned().collect(),
            reservations: self.reservations.all().cloned().collect(),
            claims: Some(self.claims.all().filter_map(|it| it.uid()).collect()),
            ..self.base.clone()
        };
        add_pods(&mut view, self.pods.all());
        add_nodes(&mut view, self.nodes.all());
        view
    }

    /// Works out what is to be done; what is left of the last plan is dropped.
    pub(super) fn plan(&mut self, now: i64) {
        if !self.is_read() {
            return;
        }
        let choices = Choices {
            multi_network: true,
            create_default: false,
            reclaim_delay: SignedDuration::from_secs(DELAY),
            spare_blocks: SPARE,
        };
        let view = self.view();
        let plan = plan(&view, &choices, &mut self.orphans, at(now));
        let excess = self.judged.judge(&view, SPARE, at(now));
        self.todo.clear();
        let blocks = plan.blocks.into_iter();
        let blocks = blocks
            .filter(|(block, step)| *step != BlockStep::Unmark || !self.judged.is_asked(block));
        self.todo
            .extend(blocks.map(|(block, step)| Todo::Block(block, step)));
        self.todo
            .extend(plan.reservations.into_iter().map(Todo::Reservation));
        if !excess.found.is_empty() {
            self.todo.push_back(Todo::Excess(Box::new(excess)));
        }
    }

    /// Does the next thing of the plan; false when there is none.
    pub(super) fn act(&mut self, server: &mut Server) -> bool {
        match self.todo.pop_front() {
            None => return false,
            Some(Todo::Block(block, step)) => self.block(server, &block, step),
            Some(Todo::Reservation(reservation)) => self.reservation(server, &reservation),
            Some(Todo::Excess(suspects)) => self.excess(server, &suspects),
        }
        true
    }

    fn block(&mut self, server: &mut Server, block: &IpBlock, step: BlockStep) {
        let object = Object::of(block);
        let version = block.resource_version();
        let time = match step {
            BlockStep::Wait(_) => return,
            BlockStep::Delete => {
                let spec = &block.spec;
                let node = server.nodes.get(&spec.node).and_then(|node| node.uid());
                let lives = node.as_ref() == Some(&spec.node_uid);
                let mut pods = server.pods.all();
                let busy = pods.any(|pod| pod.spec.node_name.as_ref() == Some(&spec.node));
                if !lives && !busy {
                    let deleted = server.blocks.delete(&object, version.as_deref());
                    self.taken_back += u64::from(deleted);
                }
                return;
            }
            BlockStep::Mark(time) => Some(Time(time)),
            BlockStep::Unmark => None,
        };
        server.patch(
            |it| &mut it.blocks,
            &object,
            version.as_deref(),
            |block| {
                status(block).reclaim_after = time;
            },
        );
    }

    fn reservation(&mut self, server: &mut Server, reservation: &IpReservation) {
        let spec = &reservation.spec;
        let (found, uid) = match (&spec.pod, &spec.claim) {
            (Some(pod), _) => {
                let found = server.pods.get(&pod.name).map(|it| it.uid().to_owned());
                (found, &pod.uid)
            }
            (None, Some(claim)) => {
                let found = server.claims.get(&claim.name).and_then(|it| it.uid());
                (found, &claim.uid)
            }
            (None, None) => return,
        };
        if found.as_ref() != Some(uid) {
            let deleted = server.reservations.delete(&Object::of(reservation), None);
            self.removed += u64::from(deleted);
        }
    }

    fn excess(&mut self, server: &mut Server, suspects: &Suspects) {
        let mut now = View {
            blocks: self.blocks.all().cloned().collect(),
            ..self.base.clone()
        };
        add_pods(&mut now, server.pods.all());
        add_nodes(&mut now, server.nodes.all());
        for excess in suspects.confirmed(&now) {
            for block in excess.blocks {
                let time = Time(at(server.now));
                let version = block.resource_version();
                let object = Object::of(&*block);
                let asked = server.patch(
                    |it| &mut it.blocks,
                    &object,
                    version.as_deref(),
                    |block| status(block).reclaim_after = Some(time),
                );
                self.asked += u64::from(asked);
            }
            for block in excess.withheld {
                let deleted = server.blocks.delete(&Object::of(&*block), None);
                self.revoked += u64::from(deleted);
            }
        }
    }

    /// Another one leads from now on, which knows what it lists.
    pub(super) fn restart(&mut self) {
        let base = std::mem::take(&mut self.base);
        *self = Self {
            removed: self.removed,
            taken_back: self.taken_back,
            asked: self.asked,
            revoked: self.revoked,
            ..Self::new(base)
        };
    }
}

fn add_pods<'a>(view: &mut View, pods: impl Iterator<Item = &'a Arc<Pod>>) {
    for pod in pods {
        let key = (pod.namespace().to_owned(), pod.name().to_owned());
        view.pods.insert(key, Arc::clone(pod));
    }
}

fn add_nodes<'a>(view: &mut View, nodes: impl Iterator<Item = &'a Arc<Node>>) {
    for node in nodes {
        let uid = node.uid().unwrap_or_default();
        view.nodes.insert(node.name_any(), uid);
    }
}
