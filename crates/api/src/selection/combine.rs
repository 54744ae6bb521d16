//! Both lists of a pod made one.

use std::{collections::BTreeMap, net::IpAddr};

use super::{
    AttachmentOptions, DEFAULT_NETWORK_ANNOTATION, InterfaceName, NETWORKS_ANNOTATION,
    NICS_ANNOTATION, NetworkSelection, POD_NETWORKS_ANNOTATION, POPULATED_ANNOTATION, Place,
    PodAnnotations, PodNetworkRef, PodNetworkSelection, PodSelection, SelectedAttachment,
    SelectionErrors, SelectionNote, SelectionProblem, SelectionRules, Source, Target,
    VPC_ANNOTATION, kep,
    limits::{Notes, Room, TEXT_MAX},
    naming::{Claims, name_all, problem_key},
    nics, npwg,
    options::PORT_KEY,
    problem::Findings,
};
use crate::mac::MacAddr;

/// Name in errors of the attachment that no list asks for.
const DEFAULT_HOLDER: &str = "the default network";

/// An attachment before interfaces have names.
struct Draft {
    source: Source,
    place: Place,
    target: Target,
    wanted: Option<InterfaceName>,
    is_default_gateway: bool,
    options: AttachmentOptions,
}

/// Elements of a complete list with their places in the text.
type Listed = nics::Placed;

/// The drafts, and what is wrong with each annotation.
struct Combination {
    drafts: Vec<Draft>,
    notes: Notes,
    kep: Findings,
    default: Findings,
    npwg: Findings,
}

pub(super) fn read(
    pod: &PodAnnotations<'_>,
    rules: &SelectionRules,
) -> Result<PodSelection, SelectionErrors> {
    let mut all = Combination {
        drafts: Vec::new(),
        notes: Notes::default(),
        kep: Findings::new(POD_NETWORKS_ANNOTATION),
        default: Findings::new(DEFAULT_NETWORK_ANNOTATION),
        npwg: Findings::new(NETWORKS_ANNOTATION),
    };
    let limit = rules.max_attachments;
    let room = Room { before: 0, limit };
    let has_nics = nics::are_there(pod);
    let has_networks = pod.annotations.contains_key(POD_NETWORKS_ANNOTATION);
    let mut listed = all.listed(pod, has_nics, room);
    // It tells readers what the pod has, and is taken as if it were not there. A mark of another network would
    // let a pod say that it is on that one.
    let populated = pod.annotations.get(POPULATED_ANNOTATION);
    let populated = populated.filter(|network| **network == rules.default_network);
    if !has_nics && populated.is_some_and(|network| kep::is_populated(&listed, network)) {
        listed.clear();
    }
    if has_nics && has_networks {
        all.kep
            .push(Place::Whole, SelectionProblem::NicsAndNetworks);
    }
    let has_list = !listed.is_empty() || all.kep.count() > 0;
    if pod.host_network {
        // No runtime asks for the networks of such a pod; NPWG's list has no effect on it.
        if has_list {
            all.kep.push(Place::Whole, SelectionProblem::HostNetwork);
        }
        return all.finish(Vec::new());
    }
    let replacement = text(pod, &mut all.default);
    if has_list {
        all.add_kep(pod, listed);
        if !replacement.trim().is_empty() {
            all.notes.push(SelectionNote::OverrideIgnored);
        }
    } else {
        all.add_default(pod, rules, replacement);
    }
    all.add_npwg(pod, rules, limit);
    all.check_wishes(rules);
    all.check_default_route();
    let attachments = all.name(rules);
    all.note_moved_default(&attachments, rules);
    all.finish(attachments)
}

/// Returns the value of an annotation, if it is not longer than Kubernetes allows.
///
/// A longer one is noted as an error.
fn text<'a>(pod: &PodAnnotations<'a>, findings: &mut Findings) -> &'a str {
    let text = pod.annotations.get(findings.annotation);
    let text = text.map_or("", String::as_str);
    if text.len() <= TEXT_MAX {
        return text;
    }
    let problem = SelectionProblem::TooLong {
        found: text.len(),
        limit: TEXT_MAX,
    };
    findings.push(Place::Whole, problem);
    ""
}

