//! Test Services of a network, at pods that have no other one.
//!
//! Kubernetes' own controllers make the slices, kube-proxy runs, and the webhook keeps it away.

use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde_json::{Value, json};

use super::commands::in_pod;
use super::corner::{Corner, KEP, pod_fields};
use super::objects::{Kind, PARAMETERS, SERVICE, until};

const SLICE: Kind = ("discovery.k8s.io/v1", "EndpointSlice", "endpointslices");
/// Prefix in which the cluster's Services have addresses.
const SERVICES: &str = "10.96.0.0/16";

/// A pod on this network alone.
fn on_network(node: &str, network: &str, app: &str, command: &str) -> Value {
    let list = json!([{"name": network}]).to_string();
    let mut pod = pod_fields(node, &[(KEP, list)]);
    pod["metadata"]["labels"] = json!({"app": app});
    pod["spec"]["containers"][0]["command"] = json!(["sh", "-c", command]);
    pod
}

/// Serves the pod's own name at a named port, for as long as there is a file.
fn server(node: &str, network: &str) -> Value {
    let serve =
        "mkdir -p /www && hostname > /www/name && touch /ready && exec httpd -f -p 8080 -h /www";
    let mut pod = on_network(node, network, "web", serve);
    let container = &mut pod["spec"]["containers"][0];
    container["ports"] = json!([{"name": "web", "containerPort": 8080}]);
    container["readinessProbe"] = json!({
        "exec": {"command": ["test", "-e", "/ready"]}, "periodSeconds": 1, "failureThreshold": 1,
    });
    pod
}

/// Names of the pods that answer a client at an address.
fn answers(corner: &Corner, client: &str, address: &str) -> BTreeSet<String> {
    let fetch = format!(
        "for i in $(seq 16); do timeout 3 wget -q -O - http://{address}/name || echo none; done"
    );
    let said = in_pod((&corner.name, client), &["sh", "-c", &fetch]);
    let said = said.unwrap_or_default();
    said.split_whitespace().map(str::to_owned).collect()
}

fn wait_for(corner: &Corner, client: &str, address: &str, expected: &[&str]) {
    let expected: BTreeSet<String> = expected.iter().map(|it| (*it).to_owned()).collect();
    until(&format!("{client} to be answered by {expected:?}"), || {
        (answers(corner, client, address) == expected).then_some(())
    });
}

/// KEP-P3-4, KEP-3698 "Story 6".
///
/// Clients and endpoints have one interface, on the network.
#[test]
fn a_service_of_a_network_leads_pods_without_another_one_to_its_ready_endpoints() {
    let corner = Corner::new("services");
    let network = corner.network_with(
        "blue",
        json!({
            "mode": "L3", "subnets": ["10.113.0.0/24"], "gateway": "First",
            "transport": {"type": "VXLAN"}, "serviceCIDRs": [SERVICES],
        }),
    );
    for (name, node) in [("s1", "n1"), ("s2", "n2")] {
        corner.create(name, &server(node, &network));
    }
    let service = json!({
        "metadata": {"labels": {"podnet.dev/network": network}},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": "web"}]},
    });
    corner.objects.make(SERVICE, (&corner.name, "web"), service);
    for (name, node) in [("c1", "n1"), ("c2", "n2")] {
        corner.create(name, &on_network(node, &network, "client", "sleep 1000000"));
    }
    for pod in ["s1", "s2", "c1", "c2"] {
        let interfaces = corner.ready(pod);
        assert_eq!(interfaces.len(), 1, "{interfaces:?}");
    }
    let object = corner.objects.get(SERVICE, (&corner.name, "web"));
    let object = object.expect("the Service");
    let proxy = &object["metadata"]["labels"]["service.kubernetes.io/service-proxy-name"];
    assert_eq!(proxy, "podnet.dev", "the webhook adds it");
    let address = object["spec"]["clusterIP"].as_str().expect("an address");
    for client in ["c1", "c2"] {
        wait_for(&corner, client, address, &["s1", "s2"]);
    }
    // One that is not ready gets no new connection.
    corner.run("s2", &["rm", "/ready"]);
    for client in ["c1", "c2"] {
        wait_for(&corner, client, address, &["s1"]);
    }
    corner.run("s2", &["touch", "/ready"]);
    wait_for(&corner, "c1", address, &["s1", "s2"]);
    corner.delete("s1");
    wait_for(&corner, "c1", address, &["s2"]);
    corner.delete("s2");
    wait_for(&corner, "c2", address, &["none"]);
    corner.objects.delete_wait(SERVICE, (&corner.name, "web"));
    until("the slices to go with the Service", || {
        let slices = corner.objects.list(SLICE, &corner.name);
        slices.is_empty().then_some(())
    });
    proof::of!("KEP-P3-4");
}

