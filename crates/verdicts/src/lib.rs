//! Write what policies let pass, and say which ports are judged.
//!
//! The tables of a network's policies are a generation: atoms, blocks, classes, sets and rows that are used
//! together. A change that needs other sets or classes makes a new generation beside the one in force, and each
//! port moves to it by one write, so that no packet sees half of a policy. Members that come and go are written
//! into the generation in force.
//!
//! Nothing is taken away that an agent before has put in force until the policies are known again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use agent_common::addr::Ip16;
use agent_common::guard::{Classes, GUARD_ADOPT, Guard, OTHERS, Row, UNKNOWN_ATOM};
use book::Book;
use datapath::{DatapathError, GuardMaps, SwitchFiles};
use locks::{Rank, Ranked};
use telemetry::failpoint::reached;

mod before;
mod fill;
mod numbers;
mod written;

use self::before::Before;
use self::numbers::Numbers;

/// Time after which no program uses what is out of force.
const GRACE: Duration = Duration::from_secs(1);
/// Time for which the middles of connections from before are adopted.
///
/// They were there before the first policy of their port.
const ADOPTION: Duration = Duration::from_secs(60);

/// Rows by atom, for a direction of ports, as places in [`Guarded::rows`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SetRows {
    /// Rows of atoms that have another one than most, ascending by atom.
    pub rows: Vec<(u32, u32)>,
    /// That of the unknown atom.
    pub unknown: u32,
    /// That of all other atoms.
    pub others: u32,
}

impl SetRows {
    /// The entries of the set, by atom.
    fn entries(&self) -> impl Iterator<Item = (u32, u32)> {
        let own = self.rows.iter().copied();
        own.chain([(UNKNOWN_ATOM, self.unknown), (OTHERS, self.others)])
    }

    /// The entry of an atom, if it has one of its own.
    fn entry(&self, atom: u32) -> Option<u32> {
        match atom {
            UNKNOWN_ATOM => Some(self.unknown),
            OTHERS => Some(self.others),
            atom => {
                let place = self.rows.binary_search_by_key(&atom, |(it, _)| *it);
                self.rows.get(place.ok()?).map(|(_, row)| *row)
            }
        }
    }
}

/// Sets of a port, as places in [`Guarded::sets`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PortSets {
    /// For what it sends.
    pub egress: Option<usize>,
    /// For what it receives.
    pub ingress: Option<usize>,
}

/// All that the policies of a network say, as tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guarded {
    /// Version of the numbers of atoms, rows and sets.
    ///
    /// In tables of a network with the same version they mean the same.
    ///
    /// `None` for tables that are like no others.
    pub numbering: Option<u64>,
    /// Atoms of members and nodes.
    pub atoms: BTreeMap<Ip16, u32>,
    /// Atoms of all other addresses, by prefix.
    ///
    /// A prefix is the first address and the length of mapped addresses, bits.
    pub blocks: BTreeMap<(Ip16, u8), u32>,
    /// Classes of ports.
    pub classes: Box<Classes>,
    /// Rows.
    pub rows: Vec<Row>,
    /// Sets.
    pub sets: Vec<Arc<SetRows>>,
    /// Sets of the ports that are judged on this node, by port id.
    pub ports: BTreeMap<u16, PortSets>,
}

impl Guarded {
    /// Reports whether a port gets no frames for all but those of its link.
    ///
    /// It does where its set lets everything pass.
    fn is_closed(&self, sets: PortSets) -> bool {
        let Some(set) = sets.ingress.and_then(|set| self.sets.get(set)) else {
            return sets.ingress.is_some();
        };
        set.entries().any(|(_, row)| {
            self.rows
                .get(row as usize)
                .is_none_or(|row| !written::is_open(row, &self.classes))
        })
    }
}

/// Marks of the ports of a network that entries of other tables have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Marks {
    /// Ports that are judged.
    pub guarded: BTreeSet<u16>,
    /// Ports that get no frames for all.
    pub closed: BTreeSet<u16>,
}

/// Ports of a network on this node, by what policies have to know of them.
#[derive(Debug, Clone, Default)]
pub struct Local {
    /// Ports that have sent before, whose connections may be in their middle.
    pub live: BTreeSet<u16>,
    /// Ports of which the switch for memif has the frames.
    pub switched: BTreeSet<u16>,
}

/// The maps of policies, and what is known to be in them.
#[derive(Debug)]
pub struct Guards {
    inner: Ranked<Inner>,
}

#[derive(Debug)]
struct Inner {
    maps: GuardMaps,
    /// None after an error, and before the maps were read first.
    numbers: Option<Numbers>,
    networks: BTreeMap<u32, Network>,
    /// Leftovers of agents before are removed.
    swept: bool,
    /// Generations that are out of force, and since when.
    retired: Vec<(Instant, u32)>,
}

