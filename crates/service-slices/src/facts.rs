//! Read what slices of networks are made of: Services, slices, members, pods.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use api::{
    CLUSTER_SLICE_MANAGER, HEADLESS_LABEL, KUBERNETES_SERVICE_NAME_LABEL, MANAGED_BY_LABEL,
    NETWORK_LABEL, PodNetworkEndpointSlice, SELECTOR_ANNOTATION, SERVICE_NAME_LABEL,
    SERVICE_PORTS_MAX, SERVICE_PROXY, SERVICE_PROXY_LABEL, SLICE_ENDPOINTS_MAX, SLICE_MANAGER,
    ServiceObject, label,
};
use cluster::pods::named_ports;
use k8s_openapi::api::core::v1::{ObjectReference, Pod, Service};
use k8s_openapi::api::discovery::v1 as discovery;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt as _;

/// Type of a slice with addresses of IPv4.
pub const IPV4: &str = "IPv4";
/// Type of a slice with addresses of IPv6.
pub const IPV6: &str = "IPv6";
/// The most labels that the selector of an annotation names.
const SELECTOR_MAX: usize = 64;

/// A Service of a network.
#[derive(Debug, Clone, PartialEq)]
pub struct ServiceFacts {
    /// UID of the object.
    pub uid: String,
    /// Name of the network.
    pub network: String,
    /// It has no address: its name in DNS has those of its endpoints.
    pub is_headless: bool,
    /// Origin of its endpoints.
    pub endpoints: Origin,
    /// Parts of it that are not obeyed, each with the remedy.
    pub problems: Vec<String>,
}

/// Origin of a Service's endpoints.
#[derive(Debug, Clone, PartialEq)]
pub enum Origin {
    /// Slices that Kubernetes makes of its selector.
    Slices,
    /// Pods that its annotation selects.
    Pods(Selection),
    /// Slices that users write.
    Users,
}

/// Pods that are endpoints, and at which ports.
#[derive(Debug, Clone, PartialEq)]
pub struct Selection {
    /// Labels that they have.
    pub labels: BTreeMap<String, String>,
    /// Pods that are not ready are endpoints as those that are.
    pub publishes_unready: bool,
    /// Types of the addresses of the Service, of [`IPV4`] and [`IPV6`].
    pub address_types: Vec<String>,
    /// Ports of the Service.
    pub ports: Vec<WantedPort>,
}

/// A port of a Service, and how a pod's is found.
#[derive(Debug, Clone, PartialEq)]
pub struct WantedPort {
    /// Its name; empty for an only one.
    pub name: Option<String>,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// Protocol of the application.
    pub app_protocol: Option<String>,
    /// The number, or the name of a port of the pod.
    pub target: Target,
}

/// A port of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// By its number.
    Number(u16),
    /// By its name.
    Name(String),
}

impl ServiceFacts {
    /// True for one whose endpoints are pods that its annotation selects.
    pub const fn selects_pods(&self) -> bool {
        matches!(self.endpoints, Origin::Pods(_))
    }

