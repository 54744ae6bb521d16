//! Test both lists of a pod together: order, interfaces, default route.

use std::collections::BTreeMap;

use super::{assert_says, only};
use crate::selection::{
    DEFAULT_NETWORK_ANNOTATION, Family, NETWORKS_ANNOTATION, POD_NETWORKS_ANNOTATION,
    PodAnnotations, PodSelection, SelectedAttachment, SelectionErrors, SelectionRules, Source,
};

pub(super) fn read_by(
    rules: &SelectionRules,
    host_network: bool,
    annotations: &[(&str, &str)],
) -> Result<PodSelection, SelectionErrors> {
    let annotations: BTreeMap<String, String> = annotations
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect();
    let pod = PodAnnotations {
        namespace: "shop",
        host_network,
        annotations: &annotations,
    };
    PodSelection::read(&pod, rules)
}

fn read(kep: &str, npwg: &str) -> Result<PodSelection, SelectionErrors> {
    let annotations = [(POD_NETWORKS_ANNOTATION, kep), (NETWORKS_ANNOTATION, npwg)];
    read_by(&SelectionRules::default(), false, &annotations)
}

/// `target@interface` of every attachment, with `*` for the default gateway.
pub(super) fn shown(selection: &PodSelection) -> Vec<String> {
    let show = |(index, one): (usize, &SelectedAttachment)| {
        assert_eq!(one.position, index);
        let gateway = if one.is_default_gateway { "*" } else { "" };
        format!("{}@{}{gateway}", one.target, one.interface)
    };
    selection.attachments.iter().enumerate().map(show).collect()
}

fn interfaces(kep: &str, npwg: &str) -> Vec<String> {
    let selection = read(kep, npwg).unwrap();
    let name = |one: &SelectedAttachment| one.interface.to_string();
    selection.attachments.iter().map(name).collect()
}

/// NPWG-6, KEP-P1-11, KEP-DEF-5: no list is the default network.
#[test]
fn a_pod_without_lists_has_the_default_network() {
    let default = PodSelection::default_only("shop", &SelectionRules::default());
    assert_eq!(shown(&default), ["PodNetwork default@eth0*"]);
    for list in ["", "[]", " "] {
        assert_eq!(read(list, list).unwrap(), default, "{list:?}");
    }
    let none = read_by(&SelectionRules::default(), false, &[]).unwrap();
    assert_eq!(none, default);
    proof::of!("NPWG-6", "KEP-P1-11", "KEP-DEF-5");
}

/// NPWG-6, NPWG-6.2: the default network comes before what NPWG's list adds.
#[test]
fn npwg_networks_come_after_the_default_network() {
    let selection = read("", "a,ops/b@x0,c").unwrap();
    assert_eq!(
        shown(&selection),
        [
            "PodNetwork default@eth0*",
            "NetworkAttachmentDefinition shop/a@net1",
            "NetworkAttachmentDefinition ops/b@x0",
            "NetworkAttachmentDefinition shop/c@net3",
        ]
    );
    let sources: Vec<_> = selection.attachments.iter().map(|one| one.source).collect();
    assert_eq!(
        sources,
        [Source::Default, Source::Npwg, Source::Npwg, Source::Npwg]
    );
    proof::of!("NPWG-6", "NPWG-6.2");
}

