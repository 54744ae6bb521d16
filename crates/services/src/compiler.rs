//! Compile what has changed, and keep the rest.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use api::{OF_CLUSTER, Prefix, ServiceObject, ServiceSlice};

use crate::{At, Clients, Endpoints, Port, Served, needs, port_of, serve};

/// A compiler that keeps what it has made, for Services that stay as they are.
///
/// A change of one slice costs little where there are thousands.
#[derive(Debug, Default)]
pub struct Compiler {
    /// The clients that it was made for.
    of: Option<Owned>,
    /// By namespace and name of the Service.
    services: BTreeMap<String, BTreeMap<String, Compiled>>,
    round: u64,
}

impl Compiler {
    /// Makes of Services and slices what these clients get.
    ///
    /// Of two Services with one address the first one has it, by namespace and name; of the cluster's own those of the
    /// namespaces that need least come first. One that has more endpoints than its share
    /// is not served, and neither are those after the last that fits.
    #[must_use]
    pub fn compile(
        &mut self,
        clients: &Clients<'_>,
        services: &[Arc<ServiceObject>],
        slices: &[Arc<ServiceSlice>],
    ) -> Served {
        if !self.of.as_ref().is_some_and(|it| it.is(clients)) {
            self.of = Some(Owned::of(clients));
            self.services.clear();
        }
        self.round = self.round.wrapping_add(1);
        let mut served = Served::default();
        let mut slices_of: BTreeMap<(&str, &str), Vec<&Arc<ServiceSlice>>> = BTreeMap::new();
        for slice in slices.iter().filter(|it| it.network == clients.of) {
            served.tell(&**slice, &slice.problems);
            served.tell_of_services(clients, slice);
            let key = (slice.namespace.as_str(), slice.service.as_str());
            slices_of.entry(key).or_default().push(slice);
        }
        let mut own: Vec<&Arc<ServiceObject>> = services
            .iter()
            .filter(|it| it.network == clients.of)
            .collect();
        if clients.of == OF_CLUSTER {
            // All tenants share the room: what one takes is not taken from those that need less.
            let needs = needs(clients, &own, &slices_of);
            own.sort_by_key(|it| (needs.get(&*it.namespace), &it.namespace, &it.name));
        } else {
            own.sort_by_key(|it| (&it.namespace, &it.name));
        }
        let mut places = 0;
        for service in own {
            served.tell(&**service, &service.problems);
            let key = (service.namespace.as_str(), service.name.as_str());
            let slices = slices_of.get(&key).map_or(&[][..], Vec::as_slice);
            let compiled = self.compiled(clients, service, slices);
            if !serve(clients, service, compiled, (&mut served, &mut places)) {
                // What is not in force is bounded by nothing.
                self.forget(service);
            }
        }
        for names in self.services.values_mut() {
            names.retain(|_, it| it.round == self.round);
        }
        self.services.retain(|_, names| !names.is_empty());
        served.problems.sort();
        served.problems.dedup();
        served
    }

    /// Returns what a Service has by itself, as made before if nothing has changed.
    fn compiled(
        &mut self,
        clients: &Clients<'_>,
        service: &Arc<ServiceObject>,
        slices: &[&Arc<ServiceSlice>],
    ) -> &Compiled {
        let round = self.round;
        let names = self.services.entry(service.namespace.clone()).or_default();
        let made = || Compiled::of(clients, service, slices);
        let compiled = names.entry(service.name.clone()).or_insert_with(made);
        if compiled.is_of(service, slices) {
            compiled.share(service, slices);
        } else {
            *compiled = made();
        }
        compiled.round = round;
        compiled
    }

    /// All ports that are kept.
    #[cfg(test)]
    pub(super) fn ports(&self) -> impl Iterator<Item = &Arc<Port>> {
        let all = self.services.values().flat_map(BTreeMap::values);
        all.flat_map(|it| it.ports.values().flat_map(BTreeMap::values))
    }

    fn forget(&mut self, service: &ServiceObject) {
        if let Some(names) = self.services.get_mut(&service.namespace) {
            names.remove(&service.name);
        }
    }
}

/// Clients, as a compiler keeps them.
#[derive(Debug, PartialEq, Eq)]
struct Owned {
    network: String,
    of: String,
    prefixes: Vec<Prefix>,
    node: String,
    zone: Option<String>,
}

impl Owned {
    fn of(clients: &Clients<'_>) -> Self {
        Self {
            network: clients.network.to_owned(),
            of: clients.of.to_owned(),
            prefixes: clients.prefixes.to_vec(),
            node: clients.node.to_owned(),
            zone: clients.zone.map(str::to_owned),
        }
    }

    fn is(&self, clients: &Clients<'_>) -> bool {
        self.network == clients.network
            && self.of == clients.of
            && self.prefixes == clients.prefixes
            && self.node == clients.node
            && self.zone.as_deref() == clients.zone
    }
}

/// A Service by itself, whatever others there are.
#[derive(Debug)]
pub(super) struct Compiled {
    service: Arc<ServiceObject>,
    slices: Vec<Arc<ServiceSlice>>,
    /// Ports at each of its addresses in the prefixes of Services.
    pub(super) ports: BTreeMap<IpAddr, BTreeMap<At, Arc<Port>>>,
    /// The last round in which it was there.
    round: u64,
}

impl Compiled {
    fn of(
        clients: &Clients<'_>,
        service: &Arc<ServiceObject>,
        slices: &[&Arc<ServiceSlice>],
    ) -> Self {
        let endpoints: Vec<Endpoints<'_>> =
            slices.iter().map(|it| Endpoints::of(clients, it)).collect();
        let ips = service.ips.iter().filter(|ip| clients.serves(ip));
        let ports_at = |ip: IpAddr| {
            let mut ports = BTreeMap::new();
            for port in &service.ports {
                let at = At {
                    ip,
                    protocol: port.protocol,
                    port: port.port,
                };
                let found = || Arc::new(port_of(clients, service, port, ip, &endpoints));
                ports.entry(at).or_insert_with(found);
            }
            ports
        };
        Self {
            service: Arc::clone(service),
            slices: slices.iter().map(|it| Arc::clone(it)).collect(),
            ports: ips.map(|ip| (*ip, ports_at(*ip))).collect(),
            round: 0,
        }
    }

    /// Reports whether it was made of these.
    fn is_of(&self, service: &Arc<ServiceObject>, slices: &[&Arc<ServiceSlice>]) -> bool {
        self.service == *service && self.slices.iter().eq(slices.iter().copied())
    }

    /// Takes equal objects for its own, so that there are no two of each.
    fn share(&mut self, service: &Arc<ServiceObject>, slices: &[&Arc<ServiceSlice>]) {
        self.service = Arc::clone(service);
        for (own, slice) in self.slices.iter_mut().zip(slices) {
            *own = Arc::clone(slice);
        }
    }
}
