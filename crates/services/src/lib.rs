//! Compile Services and their endpoints for the clients of one node.
//!
//! They are on one network. Pure: objects in, addresses and ports out. The rules are those of Kubernetes' service proxies: endpoints that are
//! ready, else those that still answer; with `internalTrafficPolicy: Local` those of the client's node; of several with hints those
//! for the client's node or zone.
//!
//! ```
//! use services::{Clients, Compiler};
//! let clients = Clients { network: "blue", of: "blue", prefixes: &[], node: "a", zone: None };
//! assert!(Compiler::default().compile(&clients, &[], &[]).addresses.is_empty());
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use api::{
    OF_CLUSTER, Prefix, ServiceEndpoint, ServiceObject, ServicePort, ServiceProtocol, ServiceSlice,
};

mod compiler;

use self::compiler::Compiled;
pub use self::compiler::Compiler;

/// The clients that are served.
#[derive(Debug, Clone, Copy)]
pub struct Clients<'a> {
    /// Name of their network.
    pub network: &'a str,
    /// Network of the Services that they have: the same, or [`api::OF_CLUSTER`].
    pub of: &'a str,
    /// Prefixes in which its Services have addresses.
    pub prefixes: &'a [Prefix],
    /// Name of their node.
    pub node: &'a str,
    /// Zone of their node, where it has one.
    pub zone: Option<&'a str>,
}

/// Services of a network, as clients of one node get them.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Served {
    /// Addresses of Services, those without ports and endpoints, too.
    pub addresses: BTreeSet<IpAddr>,
    /// Their ports.
    ///
    /// They are shared with those compiled before where all of the Service and its slices is the same.
    pub ports: BTreeMap<At, Arc<Port>>,
    /// One line for each Service or slice that is not obeyed, or in part only, sorted.
    pub problems: Vec<String>,
}

/// A port of a Service: address, protocol and number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct At {
    /// Address of the Service.
    pub ip: IpAddr,
    /// Protocol.
    pub protocol: ServiceProtocol,
    /// Number.
    pub port: u16,
}

/// Endpoints of a port of a Service.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Port {
    /// Namespace and name of the Service.
    pub service: String,
    /// Addresses and ports of the endpoints, each once, in order.
    pub backends: Vec<(IpAddr, u16)>,
    /// There are endpoints on other nodes, which these clients may not use.
    pub elsewhere: bool,
    /// Seconds for which a client keeps its endpoint; 0 for no affinity.
    pub affinity_s: u32,
}

/// The most places that all Services of a network have.
///
/// A place is an endpoint of an address and port. A node has four times as many, those of a change among them.
pub const NETWORK_PLACES: usize = 131_072;
/// The most places of one Service.
pub const SERVICE_PLACES: usize = 16_384;
/// The most ports that all Services of a network have, each address counted.
pub const NETWORK_PORTS: usize = 32_768;
/// The most problems that are told of a network.
pub const PROBLEMS: usize = 100;

impl Clients<'_> {
    /// Reports whether an address is one that Services have.
    fn serves(&self, ip: &IpAddr) -> bool {
        self.prefixes.iter().any(|prefix| prefix.contains(ip))
    }
}

/// Finds how much room each namespace needs: places, and ports of Services.
fn needs<'a>(
    clients: &Clients<'_>,
    services: &[&'a Arc<ServiceObject>],
    slices_of: &BTreeMap<(&'a str, &str), Vec<&Arc<ServiceSlice>>>,
) -> BTreeMap<&'a str, usize> {
    let mut needs: BTreeMap<&str, usize> = BTreeMap::new();
    for service in services {
        *needs.entry(&service.namespace).or_default() += service.ips.len() * service.ports.len();
    }
    for ((namespace, _), slices) in slices_of {
        let places = slices.iter().map(|it| {
            let endpoints = it.endpoints.iter().filter(|it| !clients.serves(&it.ip));
            endpoints.count() * it.ports.len()
        });
        *needs.entry(namespace).or_default() += places.sum::<usize>();
    }
    needs
}

/// Endpoints of a slice that clients may have.
struct Endpoints<'a> {
    ports: &'a [ServicePort],
    endpoints: Vec<&'a ServiceEndpoint>,
}

impl<'a> Endpoints<'a> {
    fn of(clients: &Clients<'_>, slice: &'a ServiceSlice) -> Self {
        let endpoints = slice.endpoints.iter();
        Self {
            ports: &slice.ports,
            endpoints: endpoints.filter(|it| !clients.serves(&it.ip)).collect(),
        }
    }
}

impl Served {
    /// Adds problems of an object, as far as there is room.
    fn tell(&mut self, object: &impl fmt::Display, problems: &[String]) {
        let room = PROBLEMS.saturating_sub(self.problems.len());
        let told = problems.iter().take(room);
        self.problems
            .extend(told.map(|problem| format!("{object}: {problem}")));
    }

    /// Tells of endpoints that have addresses of Services.
    fn tell_of_services(&mut self, clients: &Clients<'_>, slice: &ServiceSlice) {
        let mut wrong = slice.endpoints.iter().filter(|it| clients.serves(&it.ip));
        let Some(first) = wrong.next() else {
            return;
        };
        let problem = format!(
            "{} endpoints, the first {}, have addresses of Services; write those of pods",
            1 + wrong.count(),
            first.ip
        );
        self.tell(slice, &[problem]);
    }
}

