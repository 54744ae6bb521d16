//! Doors to a kernel of the test's own, which fails or dies at a chosen call.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use book::Book;
use book::bandwidth::Limits;
use book::ledger::Wanted;
use book::record::{Attachment, HostEnd, NetworkFacts, PodIdentity, Shaper, State};
use cluster::access::Used;
use datapath::{DatapathError, PinDir};
use host::{HostError, near_name};
use netdev::Netns;
use ports::survey::Seen;
use ports::{Ends, PortError, PortFindings, Survey};
use reach::ReachError;
use telemetry::fate::{Calls, Fate, Fated, Refused, call};

use crate::attach::doors::{Authority, Ports, Reach, Tables};
use crate::error::AgentError;

/// Things of attachments that outlive an agent.
#[derive(Debug, Default)]
pub(super) struct Things {
    /// Host ends: index, and whether the pod's end is up.
    pub(super) links: BTreeMap<String, (u32, bool)>,
    /// Ports that their pods' programs can use.
    pub(super) open: BTreeSet<String>,
    /// Keys of attachments in the tables, by network.
    pub(super) tables: BTreeMap<u32, BTreeSet<String>>,
    /// Networks with a way out.
    pub(super) ways_out: BTreeSet<u32>,
    /// Addresses that ports of the node lead to.
    pub(super) mapped: BTreeSet<IpAddr>,
    /// Ends of shapers, by host end.
    pub(super) shapers: BTreeMap<String, Shaper>,
    pub(super) calls: Calls,
    /// Requests under way.
    busy: usize,
    /// Calls outside of any.
    pub(super) idle: Vec<&'static str>,
    /// The next glance says that it has begun, and waits.
    pub(super) hold: Option<(Sender<()>, Receiver<()>)>,
    last_index: u32,
}

impl Fated for Things {
    fn calls(&mut self) -> &mut Calls {
        &mut self.calls
    }
}

impl Things {
    fn add_shaper(&mut self, host: &str) -> Shaper {
        let near = self.last_index + 1;
        self.last_index += 2;
        let shaper = Shaper {
            near,
            far: near + 1,
            used: true,
        };
        self.shapers.insert(host.to_owned(), shaper);
        shaper
    }
}

/// The kernel, shared by all doors.
#[derive(Debug, Clone, Default)]
pub(super) struct Kernel(Arc<Mutex<Things>>);

impl Kernel {
    pub(super) fn things(&self) -> MutexGuard<'_, Things> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts calls from here on, and has this one meet its fate.
    pub(super) fn expect(&self, fate: Option<(usize, Fate)>) -> Vec<&'static str> {
        self.things().calls.expect(fate)
    }

    /// One call of a door: `effect` is what it does.
    fn call<T>(&self, name: &'static str, effect: impl FnOnce(&mut Things) -> T) -> Result<T, ()> {
        let mut things = self.things();
        if things.busy == 0 {
            things.idle.push(name);
        }
        drop(things);
        call(&self.0, name, effect).map_err(|Refused| ())
    }

    /// The same for a door that tells no failures, and comes back to them.
    fn tell(&self, name: &'static str, effect: impl FnOnce(&mut Things)) {
        let _ = self.call(name, effect);
    }
}

fn no_port((): ()) -> PortError {
    PortError::MendingDied
}

fn no_tables((): ()) -> DatapathError {
    DatapathError::NoObject
}

fn no_reach((): ()) -> ReachError {
    DatapathError::NoObject.into()
}

/// A request that is under way.
#[derive(Debug)]
pub(super) struct Busy(Kernel);

impl Busy {
    fn new(kernel: &Kernel) -> Self {
        kernel.things().busy += 1;
        Self(kernel.clone())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.things().busy -= 1;
    }
}

/// Ports of the kernel.
#[derive(Debug)]
pub(super) struct FakePorts(pub(super) Kernel);

impl Ports for FakePorts {
    type Busy = Busy;

    fn busy(&self) -> Busy {
        Busy::new(&self.0)
    }

