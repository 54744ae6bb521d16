//! Puts network policies in force at the ports of this node.
//!
//! Policies, labels and members come from elsewhere. For each network that a policy names they are compiled
//! ([`policy`]) and written ([`tables::guards`]): before a port is live, and whenever one of them changes.
//!
//! While it is not known which policies there are, nothing is taken back that is in force.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use book::Book;
use book::record::{Attachment, NetworkFacts};
use datapath::DatapathError;
use locks::{Rank, Ranked};
use policy::Compiler;
use tables::Reconciler;
use tables::guards::Guarded;
use tables::remotes::Remotes;
use telemetry::chain;
use world::Current;
use world::policies::PolicyCurrent;

mod follow;
mod form;
mod members;
mod parsed;
mod told;
pub mod view;

use self::members::Members;
use self::parsed::Parsed;
use self::told::Told;

/// Time for which an attachment waits for policies to be known.
const PATIENCE: Duration = Duration::from_secs(5);

/// Policies in force on this node.
#[derive(Debug)]
pub struct Guards {
    inputs: Inputs,
    state: Ranked<State>,
    /// Problems of policies, for who may not wait for the state.
    problems: AtomicUsize,
}

/// The rooms that policies are made of and written to.
#[derive(Debug)]
pub struct Inputs {
    /// Attachments of this node.
    pub book: Arc<Book>,
    /// The tables.
    pub tables: Arc<Reconciler>,
    /// Members on other nodes.
    pub remotes: Arc<Remotes>,
    /// Policies, and what they select by.
    pub policies: Arc<PolicyCurrent>,
    /// Networks and definitions.
    pub world: Arc<Current>,
    /// Labels of pods come from the cluster, not from records.
    pub clustered: bool,
}

#[derive(Debug)]
struct State {
    parsed: Option<Arc<Parsed>>,
    members: Members,
    networks: BTreeMap<u32, Network>,
    /// No policy names a network, and nothing of any is in force.
    idle: bool,
    told: Told,
}

/// A network that policies name.
#[derive(Debug)]
struct Network {
    compiler: Compiler,
    in_force: Option<Arc<Guarded>>,
    /// The reason for which its policies let nothing pass.
    refused: Option<String>,
}

impl Guards {
    /// Nothing is in force yet but what an agent before has left.
    pub const fn new(inputs: Inputs) -> Self {
        Self {
            inputs,
            state: Ranked::new(
                Rank::Policies,
                State {
                    parsed: None,
                    members: Members::new(),
                    networks: BTreeMap::new(),
                    idle: false,
                    told: Told::new(),
                },
            ),
            problems: AtomicUsize::new(0),
        }
    }

    /// Waits until it is known which policies there are, for a network that they may name.
    ///
    /// # Errors
    /// The sources that were not read in time: nothing may attach to the network.
    pub async fn known_for(&self, network: &api::Network) -> Result<(), Vec<String>> {
        if network.routing == api::Routing::Node {
            return Ok(());
        }
        let mut changes = self.inputs.policies.changes();
        let known = async {
            while !self.inputs.policies.get().unread.is_empty() {
                // The sender lives as long as this does.
                let _ = changes.changed().await;
            }
        };
        match tokio::time::timeout(PATIENCE, known).await {
            Ok(()) => Ok(()),
            Err(_) => Err(self.inputs.policies.get().unread.clone()),
        }
    }

    /// Has a port judged that is about to be live, if a policy selects it.
    ///
    /// # Errors
    /// When the kernel refuses, or a table is full: the port must not be live.
    pub fn admit(&self, record: &Attachment) -> Result<(), DatapathError> {
        let mut state = self.state.lock();
        let Some(parsed) = state.parse(&self.inputs) else {
            return Ok(());
        };
        if parsed.of(&record.network.name).is_empty() || record.network.by_node {
            return Ok(());
        }
        state.update(&self.inputs, &parsed, &record.network)
    }

