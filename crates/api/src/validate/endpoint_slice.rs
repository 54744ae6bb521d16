//! Validates slices of endpoints.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use k8s_openapi::jiff::Timestamp;

use super::{
    Faults, FieldErrors, FieldProblem, NetworkId, network::unicast_address, parse_address,
};
use crate::{
    endpoint_slice::{
        ENDPOINT_IPS_MAX, ENDPOINT_LABELS_MAX, ENDPOINTS_MAX, PodNetworkEndpointSlice,
        SliceEndpoint,
    },
    mac::MacAddr,
    meta::{NameError, check_label, check_subdomain},
};

/// The most bytes of a label's key, and of its value.
const LABEL_TEXT_MAX: usize = 317;

/// A slice whose every field is right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointSlice {
    /// Name of the `PodNetwork`.
    pub network: String,
    /// Its number.
    pub id: NetworkId,
    /// Name of the node.
    pub node: String,
    /// Addresses at which tunnels reach the node; one or two, of different families.
    pub vteps: Vec<IpAddr>,
    /// At least one, no two with one MAC address.
    pub endpoints: Vec<Endpoint>,
}

/// One member of a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Its MAC address, of one interface.
    pub mac: MacAddr,
    /// Its addresses.
    pub ips: Vec<IpAddr>,
    /// Since when its node claims them.
    pub since: Timestamp,
    /// Its pod, where its node says so.
    pub pod: Option<Arc<EndpointPod>>,
}

/// The pod of a member, as its node says; shared by all who keep the member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointPod {
    /// Namespace and name with a slash between; empty where they are not known.
    name: Box<str>,
    labels: BTreeMap<String, String>,
    of_node: bool,
}

impl EndpointPod {
    /// A pod by namespace and name, as far as they are known, with these labels.
    #[must_use]
    pub fn new(name: Option<(&str, &str)>, labels: BTreeMap<String, String>) -> Self {
        let name = name.map(|(namespace, name)| format!("{namespace}/{name}"));
        Self {
            name: name.unwrap_or_default().into_boxed_str(),
            labels,
            of_node: false,
        }
    }

    /// No pod: the member is the port that its node itself has.
    #[must_use]
    pub fn none_but_the_node() -> Self {
        Self {
            of_node: true,
            ..Self::default()
        }
    }

    /// True for a member that is the port of its node.
    #[must_use]
    pub const fn is_of_node(&self) -> bool {
        self.of_node
    }

    /// Namespace and name with a slash between.
    #[must_use]
    pub fn full_name(&self) -> Option<&str> {
        (!self.name.is_empty()).then_some(&*self.name)
    }

    /// Namespace and name.
    #[must_use]
    pub fn key(&self) -> Option<(&str, &str)> {
        self.name.split_once('/')
    }

    /// Labels; none in a cluster, which knows them.
    #[must_use]
    pub const fn labels(&self) -> &BTreeMap<String, String> {
        &self.labels
    }
}

impl PodNetworkEndpointSlice {
    /// Checks the slice as the API server does; files come from elsewhere.
    ///
    /// # Errors
    /// Every field that is wrong, with what to write instead.
    pub fn checked(&self) -> Result<EndpointSlice, FieldErrors> {
        let spec = &self.spec;
        let mut faults = Faults::default();
        for (path, name) in [("spec.network", &spec.network), ("spec.node", &spec.node)] {
            let checked = check_subdomain(name).map_err(FieldProblem::from);
            faults.take(path, checked);
        }
        let found = spec.network_id;
        let id = u32::try_from(found).ok().and_then(NetworkId::new);
        let id = faults.take(
            "spec.networkID",
            id.ok_or(FieldProblem::NetworkIdRange { found }),
        );
        let vteps = vteps(&mut faults, &spec.vteps);
        let endpoints = endpoints(&mut faults, &spec.endpoints);
        let Some(id) = id else {
            return Err(FieldErrors(faults.0));
        };
        faults.finish(EndpointSlice {
            network: spec.network.clone(),
            id,
            node: spec.node.clone(),
            vteps,
            endpoints,
        })
    }
}