    fn admit(&self, _: &mut Wanted, _: &api::Network) -> Result<(), PortError> {
        self.0.call("ports.admit", |_| ()).map_err(no_port)
    }

    async fn make<T: Send + 'static>(
        &self,
        record: &Attachment,
        _: &Netns,
        live: impl FnOnce(Result<Ends, PortError>) -> Result<T, AgentError> + Send + 'static,
    ) -> Result<T, AgentError> {
        let (kernel, name) = (self.0.clone(), record.host.name.clone());
        let is_limited = record.limits.egress.is_some();
        let here = move || {
            let made = kernel.call("ports.make", |things| {
                things.last_index += 1;
                things
                    .links
                    .insert(name.clone(), (things.last_index, false));
                let host_end = things.last_index;
                let shaper = is_limited.then(|| things.add_shaper(&name));
                Ends { host_end, shaper }
            });
            let made = live(made.map_err(no_port))?;
            let up = kernel.call("ports.make: pod's end", |things| {
                if let Some(link) = things.links.get_mut(&name) {
                    link.1 = true;
                }
            });
            up.map_err(no_port)?;
            Ok(made)
        };
        match tokio::task::spawn_blocking(here).await {
            Ok(made) => made,
            Err(died) => resume_unwind(died.into_panic()),
        }
    }

    async fn activate(&self, record: &Attachment, _: &Netns) -> Result<(), PortError> {
        let name = record.host.name.clone();
        let open = self
            .0
            .call("ports.activate", |things| things.open.insert(name));
        open.map(|_| ()).map_err(no_port)
    }

    async fn unmake(&self, record: &Attachment) -> Result<(), PortError> {
        let unmade = self.0.call("ports.unmake", |things| {
            things.open.remove(&record.host.name);
            things.links.remove(&record.host.name);
            things.shapers.remove(&record.host.name);
        });
        unmade.map_err(no_port)
    }

    fn lost(&self, _: u32) {
        self.0.tell("ports.lost", |_| ());
    }

    async fn survey(&self) -> Result<Survey, PortError> {
        let seen = self.0.call("ports.survey", |things| {
            let links = things.links.iter();
            let seen = links.map(|(name, (ifindex, carrier))| {
                let seen = Seen {
                    ifindex: *ifindex,
                    carrier: *carrier,
                    up: true,
                    peer: None,
                };
                (name.clone(), seen)
            });
            Survey::of(seen)
        });
        seen.map_err(no_port)
    }

    fn suspects(&self, _: &Survey, records: &[Attachment]) -> Result<BTreeSet<usize>, PortError> {
        let hold = self.0.things().hold.take();
        if let Some((entered, held)) = hold {
            entered.send(()).unwrap();
            held.recv().unwrap();
        }
        let suspects = self.0.call("ports.suspects", |things| {
            places(records, |record| !things.open.contains(&record.host.name))
        });
        suspects.map_err(no_port)
    }

    async fn has_link(&self, host: &HostEnd) -> Result<bool, PortError> {
        let things = self.0.things();
        let link = things.links.get(&host.name);
        Ok(link.is_some_and(|(ifindex, _)| *ifindex == host.ifindex))
    }

    async fn faults(&self, record: &Attachment) -> Result<PortFindings, PortError> {
        let name = &record.host.name;
        let is_open = self.0.things().open.contains(name);
        let fault = format!("the program of host interface {name} is detached");
        Ok(PortFindings {
            is_linked: self.has_link(&record.host).await?,
            faults: (!is_open).then_some(fault).into_iter().collect(),
        })
    }

    async fn pod_faults(&self, _: &Attachment, _: &Netns) -> Result<Vec<String>, PortError> {
        Ok(Vec::new())
    }

    async fn repair(&self, record: &Attachment) -> Result<(), PortError> {
        let name = record.host.name.clone();
        let repaired = self
            .0
            .call("ports.repair", |things| things.open.insert(name));
        repaired.map(|_| ()).map_err(no_port)
    }

    async fn mend_hook(&self, _: &Attachment) -> Result<bool, PortError> {
        Ok(false)
    }

    async fn queue_changed(&self, _: u32) {}

    fn limits_now(&self, record: &Attachment) -> Limits {
        record.limits
    }

    async fn limit(&self, record: &Attachment, limits: Limits) -> Result<(), PortError> {
        let limited = self.0.call("ports.limit", |things| {
            assert_eq!(limits, record.limits, "limits of a test stay");
            let shaper = things.shapers.get(&record.host.name).copied();
            assert_eq!(shaper, record.shaper, "the shaper of a record");
        });
        limited.map_err(no_port)
    }

    async fn remove_strays(&self, _: &Survey, known: &BTreeSet<String>) -> Result<(), PortError> {
        let removed = self.0.call("ports.remove_strays", |things| {
            things.links.retain(|name, _| known.contains(name));
            things.open.retain(|name| known.contains(name));
            things
                .shapers
                .retain(|name, _| known.contains(&near_name(name)));
        });
        removed.map_err(no_port)
    }

    async fn drop_stale_pins(
        &self,
        _: &PinDir,
        _: impl Fn(u32) -> bool + Send + Sync,
    ) -> Result<(), PortError> {
        self.0
            .call("ports.drop_stale_pins", |_| ())
            .map_err(no_port)
    }
}

