//! The controller: its real plans, and writes as its executor makes them.

use std::collections::VecDeque;
use std::sync::Arc;

use api::{IpBlock, IpReservation, IpamClaim};
use controller::excess::{Judged, Suspects};
use controller::plan::{Choices, plan};
use controller::reclaim::{BlockStep, Orphans, keeps};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube_core::ResourceExt as _;
use overview::pod::Pod;
use overview::view::{View, addresses_of};

use super::super::super::Object;
use super::kind::Mirror;
use super::server::{Node, Server, at, status};

/// How long holders have to be gone, seconds.
pub(super) const DELAY: i64 = 60;
/// How long a node has to answer for a block that it is asked for, seconds.
const GRACE: i64 = 10;

/// One thing of a plan.
#[derive(Debug)]
enum Todo {
    Block(Arc<IpBlock>, BlockStep),
    Reservation(Arc<IpReservation>),
    Excess(Box<Suspects>),
}

/// A write; what it needs was read before.
#[derive(Debug, Clone)]
pub(super) enum Write {
    /// Delete a block, unless it is another version by now.
    TakeBack(Arc<IpBlock>),
    /// Write or remove the time of a block's end, unless it is another version.
    Mark(Arc<IpBlock>, Option<i64>),
    /// Mark a block that is too many.
    AskFor(Arc<IpBlock>),
    /// Delete a block that was asked for in vain.
    Revoke(Arc<IpBlock>),
    /// Delete a reservation whose holder is gone.
    Remove(Arc<IpReservation>),
}

/// Counts of what controllers did in a walk.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Done {
    pub(super) removed: u64,
    pub(super) taken_back: u64,
    pub(super) asked: u64,
    pub(super) revoked: u64,
}

pub(super) struct Control {
    /// Networks and definitions.
    pub(super) base: View,
    /// Blocks that a node may have to spare.
    spare: u32,
    pub(super) blocks: Mirror<IpBlock>,
    pub(super) reservations: Mirror<IpReservation>,
    pub(super) claims: Mirror<IpamClaim>,
    pub(super) pods: Mirror<Pod>,
    pub(super) nodes: Mirror<Node>,
    orphans: Orphans,
    judged: Judged,
    todo: VecDeque<Todo>,
    writes: VecDeque<Write>,
    pub(super) done: Done,
}

impl Control {
    pub(super) fn new(base: View, spare: u32) -> Self {
        Self {
            base,
            spare,
            blocks: Mirror::new(),
            reservations: Mirror::new(),
            claims: Mirror::new(),
            pods: Mirror::new(),
            nodes: Mirror::new(),
            orphans: Orphans::default(),
            judged: Judged::default(),
            todo: VecDeque::new(),
            writes: VecDeque::new(),
            done: Done::default(),
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
            claims: Some(
                self.claims
                    .all()
                    .filter_map(|it| Some((it.uid()?, addresses_of(it))))
                    .collect(),
            ),
            ..self.base.clone()
        };
        add_pods(&mut view, self.pods.all());
        add_nodes(&mut view, self.nodes.all());
        view
    }

