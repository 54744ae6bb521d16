//! Services of networks and their endpoints, as they are written.
//!
//! A Service with the label `podnet.dev/network` belongs to the PodNetwork of that name; all others are the cluster's
//! ([`OF_CLUSTER`]), and so of networks that the nodes route for. Its endpoints are those of
//! EndpointSlices with the same label, which name the Service by `podnet.dev/service-name`, as the controller writes them, or by
//! `kubernetes.io/service-name`, as users do for a Service without a selector.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1 as discovery;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::endpoint_slice::NETWORK_LABEL;
use crate::listed::{PROBLEM_BYTES, PROBLEMS_MAX, Shortened};

/// Network of Services that name none: the cluster's own.
///
/// No PodNetwork has this name.
pub const OF_CLUSTER: &str = "";
/// Label of an EndpointSlice that the controller writes: the name of its Service.
pub const SERVICE_NAME_LABEL: &str = "podnet.dev/service-name";
/// Label of an EndpointSlice: the name of its Service, as Kubernetes writes it.
pub const KUBERNETES_SERVICE_NAME_LABEL: &str = "kubernetes.io/service-name";
/// Label of a Service that kube-proxy leaves alone: the proxy that has it.
pub const SERVICE_PROXY_LABEL: &str = "service.kubernetes.io/service-proxy-name";
/// Value of that label, for podnet.
pub const SERVICE_PROXY: &str = "podnet.dev";
/// Label of an EndpointSlice: the controller that writes it.
pub const MANAGED_BY_LABEL: &str = "endpointslice.kubernetes.io/managed-by";
/// Value of that label in slices of podnet's controller.
pub const SLICE_MANAGER: &str = "podnet.dev";
/// Value of that label in slices that Kubernetes makes of a Service's selector.
pub const CLUSTER_SLICE_MANAGER: &str = "endpointslice-controller.k8s.io";
/// Label of a slice whose Service has no address of its own.
pub const HEADLESS_LABEL: &str = "service.kubernetes.io/headless";
/// Annotation of a Service without selector: labels of its endpoints' pods.
///
/// They are written as `app=web,tier=front`, and the addresses are those of the Service's network.
pub const SELECTOR_ANNOTATION: &str = "podnet.dev/selector";
/// The most ports of a Service that are read.
pub const SERVICE_PORTS_MAX: usize = 100;
/// The most endpoints of a slice, as the API server allows.
pub const SLICE_ENDPOINTS_MAX: usize = 1000;
/// The most zones or nodes for which an endpoint is, as the API server allows.
const HINTS_MAX: usize = 8;
/// Seconds of affinity where a Service says no number.
const AFFINITY_S: u32 = 10_800;

/// A protocol that Services of networks have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ServiceProtocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl ServiceProtocol {
    /// Reads the word of a manifest; TCP where there is none.
    fn read(word: Option<&str>) -> Option<Self> {
        match word {
            None | Some("TCP") => Some(Self::Tcp),
            Some("UDP") => Some(Self::Udp),
            Some(_) => None,
        }
    }

    /// Its number as an IP protocol.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
        }
    }

    /// The word in a manifest.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
        }
    }
}

impl fmt::Display for ServiceProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A port of a Service, or of a slice.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServicePort {
    /// Its name; empty for an only one.
    pub name: String,
    /// Its protocol.
    pub protocol: ServiceProtocol,
    /// Its number.
    pub port: u16,
}

/// A Service of a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceObject {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Name of the network, or [`OF_CLUSTER`].
    pub network: String,
    /// Its addresses; none for a headless one.
    pub ips: Vec<IpAddr>,
    /// Its ports.
    pub ports: Vec<ServicePort>,
    /// Seconds for which a client keeps its endpoint; 0 for no affinity.
    pub affinity_s: u32,
    /// Clients reach endpoints of their own node only (`internalTrafficPolicy: Local`).
    pub local: bool,
    /// Parts of it that are not obeyed, each with the remedy.
    pub problems: Vec<String>,
}

