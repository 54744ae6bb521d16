//! Addresses in a cluster: this node's share of its networks, and how it grows.
//!
//! - [`mod@::addresses`] decides everything: it is pure, and its page says which events lead to what.
//! - Here is its shell: it tells the machine what the watches, the clock, the book and the requests of
//!   `ADD` say, and carries out what the machine commands. [`server`] has the commands that are for the
//!   API server.
//! - [`expected`] says how many addresses will soon be needed.
//!
//! The rules by which all of them work, and why they suffice, are at [`book::ledger::Share`].
//!
//! An `ADD` without wishes asks nobody: what the ledger may give is there already. Only when that is
//! used up, or for an address by name that is not in a block of this node, it waits for the API
//! server, and not for long.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ::addresses::{
    Answer, Command, Effect, Event, Facts, Given, Job, Machine, ROUND, RequestError, RequestId,
    Seen, Wish,
};
use api::{IpBlock, IpReservation};
use book::BookError;
use book::ledger::{ClaimKind, Wanted};
use book::record::{Attachment, HostEnd};
use cluster::Work;
use cluster::copied::{Copied, Copier, trim_all};
use ipam::IpamError;
use k8s_openapi::api::core::v1::Node as ApiNode;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::Config;
use kube::{Client, ResourceExt as _};
use tokio::sync::{Notify, watch};
use tokio::time::timeout_at;

use super::error::ClusterError;
use super::holdings::of_reservations;
use super::home::Home;
use super::lookup::Pods;
use super::slices::Slices;

mod claims;
mod expected;
mod server;

pub(super) use expected::{SOON, networks};
use server::Server;
pub(super) use server::answer;

/// How long an `ADD` waits for addresses in all.
const PATIENCE: Duration = Duration::from_secs(5);

/// Addresses of the cluster's networks, as this node has to do with them.
pub(super) struct Addresses {
    server: Server,
    nodes: Copied<PartialObjectMeta<ApiNode>>,
    /// Blocks with this node's name.
    blocks: Copied<IpBlock>,
    /// Reservations of everybody.
    reservations: Copied<IpReservation>,
    pods: Pods,
    /// Members that other nodes were told, with their addresses.
    slices: Arc<Slices>,
    home: Home,
    /// Something may have to be done.
    changed: Arc<Notify>,
    /// Counts how often everything was looked at.
    rounds: watch::Sender<u64>,
    /// Counts requests.
    requests: AtomicU64,
    /// No other lock is taken under this one.
    machine: Mutex<Machine>,
}

/// The event for which a job waits.
enum Next {
    Call(Command),
    Wait,
    Book(Box<Wanted>),
    Refuse(RequestError),
    Rest(Duration),
}

/// A request of the machine; it is given up when this is dropped.
struct Asking<'a> {
    addresses: &'a Addresses,
    id: RequestId,
}

impl Addresses {
    /// Prepares to give addresses as node `node`, and the work that keeps copies.
    pub(super) fn new(
        client: &Client,
        node: &str,
        pods: Pods,
        slices: Arc<Slices>,
        home: Home,
        keep: Duration,
    ) -> (Self, Vec<Work>) {
        let changed = Arc::new(Notify::new());
        let of_node = |field: &str| Config::default().fields(&format!("{field}={node}"));
        let mut copier = Copier::new(client, &changed);
        let nodes = copier.copy("nodes", false, of_node("metadata.name"), trim_all);
        let blocks = copier.copy("ipblocks", false, of_node("spec.node"), trim_all);
        let reservations = copier.told("ipreservations", trim_all, of_reservations(&home.remotes));
        let this = Self {
            server: Server {
                client: client.clone(),
                node: node.to_owned(),
            },
            nodes,
            blocks,
            reservations,
            pods,
            slices,
            home,
            changed,
            rounds: watch::Sender::new(0),
            requests: AtomicU64::new(0),
            machine: Mutex::new(Machine::new(node, keep)),
        };
        (this, copier.work())
    }

    fn machine(&self) -> MutexGuard<'_, Machine> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something may have to be done: an address was given, or is free again.
    pub(super) fn look_again(&self) {
        self.changed.notify_one();
    }