impl Combination {
    /// The complete list of the pod: as KEP-3698 has it, or NICs.
    fn listed(&mut self, pod: &PodAnnotations<'_>, has_nics: bool, room: Room) -> Listed {
        if !has_nics {
            let listed = kep::read(text(pod, &mut self.kep), room, &mut self.kep);
            let plain = |(place, selection)| (place, selection, AttachmentOptions::default());
            return listed.into_iter().map(plain).collect();
        }
        self.kep = Findings::new(NICS_ANNOTATION);
        let vpc = pod.annotations.get(VPC_ANNOTATION);
        let vpc = vpc.map_or("", String::as_str);
        let mut ignored = Vec::new();
        let text = text(pod, &mut self.kep);
        let listed = nics::read(vpc, text, room, &mut self.kep, &mut ignored);
        for place in ignored {
            let path = format!("{NICS_ANNOTATION}{place}");
            self.notes.push(SelectionNote::IgnoredKey { path });
        }
        listed
    }

    fn finish(self, attachments: Vec<SelectedAttachment>) -> Result<PodSelection, SelectionErrors> {
        Findings::verdict([self.kep, self.default, self.npwg])?;
        Ok(PodSelection {
            attachments,
            notes: self.notes.finish(),
        })
    }

    fn findings(&mut self, source: Source) -> &mut Findings {
        match source {
            Source::Default => &mut self.default,
            Source::Kep => &mut self.kep,
            Source::Npwg => &mut self.npwg,
        }
    }

    fn add_kep(&mut self, pod: &PodAnnotations<'_>, listed: Listed) {
        for (place, selection, options) in listed {
            let PodNetworkSelection {
                target,
                interface_name,
                is_default_gateway,
                port,
            } = selection;
            let target = match target {
                PodNetworkRef::PodNetwork(name) => Target::PodNetwork(name),
                PodNetworkRef::Attachment(name) => Target::Attachment {
                    namespace: pod.namespace.to_owned(),
                    name,
                },
            };
            self.drafts.push(Draft {
                source: Source::Kep,
                place,
                target,
                wanted: interface_name,
                is_default_gateway,
                options: AttachmentOptions { port, ..options },
            });
        }
    }

    /// The default network, or what the pod has instead of it.
    fn add_default(&mut self, pod: &PodAnnotations<'_>, rules: &SelectionRules, replacement: &str) {
        let mut target = rules.implied();
        let mut options = AttachmentOptions::default();
        if !replacement.trim().is_empty()
            && let Some((namespace, selection)) = self.replacement(rules, replacement)
        {
            // Pods may choose from the namespace of the option, whoever they are.
            let chosen = selection.namespace.unwrap_or_else(|| namespace.clone());
            if chosen != namespace {
                let checked = rules.check_namespace(pod.namespace, &chosen);
                self.default.take(Place::Whole, checked);
            }
            target = Target::Definition {
                namespace: chosen,
                name: selection.name,
            };
            options = selection.options;
        }
        self.drafts.push(Draft {
            source: Source::Default,
            place: Place::Whole,
            target,
            wanted: Some(rules.primary_interface.clone()),
            is_default_gateway: true,
            options,
        });
        let given = rules.given(pod.namespace).map(|target| Draft {
            source: Source::Default,
            place: Place::Whole,
            target,
            wanted: None,
            is_default_gateway: false,
            options: AttachmentOptions::default(),
        });
        self.drafts.extend(given);
    }

    fn replacement(
        &mut self,
        rules: &SelectionRules,
        text: &str,
    ) -> Option<(String, NetworkSelection)> {
        let Some(namespace) = rules.default_override.clone() else {
            let problem = SelectionProblem::DefaultOverrideRefused;
            self.default.push(Place::Whole, problem);
            return None;
        };
        let room = Room {
            before: 0,
            limit: rules.max_attachments,
        };
        let mut placed = npwg::read(text, room, &mut self.default);
        if placed.len() > 1 || (placed.is_empty() && self.default.count() == 0) {
            let found = placed.len();
            let problem = SelectionProblem::DefaultOverrideCount { found };
            self.default.push(Place::Whole, problem);
        }
        let (place, mut selection) = placed.pop()?;
        let other_name = selection
            .interface
            .take_if(|name| *name != rules.primary_interface);
        if let Some(found) = other_name {
            let primary = rules.primary_interface.clone();
            let problem = SelectionProblem::PrimaryName { found, primary };
            self.default.push(place.below("interface"), problem);
        }
        self.note_ignored(DEFAULT_NETWORK_ANNOTATION, &place, &selection.ignored);
        Some((namespace, selection))
    }

