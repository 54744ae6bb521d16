//! Puts network policies in force at the ports of this node.
//!
//! Policies, labels and members come from elsewhere. For each network that a policy is for they are compiled
//! ([`policy`]) and written ([`tables::guards`]): before a port is live, and whenever one of them changes. A policy that
//! names no network is for the one that the node routes for.
//!
//! While it is not known which policies there are, nothing is taken back that is in force.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use agent_common::addr::Ip16;
use book::Book;
use book::record::{Attachment, NetworkFacts};
use datapath::DatapathError;
use locks::{Rank, Ranked};
use policy::{Compiler, Member};
use remotes::Remotes;
use tables::Reconciler;
use tables::guards::PortSets;
use telemetry::chain;
use world::Current;
use world::policies::PolicyCurrent;

mod access;
mod follow;
mod form;
mod members;
mod parsed;
mod told;
pub mod view;

use self::access::NodePort;
use self::members::{Here, Members};
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
    /// Ports of the node that are closed on networks without policies.
    alone: BTreeMap<u32, NodePort>,
    /// No policy names a network, and nothing of any is in force.
    idle: bool,
    told: Told,
}

/// A network that policies name.
#[derive(Debug, Default)]
struct Network {
    compiler: Compiler,
    in_force: Option<InForce>,
    /// The reason for which its policies let nothing pass.
    refused: Option<String>,
    /// They may fit when others have gone.
    unfit: bool,
}

