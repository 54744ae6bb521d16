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
    assert_eq!(digest_of(&first), digest_of(&again));
}

#[test]
fn host_ports_of_a_list_are_refused() {
    let mut options = AttachmentOptions::default();
    refuse_options(&options).unwrap();
    options.port_mappings.push(api::selection::PortMapping {
        host_port: 8080,
        container_port: 80,
        protocol: api::selection::Protocol::Udp,
        host_ip: None,
    });
    let refused = refuse_options(&options);
    assert!(matches!(refused, Err(AgentError::HostPortOfList { .. })));
}

#[test]
fn another_request_has_another_digest() {
    let base = r#"{"cniVersion":"1.1.0","name":"n","podNetwork":"blue"}"#;
    let digests = [
        ("", base),
        ("IP=10.0.0.1", base),
        ("", r#"{"cniVersion":"1.1.0","name":"n","podNetwork":"red"}"#),
        ("", r#"{"cniVersion":"1.1.0","name":"n","podNetwork":"blue","isDefaultGateway":true}"#),
        ("", r#"{"cniVersion":"1.1.0","name":"n","podNetwork":"blue","labels":{"app":"web"}}"#),
        ("", r#"{"cniVersion":"1.1.0","name":"n","podNetwork":"blue","labels":{"app":"db"}}"#),
        // The order of a list means something.
        ("", r#"{"cniVersion":"1.1.0","name":"n","podNetwork":"blue","runtimeConfig":{"ips":["10.0.0.1","10.0.0.2"]}}"#),
        ("", r#"{"cniVersion":"1.1.0","name":"n","podNetwork":"blue","runtimeConfig":{"ips":["10.0.0.2","10.0.0.1"]}}"#),
    ]
    .map(|(args, config)| digest_of(&request(args, config)));
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

fn resolved(keys: &str, namespace: &str) -> Result<Native, AgentError> {
    Native::configured(&world(), &conf(keys), namespace)
}

#[test]
fn a_network_can_be_named_directly() {
    let found = resolved(r#""podNetwork":"blue""#, "default").unwrap();
    assert_eq!(found.object, None);
    assert_eq!(found.network.name, "blue");
    assert_eq!((found.asked.mac, found.asked.ips.len()), (None, 0));
    let because = found.decision.because;
    assert_eq!(because, "podNetwork of the CNI configuration");
}

#[test]
fn an_attachment_is_looked_up_in_the_pods_namespace_unless_another_is_named() {
    let found = resolved(r#""podNetworkAttachment":"fixed""#, "shop").unwrap();
    // Whose rates it follows from then on.
    assert_eq!(found.object.unwrap().to_string(), "shop/fixed");
    let network = found.network.name.as_str();
    assert_eq!((network, found.asked.ips.len()), ("blue", 1));
    assert!(found.decision.because.contains("shop/fixed"));
    assert!(resolved(r#""podNetworkAttachment":"fixed""#, "default").is_err());
    assert!(resolved(r#""podNetworkAttachment":"shop/fixed""#, "default").is_ok());
}

#[test]
fn a_network_that_is_missing_is_refused_with_the_manifests_that_could_not_be_read() {
    let error = resolved(r#""podNetwork":"red""#, "default").unwrap_err();
    let text = error.to_string();
    assert!(text.contains("PodNetwork red does not exist"), "{text}");
    assert!(text.contains("other.yaml:3: a tab"), "{text}");
}

/// Wishes of one source; each source has addresses and rates of its own.
fn asks(octet: u8) -> AttachmentRequest {
    AttachmentRequest {
        ips: vec![IpRequest {
            address: IpAddr::from([10, 10, 0, octet]),
            prefix_len: None,
        }],
        mac: Some(format!("02:00:00:00:00:{octet:02x}").parse().unwrap()),
        bandwidth: rate(octet),
        ..AttachmentRequest::default()
    }
}

fn rate(octet: u8) -> api::Bandwidth {
    let limit = api::Limit {
        rate: Some(u64::from(octet) * 1_000_000),
        ..api::Limit::default()
    };
    api::Bandwidth {
        ingress: limit,
        egress: limit,
    }
}

/// The source nearest to the pod wins, as the module's documentation has it.
#[test]
fn the_nearest_source_wins_for_addresses_macs_and_rates_alike() {
    const RUNTIME: &str = r#""podNetwork":"blue","runtimeConfig":{"ips":["10.10.0.2"],
        "mac":"02:00:00:00:00:02","bandwidth":{"ingressRate":2000000,"ingressBurst":100000,
        "egressRate":2000000,"egressBurst":100000}}"#;
    let request = request("", r#"{"cniVersion":"1.1.0","name":"n","type":"podnet"}"#);
    let invocation = request.invocation().unwrap();
    let netns = Netns::open(std::path::Path::new("/proc/thread-self/ns/net")).unwrap();
    // Element, runtime, definition, parameters: from the nearest on, one after the other is silent.
    for silent in 0..=4_u8 {
        let speaks = |source: u8| source > silent;
        let conf = conf(if speaks(2) {
            RUNTIME
        } else {
            r#""podNetwork":"blue""#
        });
        let mut native = resolved(r#""podNetwork":"blue""#, "default").unwrap();
        native.network.bandwidth = rate(5);
        if speaks(3) {
            native.defined = asks(3);
        }
        if speaks(4) {
            native.asked = asks(4);
        }
        let options = if speaks(1) {
            let element = asks(1);
            AttachmentOptions {
                ips: element.ips,
                mac: element.mac,
                bandwidth: Some(element.bandwidth),
                ..AttachmentOptions::default()
            }
        } else {
            AttachmentOptions::default()
        };
        let asked = Asked {
            request: &request,
            invocation: &invocation,
            conf: &conf,
            netns: &netns,
            digest: "digest",
        };
        let place = Place {
            options: &options,
            ifname: &IfName::new("net1").unwrap(),
            default_gateway: DefaultRoutes::default(),
            explicit: false,
            by_plugin: false,
            config_name: None,
            digest: asked.digest.to_owned(),
        };
        let wanted = native.wanted_at(asked, place).unwrap();
        let nearest = silent + 1;
        let expected: Vec<IpAddr> = (nearest < 5)
            .then(|| IpAddr::from([10, 10, 0, nearest]))
            .into_iter()
            .collect();
        let ips: Vec<IpAddr> = wanted.ips.0.iter().map(|ip| ip.address).collect();
        assert_eq!(ips, expected, "without {silent}");
        let mac = wanted.mac.map(|(mac, _)| mac.0[5]);
        assert_eq!(mac, (nearest < 5).then_some(nearest), "without {silent}");
        let egress = wanted.limits.egress.map(|limit| limit.rate);
        assert_eq!(
            egress,
            Some(u64::from(nearest) * 1_000_000),
            "without {silent}"
        );
    }
}

/// A network named alone asks for the same as a list with one element.
#[test]
fn a_network_that_is_named_alone_asks_for_what_an_element_without_wishes_asks_for() {
    let request = request("", r#"{"cniVersion":"1.1.0","name":"n","type":"podnet"}"#);
    let invocation = request.invocation().unwrap();
    let netns = Netns::open(std::path::Path::new("/proc/thread-self/ns/net")).unwrap();
    let conf = conf(r#""podNetworkAttachment":"shop/fixed","labels":{"app":"web"}"#);
    let asked = Asked {
        request: &request,
        invocation: &invocation,
        conf: &conf,
        netns: &netns,
        digest: "digest",
    };
    let native = Native::configured(&world(), &conf, "default").unwrap();
    let alone = native.wanted_alone(asked).unwrap();
    assert_eq!(alone.labels["app"], "web");
    assert_eq!(alone.request_digest, "digest");
    assert_eq!(alone.ips.1, PARAMETERS);
    assert_eq!(
        alone.mac,
        Some((MacAddr([2, 0, 0, 0, 0, 0x2a]), PARAMETERS))
    );
}

fn refusal(keys: &str) -> Option<String> {
    let conf = conf(&format!(r#""podNetwork":"blue",{keys}"#));
    let native = Native::configured(&world(), &conf, "default").unwrap();
    let ports = host_ports::of_runtime(&native.network, &conf.runtime.port_mappings);
    let refused = refuse_unsupported(&conf).and(ports.map(drop));
    refused.err().map(|error| error.to_string())
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
        let refused = refusal(keys).unwrap_or_default();
        assert!(
            refused.starts_with(&format!("unsupported {key}: ")),
            "{keys}: {refused}"
        );
    }
    for keys in [
        r#""runtimeConfig":{}"#,
        r#""runtimeConfig":{"portMappings":[],"ipRanges":[]}"#,
        r#""runtimeConfig":{"bandwidth":{"ingressRate":0,"egressRate":0}}"#,
        r#""runtimeConfig":{"bandwidth":{"ingressRate":1000,"egressRate":1000,"egressBurst":8}}"#,
    ] {
        assert_eq!(refusal(keys), None, "{keys}");
    }
    proof::of!("CNI-CAP-07");
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
    proof::of!("CNI-CAP-05");
}
