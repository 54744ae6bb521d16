//! podnet as the cluster's own network: `cargo xtask cluster up --default native`.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::commands::{in_pod, on_node};
use super::corner::{Corner, is_native, pod_fields};
use super::objects::{Kind, Objects, POD, SERVICE, condition, until};

const NODE: Kind = ("v1", "Node", "nodes");
/// Of the pods, and by way of the node.
const PORTS: [u16; 2] = [8080, 18080];

/// True, and said, where another plugin makes the default network.
fn without(objects: &Objects, test: &str) -> bool {
    let missing = !is_native(objects);
    if missing {
        testbed::skip::skip(test, "needs podnet as default network");
    }
    missing
}

/// A pod that serves its own name, with a host port and probes of both kinds.
fn server(node: &str, labels: &Value) -> Value {
    let serve = "mkdir -p /www && hostname > /www/index.html && exec httpd -f -p 8080 -h /www";
    let mut pod = pod_fields(node, &[]);
    pod["metadata"]["labels"] = labels.clone();
    let container = &mut pod["spec"]["containers"][0];
    container["command"] = json!(["sh", "-c", serve]);
    container["ports"] = json!([{"containerPort": PORTS[0], "hostPort": PORTS[1]}]);
    let (page, open) = (
        json!({"port": PORTS[0], "path": "/"}),
        json!({"port": PORTS[0]}),
    );
    container["readinessProbe"] = json!({"httpGet": page, "periodSeconds": 1});
    container["livenessProbe"] = json!({"tcpSocket": open, "periodSeconds": 2});
    pod
}

/// Returns the answer that a pod gets at this address and port.
fn answer(corner: &Corner, pod: &str, ip: &str, port: u16) -> Result<String, String> {
    let ask = format!("printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 5 {ip} {port} | tail -n 1");
    let said = in_pod((&corner.name, pod), &["sh", "-c", &ask])?;
    Ok(said.trim().to_owned())
}

#[track_caller]
fn assert_answers(corner: &Corner, pod: &str, (ip, port): (&str, u16), who: &str) {
    let said = answer(corner, pod, ip, port);
    assert_eq!(said.as_deref(), Ok(who), "{pod} asks {ip} port {port}");
}

fn texts(list: &Value) -> Vec<String> {
    let list = list.as_array().into_iter().flatten();
    list.filter_map(|one| Some(one.as_str()?.to_owned()))
        .collect()
}

/// Issue 4, "Default network": pods, nodes, Services and host ports are reached.
///
/// They are probes, pods on both nodes, Services in both families from all pods to all, themselves
/// among them, host ports, and the API server.
#[test]
fn pods_nodes_services_and_host_ports_reach_each_other_where_podnet_is_the_default_network() {
    let corner = Corner::new("native");
    if without(&corner.objects, testbed::test_name!()) {
        return;
    }
    let labels = json!({"app": "web"});
    let pods = [("w1", "n1"), ("w2", "n2")];
    for (pod, node) in pods {
        corner.create(pod, &server(node, &labels));
    }
    let service = json!({"spec": {
        "ipFamilyPolicy": "RequireDualStack", "selector": labels,
        "ports": [{"port": 80, "targetPort": PORTS[0]}],
    }});
    corner.objects.make(SERVICE, (&corner.name, "web"), service);
    // Ready says that the kubelets' probes came through.
    for (pod, _) in pods {
        until(&format!("pod {pod} to be ready"), || {
            let object = corner.objects.get(POD, (&corner.name, pod))?;
            (condition(&object, "Ready")? == "True").then_some(())
        });
    }
    let service = corner.objects.get(SERVICE, (&corner.name, "web"));
    let service = texts(&service.expect("the service")["spec"]["clusterIPs"]);
    assert_eq!(service.len(), 2, "{service:?}");
    for (from, _) in pods {
        for (to, node) in pods {
            for ip in corner.object(to)["status"]["podIPs"]
                .as_array()
                .expect("addresses")
            {
                let ip = ip["ip"].as_str().expect("an address");
                assert_answers(&corner, from, (ip, PORTS[0]), to);
            }
            let node = corner.objects.get(NODE, ("", node)).expect("a node");
            let addresses = node["status"]["addresses"].as_array().expect("addresses");
            let internal = addresses.iter().find(|it| it["type"] == "InternalIP");
            let internal = internal.and_then(|it| it["address"].as_str());
            assert_answers(&corner, from, (internal.expect("an address"), PORTS[1]), to);
        }
        for ip in &service {
            let mut seen = BTreeSet::new();
            // Chance decides who answers; a pod that asks itself is the hard case.
            until("both pods to answer for the service", || {
                let said = answer(&corner, from, ip, 80);
                let said = said.unwrap_or_else(|why| unreachable!("{from} asks {ip}: {why}"));
                // Nothing comes from an endpoint that kube-proxy does not know yet.
                if !said.is_empty() {
                    seen.insert(said);
                }
                (seen.len() == pods.len()).then_some(())
            });
            assert_eq!(seen, BTreeSet::from(["w1".to_owned(), "w2".to_owned()]));
        }
        let api = "nc -w 5 10.96.0.1 443 < /dev/null > /dev/null && echo connected";
        let said = in_pod((&corner.name, from), &["sh", "-c", api]);
        assert_eq!(said.as_deref(), Ok("connected\n"), "the API server");
    }
}

/// Each node gives addresses of its own part, and has routes to the others' parts.
///
/// No pod can be on a node without the node's own part of the addresses, and no node has routes but to
/// the parts of others and to its own pods.
#[test]
fn each_node_gives_addresses_of_its_own_part_and_has_routes_to_the_others_part() {
    let objects = Objects::connect();
    if without(&objects, testbed::test_name!()) {
        return;
    }
    let part = |node: &str| {
        let object = objects.get(NODE, ("", node)).expect("a node");
        texts(&object["spec"]["podCIDRs"])
    };
    for (here, there) in [("n1", "n2"), ("n2", "n1")] {
        let routes = on_node(here, "ip route show proto 112; ip -6 route show proto 112");
        for prefix in part(there) {
            let is_led = |line: &str| line.starts_with(&format!("{prefix} via "));
            assert!(routes.lines().any(is_led), "{here}: {prefix} in\n{routes}");
        }
        for prefix in part(here) {
            assert!(!routes.contains(&prefix), "{here}: its own {prefix}");
        }
    }
}