    /// Forgets the sets of a port that has left the tables.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn gone(&self, port: u16) -> Result<(), DatapathError> {
        self.inputs.tables.guards().forget_port(port)
    }

    /// Counts problems of policies, and networks whose policies are refused.
    pub fn problems(&self) -> usize {
        self.problems.load(Ordering::Relaxed)
    }

    /// Puts the policies of all networks in force as they are now.
    ///
    /// Returns whether all of them were known and none was refused by the kernel, and whether there are any.
    fn update_all(&self) -> (bool, bool) {
        let mut state = self.state.lock();
        let Some(parsed) = state.parse(&self.inputs) else {
            return (false, false);
        };
        state.told.tell(&parsed);
        if state.idle && parsed.is_empty() {
            self.count_problems(&state);
            return (true, false);
        }
        let mut networks: BTreeMap<u32, NetworkFacts> = BTreeMap::new();
        for facts in self.inputs.book.ledger().networks() {
            networks.entry(facts.id).or_insert_with(|| facts.clone());
        }
        let mut done = true;
        for facts in networks.values() {
            if let Err(error) = state.update(&self.inputs, &parsed, facts) {
                done = false;
                tracing::error!(
                    network = facts.name,
                    error = %chain(&error),
                    "the policies of the network could not be put in force: what was in force stays; trying again"
                );
            }
        }
        state.networks.retain(|id, _| networks.contains_key(id));
        state.members.sweep();
        state.idle = done && parsed.is_empty();
        self.count_problems(&state);
        (done, true)
    }

    fn count_problems(&self, state: &State) {
        let refused = state.networks.values().filter(|it| it.refused.is_some());
        let problems = state.told.count() + refused.count();
        self.problems.store(problems, Ordering::Relaxed);
    }

    /// Removes what no port uses any more, in the maps.
    fn settle(&self, complete: bool) -> Result<Option<Instant>, DatapathError> {
        let guards = self.inputs.tables.guards();
        if complete {
            // No port is admitted meanwhile: it would be in the maps, and not yet among the known.
            let _state = self.state.lock();
            let known: BTreeSet<u16> = {
                let ledger = self.inputs.book.ledger();
                ledger.entries().map(|it| it.record.port_id).collect()
            };
            for port in guards.ports()?.into_keys() {
                if !known.contains(&port) {
                    guards.forget_port(port)?;
                }
            }
        }
        guards.settle(complete)
    }
}

impl State {
    /// Reads the policies; `None` while they are not known.
    fn parse(&mut self, inputs: &Inputs) -> Option<Arc<Parsed>> {
        let policies = inputs.policies.get();
        if !policies.unread.is_empty() {
            return None;
        }
        let networks = inputs.world.get();
        let parsed = match self.parsed.take() {
            Some(parsed) if parsed.is_of(&policies, &networks) => parsed,
            before => Arc::new(Parsed::new(&policies, &networks, before.as_deref())),
        };
        self.parsed = Some(Arc::clone(&parsed));
        Some(parsed)
    }

    /// Compiles the policies of a network, and puts them in force.
    fn update(
        &mut self,
        inputs: &Inputs,
        parsed: &Parsed,
        facts: &NetworkFacts,
    ) -> Result<(), DatapathError> {
        let policies = parsed.of(&facts.name);
        let live: BTreeSet<u16> = {
            let ledger = inputs.book.ledger();
            ledger.live_on(facts.id).map(|it| it.port_id).collect()
        };
        if policies.is_empty() || facts.by_node {
            self.networks.remove(&facts.id);
            return inputs.tables.enforce(facts.id, None, &live);
        }
        let here = self.members.world(inputs, facts);
        let network = self.networks.entry(facts.id).or_insert_with(|| Network {
            compiler: Compiler::default(),
            in_force: None,
            refused: None,
        });
        let judged = 0..here.ports.len();
        let compiled = network.compiler.compile(&here.world, policies, judged);
        let (guarded, refused) = match compiled {
            Ok(compiled) => (form::of(&compiled, &here.ports), None),
            Err(error) => {
                // Closed: none of its policies can be half in force.
                let selected = here.selected(policies);
                (form::closed(&selected), Some(error.to_string()))
            }
        };
        if refused.is_some() && refused != network.refused {
            tracing::error!(
                network = facts.name,
                error = refused,
                "the policies of the network cannot be put in force: the pods that they select get and send nothing there"
            );
        }
        network.refused = refused;
        let guarded = Arc::new(guarded);
        inputs.tables.enforce(facts.id, Some(&guarded), &live)?;
        network.in_force = Some(guarded);
        Ok(())
    }
}