    /// Reads a Service with the label of a network.
    ///
    /// `None` for one that is being deleted.
    pub fn read(object: &Service) -> Option<Arc<Self>> {
        let network = label(&object.metadata, NETWORK_LABEL)?;
        if object.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let spec = object.spec.as_ref()?;
        let mut problems = ServiceObject::read(object)?.problems;
        let is_headless = spec.cluster_ip.as_deref() == Some("None");
        let has_selector = spec.selector.as_ref().is_some_and(|it| !it.is_empty());
        let written = object.annotations().get(SELECTOR_ANNOTATION);
        let endpoints = match written {
            _ if spec.type_.as_deref() == Some("ExternalName") => Origin::Users,
            Some(_) if has_selector => {
                problems.push(format!(
                    "the annotation {SELECTOR_ANNOTATION} is not read, as there is spec.selector; remove one of the two"
                ));
                Origin::Slices
            }
            Some(text) => match selector(text) {
                Ok(labels) => Origin::Pods(Selection {
                    labels,
                    publishes_unready: spec.publish_not_ready_addresses == Some(true),
                    address_types: spec.ip_families.clone().unwrap_or_default(),
                    ports: wanted_ports(spec),
                }),
                Err(problem) => {
                    problems.push(format!(
                        "the annotation {SELECTOR_ANNOTATION} {problem}; write labels of pods, as app=web,tier=front"
                    ));
                    Origin::Users
                }
            },
            None if has_selector => Origin::Slices,
            None => Origin::Users,
        };
        if matches!(endpoints, Origin::Pods(_)) && spec.traffic_distribution.is_some() {
            problems.push(format!(
                "spec.trafficDistribution is for endpoints of spec.selector, not of the annotation {SELECTOR_ANNOTATION}; remove it"
            ));
        }
        if is_headless && endpoints == Origin::Slices {
            problems.push(format!(
                "its name in DNS has the addresses of the cluster's network; for those of network {network} make the Service \
                 anew with the annotation {SELECTOR_ANNOTATION} in place of spec.selector"
            ));
        }
        if !is_headless && !object.labels().contains_key(SERVICE_PROXY_LABEL) {
            problems.push(format!(
                "kube-proxy has it, too, and leads to endpoints on the cluster's network; set the label {SERVICE_PROXY_LABEL}: {SERVICE_PROXY}"
            ));
        }
        Some(Arc::new(Self {
            uid: object.uid().unwrap_or_default(),
            network: network.to_owned(),
            is_headless,
            endpoints,
            problems,
        }))
    }
}

/// Reads `key=value,key=value`.
fn selector(text: &str) -> Result<BTreeMap<String, String>, String> {
    let mut labels = BTreeMap::new();
    for term in text.split(',') {
        let Some((key, value)) = term.trim().split_once('=') else {
            return Err("has a term without =".to_owned());
        };
        if key.trim().is_empty() || value.contains(['=', '!', ' ']) || key.contains('!') {
            return Err("has a term that is no key=value".to_owned());
        }
        labels.insert(key.trim().to_owned(), value.trim().to_owned());
        if labels.len() > SELECTOR_MAX {
            return Err(format!("names more than {SELECTOR_MAX} labels"));
        }
    }
    Ok(labels)
}

fn wanted_ports(spec: &k8s_openapi::api::core::v1::ServiceSpec) -> Vec<WantedPort> {
    let ports = spec.ports.iter().flatten().take(SERVICE_PORTS_MAX);
    let ports = ports.filter_map(|port| {
        let target = match &port.target_port {
            Some(IntOrString::String(name)) => Target::Name(name.clone()),
            Some(IntOrString::Int(number)) if *number != 0 => {
                Target::Number(u16::try_from(*number).ok()?)
            }
            _ => Target::Number(u16::try_from(port.port).ok()?),
        };
        Some(WantedPort {
            name: port.name.clone(),
            protocol: port.protocol.clone().unwrap_or_else(|| "TCP".to_owned()),
            app_protocol: port.app_protocol.clone(),
            target,
        })
    });
    ports.collect()
}

/// A slice of a Service: of Kubernetes', or of the controller's own.
#[derive(Debug, Clone, PartialEq)]
pub struct Slice {
    /// Version of the object.
    pub version: String,
    /// UID of the object.
    pub uid: String,
    /// Its contents.
    pub content: Content,
}

/// Contents of a slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    /// Name of the Service.
    pub service: String,
    /// UID of the Service.
    pub owner: String,
    /// Name of the network.
    pub network: String,
    /// DNS tells these addresses by the name of the Service.
    pub is_in_dns: bool,
    /// Type of the addresses, which never changes: [`IPV4`] or [`IPV6`].
    pub address_type: String,
    /// Ports of all endpoints.
    pub ports: Vec<Port>,
    /// The endpoints.
    pub endpoints: Vec<Endpoint>,
    /// The object says this and nothing else.
    pub is_exact: bool,
}

