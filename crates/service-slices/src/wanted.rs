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

/// The most Services of a namespace that select pods by their annotation.
///
/// Each is compared with all pods of the namespace.
pub const SELECTING_MAX: usize = 250;
/// The most pods that an annotation selects.
pub const SELECTED_MAX: usize = 1000;

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
    /// Pods of all namespaces.
    ///
    /// While they are not known, slices that are made of some stay.
    pub pods: Option<BTreeMap<Key, Arc<PodFacts>>>,
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

impl Step {
    /// Namespace and name of the slice.
    pub const fn key(&self) -> &Key {
        let (Self::Create(key, _) | Self::Replace(key, ..) | Self::Delete(key, _)) = self;
        key
    }

    /// Namespace and name of the Service.
    pub fn service(&self) -> Key {
        let content = match self {
            Self::Create(_, content) | Self::Replace(_, content, _) => content,
            Self::Delete(_, own) => &own.content,
        };
        (self.key().0.clone(), content.service.clone())
    }

    /// True for one after which endpoints are gone.
    pub const fn takes_away(&self) -> bool {
        matches!(self, Self::Delete(..))
    }
}

/// Lists the writes that are due: those that give endpoints first.
///
/// An endpoint that moves from one slice to another is in one of them all the time.
pub fn steps(known: &Known) -> Vec<Step> {
    let members = Members::of(known);
    let mut plan = Plan {
        known,
        wanted: BTreeSet::new(),
        steps: Vec::new(),
    };
    for (key, slice) in &known.of_cluster {
        plan.mirror(key, &slice.content, &members);
    }
    plan.of_pods(&members);
    let Plan {
        wanted, mut steps, ..
    } = plan;
    let spare = known.own.iter().filter(|(key, _)| !wanted.contains(*key));
    steps.extend(spare.map(|(key, slice)| Step::Delete(key.clone(), Arc::clone(slice))));
    steps
}

/// Services with an annotation beyond [`SELECTING_MAX`] of a namespace.
pub fn too_many(services: &BTreeMap<Key, Arc<ServiceFacts>>) -> BTreeSet<&Key> {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    let selecting = services.iter().filter(|(_, facts)| facts.selects_pods());
    let late = selecting.filter(|((namespace, _), _)| {
        let count = counts.entry(namespace).or_default();
        *count += 1;
        *count > SELECTING_MAX
    });
    late.map(|(key, _)| key).collect()
}

/// Writes as they are found.
struct Plan<'a> {
    known: &'a Known,
    /// Slices that stay or are written.
    wanted: BTreeSet<Key>,
    steps: Vec<Step>,
}

impl Plan<'_> {
    /// Has a slice with these contents.
    ///
    /// They are not kept where it has them already.
    fn want(&mut self, key: Key, content: Content) {
        match self.known.own.get(&key) {
            None => self.steps.push(Step::Create(key.clone(), content)),
            // Its type is for ever: it goes, and another one takes its place.
            Some(own) if own.content.address_type != content.address_type => return,
            Some(own) if own.content == content => {}
            Some(own) => {
                let step = Step::Replace(key.clone(), content, Arc::clone(own));
                self.steps.push(step);
            }
        }
        self.wanted.insert(key);
    }

    /// Has a slice of the network for one of the cluster.
    fn mirror(&mut self, (namespace, name): &Key, source: &Content, members: &Members<'_>) {
        let service = (namespace.clone(), source.service.clone());
        let facts = self.known.services.get(&service);
        let Some(facts) = facts.filter(|it| it.endpoints == Origin::Slices) else {
            return;
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
            return;
        }
        let content = Content {
            owner: facts.uid.clone(),
            network: facts.network.clone(),
            is_in_dns: false,
            endpoints,
            ..source.clone()
        };
        self.want((namespace.clone(), format!("{name}{SUFFIX}")), content);
    }

    /// Has the slices of Services that select pods by their annotation.
    fn of_pods(&mut self, members: &Members<'_>) {
        let known = self.known;
        let mut before: HashMap<(&str, &str), Vec<(&Key, &Slice)>> = HashMap::new();
        for (key, slice) in &known.own {
            let service = (key.0.as_str(), slice.content.service.as_str());
            before.entry(service).or_default().push((key, slice));
        }
        let too_many = too_many(&known.services);
        for (key, facts) in &known.services {
            let Origin::Pods(selection) = &facts.endpoints else {
                continue;
            };
            let own = before.remove(&(key.0.as_str(), key.1.as_str()));
            let own = own.unwrap_or_default();
            let Some(pods) = &known.pods else {
                self.wanted
                    .extend(own.into_iter().map(|(key, _)| key.clone()));
                continue;
            };
            if too_many.contains(key) {
                continue;
            }
            let found = select(pods, key, facts, selection, members);
            for (name, content) in divide(key, facts, found, &own) {
                self.want(name, content);
            }
        }
    }
}

