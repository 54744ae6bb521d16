//! Test networks across nodes, and to the outside: VXLAN, VLAN, egress.
//!
//! The VLAN is one of the link between the nodes.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, TcpListener};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::commands::in_pod;
use super::corner::{Corner, Interface, KEP, pod_fields};
use super::objects::{EVENT, NETWORK, NODE, condition, until};

/// The interface that connects the nodes of the cluster.
const UPLINK: &str = "eth0";
/// VLANs that nothing else here has.
const VLANS: [u16; 2] = [301, 302];
/// Port of a pod's server.
const PORT: u16 = 8080;
/// Makes 4 MiB that no other pod has, and serves them.
const SERVE: &str = "mkdir -p /www && dd if=/dev/urandom of=/www/new bs=65536 count=64 2>/dev/null \
    && mv /www/new /www/data && exec httpd -f -p 8080 -h /www";

fn list(network: &str) -> String {
    json!([{"name": "default", "isDefaultGW": true}, {"name": network}]).to_string()
}

/// A pod with a second network that serves its own data.
fn server(node: &str, network: &str) -> Value {
    let mut pod = pod_fields(node, &[(KEP, list(network))]);
    pod["spec"]["containers"][0]["command"] = json!(["sh", "-c", SERVE]);
    pod
}

fn addresses(interfaces: &[Interface]) -> &[String] {
    &interfaces[1].ips
}

/// The digest of a pod's own data.
fn data(corner: &Corner, pod: &str) -> String {
    let own = until(&format!("{pod} to serve"), || {
        let sum = in_pod((&corner.name, pod), &["md5sum", "/www/data"]);
        sum.ok()
    });
    own.split_whitespace().next().unwrap_or_default().to_owned()
}

/// Returns the digest of the content that an address serves to a pod.
///
/// `wget -T` of busybox crashes where it is linked statically.
fn fetched(corner: &Corner, pod: &str, ip: &str) -> Option<String> {
    let host = match ip.parse() {
        Ok(IpAddr::V6(_)) => format!("[{ip}]"),
        _ => ip.to_owned(),
    };
    let fetch = format!(
        "rm -f /tmp/data; timeout 5 wget -q -O /tmp/data http://{host}:{PORT}/data && md5sum /tmp/data"
    );
    let said = in_pod((&corner.name, pod), &["sh", "-c", &fetch]).ok()?;
    said.split_whitespace().next().map(str::to_owned)
}

/// Asserts that two networks on the same link are apart, and span the nodes.
///
/// They differ in nothing but their part of the link: pods of one get each other's data from the other
/// node, in both families, and nothing of the other network.
fn assert_apart(corner: &Corner, specs: [Value; 2]) {
    let [blue, red] = [("blue", &specs[0]), ("red", &specs[1])]
        .map(|(suffix, spec)| corner.network_with(suffix, spec.clone()));
    let pods = [
        ("b1", "n1", &blue),
        ("b2", "n2", &blue),
        ("r1", "n1", &red),
        ("r2", "n2", &red),
    ];
    for (pod, node, network) in pods {
        corner.create(pod, &server(node, network));
    }
    let found = pods.map(|(pod, ..)| corner.ready(pod));
    let sums = pods.map(|(pod, ..)| data(corner, pod));
    for (from, to) in [(0, 1), (1, 0), (2, 3), (3, 2)] {
        for ip in addresses(&found[to]) {
            // A node hears of the other one's pod a moment after it is ready.
            let got = until(&format!("{} to reach {ip}", pods[from].0), || {
                fetched(corner, pods[from].0, ip)
            });
            assert_eq!(got, sums[to], "{} gets {ip}", pods[from].0);
        }
    }
    // Where networks have the same address, it is that of one's own network.
    let mut seen = 0;
    for (from, to) in [(0, 3), (3, 0), (1, 2), (2, 1)] {
        for ip in addresses(&found[to]) {
            let own = found.iter().zip(&pods).any(|(it, (_, _, network))| {
                addresses(it).contains(ip) && *network == pods[from].2
            });
            if !own {
                assert_eq!(
                    fetched(corner, pods[from].0, ip),
                    None,
                    "{} gets {ip}",
                    pods[from].0
                );
                seen += 1;
            }
        }
    }
    eprintln!("{seen} addresses of the other network are not reached");
}

/// The same subnets for both.
fn spec(transport: &Value) -> Value {
    json!({"mode": "L2", "subnets": ["10.104.0.0/24", "fd10:104::/64"], "transport": transport})
}

