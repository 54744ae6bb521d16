//! A node: the real machine and the real book, with a shell of the model's own.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::{IpBlock, IpReservation, Network};
use book::BookError;
use book::ledger::{Entry, Ledger, Wanted};
use book::record::{ObjectRef, PodIdentity, State};
use book::samples;
use ipam::{IpamError, Request};
use kube_core::ResourceExt as _;
use world::World;

use super::super::super::{
    Answer, Command, Effect, Event, Facts, Given, Job, Machine, RequestId, Said, Seen, Wish,
};
use super::server::{Mirror, Node, Server, unanswered};
use super::{BLUE, KEEP};

/// How long an `ADD` waits, seconds.
const PATIENCE: i64 = 5;

/// Addresses that a pod asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Want {
    Any,
    Named(u8),
    Claim(u8),
}

/// A pod that is bound to the node.
#[derive(Debug, Clone)]
pub(super) struct Bound {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) want: Want,
    /// UID of its claim when the address was booked.
    pub(super) claim: Option<String>,
    /// Its containers are gone, its object is not.
    pub(super) ended: bool,
}

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

/// A request in the shell.
#[derive(Debug)]
struct Asking {
    pod: String,
    deadline: i64,
    /// None while it waits for the end of a round.
    call: Option<Command>,
    /// Rounds that had ended when it last looked.
    rounds: u64,
}

pub(super) struct Host {
    pub(super) name: String,
    machine: Machine,
    pub(super) ledger: Ledger,
    pub(super) nodes: Mirror<Node>,
    pub(super) blocks: Mirror<IpBlock>,
    pub(super) reservations: Mirror<IpReservation>,
    pub(super) bound: BTreeMap<String, Bound>,
    pub(super) said: BTreeSet<(String, IpAddr)>,
    pub(super) ready: bool,
    world: Arc<World>,
    network: Network,
    begin: Instant,
    round: Option<Command>,
    asking: BTreeMap<RequestId, Asking>,
    requests: RequestId,
    rounds: u64,
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
            bound: BTreeMap::new(),
            said: BTreeSet::new(),
            ready: true,
            world: Arc::clone(world),
            network: world.network(BLUE).unwrap().clone(),
            begin,
            round: None,
            asking: BTreeMap::new(),
            requests: 0,
            rounds: 0,
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

