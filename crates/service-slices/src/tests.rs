//! Tests of the slices that there should be.

mod changes;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::discovery::v1::EndpointSlice;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::facts::{Content, Followed, MemberFacts, PodFacts, ServiceFacts, Slice};
use super::wanted::{Known, Step, steps};

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an object")
}

fn service(spec: &Value, annotations: &Value) -> Arc<ServiceFacts> {
    let object = json!({
        "metadata": {"name": "web", "namespace": "shop", "uid": "s1",
            "labels": {
                "podnet.dev/network": "blue",
                "service.kubernetes.io/service-proxy-name": "podnet.dev",
            },
            "annotations": annotations},
        "spec": spec,
    });
    ServiceFacts::read(&read(object)).expect("a Service of a network")
}

/// An endpoint as Kubernetes writes it, on the cluster's network.
fn endpoint(pod: &str, node: &str) -> Value {
    json!({
        "addresses": ["10.0.0.1"], "nodeName": node, "zone": "z1",
        "conditions": {"ready": true, "serving": true, "terminating": false},
        "targetRef": {"kind": "Pod", "namespace": "shop", "name": pod, "uid": format!("uid-{pod}")},
        "hints": {"forZones": [{"name": "z1"}]},
    })
}

fn of_cluster(address_type: &str, endpoints: &[Value]) -> EndpointSlice {
    read(json!({
        "metadata": {"name": "web-abcde", "namespace": "shop", "labels": {
            "podnet.dev/network": "blue",
            "kubernetes.io/service-name": "web",
            "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
        }},
        "addressType": address_type,
        "ports": [{"name": "http", "protocol": "TCP", "port": 8080, "appProtocol": "h2c"}],
        "endpoints": endpoints,
    }))
}

fn members(node: &str, pods: &[(&str, &[&str])]) -> Arc<MemberFacts> {
    let pods = pods.iter().map(|(pod, ips)| {
        let ips = ips.iter().map(|ip| ip.parse().expect("an address"));
        ((*pod).to_owned(), ips.collect())
    });
    Arc::new(MemberFacts {
        network: "blue".to_owned(),
        node: node.to_owned(),
        pods: pods.collect(),
    })
}

