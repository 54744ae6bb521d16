mod references;

use super::*;
use crate::{manifest::parse_manifests, meta::API_VERSION};

fn document(kind: &str, metadata: &str, spec: &str) -> String {
    format!("---\napiVersion: {API_VERSION}\nkind: {kind}\nmetadata: {metadata}\nspec: {spec}\n")
}

fn network(name: &str, spec: &str) -> String {
    document("PodNetwork", &format!("{{name: {name}}}"), spec)
}

fn ours(name: &str, parameters: &str) -> String {
    network(
        name,
        &format!(
            "{{provider: podnet.dev/ebpf, parametersRefs: [{{group: podnet.dev, \
             kind: PodNetworkParameters, name: {parameters}}}]}}"
        ),
    )
}

fn parameters(name: &str, spec: &str) -> String {
    document("PodNetworkParameters", &format!("{{name: {name}}}"), spec)
}

fn attachment(namespace: &str, name: &str, references: &str) -> String {
    document(
        "PodNetworkAttachment",
        &format!("{{name: {name}, namespace: {namespace}}}"),
        &format!("{{podNetworkName: blue, parametersRefs: [{references}]}}"),
    )
}

fn reference(name: &str) -> String {
    format!("{{group: podnet.dev, kind: AttachmentParameters, name: {name}}}")
}

fn asks(namespace: &str, name: &str, spec: &str) -> String {
    document(
        "AttachmentParameters",
        &format!("{{name: {name}, namespace: {namespace}}}"),
        spec,
    )
}

fn resolved(files: &[(&str, &[String])]) -> Resolved {
    resolve(files.iter().flat_map(|(file, documents)| {
        parse_manifests(file, &documents.concat())
            .into_iter()
            .map(Result::unwrap)
    }))
}

fn reason(documents: &[String]) -> &'static str {
    let resolved = resolved(&[("a.yaml", documents)]);
    let status = resolved
        .statuses()
        .find(|status| status.name == "blue")
        .unwrap();
    match resolved.network("blue") {
        Ok(network) => {
            assert_eq!((network.name.as_str(), status.ready), ("blue", true));
            assert_eq!(status.message, "");
        }
        Err(error) => {
            assert_eq!((status.ready, status.reason), (false, error.reason()));
            assert_eq!(status.message, error.to_string());
        }
    }
    status.reason
}

#[test]
fn a_complete_network_is_ready() {
    assert_eq!(
        reason(&[ours("blue", "p"), parameters("p", "{mode: L2}")]),
        "Ready"
    );
}

#[test]
fn each_way_to_be_unusable_has_its_reason() {
    let p = || parameters("blue", "{mode: L2}");
    let wrong_kind = "{provider: podnet.dev/ebpf, parametersRefs: [{group: podnet.dev, \
                      kind: AttachmentParameters, name: blue}]}";
    let wrong_group = "{provider: podnet.dev/ebpf, parametersRefs: [{group: acme.io, \
                       kind: PodNetworkParameters, name: blue}]}";
    let namespaced = "{provider: podnet.dev/ebpf, parametersRefs: [{group: podnet.dev, \
                      kind: PodNetworkParameters, name: blue, namespace: x}]}";
    let two = "{provider: podnet.dev/ebpf, parametersRefs: [\
               {group: podnet.dev, kind: PodNetworkParameters, name: blue}, \
               {group: podnet.dev, kind: PodNetworkParameters, name: blue}]}";
    for (spec, want) in [
        ("{}", "ForeignProvider"),
        ("{provider: acme.io/x}", "ForeignProvider"),
        ("{provider: acme.io/x, enabled: false}", "ForeignProvider"),
        ("{provider: podnet.dev/ebpf}", "ParamsNotFound"),
        (
            "{provider: podnet.dev/ebpf, enabled: false}",
            "AdministrativelyDisabled",
        ),
        (wrong_kind, "KindNotSupported"),
        (wrong_group, "KindNotSupported"),
        (namespaced, "RefNotPermitted"),
        (two, "ParamsInvalid"),
    ] {
        assert_eq!(reason(&[network("blue", spec), p()]), want, "{spec}");
    }
    assert_eq!(reason(&[ours("blue", "absent"), p()]), "ParamsNotFound");
    assert_eq!(
        reason(&[ours("blue", "p"), parameters("p", "{mode: L3}")]),
        "ParamsInvalid"
    );
    assert_eq!(
        Resolved::default().network("blue").unwrap_err().reason(),
        "NotFound"
    );
}

