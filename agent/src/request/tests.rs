use cni_spec::{CniArgs, Command};
use serde_json::json;

use super::*;

fn request(args: &str, config: &str) -> CniRequest {
    let text = json!({
        "v": 1,
        "cni": {
            "command": "ADD", "containerID": "c1", "netns": "/run/netns/c1", "ifname": "net1",
            "args": args, "config": serde_json::from_str::<Value>(config).unwrap(),
        },
    });
    // The configuration as it stands, not as serde would write it.
    let body = text.to_string();
    let Ok(cni_spec::Request::Cni(mut request)) = cni_spec::Request::from_body(body.as_bytes())
    else {
        panic!("not a request: {body}")
    };
    request.config = serde_json::value::RawValue::from_string(config.to_owned()).unwrap();
    request
}

#[test]
fn a_repeated_request_is_known_in_whatever_order_its_maps_come() {
    let first = request(
        "K8S_POD_NAMESPACE=a;K8S_POD_NAME=b",
        r#"{"cniVersion":"1.1.0","name":"n","podNetwork":"blue","runtimeConfig":{"mac":"02:00:00:00:00:01","ips":["10.0.0.1"]}}"#,
    );
    let again = request(
        "K8S_POD_NAME=b;K8S_POD_NAMESPACE=a",
        r#"{ "runtimeConfig": {"ips":["10.0.0.1"], "mac":"02:00:00:00:00:01"},
             "podNetwork": "blue", "name": "n", "cniVersion": "1.1.0" }"#,
    );
    assert_eq!(request_digest(&first), request_digest(&again));
}