/// A port of a slice.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Port {
    /// Its name.
    pub name: Option<String>,
    /// Its protocol.
    pub protocol: Option<String>,
    /// Its number.
    pub number: Option<i32>,
    /// Protocol of the application.
    pub app_protocol: Option<String>,
}

/// An endpoint of a slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Its address, where it has one on the network.
    pub ip: Option<IpAddr>,
    /// Name of its pod, which is in the namespace of the slice.
    pub pod: String,
    /// UID of its pod.
    pub pod_uid: Option<String>,
    /// Name of its node.
    pub node: String,
    /// Zone of its node.
    pub zone: Option<String>,
    /// Name of its own in DNS, below the Service's.
    pub hostname: Option<String>,
    /// Its conditions.
    pub conditions: Conditions,
    /// Clients that it is for.
    pub hints: Hints,
}

/// Conditions of an endpoint, as they are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conditions {
    /// New connections may go there.
    pub ready: Option<bool>,
    /// It answers.
    pub serving: Option<bool>,
    /// Its pod is about to end.
    pub terminating: Option<bool>,
}

/// Clients that an endpoint is for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hints {
    /// Names of zones.
    pub zones: Vec<String>,
    /// Names of nodes.
    pub nodes: Vec<String>,
}

/// A slice that is followed, and whose it is.
#[derive(Debug, Clone, PartialEq)]
pub enum Followed {
    /// Kubernetes has made it of the selector of a Service.
    OfCluster(Arc<Slice>),
    /// The controller has made it.
    Own(Arc<Slice>),
}

impl Followed {
    /// Reads a slice with the label of a network.
    ///
    /// `None` for one of users, and for one of names.
    pub fn read(object: &discovery::EndpointSlice) -> Option<Self> {
        let metadata = &object.metadata;
        let manager = label(metadata, MANAGED_BY_LABEL)?;
        let (of_cluster, service) = match manager {
            CLUSTER_SLICE_MANAGER => (true, label(metadata, KUBERNETES_SERVICE_NAME_LABEL)?),
            // One without the name of a Service is of none, and is removed.
            SLICE_MANAGER => (
                false,
                label(metadata, SERVICE_NAME_LABEL).unwrap_or_default(),
            ),
            _ => return None,
        };
        if of_cluster && ![IPV4, IPV6].contains(&object.address_type.as_str()) {
            return None;
        }
        let owners = metadata.owner_references.iter().flatten();
        let mut owner = owners.filter(|it| it.kind == "Service").map(|it| &it.uid);
        let endpoints = object.endpoints.iter().flatten().take(SLICE_ENDPOINTS_MAX);
        let mut content = Content {
            service: service.to_owned(),
            owner: owner.next().cloned().unwrap_or_default(),
            network: label(metadata, NETWORK_LABEL)?.to_owned(),
            is_in_dns: label(metadata, KUBERNETES_SERVICE_NAME_LABEL).is_some(),
            address_type: object.address_type.clone(),
            ports: object.ports.iter().flatten().map(Port::read).collect(),
            endpoints: endpoints.filter_map(Endpoint::read).collect(),
            is_exact: true,
        };
        content.is_exact = of_cluster || content.is_all_of(object);
        let slice = Arc::new(Slice {
            version: object.resource_version().unwrap_or_default(),
            uid: object.uid().unwrap_or_default(),
            content,
        });
        Some(if of_cluster {
            Self::OfCluster(slice)
        } else {
            Self::Own(slice)
        })
    }
}

impl Port {
    fn read(port: &discovery::EndpointPort) -> Self {
        Self {
            // The API server writes an empty name where there is none.
            name: port.name.clone().filter(|it| !it.is_empty()),
            protocol: port.protocol.clone(),
            number: port.port,
            app_protocol: port.app_protocol.clone(),
        }
    }