/// Tables that are in force, and what they were made of.
#[derive(Debug)]
struct InForce {
    parsed: Arc<Parsed>,
    here: Here,
    /// The port that the node itself has on the network.
    own: NodePort,
    /// `None` for policies that let nothing pass.
    compiled: Option<policy::Network>,
    /// Ports that have come since, with their members.
    added: BTreeMap<u16, Member>,
    /// False once a port has gone: one that comes again as it was has no sets.
    is_whole: bool,
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
                    alone: BTreeMap::new(),
                    idle: false,
                    told: Told::new(),
                },
            ),
            problems: AtomicUsize::new(0),
        }
    }

    /// Waits until the policies are known, which may be for any network.
    ///
    /// # Errors
    /// The sources that were not read in time: nothing may attach to the network.
    pub async fn known(&self) -> Result<(), Vec<String>> {
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
            return match record.is_of_node() {
                // It must be closed, and what is in force is not known.
                true => Err(DatapathError::PoliciesUnread),
                false => Ok(()),
            };
        };
        let of_node = record.is_of_node();
        if of_node || !parsed.of(&record.network).is_empty() {
            if !of_node && state.add(&self.inputs, &parsed, record)? {
                return Ok(());
            }
            state.update(&self.inputs, &parsed, &record.network)?;
        }
        let guards = self.inputs.tables.guards();
        guards.renumbered(record.network.id, record.port_id)
    }

    /// Forgets the sets of a port that has left the tables.
    ///
    /// Those of another port that has its number by now stay.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn gone(&self, record: &Attachment) -> Result<(), DatapathError> {
        let port = record.port_id;
        let mut state = self.state.lock();
        if self.inputs.book.ledger().is_port_of_another(record) {
            return Ok(());
        }
        for network in state.networks.values_mut() {
            if let Some(in_force) = &mut network.in_force {
                in_force.is_whole &= in_force.member(port).is_none() && !in_force.own.has(port);
            }
        }
        state.alone.retain(|_, own| !own.has(port));
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
        state.alone.retain(|id, _| networks.contains_key(id));
        state.idle = done && parsed.is_empty() && state.alone.is_empty();
        self.count_problems(&state);
        (done, true)
    }

    fn count_problems(&self, state: &State) {
        let refused = state.networks.values().filter(|it| it.refused.is_some());
        let problems = state.told.count() + refused.count();
        self.problems.store(problems, Ordering::Relaxed);
    }

    /// Reports whether policies let nothing pass because they do not fit.
    fn is_unfit(&self) -> bool {
        let state = self.state.lock();
        let mut networks = state.networks.values();
        networks.any(|network| network.unfit)
    }

    /// Removes what no port uses any more, in the maps.
    fn settle(&self, complete: bool) -> Result<Option<Instant>, DatapathError> {
        let guards = self.inputs.tables.guards();
        if complete {
            // No port is admitted meanwhile: it would be in the maps, and not yet among the known.
            let _state = self.state.lock();
            let mut strays: BTreeSet<u16> = guards.ports()?.into_keys().collect();
            if !strays.is_empty() {
                for entry in self.inputs.book.ledger().entries() {
                    strays.remove(&entry.record.port_id);
                }
            }
            for port in strays {
                guards.forget_port(port)?;
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
        if !networks.unread.is_empty() {
            return None;
        }
        let parsed = match self.parsed.take() {
            Some(parsed) if parsed.is_of(&policies, &networks) => parsed,
            before => Arc::new(Parsed::new(&policies, &networks, before.as_deref())),
        };
        self.parsed = Some(Arc::clone(&parsed));
        Some(parsed)
    }

    /// Puts the policies for one more port in force if another one is like it.
    ///
    /// Their pods have the same labels, and their addresses are in the same blocks. So it costs the same whatever the
    /// number of members. False, and nothing is done, for a port that is like no other.
    fn add(
        &mut self,
        inputs: &Inputs,
        parsed: &Arc<Parsed>,
        record: &Attachment,
    ) -> Result<bool, DatapathError> {
        let facts = &record.network;
        let policies = inputs.policies.get();
        let member = self.members.member(inputs, &policies, record);
        let Some(network) = self.networks.get_mut(&facts.id) else {
            return Ok(false);
        };
        let Some(in_force) = &mut network.in_force else {
            return Ok(false);
        };
        if !in_force.is_current(inputs, parsed, facts) {
            return Ok(false);
        }
        if in_force.member(record.port_id) == Some(&member) {
            return Ok(true);
        }
        let Some((sets, atoms)) = in_force.like(&member) else {
            return Ok(false);
        };
        let port = (record.port_id, sets, record.is_switched());
        let enforced = inputs.tables.enforce_port(facts.id, port, &atoms);
        if !matches!(enforced, Ok(true)) {
            // All of it is written again.
            network.in_force = None;
            return enforced;
        }
        in_force.added.insert(record.port_id, member);
        Ok(true)
    }

    /// Compiles the policies of a network, and puts them in force.
    fn update(
        &mut self,
        inputs: &Inputs,
        parsed: &Arc<Parsed>,
        facts: &NetworkFacts,
    ) -> Result<(), DatapathError> {
        let own = NodePort::of(&inputs.book, facts);
        if parsed.of(facts).is_empty() {
            self.networks.remove(&facts.id);
            return self.close_alone(inputs, facts.id, own);
        }
        self.alone.remove(&facts.id);
        let local = self.members.local(inputs, facts);
        let network = self.networks.entry(facts.id).or_default();
        // What is in force is known again only when all of it went well.
        let before = network.in_force.take();
        let fits = !network.unfit;
        if let Some(before) = before {
            if fits && before.own == own && before.is_of(inputs, parsed, facts, &local) {
                network.in_force = Some(before);
                return Ok(());
            }
            let here = self.members.world(inputs, facts, local, Some(before.here));
            return network.enforce(inputs, parsed, facts, (here, own));
        }
        let here = self.members.world(inputs, facts, local, None);
        network.enforce(inputs, parsed, facts, (here, own))
    }
}

impl State {
    /// Closes the port of the node on a network that no policy is for; most have none.
    fn close_alone(
        &mut self,
        inputs: &Inputs,
        network: u32,
        own: NodePort,
    ) -> Result<(), DatapathError> {
        if own.is_empty() {
            self.alone.remove(&network);
            return inputs.tables.enforce(network, None);
        }
        if self.alone.get(&network) != Some(&own) {
            self.alone.remove(&network);
            let mut closed = form::closed(&[]);
            own.close(&mut closed);
            inputs.tables.enforce(network, Some(&Arc::new(closed)))?;
            self.alone.insert(network, own);
            self.idle = false;
        }
        Ok(())
    }
}

impl Network {
    fn enforce(
        &mut self,
        inputs: &Inputs,
        parsed: &Arc<Parsed>,
        facts: &NetworkFacts,
        (here, own): (Here, NodePort),
    ) -> Result<(), DatapathError> {
        let policies = own.add_to(parsed.of(facts));
        let judged = 0..here.ports.len();
        // Closed: none of its policies can be half in force.
        let close = || {
            let mut closed = form::closed(&here.selected(&policies));
            own.close(&mut closed);
            Arc::new(closed)
        };
        let (guarded, mut compiled, mut refused) =
            match self.compiler.compile(&here.world, &policies, judged) {
                Ok(compiled) => {
                    let mut guarded = form::of(&compiled, &here.ports);
                    own.name(&mut guarded, &compiled, &here.of_nodes);
                    own.close(&mut guarded);
                    match form::beyond_share(&guarded) {
                        None => (Arc::new(guarded), Some(compiled), None),
                        reason => (close(), None, reason),
                    }
                }
                Err(error) => (close(), None, Some(error.to_string())),
            };
        self.unfit = false;
        match inputs.tables.enforce(facts.id, Some(&guarded)) {
            Err(DatapathError::MapFull { name, max_entries }) if refused.is_none() => {
                // What was in force goes, and may leave the room.
                refused = Some(format!(
                    "the table {name} of the policies of all networks is full ({max_entries} entries): use \
                     fewer blocks, selectors and ports in policies"
                ));
                self.unfit = true;
                compiled = None;
                inputs.tables.enforce(facts.id, Some(&close()))?;
            }
            enforced => enforced?,
        }
        if refused.is_some() && refused != self.refused {
            tracing::error!(
                network = facts.name,
                error = refused,
                "the policies of the network cannot be put in force: the pods that they select get and send nothing there"
            );
        }
        self.refused = refused;
        self.in_force = Some(InForce {
            parsed: Arc::clone(parsed),
            here,
            own,
            compiled,
            added: BTreeMap::new(),
            is_whole: true,
        });
        Ok(())
    }
}

impl InForce {
    /// Reports whether nothing has changed since.
    fn is_of(
        &self,
        inputs: &Inputs,
        parsed: &Arc<Parsed>,
        facts: &NetworkFacts,
        local: &BTreeMap<u16, Member>,
    ) -> bool {
        let mut known: BTreeMap<u16, &Member> = self.here.local().collect();
        known.extend(self.added.iter().map(|(port, member)| (*port, member)));
        self.is_current(inputs, parsed, facts)
            && known.len() == local.len()
            && known
                .into_iter()
                .zip(local)
                .all(|(one, (port, member))| one == (*port, member))
    }

    /// Reports whether nothing but ports that came may be new.
    fn is_current(&self, inputs: &Inputs, parsed: &Arc<Parsed>, facts: &NetworkFacts) -> bool {
        self.is_whole && Arc::ptr_eq(&self.parsed, parsed) && self.here.is_current(inputs, facts)
    }

    /// The member of a port that is in force.
    fn member(&self, port: u16) -> Option<&Member> {
        let mut local = self.here.local().filter(|(it, _)| *it == port);
        let local = local.next().map(|(_, member)| member);
        self.added.get(&port).or(local)
    }

    /// Finds the sets of a port like another one, and the atoms of its addresses.
    fn like(&self, member: &Member) -> Option<(PortSets, Vec<(Ip16, u32)>)> {
        let compiled = self.compiled.as_ref()?;
        let is_new = |ip: &IpAddr| {
            let added = self.added.values().flat_map(|it| &it.addresses);
            !compiled.identities.contains_key(ip) && !added.into_iter().any(|it| it == ip)
        };
        if !self.here.world.knows(member) || !member.addresses.iter().all(is_new) {
            return None;
        }
        let mut alike = self
            .here
            .world
            .members
            .iter()
            .take(self.here.ports.len())
            .enumerate()
            .filter(|(_, other)| Arc::ptr_eq(&other.workload, &member.workload));
        alike.find_map(|(index, other)| {
            let atom = |ip: &IpAddr| {
                let blocks = compiled.atom_beyond(*ip);
                let mut others = other.addresses.iter();
                let like = others.find(|other| compiled.atom_beyond(**other) == blocks)?;
                Some((Ip16::from(*ip), *compiled.identities.get(like)?))
            };
            let atoms: Option<Vec<_>> = member.addresses.iter().map(atom).collect();
            let sets = compiled.guards.get(&index).map(form::sets);
            Some((sets.unwrap_or_default(), atoms?))
        })
    }
}