/// A network of the objects `a`, `b`, ….
fn of_several(names: &[&str]) -> String {
    let references: Vec<String> = names
        .iter()
        .map(|name| format!("{{group: podnet.dev, kind: PodNetworkParameters, name: {name}}}"))
        .collect();
    let references = references.join(", ");
    network(
        "blue",
        &format!("{{provider: podnet.dev/ebpf, parametersRefs: [{references}]}}"),
    )
}

/// KEP-PN-02: the result is that of one object with all fields, whatever the order.
#[test]
fn several_parameters_that_agree_are_read_as_one_in_any_order() {
    let one = "{mode: L3, subnets: [10.0.0.0/24], gateway: First, mtu: 9000, ingressRate: 8000000}";
    let base = parameters("a", "{mode: L3, subnets: [10.0.0.0/24], gateway: First}");
    let more =
        "{mode: L3, subnets: [10.0.0.0/24], gateway: First, mtu: 9000, ingressRate: 8000000}";
    let wanted = resolved(&[("a", &[ours("blue", "p"), parameters("p", one)])]);
    for order in [["a", "b"], ["b", "a"]] {
        let all = [of_several(&order), base.clone(), parameters("b", more)];
        let found = resolved(&[("a", &all)]);
        assert_eq!(
            found.network("blue").unwrap(),
            wanted.network("blue").unwrap()
        );
    }
    let split = [
        of_several(&["a", "b"]),
        parameters("a", "{mode: L2, networkID: 7, egressRate: 16000000}"),
        parameters("b", "{mode: L2, mtu: 9000, transport: {type: Local}}"),
    ];
    let split = resolved(&[("a", &split)]);
    let whole =
        "{mode: L2, networkID: 7, egressRate: 16000000, mtu: 9000, transport: {type: Local}}";
    let whole = resolved(&[("a", &[ours("blue", "p"), parameters("p", whole)])]);
    assert_eq!(
        split.network("blue").unwrap(),
        whole.network("blue").unwrap()
    );
    proof::of!("KEP-PN-02", "KEP-P1-06");
}

