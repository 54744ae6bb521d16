//! Test Services of a real API server, as agents follow them.

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};

use k8s_openapi::api::core::v1::Service;
use kube::api::Api;
use serde_json::{Value, json};
use testbed::wait::{self, PATIENCE};
use testbed::{Network, Pod};

use super::agent_scene::AgentScene;
use super::slices::{plain, start};

/// Endpoints of a network's Services, as the agent of a node has them.
fn endpoints(scene: &AgentScene, network: &str) -> Vec<String> {
    let rows = scene.node.get("services");
    let of = rows.iter().filter(|row| row["network"] == network);
    let all = of.flat_map(|row| row["endpoints"].as_array().cloned().unwrap_or_default());
    all.filter_map(|it| it.as_str().map(str::to_owned))
        .collect()
}

/// The address that the API server has given to a Service.
fn address(scene: &AgentScene, name: &str) -> IpAddr {
    let (namespace, name) = (scene.name.clone(), name.to_owned());
    let service = scene.run(|client| async move {
        let services: Api<Service> = Api::namespaced(client, &namespace);
        services.get(&name).await
    });
    let spec = service.expect("a Service").spec.expect("a spec");
    let ip = spec.cluster_ip.expect("an address");
    ip.parse().expect("an address")
}

/// Connects from one pod to a Service, at an endpoint of the other one.
fn connects(from: &Pod<'_>, to: &Pod<'_>, service: IpAddr, at: IpAddr) -> bool {
    let listener = to
        .netns()
        .run_in(|| TcpListener::bind((at, 8080)))
        .expect("a namespace")
        .expect("a listener");
    let target = SocketAddr::from((service, 80));
    let here = from
        .netns()
        .run_in(|| TcpStream::connect_timeout(&target, PATIENCE));
    let Ok(_here) = here.expect("a namespace") else {
        return false;
    };
    listener.accept().is_ok()
}

/// D-EPS-9: Services and slices that others write.
///
/// By the rights of deploy/base/agent-rbac.yaml.
#[test]
fn agents_serve_services_with_the_label_of_a_network_and_no_others() {
    let Some(s) = start(testbed::test_name!(), "services", 19) else {
        return;
    };
    let blue = s.one.network("blue");
    let network = Network::l3(&blue, &["10.87.0.0/24"])
        .vxlan()
        .services(&["10.96.0.0/16"]);
    s.one.apply(&network.yaml());
    s.one.number(&blue, 0x00a9_0101);
    let one_uid = s.pod(&s.one, "one", &blue, &json!({}));
    let two_uid = s.pod(&s.two, "two", &blue, &json!({}));
    let (one, two) = (s.one.node.pod("c1"), s.two.node.pod("c2"));
    let of_one = s.add(&s.one, &one, "one", &one_uid);
    s.add(&s.two, &two, "two", &two_uid);
    let ip: IpAddr = plain(&of_one).parse().expect("an address");
    let namespace = &s.one.name;
    for (name, labels) in [
        ("web", format!("{{podnet.dev/network: {blue}}}")),
        ("other", "{}".to_owned()),
    ] {
        s.one.apply(&format!(
            "apiVersion: v1\nkind: Service\n\
             metadata: {{name: {name}, namespace: {namespace}, labels: {labels}}}\n\
             spec: {{ports: [{{name: http, port: 80}}]}}\n---\n\
             apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
             metadata: {{name: {name}-1, namespace: {namespace}, \
             labels: {{podnet.dev/network: {blue}, kubernetes.io/service-name: {name}}}}}\n\
             addressType: IPv4\nports: [{{name: http, port: 8080}}]\n\
             endpoints: [{{addresses: [\"{ip}\"], nodeName: {namespace}}}]\n"
        ));
    }
    let expected = [format!("{ip}:8080")];
    for scene in [&s.one, &s.two] {
        wait::until_true("the Service to be in force", || {
            endpoints(scene, &blue) == expected
        });
    }
    let service = address(&s.one, "web");
    // From the endpoint's own node: packets between nodes are tested in `services`.
    let three_uid = s.pod(&s.one, "three", &blue, &json!({}));
    let three = s.one.node.pod("c3");
    s.add(&s.one, &three, "three", &three_uid);
    assert!(connects(&three, &one, service, ip));
    let not_ready = json!({"endpoints": [
        {"addresses": [ip.to_string()], "conditions": {"ready": false}},
    ]});
    s.one.kubectl(&[
        "patch",
        "endpointslice",
        "web-1",
        "--namespace",
        namespace,
        "--type=merge",
        &format!("--patch={not_ready}"),
    ]);
    for scene in [&s.one, &s.two] {
        wait::until_true("no endpoint", || endpoints(scene, &blue).is_empty());
    }
    assert!(!connects(&three, &one, service, ip));
    s.one
        .kubectl(&["delete", "service", "web", "--namespace", namespace]);
    for scene in [&s.one, &s.two] {
        wait::until_true("no Service", || {
            let rows: Vec<Value> = scene.node.get("services");
            rows.iter().all(|row| row["network"] != blue.as_str())
        });
    }
    s.del(&s.one, &one, "one", &one_uid);
    s.del(&s.one, &three, "three", &three_uid);
    s.del(&s.two, &two, "two", &two_uid);
}
