//! How long lists may be, and how long what is said about them is.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::assert_says;
use crate::{
    PROBLEM_BYTES, PROBLEMS_MAX,
    selection::{
        ATTACHMENTS_MAX, DEFAULT_NETWORK_ANNOTATION, NETWORKS_ANNOTATION, POD_NETWORKS_ANNOTATION,
        PodAnnotations, PodSelection, SelectionErrors, SelectionNote, SelectionRules,
    },
};

fn read(
    annotations: &[(&str, &str)],
    rules: &SelectionRules,
) -> Result<PodSelection, SelectionErrors> {
    let annotations: BTreeMap<String, String> = annotations
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect();
    let pod = PodAnnotations {
        namespace: "shop",
        host_network: false,
        annotations: &annotations,
    };
    PodSelection::read(&pod, rules)
}

fn refused(annotations: &[(&str, &str)]) -> String {
    let errors = read(annotations, &SelectionRules::default());
    errors.expect_err("a list that is too long").to_string()
}

/// `count` elements of KEP-3698, each another network.
fn kep(count: usize) -> String {
    let elements: Vec<String> = (0..count)
        .map(|number| format!(r#"{{"name":"n{number}"}}"#))
        .collect();
    format!("[{}]", elements.join(","))
}

/// `count` times the same network in the short format.
fn short(count: usize) -> String {
    vec!["n"; count].join(",")
}

/// `count` times the same network in JSON.
fn json(count: usize) -> String {
    format!("[{}]", vec![r#"{"name":"n"}"#; count].join(","))
}

/// ATT-04a: the default network and each repetition of a network count.
#[test]
fn a_pod_has_as_many_attachments_as_the_limit_in_whatever_list() {
    let rules = SelectionRules::default();
    let max = ATTACHMENTS_MAX;
    let (kep_most, kep_over) = (kep(max), kep(max + 1));
    let half = kep(max / 2);
    let (rest, rest_over) = (short(max / 2), json(max / 2 + 1));
    let (most, over) = (short(max - 1), json(max));
    for fits in [
        &[(POD_NETWORKS_ANNOTATION, kep_most.as_str())][..],
        &[(NETWORKS_ANNOTATION, most.as_str())],
        &[
            (POD_NETWORKS_ANNOTATION, half.as_str()),
            (NETWORKS_ANNOTATION, rest.as_str()),
        ],
    ] {
        let selection = read(fits, &rules).expect("a list within the limit");
        assert_eq!(selection.attachments.len(), max);
    }
    let raise = "raise --max-attachments-per-pod of agent, webhook and controller";
    assert_eq!(
        refused(&[(POD_NETWORKS_ANNOTATION, &kep_over)]),
        format!(
            "podnet.dev/networks: the pod asks for 33 attachments, and the limit of a pod is 32; list fewer \
             networks, or {raise}"
        )
    );
    let beside = "that the pod has by default or by its other list, and the limit of a pod is 32";
    assert_says(
        &refused(&[(NETWORKS_ANNOTATION, &over)]),
        &format!("k8s.v1.cni.cncf.io/networks: the pod asks for 32 attachments besides 1 {beside}"),
    );
    assert_says(
        &refused(&[
            (POD_NETWORKS_ANNOTATION, &half),
            (NETWORKS_ANNOTATION, &rest_over),
        ]),
        &format!(
            "k8s.v1.cni.cncf.io/networks: the pod asks for 17 attachments besides 16 {beside}"
        ),
    );
    proof::of!("ATT-04a");
}

/// ATT-04a: what an annotation has room for.
#[test]
fn a_list_of_43000_networks_is_one_error() {
    for list in [short(43_000), json(18_000)] {
        let rules = SelectionRules::default();
        let errors = read(&[(NETWORKS_ANNOTATION, &list)], &rules).expect_err("too long");
        assert_eq!((errors.first.len(), errors.more), (1, 0), "{errors}");
        assert!(errors.to_string().len() < PROBLEM_BYTES, "{errors}");
    }
    // Elements that are wrong count as well, and nothing is said of each.
    let errors = refused(&[(
        POD_NETWORKS_ANNOTATION,
        &format!("[{}1]", "1,".repeat(60_000)),
    )]);
    assert_says(
        &errors,
        "podnet.dev/networks: the pod asks for 60001 attachments, and",
    );
    proof::of!("ATT-04a");
}

/// ATT-04a
#[test]
fn the_limit_is_the_operators() {
    let rules = SelectionRules {
        max_attachments: 2,
        ..SelectionRules::default()
    };
    assert!(read(&[(NETWORKS_ANNOTATION, "a")], &rules).is_ok());
    let errors = read(&[(NETWORKS_ANNOTATION, "a,a")], &rules).expect_err("too long");
    assert_says(&errors.to_string(), "the limit of a pod is 2;");
    proof::of!("ATT-04a");
}

/// ATT-04a: the webhook reads annotations before Kubernetes checks their length.
#[test]
fn an_annotation_longer_than_kubernetes_allows_is_refused_unread() {
    let spaces = " ".repeat(256 << 10);
    for annotation in [
        POD_NETWORKS_ANNOTATION,
        DEFAULT_NETWORK_ANNOTATION,
        NETWORKS_ANNOTATION,
    ] {
        let fits = read(&[(annotation, &spaces)], &SelectionRules::default());
        assert!(fits.is_ok(), "{fits:?}");
        let errors = refused(&[(annotation, &format!("{spaces} "))]);
        let wanted = format!(
            "{annotation}: the value is 262145 bytes long, and the limit is 262144; shorten it"
        );
        assert_eq!(errors, wanted);
    }
    proof::of!("ATT-04a");
}

/// ATT-04a: one element is no way round the limit.
#[test]
fn what_one_element_asks_for_is_limited() {
    let addresses: Vec<String> = (0..65).map(|host| format!("\"10.0.1.{host}\"")).collect();
    let gateways: Vec<String> = (1..18).map(|host| format!("\"10.0.1.{host}\"")).collect();
    let mapping = |port| format!(r#"{{"hostPort":{port},"containerPort":80}}"#);
    let mappings: Vec<String> = (1..66).map(mapping).collect();
    let long = "x".repeat(16 << 10);
    for (key, value, wanted) in [
        (
            "ips",
            format!("[{}]", addresses.join(",")),
            "[0].ips: the list has 65 items, and the limit is 64; remove some",
        ),
        (
            "default-route",
            format!("[{}]", gateways.join(",")),
            "[0].default-route: the list has 17 items, and the limit is 16; remove some",
        ),
        (
            "portMappings",
            format!("[{}]", mappings.join(",")),
            "[0].portMappings: the list has 65 items, and the limit is 64; remove some",
        ),
        (
            "cni-args",
            format!(r#"{{"a":"{long}"}}"#),
            "[0].cni-args: the value is 16392 bytes long, and the limit is 16384; shorten it",
        ),
    ] {
        let list = format!(r#"[{{"name":"n","{key}":{value}}}]"#);
        let errors = refused(&[(NETWORKS_ANNOTATION, &list)]);
        assert_eq!(errors, format!("{NETWORKS_ANNOTATION}{wanted}"));
    }
    proof::of!("ATT-04a");
}

/// ATT-04d: 60,000 keys or words that are wrong are ten problems and a number.
#[test]
fn at_most_ten_problems_are_kept_of_both_lists_together() {
    let keys: Vec<String> = (0..20_000).map(|key| format!("\"k{key}\":1")).collect();
    let unknown = format!("[{{\"name\":\"a\",{}}}]", keys.join(","));
    let wrong = vec!["!"; 30].join(",");
    let annotations = [
        (POD_NETWORKS_ANNOTATION, unknown.as_str()),
        (NETWORKS_ANNOTATION, wrong.as_str()),
    ];
    let errors = read(&annotations, &SelectionRules::default()).expect_err("wrong lists");
    assert_eq!((errors.first.len(), errors.more), (10, 20_020), "{errors}");
    assert_says(&errors.to_string(), "; and 20020 more");
    proof::of!("ATT-04d");
}

/// ATT-04d: one word may have all the room of an annotation.
#[test]
fn a_problem_quotes_the_beginning_of_a_long_word() {
    let errors = refused(&[(NETWORKS_ANNOTATION, &"/".repeat(200_000))]);
    assert!(
        errors.len() <= PROBLEM_BYTES + "…".len(),
        "{}",
        errors.len()
    );
    proof::of!("ATT-04d");
}

/// ATT-04d
#[test]
fn at_most_ten_ignored_keys_are_noted() {
    let keys: Vec<String> = (0..1000).map(|key| format!("\"k{key}\":1")).collect();
    let list = format!("[{{\"name\":\"a\",{}}}]", keys.join(","));
    let selection = read(&[(NETWORKS_ANNOTATION, &list)], &SelectionRules::default());
    let notes = selection.expect("unknown keys are ignored").notes;
    assert_eq!(notes.len(), PROBLEMS_MAX + 1);
    assert_eq!(notes.last(), Some(&SelectionNote::More { count: 990 }));
    proof::of!("ATT-04d");
}

proptest! {
    /// ATT-04a, ATT-04d: whatever is written, what comes of it is bounded.
    #[test]
    fn no_annotation_leads_to_more_attachments_or_words_than_the_limits(
        kep in element(), npwg in element(), counts in (0_usize..80, 0_usize..80),
        max_attachments in 1_usize..40,
    ) {
        let list = |element: &str, count| format!("[{}]", vec![element; count].join(","));
        let (kep, npwg) = (list(&kep, counts.0), list(&npwg, counts.1));
        let annotations = [
            (POD_NETWORKS_ANNOTATION, kep.as_str()),
            (NETWORKS_ANNOTATION, npwg.as_str()),
        ];
        let rules = SelectionRules { max_attachments, ..SelectionRules::default() };
        match read(&annotations, &rules) {
            Ok(selection) => {
                prop_assert!(selection.attachments.len() <= max_attachments);
                prop_assert!(selection.notes.len() <= PROBLEMS_MAX + 1);
            }
            Err(errors) => {
                prop_assert!(errors.first.len() <= PROBLEMS_MAX);
                let most = (PROBLEMS_MAX + 1) * (PROBLEM_BYTES + 8);
                prop_assert!(errors.to_string().len() <= most);
            }
        }
        proof::of!("ATT-04a", "ATT-04d");
    }
}

/// An element that is right, nearly right, or nothing of the kind.
fn element() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(r#"{"name":"a"}"#.to_owned()),
        Just(r#"{"name":"a","ips":["10.0.0.9"],"mut":1}"#.to_owned()),
        Just(r#"{"name":"a","interface":"net1"}"#.to_owned()),
        Just(r#"{"name":"a","interfaceName":"eth0"}"#.to_owned()),
        Just(r#"{"attachmentName":"a"}"#.to_owned()),
        "\"[a-z]{0,700}\"",
        "[0-9]{1,30}",
        ".{0,40}",
    ]
}
