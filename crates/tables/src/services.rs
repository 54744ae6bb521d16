//! Write the maps of Services, and lead packets there.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use agent_common::addr::Ip16;
use agent_common::map as size;
use agent_common::service::{
    Backend, BackendKey, MemberKey, SERVICE_ELSEWHERE, Service, ServiceKey,
};
use datapath::{DatapathError, ServiceMaps};
use locks::{Rank, Ranked};

use crate::Reconciler;
use crate::surroundings::Surroundings;

/// Time for which programs may use a set that another one has replaced.
const GRACE: Duration = Duration::from_secs(1);
/// Most backends that are removed in one go: others wait for the maps.
const BATCH: usize = 4096;
/// Number of the set without a backend, which has no place in the maps.
const NO_SET: u32 = 0;

/// A port of a Service, as clients of this node get it.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Addresses and ports of its backends, in order, each once.
    pub backends: Arc<[(Ip16, u16)]>,
    /// There are endpoints that clients of this node may not use.
    pub elsewhere: bool,
    /// Seconds for which a client keeps its backend; 0 for no affinity.
    pub affinity_s: u32,
}

/// A port of a Service of some network: address, number and protocol.
pub type PortKey = (Ip16, u16, u8);

/// Services of a network: their addresses, and their ports.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct NetworkServices {
    /// Addresses, those without a port, too.
    pub addresses: BTreeSet<Ip16>,
    /// Their ports.
    pub ports: BTreeMap<PortKey, Arc<Wanted>>,
}

/// The maps of Services, and what is in them.
#[derive(Debug)]
pub(crate) struct Services {
    inner: Ranked<Inner>,
}

#[derive(Debug)]
struct Inner {
    maps: ServiceMaps,
    known: BTreeMap<ServiceKey, Known>,
    /// Sets that programs may still use, the oldest first.
    retired: VecDeque<Retired>,
    /// Endpoints that could not be removed.
    strays: BTreeSet<MemberKey>,
    /// Numbers of sets in the maps.
    used: BTreeSet<u32>,
    /// The number that was given last.
    last: u32,
}

/// A set that another one has replaced, and the places that it has still.
#[derive(Debug)]
struct Retired {
    since: Instant,
    set: u32,
    places: Range<u32>,
}

/// A port of a Service as it is in the maps.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Known {
    service: Service,
    /// In order, each once.
    backends: Arc<[(Ip16, u16)]>,
}

