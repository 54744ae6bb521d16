//! Say which slices there should be, and which writes make them so.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use cluster::copied::Key;

use crate::facts::{
    Conditions, Content, Endpoint, Hints, IPV4, IPV6, MemberFacts, Origin, PodFacts, Port,
    Selection, ServiceFacts, Slice, Target,
};

/// End of the name of a slice that has the endpoints of another one.
const SUFFIX: &str = "-podnet";
/// Longest name of an object, bytes.
const NAME_MAX: usize = 253;
/// The most endpoints of a slice that is made of pods, as with Kubernetes.
const ENDPOINTS_MAX: usize = 100;

/// Objects that slices are made of, and the slices that are there.
#[derive(Debug, Default, Clone)]
pub struct Known {
    /// Services of networks.
    pub services: BTreeMap<Key, Arc<ServiceFacts>>,
    /// Slices that Kubernetes has made of selectors of these.
    pub of_cluster: BTreeMap<Key, Arc<Slice>>,
    /// Slices that the controller has made.
    pub own: BTreeMap<Key, Arc<Slice>>,
    /// Members of networks.
    pub members: Vec<Arc<MemberFacts>>,
    /// Pods of all namespaces, while an annotation selects some.
    pub pods: BTreeMap<Key, Arc<PodFacts>>,
}

/// A write that is due, by namespace and name of the slice.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// There is none.
    Create(Key, Content),
    /// There is one with other contents.
    Replace(Key, Content, Arc<Slice>),
    /// There is one that should not be.
    Delete(Key, Arc<Slice>),
}

/// Lists the writes that are due, those first that take an address away.
pub fn steps(known: &Known) -> Vec<Step> {
    let wanted = wanted(known);
    let mut steps = Vec::new();
    for (key, slice) in &known.own {
        let other_type = |it: &Content| it.address_type != slice.content.address_type;
        // Its type is for ever: another one takes its place.
        if wanted.get(key).is_none_or(other_type) {
            steps.push(Step::Delete(key.clone(), Arc::clone(slice)));
        }
    }
    let mut new = Vec::new();
    for (key, content) in wanted {
        match known.own.get(&key) {
            None => new.push(Step::Create(key, content)),
            Some(own) if own.content.address_type != content.address_type => {}
            Some(own) if own.content == content => {}
            Some(own) => steps.push(Step::Replace(key, content, Arc::clone(own))),
        }
    }
    steps.extend(new);
    steps
}

/// Makes the contents of all slices that there should be, by namespace and name.
pub fn wanted(known: &Known) -> BTreeMap<Key, Content> {
    let members = Members::of(known);
    let mut wanted = BTreeMap::new();
    for ((namespace, name), slice) in &known.of_cluster {
        let source = &slice.content;
        let service = (namespace.clone(), source.service.clone());
        let facts = known.services.get(&service);
        let Some(facts) = facts.filter(|it| it.endpoints == Origin::Slices) else {
            continue;
        };
        let is_v6 = source.address_type == IPV6;
        let endpoints = source.endpoints.iter().filter_map(|endpoint| {
            let at = (namespace.as_str(), endpoint.pod.as_str());
            let ip = members.address(&facts.network, at, &endpoint.node, is_v6)?;
            Some(Endpoint {
                ip: Some(ip),
                ..endpoint.clone()
            })
        });
        let endpoints: Vec<Endpoint> = endpoints.collect();
        if endpoints.is_empty() || name.len() + SUFFIX.len() > NAME_MAX {
            continue;
        }
        let content = Content {
            owner: facts.uid.clone(),
            network: facts.network.clone(),
            is_in_dns: false,
            endpoints,
            ..source.clone()
        };
        wanted.insert((namespace.clone(), format!("{name}{SUFFIX}")), content);
    }
    let mut chosen: BTreeMap<&Key, Vec<Chosen>> = BTreeMap::new();
    let selecting = known.services.iter().filter_map(|(key, facts)| {
        let Origin::Pods(selection) = &facts.endpoints else {
            return None;
        };
        Some((key, facts, selection))
    });
    for (key, facts, selection) in selecting {
        let found = select(known, key, facts, selection, &members);
        chosen.entry(key).or_default().extend(found);
    }
    if chosen.is_empty() {
        return wanted;
    }
    let mut before: HashMap<(&str, &str), Vec<(&str, &Slice)>> = HashMap::new();
    for ((namespace, name), slice) in &known.own {
        let service = (namespace.as_str(), slice.content.service.as_str());
        before.entry(service).or_default().push((name, slice));
    }
    for (key, found) in chosen {
        let Some(facts) = known.services.get(key) else {
            continue;
        };
        let own = before.remove(&(key.0.as_str(), key.1.as_str()));
        wanted.extend(divide(key, facts, found, &own.unwrap_or_default()));
    }
    wanted
}