/// An endpoint out of a pod, and its ports.
struct Chosen {
    ports: Vec<Port>,
    endpoint: Endpoint,
}

/// Finds the endpoints of a Service among pods, as Kubernetes does for a selector.
fn select(
    pods: &BTreeMap<Key, Arc<PodFacts>>,
    (namespace, service): &Key,
    facts: &ServiceFacts,
    selection: &Selection,
    members: &Members<'_>,
) -> Vec<Chosen> {
    let first = (namespace.clone(), String::new());
    let pods = pods.range(first..);
    let pods = pods.take_while(|((of, _), _)| of == namespace);
    let (mut chosen, mut count) = (Vec::new(), 0);
    for ((_, name), pod) in pods {
        let mut labels = selection.labels.iter();
        if !labels.all(|(key, value)| pod.labels.get(key) == Some(value)) {
            continue;
        }
        count += 1;
        if count > SELECTED_MAX {
            break;
        }
        let ports = ports(selection, pod);
        let hostname = pod.hostname.as_ref();
        let hostname = hostname.filter(|(_, below)| below == service);
        for is_v6 in [false, true] {
            if !selection
                .address_types
                .iter()
                .any(|it| it == address_type(is_v6))
            {
                continue;
            }
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

/// Ports of the endpoints of a slice, and whether their addresses are of IPv6.
type Group = (Vec<Port>, bool);

/// Divides endpoints into slices, each with ports and a type of its own.
///
/// An endpoint stays in the slice in which it was `before`, so that a change is one of a slice. Where ports change, the
/// slices that had others get these: no endpoint is away in between.
fn divide(
    (namespace, service): &Key,
    facts: &ServiceFacts,
    chosen: Vec<Chosen>,
    before: &[(&Key, &Slice)],
) -> Vec<(Key, Content)> {
    let mut groups: BTreeMap<Group, BTreeMap<String, Endpoint>> = BTreeMap::new();
    for Chosen { ports, endpoint } in chosen {
        let is_v6 = endpoint.ip.is_some_and(|ip| ip.is_ipv6());
        let group = groups.entry((ports, is_v6)).or_default();
        group.insert(endpoint.pod.clone(), endpoint);
    }
    let mut spare: BTreeMap<&str, &Slice> = before
        .iter()
        .map(|((_, name), slice)| (name.as_str(), *slice))
        .filter(|(name, slice)| is_numbered(name, service, &slice.content.address_type))
        .collect();
    let mut filled: Vec<(String, Group, Vec<Endpoint>)> = Vec::new();
    for ((ports, is_v6), left) in &mut groups {
        let of_group = spare.iter().filter(|(_, slice)| {
            slice.content.ports == *ports && slice.content.address_type == address_type(*is_v6)
        });
        let of_group: Vec<(&str, &Slice)> = of_group.map(|(name, it)| (*name, *it)).collect();
        for (name, slice) in of_group {
            let there = slice.content.endpoints.iter().take(ENDPOINTS_MAX);
            let kept: Vec<Endpoint> = there.filter_map(|it| left.remove(&it.pod)).collect();
            if !kept.is_empty() {
                spare.remove(name);
                filled.push((name.to_owned(), (ports.clone(), *is_v6), kept));
            }
        }
    }
    for (group, left) in groups {
        let mut rest = left.into_values().peekable();
        let own = filled.iter_mut().filter(|(_, it, _)| *it == group);
        for (.., endpoints) in own {
            let room = ENDPOINTS_MAX.saturating_sub(endpoints.len());
            endpoints.extend(rest.by_ref().take(room));
        }
        while rest.peek().is_some() {
            let of_type =
                |(_, it): &(&&str, &&Slice)| it.content.address_type == address_type(group.1);
            let found = spare.iter().find(of_type).map(|(name, _)| *name);
            let name = if let Some(name) = found {
                spare.remove(name);
                name.to_owned()
            } else {
                let is_free = |name: &str| {
                    before.iter().all(|((_, it), _)| it != name)
                        && filled.iter().all(|(it, ..)| it != name)
                };
                let mut names = (0_u32..).map(|at| numbered(service, address_type(group.1), at));
                let Some(name) = names.find(|name| is_free(name)) else {
                    break;
                };
                name
            };
            filled.push((
                name,
                group.clone(),
                rest.by_ref().take(ENDPOINTS_MAX).collect(),
            ));
        }
    }
    let slices = filled.into_iter().map(|(name, (ports, is_v6), endpoints)| {
        let content = Content {
            service: service.clone(),
            owner: facts.uid.clone(),
            network: facts.network.clone(),
            is_in_dns: facts.is_headless,
            address_type: address_type(is_v6).to_owned(),
            ports,
            endpoints,
            is_exact: true,
        };
        ((namespace.clone(), name), content)
    });
    slices.collect()
}

/// Type of slices with addresses of a family.
const fn address_type(is_v6: bool) -> &'static str {
    if is_v6 { IPV6 } else { IPV4 }
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