    fn write(&self) -> discovery::EndpointPort {
        discovery::EndpointPort {
            app_protocol: self.app_protocol.clone(),
            name: Some(self.name.clone().unwrap_or_default()),
            port: self.number,
            protocol: self.protocol.clone(),
        }
    }
}

impl Endpoint {
    /// Reads an endpoint; `None` for one that is no pod of a node.
    fn read(endpoint: &discovery::Endpoint) -> Option<Self> {
        let target = endpoint.target_ref.as_ref();
        let target = target.filter(|it| it.kind.as_deref() == Some("Pod"))?;
        let conditions = endpoint.conditions.clone().unwrap_or_default();
        let hints = endpoint.hints.as_ref();
        let zones = hints
            .and_then(|it| it.for_zones.as_ref())
            .into_iter()
            .flatten();
        let nodes = hints
            .and_then(|it| it.for_nodes.as_ref())
            .into_iter()
            .flatten();
        Some(Self {
            ip: endpoint.addresses.first().and_then(|it| it.parse().ok()),
            pod: target.name.clone()?,
            pod_uid: target.uid.clone(),
            node: endpoint.node_name.clone()?,
            zone: endpoint.zone.clone(),
            hostname: endpoint.hostname.clone(),
            conditions: Conditions {
                ready: conditions.ready,
                serving: conditions.serving,
                terminating: conditions.terminating,
            },
            hints: Hints {
                zones: zones.map(|it| it.name.clone()).collect(),
                nodes: nodes.map(|it| it.name.clone()).collect(),
            },
        })
    }

    fn write(&self, namespace: &str) -> discovery::Endpoint {
        let zones = self
            .hints
            .zones
            .iter()
            .map(|name| discovery::ForZone { name: name.clone() });
        let nodes = self
            .hints
            .nodes
            .iter()
            .map(|name| discovery::ForNode { name: name.clone() });
        let hints = discovery::EndpointHints {
            for_zones: some(zones.collect()),
            for_nodes: some(nodes.collect()),
        };
        discovery::Endpoint {
            addresses: self.ip.iter().map(ToString::to_string).collect(),
            conditions: Some(discovery::EndpointConditions {
                ready: self.conditions.ready,
                serving: self.conditions.serving,
                terminating: self.conditions.terminating,
            }),
            hints: (self.hints != Hints::default()).then_some(hints),
            hostname: self.hostname.clone(),
            node_name: Some(self.node.clone()),
            target_ref: Some(ObjectReference {
                kind: Some("Pod".to_owned()),
                namespace: Some(namespace.to_owned()),
                name: Some(self.pod.clone()),
                uid: self.pod_uid.clone(),
                ..ObjectReference::default()
            }),
            zone: self.zone.clone(),
            ..discovery::Endpoint::default()
        }
    }
}

impl Content {
    /// True when an object that was read has nothing more that clients go by.
    fn is_all_of(&self, object: &discovery::EndpointSlice) -> bool {
        let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
        let own = self.write((namespace, ""), None);
        let all = object.endpoints.as_deref().unwrap_or_default();
        let is_plain = |it: &discovery::Endpoint| {
            let target = it.target_ref.as_ref();
            it.addresses.len() == 1
                && target.and_then(|it| it.namespace.as_deref()) == Some(namespace)
        };
        own.metadata.labels == object.metadata.labels
            && all.len() == self.endpoints.len()
            && all.iter().all(is_plain)
    }

