//! The annotation `k8s.v1.cni.cncf.io/networks` (NPWG §4): both formats.

mod element;

pub(super) use element::ip as address;

use serde::Serialize;

use super::{
    ifname::InterfaceName,
    limits::Room,
    naming::Claims,
    options::AttachmentOptions,
    problem::{Findings, Place, SelectionErrors, SelectionProblem},
};
use crate::{
    json::RawJson,
    meta::{NameError, check_label, check_subdomain},
};

/// The annotation with a pod's further networks (NPWG §4.1).
pub const NETWORKS_ANNOTATION: &str = "k8s.v1.cni.cncf.io/networks";

/// One element of the list: a `NetworkAttachmentDefinition` and options.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NetworkSelection {
    /// Name of the object.
    pub name: String,
    /// Its namespace; absent means the pod's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name of the interface in the pod, where one is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<InterfaceName>,
    /// All other keys.
    #[serde(flatten)]
    pub options: AttachmentOptions,
    /// Unknown keys without a period: reserved, so they are ignored.
    ///
    /// NPWG §4.1.2.1. For a debug message.
    #[serde(skip)]
    pub ignored: Vec<String>,
}

/// Elements with their places in the text.
pub(super) type Placed = Vec<(Place, NetworkSelection)>;

/// Reads the value of [`NETWORKS_ANNOTATION`].
///
/// It is a JSON list where it begins with `[`, else names with commas between them. An empty one is an
/// empty list.
///
/// # Errors
/// Everything that is wrong with it, with its place.
pub fn parse_networks(text: &str) -> Result<Vec<NetworkSelection>, SelectionErrors> {
    let mut findings = Findings::new(NETWORKS_ANNOTATION);
    let placed = read(text, Room::UNLIMITED, &mut findings);
    let mut claims = Claims::default();
    for (place, selection) in &placed {
        claims.claim(&mut findings, place, selection.interface.as_ref());
    }
    Findings::verdict([findings])?;
    Ok(placed.into_iter().map(|(_, selection)| selection).collect())
}

/// The elements without errors; errors are in `findings`.
pub(super) fn read(text: &str, room: Room, findings: &mut Findings) -> Placed {
    let trimmed = text.trim();
    match trimmed.chars().next() {
        None => Vec::new(),
        Some('[') => read_json(trimmed, room, findings),
        Some('{') => {
            findings.push(Place::Whole, SelectionProblem::NotAList);
            Vec::new()
        }
        Some(_) => read_items(text, room, findings),
    }
}

fn read_json(text: &str, room: Room, findings: &mut Findings) -> Placed {
    let Some(elements) = json_list(text, room, findings) else {
        return Vec::new();
    };
    let mut placed = Placed::new();
    let mut default_route = None;
    for (index, element) in elements.iter().enumerate() {
        let Some(selection) = element::read(findings, index, element) else {
            continue;
        };
        if selection.options.default_route.is_some() {
            if let Some(first) = default_route {
                let place = Place::Element {
                    index,
                    path: "default-route".to_owned(),
                };
                findings.push(place, SelectionProblem::SecondDefaultRoute { first });
            }
            default_route = default_route.or(Some(index));
        }
        let place = Place::Element {
            index,
            path: String::new(),
        };
        placed.push((place, selection));
    }
    placed
}

/// The elements of a JSON list that is not too long.
pub(super) fn json_list(text: &str, room: Room, findings: &mut Findings) -> Option<Vec<RawJson>> {
    let list = room.list(text).map_err(|error| SelectionProblem::NotJson {
        reason: error.to_string(),
    });
    let list = findings.take(Place::Whole, list)?;
    room.admits(list.found, findings).then_some(list.first)
}

/// Reads `name` or `namespace/name`, each with or without `@interface`.
///
/// Commas separate them.
fn read_items(text: &str, room: Room, findings: &mut Findings) -> Placed {
    let mut placed = Placed::new();
    if !room.admits(text.split(',').count(), findings) {
        return placed;
    }
    let mut begin = 0;
    for (index, item) in text.split(',').enumerate() {
        let leading = item.chars().take_while(|c| c.is_whitespace()).count();
        let place = Place::Item {
            number: index + 1,
            character: begin + leading + 1,
        };
        begin += item.chars().count() + 1;
        if let Some(selection) = findings.take(place.clone(), read_item(item.trim())) {
            placed.push((place, selection));
        }
    }
    placed
}

fn read_item(item: &str) -> Result<NetworkSelection, SelectionProblem> {
    let bad_reference = || SelectionProblem::BadReference {
        found: item.to_owned(),
    };
    if item.is_empty() {
        return Err(SelectionProblem::EmptyItem);
    }
    let (reference, interface) = match item.split_once('@') {
        Some((reference, interface)) if !interface.contains('@') => {
            (reference, Some(InterfaceName::new(interface)?))
        }
        Some(_) => return Err(bad_reference()),
        None => (item, None),
    };
    let (namespace, name) = match reference.split_once('/') {
        Some((_, name)) if name.contains('/') => return Err(bad_reference()),
        Some(("", _) | (_, "")) => return Err(bad_reference()),
        Some((namespace, name)) => (Some(namespace), name),
        None => (None, reference),
    };
    check_name(namespace, name)?;
    Ok(NetworkSelection {
        name: name.to_owned(),
        namespace: namespace.map(str::to_owned),
        interface,
        ..NetworkSelection::default()
    })
}

/// NPWG §3.3, but for dots in names of objects: Kubernetes allows them.
fn check_name(namespace: Option<&str>, name: &str) -> Result<(), NameError> {
    namespace.map_or(Ok(()), check_label)?;
    check_subdomain(name)
}
