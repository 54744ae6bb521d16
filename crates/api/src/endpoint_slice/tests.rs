use proptest::prelude::*;

use super::*;
use crate::parse_endpoint_slices;

fn endpoint(mac: &str, ips: &[&str]) -> SliceEndpoint {
    SliceEndpoint {
        mac: mac.to_owned(),
        ips: ips.iter().map(ToString::to_string).collect(),
        since: "2026-01-02T03:04:05.000006Z"
            .parse()
            .map(MicroTime)
            .unwrap(),
        pod: None,
        of_node: false,
        labels: BTreeMap::new(),
    }
}

fn spec(network: &str, node: &str) -> PodNetworkEndpointSliceSpec {
    PodNetworkEndpointSliceSpec {
        network: network.to_owned(),
        network_id: 7,
        node: node.to_owned(),
        vteps: vec!["192.0.2.1".to_owned(), "2001:db8::1".to_owned()],
        endpoints: vec![
            endpoint("02:00:00:00:00:01", &["10.10.0.1", "fd10:10::1"]),
            endpoint("02:00:00:00:00:02", &[]),
        ],
    }
}

fn slice(spec: PodNetworkEndpointSliceSpec) -> PodNetworkEndpointSlice {
    PodNetworkEndpointSlice::numbered(0, spec).unwrap()
}

fn faults(change: impl FnOnce(&mut PodNetworkEndpointSliceSpec)) -> String {
    let mut spec = spec("blue", "n1");
    change(&mut spec);
    let mut slice = slice(self::spec("blue", "n1"));
    slice.spec = spec;
    slice.checked().unwrap_err().to_string()
}

#[test]
fn a_slice_is_named_and_labelled_by_network_and_node() {
    let slice = PodNetworkEndpointSlice::numbered(3, spec("blue", "n1.example")).unwrap();
    assert_eq!(slice.metadata.name.as_deref(), Some("blue.n1.example.3"));
    assert_eq!(slice.number(), Some(3));
    let labels = slice.metadata.labels.unwrap();
    assert_eq!(labels["podnet.dev/network"], "blue");
    assert_eq!(labels["podnet.dev/node"], "n1.example");
}

#[test]
fn names_that_have_no_room_for_each_other_still_make_one() {
    let (network, node) = ("a".repeat(213), "b".repeat(253));
    let long = |number| PodNetworkEndpointSlice::numbered(number, spec(&network, &node)).unwrap();
    let name = long(4_294_967_295).metadata.name.unwrap();
    assert!(check_subdomain(&name).is_ok(), "{name}");
    assert_eq!(long(12).number(), Some(12));
    assert_ne!(
        long(0).metadata.name,
        slice(spec(&network, "c")).metadata.name
    );
    assert!(PodNetworkEndpointSlice::numbered(0, spec("-", "n1")).is_err());
}

#[test]
fn a_slice_of_another_name_has_no_number() {
    let mut slice = slice(spec("blue", "n1"));
    for name in ["blue.n2.0", "blue.n1", "blue.n1.x", "blue.n1.00", "x"] {
        slice.metadata.name = Some(name.to_owned());
        assert_eq!(slice.number(), None, "{name}");
    }
}

#[test]
fn what_a_file_says_is_what_was_written() {
    let written = slice(spec("blue", "n1"));
    let text = serde_json::to_string(&written).unwrap();
    let text = format!("---\n{text}\n---\n{text}\n");
    let read = parse_endpoint_slices("n1.yaml", &text);
    let checked = written.checked().unwrap();
    assert_eq!(checked.endpoints[0].since.as_microsecond() % 1_000_000, 6);
    for read in &read {
        let (name, said) = read.as_ref().unwrap();
        assert_eq!((name.as_str(), said), ("blue.n1.0", &checked));
    }
    assert_eq!(read.len(), 2);
}

#[test]
fn a_member_names_its_pod_where_its_node_says_so() {
    let mut spec = spec("blue", "n1");
    let plain = serde_json::to_string(&spec).unwrap();
    assert!(
        !plain.contains("pod\"") && !plain.contains("labels"),
        "{plain}"
    );
    let labels: BTreeMap<String, String> = [("app".to_owned(), "web".to_owned())].into();
    spec.endpoints[0].pod = Some("ops/web-0.a".to_owned());
    spec.endpoints[1].labels = labels.clone();
    let checked = slice(spec.clone()).checked().unwrap();
    let pods: Vec<_> = checked
        .endpoints
        .iter()
        .map(|it| it.pod.clone().unwrap())
        .collect();
    assert_eq!(pods[0].key(), Some(("ops", "web-0.a")));
    assert!(pods[0].labels().is_empty());
    assert_eq!((pods[1].key(), pods[1].labels()), (None, &labels));
    let again: Vec<SliceEndpoint> = checked.endpoints.iter().map(Into::into).collect();
    assert_eq!(again, spec.endpoints);
}

