//! Objects by kind and name, and the references between them.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fmt,
};

use super::{
    Attachment, NetworkEntry, Problem, ResolveError,
    several::{self, Outcome, Told},
    vpcs::Ages,
};
use crate::{
    attachment::PodNetworkAttachmentSpec,
    manifest::{Object, Origin, Resource},
    meta::{GROUP, Kind, Manifest, ParametersRef},
    nad::{DefinitionParameters, DefinitionProblem},
    parameters::PodNetworkParametersSpec,
    podnetwork::PodNetworkSpec,
    validate::{self, AttachmentRequest, FieldErrors, Network, ValidVpc},
};

/// Namespace (empty for cluster-scoped kinds) and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) namespace: String,
    pub(super) name: String,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let separator = if self.namespace.is_empty() { "" } else { "/" };
        write!(f, "{}{separator}{}", self.namespace, self.name)
    }
}

/// An object, or the reason that its name stands for none.
pub(super) type Slot<T> = Result<T, ResolveError>;
pub(super) type Slots<T> = BTreeMap<Key, Slot<T>>;

/// Parameters of a network, as valid and as written.
type NetworkParameters = (Network, PodNetworkParametersSpec);

#[derive(Default)]
pub(super) struct Index {
    pub(super) networks: Slots<PodNetworkSpec>,
    pub(super) attachments: Slots<PodNetworkAttachmentSpec>,
    /// As valid, and as written, for networks with several.
    network_parameters: Slots<NetworkParameters>,
    /// Parameters in definitions that networks name.
    definitions: BTreeMap<Key, Result<NetworkParameters, DefinitionProblem>>,
    attachment_parameters: Slots<AttachmentRequest>,
    pub(super) vpcs: Slots<ValidVpc>,
    /// Seconds at which networks and VPCs were made.
    pub(super) ages: Ages,
    origins: BTreeMap<(Kind, Key), Origin>,
    problems: Vec<Problem>,
}

impl Index {
    pub(super) fn build(objects: impl IntoIterator<Item = Object>) -> (Self, Vec<Problem>) {
        let mut index = Self::default();
        for Object { origin, resource } in objects {
            let kind = resource.kind();
            let key = Key {
                namespace: resource.metadata().namespace.clone().unwrap_or_default(),
                name: resource.metadata().name.clone(),
            };
            let duplicate = index.note_origin(kind, &key, &origin);
            index
                .ages
                .note(kind, &key.name, resource.metadata().created);
            match resource {
                Resource::PodNetwork(Manifest { spec, .. }) => {
                    insert(&mut index.networks, key, duplicate, || Ok(spec));
                }
                Resource::PodNetworkAttachment(Manifest { spec, .. }) => {
                    insert(&mut index.attachments, key, duplicate, || Ok(spec));
                }
                Resource::PodNetworkParameters(Manifest { spec, .. }) => {
                    let value = validate::network(&key.name, &spec);
                    let value = index.note_invalid(kind, &key, &origin, value);
                    insert(&mut index.network_parameters, key, duplicate, || {
                        value.map(|valid| (valid, spec))
                    });
                }
                Resource::AttachmentParameters(Manifest { spec, .. }) => {
                    let value = validate::attachment_request(&spec);
                    let value = index.note_invalid(kind, &key, &origin, value);
                    insert(&mut index.attachment_parameters, key, duplicate, || value);
                }
                Resource::Vpc(Manifest { spec, .. }) => {
                    let value = validate::vpc(&key.name, &spec);
                    let value = index.note_invalid(kind, &key, &origin, value);
                    insert(&mut index.vpcs, key, duplicate, || value);
                }
            }
        }
        let problems = std::mem::take(&mut index.problems);
        (index, problems)
    }

