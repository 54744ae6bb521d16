//! A node: the real machine and the real book, with a shell of the model's own.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::{IpBlock, IpReservation};
use kube_core::ResourceExt as _;
use world::World;

use super::super::super::{
    Answer, Command, Effect, Event, Facts, Given, Job, Machine, RequestId, Said, Seen,
};
use super::KEEP;
use super::cluster::Late;
use super::kind::Mirror;
use super::network::BLUE;
use super::pods::{Asking, Booking, Bound, Port};
use super::server::{Node, Server, unanswered};
use book::ledger::Ledger;

/// How a command fares on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Served,
    /// It is carried out, and the answer is lost.
    AnswerLost,
    /// It never arrives.
    Lost,
    /// The node has given up before it arrives.
    Late,
}

pub(super) struct Host {
    pub(super) name: String,
    machine: Machine,
    pub(super) ledger: Ledger,
    pub(super) nodes: Mirror<Node>,
    pub(super) blocks: Mirror<IpBlock>,
    pub(super) reservations: Mirror<IpReservation>,
    pub(super) world: Arc<World>,
    pub(super) bound: BTreeMap<String, Bound>,
    /// Ports that live, by pod, with what was given to each.
    pub(super) ports: BTreeMap<String, Port>,
    /// Pods whose ports are new since the model last looked.
    pub(super) booked: Vec<String>,
    pub(super) said: BTreeSet<(String, IpAddr)>,
    /// When other nodes last heard of it.
    pub(super) said_at: i64,
    pub(super) ready: bool,
    begin: Instant,
    round: Option<Command>,
    pub(super) asking: BTreeMap<RequestId, Asking>,
    pub(super) requests: RequestId,
    pub(super) rounds: u64,
    /// Something has asked for a round.
    pub(super) look: bool,
    /// When the next round begins though nothing happens.
    pub(super) again: i64,
    /// Blocks that were given back.
    pub(super) given_back: u64,
}

impl Host {
    pub(super) fn new(name: &str, world: &Arc<World>, begin: Instant) -> Self {
        Self {
            name: name.to_owned(),
            machine: Machine::new(name, KEEP),
            ledger: empty(),
            nodes: Mirror::new(),
            blocks: Mirror::new(),
            reservations: Mirror::new(),
            world: Arc::clone(world),
            bound: BTreeMap::new(),
            ports: BTreeMap::new(),
            booked: Vec::new(),
            said: BTreeSet::new(),
            said_at: 0,
            ready: true,
            begin,
            round: None,
            asking: BTreeMap::new(),
            requests: 0,
            rounds: 0,
            look: true,
            again: 0,
            given_back: 0,
        }
    }

    /// All copies were read.
    pub(super) fn is_read(&self) -> bool {
        self.nodes.read && self.blocks.read && self.reservations.read
    }

    fn seen(&self) -> Seen {
        let read = self.is_read();
        let mut nodes = self.nodes.all();
        let node = nodes.find(|node| node.name_any() == self.name);
        let own = |block: &&Arc<IpBlock>| block.spec.node == self.name;
        Seen {
            unread: (!read).then(|| "not read yet".to_owned()),
            node_uid: node.and_then(|node| node.uid()),
            blocks: self.blocks.all().filter(own).cloned().collect(),
            reservations: self.reservations.all().cloned().collect(),
            said: Said::Members(self.said.clone()),
            world: Arc::clone(&self.world),
        }
    }

    /// The clock of this node.
    pub(super) fn time(&self, now: i64) -> Instant {
        self.begin + Duration::from_secs(now.unsigned_abs())
    }

    /// Takes in an event of a request that is over.
    pub(super) fn tell(&mut self, event: Event, now: i64) {
        let time = self.time(now);
        for effect in self.machine.handle(event, time) {
            if let Effect::Unpick(network, ips) = effect {
                self.ledger.unpick(&network, &ips);
            }
        }
    }

    /// Goes on with a job up to a command for the API server, or to its end.
    pub(super) fn drive(&mut self, job: Job, mut event: Event, now: i64) {
        let time = self.time(now);
        if let (Job::Request(id), Event::Asked(..) | Event::Woken(_)) = (job, &event)
            && let Some(asking) = self.asking.get_mut(&id)
        {
            asking.rounds = self.rounds;
        }
        loop {
            self.machine.handle(Event::Seen(self.seen()), time);
            let effects = self.machine.handle(event, time);
            let mut last = None;
            for effect in effects {
                match effect {
                    Effect::Unpick(network, ips) => self.ledger.unpick(&network, &ips),
                    Effect::Count(outcome) => self.given_back += u64::from(outcome == "given_back"),
                    Effect::Look => self.look = true,
                    other => last = Some(other),
                }
            }
            event = match last.expect("a job that goes on or ends") {
                // In a round, requests come between a command to the node and its answer.
                Effect::Call(command) => {
                    let is_request = matches!(job, Job::Request(_));
                    match is_request.then(|| self.local(&command)).flatten() {
                        Some(answer) => Event::Answered(job, answer),
                        None => return self.call(job, command),
                    }
                }
                Effect::Wait => return,
                Effect::Rest(rest) => {
                    self.rounds += 1;
                    // To the next full second, so that what is due then is due.
                    let rest = i64::try_from(rest.as_secs()).unwrap() + 1;
                    self.again = now + rest;
                    return;
                }
                Effect::Refuse(_) => return self.forget(job),
                Effect::Book(wanted) => {
                    let Job::Request(id) = job else {
                        unreachable!("a round books nothing");
                    };
                    let ours = self.asking.get(&id).map(|it| it.ours.clone());
                    let booked = self.reserve(*wanted, &ours.unwrap_or_default());
                    match booked {
                        Booking::Full(source) => Event::Full(id, source),
                        Booking::Booked | Booking::Refused => {
                            self.look = true;
                            let is_booked = booked == Booking::Booked;
                            let event = if is_booked {
                                Event::Booked(id)
                            } else {
                                Event::Gone(id)
                            };
                            self.tell(event, now);
                            return self.forget(job);
                        }
                    }
                }
                other => unreachable!("{other:?} is no end"),
            };
        }
    }