/// Adds a Service to those that are served; false when some of it is not.
fn serve(
    clients: &Clients<'_>,
    service: &ServiceObject,
    compiled: &Compiled,
    (served, places): (&mut Served, &mut usize),
) -> bool {
    let mut ports: BTreeMap<At, Arc<Port>> = BTreeMap::new();
    let mut addresses = BTreeSet::new();
    for ip in &service.ips {
        let Some(own) = compiled.ports.get(ip) else {
            if clients.of == OF_CLUSTER {
                // The cluster's proxy serves it.
                continue;
            }
            let problem = format!(
                "{ip} is in none of spec.serviceCIDRs of network {}, so its pods do not reach it; add its prefix there",
                clients.network
            );
            served.tell(service, &[problem]);
            continue;
        };
        if served.addresses.contains(ip) {
            let problem = format!("another Service of the network has {ip}; remove one of the two");
            served.tell(service, &[problem]);
            continue;
        }
        addresses.insert(*ip);
        ports.extend(own.iter().map(|(at, port)| (*at, Arc::clone(port))));
    }
    let own: usize = ports.values().map(|it| it.backends.len()).sum();
    let too_many = if own > SERVICE_PLACES {
        Some(format!(
            "it has {own} endpoints of all ports and addresses, and may have {SERVICE_PLACES}; divide it into several"
        ))
    } else if *places + own > NETWORK_PLACES || served.ports.len() + ports.len() > NETWORK_PORTS {
        Some(format!(
            "the Services of the network before it have the {NETWORK_PLACES} endpoints or {NETWORK_PORTS} ports that all may have; remove some"
        ))
    } else {
        None
    };
    if let Some(problem) = too_many {
        served.tell(service, &[problem]);
        return false;
    }
    *places += own;
    let is_whole = addresses.len() == compiled.ports.len();
    served.addresses.extend(addresses);
    served.ports.extend(ports);
    is_whole
}

fn port_of(
    clients: &Clients<'_>,
    service: &ServiceObject,
    port: &ServicePort,
    ip: IpAddr,
    slices: &[Endpoints<'_>],
) -> Port {
    let (mut ready, mut ending) = (Vec::new(), Vec::new());
    for slice in slices {
        let mut ports = slice.ports.iter();
        let same = ports.find(|it| it.name == port.name && it.protocol == port.protocol);
        let Some(target) = same else {
            continue;
        };
        for endpoint in &slice.endpoints {
            if endpoint.ip.is_ipv4() != ip.is_ipv4() {
                continue;
            }
            if endpoint.ready {
                ready.push((*endpoint, target.port));
            } else if endpoint.serving && endpoint.terminating {
                ending.push((*endpoint, target.port));
            }
        }
    }
    let near = Near::of(clients, service, &ready);
    // With policy Local the endpoints of the node count by themselves: its last ones that end are used, too.
    let mut chosen = [&ready, &ending].into_iter().map(|all| {
        let here = all.iter().filter(|(it, _)| near.has(clients, it));
        let mut here: Vec<(IpAddr, u16)> = here.map(|(it, port)| (it.ip, *port)).collect();
        here.sort_unstable();
        here.dedup();
        here
    });
    let backends = chosen.find(|it| !it.is_empty()).unwrap_or_default();
    Port {
        service: format!("{}/{}", service.namespace, service.name),
        elsewhere: backends.is_empty() && !(ready.is_empty() && ending.is_empty()),
        backends,
        affinity_s: service.affinity_s,
    }
}

/// Endpoints that are near enough to clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Near {
    /// All of them.
    All,
    /// Endpoints of the clients' node: `internalTrafficPolicy: Local`.
    OnNode,
    /// Endpoints that are for the clients' node.
    ForNode,
    /// Endpoints that are for the clients' zone.
    ForZone,
}

impl Near {
    /// Chooses by the hints of endpoints that are ready, as kube-proxy does.
    ///
    /// Hints count if each of these has one, and one of them is for the clients.
    fn of(
        clients: &Clients<'_>,
        service: &ServiceObject,
        ready: &[(&ServiceEndpoint, u16)],
    ) -> Self {
        let all = |hints: fn(&ServiceEndpoint) -> &[String], own: Option<&str>| {
            let mut every = ready.iter().map(|(it, _)| hints(it));
            let is_own = |it: &String| Some(it.as_str()) == own;
            every.all(|it| !it.is_empty())
                && ready.iter().any(|(it, _)| hints(it).iter().any(is_own))
        };
        if service.local {
            Self::OnNode
        } else if all(|it| &it.for_nodes, Some(clients.node)) {
            Self::ForNode
        } else if all(|it| &it.for_zones, clients.zone) {
            Self::ForZone
        } else {
            Self::All
        }
    }

    fn has(self, clients: &Clients<'_>, endpoint: &ServiceEndpoint) -> bool {
        let is_zone = |it: &String| Some(it.as_str()) == clients.zone;
        // Without one that is ready no hint counts.
        match self {
            Self::All => true,
            Self::OnNode => endpoint.node.as_deref() == Some(clients.node),
            Self::ForNode => endpoint.for_nodes.iter().any(|it| it == clients.node),
            Self::ForZone => endpoint.for_zones.iter().any(is_zone),
        }
    }
}

#[cfg(test)]
mod tests;
