use proptest::prelude::*;

use super::*;
use crate::{GatewaySpec, Mode};

const ISSUE_EXAMPLE: &str = r#"apiVersion: podnet.dev/v1alpha1
kind: PodNetwork
metadata: {name: blue}
spec:
  provider: podnet.dev/ebpf
  parametersRefs: [{group: podnet.dev, kind: PodNetworkParameters, name: blue}]
---
apiVersion: podnet.dev/v1alpha1
kind: PodNetworkParameters
metadata: {name: blue}
spec:
  mode: L2                                # L2 | L3
  subnets: [10.10.0.0/24, "fd10:10::/64"] # dual stack; may overlap other networks
  gateway: None                           # None | First | explicit addresses
  exclude: [10.10.0.200/29]
  mtu: 1500
  networkID: 1001                         # optional, 1..16777215; else allocated and stable
---
apiVersion: podnet.dev/v1alpha1
kind: AttachmentParameters
metadata: {name: fast, namespace: default}
spec: {ingressRate: 100000000, egressRate: 100000000, macRequest: "02:00:00:00:00:2a", ipRequests: [10.10.0.42]}
"#;

fn one(text: &str) -> Result<Object, ManifestError> {
    let mut all = parse_manifests("a.yaml", text);
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

fn message(text: &str) -> String {
    one(text).unwrap_err().to_string()
}

fn parameters(spec: &str) -> String {
    format!(
        "apiVersion: podnet.dev/v1alpha1\nkind: PodNetworkParameters\n\
         metadata: {{name: blue}}\nspec: {spec}\n"
    )
}

#[test]
fn the_examples_of_the_documentation_are_read() {
    let objects: Vec<_> = parse_manifests("blue.yaml", ISSUE_EXAMPLE)
        .into_iter()
        .collect::<Result<_, _>>()
        .unwrap();
    assert_eq!(
        objects.iter().map(|o| o.origin.line).collect::<Vec<_>>(),
        [1, 7, 18]
    );
    let [network, parameters, attachment] = objects.as_slice() else {
        panic!("{objects:?}")
    };
    let Resource::PodNetwork(network) = &network.resource else {
        panic!("{network:?}")
    };
    assert!(network.spec.enabled);
    assert_eq!(network.spec.provider.as_deref(), Some("podnet.dev/ebpf"));
    assert_eq!(network.spec.parameters_refs[0].name, "blue");
    let Resource::PodNetworkParameters(parameters) = &parameters.resource else {
        panic!("{parameters:?}")
    };
    assert_eq!(parameters.spec.mode, Mode::L2);
    assert_eq!(parameters.spec.subnets, ["10.10.0.0/24", "fd10:10::/64"]);
    assert_eq!(parameters.spec.gateway, GatewaySpec::None);
    assert_eq!(parameters.spec.network_id, Some(1001));
    let Resource::AttachmentParameters(attachment) = &attachment.resource else {
        panic!("{attachment:?}")
    };
    assert_eq!(attachment.spec.ingress_rate, Some(100_000_000));
    assert_eq!(attachment.spec.ip_requests, ["10.10.0.42"]);
}

#[test]
fn json_is_read_as_well() {
    let text = "{\n\t\"apiVersion\": \"podnet.dev/v1alpha1\",\n\t\"kind\": \"PodNetworkParameters\",\
                \n\t\"metadata\": {\"name\": \"blue\", \"uid\": \"x\", \"generation\": 3},\
                \n\t\"spec\": {\"mode\": \"L3\", \"subnets\": [\"10.0.0.0/8\"], \"gateway\": [\"10.0.0.1\"]},\
                \n\t\"status\": {\"conditions\": []}\n}\n";
    let Resource::PodNetworkParameters(object) = one(text).unwrap().resource else {
        panic!()
    };
    assert_eq!(
        object.spec.gateway,
        GatewaySpec::Addresses(vec!["10.0.0.1".into()])
    );
}

#[test]
fn a_single_gateway_address_is_a_list_of_one() {
    for (written, want) in [
        ("First", GatewaySpec::First),
        ("None", GatewaySpec::None),
        ("null", GatewaySpec::None),
        ("10.0.0.1", GatewaySpec::Addresses(vec!["10.0.0.1".into()])),
        (
            "\"fd00::1\"",
            GatewaySpec::Addresses(vec!["fd00::1".into()]),
        ),
        ("fd00::1", GatewaySpec::Addresses(vec!["fd00::1".into()])),
        ("[10.0.0.1, \"fd00::1\"]", {
            GatewaySpec::Addresses(vec!["10.0.0.1".into(), "fd00::1".into()])
        }),
    ] {
        let text = parameters(&format!("{{mode: L3, gateway: {written}}}"));
        let Resource::PodNetworkParameters(object) = one(&text).unwrap().resource else {
            panic!()
        };
        assert_eq!(object.spec.gateway, want, "{written}");
    }
    assert!(message(&parameters("{mode: L3, gateway: {a: b}}")).contains("spec.gateway"));
}

#[test]
fn one_bad_document_does_not_hide_the_others() {
    let text = format!(
        "{}---\nthis: is: not yaml\n---\n{}---\nkind: [\n---\n{}",
        parameters("{mode: L2}"),
        parameters("{mode: L4}"),
        parameters("{mode: L3}")
    );
    let all = parse_manifests("b.yaml", &text);
    assert_eq!(
        all.iter().map(Result::is_ok).collect::<Vec<_>>(),
        [true, false, false, false, true]
    );
    assert_eq!(all[1].as_ref().unwrap_err().line, 6);
    assert_eq!(all[2].as_ref().unwrap_err().path, "spec.mode");
    assert_eq!(all[2].as_ref().unwrap_err().line, 11);
    assert_eq!(all[3].as_ref().unwrap_err().document, 4);
}

#[test]
fn an_unknown_key_is_named_with_the_valid_ones() {
    let text = parameters("{mode: L2, subnet: [10.0.0.0/8]}");
    assert_eq!(
        message(&text),
        "a.yaml:4 (document 1) spec.subnet: unknown field `subnet`, expected one of mode, routing, masquerade, transport, subnets, \
         gateway, exclude, routes, serviceCIDRs, clusterServices, egress, nodeAccess, mtu, interface, scheduling, networkID, vpc, ingressRate, egressRate, ingressBurst, egressBurst"
    );
}

#[test]
fn a_wrong_type_names_the_field() {
    let error = one(&parameters("{mode: L2, mtu: big}")).unwrap_err();
    assert_eq!((error.path.as_str(), error.line), ("spec.mtu", 4));
    let error = one(&parameters("{mode: L2, subnets: [[10.0.0.0/8]]}")).unwrap_err();
    assert_eq!(error.path, "spec.subnets[0]");
    let error = one(&parameters("{}")).unwrap_err();
    assert!(error.to_string().contains("`mode`"), "{error}");
}

#[test]
fn a_key_given_twice_is_refused() {
    assert!(message(&parameters("{mode: L2, mtu: 1500, mtu: 9000}")).contains("mtu"));
}

#[test]
fn foreign_kinds_and_versions_are_told_what_is_served() {
    let text = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {}\n";
    assert_eq!(
        message(text),
        "a.yaml:1 (document 1) apiVersion: \"v1\" is not served; write podnet.dev/v1alpha1"
    );
    let text = "apiVersion: podnet.dev/v1alpha1\nkind: PodNetworks\n";
    assert_eq!(one(text).unwrap_err().path, "kind");
    assert_eq!(one("name: x").unwrap_err().path, "apiVersion");
}

#[test]
fn names_and_namespaces_are_checked() {
    let at = |metadata: &str, kind: &str, spec: &str| {
        let text = format!(
            "apiVersion: podnet.dev/v1alpha1\nkind: {kind}\nmetadata: {metadata}\nspec: {spec}\n"
        );
        one(&text)
            .map(|object| object.resource.metadata().clone())
            .map_err(|error| error.path)
    };
    let bad = |path: &str| Err(path.to_owned());
    assert_eq!(at("{name: Blue}", "PodNetwork", "{}"), bad("metadata.name"));
    assert_eq!(at("{}", "PodNetwork", "{}"), bad("metadata.name"));
    assert_eq!(
        at("{name: b, namespace: x}", "PodNetwork", "{}"),
        bad("metadata.namespace")
    );
    assert_eq!(
        at("{name: b, namespace: a.b}", "AttachmentParameters", "{}"),
        bad("metadata.namespace")
    );
    assert_eq!(
        at("{name: b}", "AttachmentParameters", "{}")
            .unwrap()
            .namespace
            .as_deref(),
        Some("default")
    );
    assert_eq!(
        at("{name: b}", "PodNetworkAttachment", "{podNetworkName: X}"),
        bad("spec.podNetworkName")
    );
    assert_eq!(
        at("{name: b}", "PodNetwork", "{provider: acme}"),
        bad("spec.provider")
    );
    let empty_kind = "{parametersRefs: [{group: podnet.dev, kind: '', name: a}]}";
    assert_eq!(
        at("{name: b}", "PodNetwork", empty_kind),
        bad("spec.parametersRefs[0].kind")
    );
}

/// KEP-PN-01: omitted means true, an explicit false survives.
#[test]
fn enabled_is_true_unless_it_says_false() {
    for (spec, want) in [
        ("{}", true),
        ("{enabled: false}", false),
        ("{enabled: null}", true),
    ] {
        let text = format!(
            "apiVersion: podnet.dev/v1alpha1\nkind: PodNetwork\nmetadata: {{name: a}}\nspec: {spec}\n"
        );
        let Resource::PodNetwork(network) = one(&text).unwrap().resource else {
            panic!()
        };
        assert_eq!(network.spec.enabled, want, "{spec}");
    }
    proof::of!("KEP-PN-01");
}

proptest! {
    #[test]
    fn no_text_panics_the_parser(text in ".{0,200}") {
        let _ = parse_manifests("x", &text);
    }

    #[test]
    fn a_damaged_manifest_is_read_or_refused_never_a_panic(at in 0..ISSUE_EXAMPLE.len(), with: char) {
        let mut text: Vec<char> = ISSUE_EXAMPLE.chars().collect();
        text[at] = with;
        let text: String = text.into_iter().collect();
        prop_assert!(!parse_manifests("x", &text).is_empty());
    }
}