    /// Goes on with a job up to a command for the API server, or to its end.
    fn drive(&mut self, job: Job, mut event: Event, now: i64) {
        let time = self.begin + Duration::from_secs(now.unsigned_abs());
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
                    Effect::Look => {}
                    other => last = Some(other),
                }
            }
            event = match last.expect("a job that goes on or ends") {
                Effect::Call(command) => match self.local(&command) {
                    Some(answer) => Event::Answered(job, answer),
                    None => return self.call(job, command),
                },
                Effect::Wait => return,
                Effect::Rest(_) => {
                    self.rounds += 1;
                    return;
                }
                Effect::Refuse(_) => return self.forget(job),
                Effect::Book(wanted) => {
                    let source = self.reserve(*wanted);
                    let Job::Request(id) = job else {
                        unreachable!("a round books nothing");
                    };
                    let Some(source) = source else {
                        self.machine.handle(Event::Booked(id), time);
                        return self.forget(job);
                    };
                    Event::Full(id, source)
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

    /// Books an attachment, unless there is no room or it is refused.
    fn reserve(&mut self, wanted: Wanted) -> Option<IpamError> {
        let (key, pod) = (wanted.key.clone(), wanted.pod.clone());
        let claim = wanted.holder.clone();
        let host = samples::host(&wanted, 7);
        match self.ledger.reserve(wanted, &self.network, host) {
            Ok(_) => {
                self.ledger.set_state(&key, State::Added, true);
                if let (Some(api::Holder::Claim(claim)), Some(pod)) = (claim, pod)
                    && let Some(bound) = self.bound.get_mut(&pod.name)
                {
                    bound.claim = Some(claim.uid);
                }
                None
            }
            Err(BookError::Address {
                source: source @ IpamError::NoRoom { .. },
                ..
            }) => Some(source),
            Err(_) => None,
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
                Answer::Surveyed(Facts {
                    ready: self.ready,
                    expected: [(BLUE.to_owned(), expected)].into(),
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
            self.drive(Job::Round, Event::Round, now);
        }
    }

    /// Names of pods that are to be attached.
    pub(super) fn unattached(&self) -> Vec<String> {
        let attached = self.attached();
        let waiting = self.bound.values().filter(|it| !it.ended);
        let waiting = waiting.filter(|it| !attached.contains(&it.name));
        waiting.map(|it| it.name.clone()).collect()
    }

    /// Names of pods with an attachment.
    pub(super) fn attached(&self) -> BTreeSet<String> {
        let pods = self.ledger.entries();
        let pods = pods.filter_map(|entry| entry.record.pod.as_ref());
        pods.map(|pod| pod.name.clone()).collect()
    }

    /// Requests addresses for a pod, unless it does already.
    pub(super) fn add(&mut self, pod: &str, now: i64) {
        let bound = self.bound[pod].clone();
        if self.asking.values().any(|it| it.pod == bound.name) {
            return;
        }
        let claim = |number| ObjectRef {
            namespace: "shop".to_owned(),
            name: format!("claim-{number}"),
        };
        let wanted = Wanted {
            pod: Some(PodIdentity {
                namespace: "shop".to_owned(),
                name: bound.name.clone(),
                uid: Some(bound.uid.clone()),
            }),
            ips: match bound.want {
                Want::Named(last) => (vec![Request::from(super::numbered(last))], "the model"),
                Want::Any | Want::Claim(_) => (Vec::new(), "the model"),
            },
            claim: match bound.want {
                Want::Claim(number) => Some(claim(number)),
                Want::Any | Want::Named(_) => None,
            },
            ..samples::wanted(&bound.name)
        };
        if bound.want == Want::Any && self.reserve(wanted.clone()).is_none() {
            return;
        }
        let share = self.ledger.share_of(BLUE).cloned().unwrap_or_default();
        let ips = wanted.ips.0.iter().map(|request| request.address);
        let ours = ips.filter(|ip| share.has(*ip) && !share.reserved.contains_key(ip));
        let wish = Wish {
            ours: ours.collect(),
            wanted,
            network: self.network.clone(),
        };
        self.requests += 1;
        let id = self.requests;
        let asking = Asking {
            pod: bound.name,
            deadline: now + PATIENCE,
            call: None,
            rounds: self.rounds,
        };
        self.asking.insert(id, asking);
        self.drive(Job::Request(id), Event::Asked(id, Box::new(wish)), now);
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
        late: &mut Vec<(String, Command)>,
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
        let answer = match fate {
            Fate::Served => server.carry_out(&self.name, &command),
            Fate::AnswerLost => {
                server.carry_out(&self.name, &command);
                unanswered(&command)
            }
            Fate::Lost => unanswered(&command),
            Fate::Late => {
                let answer = unanswered(&command);
                late.push((self.name.clone(), command));
                answer
            }
        };
        self.drive(job, Event::Answered(job, answer), server.now);
        true
    }

    /// Ends a pod's containers, with its request and its attachment.
    pub(super) fn remove(&mut self, pod: &str, late: &mut Vec<(String, Command)>, now: i64) {
        let time = self.begin + Duration::from_secs(now.unsigned_abs());
        let asking = self.asking.iter().find(|(_, it)| it.pod == pod);
        if let Some(id) = asking.map(|(id, _)| *id) {
            let call = self.asking.remove(&id).and_then(|it| it.call);
            late.extend(call.map(|command| (self.name.clone(), command)));
            for effect in self.machine.handle(Event::Gone(id), time) {
                if let Effect::Unpick(network, ips) = effect {
                    self.ledger.unpick(&network, &ips);
                }
            }
        }
        let is_of = |entry: &Entry| {
            let of = entry.record.pod.as_ref();
            of.is_some_and(|of| of.name == pod)
        };
        let key = self.ledger.entries().find(|entry| is_of(entry));
        if let Some(key) = key.map(|entry| entry.record.key.clone()) {
            self.ledger.release(&key);
        }
        if let Some(bound) = self.bound.get_mut(pod) {
            bound.ended = true;
        }
    }

    /// Makes other nodes hear which addresses are here.
    pub(super) fn say(&mut self) {
        let leases = self.ledger.entries().flat_map(|entry| &entry.record.leases);
        self.said = leases.map(|it| (BLUE.to_owned(), it.address)).collect();
    }

    /// Starts the agent again: only attachments stay, and commands on their way.
    pub(super) fn restart(&mut self, late: &mut Vec<(String, Command)>) {
        let calls = self.asking.values_mut().filter_map(|it| it.call.take());
        let calls = calls.chain(self.round.take());
        late.extend(calls.map(|command| (self.name.clone(), command)));
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
    }

    /// Every address that is held here, with its holder: the claim or the pod.
    pub(super) fn held(&self) -> Vec<(IpAddr, &Bound)> {
        let entries = self.ledger.entries();
        let held = entries.flat_map(|entry| {
            let pod = entry.record.pod.as_ref();
            let bound = pod.and_then(|pod| self.bound.get(&pod.name));
            let leases = entry.record.leases.iter();
            leases.filter_map(move |lease| Some((lease.address, bound?)))
        });
        held.collect()
    }
}

fn empty() -> Ledger {
    let mut ledger = Ledger::new(256);
    ledger.set_shares(HashMap::new());
    ledger
}