#[derive(Debug)]
struct Network {
    generation: u32,
    content: Arc<Guarded>,
    /// Entries of ports that are in force.
    ports: BTreeMap<u16, Guard>,
    /// When connections of ports that had no policy before are adopted no more.
    adopts: BTreeMap<u16, Instant>,
}

impl Guards {
    /// Takes over the maps.
    pub fn new(maps: GuardMaps) -> Self {
        Self {
            inner: Ranked::new(
                Rank::Guards,
                Inner {
                    maps,
                    numbers: None,
                    networks: BTreeMap::new(),
                    swept: false,
                    retired: Vec::new(),
                },
            ),
        }
    }

    /// Puts the policies of a network in force at its ports.
    ///
    /// Returns the marks of these.
    ///
    /// Ports without sets keep theirs until [`Self::release`].
    ///
    /// # Errors
    /// When the kernel refuses, or a table is full: what was in force stays.
    pub fn enforce(
        &self,
        network: u32,
        wanted: &Arc<Guarded>,
        local: &Local,
    ) -> Result<Marks, DatapathError> {
        let mut inner = self.inner.lock();
        inner.collect(Instant::now())?;
        let enforced = inner.enforce(network, wanted, local);
        if enforced.is_err() && !inner.networks.contains_key(&network) {
            inner.forget(network);
        }
        enforced
    }

    /// Puts the sets of one more port in force, and the atoms of its addresses.
    ///
    /// It has sent nothing yet; `switched` says whether the switch for memif has its frames. Returns whether it gets no
    /// frames for all; `None`, and nothing is done, for a network of which no tables are in force.
    ///
    /// # Errors
    /// When the kernel refuses, or a table is full: the port must not be live.
    pub fn add(
        &self,
        network: u32,
        (port, sets, switched): (u16, PortSets, bool),
        atoms: &[(Ip16, u32)],
    ) -> Result<Option<bool>, DatapathError> {
        let mut inner = self.inner.lock();
        let added = inner.add(network, (port, sets, switched), atoms);
        if added.is_err() {
            inner.forget(network);
        }
        added
    }

