//! Write the maps of Services, and lead packets there.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use agent_common::addr::Ip16;
use agent_common::service::{
    Backend, BackendKey, MemberKey, SERVICE_ELSEWHERE, Service, ServiceKey,
};
use datapath::{DatapathError, ServiceMaps};
use locks::{Rank, Ranked};

use crate::Reconciler;

/// Time for which programs may use a set that another one has replaced.
const GRACE: Duration = Duration::from_secs(1);

/// A port of a Service, as clients of this node get it.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Addresses and ports of its backends.
    pub backends: Vec<(Ip16, u16)>,
    /// There are endpoints that clients of this node may not use.
    pub elsewhere: bool,
    /// Seconds for which a client keeps its backend; 0 for no affinity.
    pub affinity_s: u32,
}

/// Services of a network: their addresses, and their ports.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct NetworkServices {
    /// Addresses, those without a port, too.
    pub addresses: BTreeSet<Ip16>,
    /// Ports, by address, number and protocol.
    pub ports: BTreeMap<(Ip16, u16, u8), Wanted>,
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
    /// Sets that programs may still use, with their sizes.
    retired: Vec<(Instant, u32, u32)>,
    /// The number that was given last.
    last: u32,
}

/// A port of a Service as it is in the maps.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Known {
    service: Service,
    backends: Vec<(Ip16, u16)>,
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
        let last = sets.last_key_value().map_or(0, |(set, _)| *set);
        let mut known = BTreeMap::new();
        for (key, service) in maps.services.dump()? {
            let set = sets.remove(&service.set).unwrap_or_default();
            let backends = set.into_values().collect();
            known.insert(key, Known { service, backends });
        }
        let now = Instant::now();
        // Keys that are too high are removed as well: a set has its places without a gap.
        let left = sets.into_iter().map(|(set, places)| {
            let size = places.last_key_value().map_or(0, |(index, _)| index + 1);
            (now, set, size)
        });
        Ok(Self {
            inner: Ranked::new(
                Rank::Guards,
                Inner {
                    retired: left.collect(),
                    maps,
                    known,
                    last,
                },
            ),
        })
    }

    /// The addresses of Services in the maps, by network.
    pub(crate) fn addresses(&self) -> BTreeMap<u32, BTreeSet<Ip16>> {
        let inner = self.inner.lock();
        let mut all: BTreeMap<u32, BTreeSet<Ip16>> = BTreeMap::new();
        for key in inner.known.keys() {
            all.entry(key.network).or_default().insert(key.ip);
        }
        all
    }

    /// Counts ports of Services, and their backends.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let inner = self.inner.lock();
        let backends = inner.known.values().map(|it| it.backends.len());
        (inner.known.len(), backends.sum())
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
        let is_one = |key: &&ServiceKey| {
            let named = (key.ip, key.port, key.protocol);
            key.network == network && !wanted.ports.contains_key(&named)
        };
        let gone: Vec<ServiceKey> = inner.known.keys().filter(is_one).copied().collect();
        gone.into_iter().try_for_each(|key| inner.remove(&key))
    }

    /// Removes sets that no program uses any more; returns when there will be others.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn settle(&self) -> Result<Option<Instant>, DatapathError> {
        let mut inner = self.inner.lock();
        let now = Instant::now();
        while let Some((since, set, size)) = inner.retired.first().copied() {
            if since + GRACE > now {
                return Ok(Some(since + GRACE));
            }
            for index in 0..size {
                inner.maps.backends.remove(&BackendKey { set, index })?;
            }
            inner.retired.remove(0);
        }
        Ok(None)
    }
}