fn vteps(faults: &mut Faults, written: &[String]) -> Vec<IpAddr> {
    let mut vteps: Vec<IpAddr> = Vec::new();
    for (index, text) in written.iter().enumerate() {
        let path = format!("spec.vteps[{index}]");
        let address = parse_address(text).and_then(unicast_address);
        let Some(address) = faults.take(path.as_str(), address) else {
            continue;
        };
        if vteps.iter().any(|it| it.is_ipv4() == address.is_ipv4()) {
            faults.push(path, FieldProblem::SecondOfFamily { found: address });
        } else {
            vteps.push(address);
        }
    }
    if written.is_empty() {
        faults.push(
            "spec.vteps",
            FieldProblem::Count {
                min: 1,
                max: 2,
                found: 0,
            },
        );
    }
    vteps
}

fn endpoints(faults: &mut Faults, written: &[SliceEndpoint]) -> Vec<Endpoint> {
    if !(1..=ENDPOINTS_MAX).contains(&written.len()) {
        let problem = FieldProblem::Count {
            min: 1,
            max: ENDPOINTS_MAX,
            found: written.len(),
        };
        faults.push("spec.endpoints", problem);
        return Vec::new();
    }
    let mut macs = BTreeSet::new();
    let mut endpoints = Vec::with_capacity(written.len());
    for (index, endpoint) in written.iter().enumerate() {
        let path = |field: &str| format!("spec.endpoints[{index}].{field}");
        let mac = endpoint.mac.parse::<MacAddr>();
        let mac = mac.map_err(FieldProblem::BadMac);
        let mac = mac.and_then(|mac| match mac {
            mac if !mac.is_unicast() => Err(FieldProblem::MacNotUnicast { found: mac }),
            mac if !macs.insert(mac) => Err(FieldProblem::SecondMac { found: mac }),
            mac => Ok(mac),
        });
        let mac = faults.take(path("mac"), mac);
        if endpoint.ips.len() > ENDPOINT_IPS_MAX {
            let problem = FieldProblem::Count {
                min: 0,
                max: ENDPOINT_IPS_MAX,
                found: endpoint.ips.len(),
            };
            faults.push(path("ips"), problem);
            continue;
        }
        let mut ips = Vec::with_capacity(endpoint.ips.len());
        for (place, text) in endpoint.ips.iter().enumerate() {
            let address = parse_address(text).and_then(unicast_address);
            ips.extend(faults.take(path(&format!("ips[{place}]")), address));
        }
        let pod = pod(faults, endpoint, path);
        endpoints.extend(mac.map(|mac| Endpoint {
            mac,
            ips,
            since: endpoint.since.0,
            pod,
        }));
    }
    endpoints
}

fn pod(
    faults: &mut Faults,
    endpoint: &SliceEndpoint,
    path: impl Fn(&str) -> String,
) -> Option<Arc<EndpointPod>> {
    if endpoint.of_node {
        return Some(Arc::new(EndpointPod::none_but_the_node()));
    }
    if endpoint.pod.is_none() && endpoint.labels.is_empty() {
        return None;
    }
    if let Some(text) = &endpoint.pod {
        let (namespace, name) = text.split_once('/').unwrap_or(("", text));
        let checked = check_label(namespace).and_then(|()| check_subdomain(name));
        faults.take(path("pod"), checked.map_err(FieldProblem::from));
    }
    if endpoint.labels.len() > ENDPOINT_LABELS_MAX {
        let problem = FieldProblem::Count {
            min: 0,
            max: ENDPOINT_LABELS_MAX,
            found: endpoint.labels.len(),
        };
        faults.push(path("labels"), problem);
        return None;
    }
    for (key, value) in &endpoint.labels {
        for text in [key, value] {
            if text.len() > LABEL_TEXT_MAX {
                let problem = NameError::TooLong {
                    name: text.clone(),
                    max: LABEL_TEXT_MAX,
                };
                faults.push(path("labels"), problem.into());
                return None;
            }
        }
    }
    let key = endpoint
        .pod
        .as_deref()
        .and_then(|text| text.split_once('/'));
    Some(Arc::new(EndpointPod::new(key, endpoint.labels.clone())))
}
