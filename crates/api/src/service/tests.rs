use serde_json::{Value, json};

use super::*;

fn service(metadata: &Value, spec: &Value) -> Option<ServiceObject> {
    let object = json!({"metadata": metadata, "spec": spec});
    ServiceObject::read(&serde_json::from_value(object).unwrap())
}

fn slice(labels: &Value, rest: &Value) -> Option<ServiceSlice> {
    let mut object = json!({
        "metadata": {"name": "web-1", "namespace": "shop", "labels": labels},
        "addressType": "IPv4", "endpoints": [],
    });
    for (key, value) in rest.as_object().unwrap() {
        object[key] = value.clone();
    }
    ServiceSlice::read(&serde_json::from_value(object).unwrap())
}

fn of_blue() -> Value {
    json!({"name": "web", "namespace": "shop", "labels": {"podnet.dev/network": "blue"}})
}

#[test]
fn a_service_belongs_to_the_network_that_its_label_names() {
    let spec = json!({
        "clusterIP": "10.96.0.10", "clusterIPs": ["10.96.0.10", "fd96::10"],
        "ports": [{"port": 80, "name": "http"}, {"port": 53, "protocol": "UDP", "name": "dns"}],
        "sessionAffinity": "ClientIP", "internalTrafficPolicy": "Local",
    });
    let read = service(&of_blue(), &spec).unwrap();
    assert_eq!(
        (read.network.as_str(), read.to_string()),
        ("blue", "Service shop/web".to_owned())
    );
    let ips: Vec<String> = read.ips.iter().map(ToString::to_string).collect();
    assert_eq!(ips, ["10.96.0.10", "fd96::10"]);
    let ports: Vec<_> = read
        .ports
        .iter()
        .map(|it| (it.name.as_str(), it.protocol, it.port))
        .collect();
    assert_eq!(
        ports,
        [
            ("http", ServiceProtocol::Tcp, 80),
            ("dns", ServiceProtocol::Udp, 53)
        ]
    );
    assert_eq!((read.affinity_s, read.local), (10_800, true));
    assert!(read.problems.is_empty());
}

#[test]
fn a_service_without_a_network_is_the_cluster_s_unless_another_proxy_has_it() {
    let spec = json!({
        "type": "LoadBalancer", "clusterIP": "10.96.0.10",
        "ports": [{"name": "a", "port": 80}, {"name": "b", "port": 80, "protocol": "SCTP"}],
    });
    for (labels, is_read) in [
        (json!({}), true),
        (json!({"podnet.dev/network": ""}), true),
        (
            json!({"service.kubernetes.io/service-proxy-name": "other"}),
            false,
        ),
        (
            json!({"service.kubernetes.io/service-proxy-name": ""}),
            false,
        ),
        (json!({"service.kubernetes.io/headless": ""}), false),
    ] {
        let metadata = json!({"name": "web", "namespace": "shop", "labels": labels});
        let read = service(&metadata, &spec);
        assert_eq!(read.is_some(), is_read, "{labels}");
        // The cluster's proxy serves the rest.
        let Some(read) = read else { continue };
        assert_eq!((read.network.as_str(), read.ports.len()), (OF_CLUSTER, 1));
        assert!(read.problems.is_empty(), "{:?}", read.problems);
    }
}

#[test]
fn parts_of_a_service_that_are_not_obeyed_are_told() {
    let spec = json!({
        "type": "NodePort", "clusterIP": "10.96.0.10",
        "ports": [{"port": 80, "protocol": "SCTP", "name": "a"}, {"port": 70000, "name": "b"}, {"port": 1}],
    });
    let read = service(&of_blue(), &spec).unwrap();
    assert_eq!(read.ports.len(), 1);
    let expected = [
        "type NodePort",
        "port a has a protocol",
        "port b has no number",
    ];
    assert_eq!(read.problems.len(), expected.len(), "{:?}", read.problems);
    for (problem, expected) in read.problems.iter().zip(expected) {
        assert!(problem.contains(expected), "{problem}");
    }
    for spec in [
        json!({"clusterIP": "None"}),
        json!({"type": "ExternalName", "externalName": "a.example", "clusterIP": ""}),
    ] {
        assert_eq!(service(&of_blue(), &spec).unwrap().ips, [] as [IpAddr; 0]);
    }
}

#[test]
fn slices_of_the_cluster_s_own_controllers_are_not_endpoints_on_a_network() {
    let network = ("podnet.dev/network", "blue");
    let labels = |more: &[(&str, &str)]| {
        let all = more.iter().chain([&network]);
        Value::Object(
            all.map(|(key, value)| ((*key).to_owned(), json!(value)))
                .collect(),
        )
    };
    let service = ("kubernetes.io/service-name", "web");
    let managed = |by| ("endpointslice.kubernetes.io/managed-by", by);
    for (labels, is_read) in [
        (labels(&[("podnet.dev/service-name", "web")]), true),
        (labels(&[service]), true),
        (labels(&[service, managed("me")]), true),
        (
            labels(&[service, managed("endpointslice-controller.k8s.io")]),
            false,
        ),
        (
            labels(&[service, managed("endpointslicemirroring-controller.k8s.io")]),
            false,
        ),
        (
            labels(&[
                ("podnet.dev/service-name", "web"),
                managed("endpointslice-controller.k8s.io"),
            ]),
            false,
        ),
        (labels(&[]), false),
        (json!({"kubernetes.io/service-name": "web"}), true),
        (
            json!({
                "kubernetes.io/service-name": "web",
                "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
            }),
            true,
        ),
        (
            json!({"kubernetes.io/service-name": "web", "podnet.dev/service-name": "other"}),
            true,
        ),
        (
            json!({"kubernetes.io/service-name": "web", "service.kubernetes.io/headless": ""}),
            false,
        ),
        (json!({}), false),
    ] {
        let read = slice(&labels, &json!({}));
        assert_eq!(read.is_some(), is_read, "{labels}");
        assert!(read.is_none_or(|it| it.service == "web"));
    }
}

#[test]
fn conditions_that_are_absent_are_those_of_a_ready_endpoint() {
    let rest = json!({
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": [
            {"addresses": ["10.0.0.1", "10.0.0.9"], "nodeName": "a"},
            {"addresses": ["10.0.0.2"], "conditions": {"ready": false}},
            {"addresses": ["10.0.0.3"], "conditions": {"ready": false, "serving": true, "terminating": true}},
            {"addresses": ["no address"]},
            {"addresses": []},
        ],
    });
    let read = slice(
        &json!({"podnet.dev/network": "blue", "podnet.dev/service-name": "web"}),
        &rest,
    )
    .unwrap();
    let states: Vec<_> = read
        .endpoints
        .iter()
        .map(|it| (it.ip.to_string(), it.ready, it.serving, it.terminating))
        .collect();
    assert_eq!(
        states,
        [
            ("10.0.0.1".to_owned(), true, true, false),
            ("10.0.0.2".to_owned(), false, false, false),
            ("10.0.0.3".to_owned(), false, true, true),
        ]
    );
    assert_eq!(read.endpoints[0].node.as_deref(), Some("a"));
    assert_eq!(read.problems.len(), 1);
}