impl Inner {
    fn put(&mut self, key: ServiceKey, wanted: &Wanted) -> Result<(), DatapathError> {
        let before = self.known.get(&key);
        let flags = if wanted.elsewhere {
            SERVICE_ELSEWHERE
        } else {
            0
        };
        let count = u32::try_from(wanted.backends.len()).unwrap_or(u32::MAX);
        let set = match before {
            Some(before) if before.backends == wanted.backends => before.service.set,
            _ => self.fill(&wanted.backends)?,
        };
        let service = Service {
            set,
            count,
            affinity_s: wanted.affinity_s,
            flags,
        };
        let before = self.known.get(&key).cloned();
        if before.as_ref().is_some_and(|it| it.service == service) {
            return Ok(());
        }
        let had = before.as_ref().map_or(&[][..], |it| &it.backends);
        let come = wanted.backends.iter().filter(|it| !had.contains(it));
        let come: Vec<MemberKey> = come.map(|it| member(&key, *it)).collect();
        // A datagram that is chosen for a backend asks for it at its next tick.
        let written = come
            .iter()
            .try_for_each(|it| self.maps.members.insert(*it, 1))
            .and_then(|()| self.maps.services.insert(key, service));
        let is_other = before.as_ref().is_none_or(|it| it.service.set != set);
        if let Err(error) = written {
            // What was in force stays.
            for key in come {
                self.maps.members.remove(&key)?;
            }
            if is_other {
                self.retired.push((Instant::now(), set, count));
            }
            return Err(error);
        }
        let known = Known {
            service,
            backends: wanted.backends.clone(),
        };
        self.known.insert(key, known);
        if let Some(before) = before.filter(|_| is_other) {
            let wanted: BTreeSet<_> = wanted.backends.iter().collect();
            let gone = before.backends.iter().filter(|it| !wanted.contains(it));
            for backend in gone {
                self.maps.members.remove(&member(&key, *backend))?;
            }
            self.retire(&before.service);
        }
        Ok(())
    }

    fn remove(&mut self, key: &ServiceKey) -> Result<(), DatapathError> {
        self.maps.services.remove(key)?;
        let Some(known) = self.known.remove(key) else {
            return Ok(());
        };
        self.retire(&known.service);
        let mut backends = known.backends.iter();
        backends.try_for_each(|it| self.maps.members.remove(&member(key, *it)))
    }

    fn retire(&mut self, service: &Service) {
        if service.count != 0 {
            let retired = (Instant::now(), service.set, service.count);
            self.retired.push(retired);
        }
    }

    /// Writes backends as a set of their own; returns its number.
    fn fill(&mut self, backends: &[(Ip16, u16)]) -> Result<u32, DatapathError> {
        let set = self.free();
        for (index, (ip, port)) in (0..).zip(backends) {
            let key = BackendKey { set, index };
            if let Err(error) = self.maps.backends.insert(key, Backend::new(*ip, *port)) {
                for index in 0..index {
                    self.maps.backends.remove(&BackendKey { set, index })?;
                }
                return Err(error);
            }
        }
        self.last = set;
        Ok(set)
    }

    /// Returns a number that no set has.
    fn free(&self) -> u32 {
        let used = |set: u32| {
            let mut known = self.known.values();
            let mut retired = self.retired.iter();
            known.any(|it| it.service.set == set) || retired.any(|(_, it, _)| *it == set)
        };
        let mut set = self.last;
        loop {
            set = set.wrapping_add(1);
            // They come round after four billion changes: until then the first one is free.
            if set != 0 && (set > self.last || !used(set)) {
                return set;
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
        let before = self
            .surroundings()
            .set_services(network, wanted.addresses.clone());
        if *before != wanted.addresses
            && let Err(error) = self.reconcile(network)
        {
            // The next call has it to do again.
            self.surroundings().set_services(network, (*before).clone());
            return Err(error);
        }
        self.services.clear(network, wanted)?;
        written
    }

    /// Removes backends that no program uses any more; returns when there will be others.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn settle_services(&self) -> Result<Option<Instant>, DatapathError> {
        self.services.settle()
    }

    /// Counts ports of Services in force, and their backends.
    pub fn service_counts(&self) -> (usize, usize) {
        self.services.counts()
    }

    /// The networks of which Services are in force.
    pub fn served_networks(&self) -> BTreeSet<u32> {
        let mut networks = self.surroundings().served();
        networks.extend(self.services.addresses().into_keys());
        networks
    }
}