    fn add_npwg(&mut self, pod: &PodAnnotations<'_>, rules: &SelectionRules, limit: usize) {
        let before = self.drafts.len();
        let room = Room { before, limit };
        let text = text(pod, &mut self.npwg);
        for (place, selection) in npwg::read(text, room, &mut self.npwg) {
            self.note_ignored(NETWORKS_ANNOTATION, &place, &selection.ignored);
            let namespace = selection.namespace;
            if let Some(namespace) = &namespace {
                let checked = rules.check_namespace(pod.namespace, namespace);
                self.npwg.take(place.below("namespace"), checked);
            }
            self.drafts.push(Draft {
                source: Source::Npwg,
                place,
                target: Target::Definition {
                    namespace: namespace.unwrap_or_else(|| pod.namespace.to_owned()),
                    name: selection.name,
                },
                wanted: selection.interface,
                is_default_gateway: false,
                options: selection.options,
            });
        }
    }

    fn note_ignored(&mut self, annotation: &str, place: &Place, keys: &[String]) {
        for key in keys {
            let path = format!("{annotation}{}", place.below(key));
            self.notes.push(SelectionNote::IgnoredKey { path });
        }
    }

    /// Notes conflicts between two attachments, and options that exclude each other.
    fn check_wishes(&mut self, rules: &SelectionRules) {
        let mut wishes = Wishes::default();
        let complete = self.kep.annotation;
        let mut found = Vec::new();
        for draft in &self.drafts {
            let mut note = |key: &str, problem| {
                found.push((draft.source, draft.place.below(key), problem));
            };
            wishes.check(draft, complete, &mut note);
            let both =
                !draft.options.ips.is_empty() && draft.options.ipam_claim_reference.is_some();
            if rules.claim_excludes_ips && both {
                note("ipam-claim-reference", SelectionProblem::ClaimWithIps);
            }
            if let (Some(_), Some(key)) = (&draft.options.port, draft.options.said_by_port()) {
                note(key, SelectionProblem::SaidByPort { key });
            }
        }
        for (source, place, problem) in found {
            self.findings(source).push(place, problem);
        }
    }

    /// `isDefaultGW` and `default-route` are the same wish, and only one can have it.
    fn check_default_route(&mut self) {
        let mut claims = self
            .drafts
            .iter()
            .filter(|draft| draft.source == Source::Npwg && draft.options.default_route.is_some());
        let given_away = self
            .drafts
            .iter()
            .any(|draft| draft.source == Source::Kep && draft.is_default_gateway);
        if let (Some(claim), true) = (claims.next(), given_away) {
            let place = claim.place.below("default-route");
            self.npwg
                .push(place, SelectionProblem::DefaultRouteGivenAway);
        }
    }

    /// Notes a default network that is listed, and not at the first interface.
    fn note_moved_default(&mut self, attachments: &[SelectedAttachment], rules: &SelectionRules) {
        let primary = &rules.primary_interface;
        let mut all = attachments.iter();
        // No list names a network twice.
        if let Some(one) = all.find(|one| is_default(&one.target, rules))
            && one.interface != *primary
        {
            self.notes.push(SelectionNote::DefaultMoved {
                network: rules.default_network.clone(),
                interface: one.interface.clone(),
                primary: primary.clone(),
            });
        }
    }

