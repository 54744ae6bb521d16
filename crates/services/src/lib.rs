//! Makes of Services and their endpoints what clients of one network on one node get.
//!
//! Pure: objects in, addresses and ports out. The rules are those of Kubernetes' service proxies: endpoints that are
//! ready, else those that still answer; with `internalTrafficPolicy: Local` those of the client's node.
//!
//! ```
//! use services::{Clients, compile};
//! let clients = Clients { network: "blue", prefixes: &[], node: "a" };
//! assert!(compile(&clients, &[], &[]).addresses.is_empty());
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use api::{Prefix, ServiceObject, ServicePort, ServiceProtocol, ServiceSlice};

/// The clients that are served.
#[derive(Debug, Clone, Copy)]
pub struct Clients<'a> {
    /// Name of their network.
    pub network: &'a str,
    /// Prefixes in which its Services have addresses.
    pub prefixes: &'a [Prefix],
    /// Name of their node.
    pub node: &'a str,
}

/// Services of a network, as clients of one node get them.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Served {
    /// Addresses of Services, those without ports and endpoints, too.
    pub addresses: BTreeSet<IpAddr>,
    /// Their ports.
    pub ports: BTreeMap<At, Port>,
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
    /// Addresses and ports of the endpoints, each once, in order.
    pub backends: Vec<(IpAddr, u16)>,
    /// There are endpoints on other nodes, which these clients may not use.
    pub elsewhere: bool,
    /// Seconds for which a client keeps its endpoint; 0 for no affinity.
    pub affinity_s: u32,
}

/// Makes of Services and slices of all networks what these clients get.
///
/// Of two Services with one address the first one has it, by namespace and name.
#[must_use]
pub fn compile(
    clients: &Clients<'_>,
    services: &[Arc<ServiceObject>],
    slices: &[Arc<ServiceSlice>],
) -> Served {
    let mut served = Served::default();
    let mut slices_of: BTreeMap<(&str, &str), Vec<&ServiceSlice>> = BTreeMap::new();
    for slice in slices.iter().filter(|it| it.network == clients.network) {
        let told = slice.problems.iter();
        let told = told.map(|problem| format!("{slice}: {problem}"));
        served.problems.extend(told);
        let key = (slice.namespace.as_str(), slice.service.as_str());
        slices_of.entry(key).or_default().push(slice);
    }
    let mut own: Vec<&ServiceObject> = services
        .iter()
        .map(|it| &**it)
        .filter(|it| it.network == clients.network)
        .collect();
    own.sort_by_key(|it| (&it.namespace, &it.name));
    for service in own {
        let told = service.problems.iter();
        let told = told.map(|problem| format!("{service}: {problem}"));
        served.problems.extend(told);
        let key = (service.namespace.as_str(), service.name.as_str());
        let slices = slices_of.get(&key).map_or(&[][..], Vec::as_slice);
        serve(clients, service, slices, &mut served);
    }
    served.problems.sort();
    served.problems.dedup();
    served
}

fn serve(
    clients: &Clients<'_>,
    service: &ServiceObject,
    slices: &[&ServiceSlice],
    served: &mut Served,
) {
    for ip in &service.ips {
        if !clients.prefixes.iter().any(|it| it.contains(ip)) {
            served.problems.push(format!(
                "{service}: {ip} is in none of spec.serviceCIDRs of network {}, so its pods do not reach it; add its prefix there",
                clients.network
            ));
            continue;
        }
        if !served.addresses.insert(*ip) {
            served.problems.push(format!(
                "{service}: another Service of the network has {ip}; remove one of the two"
            ));
            continue;
        }
        for port in &service.ports {
            let at = At {
                ip: *ip,
                protocol: port.protocol,
                port: port.port,
            };
            let found = port_of(clients, service, port, *ip, slices, &mut served.problems);
            served.ports.entry(at).or_insert(found);
        }
    }
}

fn port_of(
    clients: &Clients<'_>,
    service: &ServiceObject,
    port: &ServicePort,
    ip: IpAddr,
    slices: &[&ServiceSlice],
    problems: &mut Vec<String>,
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
            if clients.prefixes.iter().any(|it| it.contains(&endpoint.ip)) {
                problems.push(format!(
                    "{slice}: endpoint {} has the address of a Service; write that of a pod",
                    endpoint.ip
                ));
                continue;
            }
            let is_here = endpoint.node.as_deref() == Some(clients.node);
            let backend = (endpoint.ip, target.port, is_here);
            if endpoint.ready {
                ready.push(backend);
            } else if endpoint.serving && endpoint.terminating {
                ending.push(backend);
            }
        }
    }
    // With policy Local the endpoints of the node count by themselves: its last ones that end are used, too.
    let mut chosen = [&ready, &ending].into_iter().map(|all| {
        let here = all.iter().filter(|(.., here)| *here || !service.local);
        let mut here: Vec<(IpAddr, u16)> = here.map(|(ip, port, _)| (*ip, *port)).collect();
        here.sort_unstable();
        here.dedup();
        here
    });
    let backends = chosen.find(|it| !it.is_empty()).unwrap_or_default();
    Port {
        elsewhere: backends.is_empty() && !(ready.is_empty() && ending.is_empty()),
        backends,
        affinity_s: service.affinity_s,
    }
}

#[cfg(test)]
mod tests;