    /// Works out what is to be done; what is left of the last plan is dropped.
    pub(super) fn plan(&mut self, now: i64) {
        if !self.is_read() || !self.writes.is_empty() {
            return;
        }
        let choices = Choices {
            multi_network: true,
            create_default: false,
            reclaim_delay: SignedDuration::from_secs(DELAY),
            spare_blocks: self.spare,
        };
        let view = self.view();
        let plan = plan(&view, &choices, &mut self.orphans, at(now));
        let excess = self.judged.judge(&view, self.spare, at(now));
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

    /// Reads what the next step of the plan needs, or writes what was read for.
    ///
    /// False when nothing is left to do.
    pub(super) fn act(&mut self, server: &mut Server) -> bool {
        if let Some(write) = self.writes.pop_front() {
            let is_written = self.write(server, &write);
            if let (true, Write::AskFor(block)) = (is_written, write) {
                self.judged.asked(&[block], at(server.now));
            }
            return true;
        }
        match self.todo.pop_front() {
            None => return false,
            Some(Todo::Block(block, step)) => self.block(server, block, step),
            Some(Todo::Reservation(reservation)) => self.reservation(server, reservation),
            Some(Todo::Excess(suspects)) => self.excess(server, &suspects),
        }
        true
    }

    fn block(&mut self, server: &Server, block: Arc<IpBlock>, step: BlockStep) {
        let write = match step {
            BlockStep::Wait(_) => return,
            BlockStep::Delete => {
                let spec = &block.spec;
                let node = server.nodes.get(&spec.node).and_then(|node| node.uid());
                let lives = node.as_ref() == Some(&spec.node_uid);
                let mut pods = server.pods.all();
                let busy = pods.any(|pod| pod.spec.node_name.as_ref() == Some(&spec.node));
                if lives || busy {
                    return;
                }
                Write::TakeBack(block)
            }
            BlockStep::Mark(time) => Write::Mark(block, Some(time.as_second())),
            BlockStep::Unmark => Write::Mark(block, None),
        };
        self.writes.push_back(write);
    }

    fn reservation(&mut self, server: &Server, reservation: Arc<IpReservation>) {
        let spec = &reservation.spec;
        let (found, uid) = match (&spec.pod, &spec.claim) {
            (Some(pod), _) => {
                let found = server.pods.get(&pod.name).map(|it| it.uid().to_owned());
                (found, &pod.uid)
            }
            (None, Some(claim)) => {
                let found = server.claims.get(&claim.name);
                let found = found.filter(|it| keeps(&addresses_of(it), &spec.address));
                (found.and_then(|it| it.uid()), &claim.uid)
            }
            (None, None) => return,
        };
        if found.as_ref() != Some(uid) {
            self.writes.push_back(Write::Remove(reservation));
        }
    }

    fn excess(&mut self, server: &Server, suspects: &Suspects) {
        let mut now = View {
            blocks: self.blocks.all().cloned().collect(),
            ..self.base.clone()
        };
        add_pods(&mut now, server.pods.all());
        add_nodes(&mut now, server.nodes.all());
        for excess in suspects.confirmed(&now) {
            let blocks = excess.blocks.into_iter().map(Write::AskFor);
            self.writes.extend(blocks);
            let withheld = excess.withheld.into_iter().map(Write::Revoke);
            self.writes.extend(withheld);
        }
    }

    /// Writes; true unless the object is not as it was read.
    pub(super) fn write(&mut self, server: &mut Server, write: &Write) -> bool {
        let now = server.now;
        let mark = |server: &mut Server, block: &IpBlock, time: Option<i64>| {
            let time = time.map(|time| Time(Timestamp::from_second(time).unwrap()));
            let version = block.resource_version();
            server.patch(
                |it| &mut it.blocks,
                &Object::of(block),
                version.as_deref(),
                |block| status(block).reclaim_after = time,
            )
        };
        let count;
        let is_written = match write {
            Write::TakeBack(block) => {
                count = Some(&mut self.done.taken_back);
                let (object, version) = (Object::of(&**block), block.resource_version());
                server.blocks.delete(now, &object, version.as_deref())
            }
            Write::Mark(block, time) => {
                count = None;
                mark(server, block, *time)
            }
            Write::AskFor(block) => {
                count = Some(&mut self.done.asked);
                mark(server, block, Some(at(now + GRACE).as_second()))
            }
            Write::Revoke(block) => {
                count = Some(&mut self.done.revoked);
                server.blocks.delete(now, &Object::of(&**block), None)
            }
            Write::Remove(reservation) => {
                count = Some(&mut self.done.removed);
                let object = Object::of(&**reservation);
                server.reservations.delete(now, &object, None)
            }
        };
        if let Some(count) = count {
            *count += u64::from(is_written);
        }
        is_written
    }

    /// Another one leads from now on, which knows what it lists.
    ///
    /// Returns the write of the one before that is on its way, and arrives late.
    pub(super) fn restart(&mut self) -> Option<Write> {
        let base = std::mem::take(&mut self.base);
        let write = self.writes.pop_front();
        *self = Self {
            done: self.done,
            ..Self::new(base, self.spare)
        };
        write
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
