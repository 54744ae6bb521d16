//! Test references of attachments, and references of networks to definitions.

use std::{cell::RefCell, collections::BTreeMap};

use super::*;
use crate::nad::{Definition, network_parameters};

/// KEP-PN-R4: an attachment is refused with each reference, wrong ones first.
#[test]
fn each_wrong_reference_of_an_attachment_is_told() {
    let references = [
        reference("good"),
        reference("absent"),
        reference("again"),
        reference("broken"),
        "{group: podnet.dev, kind: AttachmentParameters, name: o, namespace: other}".to_owned(),
        "{group: acme.io, kind: Thing, name: t}".to_owned(),
    ];
    let all = resolved(&[(
        "a.yaml",
        &[
            ours("blue", "p"),
            parameters("p", "{mode: L2}"),
            attachment("ns", "x", &references.join(", ")),
            asks(
                "ns",
                "good",
                "{egressRate: 9000, macRequest: \"02:00:00:00:00:2a\"}",
            ),
            asks(
                "ns",
                "again",
                "{egressRate: 9000, macRequest: \"02:00:00:00:00:2b\"}",
            ),
            asks("ns", "broken", "{egressRate: -9}"),
        ],
    )]);
    let error = all.attachment("ns", "x").unwrap_err();
    assert_eq!(error.reason(), "ParamsNotFound");
    let text = error.to_string();
    for part in [
        "PodNetworkAttachment ns/x has 6 spec.parametersRefs",
        "[0] podnet.dev/AttachmentParameters good is read",
        "[1] spec.parametersRefs names podnet.dev/AttachmentParameters absent, which does not exist",
        "[2] spec.parametersRefs: podnet.dev/AttachmentParameters again sets spec.egressRate, \
         spec.macRequest again",
        "[3] AttachmentParameters ns/broken (a.yaml",
        "spec.egressRate: -9 is negative",
        "[4] spec.parametersRefs names podnet.dev/AttachmentParameters other/o; only objects in the",
        "[5] spec.parametersRefs names acme.io/Thing t; only AttachmentParameters",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    assert!(text.find("[5]") < text.find("[0]"), "{text}");
    proof::of!("KEP-PN-R4");
}

/// KEP-PN-R4: as many as the API server takes.
#[test]
fn all_of_sixteen_wrong_references_are_told() {
    let wrong: Vec<String> = (0..16).map(|it| format!("absent-{it}")).collect();
    let references: Vec<String> = wrong.iter().map(|name| reference(name)).collect();
    let all = resolved(&[(
        "a.yaml",
        &[
            attachment("ns", "x", &references.join(", ")),
            of_several(&wrong.iter().map(String::as_str).collect::<Vec<_>>()),
        ],
    )]);
    let errors = [
        all.attachment("ns", "x").unwrap_err(),
        all.network("blue").unwrap_err(),
    ];
    for error in errors {
        let text = error.to_string();
        for name in &wrong {
            assert!(
                text.contains(&format!("{name}, which does")),
                "{name}: {text}"
            );
        }
        assert!(!text.contains("more"), "{text}");
    }
    proof::of!("KEP-PN-R4");
}

/// A network that names definitions, and definitions in namespace `ops`.
fn with_definitions(references: &str, definitions: &[(&str, &str)]) -> (Resolved, Vec<String>) {
    let spec = format!("{{provider: podnet.dev/ebpf, parametersRefs: [{references}]}}");
    let text = [
        network("blue", &spec),
        network("theirs", &spec.replace("podnet.dev/ebpf", "acme.io/foo")),
        parameters("more", "{mode: L2, mtu: 9000}"),
    ];
    let objects = parse_manifests("a.yaml", &text.concat());
    let definitions: BTreeMap<_, _> = definitions.iter().copied().collect();
    let asked = RefCell::new(Vec::new());
    let resolved = resolve_with(
        objects.into_iter().map(Result::unwrap),
        |namespace, name| {
            asked.borrow_mut().push(format!("{namespace}/{name}"));
            let config = definitions.get(name).filter(|_| namespace == "ops")?;
            Some(network_parameters(&Definition {
                namespace,
                name,
                annotations: &BTreeMap::new(),
                config,
            }))
        },
    );
    (resolved, asked.into_inner())
}

fn definition(name: &str) -> String {
    format!(
        "{{group: k8s.cni.cncf.io, kind: network-attachment-definitions, name: {name}, namespace: ops}}"
    )
}

/// KEP-P1-06: the example of the KEP, with podnet as its provider.
#[test]
fn a_definition_of_podnet_gives_a_network_what_an_object_of_podnet_would() {
    let config = r#"{"type":"podnet","parameters":{"mode":"L2","subnets":["10.0.0.0/24"],"gateway":"First"}}"#;
    let wanted = resolved(&[(
        "a.yaml",
        &[
            ours("blue", "p"),
            parameters("p", "{mode: L2, subnets: [10.0.0.0/24], gateway: First}"),
        ],
    )]);
    for kind in [
        "network-attachment-definitions",
        "NetworkAttachmentDefinition",
    ] {
        let reference = definition("a").replace("network-attachment-definitions", kind);
        let (found, asked) = with_definitions(&reference, &[("a", config)]);
        assert_eq!(
            found.network("blue").unwrap(),
            wanted.network("blue").unwrap()
        );
        assert_eq!(asked, ["ops/a"], "those of podnet's networks, once");
    }
    // Together with others, as several objects of podnet.
    let references = format!(
        "{}, {{group: podnet.dev, kind: PodNetworkParameters, name: more}}",
        definition("a")
    );
    let plain = r#"{"type":"podnet","parameters":{"mode":"L2","subnets":["10.0.0.0/24"]}}"#;
    let (found, _) = with_definitions(&references, &[("a", plain)]);
    let blue = found.network("blue").unwrap();
    assert_eq!((blue.mtu, blue.subnets.len()), (9000, 1));
    let conflict = r#"{"type":"podnet","parameters":{"mode":"L2","mtu":1400}}"#;
    let (found, _) = with_definitions(&references, &[("a", conflict)]);
    let error = found.network("blue").unwrap_err();
    assert_eq!(error.reason(), "ParamsConflict");
    assert!(error.to_string().contains("spec.mtu"), "{error}");
    proof::of!("KEP-P1-06");
}

#[test]
fn a_definition_that_gives_no_parameters_says_which_why_and_what_to_write() {
    let cases = [
        (
            r#"{"type":"macvlan","master":"eth1"}"#,
            "ForeignPlugin",
            "macvlan",
        ),
        (
            r#"{"type":"podnet"}"#,
            "ParamsInvalid",
            "add the key parameters",
        ),
        ("", "ParamsInvalid", "add the key parameters"),
        ("{", "ParamsInvalid", "not a JSON object"),
        (
            r#"{"type":"podnet","parameters":{"mode":"L3"}}"#,
            "ParamsInvalid",
            "spec.subnets: mode L3 routes by address",
        ),
        (
            r#"{"type":"podnet","parameters":{"mode":"L2","color":1}}"#,
            "ParamsInvalid",
            "color",
        ),
    ];
    for (config, reason, part) in cases {
        let (found, _) = with_definitions(&definition("a"), &[("a", config)]);
        let error = found.network("blue").unwrap_err();
        assert_eq!(error.reason(), reason, "{config}");
        let text = error.to_string();
        let named =
            "names k8s.cni.cncf.io/network-attachment-definitions ops/a, which cannot be used";
        assert!(text.contains(named) && text.contains(part), "{text}");
    }
    let (found, _) = with_definitions(&definition("absent"), &[]);
    assert_eq!(
        found.network("blue").unwrap_err().reason(),
        "ParamsNotFound"
    );
    let bare = "{group: k8s.cni.cncf.io, kind: NetworkAttachmentDefinition, name: a}";
    let (found, asked) = with_definitions(bare, &[("a", "{}")]);
    let error = found.network("blue").unwrap_err();
    assert_eq!((error.reason(), asked.len()), ("RefNotPermitted", 0));
    assert!(error.to_string().contains("add namespace"), "{error}");
    // A kind of that group which is none of these.
    let other = "{group: k8s.cni.cncf.io, kind: PodParams, name: a, namespace: ops}";
    let (found, _) = with_definitions(other, &[]);
    let error = found.network("blue").unwrap_err();
    assert_eq!(error.reason(), "KindNotSupported");
    assert!(
        error.to_string().contains("or NetworkAttachmentDefinition"),
        "{error}"
    );
}