    /// Takes away the sets of ports that have none any more.
    ///
    /// All entries of other tables say so by now. `network` is one of which [`Self::enforce`] was told, or one
    /// without any policy.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn release(
        &self,
        network: u32,
        wanted: Option<&Guarded>,
        ports: &BTreeSet<u16>,
    ) -> Result<(), DatapathError> {
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        for port in ports {
            if wanted.is_none_or(|wanted| !wanted.ports.contains_key(port)) {
                // Its number may be that of a port of another network by now.
                let mut others = inner.networks.iter().filter(|(id, _)| **id != network);
                if !others.any(|(_, other)| other.ports.contains_key(port)) {
                    inner.maps.guards.remove(&u32::from(*port))?;
                }
                if let Some(network) = inner.networks.get_mut(&network) {
                    network.ports.remove(port);
                    network.adopts.remove(port);
                }
            }
        }
        if wanted.is_none()
            && let Some(network) = inner.networks.remove(&network)
        {
            inner.retired.push((Instant::now(), network.generation));
        }
        Ok(())
    }

    /// Lists the ports of a network that this agent has put sets in force at.
    pub fn ports_of(&self, network: u32) -> BTreeSet<u16> {
        let inner = self.inner.lock();
        let network = inner.networks.get(&network);
        network.map_or_else(BTreeSet::new, |it| it.ports.keys().copied().collect())
    }

    /// Takes away the sets of a port that is gone.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn forget_port(&self, port: u16) -> Result<(), DatapathError> {
        self.inner.lock().forget_port(port)
    }

    /// Takes away sets that a port's number has of a port before it.
    ///
    /// It may be one of another network, whose sets were written again while it went. Those that this network has for
    /// the port stay.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn renumbered(&self, network: u32, port: u16) -> Result<(), DatapathError> {
        let mut inner = self.inner.lock();
        let own = inner.networks.get(&network);
        if own.is_some_and(|it| it.ports.contains_key(&port)) {
            return Ok(());
        }
        inner.forget_port(port)
    }

    /// Gives ports the sets that they have in the layout before, by their interfaces.
    ///
    /// Their numbers may be others there. Returns whether there is any such port.
    ///
    /// # Errors
    /// When the kernel refuses, or the table is full.
    pub fn inherit(
        &self,
        book: &Book,
        before: &BTreeMap<u32, Guard>,
    ) -> Result<bool, DatapathError> {
        let mut inner = self.inner.lock();
        let ports: Vec<(u16, Guard)> = {
            let ledger = book.ledger();
            let records = ledger.entries().map(|entry| &entry.record);
            let had = records.filter_map(|record| {
                let guard = before.get(&record.host.ifindex)?;
                Some((record.port_id, *guard))
            });
            had.collect()
        };
        for (port, guard) in &ports {
            inner.maps.guards.insert(u32::from(*port), *guard)?;
        }
        Ok(!ports.is_empty())
    }

    /// Reads the marks of ports that have sets, by network.
    ///
    /// An agent before has left them.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn marks_in_force(&self, book: &Book) -> Result<BTreeMap<u32, Marks>, DatapathError> {
        let inner = self.inner.lock();
        let guards = inner.maps.guards.dump()?;
        if guards.is_empty() {
            return Ok(BTreeMap::new());
        }
        let open = written::open_sets(&inner.maps, guards.values())?;
        let mut marks: BTreeMap<u32, Marks> = BTreeMap::new();
        for entry in book.ledger().entries() {
            let port = entry.record.port_id;
            let Some(guard) = guards.get(&u32::from(port)) else {
                continue;
            };
            let marks = marks.entry(entry.record.network.id).or_default();
            marks.guarded.insert(port);
            if guard.ingress != 0 && !open.contains(&(guard.generation, guard.ingress)) {
                marks.closed.insert(port);
            }
        }
        Ok(marks)
    }

    /// Lists the ports that have sets, whoever has put them in force.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn ports(&self) -> Result<BTreeMap<u16, Guard>, DatapathError> {
        let all = self.inner.lock().maps.guards.dump()?;
        let named = all.into_iter();
        let named = named.filter_map(|(port, guard)| Some((u16::try_from(port).ok()?, guard)));
        Ok(named.collect())
    }

    /// Removes what nothing uses any more.
    ///
    /// `complete`: all networks with policies were told of.
    ///
    /// Returns the time after which there is something to do again.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn settle(&self, complete: bool) -> Result<Option<Instant>, DatapathError> {
        let mut inner = self.inner.lock();
        let now = Instant::now();
        inner.end_adoptions(now)?;
        inner.collect(now)?;
        if complete && !inner.swept {
            inner.sweep()?;
            inner.swept = true;
        }
        let retired = inner.retired.iter().map(|(at, _)| *at + GRACE);
        let adopts = inner.networks.values().flat_map(|it| it.adopts.values());
        Ok(retired.chain(adopts.copied()).min())
    }

    /// Returns descriptors of the maps by which the switch judges, for it.
    ///
    /// # Errors
    /// When there is no descriptor left.
    pub fn switch_files(&self) -> Result<SwitchFiles, DatapathError> {
        self.inner.lock().maps.guards.files()
    }

    /// Looks into the maps as packets meet them.
    ///
    /// # Errors
    /// Those of `look`.
    pub fn look<T>(
        &self,
        look: impl FnOnce(&GuardMaps) -> Result<T, DatapathError>,
    ) -> Result<T, DatapathError> {
        look(&self.inner.lock().maps)
    }
}

impl Inner {
    fn enforce(
        &mut self,
        network: u32,
        wanted: &Arc<Guarded>,
        local: &Local,
    ) -> Result<Marks, DatapathError> {
        let numbers = match &mut self.numbers {
            Some(numbers) => numbers,
            none => none.insert(Numbers::read(&self.maps)?),
        };
        let before = self.networks.remove(&network);
        let (old_ports, mut adopts) = match &before {
            Some(before) => (before.ports.clone(), before.adopts.clone()),
            None => (BTreeMap::new(), BTreeMap::new()),
        };
        let maps = &mut self.maps;
        let mut replaced = None;
        let (generation, changed) = match before {
            Some(before) if written::extends(wanted, &before.content) => {
                let generation = before.generation;
                let changed = written::update(maps, generation, &before.content, wanted)?;
                (generation, changed)
            }
            before => {
                let generation = numbers.generation();
                if let Err(error) = written::write(maps, generation, wanted) {
                    // Nothing has changed, and what is in force is known still.
                    self.networks.extend(before.map(|before| (network, before)));
                    return Err(error);
                }
                replaced = before.map(|before| before.generation);
                (generation, true)
            }
        };
        reached("guards.written");
        let mut ports = BTreeMap::new();
        let now = Instant::now();
        for (port, sets) in &wanted.ports {
            let old = match old_ports.get(port) {
                Some(old) => Some(*old),
                // It may be in force since the agent before.
                None => self.maps.guards.get(&u32::from(*port))?,
            };
            if old.is_none() && local.live.contains(port) {
                adopts.insert(*port, now + ADOPTION);
            }
            let adopting = adopts.get(port).is_some_and(|until| now < *until);
            let mut guard = Guard {
                generation,
                egress: written::set_number(sets.egress),
                ingress: written::set_number(sets.ingress),
                stamp: old.map_or(0, |old| old.stamp),
                flags: written::flags(adopting, local.switched.contains(port)),
            };
            if changed || old != Some(guard) {
                // No two ports have one: by it a flow knows which ports have let it pass.
                guard.stamp = numbers.stamp();
                self.maps.guards.insert(u32::from(*port), guard)?;
            } else if !old_ports.contains_key(port) {
                self.maps.guards.confirm(u32::from(*port), &guard)?;
            }
            ports.insert(*port, guard);
        }
        let marks = Marks {
            guarded: wanted.ports.keys().copied().collect(),
            closed: closed(wanted),
        };
        reached("guards.flipped");
        // Only now no port uses it; after an error some do.
        self.retired
            .extend(replaced.map(|generation| (Instant::now(), generation)));
        let content = Arc::clone(wanted);
        let now = Network {
            generation,
            content,
            ports,
            adopts,
        };
        self.networks.insert(network, now);
        Ok(marks)
    }