/// KEP-P1-13, KEP-3698 "Requirements": a network's pods reach all others of it.
///
/// One of the two says so, the other says nothing.
#[test]
fn pods_on_two_nodes_reach_each_other_by_vxlan_and_none_of_another_network() {
    let corner = Corner::new("vxlan");
    let mut silent = spec(&Value::Null);
    silent
        .as_object_mut()
        .expect("an object")
        .remove("transport");
    assert_apart(&corner, [spec(&json!({"type": "VXLAN"})), silent]);
    proof::of!("KEP-P1-13");
}

/// Issue 17: nothing fails where pods are apart, so it has to be said.
#[test]
fn a_local_network_with_pods_on_two_nodes_says_that_they_are_apart() {
    let corner = Corner::new("local");
    let network = corner.network_with("grey", spec(&json!({"type": "Local"})));
    let split = |wanted: &str| {
        until(&format!("{network} to be Split={wanted}"), || {
            let object = corner.objects.get(NETWORK, ("", &network))?;
            (condition(&object, "Split")? == wanted).then_some(())
        });
    };
    split("False");
    for (pod, node) in [("a", "n1"), ("b", "n2")] {
        corner.pod(pod, node, &[(KEP, list(&network))]);
    }
    let found = ["a", "b"].map(|pod| corner.ready(pod));
    split("True");
    until("the Event", || {
        let events = corner.objects.list(EVENT, "default");
        let mut of_network = events
            .iter()
            .filter(|it| it["regarding"]["name"] == *network && it["reason"] == "Split");
        let note = of_network.next()?["note"].as_str()?.to_owned();
        note.contains("n1 and n2").then_some(())
    });
    assert!(!corner.reaches("a", &addresses(&found[1])[0]));
    corner.delete("b");
    split("False");
}

/// KEP-3698 "Story 4": the network of the pods is one of those outside the cluster.
#[test]
fn pods_on_two_nodes_reach_each_other_by_a_vlan_and_none_of_another_vlan() {
    let corner = Corner::new("vlan");
    let of = |id: u16| spec(&json!({"type": "VLAN", "uplink": UPLINK, "id": id}));
    assert_apart(&corner, VLANS.map(of));
}

/// Issue 5, "optional egress to the outside": a pod reaches a host outside.
///
/// The host sees the address of the pod's node.
#[test]
fn a_pod_reaches_a_host_outside_with_the_address_of_its_node() {
    let corner = Corner::new("egress");
    // Where the tests run is no node, and on the way of the nodes' default routes.
    let outside = TcpListener::bind(("0.0.0.0", 0)).expect("a listener");
    let port = outside.local_addr().expect("its address").port();
    let node = corner.objects.get(NODE, ("", "n1")).expect("a node");
    let listed = node["status"]["addresses"].as_array().expect("addresses");
    let own: Vec<IpAddr> = listed
        .iter()
        .filter_map(|it| it["address"].as_str()?.parse().ok())
        .collect();
    let network = corner.network_with(
        "amber",
        json!({
            "mode": "L3", "subnets": ["10.105.0.0/24"], "egress": "Masquerade",
            "routes": [{"dst": "10.89.0.0/24"}],
        }),
    );
    corner.pod("a", "n1", &[(KEP, list(&network))]);
    let found = corner.ready("a");
    let (asked, answered) = ("what the pod says", "what the outside says");
    let host = thread::spawn(move || {
        let (mut stream, peer) = outside.accept().expect("a connection");
        stream
            .set_read_timeout(Some(Duration::from_secs(30)))
            .expect("a timeout");
        let mut heard = vec![0; asked.len()];
        stream.read_exact(&mut heard).expect("what the pod says");
        stream.write_all(answered.as_bytes()).expect("sent");
        (peer.ip(), heard)
    });
    let ask = format!("printf '{asked}' | nc -w 10 10.89.0.1 {port}");
    let heard = corner.run("a", &["sh", "-c", &ask]);
    assert_eq!(heard, answered);
    let (peer, said) = host.join().expect("the host outside");
    assert_eq!(said, asked.as_bytes());
    assert!(own.contains(&peer), "{peer} is not n1, which has {own:?}");
    assert_ne!(peer.to_string(), addresses(&found)[0]);
    // By the network, and not by the default one.
    let way = corner.run("a", &["ip", "route", "get", "10.89.0.1"]);
    assert!(way.contains(&format!("dev {}", found[1].name)), "{way}");
}