    fn forget(&mut self, job: Job) {
        if let Job::Request(id) = job {
            self.asking.remove(&id);
        }
    }

    fn call(&mut self, job: Job, command: Command) {
        match job {
            Job::Round => self.round = Some(command),
            Job::Request(id) => {
                if let Some(asking) = self.asking.get_mut(&id) {
                    asking.call = Some(command);
                }
            }
        }
    }

    fn local(&mut self, command: &Command) -> Option<Answer> {
        Some(match command {
            Command::Publish(shares) => {
                self.ledger.set_shares(shares.clone());
                Answer::Published(Given::of(&self.ledger))
            }
            Command::Survey => {
                let expected = u64::try_from(self.unattached().len()).unwrap();
                let expected = (self.ready && expected > 0).then(|| (BLUE.to_owned(), expected));
                Answer::Surveyed(Facts {
                    ready: self.ready,
                    expected: expected.into_iter().collect(),
                    given: Given::of(&self.ledger),
                })
            }
            Command::IsUsable {
                network,
                ip,
                holder,
            } => Answer::Usable(self.ledger.is_granted(network, *ip, holder)),
            Command::Pick { network, holder } => Answer::Picked(self.ledger.pick(network, holder)),
            _ => return None,
        })
    }

    /// Begins a round, unless one is under way.
    pub(super) fn look(&mut self, now: i64) {
        if self.round.is_none() {
            self.look = false;
            self.drive(Job::Round, Event::Round, now);
        }
    }

    /// Wakes requests that wait: their time is over, or a round has ended.
    pub(super) fn wake(&mut self, now: i64) {
        let waiting = self.asking.iter().filter(|(_, it)| it.call.is_none());
        let due = waiting.filter_map(|(id, it)| {
            if it.rounds < self.rounds {
                Some((*id, Event::Woken(*id)))
            } else {
                (it.deadline <= now).then_some((*id, Event::Expired(*id)))
            }
        });
        for (id, event) in due.collect::<Vec<_>>() {
            self.drive(Job::Request(id), event, now);
        }
    }

    /// Lets one command that is on its way meet its fate; false when none is.
    pub(super) fn serve(
        &mut self,
        server: &mut Server,
        late: &mut Vec<Late>,
        (index, fate): (usize, Fate),
    ) -> bool {
        let called = self.asking.iter().filter(|(_, it)| it.call.is_some());
        let mut jobs: Vec<Job> = called.map(|(id, _)| Job::Request(*id)).collect();
        jobs.extend(self.round.is_some().then_some(Job::Round));
        let Some(job) = jobs.get(index % jobs.len().max(1)).copied() else {
            return false;
        };
        let command = match job {
            Job::Round => self.round.take(),
            Job::Request(id) => self.asking.get_mut(&id).and_then(|it| it.call.take()),
        };
        let command = command.expect("a command of the job");
        if let Some(answer) = self.local(&command) {
            self.drive(job, Event::Answered(job, answer), server.now);
            return true;
        }
        let answer = match fate {
            Fate::Served => server.carry_out(&self.name, &command),
            Fate::AnswerLost => {
                server.carry_out(&self.name, &command);
                unanswered(&command)
            }
            Fate::Lost => unanswered(&command),
            Fate::Late => {
                let answer = unanswered(&command);
                late.push(Late::of_node(server.now, &self.name, command));
                answer
            }
        };
        self.drive(job, Event::Answered(job, answer), server.now);
        true
    }

    /// Makes other nodes hear which addresses are here.
    pub(super) fn say(&mut self, now: i64) {
        self.said_at = now;
        let ips = self.ports.values().flat_map(|port| &port.ips);
        let said = ips.map(|ip| (BLUE.to_owned(), *ip)).collect();
        let before = std::mem::replace(&mut self.said, said);
        self.look |= before != self.said;
    }

    /// Starts the agent again: only attachments stay, and commands on their way.
    pub(super) fn restart(&mut self, late: &mut Vec<Late>, now: i64) {
        let calls = self.asking.values_mut().filter_map(|it| it.call.take());
        let calls = calls.chain(self.round.take());
        let writes = calls.filter(|command| !is_local(command));
        late.extend(writes.map(|command| Late::of_node(now, &self.name, command)));
        let mut ledger = empty();
        for entry in self.ledger.entries() {
            ledger.restore(entry.record.clone());
        }
        self.ledger = ledger;
        self.machine = Machine::new(&self.name, KEEP);
        self.asking.clear();
        self.nodes.read = false;
        self.blocks.read = false;
        self.reservations.read = false;
        self.ready = false;
        self.look = true;
    }
}

/// True for a command that the node itself answers.
fn is_local(command: &Command) -> bool {
    matches!(
        command,
        Command::Publish(_) | Command::Survey | Command::IsUsable { .. } | Command::Pick { .. }
    )
}

fn empty() -> Ledger {
    let mut ledger = Ledger::new(256);
    ledger.set_shares(HashMap::new());
    ledger
}
