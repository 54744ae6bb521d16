//! Annotations `podnet.dev/vpc` and `podnet.dev/nics`: networks as in Arktos.
//!
//! They are another way to write the list of KEP-3698: complete, and each NIC is an element. `subnetName` is a
//! `PodNetwork` of the VPC (ADR 0115), `portId` a `Port`. Both spellings of Arktos are read, that of its code and that
//! of its proposal (ARKX-02).

use super::{
    AttachmentOptions, PodAnnotations, PodNetworkRef, PodNetworkSelection,
    ifname::InterfaceName,
    kep::{Seen, interface_name, object_name},
    limits::Room,
    npwg::{address, json_list},
    problem::{Findings, Place, SelectionProblem},
    reader::Reader,
};
use crate::json::RawJson;
use crate::meta::check_subdomain;

/// The annotation with the VPC of a pod, a `Vpc`.
pub const VPC_ANNOTATION: &str = "podnet.dev/vpc";
/// The annotation with the NICs of a pod in its VPC, a JSON list.
pub const NICS_ANNOTATION: &str = "podnet.dev/nics";

/// Longest name of a VPC, bytes (RFC 1123).
const VPC_MAX: usize = 253;

const KEYS: &str = "name, subnetName, portId, ipAddress, tag, ipv6Enabled";

/// Elements with their places in the text.
pub(super) type Placed = Vec<(Place, PodNetworkSelection, AttachmentOptions)>;

/// Reports whether a pod has one of the annotations.
pub(super) fn are_there(pod: &PodAnnotations<'_>) -> bool {
    [VPC_ANNOTATION, NICS_ANNOTATION]
        .iter()
        .any(|key| pod.annotations.contains_key(*key))
}

/// Reads the NICs in a VPC; `ignored` gets the places of keys without an effect.
///
/// Errors are in `findings`, which is of [`NICS_ANNOTATION`].
pub(super) fn read(
    vpc: &str,
    text: &str,
    room: Room,
    findings: &mut Findings,
    ignored: &mut Vec<Place>,
) -> Placed {
    let vpc = vpc.trim();
    if vpc.len() > VPC_MAX {
        let (found, limit) = (vpc.len(), VPC_MAX);
        findings.push(Place::Whole, SelectionProblem::TooLong { found, limit });
        return Vec::new();
    }
    if let Err(error) = check_subdomain(vpc) {
        findings.push(Place::Whole, SelectionProblem::BadVpc { error });
        return Vec::new();
    }
    let text = text.trim();
    let list = if text.is_empty() {
        Some(Vec::new())
    } else {
        json_list(text, room, findings)
    };
    let (mut seen, mut placed) = (Seen::default(), Vec::new());
    for (index, element) in list.iter().flatten().enumerate() {
        if let Some((selection, mut options)) = nic(findings, index, element, ignored) {
            seen.check(findings, index, ("subnetName", &selection));
            options.vpc = Some(vpc.to_owned());
            let path = String::new();
            placed.push((Place::Element { index, path }, selection, options));
        }
    }
    if list.is_some_and(|list| list.is_empty()) {
        findings.push(Place::Whole, SelectionProblem::NoNics);
    }
    placed
}

fn nic(
    findings: &mut Findings,
    index: usize,
    element: &RawJson,
    ignored: &mut Vec<Place>,
) -> Option<(PodNetworkSelection, AttachmentOptions)> {
    let mut reader = Reader::element(findings, index, element)?;
    // Without a name it has the one of its place (ARKX-08).
    let by_place = || InterfaceName::new(format!("eth{index}")).ok();
    let interface_name = interface_name(&mut reader, "name").or_else(by_place);
    let subnet = either(&mut reader, ["subnetName", "subnet"], object_name);
    let port = object_name(&mut reader, "portId");
    let ip = either(&mut reader, ["ipAddress", "ip"], |reader, key| {
        let read = reader.parsed(key, |text| match text {
            "" => Ok(None),
            text => address(text).map(Some),
        });
        read.flatten()
    });
    // Texts and wishes of Arktos that podnet has no use for.
    for key in ["tag", "ipv6Enabled"] {
        if reader.raw(key).is_some() {
            ignored.push(reader.place(key));
        }
    }
    if port.is_some() && ip.is_some() {
        let key = "ipAddress";
        reader.push(key, SelectionProblem::SaidByPort { key });
    }
    let here = reader.here();
    if subnet.is_none() {
        reader.findings.push(here, SelectionProblem::SubnetRequired);
    }
    reader.refuse_rest(KEYS);
    let options = AttachmentOptions {
        ips: ip.filter(|_| port.is_none()).into_iter().collect(),
        ..AttachmentOptions::default()
    };
    let selection = PodNetworkSelection {
        target: PodNetworkRef::PodNetwork(subnet?),
        interface_name,
        is_default_gateway: false,
        port,
    };
    Some((selection, options))
}