    fn add(
        &mut self,
        network: u32,
        (port, sets, switched): (u16, PortSets, bool),
        atoms: &[(Ip16, u32)],
    ) -> Result<Option<bool>, DatapathError> {
        let (Some(numbers), Some(network)) = (&mut self.numbers, self.networks.get_mut(&network))
        else {
            return Ok(None);
        };
        let generation = network.generation;
        let content = Arc::make_mut(&mut network.content);
        let changed = Before::new(content).is_changed_by(atoms);
        for (ip, atom) in atoms {
            written::add_atom(&mut self.maps, generation, *ip, *atom)?;
            content.atoms.insert(*ip, *atom);
        }
        if changed {
            // Connections with the addresses are judged again.
            for (other, guard) in &mut network.ports {
                guard.stamp = numbers.stamp();
                self.maps.guards.insert(u32::from(*other), *guard)?;
            }
        }
        if sets == PortSets::default() {
            // Its number may be that of a port which had some.
            content.ports.remove(&port);
            self.forget_port(port)?;
            return Ok(Some(false));
        }
        let guard = Guard {
            generation,
            egress: written::set_number(sets.egress),
            ingress: written::set_number(sets.ingress),
            stamp: numbers.stamp(),
            flags: written::flags(false, switched),
        };
        self.maps.guards.insert(u32::from(port), guard)?;
        content.ports.insert(port, sets);
        network.ports.insert(port, guard);
        Ok(Some(content.is_closed(sets)))
    }

    fn forget_port(&mut self, port: u16) -> Result<(), DatapathError> {
        self.maps.guards.remove(&u32::from(port))?;
        for network in self.networks.values_mut() {
            network.ports.remove(&port);
            network.adopts.remove(&port);
        }
        Ok(())
    }

    /// Has the next call write all of the network.
    ///
    /// The policies in force stay.
    fn forget(&mut self, network: u32) {
        self.networks.remove(&network);
        self.numbers = None;
        // What was begun is a leftover, once all networks are written again.
        self.swept = false;
    }

    /// Removes what is out of force for long enough.
    fn collect(&mut self, now: Instant) -> Result<(), DatapathError> {
        let is_over = |at: Instant| now >= at + GRACE;
        let over: BTreeSet<u32> = self
            .retired
            .iter()
            .filter(|(at, _)| is_over(*at))
            .map(|(_, generation)| *generation)
            .collect();
        if !over.is_empty() {
            numbers::remove(&mut self.maps, |it| over.contains(&it))?;
            self.retired.retain(|(_, it)| !over.contains(it));
        }
        Ok(())
    }

    fn end_adoptions(&mut self, now: Instant) -> Result<(), DatapathError> {
        for network in self.networks.values_mut() {
            let ended: Vec<u16> = network
                .adopts
                .iter()
                .filter(|(_, until)| now >= **until)
                .map(|(port, _)| *port)
                .collect();
            for port in ended {
                if let Some(guard) = network.ports.get_mut(&port) {
                    guard.flags &= !GUARD_ADOPT;
                    self.maps.guards.insert(u32::from(port), *guard)?;
                }
                network.adopts.remove(&port);
            }
        }
        Ok(())
    }

    /// Removes what agents before have left.
    fn sweep(&mut self) -> Result<(), DatapathError> {
        let used = self.networks.values().map(|it| it.generation);
        let retired = self.retired.iter().map(|(_, generation)| *generation);
        numbers::sweep(&mut self.maps, used.chain(retired).collect())?;
        self.maps.guards.sweep()
    }
}

fn closed(wanted: &Guarded) -> BTreeSet<u16> {
    let ports = wanted.ports.iter();
    let closed = ports.filter(|(_, sets)| wanted.is_closed(**sets));
    closed.map(|(port, _)| *port).collect()
}
