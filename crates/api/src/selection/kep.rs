//! Annotation `podnet.dev/networks`: the list of KEP-3698's `spec.networks`.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{
    ifname::InterfaceName,
    limits::Room,
    naming::Claims,
    npwg::json_list,
    problem::{Findings, Place, SelectionErrors, SelectionProblem},
    reader::Reader,
};
use crate::{
    json::RawJson,
    meta::{NameError, check_subdomain},
};

/// The annotation with all networks of a pod (KEP-3698 `networks`).
pub const POD_NETWORKS_ANNOTATION: &str = "podnet.dev/networks";

const KEYS: &str = "name, attachmentName, interfaceName, isDefaultGW, port";

/// One element of the list (KEP-3698 `Network`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodNetworkSelection {
    /// The object to attach to.
    #[serde(flatten)]
    pub target: PodNetworkRef,
    /// Name of the interface in the pod, where one is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface_name: Option<InterfaceName>,
    /// The pod's default route goes through this network.
    #[serde(rename = "isDefaultGW", skip_serializing_if = "std::ops::Not::not")]
    pub is_default_gateway: bool,
    /// A `Port` in the pod's namespace, which says the MAC address and the addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
}

/// Name in an element: of a `PodNetwork`, or of a `PodNetworkAttachment`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum PodNetworkRef {
    /// `name`: a `PodNetwork`; `podNetworkName` is read as well.
    ///
    /// The KEP's text has both.
    #[serde(rename = "name")]
    PodNetwork(String),
    /// `attachmentName`: a `PodNetworkAttachment` in the pod's namespace.
    #[serde(rename = "attachmentName")]
    Attachment(String),
}

/// Returns the list of a pod on this network alone, as JSON.
///
/// KEP-3698 "Auto-population".
#[must_use]
pub fn populated_list(network: &str) -> String {
    serde_json::json!([{ "name": network }]).to_string()
}

/// Reports whether a list is what [`populated_list`] makes.
pub(super) fn is_populated<O>(listed: &[(Place, PodNetworkSelection, O)], network: &str) -> bool {
    let plain = PodNetworkSelection {
        target: PodNetworkRef::PodNetwork(network.to_owned()),
        interface_name: None,
        is_default_gateway: false,
        port: None,
    };
    matches!(listed, [(_, only, _)] if *only == plain)
}

/// Elements with their places in the text.
pub(super) type Placed = Vec<(Place, PodNetworkSelection)>;

/// Reads the value of [`POD_NETWORKS_ANNOTATION`], a JSON list.
///
/// An empty text is an empty list. Checks need no other objects (KEP-3698 "Static validations").
///
/// # Errors
/// Everything that is wrong with it, with its place.
pub fn parse_pod_networks(text: &str) -> Result<Vec<PodNetworkSelection>, SelectionErrors> {
    let mut findings = Findings::new(POD_NETWORKS_ANNOTATION);
    let placed = read(text, Room::UNLIMITED, &mut findings);
    let mut claims = Claims::default();
    for (place, selection) in &placed {
        claims.claim(&mut findings, place, selection.interface_name.as_ref());
    }
    Findings::verdict([findings])?;
    Ok(placed.into_iter().map(|(_, selection)| selection).collect())
}

/// The elements without errors; errors are in `findings`.
pub(super) fn read(text: &str, room: Room, findings: &mut Findings) -> Placed {
    let text = text.trim();
    if text.is_empty() {
        return Vec::new();
    }
    if text.starts_with('{') {
        findings.push(Place::Whole, SelectionProblem::NotAList);
        return Vec::new();
    }
    let mut seen = Seen::default();
    let mut placed = Vec::new();
    for (index, element) in json_list(text, room, findings).iter().flatten().enumerate() {
        if let Some(selection) = read_element(findings, index, element) {
            seen.check(findings, index, ("name", &selection));
            let path = String::new();
            placed.push((Place::Element { index, path }, selection));
        }
    }
    placed
}

fn read_element(
    findings: &mut Findings,
    index: usize,
    element: &RawJson,
) -> Option<PodNetworkSelection> {
    let mut reader = Reader::element(findings, index, element)?;
    let before = reader.findings.count();
    let name = object_name(&mut reader, "name");
    let alias = object_name(&mut reader, "podNetworkName");
    let attachment = object_name(&mut reader, "attachmentName");
    let target = if reader.findings.count() > before {
        None
    } else {
        let here = reader.here();
        reader.findings.take(here, target(name, alias, attachment))
    };
    let interface_name = interface_name(&mut reader, "interfaceName");
    let is_default_gateway = reader.value("isDefaultGW", "true or false");
    let port = object_name(&mut reader, "port");
    reader.refuse_rest(KEYS);
    Some(PodNetworkSelection {
        target: target?,
        interface_name,
        is_default_gateway: is_default_gateway.unwrap_or(false),
        port,
    })
}

/// An empty name is an absent one.
pub(super) fn interface_name(reader: &mut Reader<'_>, key: &str) -> Option<InterfaceName> {
    let name = reader.parsed(key, |text| match text {
        "" => Ok(None),
        text => InterfaceName::new(text).map(Some),
    });
    name.flatten()
}

/// An empty name is an absent one, as in every Kubernetes object.
pub(super) fn object_name(reader: &mut Reader<'_>, key: &str) -> Option<String> {
    reader
        .parsed(key, |name| match name {
            "" => Ok(None),
            name => {
                check_subdomain(name)?;
                Ok::<_, NameError>(Some(name.to_owned()))
            }
        })
        .flatten()
}

fn target(
    name: Option<String>,
    alias: Option<String>,
    attachment: Option<String>,
) -> Result<PodNetworkRef, SelectionProblem> {
    match (name, alias, attachment) {
        (Some(name), Some(alias), _) if name != alias => {
            Err(SelectionProblem::AliasDiffers { name, alias })
        }
        (None, None, Some(attachment)) => Ok(PodNetworkRef::Attachment(attachment)),
        (Some(_), _, Some(_)) | (_, Some(_), Some(_)) => Err(SelectionProblem::NameAndAttachment),
        (Some(name), _, None) | (None, Some(name), None) => Ok(PodNetworkRef::PodNetwork(name)),
        (None, None, None) => Err(SelectionProblem::NameRequired {
            example: "{\"name\": \"blue\"} or {\"attachmentName\": \"blue-fast\"}",
        }),
    }
}

/// Values that only one element may have.
///
/// Names of interfaces are checked with those of the other list.
#[derive(Default)]
pub(super) struct Seen {
    networks: BTreeMap<String, usize>,
    default_gateway: Option<usize>,
}

impl Seen {
    /// Notes what another element has already; `key` names the network in this list.
    pub(super) fn check(
        &mut self,
        findings: &mut Findings,
        index: usize,
        (key, selection): (&str, &PodNetworkSelection),
    ) {
        let place = |path: &str| Place::Element {
            index,
            path: path.to_owned(),
        };
        if let PodNetworkRef::PodNetwork(name) = &selection.target {
            if let Some(first) = self.networks.get(name) {
                let problem = SelectionProblem::PodNetworkTwice {
                    name: name.clone(),
                    first: *first,
                };
                findings.push(place(key), problem);
            }
            self.networks.entry(name.clone()).or_insert(index);
        }
        if selection.is_default_gateway {
            if let Some(first) = self.default_gateway {
                let problem = SelectionProblem::SecondDefaultGateway { first };
                findings.push(place("isDefaultGW"), problem);
            }
            self.default_gateway.get_or_insert(index);
        }
    }
}