impl Services {
    /// Takes the maps, and reads what an agent before has left.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(crate) fn new(maps: ServiceMaps) -> Result<Self, DatapathError> {
        let mut sets: BTreeMap<u32, BTreeMap<u32, (Ip16, u16)>> = BTreeMap::new();
        for (key, backend) in maps.backends.dump()? {
            let set = sets.entry(key.set).or_default();
            set.insert(key.index, (backend.ip, backend.port));
        }
        let used: BTreeSet<u32> = sets.keys().copied().collect();
        let mut known = BTreeMap::new();
        for (key, service) in maps.services.dump()? {
            let set = sets.remove(&service.set).unwrap_or_default();
            let backends = set.into_values().collect();
            known.insert(key, Known { service, backends });
        }
        // What a crash has left in half is nobody's.
        let mut strays: BTreeSet<MemberKey> = maps.members.keys()?.into_iter().collect();
        for (key, known) in &known {
            for backend in known.backends.iter() {
                strays.remove(&member(key, *backend));
            }
        }
        let since = Instant::now();
        let left = sets.into_iter().map(|(set, places)| {
            let end = places.last_key_value().map_or(0, |(index, _)| index + 1);
            Retired {
                since,
                set,
                places: 0..end,
            }
        });
        Ok(Self {
            inner: Ranked::new(
                Rank::Guards,
                Inner {
                    retired: left.collect(),
                    last: used.last().copied().unwrap_or(0),
                    maps,
                    known,
                    strays,
                    used,
                },
            ),
        })
    }

    /// Has packets led to the Services in the maps.
    ///
    /// What an agent before has put in force stays so until the Services are known.
    pub(crate) fn announce(&self, surroundings: &Surroundings) {
        for network in self.networks() {
            surroundings.set_services(network, self.addresses(network));
        }
    }

    /// The networks that have Services in the maps.
    fn networks(&self) -> BTreeSet<u32> {
        let inner = self.inner.lock();
        inner.known.keys().map(|key| key.network).collect()
    }

    /// The addresses of a network's Services in the maps.
    fn addresses(&self, network: u32) -> BTreeSet<Ip16> {
        let inner = self.inner.lock();
        inner.of(network).map(|(key, _)| key.ip).collect()
    }

    /// Returns the name of each map, its entries, and those that it can have.
    pub(crate) fn fill(&self) -> [(&'static str, usize, u32); 3] {
        let inner = self.inner.lock();
        let backends: usize = inner.known.values().map(|it| it.backends.len()).sum();
        let retired: usize = inner.retired.iter().map(|it| it.places.len()).sum();
        let (services, strays) = (inner.known.len(), inner.strays.len());
        [
            ("SERVICES", services, size::MAX_SERVICES),
            ("BACKENDS", backends + retired, size::MAX_BACKENDS),
            ("MEMBERS", backends + strays, size::MAX_BACKENDS),
        ]
    }

    /// Writes the ports of a network's Services.
    ///
    /// Those that fail stay as they were; the others are written all the same.
    ///
    /// # Errors
    /// The first failure: a map is full, or the kernel refuses.
    fn write(&self, network: u32, wanted: &NetworkServices) -> Result<(), DatapathError> {
        let mut inner = self.inner.lock();
        let mut outcome = Ok(());
        for ((ip, port, protocol), wanted) in &wanted.ports {
            let key = ServiceKey {
                network,
                ip: *ip,
                port: *port,
                protocol: *protocol,
                reserved: 0,
            };
            outcome = outcome.and(inner.put(key, wanted));
        }
        outcome
    }

    /// Removes the ports of a network that are not wanted.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn clear(&self, network: u32, wanted: &NetworkServices) -> Result<(), DatapathError> {
        let mut inner = self.inner.lock();
        let is_gone = |key: &ServiceKey| {
            let named = (key.ip, key.port, key.protocol);
            !wanted.ports.contains_key(&named)
        };
        let gone: Vec<ServiceKey> = inner
            .of(network)
            .map(|(key, _)| *key)
            .filter(is_gone)
            .collect();
        gone.into_iter().try_for_each(|key| inner.remove(&key))
    }

    /// Removes what no program uses any more; returns when there will be more.
    ///
    /// # Errors
    /// When the kernel refuses; the rest is removed by the next call.
    fn settle(&self) -> Result<Option<Instant>, DatapathError> {
        let mut inner = self.inner.lock();
        let now = Instant::now();
        let mut left = BATCH;
        let mut outcome = Ok(());
        for key in std::mem::take(&mut inner.strays) {
            outcome = outcome.and(inner.forget(key));
        }
        while let Some(mut retired) = inner.retired.pop_front() {
            let due = retired.since + GRACE;
            if due > now || left == 0 {
                inner.retired.push_front(retired);
                return outcome.map(|()| Some(due.max(now)));
            }
            while left > 0
                && let Some(index) = retired.places.next()
            {
                let set = retired.set;
                outcome = outcome.and(inner.maps.backends.remove(&BackendKey { set, index }));
                left -= 1;
            }
            if retired.places.is_empty() {
                inner.used.remove(&retired.set);
            } else {
                inner.retired.push_front(retired);
            }
        }
        outcome.map(|()| None)
    }
}

impl Inner {
    /// The ports of a network's Services.
    fn of(&self, network: u32) -> impl Iterator<Item = (&ServiceKey, &Known)> {
        let first = ServiceKey {
            network,
            ..ServiceKey::EMPTY
        };
        let all = self.known.range(first..);
        all.take_while(move |(key, _)| key.network == network)
    }

    fn put(&mut self, key: ServiceKey, wanted: &Wanted) -> Result<(), DatapathError> {
        let before = self.known.get(&key);
        let same = before.filter(|it| {
            let (own, new) = (&it.backends, &wanted.backends);
            // Most are as they were, and shared.
            Arc::ptr_eq(own, new) || own == new
        });
        let wanted_service = |set| Service {
            set,
            count: u32::try_from(wanted.backends.len()).unwrap_or(u32::MAX),
            affinity_s: wanted.affinity_s,
            flags: if wanted.elsewhere {
                SERVICE_ELSEWHERE
            } else {
                0
            },
        };
        if let Some(same) = same {
            let service = wanted_service(same.service.set);
            if service != same.service {
                self.maps.services.insert(key, service)?;
            }
            if let Some(known) = self.known.get_mut(&key) {
                known.service = service;
                known.backends = Arc::clone(&wanted.backends);
            }
            return Ok(());
        }
        let had: BTreeSet<(Ip16, u16)> = before
            .iter()
            .flat_map(|it| it.backends.iter().copied())
            .collect();
        let service = wanted_service(self.fill(&wanted.backends)?);
        let wants: BTreeSet<(Ip16, u16)> = wanted.backends.iter().copied().collect();
        let come: Vec<MemberKey> = wants.difference(&had).map(|it| member(&key, *it)).collect();
        // A datagram that is chosen for a backend asks for it at its next tick.
        let written = come
            .iter()
            .try_for_each(|it| self.maps.members.insert(*it, 1))
            .and_then(|()| self.maps.services.insert(key, service));
        if let Err(error) = written {
            // What was in force stays.
            self.retire(&service);
            self.strays.extend(come);
            return Err(error);
        }
        for it in &come {
            self.strays.remove(it);
        }
        let known = Known {
            service,
            backends: Arc::clone(&wanted.backends),
        };
        if let Some(before) = self.known.insert(key, known) {
            self.retire(&before.service);
        }
        let gone = had.difference(&wants).map(|it| member(&key, *it));
        gone.collect::<Vec<_>>()
            .into_iter()
            .try_for_each(|it| self.forget(it))
    }