fn pod(labels: &Value, more: &Value) -> Option<Arc<PodFacts>> {
    let mut object = json!({
        "metadata": {"name": "p", "namespace": "shop", "uid": "u", "labels": labels},
        "spec": {"nodeName": "n1", "hostname": "p", "subdomain": "web", "containers": [
            {"name": "c", "ports": [{"name": "web", "containerPort": 8080}]}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    });
    json_merge(&mut object, more);
    PodFacts::read(&read(object))
}

fn json_merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                json_merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

fn key(name: &str) -> (String, String) {
    ("shop".to_owned(), name.to_owned())
}

fn known(
    service: Arc<ServiceFacts>,
    slices: &[EndpointSlice],
    members: &[Arc<MemberFacts>],
) -> Known {
    let mut known = Known {
        services: [(key("web"), service)].into(),
        members: members.to_vec(),
        ..Known::default()
    };
    for slice in slices {
        let name = key(slice.metadata.name.as_deref().expect("a name"));
        match Followed::read(slice).expect("a slice of a Service") {
            Followed::OfCluster(slice) => known.of_cluster.insert(name, slice),
            Followed::Own(slice) => known.own.insert(name, slice),
        };
    }
    known
}

/// Contents of the slices that are written where none is.
fn wanted(known: &Known) -> BTreeMap<(String, String), Content> {
    let steps = steps(known).into_iter();
    let written = steps.filter_map(|step| match step {
        Step::Create(key, content) => Some((key, content)),
        Step::Replace(..) | Step::Delete(..) => None,
    });
    written.collect()
}

/// Pods that slices of the controller name.
fn there(known: &Known) -> BTreeSet<String> {
    let slices = known.own.values();
    let endpoints = slices.flat_map(|it| it.content.endpoints.iter());
    endpoints.map(|it| it.pod.clone()).collect()
}

/// Carries steps out as the API server would.
///
/// Endpoints that are there before and after are there all the time.
fn carry_out(known: &mut Known) -> usize {
    let before = there(known);
    let steps = steps(known);
    let count = steps.len();
    let mut between = Vec::new();
    for step in steps {
        match step {
            Step::Create(key, content) | Step::Replace(key, content, _) => {
                let object = content.write((&key.0, &key.1), None);
                let Some(Followed::Own(slice)) = Followed::read(&object) else {
                    panic!("no slice of podnet's: {object:?}");
                };
                assert_eq!(slice.content, content, "what is written is what is read");
                known.own.insert(key, slice);
            }
            Step::Delete(key, _) => {
                known.own.remove(&key);
            }
        }
        between.push(there(known));
    }
    let after = there(known);
    for (at, there) in between.iter().enumerate() {
        let lost: Vec<_> = before
            .intersection(&after)
            .filter(|it| !there.contains(*it))
            .collect();
        assert!(
            lost.is_empty(),
            "{lost:?} were away after step {at} of {count}"
        );
    }
    count
}

fn addresses(content: &Content) -> Vec<String> {
    let ips = content.endpoints.iter().filter_map(|it| it.ip);
    ips.map(|ip: IpAddr| ip.to_string()).collect()
}

/// D-EPS-8, D-SVC-02.
#[test]
fn a_slice_of_a_network_is_as_that_of_the_cluster_with_addresses_of_the_network() {
    let slice = of_cluster(
        "IPv4",
        &[
            endpoint("a", "n1"),
            endpoint("b", "n2"),
            endpoint("c", "n1"),
        ],
    );
    let members = [
        members("n1", &[("shop/a", &["fd10::1", "10.50.0.1"])]),
        members("n2", &[("shop/b", &["10.50.0.2"])]),
    ];
    let known = known(
        service(&json!({"selector": {"app": "web"}}), &json!({})),
        &[slice],
        &members,
    );
    let wanted = wanted(&known);
    let content = &wanted[&key("web-abcde-podnet")];
    assert_eq!(wanted.len(), 1);
    assert_eq!(
        addresses(content),
        ["10.50.0.1", "10.50.0.2"],
        "a pod without the network is none"
    );
    let written = content.write(("shop", "web-abcde-podnet"), None);
    let first = &written.endpoints.as_ref().expect("endpoints")[0];
    assert_eq!(
        serde_json::to_value(first).expect("JSON"),
        json!({
            "addresses": ["10.50.0.1"], "nodeName": "n1", "zone": "z1",
            "conditions": {"ready": true, "serving": true, "terminating": false},
            "targetRef": {"kind": "Pod", "namespace": "shop", "name": "a", "uid": "uid-a"},
            "hints": {"forZones": [{"name": "z1"}]},
        })
    );
    assert_eq!(
        serde_json::to_value(&written.ports).expect("JSON"),
        json!([{"name": "http", "protocol": "TCP", "port": 8080, "appProtocol": "h2c"}])
    );
    assert_eq!(
        serde_json::to_value(&written.metadata).expect("JSON"),
        json!({
            "name": "web-abcde-podnet", "namespace": "shop",
            "labels": {
                "podnet.dev/network": "blue", "podnet.dev/service-name": "web",
                "endpointslice.kubernetes.io/managed-by": "podnet.dev",
                "service.kubernetes.io/service-proxy-name": "podnet.dev",
            },
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Service", "name": "web", "uid": "s1", "controller": true},
            ],
        }),
        "kube-proxy and DNS do not take it for a slice of the Service"
    );
    proof::of!("KEP-P3-4");
}

/// D-EPS-8: a compromised node says that it has pods of others.
#[test]
fn a_node_gives_addresses_to_its_own_pods_only() {
    let slice = of_cluster("IPv4", &[endpoint("a", "n1")]);
    let members = [members("n2", &[("shop/a", &["10.50.0.66"])])];
    let known = known(
        service(&json!({"selector": {"app": "web"}}), &json!({})),
        &[slice],
        &members,
    );
    assert!(wanted(&known).is_empty());
}

#[test]
fn each_family_has_slices_of_its_own() {
    let slice = of_cluster("IPv6", &[endpoint("a", "n1")]);
    let members = [members("n1", &[("shop/a", &["10.50.0.1", "fd10::1"])])];
    let known = known(
        service(&json!({"selector": {"app": "web"}}), &json!({})),
        &[slice],
        &members,
    );
    let wanted = wanted(&known);
    assert_eq!(addresses(&wanted[&key("web-abcde-podnet")]), ["fd10::1"]);
}

#[test]
fn slices_go_with_their_service_and_come_back_with_another() {
    let slice = of_cluster("IPv4", &[endpoint("a", "n1")]);
    let members = [members("n1", &[("shop/a", &["10.50.0.1"])])];
    let spec = json!({"selector": {"app": "web"}});
    let mut known = known(service(&spec, &json!({})), &[slice], &members);
    assert_eq!(carry_out(&mut known), 1);
    assert_eq!(carry_out(&mut known), 0, "nothing is written twice");
    let mut another = service(&spec, &json!({}));
    Arc::make_mut(&mut another).uid = "s2".to_owned();
    known.services.insert(key("web"), another);
    assert_eq!(carry_out(&mut known), 1);
    assert_eq!(known.own[&key("web-abcde-podnet")].content.owner, "s2");
    known.services.clear();
    assert_eq!(carry_out(&mut known), 1);
    assert!(known.own.is_empty());
}

/// A slice of another writer with the controller's label, of whatever type.
#[test]
fn slices_that_are_forged_in_the_name_of_the_controller_go() {
    let slice = of_cluster("IPv4", &[endpoint("a", "n1")]);
    let members = [members("n1", &[("shop/a", &["10.50.0.1"])])];
    let forged = |name: &str, address_type: &str| -> EndpointSlice {
        read(json!({
            "metadata": {"name": name, "namespace": "shop", "labels": {
                "podnet.dev/network": "blue", "podnet.dev/service-name": "web",
                "endpointslice.kubernetes.io/managed-by": "podnet.dev",
            }},
            "addressType": address_type,
            "endpoints": [{"addresses": ["example.com"]}],
        }))
    };
    let forged = [
        slice,
        forged("web-abcde-podnet", "FQDN"),
        forged("other", "IPv4"),
    ];
    let mut known = known(
        service(&json!({"selector": {"app": "web"}}), &json!({})),
        &forged,
        &members,
    );
    assert_eq!(carry_out(&mut known), 2);
    assert!(known.own.is_empty());
    assert_eq!(carry_out(&mut known), 1);
    let own = &known.own[&key("web-abcde-podnet")];
    assert_eq!(own.content.address_type, "IPv4");
}

/// D-EPS-10, D-SVC-06.
#[test]
fn dns_tells_addresses_of_the_network_by_the_name_of_a_headless_service() {
    let annotation = json!({"podnet.dev/selector": "app=web, tier=front"});
    let spec = json!({"clusterIP": "None", "ipFamilies": ["IPv4", "IPv6"], "ports": [
        {"name": "http", "port": 80, "targetPort": "web"},
        {"name": "admin", "port": 90},
    ]});
    let members = [members("n1", &[("shop/p", &["10.50.0.1", "fd10::1"])])];
    let mut known = known(service(&spec, &annotation), &[], &members);
    let labels = json!({"app": "web", "tier": "front", "x": "y"});
    known.pods = Some([(key("p"), pod(&labels, &json!({})).expect("a pod"))].into());
    let wanted = wanted(&known);
    let names: Vec<_> = wanted.keys().map(|(_, name)| name.as_str()).collect();
    assert_eq!(names, ["web-podnet-ipv4-0", "web-podnet-ipv6-0"]);
    let content = &wanted[&key("web-podnet-ipv4-0")];
    assert_eq!(addresses(content), ["10.50.0.1"]);
    let written = content.write(("shop", "web-podnet-ipv4-0"), None);
    let labels = written.metadata.labels.expect("labels");
    assert_eq!(labels["kubernetes.io/service-name"], "web");
    assert_eq!(labels["service.kubernetes.io/headless"], "");
    let endpoint = &written.endpoints.expect("endpoints")[0];
    assert_eq!(endpoint.hostname.as_deref(), Some("p"));
    let ports = written.ports.expect("ports");
    let ports: Vec<_> = ports
        .iter()
        .map(|it| (it.name.as_deref(), it.port))
        .collect();
    assert_eq!(
        ports,
        [(Some("http"), Some(8080)), (Some("admin"), Some(90))]
    );
}

/// D-SVC-12: as Kubernetes says it of pods.
#[test]
fn a_selected_pod_is_ready_serving_or_terminating_as_kubernetes_has_it() {
    let unready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    let ending = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    let ended = json!({"status": {"phase": "Succeeded"}});
    let states = [
        (json!({}), false, Some([true, true, false])),
        (unready.clone(), false, Some([false, false, false])),
        (unready, true, Some([true, false, false])),
        (ending.clone(), false, Some([false, true, true])),
        (ending, true, Some([true, true, true])),
        (ended, true, None),
    ];
    for (more, publishes, expected) in states {
        let spec = json!({"clusterIP": "None", "ipFamilies": ["IPv4"], "publishNotReadyAddresses": publishes});
        let annotation = json!({"podnet.dev/selector": "app=web"});
        let members = [members("n1", &[("shop/p", &["10.50.0.1"])])];
        let mut known = known(service(&spec, &annotation), &[], &members);
        let pod = pod(&json!({"app": "web"}), &more);
        known.pods = Some(pod.into_iter().map(|pod| (key("p"), pod)).collect());
        let wanted = wanted(&known);
        let found = wanted.values().next().map(|it| {
            let told = it.endpoints[0].conditions;
            [told.ready, told.serving, told.terminating].map(|it| it == Some(true))
        });
        assert_eq!(
            found, expected,
            "{more}, publishNotReadyAddresses {publishes}"
        );
    }
}

#[test]
fn a_pod_without_the_named_port_is_an_endpoint_of_the_other_ports() {
    let spec = json!({"clusterIP": "None", "ipFamilies": ["IPv4", "IPv6"], "ports": [
        {"name": "x", "port": 1, "targetPort": "nowhere"}, {"name": "y", "port": 2, "protocol": "UDP"},
    ]});
    let annotation = json!({"podnet.dev/selector": "app=web"});
    let members = [members("n1", &[("shop/p", &["10.50.0.1"])])];
    let mut known = known(service(&spec, &annotation), &[], &members);
    known.pods = Some(
        [(
            key("p"),
            pod(&json!({"app": "web"}), &json!({})).expect("a pod"),
        )]
        .into(),
    );
    let wanted = wanted(&known);
    let ports = &wanted[&key("web-podnet-ipv4-0")].ports;
    let names: Vec<_> = ports.iter().map(|it| it.name.as_deref()).collect();
    assert_eq!(names, [Some("y")]);
}

#[test]
fn a_selector_that_cannot_be_read_selects_nothing_and_is_told() {
    for text in ["", "app", "app=", "=x", "a!=b", "a in (b)", "a==b"] {
        let facts = service(&json!({}), &json!({"podnet.dev/selector": text}));
        let is_read = matches!(facts.endpoints, super::facts::Origin::Pods(_));
        // A label may be empty.
        assert_eq!(is_read, text == "app=", "{text}");
        assert_eq!(facts.problems.is_empty(), is_read, "{text}");
    }
    let both = service(
        &json!({"selector": {"a": "b"}}),
        &json!({"podnet.dev/selector": "a=b"}),
    );
    assert_eq!(both.endpoints, super::facts::Origin::Slices);
    assert!(both.problems[0].ends_with("remove one of the two"));
    let headless = service(
        &json!({"selector": {"a": "b"}, "clusterIP": "None"}),
        &json!({}),
    );
    assert!(headless.problems[0].contains("in place of spec.selector"));
}

/// D-SVC-07.
#[test]
fn a_service_that_kube_proxy_has_too_is_told() {
    let object = json!({
        "metadata": {"name": "web", "namespace": "shop", "labels": {"podnet.dev/network": "blue"}},
        "spec": {"type": "NodePort", "clusterIP": "10.96.0.1"},
    });
    let facts = ServiceFacts::read(&read(object)).expect("a Service of a network");
    let problems = facts.problems.join("; ");
    assert!(
        problems.contains("type NodePort is served as ClusterIP only"),
        "{problems}"
    );
    assert!(
        problems.ends_with("set the label service.kubernetes.io/service-proxy-name: podnet.dev"),
        "{problems}"
    );
}

/// Pods come and go, and slices follow.
///
/// All endpoints are there once, no slice has more than its share, and a change of one pod changes one slice.
#[test]
fn slices_of_selected_pods_stay_as_they_are_where_nothing_changes() {
    let annotation = json!({"podnet.dev/selector": "app=web"});
    let spec = json!({"clusterIP": "None", "ipFamilies": ["IPv4"]});
    let one = pod(&json!({"app": "web"}), &json!({})).expect("a pod");
    proptest!(ProptestConfig::with_cases(64), |(rounds in proptest::collection::vec(
        proptest::collection::btree_set(0_u8..250, 0..250), 1..4))| {
        let mut known = known(service(&spec, &annotation), &[], &[]);
        for (round, pods) in rounds.iter().chain(rounds.last()).enumerate() {
            let names: Vec<String> = pods.iter().map(|it| format!("p{it}")).collect();
            let ips: Vec<(String, Vec<IpAddr>)> = pods
                .iter()
                .map(|it| (format!("shop/p{it}"), vec![IpAddr::from([10, 50, 0, *it])]))
                .collect();
            known.members = vec![Arc::new(MemberFacts {
                network: "blue".to_owned(), node: "n1".to_owned(), pods: ips,
            })];
            known.pods = Some(names.iter().map(|it| (key(it), Arc::clone(&one))).collect());
            let steps = carry_out(&mut known);
            if round == rounds.len() {
                prop_assert_eq!(steps, 0, "the same again");
            }
            let slices: Vec<&Arc<Slice>> = known.own.values().collect();
            let mut there: Vec<&str> = slices
                .iter()
                .flat_map(|it| it.content.endpoints.iter().map(|it| it.pod.as_str()))
                .collect();
            there.sort_unstable();
            let mut expected: Vec<&str> = names.iter().map(String::as_str).collect();
            expected.sort_unstable();
            prop_assert_eq!(there, expected);
            prop_assert!(slices.iter().all(|it| (1..=100).contains(&it.content.endpoints.len())));
        }
        let count = known.own.len();
        if let Some((gone, _)) = known.pods.as_mut().and_then(BTreeMap::pop_first) {
            prop_assert_eq!(carry_out(&mut known), 1, "of {} slices, without {:?}", count, gone);
        }
    });
}