/// A node of a later version may say more.
#[test]
fn fields_of_a_slice_that_are_not_known_are_passed_over() {
    let mut text = serde_json::to_value(slice(spec("blue", "n1"))).unwrap();
    text["spec"]["later"] = 1.into();
    text["spec"]["endpoints"][0]["later"] = 1.into();
    let read = parse_endpoint_slices("n1.yaml", &text.to_string());
    assert!(read[0].is_ok(), "{read:?}");
}

#[test]
fn a_file_with_anything_else_is_refused_with_the_place() {
    let network = "apiVersion: podnet.dev/v1alpha1\nkind: PodNetwork\nmetadata: {name: blue}\n";
    let read = parse_endpoint_slices("n1.yaml", network);
    let error = read[0].as_ref().unwrap_err().to_string();
    assert!(
        error.contains("n1.yaml:1") && error.contains("PodNetworkEndpointSlice"),
        "{error}"
    );
    let mut written = slice(spec("blue", "n1"));
    written.spec.vteps.clear();
    let text = serde_json::to_string(&written).unwrap();
    let read = parse_endpoint_slices("n1.yaml", &text);
    let error = read[0].as_ref().unwrap_err().to_string();
    assert!(
        error.contains("spec.vteps: the list has 0 items"),
        "{error}"
    );
}

#[test]
fn every_wrong_field_of_a_slice_is_named() {
    let checked = slice(spec("blue", "n1")).checked().unwrap();
    assert_eq!((checked.endpoints.len(), checked.vteps.len()), (2, 2));
    let cases = [
        (
            faults(|it| it.network_id = 0),
            "spec.networkID: 0 is out of range",
        ),
        (
            faults(|it| it.node.clear()),
            "spec.node: a name is required",
        ),
        (
            faults(|it| it.vteps[1] = "192.0.2.9".to_owned()),
            "spec.vteps[1]: 192.0.2.9 is a second",
        ),
        (
            faults(|it| it.vteps[0] = "224.0.0.1".to_owned()),
            "spec.vteps[0]: 224.0.0.1 is not a unicast",
        ),
        (
            faults(|it| it.endpoints.clear()),
            "spec.endpoints: the list has 0 items; write 1 to 256",
        ),
        (
            faults(|it| it.endpoints = vec![endpoint("02:00:00:00:00:01", &[]); 257]),
            "spec.endpoints: the list has 257 items",
        ),
        (
            faults(|it| it.endpoints[1].mac = "02:00:00:00:00:01".to_owned()),
            "spec.endpoints[1].mac: 02:00:00:00:00:01 is another endpoint's too",
        ),
        (
            faults(|it| it.endpoints[0].mac = "03:00:00:00:00:01".to_owned()),
            "spec.endpoints[0].mac: 03:00:00:00:00:01 is a group address",
        ),
        (
            faults(|it| it.endpoints[0].ips[1] = "10.10.0".to_owned()),
            "spec.endpoints[0].ips[1]: \"10.10.0\" is not an IP address",
        ),
        (
            faults(|it| it.endpoints[1].ips = vec!["10.10.0.2".to_owned(); 65]),
            "spec.endpoints[1].ips: the list has 65 items; write 0 to 64",
        ),
        (
            faults(|it| it.endpoints[1].pod = Some("web".to_owned())),
            "spec.endpoints[1].pod: a name is required",
        ),
        (
            faults(|it| it.endpoints[1].pod = Some("Ops/web".to_owned())),
            "spec.endpoints[1].pod: \"Ops\" is not a DNS-1123 name",
        ),
        (
            faults(|it| {
                let labels = (0..65).map(|number| (format!("l{number}"), String::new()));
                it.endpoints[1].labels = labels.collect();
            }),
            "spec.endpoints[1].labels: the list has 65 items; write 0 to 64",
        ),
        (
            faults(|it| {
                it.endpoints[1].labels = [("app".to_owned(), "x".repeat(318))].into();
            }),
            "has 318 bytes; shorten it to at most 317",
        ),
    ];
    for (found, expected) in cases {
        assert!(found.contains(expected), "{found}\nis not\n{expected}");
    }
}

proptest! {
    /// Kubernetes API, "Labels": at most 63 bytes of letters, digits, '-', '_', '.'.
    ///
    /// They begin and end with a letter or digit.
    #[test]
    fn every_name_makes_a_label_and_no_two_the_same(
        one in "[a-z0-9]{1,60}(\\.[a-z0-9]{1,60}){0,3}",
        other in "[a-z0-9]{1,60}(\\.[a-z0-9]{1,60}){0,3}",
    ) {
        let label = label_value(&one);
        prop_assert!(label.len() <= 63);
        prop_assert!(label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)));
        let ends = [label.as_bytes()[0], label.as_bytes()[label.len() - 1]];
        prop_assert!(ends.iter().all(u8::is_ascii_alphanumeric));
        prop_assert_eq!(label == label_value(&other), one == other);
    }
}