/// KEP-P1-10, NPWG-6-Y: the list of the KEP is complete.
#[test]
fn a_kep_list_without_the_default_network_leaves_it_out() {
    let selection = read(r#"[{"name":"blue"},{"attachmentName":"fast"}]"#, "").unwrap();
    assert_eq!(
        shown(&selection),
        [
            "PodNetwork blue@eth0*",
            "PodNetworkAttachment shop/fast@net1"
        ]
    );
    proof::of!("KEP-P1-10", "NPWG-6-Y");
}

/// KEP-X2: the KEP's networks come first.
#[test]
fn npwg_networks_come_after_those_of_the_kep() {
    let selection = read(r#"[{"name":"default"},{"name":"blue"}]"#, "a,b").unwrap();
    assert_eq!(
        shown(&selection),
        [
            "PodNetwork default@eth0*",
            "PodNetwork blue@net1",
            "NetworkAttachmentDefinition shop/a@net2",
            "NetworkAttachmentDefinition shop/b@net3",
        ]
    );
    proof::of!("KEP-X2");
}

/// NPWG-4.1.2.1.5: the n-th network is `net<n>` while that is free.
///
/// One whose number is taken gets the lowest number that is left, and moves no other.
#[test]
fn a_taken_name_moves_only_its_own_network() {
    for (list, names) in [
        ("a,b,c", ["eth0", "net1", "net2", "net3"]),
        ("a,b@net1,c", ["eth0", "net2", "net1", "net3"]),
        ("a@net2,b,c", ["eth0", "net2", "net1", "net3"]),
        ("a@net3,b@x,c", ["eth0", "net3", "x", "net1"]),
        ("a@net3,b,c", ["eth0", "net3", "net2", "net1"]),
        ("a@net2,b@net1,c", ["eth0", "net2", "net1", "net3"]),
        ("a,b@net3,c", ["eth0", "net1", "net3", "net2"]),
    ] {
        assert_eq!(interfaces("", list), names, "{list}");
    }
    proof::of!("NPWG-4.1.2.1.5");
}

/// NPWG-4.1.2.1.5: `eth0` is the default network's.
#[test]
fn the_name_of_the_default_networks_interface_is_taken() {
    assert_says(
        &only(&read("", "a@eth0").unwrap_err()),
        "item 1 at character 1: interface eth0 is used by the default network already",
    );
    proof::of!("NPWG-4.1.2.1.5");
}

/// KEP-X2, KEP-POD-04: one name in both lists.
#[test]
fn an_interface_is_refused_to_the_second_list() {
    assert_says(
        &only(
            &read(
                r#"[{"name":"a","interfaceName":"x0"},{"name":"b","isDefaultGW":true}]"#,
                r#"[{"name":"c","interface":"x0"}]"#,
            )
            .unwrap_err(),
        ),
        "k8s.v1.cni.cncf.io/networks[0].interface: interface x0 is used by podnet.dev/networks[0]",
    );
    proof::of!("KEP-X2", "KEP-POD-04");
}

/// KEP-X1: the primary network is `eth0`, wherever it is in the list.
#[test]
fn the_default_gateway_of_a_kep_list_is_eth0() {
    assert_eq!(
        interfaces(
            r#"[{"name":"a"},{"name":"b","isDefaultGW":true},{"name":"c"}]"#,
            "d"
        ),
        ["net1", "eth0", "net2", "net3"]
    );
    assert_eq!(
        interfaces(r#"[{"name":"a"},{"name":"default"}]"#, ""),
        ["net1", "eth0"]
    );
    proof::of!("KEP-X1");
}

/// KEP-X1: another name for the primary network needs somebody else at `eth0`.
#[test]
fn somebody_must_be_eth0() {
    assert_says(
        &only(&read(r#"[{"name":"a","interfaceName":"net5"},{"name":"b"}]"#, "").unwrap_err()),
        "podnet.dev/networks[0].interfaceName: the pod's first interface must be eth0, not net5",
    );
    let moved = r#"[{"name":"a","interfaceName":"net5"},{"name":"b","interfaceName":"eth0"}]"#;
    assert_eq!(
        shown(&read(moved, "").unwrap()),
        ["PodNetwork a@net5*", "PodNetwork b@eth0"]
    );
    let unnamed = r#"[{"name":"a"},{"name":"b","interfaceName":"eth0"}]"#;
    assert_eq!(interfaces(unnamed, ""), ["net1", "eth0"]);
    assert_eq!(
        interfaces(r#"[{"name":"a","interfaceName":"x"}]"#, "b@eth0"),
        ["x", "eth0"]
    );
    proof::of!("KEP-X1");
}

/// KEP-X1: a mistake in one element is not blamed on the next one.
#[test]
fn a_wrong_element_brings_no_other_error_with_it() {
    let errors = read(r#"[{"name":"A"},{"name":"b","interfaceName":"net5"}]"#, "").unwrap_err();
    assert_says(&only(&errors), "networks[0].name");
    proof::of!("KEP-X1");
}

/// The runtime's `CNI_IFNAME` is the name of the first interface.
#[test]
fn the_primary_interface_is_called_what_the_runtime_says() {
    let rules = SelectionRules {
        primary_interface: "pod0".parse().unwrap(),
        ..SelectionRules::default()
    };
    let selection = read_by(&rules, false, &[(NETWORKS_ANNOTATION, "a@eth0,b")]).unwrap();
    let names: Vec<_> = selection
        .attachments
        .iter()
        .map(|a| a.interface.as_str())
        .collect();
    assert_eq!(names, ["pod0", "eth0", "net2"]);
}

/// KEP-POD-20: no element says `isDefaultGW`.
#[test]
fn the_default_network_else_the_first_one_is_the_default_gateway() {
    for (list, gateway) in [
        (r#"[{"name":"a"},{"name":"b"}]"#, 0),
        (r#"[{"name":"a"},{"name":"default"}]"#, 1),
        (
            r#"[{"name":"a"},{"name":"default"},{"name":"c","isDefaultGW":true}]"#,
            2,
        ),
        (
            r#"[{"attachmentName":"default"},{"attachmentName":"b"}]"#,
            0,
        ),
    ] {
        let selection = read(list, "x").unwrap();
        let gateways: Vec<_> = selection
            .attachments
            .iter()
            .filter(|one| one.is_default_gateway)
            .map(|one| one.position)
            .collect();
        assert_eq!(gateways, [gateway], "{list}");
    }
    proof::of!("KEP-POD-20");
}

/// NPWG-4.1.2.1.9: `default-route` claims the families of its gateways.
#[test]
fn a_default_route_is_taken_by_family() {
    let selection = read(
        "",
        r#"[{"name":"a"},{"name":"b","default-route":["10.0.0.1"]}]"#,
    )
    .unwrap();
    let holder = |family| selection.default_route(family, |_| false).unwrap().position;
    assert_eq!((holder(Family::V4), holder(Family::V6)), (2, 0));
    let both = r#"[{"name":"a","default-route":["10.0.0.1","10.0.0.2","fe80::1"]}]"#;
    let selection = read("", both).unwrap();
    let holder = |family| selection.default_route(family, |_| false).unwrap().position;
    assert_eq!((holder(Family::V4), holder(Family::V6)), (1, 1));
    proof::of!("NPWG-4.1.2.1.9");
}

/// NPWG-4.1.2.1.9: an empty `default-route` leaves no pod without one.
///
/// So it is decided in docs/requirements.txt.
#[test]
fn an_empty_default_route_counts_when_the_network_supplies_one() {
    let selection = read("", r#"[{"name":"a","default-route":[]}]"#).unwrap();
    let holder = |supplies| {
        selection
            .default_route(Family::V4, |_| supplies)
            .unwrap()
            .position
    };
    assert_eq!((holder(true), holder(false)), (1, 0));
    proof::of!("NPWG-4.1.2.1.9");
}

/// NPWG-4.1.2.1.9: one attachment of both lists has the default route.
#[test]
fn is_default_gw_and_default_route_exclude_each_other() {
    let claim = r#"[{"name":"x","default-route":["10.0.0.1"]}]"#;
    assert_says(
        &only(&read(r#"[{"name":"a","isDefaultGW":true}]"#, claim).unwrap_err()),
        "k8s.v1.cni.cncf.io/networks[0].default-route: podnet.dev/networks gives the default",
    );
    assert!(read(r#"[{"name":"a"}]"#, claim).is_ok());
    proof::of!("NPWG-4.1.2.1.9");
}

/// KEP-POD-06, pod_hostnetwork_denied; KEP-DEF-5: a host network pod has none.
#[test]
fn a_host_network_pod_has_no_networks() {
    let host = |kep, npwg| {
        let annotations = [(POD_NETWORKS_ANNOTATION, kep), (NETWORKS_ANNOTATION, npwg)];
        read_by(&SelectionRules::default(), true, &annotations)
    };
    for (kep, npwg) in [("", ""), ("[]", ""), ("", "a,b"), ("", "a//b")] {
        assert_eq!(host(kep, npwg).unwrap().attachments, []);
    }
    assert_says(
        &only(&host(r#"[{"name":"a"}]"#, "").unwrap_err()),
        "podnet.dev/networks: a pod with hostNetwork: true",
    );
    proof::of!("KEP-POD-06", "KEP-DEF-5");
}

/// NPWG-4.1.2.1.3, NPWG-4.1.2.1.4, NPWG-4.2: an address or MAC has one attachment.
///
/// It holds for each network.
#[test]
fn an_address_is_for_one_attachment_of_a_network() {
    let both =
        |key: &str, other: &str| format!(r#"[{{"name":"a",{key}}},{{"name":"{other}",{key}}}]"#);
    for key in [r#""ips":["10.0.0.7/24"]"#, r#""mac":"02:00:00:00:00:01""#] {
        assert_says(
            &only(&read("", &both(key, "a")).unwrap_err()),
            "is requested by k8s.v1.cni.cncf.io/networks[0] too, on the same network",
        );
        assert!(
            read("", &both(key, "b")).is_ok(),
            "other networks have addresses of their own"
        );
    }
    proof::of!("NPWG-4.1.2.1.3", "NPWG-4.1.2.1.4", "NPWG-4.2");
}

/// NPWG-4.1.2.1.7: a port of the node leads to one attachment.
#[test]
fn a_host_port_is_for_one_attachment() {
    let list = |one: &str, two: &str| {
        format!(
            r#"[{{"name":"a","portMappings":[{{"hostPort":80,"containerPort":1,{one}}}]}},
               {{"name":"b","portMappings":[{{"hostPort":80,"containerPort":2,{two}}}]}}]"#
        )
    };
    assert_says(
        &only(&read("", &list(r#""protocol":"tcp""#, r#""hostIP":"10.0.0.1""#)).unwrap_err()),
        "networks[1].portMappings[0]: host port 80/tcp is mapped by k8s.v1.cni.cncf.io/networks[0]",
    );
    for (one, two) in [
        (r#""protocol":"tcp""#, r#""protocol":"udp""#),
        (r#""hostIP":"10.0.0.1""#, r#""hostIP":"10.0.0.2""#),
    ] {
        assert!(read("", &list(one, two)).is_ok(), "{one} {two}");
    }
    proof::of!("NPWG-4.1.2.1.7");
}

/// NPWG-4.1.2.1.11: the claim compares both keys, unless the letter is wanted.
#[test]
fn ips_beside_a_claim_are_refused_by_the_letter_only() {
    let list = r#"[{"name":"a","ips":["10.0.0.7"],"ipam-claim-reference":"vm"}]"#;
    assert!(read("", list).is_ok());
    let strict = SelectionRules {
        claim_excludes_ips: true,
        ..SelectionRules::default()
    };
    let error = read_by(&strict, false, &[(NETWORKS_ANNOTATION, list)]).unwrap_err();
    assert_says(
        &only(&error),
        "networks[0].ipam-claim-reference: ips and ipam-claim-reference",
    );
    proof::of!("NPWG-4.1.2.1.11");
}

/// NPWG-6-X, NPWG-X1: the default network of one pod, where the cluster allows it.
#[test]
fn a_pod_can_have_another_default_network_where_that_is_allowed() {
    let allowed = SelectionRules {
        default_override: Some("kube-system".to_owned()),
        ..SelectionRules::default()
    };
    let read = |rules: &SelectionRules, text: &str| {
        let annotations = [
            (DEFAULT_NETWORK_ANNOTATION, text),
            (NETWORKS_ANNOTATION, "a"),
        ];
        read_by(rules, false, &annotations)
    };
    for (text, target) in [
        ("red", "NetworkAttachmentDefinition kube-system/red@eth0*"),
        ("ops/red@eth0", "NetworkAttachmentDefinition ops/red@eth0*"),
        (
            r#"[{"name":"red","mac":"02:00:00:00:00:01"}]"#,
            "NetworkAttachmentDefinition kube-system/red@eth0*",
        ),
        (" ", "PodNetwork default@eth0*"),
    ] {
        let selection = read(&allowed, text).unwrap();
        assert_eq!(
            shown(&selection),
            [target, "NetworkAttachmentDefinition shop/a@net1"]
        );
    }
    for (rules, text, why) in [
        (
            SelectionRules::default(),
            "red",
            "may not choose its default network",
        ),
        (allowed.clone(), "red,blue", "names 2 networks"),
        (allowed.clone(), "[]", "names 0 networks"),
        (allowed.clone(), "red@net1", "must be eth0, not net1"),
        (allowed, "-red", "is not a DNS-1123 name"),
    ] {
        let error = only(&read(&rules, text).unwrap_err());
        assert_says(&error, "v1.multus-cni.io/default-network");
        assert_says(&error, why);
    }
    proof::of!("NPWG-6-X", "NPWG-X1");
}

/// ATT-07b: isolated namespaces limit the definitions that a pod can name.
///
/// It names definitions of its own namespace, of global ones, and in place of its default network those
/// of the cluster's namespace for that.
#[test]
fn a_definition_of_another_namespace_is_refused_where_namespaces_are_isolated() {
    let isolated = SelectionRules {
        default_override: Some("kube-system".to_owned()),
        global_namespaces: Some(["default".to_owned(), "shared".to_owned()].into()),
        ..SelectionRules::default()
    };
    let read = |rules: &SelectionRules, annotation, text: &str| {
        read_by(rules, false, &[(annotation, text)])
    };
    for good in [
        "a",
        "shop/a",
        "default/a,shared/b",
        r#"[{"name":"a","namespace":"shop"}]"#,
    ] {
        let selection = read(&isolated, NETWORKS_ANNOTATION, good);
        assert!(selection.is_ok(), "{good}: {selection:?}");
    }
    for (bad, place) in [
        ("ops/a", ", item 1"),
        ("a,ops/b", ", item 2"),
        (r#"[{"name":"a","namespace":"ops"}]"#, "[0].namespace"),
    ] {
        let error = only(&read(&isolated, NETWORKS_ANNOTATION, bad).unwrap_err());
        assert_says(&error, &format!("k8s.v1.cni.cncf.io/networks{place}"));
        assert_says(&error, "namespace ops is another than shop");
        assert_says(&error, "--namespace-isolation");
        assert_says(&error, "(default, shared)");
        assert!(read(&SelectionRules::default(), NETWORKS_ANNOTATION, bad).is_ok());
    }
    for (text, is_taken) in [("red", true), ("kube-system/red", true), ("ops/red", false)] {
        let selection = read(&isolated, DEFAULT_NETWORK_ANNOTATION, text);
        assert_eq!(selection.is_ok(), is_taken, "{text}: {selection:?}");
    }
    proof::of!("ATT-07b");
}

/// NPWG-6-Y: the list of the KEP is complete, whatever the other annotation says.
#[test]
fn a_kep_list_wins_over_another_default_network() {
    let annotations = [
        (DEFAULT_NETWORK_ANNOTATION, "red"),
        (POD_NETWORKS_ANNOTATION, r#"[{"name":"blue"}]"#),
    ];
    let selection = read_by(&SelectionRules::default(), false, &annotations).unwrap();
    assert_eq!(shown(&selection), ["PodNetwork blue@eth0*"]);
    assert_says(
        &selection.notes[0].to_string(),
        "v1.multus-cni.io/default-network is ignored",
    );
    proof::of!("NPWG-6-Y");
}

/// KEP-DEF-6: the default network has another name on some nodes.
#[test]
fn the_name_of_the_default_network_is_the_callers() {
    let rules = SelectionRules {
        default_network: "green".to_owned(),
        ..SelectionRules::default()
    };
    assert_eq!(
        shown(&read_by(&rules, false, &[]).unwrap()),
        ["PodNetwork green@eth0*"]
    );
    let list = [(
        POD_NETWORKS_ANNOTATION,
        r#"[{"name":"default"},{"name":"green"}]"#,
    )];
    let selection = read_by(&rules, false, &list).unwrap();
    assert_eq!(
        shown(&selection),
        ["PodNetwork default@net1", "PodNetwork green@eth0*"]
    );
    proof::of!("KEP-DEF-6");
}

/// A list can move the default network, and the pod's owner is told.
#[test]
fn a_default_network_that_is_not_at_the_first_interface_is_noted() {
    let notes = |kep: &str| -> Vec<String> {
        let selection = read(kep, "").unwrap();
        selection.notes.iter().map(ToString::to_string).collect()
    };
    let moved = notes(
        r#"[{"name":"blue","interfaceName":"eth0"},{"name":"default","interfaceName":"net7"}]"#,
    );
    assert_eq!(moved.len(), 1, "{moved:?}");
    assert_says(
        &moved[0],
        "the default network default is at net7 and another network at eth0",
    );
    assert_says(&moved[0], "give default the interfaceName eth0");
    // Not on it at all, which is a choice; and where it belongs.
    for list in [
        r#"[{"name":"blue"}]"#,
        r#"[{"name":"blue"},{"name":"default","interfaceName":"eth0"}]"#,
        r#"[{"name":"default"},{"name":"blue"}]"#,
        "",
    ] {
        assert_eq!(notes(list), [""; 0], "{list}");
    }
}

/// NPWG-4.1.2: what is ignored can be found in a debug message.
#[test]
fn ignored_keys_are_noted_with_their_path() {
    let selection = read("", r#"[{"name":"a"},{"name":"b","mut":1}]"#).unwrap();
    let notes: Vec<_> = selection.notes.iter().map(ToString::to_string).collect();
    assert_eq!(
        notes,
        ["k8s.v1.cni.cncf.io/networks[1].mut is not known and ignored"]
    );
    proof::of!("NPWG-4.1.2");
}

/// NPWG-G1: both lists' errors at once, in the order in which attachments are made.
#[test]
fn errors_of_both_lists_are_reported_together() {
    let errors = read(r#"[{"name":"A"}]"#, "b//c").unwrap_err();
    let annotations: Vec<_> = errors.first.iter().map(|error| error.annotation).collect();
    assert_eq!(annotations, [POD_NETWORKS_ANNOTATION, NETWORKS_ANNOTATION]);
    assert_says(&errors.to_string(), "; k8s.v1.cni.cncf.io/networks, item 1");
    proof::of!("NPWG-G1");
}

/// DES-06: a Port says the addresses, so no other key does.
#[test]
fn a_port_is_named_by_either_list_once_and_stands_alone() {
    let kep = r#"[{"name":"a","port":"db-0"}]"#;
    let npwg = r#"[{"name":"x","podnet.dev/port":"db-1"}]"#;
    let found = read(kep, npwg).unwrap();
    let ports: Vec<_> = found
        .attachments
        .iter()
        .map(|it| it.options.port.as_deref())
        .collect();
    assert_eq!(ports, [Some("db-0"), Some("db-1")]);
    let twice = read(kep, r#"[{"name":"x","podnet.dev/port":"db-0"}]"#).unwrap_err();
    assert_says(
        &only(&twice),
        "networks[0].podnet.dev/port: Port db-0 is that of podnet.dev/networks[0] too",
    );
    for (key, value) in [
        ("ips", r#"["10.0.0.7"]"#),
        ("mac", r#""02:00:00:00:00:01""#),
        ("ipam-claim-reference", r#""vm""#),
    ] {
        let list = format!(r#"[{{"name":"x","podnet.dev/port":"db-0","{key}":{value}}}]"#);
        let refused = read("", &list).unwrap_err();
        let text = format!("networks[0].{key}: the Port says what {key} says");
        assert_says(&only(&refused), &text);
    }
    let refused = read(r#"[{"name":"a","port":"Db"}]"#, "").unwrap_err();
    assert_says(&only(&refused), "podnet.dev/networks[0].port: ");
    proof::of!("DES-06");
}