/// True when a port of an address takes a client's connection.
fn connects(corner: &Corner, client: &str, address: &str, port: u16) -> bool {
    let connect = format!("nc -w 3 {address} {port} < /dev/null > /dev/null && echo connected");
    let said = in_pod((&corner.name, client), &["sh", "-c", &connect]);
    said.is_ok_and(|said| said.trim() == "connected")
}

/// The addresses that a Service has.
fn addresses(corner: &Corner, name: &str) -> Vec<String> {
    let object = corner.objects.get(SERVICE, (&corner.name, name));
    let object = object.expect("the Service");
    let all = object["spec"]["clusterIPs"].as_array().expect("addresses");
    let all = all.iter().filter_map(|it| it.as_str().map(str::to_owned));
    all.collect()
}

/// Counts the questions to a DNS server outside of the cluster.
///
/// It answers each with 192.0.2.53.
fn name_server() -> (u16, Arc<AtomicUsize>) {
    let socket = UdpSocket::bind(("0.0.0.0", 0)).expect("a socket");
    let port = socket.local_addr().expect("its address").port();
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    thread::spawn(move || {
        let mut packet = [0; 512];
        // It ends with the tests.
        while let Ok((length, from)) = socket.recv_from(&mut packet) {
            counted.fetch_add(1, Ordering::Relaxed);
            let mut answer = packet[..length].to_vec();
            // RFC 1035 section 4.1: a response, with an answer for the question, of class IN and type A.
            (answer[2], answer[3], answer[7]) = (0x85, 0x80, 1);
            answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 53]);
            let _ = socket.send_to(&answer, from);
        }
    });
    (port, asked)
}

/// Asks a DNS server for a name.
fn resolves(corner: &Corner, client: &str, server: &str) -> bool {
    let ask = ["nslookup", "-type=a", "some.example", server];
    let said = in_pod((&corner.name, client), &ask);
    said.unwrap_or_else(|why| why).contains("192.0.2.53")
}