#[test]
fn another_request_has_another_digest() {
    let base = r#"{"cniVersion":"1.1.0","name":"n","podNetwork":"blue"}"#;
    let digests = [
        ("", base),
        ("IP=10.0.0.1", base),
        ("", r#"{"cniVersion":"1.1.0","name":"n","podNetwork":"red"}"#),
        ("", r#"{"cniVersion":"1.1.0","name":"n","podNetwork":"blue","isDefaultGateway":true}"#),
        // The order of a list means something.
        ("", r#"{"cniVersion":"1.1.0","name":"n","podNetwork":"blue","runtimeConfig":{"ips":["10.0.0.1","10.0.0.2"]}}"#),
        ("", r#"{"cniVersion":"1.1.0","name":"n","podNetwork":"blue","runtimeConfig":{"ips":["10.0.0.2","10.0.0.1"]}}"#),
    ]
    .map(|(args, config)| request_digest(&request(args, config)));
    let unique: std::collections::BTreeSet<_> = digests.iter().collect();
    assert_eq!(unique.len(), digests.len());
}

const MANIFESTS: &str = r#"
apiVersion: podnet.dev/v1alpha1
kind: PodNetwork
metadata: {name: blue}
spec:
  provider: podnet.dev/ebpf
  parametersRefs: [{group: podnet.dev, kind: PodNetworkParameters, name: blue}]
---
apiVersion: podnet.dev/v1alpha1
kind: PodNetworkParameters
metadata: {name: blue}
spec: {mode: L2, subnets: [10.10.0.0/24]}
---
apiVersion: podnet.dev/v1alpha1
kind: PodNetworkAttachment
metadata: {name: fixed, namespace: shop}
spec:
  podNetworkName: blue
  parametersRefs: [{group: podnet.dev, kind: AttachmentParameters, name: fixed}]
---
apiVersion: podnet.dev/v1alpha1
kind: AttachmentParameters
metadata: {name: fixed, namespace: shop}
spec: {macRequest: "02:00:00:00:00:2a", ipRequests: [10.10.0.42]}
"#;

fn world() -> World {
    let objects = api::parse_manifests("test.yaml", MANIFESTS)
        .into_iter()
        .map(Result::unwrap);
    World {
        resolved: api::resolve(objects),
        broken: vec!["other.yaml:3: a tab".to_owned()],
        ..World::default()
    }
}

fn conf(keys: &str) -> NetConf {
    let text = format!(r#"{{"cniVersion":"1.1.0","name":"n","type":"podnet",{keys}}}"#);
    NetConf::parse(&text, Command::Add).unwrap()
}

type Resolution = Result<(api::Network, api::AttachmentRequest, Option<ObjectRef>), AgentError>;

fn resolved(keys: &str, namespace: &str) -> (Resolution, Vec<Decision>) {
    let mut decisions = Vec::new();
    let found = resolve(&world(), &conf(keys), namespace, &mut decisions);
    (found, decisions)
}

#[test]
fn a_network_can_be_named_directly() {
    let (found, decisions) = resolved(r#""podNetwork":"blue""#, "default");
    let (network, asked, object) = found.unwrap();
    assert_eq!(object, None);
    assert_eq!(
        (network.name.as_str(), asked.mac, asked.ips.len()),
        ("blue", None, 0)
    );
    assert_eq!(decisions[0].because, "podNetwork of the CNI configuration");
}

#[test]
fn an_attachment_is_looked_up_in_the_pods_namespace_unless_another_is_named() {
    let (found, decisions) = resolved(r#""podNetworkAttachment":"fixed""#, "shop");
    let (network, asked, object) = found.unwrap();
    // Whose rates it follows from then on.
    assert_eq!(object.unwrap().to_string(), "shop/fixed");
    assert_eq!((network.name.as_str(), asked.ips.len()), ("blue", 1));
    assert!(decisions[0].because.contains("shop/fixed"), "{decisions:?}");
    assert!(
        resolved(r#""podNetworkAttachment":"fixed""#, "default")
            .0
            .is_err()
    );
    assert!(
        resolved(r#""podNetworkAttachment":"shop/fixed""#, "default")
            .0
            .is_ok()
    );
}

#[test]
fn a_network_that_is_missing_is_refused_with_the_manifests_that_could_not_be_read() {
    let error = resolved(r#""podNetwork":"red""#, "default").0.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("PodNetwork red does not exist"), "{text}");
    assert!(text.contains("other.yaml:3: a tab"), "{text}");
}

fn refusal(keys: &str) -> Option<String> {
    match refuse_unsupported(&conf(&format!(r#""podNetwork":"blue",{keys}"#)), false) {
        Ok(()) => None,
        Err(AgentError::Unsupported { key, .. }) => Some(key),
        Err(other) => panic!("{other}"),
    }
}

/// MEAS-01 and CNI-CAP: what is not done is refused, and 0 asks for nothing.
#[test]
fn what_podnet_does_not_do_is_refused_by_its_key() {
    for (keys, key) in [
        (
            r#""runtimeConfig":{"portMappings":[{"hostPort":80,"containerPort":8080}]}"#,
            "runtimeConfig.portMappings",
        ),
        (
            r#""runtimeConfig":{"portmappings":[{"hostPort":80,"containerPort":8080}]}"#,
            "runtimeConfig.portMappings",
        ),
        (
            r#""runtimeConfig":{"ipRanges":[[{"subnet":"10.0.0.0/24"}]]}"#,
            "runtimeConfig.ipRanges",
        ),
    ] {
        assert_eq!(refusal(keys).as_deref(), Some(key), "{keys}");
    }
    for keys in [
        r#""runtimeConfig":{}"#,
        r#""runtimeConfig":{"portMappings":[],"ipRanges":[]}"#,
        r#""runtimeConfig":{"bandwidth":{"ingressRate":0,"egressRate":0}}"#,
        r#""runtimeConfig":{"bandwidth":{"ingressRate":1000,"egressRate":1000,"egressBurst":8}}"#,
    ] {
        assert_eq!(refusal(keys), None, "{keys}");
    }
}

#[test]
fn an_add_without_a_namespace_names_the_path_that_failed() {
    let error = require(None, "/run/netns/gone").unwrap_err();
    assert_eq!(
        error.to_string(),
        "CNI_NETNS /run/netns/gone could not be opened by the plugin"
    );
}

#[test]
fn the_nodes_own_namespace_is_refused_whatever_its_path() {
    let own = Netns::open(std::path::Path::new("/proc/thread-self/ns/net")).unwrap();
    assert!(matches!(
        require(Some(own), "/x"),
        Err(AgentError::HostNetns { .. })
    ));
}

/// CNI-CAP-05: the nearer source wins whole.
#[test]
fn runtime_config_comes_before_cni_args() {
    let args = CniArgs::parse("IP=10.0.0.9;MAC=02:00:00:00:00:09");
    let near = conf(
        r#""podNetwork":"blue","runtimeConfig":{"ips":["10.0.0.1"],"mac":"02:00:00:00:00:01"}"#,
    );
    assert_eq!(
        near.requested_ips(&args).unwrap()[0].addr.to_string(),
        "10.0.0.1"
    );
    assert_eq!(
        near.requested_mac(&args).unwrap().unwrap().to_string(),
        "02:00:00:00:00:01"
    );
    let far = conf(r#""podNetwork":"blue""#);
    assert_eq!(
        far.requested_ips(&args).unwrap()[0].addr.to_string(),
        "10.0.0.9"
    );
}