    /// Keeps what this node may give what it should be, for ever.
    pub(super) async fn work(&self) {
        let mut pods = self.pods.changes();
        let mut networks = self.home.world.changes();
        let mut withdrawn = self.slices.withdrawals();
        loop {
            let rest = self.round().await;
            self.rounds.send_modify(|rounds| *rounds += 1);
            tokio::select! {
                () = self.changed.notified() => {}
                // These senders live as long as the agent.
                _ = pods.changed() => {}
                _ = networks.changed() => {}
                _ = withdrawn.changed() => {}
                () = tokio::time::sleep(rest) => {}
            }
        }
    }

    /// Looks at everything once, and returns the pause before the next round.
    ///
    /// The pause is for a time in which nothing happens.
    async fn round(&self) -> Duration {
        let mut event = Event::Round;
        loop {
            match self.step(event) {
                Some(Next::Call(command)) => {
                    let answer = self.carry_out(command).await;
                    event = Event::Answered(Job::Round, answer);
                }
                Some(Next::Rest(rest)) => return rest,
                _ => return ROUND,
            }
        }
    }

    /// Tells the machine of an event, and carries out what can be done at once.
    fn step(&self, event: Event) -> Option<Next> {
        let seen = self.seen();
        let effects = {
            let mut machine = self.machine();
            let now = Instant::now();
            machine.handle(Event::Seen(seen), now);
            machine.handle(event, now)
        };
        let mut next = None;
        for effect in effects {
            match effect {
                Effect::Call(command) => next = Some(Next::Call(command)),
                Effect::Wait => next = Some(Next::Wait),
                Effect::Book(wanted) => next = Some(Next::Book(wanted)),
                Effect::Refuse(error) => next = Some(Next::Refuse(error)),
                Effect::Rest(rest) => next = Some(Next::Rest(rest)),
                Effect::Unpick(network, ips) => self.home.book.ledger().unpick(&network, &ips),
                Effect::Look => self.look_again(),
                Effect::Count(outcome) => self.home.metrics.block(outcome),
            }
        }
        next
    }

    fn seen(&self) -> Seen {
        let kinds = [&self.nodes.kind, &self.blocks.kind, &self.reservations.kind];
        let object = self.nodes.store.state().into_iter().next();
        Seen {
            unread: kinds.into_iter().find_map(|kind| kind.unread()),
            node_uid: object.and_then(|object| object.uid()),
            blocks: self.blocks.store.state(),
            reservations: self.reservations.store.state(),
            said: self.slices.said(),
            world: self.home.world.get(),
        }
    }

    /// Carries out a command: of the node at once, of the API server in its time.
    async fn carry_out(&self, command: Command) -> Answer {
        match command {
            Command::Publish(shares) => {
                let mut ledger = self.home.book.ledger();
                ledger.set_shares(shares);
                Answer::Published(Given::of(&ledger))
            }
            Command::Survey => Answer::Surveyed(self.survey()),
            Command::IsUsable {
                network,
                ip,
                holder,
            } => Answer::Usable(self.home.book.ledger().is_granted(&network, ip, &holder)),
            Command::Pick { network, holder } => {
                Answer::Picked(self.home.book.ledger().pick(&network, &holder))
            }
            Command::FindPod {
                namespace,
                name,
                uid,
            } => {
                let found = self.pods.find(&namespace, &name, uid.as_deref()).await;
                Answer::Pod(found.map(|pod| pod.uid))
            }
            other => self.server.carry_out(other).await,
        }
    }

    fn survey(&self) -> Facts {
        let ready = self.home.is_ready();
        let expected = ready.then(|| {
            let (book, lists, world) = (&self.home.book, &self.home.lists, self.home.world.get());
            expected::expected(book, self.pods.younger(SOON), lists, &world)
        });
        Facts {
            ready,
            expected: expected.unwrap_or_default(),
            given: Given::of(&self.home.book.ledger()),
        }
    }