impl ServiceObject {
    /// Reads an object of the API server or of a file.
    ///
    /// `None` for one that another proxy has. The cluster's own have no problems: what podnet does not serve of
    /// them, the cluster's proxy does.
    #[must_use]
    pub fn read(object: &core::Service) -> Option<Self> {
        let network = label(&object.metadata, NETWORK_LABEL);
        if network.is_none() && is_left_alone(&object.metadata) {
            return None;
        }
        let network = network.unwrap_or(OF_CLUSTER);
        let spec = object.spec.clone().unwrap_or_default();
        let mut problems = Vec::new();
        let kind = spec.type_.as_deref().unwrap_or("ClusterIP");
        match kind {
            "ClusterIP" => {}
            "ExternalName" => problems.push(
                "type ExternalName is a name only, which DNS tells: remove the label podnet.dev/network".to_owned(),
            ),
            other => problems.push(format!(
                "type {other} is served as ClusterIP only: nothing outside of the network reaches it"
            )),
        }
        let written = spec
            .cluster_ips
            .or_else(|| spec.cluster_ip.map(|ip| vec![ip]));
        let mut ips = Vec::new();
        for text in written.unwrap_or_default() {
            match text.parse() {
                Ok(ip) => ips.push(ip),
                Err(_) if text == "None" || text.is_empty() => {}
                Err(_) => note(&mut problems, || {
                    format!("clusterIP {text} is no address; remove it")
                }),
            }
        }
        let affinity = match spec.session_affinity.as_deref() {
            Some("ClientIP") => {
                let config = spec.session_affinity_config.and_then(|it| it.client_ip);
                let seconds = config.and_then(|it| it.timeout_seconds);
                seconds
                    .and_then(|it| u32::try_from(it).ok())
                    .unwrap_or(AFFINITY_S)
            }
            _ => 0,
        };
        let ports = spec.ports.unwrap_or_default().into_iter().map(|port| {
            let named = port.name.unwrap_or_default();
            (named, port.protocol, Some(port.port))
        });
        Some(Self {
            namespace: object.metadata.namespace.clone().unwrap_or_default(),
            name: object.metadata.name.clone().unwrap_or_default(),
            network: network.to_owned(),
            ips: if kind == "ExternalName" {
                Vec::new()
            } else {
                ips
            },
            ports: read_ports(ports, &mut problems),
            affinity_s: affinity,
            local: spec.internal_traffic_policy.as_deref() == Some("Local"),
            problems: of_podnet(network, problems),
        })
    }
}

impl fmt::Display for ServiceObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Service {}/{}", self.namespace, self.name)
    }
}

/// Endpoints of a Service on a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceSlice {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Name of the network, or [`OF_CLUSTER`].
    pub network: String,
    /// Name of the Service.
    pub service: String,
    /// Ports of all endpoints.
    pub ports: Vec<ServicePort>,
    /// The endpoints.
    pub endpoints: Vec<ServiceEndpoint>,
    /// Parts of it that are not obeyed, each with the remedy.
    pub problems: Vec<String>,
}

/// An endpoint of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceEndpoint {
    /// Its address: the first one of the list, as all of them are the same endpoint.
    pub ip: IpAddr,
    /// New connections may go there.
    pub ready: bool,
    /// It answers, if only until it ends.
    pub serving: bool,
    /// Its pod is about to end.
    pub terminating: bool,
    /// Name of its node, if any.
    pub node: Option<String>,
    /// Zones whose clients it is for; none where it is for all.
    pub for_zones: Vec<String>,
    /// Nodes whose clients it is for; none where it is for all.
    pub for_nodes: Vec<String>,
}