/// Reads the first key that is there; the other one has to be absent then.
fn either<T>(
    reader: &mut Reader<'_>,
    [key, short]: [&'static str; 2],
    read: impl Fn(&mut Reader<'_>, &str) -> Option<T>,
) -> Option<T> {
    let (one, other) = (read(reader, key), read(reader, short));
    if one.is_some() && other.is_some() {
        reader.push(short, SelectionProblem::SpelledTwice { key, short });
    }
    one.or(other)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::tests::only;
    use super::super::{
        PodSelection, SelectionErrors, SelectionNote, SelectionRules, Source, Target,
    };
    use super::*;

    fn read(annotations: &[(&str, &str)]) -> Result<PodSelection, SelectionErrors> {
        let all = annotations.iter();
        let all: BTreeMap<String, String> = all
            .map(|(key, text)| ((*key).to_owned(), (*text).to_owned()))
            .collect();
        let pod = PodAnnotations {
            namespace: "shop",
            host_network: false,
            annotations: &all,
        };
        PodSelection::read(&pod, &SelectionRules::default())
    }

    fn nics(text: &str) -> Result<PodSelection, SelectionErrors> {
        read(&[(VPC_ANNOTATION, "demo"), (NICS_ANNOTATION, text)])
    }

    #[track_caller]
    fn refused(text: &str, words: &str) {
        let error = nics(text).unwrap_err();
        let said = only(&error);
        assert!(said.contains(words), "{said}");
    }

    /// ARKX-02
    #[test]
    fn nics_in_a_vpc_are_the_list_of_the_pod() {
        let found = nics(
            r#"[{"name": "eth0", "subnetName": "web", "portId": "db-0"},
                {"subnet": "db", "ip": "10.1.0.7", "tag": "x", "ipv6Enabled": true},
                {"name": "data", "subnetName": "far", "portID": "", "ipAddress": ""}]"#,
        )
        .unwrap();
        let attachments: Vec<_> = found
            .attachments
            .iter()
            .map(|one| {
                let Target::PodNetwork(network) = &one.target else {
                    unreachable!("{one:?}")
                };
                let port = one.options.port.as_deref().unwrap_or_default();
                let ips: Vec<String> = one.options.ips.iter().map(ToString::to_string).collect();
                assert_eq!(
                    (one.options.vpc.as_deref(), one.source),
                    (Some("demo"), Source::Kep)
                );
                (one.interface.as_str(), network.as_str(), port, ips.concat())
            })
            .collect();
        assert_eq!(
            attachments,
            [
                ("eth0", "web", "db-0", String::new()),
                ("eth1", "db", "", "10.1.0.7".to_owned()),
                ("data", "far", "", String::new()),
            ]
        );
        let notes = found.notes.iter();
        let ignored: Vec<_> = notes
            .filter_map(|note| match note {
                SelectionNote::IgnoredKey { path } => Some(path.as_str()),
                _ => None,
            })
            .collect();
        assert_eq!(
            ignored,
            ["podnet.dev/nics[1].tag", "podnet.dev/nics[1].ipv6Enabled"]
        );
        proof::of!("ARKX-02");
    }

    /// ARKX-08
    #[test]
    fn nics_that_are_wrong_are_refused_with_their_place() {
        refused("x", "podnet.dev/nics");
        refused("[]", "at least one NIC");
        refused(r#"[{"name": "eth0"}]"#, "podnet.dev/nics[0]: subnetName");
        refused(
            r#"[{"name": "eth1", "subnetName": "a"}, {"subnetName": "b"}]"#,
            "eth1 is used by podnet.dev/nics[0]",
        );
        refused(
            r#"[{"subnetName": "a"}, {"subnetName": "a"}]"#,
            "podnet.dev/nics[1].subnetName: network \"a\" is there already",
        );
        refused(
            r#"[{"subnetName": "a", "subnet": "b"}]"#,
            "podnet.dev/nics[0].subnet: subnetName says the same",
        );
        refused(
            r#"[{"subnetName": "a", "portId": "p", "ipAddress": "10.0.0.7"}]"#,
            "podnet.dev/nics[0].ipAddress: the Port says",
        );
        refused(
            r#"[{"subnetName": "a", "securityGroup": "s"}]"#,
            "\"securityGroup\" is not a key here",
        );
        refused(
            r#"[{"subnetName": "a", "ipAddress": "10.0.0.0.7"}]"#,
            "podnet.dev/nics[0].ipAddress",
        );
        proof::of!("ARKX-08");
    }

    #[test]
    fn vpc_and_nics_need_each_other_and_stand_alone() {
        let list = r#"[{"subnetName": "a"}]"#;
        let said = |annotations: &[(&str, &str)]| only(&read(annotations).unwrap_err());
        let vpc = said(&[(NICS_ANNOTATION, list)]);
        assert!(vpc.contains("podnet.dev/vpc"), "{vpc}");
        let long = "a".repeat(1 << 20);
        let long = said(&[(VPC_ANNOTATION, &long), (NICS_ANNOTATION, list)]);
        assert!(long.contains("253") && long.len() < 1000, "{long}");
        let alone = said(&[(VPC_ANNOTATION, "demo")]);
        assert!(alone.contains("at least one NIC"), "{alone}");
        let both = [
            (VPC_ANNOTATION, "demo"),
            (NICS_ANNOTATION, list),
            ("podnet.dev/networks", r#"[{"name": "a"}]"#),
        ];
        let both = said(&both);
        assert!(both.contains("podnet.dev/networks"), "{both}");
    }
}