    /// Reads the definitions that networks name, each once.
    pub(super) fn read_definitions(
        &mut self,
        read: impl Fn(&str, &str) -> Option<DefinitionParameters>,
    ) {
        let networks = self.networks.iter();
        let ours = networks.filter_map(|(key, slot)| {
            let spec = slot.as_ref().ok()?;
            spec.is_ours(&key.name).then_some(&spec.parameters_refs)
        });
        let mut found = BTreeMap::new();
        for reference in ours.flatten().filter(|it| it.names_definition()) {
            let Some(namespace) = &reference.namespace else {
                continue;
            };
            let key = Key {
                namespace: namespace.clone(),
                name: reference.name.clone(),
            };
            let Entry::Vacant(vacant) = found.entry(key) else {
                continue;
            };
            if let Some(parameters) = read(namespace, &reference.name) {
                vacant.insert(parameters.and_then(|spec| {
                    validate::network(&reference.name, &spec)
                        .map(|valid| (valid, spec))
                        .map_err(DefinitionProblem::ParametersInvalid)
                }));
            }
        }
        self.definitions = found;
    }

    /// The error both objects share when this name was seen before.
    fn note_origin(&mut self, kind: Kind, key: &Key, origin: &Origin) -> Option<ResolveError> {
        match self.origins.entry((kind, key.clone())) {
            Entry::Vacant(vacant) => {
                vacant.insert(origin.clone());
                None
            }
            Entry::Occupied(first) => {
                let error = ResolveError::Duplicate {
                    kind,
                    name: key.to_string(),
                    first: first.get().clone(),
                    second: origin.clone(),
                };
                self.problem(kind, key, origin, error.clone());
                Some(error)
            }
        }
    }

    fn note_invalid<T>(
        &mut self,
        kind: Kind,
        key: &Key,
        origin: &Origin,
        value: Result<T, FieldErrors>,
    ) -> Slot<T> {
        value.map_err(|errors| {
            let error = ResolveError::ParametersInvalid {
                kind,
                name: key.to_string(),
                origin: origin.clone(),
                errors,
            };
            self.problem(kind, key, origin, error.clone());
            error
        })
    }

    fn problem(&mut self, kind: Kind, key: &Key, origin: &Origin, error: ResolveError) {
        let name = key.to_string();
        self.problems.push(Problem {
            origin: origin.clone(),
            kind,
            name,
            error,
        });
    }

    pub(super) fn network_entry(&self, name: &str, slot: &Slot<PodNetworkSpec>) -> NetworkEntry {
        let (definition, refusal) = match slot {
            Err(duplicate) => (None, Some(duplicate.clone())),
            Ok(spec) => match self.network_definition(name, spec) {
                Err(error) => (None, Some(error)),
                Ok(network) => (Some(network), None),
            },
        };
        // A network of another provider, or defined twice, is not ours to call disabled.
        let disabled = matches!(slot, Ok(spec) if !spec.enabled)
            && !matches!(refusal, Some(ResolveError::ForeignProvider { .. }));
        let refusal = if disabled {
            Some(ResolveError::Disabled {
                name: name.to_owned(),
            })
        } else {
            refusal
        };
        NetworkEntry {
            definition,
            refusal,
        }
    }

    fn network_definition(&self, name: &str, spec: &PodNetworkSpec) -> Slot<Network> {
        if !spec.is_ours(name) {
            return Err(ResolveError::ForeignProvider {
                name: name.to_owned(),
                provider: spec.provider.clone().unwrap_or_default(),
            });
        }
        match spec.parameters_refs.as_slice() {
            [] => Err(ResolveError::ParametersMissing {
                name: name.to_owned(),
            }),
            [reference] => {
                let (parameters, _) = self.parameters_of_network(reference)?;
                Ok(Network {
                    name: name.to_owned(),
                    ..parameters.clone()
                })
            }
            several => self.of_several(name, several),
        }
    }

    /// A network of one, as valid and as written.
    fn parameters_of_network(&self, reference: &ParametersRef) -> Slot<&NetworkParameters> {
        if reference.names_definition() {
            return self.parameters_of_definition(reference);
        }
        check_kind(reference, Kind::PodNetworkParameters)?;
        if reference.namespace.is_some() {
            return Err(ResolveError::NamespaceOnClusterScoped {
                reference: reference.clone(),
            });
        }
        let key = Key {
            namespace: String::new(),
            name: reference.name.clone(),
        };
        look_up(&self.network_parameters, &key, reference)
    }