/// Networks of the kernel, each with a way out while it is in use.
#[derive(Debug)]
pub(super) struct FakeReach(pub(super) Kernel, pub(super) Arc<Book>);

impl FakeReach {
    fn needed(&self) -> BTreeSet<u32> {
        let ledger = self.1.ledger();
        ledger.entries().map(|it| it.record.network.id).collect()
    }

    /// Addresses of attachments in the book.
    fn held(&self) -> BTreeSet<IpAddr> {
        let ledger = self.1.ledger();
        let leases = ledger.entries().flat_map(|it| &it.record.leases);
        leases.map(|lease| lease.address).collect()
    }

    /// Addresses of attachments with ports of the node that stay.
    fn mapped(&self) -> BTreeSet<IpAddr> {
        let ledger = self.1.ledger();
        let stay = ledger
            .entries()
            .map(|it| &it.record)
            .filter(|record| record.state != State::Deleting && !record.host_ports.is_empty());
        stay.flat_map(|record| &record.leases)
            .map(|lease| lease.address)
            .collect()
    }
}

impl Reach for FakeReach {
    async fn admit(&self, _: &api::Network) -> Result<(), ReachError> {
        self.0.call("reach.admit", |_| ()).map_err(no_reach)
    }

    async fn ensure(&self, facts: &NetworkFacts) -> Result<(), ReachError> {
        let made = self
            .0
            .call("reach.ensure", |things| things.ways_out.insert(facts.id));
        made.map_err(no_reach)?;
        let mapped = self.mapped();
        let write = |things: &mut Things| things.mapped = mapped;
        self.0.call("reach.ensure: ports", write).map_err(no_reach)
    }

    async fn withdraw(&self, _: &NetworkFacts) -> Result<(), ReachError> {
        let mapped = self.mapped();
        let write = |things: &mut Things| things.mapped = mapped;
        self.0.call("reach.withdraw", write).map_err(no_reach)
    }

    async fn release(&self, _: &NetworkFacts) {
        let (needed, held) = (self.needed(), self.held());
        let keep = |things: &mut Things| {
            let free = things.mapped.difference(&held).next();
            assert_eq!(free, None, "a port leads to an address that is free");
            things.ways_out.retain(|it| needed.contains(it));
        };
        self.0.tell("reach.release", keep);
    }

    async fn recover(&self) {
        let (needed, mapped) = (self.needed(), self.mapped());
        self.0.tell("reach.recover", |things| {
            things.ways_out.extend(needed);
            things.mapped = mapped;
        });
    }

    async fn mend_ways_out(&self) {
        let (needed, mapped) = (self.needed(), self.mapped());
        self.0.tell("reach.mend_ways_out", |things| {
            things.ways_out = needed;
            things.mapped = mapped;
        });
    }

    async fn mend(&self, _: &Attachment) -> Result<(), HostError> {
        Ok(self.0.call("reach.mend", |_| ()).map_err(no_tables)?)
    }