    /// Books an attachment with addresses that nobody else in the cluster has.
    ///
    /// # Errors
    /// When there are none, or the API server does not answer in time.
    pub(super) async fn book(
        &self,
        wanted: Wanted,
        network: &api::Network,
        host: HostEnd,
    ) -> Result<Attachment, ClusterError> {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        let has_port = wanted
            .claim
            .as_ref()
            .is_some_and(|claim| claim.kind == ClaimKind::Port);
        if network.subnets.is_empty() && !has_port {
            // Nothing that a claim could keep (NPWG-8-T5).
            return Ok(self.home.book.ledger().reserve(wanted, network, host)?);
        }
        check_requests(&wanted, network)?;
        if wanted.claim.is_none() && wanted.ips.0.is_empty() {
            let booked = self
                .home
                .book
                .ledger()
                .reserve(wanted.clone(), network, host.clone());
            // Stock may be low now.
            self.look_again();
            if no_room(&booked).is_none() {
                return Ok(booked?);
            }
        }
        let asking = Asking {
            addresses: self,
            id: self.requests.fetch_add(1, Ordering::Relaxed),
        };
        let wish = Wish {
            ours: self.ours(&wanted, network),
            wanted,
            network: network.clone(),
        };
        self.ask(&asking, wish, host, deadline).await
    }

    /// Does what the machine says about a request, up to its end.
    async fn ask(
        &self,
        asking: &Asking<'_>,
        wish: Wish,
        host: HostEnd,
        deadline: tokio::time::Instant,
    ) -> Result<Attachment, ClusterError> {
        let (id, network) = (asking.id, wish.network.clone());
        let mut rounds = self.rounds.subscribe();
        let mut event = Event::Asked(id, Box::new(wish));
        loop {
            if matches!(event, Event::Asked(..) | Event::Woken(_)) {
                // A round that ends from now on may change what is decided now.
                rounds.mark_unchanged();
            }
            event = match self.step(event) {
                Some(Next::Call(command)) => {
                    let answer = self.carry_out(command).await;
                    Event::Answered(Job::Request(id), answer)
                }
                Some(Next::Wait) => match timeout_at(deadline, rounds.changed()).await {
                    Ok(_) => Event::Woken(id),
                    Err(_) => Event::Expired(id),
                },
                Some(Next::Book(wanted)) => {
                    let booked = self
                        .home
                        .book
                        .ledger()
                        .reserve(*wanted, &network, host.clone());
                    if let Some(source) = no_room(&booked) {
                        Event::Full(id, source)
                    } else {
                        if booked.is_ok() {
                            self.step(Event::Booked(id));
                        }
                        self.look_again();
                        return Ok(booked?);
                    }
                }
                Some(Next::Refuse(error)) => return Err(error.into()),
                // No event of a request leads here.
                Some(Next::Rest(_)) | None => return Err(BookError::NoAllocator.into()),
            };
        }
    }

    /// Addresses that are asked for, and that the book may give without a reservation.
    fn ours(&self, wanted: &Wanted, network: &api::Network) -> BTreeSet<IpAddr> {
        let ledger = self.home.book.ledger();
        let share = ledger.share_of(&network.name);
        let ips = wanted.ips.0.iter().map(|request| request.address);
        let ours = ips.filter(|ip| {
            share.is_some_and(|share| share.has(*ip) && !share.reserved.contains_key(ip))
        });
        ours.collect()
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.addresses.step(Event::Gone(self.id));
    }
}

impl std::fmt::Debug for Addresses {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Addresses")
            .field("machine", &self.machine)
            .finish_non_exhaustive()
    }
}

/// The reason of a refusal that another block would lift.
fn no_room(booked: &Result<Attachment, BookError>) -> Option<IpamError> {
    match booked {
        Err(BookError::Address {
            source: source @ IpamError::NoRoom { .. },
            ..
        }) => Some(source.clone()),
        _ => None,
    }
}

/// An address that nobody can have is refused before anybody is asked for it.
fn check_requests(wanted: &Wanted, network: &api::Network) -> Result<(), BookError> {
    let ips = wanted.ips.0.iter();
    let ips = ips.map(|request| (request.address, request.prefix_len));
    world::blocks::check(network, ips).map_err(|source| BookError::Address {
        network: network.name.clone(),
        source,
    })
}