impl ServiceSlice {
    /// Reads an object of the API server or of a file.
    ///
    /// `None` for one that belongs to no Service, or has addresses of another network than its Service.
    #[must_use]
    pub fn read(object: &discovery::EndpointSlice) -> Option<Self> {
        let metadata = &object.metadata;
        let network = label(metadata, NETWORK_LABEL).unwrap_or(OF_CLUSTER);
        // The controller's own say which Service they are of by that label alone. Slices of the cluster's
        // controller have the labels of their Service, and addresses of another network.
        let is_others = match network {
            OF_CLUSTER => is_left_alone(metadata),
            _ => is_of_cluster(metadata),
        };
        if is_others {
            return None;
        }
        let own = label(metadata, SERVICE_NAME_LABEL).filter(|_| network != OF_CLUSTER);
        let service = match own {
            Some(name) => name,
            None => label(metadata, KUBERNETES_SERVICE_NAME_LABEL)?,
        };
        let mut problems = Vec::new();
        let ports = object.ports.iter().flatten().map(|port| {
            let named = port.name.clone().unwrap_or_default();
            (named, port.protocol.clone(), port.port)
        });
        let ports = read_ports(ports, &mut problems);
        let mut endpoints = Vec::new();
        for endpoint in object.endpoints.iter().flatten().take(SLICE_ENDPOINTS_MAX) {
            let Some(text) = endpoint.addresses.first() else {
                continue;
            };
            let Ok(ip) = text.parse() else {
                let text = Shortened(text, PROBLEM_BYTES);
                note(&mut problems, || {
                    format!("{text} is no address of an endpoint; remove it")
                });
                continue;
            };
            let conditions = endpoint.conditions.clone().unwrap_or_default();
            let ready = conditions.ready.unwrap_or(true);
            endpoints.push(ServiceEndpoint {
                ip,
                ready,
                serving: conditions.serving.unwrap_or(ready),
                terminating: conditions.terminating.unwrap_or(false),
                node: endpoint.node_name.clone(),
                for_zones: hinted(&endpoint.hints, |it| it.for_zones.as_ref(), |it| &it.name),
                for_nodes: hinted(&endpoint.hints, |it| it.for_nodes.as_ref(), |it| &it.name),
            });
        }
        Some(Self {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            network: network.to_owned(),
            service: service.to_owned(),
            ports,
            endpoints,
            problems: of_podnet(network, problems),
        })
    }
}

impl fmt::Display for ServiceSlice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EndpointSlice {}/{}", self.namespace, self.name)
    }
}

/// Returns the problems that are podnet's to tell.
///
/// Of the cluster's own objects others tell.
fn of_podnet(network: &str, problems: Vec<String>) -> Vec<String> {
    if network == OF_CLUSTER {
        Vec::new()
    } else {
        problems
    }
}

/// Returns the value of a label; `None` for an empty one.
#[must_use]
pub fn label<'a>(metadata: &'a ObjectMeta, name: &str) -> Option<&'a str> {
    let labels: &BTreeMap<String, String> = metadata.labels.as_ref()?;
    labels
        .get(name)
        .map(String::as_str)
        .filter(|it| !it.is_empty())
}

/// Reads the names of a list of hints, as far as a slice may have them.
fn hinted<T>(
    hints: &Option<discovery::EndpointHints>,
    list: impl Fn(&discovery::EndpointHints) -> Option<&Vec<T>>,
    name: impl Fn(&T) -> &String,
) -> Vec<String> {
    let all = hints.as_ref().and_then(list).into_iter().flatten();
    all.take(HINTS_MAX).map(|it| name(it).clone()).collect()
}

/// True for a Service, or a slice of one, that the cluster's proxy leaves alone.
///
/// Whatever the value of the label is.
fn is_left_alone(metadata: &ObjectMeta) -> bool {
    let labels = metadata.labels.as_ref();
    let has = |name| labels.is_some_and(|labels| labels.contains_key(name));
    has(SERVICE_PROXY_LABEL) || has(HEADLESS_LABEL)
}

/// True for a slice of the cluster's own controllers.
///
/// It has addresses of the cluster's network.
fn is_of_cluster(metadata: &ObjectMeta) -> bool {
    let manager = label(metadata, MANAGED_BY_LABEL);
    manager.is_some_and(|it| it.ends_with(".k8s.io"))
}

/// Notes a problem, unless there are enough to mend.
fn note(problems: &mut Vec<String>, problem: impl FnOnce() -> String) {
    if problems.len() < PROBLEMS_MAX {
        problems.push(problem());
    }
}

/// Reads ports: name, protocol and number of each.
fn read_ports(
    written: impl Iterator<Item = (String, Option<String>, Option<i32>)>,
    problems: &mut Vec<String>,
) -> Vec<ServicePort> {
    let mut ports: Vec<ServicePort> = Vec::new();
    for (name, protocol, number) in written.take(SERVICE_PORTS_MAX) {
        let Some(protocol) = ServiceProtocol::read(protocol.as_deref()) else {
            note(problems, || {
                format!(
                    "port {name} has a protocol other than TCP and UDP and is not served; remove it"
                )
            });
            continue;
        };
        let Some(port) = number
            .and_then(|it| u16::try_from(it).ok())
            .filter(|it| *it != 0)
        else {
            note(problems, || {
                format!("port {name} has no number of 1 to 65535; write one")
            });
            continue;
        };
        ports.push(ServicePort {
            name,
            protocol,
            port,
        });
    }
    ports
}

#[cfg(test)]
mod tests;