    async fn faults(&self, _: &Attachment) -> Result<Vec<String>, HostError> {
        Ok(Vec::new())
    }

    fn suspects(&self, _: &[Attachment]) -> Result<BTreeSet<usize>, HostError> {
        let suspects = self.0.call("reach.suspects", |_| BTreeSet::new());
        Ok(suspects.map_err(no_tables)?)
    }

    fn has_program(&self, _: u32) -> bool {
        false
    }
}

/// Tables of the kernel, written from the book.
#[derive(Debug)]
pub(super) struct FakeTables(pub(super) Kernel, pub(super) Arc<Book>);

impl Tables for FakeTables {
    fn prepare(&self, _: &Attachment) -> Result<(), DatapathError> {
        self.0.call("tables.reset", |_| ()).map_err(no_tables)
    }

    fn admit(&self, _: &Attachment) -> Result<(), DatapathError> {
        self.0.call("tables.admit", |_| ()).map_err(no_tables)
    }

    /// As the real ones, writes no other attachment.
    fn reconcile_port(&self, record: &Attachment) -> Result<(), DatapathError> {
        let live = {
            let ledger = self.1.ledger();
            ledger.get(&record.key).is_some_and(|entry| entry.live)
        };
        let written = self.0.call("tables.port", |things| {
            let network = things.tables.entry(record.network.id).or_default();
            let key = record.key.to_string();
            if live {
                network.insert(key);
            } else {
                network.remove(&key);
            }
        });
        written.map_err(no_tables)
    }

    fn reconcile_everything(&self) -> Result<(), DatapathError> {
        let mut all = BTreeMap::<u32, BTreeSet<String>>::new();
        for entry in self.1.ledger().entries().filter(|entry| entry.live) {
            let network = all.entry(entry.record.network.id).or_default();
            network.insert(entry.record.key.to_string());
        }
        let written = self
            .0
            .call("tables.everything", |things| things.tables = all);
        written.map_err(no_tables)
    }

    fn activate(&self) -> Result<(), DatapathError> {
        self.0.call("tables.activate", |_| ()).map_err(no_tables)
    }

    fn faults(&self, record: &Attachment) -> Result<Vec<String>, DatapathError> {
        let key = record.key.to_string();
        let things = self.0.things();
        let network = things.tables.get(&record.network.id);
        let is_there = network.is_some_and(|keys| keys.contains(&key));
        let fault = format!("the tables have nothing of {key}");
        Ok((!is_there).then_some(fault).into_iter().collect())
    }

    fn suspects(&self, records: &[Attachment]) -> Result<BTreeSet<usize>, DatapathError> {
        let suspects = self.0.call("tables.suspects", |things| {
            places(records, |record| {
                let network = things.tables.get(&record.network.id);
                network.is_none_or(|keys| !keys.contains(&record.key.to_string()))
            })
        });
        suspects.map_err(no_tables)
    }
}

/// Places of the records that are so.
fn places(records: &[Attachment], is_so: impl Fn(&Attachment) -> bool) -> BTreeSet<usize> {
    let numbered = records.iter().enumerate();
    let found = numbered.filter(|(_, record)| is_so(record));
    found.map(|(place, _)| place).collect()
}

/// A giver that gives what the book has.
#[derive(Debug)]
pub(super) struct FakeGiver(pub(super) Kernel, pub(super) Arc<Book>);

impl Authority for FakeGiver {
    async fn allow(
        &self,
        _: Option<&PodIdentity>,
        _: impl IntoIterator<Item = Used> + Send,
    ) -> Result<(), AgentError> {
        Ok(self.0.call("giver.allow", |_| ()).map_err(no_port)?)
    }

    async fn grant(
        &self,
        wanted: Wanted,
        network: &api::Network,
        host: HostEnd,
    ) -> Result<Attachment, AgentError> {
        self.0.call("giver.grant", |_| ()).map_err(no_port)?;
        Ok(self.1.ledger().reserve(wanted, network, host)?)
    }

    fn released(&self) {
        self.0.tell("giver.released", |_| ());
    }
}