    /// Gives every attachment its interface, and one of them the default route.
    fn name(&mut self, rules: &SelectionRules) -> Vec<SelectedAttachment> {
        let drafts = std::mem::take(&mut self.drafts);
        let mut claims = Claims::default();
        for draft in &drafts {
            if draft.source == Source::Default && draft.is_default_gateway {
                claims.reserve(&rules.primary_interface, DEFAULT_HOLDER);
            } else {
                let findings = self.findings(draft.source);
                claims.claim(findings, &draft.place, draft.wanted.as_ref());
            }
        }
        let gateway = default_gateway(&drafts, rules);
        let asked_for = |draft: &Draft| draft.wanted.as_ref() == Some(&rules.primary_interface);
        let first = drafts.iter().position(asked_for).unwrap_or(gateway);
        // With an element missing, another one is the first.
        if self.kep.count() == 0
            && let Some(draft) = drafts.get(first)
            && let Some(found) = draft.wanted.as_ref()
            && *found != rules.primary_interface
        {
            let findings = self.findings(draft.source);
            let place = draft.place.below(problem_key(findings.annotation));
            let problem = SelectionProblem::PrimaryName {
                found: found.clone(),
                primary: rules.primary_interface.clone(),
            };
            findings.push(place, problem);
        }
        let wanted: Vec<_> = drafts.iter().map(|draft| draft.wanted.clone()).collect();
        let names = name_all(&wanted, first, &rules.primary_interface);
        drafts
            .into_iter()
            .zip(names)
            .enumerate()
            .map(|(position, (draft, interface))| SelectedAttachment {
                position,
                source: draft.source,
                target: draft.target,
                interface,
                is_default_gateway: position == gateway,
                options: draft.options,
            })
            .collect()
    }
}

/// Returns the attachment with the default route, if no `default-route` claims it.
///
/// It is the one with `isDefaultGW`, else the default network where it is listed, else the first in the
/// list (KEP-POD-20).
fn default_gateway(drafts: &[Draft], rules: &SelectionRules) -> usize {
    let is_default = |draft: &Draft| is_default(&draft.target, rules);
    drafts
        .iter()
        .position(|draft| draft.is_default_gateway)
        .or_else(|| drafts.iter().position(is_default))
        .unwrap_or(0)
}

/// True for the default network of the node.
fn is_default(target: &Target, rules: &SelectionRules) -> bool {
    matches!(target, Target::PodNetwork(name) if *name == rules.default_network)
}

/// Wishes of earlier attachments, with the attachment of each.
#[derive(Default)]
struct Wishes<'a> {
    addresses: BTreeMap<(&'a Target, IpAddr), String>,
    macs: BTreeMap<(&'a Target, MacAddr), String>,
    host_ports: BTreeMap<(u16, &'static str), Vec<(&'a super::PortMapping, String)>>,
    ports: BTreeMap<&'a str, String>,
}

impl<'a> Wishes<'a> {
    /// `complete`: the annotation of the complete list.
    fn check(
        &mut self,
        draft: &'a Draft,
        complete: &'static str,
        note: &mut impl FnMut(&str, SelectionProblem),
    ) {
        let holder = || match draft.source {
            Source::Default => DEFAULT_HOLDER.to_owned(),
            Source::Kep => format!("{complete}{}", draft.place),
            Source::Npwg => format!("{NETWORKS_ANNOTATION}{}", draft.place),
        };
        let twice = |found: String, holder: &String| SelectionProblem::RequestedTwice {
            found,
            holder: holder.clone(),
        };
        for (index, ip) in draft.options.ips.iter().enumerate() {
            let key = (&draft.target, ip.address);
            if let Some(other) = self.addresses.get(&key) {
                note(
                    &format!("ips[{index}]"),
                    twice(ip.address.to_string(), other),
                );
            } else {
                self.addresses.insert(key, holder());
            }
        }
        if let Some(mac) = draft.options.mac {
            let key = (&draft.target, mac);
            if let Some(other) = self.macs.get(&key) {
                note("mac", twice(mac.to_string(), other));
            } else {
                self.macs.insert(key, holder());
            }
        }
        if let Some(port) = &draft.options.port {
            if let Some(other) = self.ports.get(port.as_str()) {
                let (port, holder) = (port.clone(), other.clone());
                let key = match draft.source {
                    Source::Kep => "port",
                    Source::Default | Source::Npwg => PORT_KEY,
                };
                note(key, SelectionProblem::PortTwice { port, holder });
            } else {
                self.ports.insert(port, holder());
            }
        }
        for (index, mapping) in draft.options.port_mappings.iter().enumerate() {
            let key = (mapping.host_port, mapping.protocol.as_str());
            let others = self.host_ports.entry(key).or_default();
            if let Some((_, other)) = others.iter().find(|(other, _)| other.collides(mapping)) {
                let problem = SelectionProblem::HostPortTwice {
                    port: mapping.host_port,
                    protocol: mapping.protocol.as_str(),
                    holder: other.clone(),
                };
                note(&format!("portMappings[{index}]"), problem);
            } else {
                others.push((mapping, holder()));
            }
        }
    }
}