/// An endpoint out of a pod, and its ports.
struct Chosen {
    ports: Vec<Port>,
    endpoint: Endpoint,
}

/// Finds the endpoints of a Service among pods, as Kubernetes does for a selector.
fn select(
    known: &Known,
    (namespace, service): &Key,
    facts: &ServiceFacts,
    selection: &Selection,
    members: &Members<'_>,
) -> Vec<Chosen> {
    let first = (namespace.clone(), String::new());
    let pods = known.pods.range(first..);
    let pods = pods.take_while(|((of, _), _)| of == namespace);
    let mut chosen = Vec::new();
    for ((_, name), pod) in pods {
        let mut labels = selection.labels.iter();
        if !labels.all(|(key, value)| pod.labels.get(key) == Some(value)) {
            continue;
        }
        let ports = ports(selection, pod);
        if ports.is_empty() && !selection.ports.is_empty() {
            continue;
        }
        let hostname = pod.hostname.as_ref();
        let hostname = hostname.filter(|(_, below)| below == service);
        for is_v6 in [false, true] {
            let at = (namespace.as_str(), name.as_str());
            let Some(ip) = members.address(&facts.network, at, &pod.node, is_v6) else {
                continue;
            };
            let is_ready = pod.is_ready && !pod.is_terminating;
            chosen.push(Chosen {
                ports: ports.clone(),
                endpoint: Endpoint {
                    ip: Some(ip),
                    pod: name.clone(),
                    pod_uid: Some(pod.uid.clone()),
                    node: pod.node.clone(),
                    zone: None,
                    hostname: hostname.map(|(name, _)| name.clone()),
                    conditions: Conditions {
                        ready: Some(is_ready || selection.publishes_unready),
                        serving: Some(pod.is_ready),
                        terminating: Some(pod.is_terminating),
                    },
                    hints: Hints::default(),
                },
            });
        }
    }
    chosen
}

/// Finds the ports of a pod; one that it has not is left out.
fn ports(selection: &Selection, pod: &PodFacts) -> Vec<Port> {
    let ports = selection.ports.iter().filter_map(|port| {
        let number = match &port.target {
            Target::Number(number) => *number,
            Target::Name(name) => {
                let mut named = pod.ports.iter();
                let same = named.find(|(it, protocol, _)| it == name && *protocol == port.protocol);
                same?.2
            }
        };
        Some(Port {
            name: port.name.clone(),
            protocol: Some(port.protocol.clone()),
            number: Some(number.into()),
            app_protocol: port.app_protocol.clone(),
        })
    });
    ports.collect()
}