/// A Service without selector, with this endpoint.
fn service_at(corner: &Corner, name: &str, (ip, port): (&str, u16), protocol: &str) {
    let ports = json!([{"port": 53, "targetPort": port, "protocol": protocol}]);
    corner.objects.make(
        SERVICE,
        (&corner.name, name),
        json!({"spec": {"ports": ports}}),
    );
    let slice = json!({
        "metadata": {"labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv4",
        "ports": [{"port": port, "protocol": protocol}],
        "endpoints": [{"addresses": [ip]}],
    });
    corner.objects.make(SLICE, (&corner.name, name), slice);
}

/// KEP-P3-2: by kube-proxy, from the clients' node; and nothing else (ATT-10b).
#[test]
fn pods_without_another_network_reach_the_services_that_theirs_names_and_nothing_else() {
    let corner = Corner::new("named");
    let network = |suffix: &str, more: Value| {
        let mut spec = json!({
            "mode": "L3", "subnets": ["10.114.0.0/24", "fd10:114::/64"], "gateway": "First",
            "transport": {"type": "VXLAN"}, "serviceCIDRs": [SERVICES, "fd00:96::/112"],
        });
        for (key, value) in more.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        corner.network_with(suffix, spec)
    };
    let named = ["echo", "dns", "node"].map(|name| format!("{}/{name}", corner.name));
    let named = [&named[..], &["default/kubernetes".to_owned()]].concat();
    let reaching = network("reaching", json!({"clusterServices": named}));
    let plain = network("plain", json!({}));
    let leaving = network(
        "leaving",
        json!({"egress": "Masquerade", "routes": [{"dst": "10.0.0.0/8"}]}),
    );
    let mut echo = pod_fields("n1", &[]);
    echo["metadata"]["labels"] = json!({"app": "echo"});
    let serve = "mkdir -p /www && hostname > /www/name && exec httpd -f -p 8080 -h /www";
    echo["spec"]["containers"][0]["command"] = json!(["sh", "-c", serve]);
    corner.create("echo", &echo);
    for name in ["echo", "other"] {
        let spec = json!({"spec": {
            "ipFamilyPolicy": "PreferDualStack", "selector": {"app": "echo"},
            "ports": [{"port": 80, "targetPort": 8080}],
        }});
        corner.objects.make(SERVICE, (&corner.name, name), spec);
    }
    let (port, asked) = name_server();
    service_at(&corner, "dns", ("10.89.0.1", port), "UDP");
    // The kubelet of n1, which is the node itself for the clients there.
    service_at(&corner, "node", ("10.89.0.11", 10250), "TCP");
    let clients = [
        ("c1", "n1", &reaching),
        ("c2", "n2", &reaching),
        ("p1", "n1", &plain),
        ("l1", "n1", &leaving),
    ];
    for (name, node, network) in clients {
        corner.create(name, &on_network(node, network, "client", "sleep 1000000"));
    }
    let echo = corner.ready("echo")[0].ips[0].clone();
    for (name, ..) in clients {
        assert_eq!(corner.ready(name).len(), 1, "{name} has one interface");
    }
    let [services, others, dns, node] =
        ["echo", "other", "dns", "node"].map(|name| addresses(&corner, name));
    let v6 = format!("[{}]", services[1]);
    for client in ["c1", "c2"] {
        wait_for(&corner, client, &services[0], &["echo"]);
        wait_for(&corner, client, &v6, &["echo"]);
        for (what, address, port) in [("API server", "10.96.0.1", 443), ("kubelet", &node[0], 53)] {
            let connected = connects(&corner, client, address, port);
            assert!(connected, "{client}: the {what} at {address}");
        }
        let before = asked.load(Ordering::Relaxed);
        assert!(resolves(&corner, client, &dns[0]), "{client}");
        assert!(asked.load(Ordering::Relaxed) > before);
    }
    // The Service itself works, for pods of the default network.
    assert!(connects(&corner, "echo", &others[0], 80));
    let closed = [
        (others[0].as_str(), 80),
        (&others[1], 80),
        (&services[0], 81),
        (&services[0], 443),
        (&echo, 8080),
        ("10.89.0.1", 6443),
        ("10.89.0.11", 10250),
    ];
    for client in ["c1", "c2"] {
        for (address, port) in closed {
            let connected = connects(&corner, client, address, port);
            assert!(!connected, "{client} -> {address}:{port}");
        }
    }
    for client in ["p1", "l1"] {
        for (address, port) in [
            (services[0].as_str(), 80),
            ("10.96.0.1", 443),
            (&others[0], 80),
        ] {
            let connected = connects(&corner, client, address, port);
            assert!(!connected, "{client} -> {address}:{port}");
        }
    }
    // A Service that is there, and is named no more.
    let fewer = json!({"spec": {"clusterServices": ["default/kubernetes"]}});
    let patched = corner.objects.patch(PARAMETERS, ("", &reaching), &fewer);
    patched.expect("the list can be shorter");
    for client in ["c1", "c2"] {
        until("the Service to be closed", || {
            (!connects(&corner, client, &services[0], 80)).then_some(())
        });
        assert!(connects(&corner, client, "10.96.0.1", 443), "{client}");
    }
    assert!(connects(&corner, "echo", &services[0], 80));
    for name in ["echo", "other", "dns", "node"] {
        corner.objects.delete_wait(SERVICE, (&corner.name, name));
    }
    proof::of!("ATT-10b", "KEP-P3-2");
}