    fn remove(&mut self, key: &ServiceKey) -> Result<(), DatapathError> {
        self.maps.services.remove(key)?;
        let Some(known) = self.known.remove(key) else {
            return Ok(());
        };
        self.retire(&known.service);
        let mut backends = known.backends.iter();
        backends.try_for_each(|it| self.forget(member(key, *it)))
    }

    /// Removes an endpoint; [`Services::settle`] tries again where the kernel refuses.
    fn forget(&mut self, key: MemberKey) -> Result<(), DatapathError> {
        let removed = self.maps.members.remove(&key);
        if removed.is_err() {
            self.strays.insert(key);
        }
        removed
    }

    fn retire(&mut self, service: &Service) {
        if service.set != NO_SET {
            self.retired.push_back(Retired {
                since: Instant::now(),
                set: service.set,
                places: 0..service.count,
            });
        }
    }

    /// Writes backends as a set of their own; returns its number.
    fn fill(&mut self, backends: &[(Ip16, u16)]) -> Result<u32, DatapathError> {
        if backends.is_empty() {
            return Ok(NO_SET);
        }
        let set = self.free();
        self.used.insert(set);
        for (index, (ip, port)) in (0..).zip(backends) {
            let key = BackendKey { set, index };
            if let Err(error) = self.maps.backends.insert(key, Backend::new(*ip, *port)) {
                // No program knows it.
                self.retired.push_front(Retired {
                    since: Instant::now()
                        .checked_sub(GRACE)
                        .unwrap_or_else(Instant::now),
                    set,
                    places: 0..index,
                });
                return Err(error);
            }
        }
        Ok(set)
    }

    /// Returns a number that no set has.
    fn free(&mut self) -> u32 {
        loop {
            self.last = self.last.wrapping_add(1);
            if self.last != NO_SET && !self.used.contains(&self.last) {
                return self.last;
            }
        }
    }
}

const fn member(key: &ServiceKey, (backend, port): (Ip16, u16)) -> MemberKey {
    MemberKey {
        network: key.network,
        service: key.ip,
        backend,
        service_port: key.port,
        backend_port: port,
        protocol: key.protocol,
        reserved: [0; 3],
    }
}

impl Reconciler {
    /// Puts the Services of a network in force for its ports on this node.
    ///
    /// Ports of Services come before the addresses that lead to them, and go after those.
    ///
    /// # Errors
    /// When the kernel refuses, or a map is full: the Services that did not fit stay as they were.
    pub fn serve(&self, network: u32, wanted: &NetworkServices) -> Result<(), DatapathError> {
        if !wanted.addresses.is_empty() {
            self.lock().datapath.serve_services()?;
        }
        let written = self.services.write(network, wanted);
        // Of those that did not fit there is nothing to lead to.
        let mut addresses = self.services.addresses(network);
        addresses.retain(|ip| wanted.addresses.contains(ip));
        let before = self.surroundings().set_services(network, addresses.clone());
        if *before != addresses
            && let Err(error) = self.reconcile(network)
        {
            // What was added on the way goes, and the next call has it to do again.
            self.surroundings().set_services(network, (*before).clone());
            return Err(self.reconcile(network).err().unwrap_or(error));
        }
        self.services.clear(network, wanted)?;
        written
    }

    /// Removes backends that no program uses; returns when there will be others.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn settle_services(&self) -> Result<Option<Instant>, DatapathError> {
        self.services.settle()
    }

    /// Reads a port of a Service, and the first of its backends.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn service(
        &self,
        key: &ServiceKey,
    ) -> Result<Option<(Service, Option<Backend>)>, DatapathError> {
        let inner = self.services.inner.lock();
        let Some(service) = inner.maps.services.get(key)? else {
            return Ok(None);
        };
        let (set, index) = (service.set, 0);
        let first = match service.count {
            0 => None,
            _ => inner.maps.backends.get(&BackendKey { set, index })?,
        };
        Ok(Some((service, first)))
    }

    /// The networks of which Services are in force.
    pub fn served_networks(&self) -> BTreeSet<u32> {
        let mut networks = self.surroundings().served();
        networks.extend(self.services.networks());
        networks
    }
}