    /// As [`Self::parameters_of_network`], of a definition.
    fn parameters_of_definition(&self, reference: &ParametersRef) -> Slot<&NetworkParameters> {
        let Some(namespace) = &reference.namespace else {
            return Err(ResolveError::NamespaceMissing {
                reference: reference.clone(),
            });
        };
        let key = Key {
            namespace: namespace.clone(),
            name: reference.name.clone(),
        };
        match self.definitions.get(&key) {
            Some(Ok(parameters)) => Ok(parameters),
            Some(Err(problem)) => Err(ResolveError::DefinitionUnusable {
                reference: reference.clone(),
                problem: Box::new(problem.clone()),
            }),
            None => Err(ResolveError::ParametersNotFound {
                reference: reference.clone(),
            }),
        }
    }

    /// The network of several objects, which must not contradict each other.
    fn of_several(&self, name: &str, references: &[ParametersRef]) -> Slot<Network> {
        let mut merged: Option<PodNetworkParametersSpec> = None;
        let mut told = Vec::new();
        for (index, reference) in references.iter().enumerate() {
            let is_repeated = references.iter().take(index).any(|one| one == reference);
            let outcome = match (self.parameters_of_network(reference), &mut merged) {
                _ if is_repeated => Outcome::Repeated,
                (Err(error), _) => Outcome::Unusable(Box::new(error)),
                (Ok((_, written)), None) => {
                    merged = Some(written.clone());
                    Outcome::Read
                }
                (Ok((_, written)), Some(merged)) => {
                    let fields = several::merge(merged, written);
                    if fields.is_empty() {
                        Outcome::Read
                    } else {
                        Outcome::Conflict(fields)
                    }
                }
            };
            told.push(Told {
                index,
                reference: reference.clone(),
                outcome,
            });
        }
        // A message has room for some.
        told.sort_by_key(|one| one.outcome == Outcome::Read);
        let is_read = told.iter().all(|one| one.outcome == Outcome::Read);
        match merged.filter(|_| is_read) {
            Some(spec) => {
                validate::network(name, &spec).map_err(|errors| ResolveError::RequestInvalid {
                    references: references.to_vec(),
                    errors,
                })
            }
            None => Err(ResolveError::ParametersRefused {
                name: name.to_owned(),
                told,
            }),
        }
    }

    /// One of an attachment in this namespace.
    fn parameters_of_attachment(
        &self,
        namespace: &str,
        reference: &ParametersRef,
    ) -> Slot<&AttachmentRequest> {
        check_kind(reference, Kind::AttachmentParameters)?;
        // KEP-PNA-09: parameters of another namespace would leak between tenants.
        let other = reference.namespace.as_deref();
        if other.is_some_and(|other| other != namespace) {
            return Err(ResolveError::RefNotPermitted {
                reference: reference.clone(),
                namespace: namespace.to_owned(),
            });
        }
        let key = Key {
            namespace: namespace.to_owned(),
            name: reference.name.clone(),
        };
        look_up(&self.attachment_parameters, &key, reference)
    }

    /// The wishes of several objects, of which no two set the same field.
    fn request_of_several(
        &self,
        key: &Key,
        references: &[ParametersRef],
    ) -> Slot<AttachmentRequest> {
        let mut request = AttachmentRequest::default();
        let mut told = Vec::new();
        for (index, reference) in references.iter().enumerate() {
            let is_repeated = references.iter().take(index).any(|one| one == reference);
            let outcome = match self.parameters_of_attachment(&key.namespace, reference) {
                _ if is_repeated => Outcome::Repeated,
                Err(error) => Outcome::Unusable(Box::new(error)),
                Ok(more) => {
                    let fields = merge(&mut request, more);
                    if fields.is_empty() {
                        Outcome::Read
                    } else {
                        let reference = reference.clone();
                        Outcome::Unusable(Box::new(ResolveError::ConflictingParameters {
                            reference,
                            fields,
                        }))
                    }
                }
            };
            told.push(Told {
                index,
                reference: reference.clone(),
                outcome,
            });
        }
        told.sort_by_key(|one| one.outcome == Outcome::Read);
        if told.iter().all(|one| one.outcome == Outcome::Read) {
            Ok(request)
        } else {
            Err(ResolveError::RequestRefused {
                name: key.to_string(),
                told,
            })
        }
    }