    /// Makes the object with these contents.
    ///
    /// `replaced` is the one that it takes the place of.
    pub fn write(
        &self,
        (namespace, name): (&str, &str),
        replaced: Option<&Slice>,
    ) -> discovery::EndpointSlice {
        let mut labels = BTreeMap::from([
            (NETWORK_LABEL.to_owned(), self.network.clone()),
            (SERVICE_NAME_LABEL.to_owned(), self.service.clone()),
            (MANAGED_BY_LABEL.to_owned(), SLICE_MANAGER.to_owned()),
        ]);
        if self.is_in_dns {
            labels.insert(
                KUBERNETES_SERVICE_NAME_LABEL.to_owned(),
                self.service.clone(),
            );
            labels.insert(HEADLESS_LABEL.to_owned(), String::new());
        } else {
            // kube-proxy does not even look at it.
            labels.insert(SERVICE_PROXY_LABEL.to_owned(), SERVICE_PROXY.to_owned());
        }
        discovery::EndpointSlice {
            address_type: self.address_type.clone(),
            endpoints: Some(
                self.endpoints
                    .iter()
                    .map(|it| it.write(namespace))
                    .collect(),
            ),
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                namespace: Some(namespace.to_owned()),
                labels: Some(labels),
                owner_references: Some(vec![OwnerReference {
                    api_version: "v1".to_owned(),
                    kind: "Service".to_owned(),
                    name: self.service.clone(),
                    uid: self.owner.clone(),
                    controller: Some(true),
                    block_owner_deletion: None,
                }]),
                resource_version: replaced.map(|it| it.version.clone()),
                uid: replaced.map(|it| it.uid.clone()),
                ..ObjectMeta::default()
            },
            ports: Some(self.ports.iter().map(Port::write).collect()),
        }
    }
}

/// Members of a network that one node has, as far as they are pods.
#[derive(Debug, Clone, PartialEq)]
pub struct MemberFacts {
    /// Name of the network.
    pub network: String,
    /// Name of the node.
    pub node: String,
    /// Namespace and name of each pod, as `shop/web`, and its addresses.
    pub pods: Vec<(String, Vec<IpAddr>)>,
}

impl MemberFacts {
    /// Reads a slice of members; `None` for one without pods.
    ///
    /// One that agents refuse is none: an address that no endpoint may have would keep all others of its slices from
    /// being written.
    pub fn read(object: &PodNetworkEndpointSlice) -> Option<Arc<Self>> {
        let slice = object.checked().ok()?;
        let pods = slice.endpoints.into_iter().filter_map(|endpoint| {
            let pod = endpoint.pod?.full_name()?.to_owned();
            Some((pod, endpoint.ips))
        });
        let pods: Vec<_> = pods.collect();
        (!pods.is_empty()).then(|| {
            Arc::new(Self {
                network: slice.network,
                node: slice.node,
                pods,
            })
        })
    }
}

/// A pod that an annotation may select.
#[derive(Debug, Clone, PartialEq)]
pub struct PodFacts {
    /// Its UID.
    pub uid: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Name of its node.
    pub node: String,
    /// Its condition `Ready` is true.
    pub is_ready: bool,
    /// It is being deleted.
    pub is_terminating: bool,
    /// Its name in DNS, and the Service below which it has that.
    pub hostname: Option<(String, String)>,
    /// Name, protocol and number of each named port.
    pub ports: Vec<(String, String, u16)>,
}

impl PodFacts {
    /// Reads a pod.
    ///
    /// `None` for one without a node or labels, and for one whose containers have ended.
    pub fn read(object: &Pod) -> Option<Arc<Self>> {
        let spec = object.spec.as_ref()?;
        let status = object.status.as_ref();
        let phase = status.and_then(|it| it.phase.as_deref());
        if object.labels().is_empty() || matches!(phase, Some("Succeeded" | "Failed")) {
            return None;
        }
        let mut conditions = status
            .and_then(|it| it.conditions.as_ref())
            .into_iter()
            .flatten();
        let ports = named_ports(spec);
        Some(Arc::new(Self {
            uid: object.uid().unwrap_or_default(),
            labels: object.labels().clone(),
            node: spec.node_name.clone()?,
            is_ready: conditions.any(|it| it.type_ == "Ready" && it.status == "True"),
            is_terminating: object.metadata.deletion_timestamp.is_some(),
            hostname: spec.hostname.clone().zip(spec.subdomain.clone()),
            ports: ports
                .map(|(name, protocol, number)| (name.to_owned(), protocol.to_owned(), number))
                .collect(),
        }))
    }
}

fn some<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}