/// KEP-PN-R4: each reference is told, and one that is wrong refuses the network.
#[test]
fn each_of_several_references_is_told_and_a_contradiction_makes_no_network() {
    let all = [
        of_several(&["a", "b", "absent", "broken", "c"]),
        parameters("a", "{mode: L2, mtu: 9000, networkID: 7}"),
        parameters("b", "{mode: L2, mtu: 1500, networkID: 8}"),
        parameters("c", "{mode: L2}"),
        parameters("broken", "{mode: L3}"),
    ];
    let found = resolved(&[("a.yaml", &all)]);
    assert_eq!(found.definition("blue"), None);
    let error = found.network("blue").unwrap_err();
    assert_eq!(error.reason(), "ParamsConflict");
    let text = error.to_string();
    for part in [
        "[0] podnet.dev/PodNetworkParameters a is read",
        "[1] podnet.dev/PodNetworkParameters b contradicts an object before it in spec.mtu, spec.networkID",
        "[2] spec.parametersRefs names podnet.dev/PodNetworkParameters absent, which does not exist",
        "[3] PodNetworkParameters broken (a.yaml",
        "[4] podnet.dev/PodNetworkParameters c is read",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    proof::of!("KEP-PN-R4");
}

/// A written default is not told from an absent field, so it is not overruled.
#[test]
fn no_object_opens_what_another_keeps_closed() {
    let base = "{mode: L3, subnets: [10.0.0.0/24]}";
    for (more, field) in [
        (
            "{mode: L3, subnets: [10.0.0.0/24], routing: Node}",
            "spec.routing",
        ),
        (
            "{mode: L3, subnets: [10.0.0.0/24], egress: Masquerade}",
            "spec.egress",
        ),
        (
            "{mode: L3, subnets: [10.0.0.0/24], gateway: First}",
            "spec.gateway",
        ),
        ("{mode: L3, subnets: [10.0.1.0/24]}", "spec.subnets"),
        ("{mode: L2}", "spec.mode"),
    ] {
        let all = [
            of_several(&["a", "b"]),
            parameters("a", base),
            parameters("b", more),
        ];
        let error = resolved(&[("a", &all)]).network("blue").unwrap_err();
        assert_eq!(error.reason(), "ParamsConflict", "{more}");
        assert!(error.to_string().contains(field), "{error}");
    }
}

/// Each is right for itself: an IPv6 subnet of one and the MTU of another.
#[test]
fn parameters_that_are_wrong_together_only_are_refused_by_the_field() {
    let all = [
        of_several(&["a", "b"]),
        parameters("a", "{mode: L2, subnets: [\"fd00::/64\"]}"),
        parameters("b", "{mode: L2, mtu: 1000}"),
    ];
    let error = resolved(&[("a", &all)]).network("blue").unwrap_err();
    assert_eq!(error.reason(), "ParamsInvalid");
    assert!(error.to_string().contains("spec.mtu"), "{error}");
}

/// The reason of a refusal is before references that are read.
#[test]
fn a_wrong_reference_behind_many_right_ones_is_told() {
    let names: Vec<String> = (0..15).map(|number| format!("p{number}")).collect();
    let mut all: Vec<String> = names
        .iter()
        .map(|name| parameters(name, "{mode: L2}"))
        .collect();
    let mut listed: Vec<&str> = names.iter().map(String::as_str).collect();
    listed.push("absent");
    all.push(of_several(&listed));
    let error = resolved(&[("a", &all)]).network("blue").unwrap_err();
    assert_eq!(error.reason(), "ParamsNotFound");
    let text = error.to_string();
    assert!(text.find("[15] ") < text.find("[0] "), "{text}");
}

/// KEP-PN-L5: no new pods, and what runs goes on.
#[test]
fn a_disabled_network_keeps_its_definition() {
    let spec = "{enabled: false, provider: podnet.dev/ebpf, parametersRefs: [{group: podnet.dev, \
                kind: PodNetworkParameters, name: p}]}";
    let resolved = resolved(&[(
        "a",
        &[
            network("blue", spec),
            parameters("p", "{mode: L2, mtu: 9000}"),
        ],
    )]);
    assert_eq!(
        resolved.network("blue"),
        Err(ResolveError::Disabled {
            name: "blue".to_owned()
        })
    );
    assert_eq!(resolved.definition("blue").unwrap().mtu, 9000);
    assert_eq!(resolved.ready_networks().count(), 0);
    proof::of!("KEP-PN-L5");
}

#[test]
fn networks_with_one_id_are_both_refused_and_name_each_other() {
    let all = resolved(&[(
        "a",
        &[
            ours("blue", "p"),
            ours("red", "q"),
            ours("green", "r"),
            parameters("p", "{mode: L2, networkID: 7}"),
            parameters("q", "{mode: L3, subnets: [10.0.0.0/8], networkID: 7}"),
            parameters("r", "{mode: L2, networkID: 8}"),
        ],
    )]);
    let blue = all.network("blue").unwrap_err();
    assert_eq!(blue.reason(), "NetworkIDConflict");
    assert!(blue.to_string().contains("red"), "{blue}");
    assert!(all.network("red").unwrap_err().to_string().contains("blue"));
    assert_eq!(all.network("green").unwrap().id.unwrap().get(), 8);
}

/// KEP-REL-1 allows sharing; without an id in them the networks stay distinct.
#[test]
fn networks_may_share_parameters() {
    let all = resolved(&[(
        "a",
        &[
            ours("blue", "p"),
            ours("red", "p"),
            parameters("p", "{mode: L2}"),
        ],
    )]);
    assert_eq!(
        all.ready_networks()
            .map(|n| n.name.as_str())
            .collect::<Vec<_>>(),
        ["blue", "red"]
    );
    proof::of!("KEP-REL-1");
}

#[test]
fn an_object_defined_twice_is_refused_naming_both_places() {
    let all = resolved(&[
        (
            "a.yaml",
            &[ours("blue", "p"), parameters("p", "{mode: L2}")],
        ),
        (
            "b.yaml",
            &[parameters("q", "{mode: L2}"), ours("blue", "q")],
        ),
    ]);
    assert_eq!(
        all.network("blue").unwrap_err().to_string(),
        "PodNetwork blue is defined twice, at a.yaml:1 (document 1) and at b.yaml:6 (document 2); \
         remove one"
    );
    assert_eq!(all.problems().len(), 1);
}

#[test]
fn a_third_definition_does_not_revive_the_name() {
    let all = resolved(&[
        ("a", &[ours("blue", "p"), parameters("p", "{mode: L2}")]),
        ("b", &[parameters("p", "{mode: L2}")]),
        ("c", &[parameters("p", "{mode: L2}")]),
    ]);
    assert_eq!(all.network("blue").unwrap_err().reason(), "DuplicateObject");
    assert_eq!(all.problems().len(), 2);
}

#[test]
fn invalid_parameters_are_a_problem_even_unused() {
    let all = resolved(&[("a.yaml", &[asks("default", "x", "{macRequest: nonsense}")])]);
    let problem = all.problems()[0].to_string();
    assert!(
        problem.starts_with("a.yaml:1 (document 1): AttachmentParameters default/x:"),
        "{problem}"
    );
    assert!(problem.contains("spec.macRequest"), "{problem}");
}

#[test]
fn an_attachment_asks_for_no_port_that_its_network_cannot_have() {
    let with = |routing: &str| {
        let all = resolved(&[(
            "a",
            &[
                ours("blue", "p"),
                parameters(
                    "p",
                    &format!("{{mode: L3, subnets: [10.0.0.0/24], routing: {routing}}}"),
                ),
                attachment("ns", "fast", &reference("m")),
                asks("ns", "m", "{interface: {type: Memif, queues: 2}}"),
            ],
        )]);
        let attachment = all.attachment("ns", "fast");
        attachment
            .map(|it| it.request.interface)
            .map_err(|error| error.to_string())
    };
    let memif = crate::Interface {
        kind: crate::InterfaceKind::Memif,
        queues: 2,
    };
    assert_eq!(with("Isolated"), Ok(Some(memif)));
    let refused = with("Node").unwrap_err();
    assert!(
        refused.contains("spec.interface: Memif is for networks"),
        "{refused}"
    );
}

#[test]
fn an_attachment_merges_its_parameters_and_leaves_the_defaults_to_the_network() {
    let all = resolved(&[(
        "a",
        &[
            ours("blue", "p"),
            parameters("p", "{mode: L2, ingressRate: 5000, egressRate: 6000}"),
            attachment(
                "ns",
                "fast",
                &format!("{}, {}", reference("m"), reference("r")),
            ),
            attachment("ns", "plain", ""),
            asks(
                "ns",
                "m",
                "{macRequest: \"02:00:00:00:00:2a\", ipRequests: [10.0.0.4]}",
            ),
            asks("ns", "r", "{egressRate: 9000, ingressBurst: 3}"),
        ],
    )]);
    let fast = all.attachment("ns", "fast").unwrap();
    assert_eq!(fast.network, "blue");
    assert_eq!(fast.request.mac.unwrap().to_string(), "02:00:00:00:00:2a");
    assert_eq!(fast.request.ips[0].to_string(), "10.0.0.4");
    let bandwidth = fast.request.bandwidth;
    let pair = |limit: crate::Limit| (limit.rate, limit.burst);
    assert_eq!(pair(bandwidth.ingress), (None, Some(3)));
    assert_eq!(pair(bandwidth.egress), (Some(9000), None));
    let merged = bandwidth.or(all.network("blue").unwrap().bandwidth);
    assert_eq!(pair(merged.ingress), (Some(5000), Some(3)));
    assert_eq!(pair(merged.egress), (Some(9000), None));
    let plain = all.attachment("ns", "plain").unwrap();
    assert_eq!(plain.request.bandwidth, crate::Bandwidth::default());
    assert_eq!(
        all.attachment("other", "plain").unwrap_err().reason(),
        "NotFound"
    );
}

#[test]
fn an_attachment_of_a_network_that_is_not_there_yet_still_resolves() {
    let all = resolved(&[("a", &[attachment("ns", "early", "")])]);
    assert_eq!(all.attachment("ns", "early").unwrap().network, "blue");
    assert_eq!(all.network("blue").unwrap_err().reason(), "NotFound");
}

#[test]
fn routes_of_an_attachment_are_checked_against_its_network() {
    let all = resolved(&[(
        "a",
        &[
            ours("blue", "p"),
            parameters("p", "{mode: L2, subnets: [10.1.0.0/24], gateway: First}"),
            attachment("ns", "good", &reference("g")),
            attachment("ns", "bad", &reference("b")),
            attachment(
                "ns",
                "twice",
                &format!("{}, {}", reference("g"), reference("b")),
            ),
            asks("ns", "g", "{routes: [{dst: 192.0.2.0/24}]}"),
            asks("ns", "b", "{routes: [{dst: \"fd00::/64\"}]}"),
        ],
    )]);
    let good = all.attachment("ns", "good").unwrap();
    assert_eq!(good.request.routes[0].dst.to_string(), "192.0.2.0/24");
    for (name, expected) in [
        (
            "bad",
            "spec.routes[0].gw: pods have no address of the family",
        ),
        ("twice", "sets spec.routes again"),
    ] {
        let refused = all.attachment("ns", name).unwrap_err();
        assert_eq!(refused.reason(), "ParamsInvalid");
        assert!(refused.to_string().contains(expected), "{refused}");
    }
}

#[test]
fn what_an_attachment_cannot_refer_to() {
    let refused = |references: &str| {
        let all = resolved(&[(
            "a",
            &[
                ours("blue", "p"),
                parameters("p", "{mode: L2}"),
                attachment("ns", "x", references),
                asks("ns", "burst", "{egressBurst: 3}"),
                asks("ns", "r", "{egressRate: 9000}"),
                asks("ns", "s", "{egressRate: 9000}"),
                asks("other", "o", "{egressRate: 9000}"),
                asks("ns", "bad", "{egressRate: -9}"),
            ],
        )]);
        all.attachment("ns", "x").unwrap_err()
    };
    let other = "{group: podnet.dev, kind: AttachmentParameters, name: o, namespace: other}";
    // KEP-PNA-09
    assert_eq!(refused(other).reason(), "RefNotPermitted");
    assert_eq!(refused(&reference("absent")).reason(), "ParamsNotFound");
    assert_eq!(refused(&reference("o")).reason(), "ParamsNotFound");
    assert_eq!(refused(&reference("bad")).reason(), "ParamsInvalid");
    assert_eq!(
        refused("{group: podnet.dev, kind: PodNetworkParameters, name: p}").reason(),
        "KindNotSupported"
    );
    assert!(
        refused(&reference("burst"))
            .to_string()
            .contains("spec.egressBurst")
    );
    let twice = refused(&format!("{}, {}", reference("r"), reference("s")));
    assert_eq!(twice.reason(), "ParamsInvalid");
    let text = twice.to_string();
    assert!(
        text.contains("AttachmentParameters s sets spec.egressRate again"),
        "{text}"
    );
    proof::of!("KEP-PNA-09");
}

#[test]
fn a_node_routes_for_one_network_and_the_others_name_it() {
    let by_node =
        |name: &str| parameters(name, "{mode: L3, routing: Node, subnets: [10.0.0.0/24]}");
    let documents = |second: &str| {
        [
            ours("blue", "p"),
            ours(second, "q"),
            ours("white", "r"),
            by_node("p"),
            by_node("q"),
            parameters("r", "{mode: L3, subnets: [10.0.0.0/24]}"),
        ]
    };
    // By name, whatever the order of the objects, but that of the cluster's pods first.
    for (second, holder, refused) in [("azure", "azure", "blue"), ("default", "default", "blue")] {
        let resolved = resolved(&[("a.yaml", &documents(second))]);
        assert!(resolved.network(holder).is_ok());
        assert!(resolved.network("white").is_ok());
        let error = resolved.network(refused).unwrap_err();
        assert_eq!(error.reason(), "RoutingConflict");
        assert!(error.to_string().contains(holder), "{error}");
        assert_eq!(
            resolved
                .routed_by_node()
                .map(|network| network.name.as_str()),
            Some(holder)
        );
        assert!(resolved.definition(refused).is_some());
    }
    let alone = resolved(&[(
        "a.yaml",
        &[ours("blue", "p"), parameters("p", "{mode: L2}")],
    )]);
    assert_eq!(alone.routed_by_node(), None);
}