    pub(super) fn attachment(
        &self,
        key: &Key,
        slot: &Slot<PodNetworkAttachmentSpec>,
        networks: &BTreeMap<String, NetworkEntry>,
    ) -> Slot<Attachment> {
        let spec = slot.as_ref().map_err(Clone::clone)?;
        let request = match spec.parameters_refs.as_slice() {
            [] => AttachmentRequest::default(),
            [reference] => self
                .parameters_of_attachment(&key.namespace, reference)?
                .clone(),
            several => self.request_of_several(key, several)?,
        };
        let definition = networks.get(&spec.pod_network_name);
        if let Some(network) = definition.and_then(|entry| entry.definition.as_ref()) {
            let bandwidth = request.bandwidth.or(network.bandwidth);
            let interface = request.interface.unwrap_or(network.interface);
            bandwidth
                .check_bursts()
                .and_then(|()| interface.check_routing(network.routing))
                .and_then(|()| network.clone().with_routes(&request.routes).map(drop))
                .map_err(|errors| ResolveError::RequestInvalid {
                    references: spec.parameters_refs.clone(),
                    errors,
                })?;
        }
        Ok(Attachment {
            network: spec.pod_network_name.clone(),
            request,
        })
    }
}

fn insert<T>(
    slots: &mut Slots<T>,
    key: Key,
    duplicate: Option<ResolveError>,
    value: impl FnOnce() -> Slot<T>,
) {
    match duplicate {
        // Neither is taken: choosing one by file order would hide the mistake.
        Some(error) => {
            slots.insert(key, Err(error));
        }
        None => {
            slots.insert(key, value());
        }
    }
}

fn look_up<'a, T>(
    slots: &'a Slots<T>,
    key: &Key,
    reference: &ParametersRef,
) -> Result<&'a T, ResolveError> {
    match slots.get(key) {
        Some(Ok(value)) => Ok(value),
        Some(Err(error)) => Err(error.clone()),
        None => Err(ResolveError::ParametersNotFound {
            reference: reference.clone(),
        }),
    }
}

fn check_kind(reference: &ParametersRef, wanted: Kind) -> Result<(), ResolveError> {
    if reference.group == GROUP && reference.kind == wanted.as_str() {
        Ok(())
    } else {
        Err(ResolveError::KindNotSupported {
            reference: reference.clone(),
            wanted,
        })
    }
}

/// Sets the unset fields from `more`; returns those that are set twice.
fn merge(request: &mut AttachmentRequest, more: &AttachmentRequest) -> Vec<&'static str> {
    let AttachmentRequest {
        bandwidth,
        interface,
        mac,
        ips,
        routes,
    } = more;
    let (ingress, egress) = (
        &mut request.bandwidth.ingress,
        &mut request.bandwidth.egress,
    );
    let set = [
        (
            "spec.ingressRate",
            take_once(&mut ingress.rate, bandwidth.ingress.rate),
        ),
        (
            "spec.ingressBurst",
            take_once(&mut ingress.burst, bandwidth.ingress.burst),
        ),
        (
            "spec.egressRate",
            take_once(&mut egress.rate, bandwidth.egress.rate),
        ),
        (
            "spec.egressBurst",
            take_once(&mut egress.burst, bandwidth.egress.burst),
        ),
        (
            "spec.interface",
            take_once(&mut request.interface, *interface),
        ),
        ("spec.macRequest", take_once(&mut request.mac, *mac)),
        ("spec.ipRequests", take_all_once(&mut request.ips, ips)),
        ("spec.routes", take_all_once(&mut request.routes, routes)),
    ];
    let twice = set.into_iter().filter(|(_, once)| !once);
    twice.map(|(field, _)| field).collect()
}

/// Sets what is unset; false where both are set.
fn take_once<T>(into: &mut Option<T>, from: Option<T>) -> bool {
    match (into.is_some(), from) {
        (true, Some(_)) => false,
        (_, None) => true,
        (false, from) => {
            *into = from;
            true
        }
    }
}

/// As [`take_once`], of lists.
fn take_all_once<T: Clone>(into: &mut Vec<T>, from: &[T]) -> bool {
    if !into.is_empty() && !from.is_empty() {
        return false;
    }
    into.extend_from_slice(from);
    true
}