/// Divides endpoints into slices, each with ports and a type of its own.
///
/// An endpoint stays in the slice in which it was `before`, so that a change is one of a slice.
fn divide(
    (namespace, service): &Key,
    facts: &ServiceFacts,
    chosen: Vec<Chosen>,
    before: &[(&str, &Slice)],
) -> BTreeMap<Key, Content> {
    let mut groups: BTreeMap<(Vec<Port>, bool), BTreeMap<String, Endpoint>> = BTreeMap::new();
    for Chosen { ports, endpoint } in chosen {
        let is_v6 = endpoint.ip.is_some_and(|ip| ip.is_ipv6());
        let group = groups.entry((ports, is_v6)).or_default();
        group.insert(endpoint.pod.clone(), endpoint);
    }
    let mut used: BTreeSet<String> = BTreeSet::new();
    let mut slices = BTreeMap::new();
    for ((ports, is_v6), mut left) in groups {
        let address_type = if is_v6 { IPV6 } else { IPV4 };
        let mut own: Vec<(String, Vec<Endpoint>)> = Vec::new();
        for (name, slice) in before {
            let content = &slice.content;
            if content.ports != ports
                || content.address_type != address_type
                || !is_numbered(name, service, address_type)
            {
                continue;
            }
            let there = content.endpoints.iter().take(ENDPOINTS_MAX);
            let kept: Vec<Endpoint> = there.filter_map(|it| left.remove(&it.pod)).collect();
            if !kept.is_empty() {
                used.insert((*name).to_owned());
                own.push(((*name).to_owned(), kept));
            }
        }
        let mut rest = left.into_values().peekable();
        for (_, endpoints) in &mut own {
            let room = ENDPOINTS_MAX.saturating_sub(endpoints.len());
            endpoints.extend(rest.by_ref().take(room));
        }
        let mut number = 0_u32;
        while rest.peek().is_some() {
            let name = numbered(service, address_type, number);
            number += 1;
            let is_free = || before.iter().all(|(it, _)| *it != name);
            if used.contains(&name) || !is_free() {
                continue;
            }
            used.insert(name.clone());
            own.push((name, rest.by_ref().take(ENDPOINTS_MAX).collect()));
        }
        slices.extend(own.into_iter().map(|(name, endpoints)| {
            let content = Content {
                service: service.clone(),
                owner: facts.uid.clone(),
                network: facts.network.clone(),
                is_in_dns: facts.is_headless,
                address_type: address_type.to_owned(),
                ports: ports.clone(),
                endpoints,
            };
            ((namespace.clone(), name), content)
        }));
    }
    slices
}

/// Name of a slice that is made of pods.
fn numbered(service: &str, address_type: &str, number: u32) -> String {
    let family = address_type.to_lowercase();
    format!("{service}{SUFFIX}-{family}-{number}")
}

/// True for a name that [`numbered`] makes.
fn is_numbered(name: &str, service: &str, address_type: &str) -> bool {
    let number = name.rsplit_once('-').and_then(|(_, it)| it.parse().ok());
    number.is_some_and(|number| numbered(service, address_type, number) == name)
}

/// Addresses of pods on the networks that have Services.
struct Members<'a>(HashMap<&'a str, HashMap<&'a str, Vec<At<'a>>>>);

/// Addresses that a node says of a pod.
struct At<'a> {
    node: &'a str,
    ips: &'a [IpAddr],
}

impl<'a> Members<'a> {
    fn of(known: &'a Known) -> Self {
        let mut networks: HashMap<&str, HashMap<&str, Vec<At<'a>>>> = known
            .services
            .values()
            .filter(|it| it.endpoints != Origin::Users)
            .map(|it| (it.network.as_str(), HashMap::new()))
            .collect();
        for slice in &known.members {
            let Some(pods) = networks.get_mut(slice.network.as_str()) else {
                continue;
            };
            for (pod, ips) in &slice.pods {
                let node = slice.node.as_str();
                pods.entry(pod).or_default().push(At { node, ips });
            }
        }
        Self(networks)
    }

    /// Returns the address of a pod; of several of a family the least.
    ///
    /// A node speaks for the pods that are bound to it, and for no others.
    fn address(
        &self,
        network: &str,
        (namespace, name): (&str, &str),
        node: &str,
        is_v6: bool,
    ) -> Option<IpAddr> {
        let pods = self.0.get(network)?;
        let said = pods.get(format!("{namespace}/{name}").as_str())?.iter();
        let own = said.filter(|it| it.node == node).flat_map(|it| it.ips);
        own.copied().filter(|ip| ip.is_ipv6() == is_v6).min()
    }
}
