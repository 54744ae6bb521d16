//! Apply the examples of `deploy/examples` as they are, and ask their pods.
//!
//! Each has pods on both nodes, and its networks carry their packets to each other.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Value, json};

use super::commands::{SYSTEM, in_pod, kubectl};
use super::corner::{NPWG_STATUS, status_of};
use super::objects::{NAMESPACE, NETWORK, Objects, POD, condition, until};
use super::removal::agent_of;

/// The host on the network that `eth1` of the nodes is connected to.
const PREMISES_HOST: &str = "192.168.105.1";

/// An example that is applied, until it is dropped.
struct Example {
    file: String,
    namespace: &'static str,
    objects: Objects,
    /// Node of each pod, by name.
    pods: BTreeMap<String, String>,
}

impl Example {
    /// Applies a file, and waits until its pods are ready.
    ///
    /// They are so many, and on both nodes.
    #[track_caller]
    fn apply(file: &str, namespace: &'static str, pods: usize) -> Self {
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/examples");
        let file = examples.join(file).display().to_string();
        let mut example = Self {
            file,
            namespace,
            objects: Objects::connect(),
            pods: BTreeMap::new(),
        };
        // The namespace's service account, and answers of the webhook, come a moment later.
        until(&format!("{} to be taken", example.file), || {
            kubectl(&["apply", "--validate=strict", "-f", &example.file]).ok()
        });
        example.pods = until(&format!("{pods} pods of {namespace} to be ready"), || {
            let ready = example.ready();
            (ready.len() == pods).then_some(ready)
        });
        let nodes: BTreeSet<&String> = example.pods.values().collect();
        assert_eq!(nodes.len(), 2, "{:?}", example.pods);
        example
    }

    /// Nodes of the pods that are ready and have their status, by name.
    fn ready(&self) -> BTreeMap<String, String> {
        let pods = self.objects.list(POD, self.namespace).into_iter();
        let ready = pods.filter_map(|pod| {
            let has_status = pod["metadata"]["annotations"][NPWG_STATUS].is_string();
            let name = pod["metadata"]["name"].as_str()?.to_owned();
            let node = pod["spec"]["nodeName"].as_str()?.to_owned();
            (has_status && condition(&pod, "Ready")? == "True").then_some((name, node))
        });
        ready.collect()
    }

    /// The names of the pods that begin so.
    fn pods_of(&self, prefix: &str) -> Vec<&str> {
        let names = self.pods.keys().map(String::as_str);
        names.filter(|name| name.starts_with(prefix)).collect()
    }

    /// The addresses of an interface, as the pod's status has them.
    #[track_caller]
    fn ips(&self, pod: &str, interface: &str) -> Vec<String> {
        let object = self.objects.get(POD, (self.namespace, pod));
        let object = object.unwrap_or_else(|| unreachable!("there is no pod {pod}"));
        let found = status_of(&object);
        let found = found.into_iter().find(|one| one.name == interface);
        found
            .unwrap_or_else(|| unreachable!("{pod} has no {interface}"))
            .ips
    }

    /// Runs a line of shell in a pod.
    fn shell(&self, pod: &str, line: &str) -> Result<String, String> {
        in_pod((self.namespace, pod), &["sh", "-c", line])
    }

    /// Asserts that pods whose names begin so answer each other.
    ///
    /// They have the addresses on this interface, and are on two nodes.
    #[track_caller]
    fn assert_connected(&self, prefix: &str, interface: &str) {
        let pods = self.pods_of(prefix);
        let nodes: BTreeSet<&String> = pods.iter().map(|pod| &self.pods[*pod]).collect();
        assert_eq!(nodes.len(), 2, "{pods:?} are on {nodes:?}");
        for from in &pods {
            for to in pods.iter().filter(|to| *to != from) {
                let ips = self.ips(to, interface);
                assert!(!ips.is_empty(), "{to} has no address on {interface}");
                for ip in ips {
                    self.assert_answers(from, &ip, interface);
                }
            }
        }
    }

    /// Waits until an address answers a pod, which asks by this interface.
    #[track_caller]
    fn assert_answers(&self, pod: &str, ip: &str, interface: &str) {
        // A node hears of the other one's pod a moment after it is ready.
        until(&format!("{ip} to answer {pod} by {interface}"), || {
            let ping = format!("ping -c 1 -W 2 -I {interface} {ip}");
            self.shell(pod, &ping).ok()
        });
    }

    /// The transport that the cluster has decided on for a network.
    #[track_caller]
    fn transport(&self, network: &str) -> String {
        let network = self.objects.get(NETWORK, ("", network)).expect("a network");
        let transport = network["status"]["transport"].as_str();
        transport.expect("a transport").to_owned()
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        let failed = std::thread::panicking();
        if failed {
            super::dump::dump(&self.objects, self.namespace);
        }
        let deleted = kubectl(&["delete", "--wait=false", "-f", &self.file]);
        let _ = kubectl(&[
            "delete",
            "pods",
            "--all",
            "--grace-period=1",
            "--wait=false",
            "--namespace",
            self.namespace,
        ]);
        if failed {
            return;
        }
        assert!(deleted.is_ok(), "{deleted:?}");
        until(&format!("{} to be gone", self.namespace), || {
            let left = self.objects.get(NAMESPACE, ("", self.namespace));
            left.is_none().then_some(())
        });
    }
}

/// Words of the name that a pod's HTTP server at this address has, or nothing.
fn name_at(example: &Example, from: &str, ip: &str) -> String {
    let ask =
        format!("printf 'GET / HTTP/1.0\\r\\n\\r\\n' | timeout 5 nc -w 2 {ip} 8080 | tail -n 1");
    let said = example.shell(from, &ask).unwrap_or_default();
    said.trim().to_owned()
}

/// KEP-3698 "Story 1", KEP-P1-13
#[test]
fn story_1_pods_of_two_nodes_have_data_traffic_apart_from_their_control_traffic() {
    let file = "story-1-two-kinds-of-traffic.yaml";
    let example = Example::apply(file, "story-1", 2);
    assert_eq!(example.transport("story-1-data"), "VXLAN");
    example.assert_connected("function", "data0");
    example.assert_connected("function", "eth0");
    proof::of!("KEP-P1-13");
}

/// KEP-3698 "Story 2": the scheduler counts the ports, and the program has them.
#[test]
fn story_2_pods_of_two_nodes_have_sockets_of_memif_and_af_xdp() {
    let file = "story-2-packets-in-userspace.yaml";
    let example = Example::apply(file, "story-2", 2);
    for pod in example.pods_of("forwarder") {
        let object = example.objects.get(POD, ("story-2", pod)).expect("a pod");
        let limits = &object["spec"]["containers"][0]["resources"]["limits"];
        for resource in ["podnet.dev/story-2-memif", "podnet.dev/story-2-afxdp"] {
            assert_eq!(limits[resource], Value::from("1"), "{limits}");
        }
        let has = "test -S /run/podnet/story-2-memif/$PODNET_DEVICE_STORY_2_MEMIF/memif.sock \
                   && test -d /run/podnet/story-2-afxdp/$PODNET_DEVICE_STORY_2_AFXDP.map";
        assert_eq!(example.shell(pod, has), Ok(String::new()), "{pod}");
        assert_eq!(example.ips(pod, "mem0").len(), 1);
    }
    // As long as no program has the queue, the kernel of the pod has it.
    example.assert_connected("forwarder", "xdp0");
}

/// KEP-3698 "Story 3": the same addresses, and nothing of the other network.
#[test]
fn story_3_pods_of_two_nodes_reach_the_pods_of_the_network_that_they_name() {
    let example = Example::apply("story-3-isolated-networks.yaml", "story-3", 4);
    for (own, other) in [("red", "blue"), ("blue", "red")] {
        example.assert_connected(own, "net1");
        for from in example.pods_of(own) {
            for to in example
                .pods_of(own)
                .into_iter()
                .chain(example.pods_of(other))
            {
                let [ip] = &example.ips(to, "net1")[..] else {
                    unreachable!("{to} has one address");
                };
                let said = name_at(&example, from, ip);
                // Both networks may have the address: then it is that of one's own.
                let is_own = said.is_empty() || said.starts_with(own);
                assert!(is_own, "{from} asks {ip} of {to}, and {said} answers");
                assert_eq!(
                    said == to,
                    to.starts_with(own),
                    "{from} asks {to}: {said:?}"
                );
            }
        }
    }
}

/// KEP-3698 "Story 4"
#[test]
fn story_4_a_tenants_machines_on_two_nodes_have_the_addresses_that_it_wants() {
    let file = "story-4-tenants-on-layer-2.yaml";
    let example = Example::apply(file, "story-4", 2);
    assert_eq!(example.ips("mail", "net1"), ["192.168.104.25"]);
    let mac = example.shell("mail", "cat /sys/class/net/net1/address");
    assert_eq!(mac.as_deref().map(str::trim), Ok("02:00:c0:a8:68:19"));
    example.assert_connected("", "net1");
}

/// KEP-3698 "Story 5": by a VLAN, and by the link as it is.
#[test]
fn story_5_pods_of_two_nodes_are_on_networks_outside_of_the_cluster() {
    let file = "story-5-networks-on-the-premises.yaml";
    let example = Example::apply(file, "story-5", 2);
    assert_eq!(example.transport("story-5-office"), "Native");
    assert_eq!(example.transport("story-5-storage"), "VLAN");
    example.assert_connected("archive", "office0");
    example.assert_connected("archive", "storage0");
    for pod in example.pods_of("archive") {
        example.assert_answers(pod, PREMISES_HOST, "office0");
    }
}

/// KEP-3698 "Story 6": all that the cluster's network has, on another one alone.
#[test]
fn story_6_pods_of_two_nodes_have_services_policies_probes_and_the_api_on_their_only_network() {
    let example = Example::apply("story-6-another-network-only.yaml", "story-6", 5);
    for pod in example.pods.keys() {
        let object = example.objects.get(POD, ("story-6", pod)).expect("a pod");
        let interfaces = status_of(&object);
        assert_eq!(interfaces.len(), 1, "{pod}: {interfaces:?}");
    }
    let shops: BTreeSet<&str> = example.pods_of("shop").into_iter().collect();
    // By hand: a static wget looks up names of ports, for which it would need the C library's modules.
    let fetch = |times: u32| {
        format!(
            "for i in $(seq {times}); do said=$(printf 'GET / HTTP/1.0\\r\\n\\r\\n' | \
             timeout 5 nc -w 2 $SHOP_SERVICE_HOST 80 | tail -n 1); echo ${{said:-none}}; done"
        )
    };
    for pod in example.pods_of("client") {
        until(&format!("{pod} to be served by both shops"), || {
            let said = example.shell(pod, &fetch(16)).ok()?;
            let said: BTreeSet<&str> = said.split_whitespace().collect();
            (said == shops).then_some(())
        });
        let api =
            "nc -w 3 $KUBERNETES_SERVICE_HOST $KUBERNETES_SERVICE_PORT < /dev/null && echo there";
        until(&format!("{pod} to reach the API server"), || {
            example
                .shell(pod, api)
                .ok()
                .filter(|said| said.trim() == "there")
                .map(drop)
        });
    }
    for pod in example.pods_of("other") {
        let said = example.shell(pod, &fetch(4)).expect("a shell");
        let said: BTreeSet<&str> = said.split_whitespace().collect();
        assert_eq!(said, BTreeSet::from(["none"]), "{pod} is no client");
    }
}

/// KEP-3698 "Story 7": addresses that podnet does not know of.
#[test]
fn story_7_pods_of_two_nodes_that_change_their_own_network_namespace_reach_each_other() {
    let file = "story-7-a-pods-own-network-stack.yaml";
    let example = Example::apply(file, "story-7", 2);
    for (from, to) in [("lab-0", "10.107.0.11"), ("lab-1", "10.107.0.10")] {
        assert!(example.ips(from, "lab0").is_empty());
        example.assert_answers(from, to, "lab0");
    }
    let nodes: BTreeSet<&String> = example.pods.values().collect();
    assert_eq!(nodes.len(), 2);
}

/// KEP-3698 "Story 8"
#[test]
fn story_8_one_of_two_pods_on_two_nodes_has_a_rate_of_its_own() {
    let example = Example::apply("story-8-rate-of-a-pod.yaml", "story-8", 2);
    example.assert_connected("", "net1");
    for (pod, rate) in [("usual", 1_000_000_000), ("slow", 10_000_000)] {
        let agent = agent_of(&example.objects, &example.pods[pod]);
        let program = ["/usr/bin/podnet-agent", "get", "attachments", "-o", "json"];
        let said = in_pod((SYSTEM, &agent), &program).expect("the agent answers");
        let all: Vec<Value> = serde_json::from_str(&said).expect("a JSON list");
        let is_it = |it: &&Value| it["network"] == "story-8" && it["pod"]["name"] == pod;
        let found = all.iter().find(is_it);
        let found = found.unwrap_or_else(|| unreachable!("{pod} is not in {said}"));
        for direction in ["ingress", "egress"] {
            let limit = &found["bandwidth"][direction]["rate"];
            assert_eq!(limit, &Value::from(rate), "{direction} of {pod}: {found}");
        }
    }
}

/// Networks of a VPC reach each other, and two VPCs with one prefix are apart.
#[test]
fn vpcs_pods_of_two_nodes_reach_the_other_network_of_their_vpc_and_of_no_other() {
    let example = Example::apply("vpcs.yaml", "vpcs", 6);
    for vpc in ["vpcs-shop", "vpcs-lab"] {
        until(&format!("{vpc} to be ready"), || {
            let all = kubectl(&["get", "vpc", vpc, "-o", "json"]).ok()?;
            let object: Value = serde_json::from_str(&all).ok()?;
            (condition(&object, "Ready")? == "True").then_some(())
        });
    }
    let address = |pod: &str| match &example.ips(pod, "net1")[..] {
        [ip] => ip.clone(),
        all => unreachable!("{pod} has one address: {all:?}"),
    };
    for (own, other) in [("shop", "lab"), ("lab", "shop")] {
        let mut ways = BTreeSet::new();
        for (from, to) in [("web", "db"), ("db", "web")] {
            let targets = example.pods_of(&format!("{own}-{to}"));
            for (from, to) in example
                .pods_of(&format!("{own}-{from}"))
                .into_iter()
                .flat_map(|from| targets.iter().map(move |to| (from, *to)))
            {
                // Nodes hear of each other's pods, and of the VPC, a moment later.
                until(&format!("{to} to answer {from}"), || {
                    (name_at(&example, from, &address(to)) == to).then_some(())
                });
                ways.insert(example.pods[from] == example.pods[to]);
            }
        }
        assert!(
            ways.contains(&false),
            "no two pods of {own} are on two nodes"
        );
        for from in example.pods_of(own) {
            for to in example.pods_of(other) {
                let said = name_at(&example, from, &address(to));
                let is_own = said.is_empty() || said.starts_with(own);
                assert!(is_own, "{from} asks {to}, and {said} answers");
            }
        }
    }
}

/// A Port goes with its MAC address and its addresses to the other node.
#[test]
fn ports_the_pod_that_comes_after_has_the_mac_and_the_addresses_on_the_other_node() {
    let mut example = Example::apply("ports.yaml", "ports", 3);
    let mut had = None;
    for _ in 0..2 {
        let db = example.pods_of("db-")[0].to_owned();
        let object = example.objects.get(POD, ("ports", &db)).expect("the pod");
        let status = status_of(&object).into_iter();
        let mut status = status.filter(|one| one.name == "net1");
        let status = status.next().expect("an attachment");
        assert_eq!(status.mac, "02:00:00:00:0d:0b");
        assert!(
            status.ips.contains(&"10.131.0.77".to_owned()),
            "{:?}",
            status.ips
        );
        assert_eq!(status.ips.len(), 2);
        for client in example.pods_of("client-") {
            for ip in &status.ips {
                example.assert_answers(client, ip, "net1");
            }
        }
        let node = example.pods[&db].clone();
        assert_eq!(had.get_or_insert(status.ips.clone()), &status.ips);
        let clients = example.pods_of("client-").into_iter();
        let mut others = clients
            .map(|it| &example.pods[it])
            .filter(|it| **it != node);
        let other = others.next().expect("a client on the other node").clone();
        let template = json!({"spec": {"nodeSelector": {"kubernetes.io/hostname": other}}});
        let patch = json!({"spec": {"template": template}}).to_string();
        kubectl(&["patch", "deployment", "-n", "ports", "db", "-p", &patch]).expect("a patch");
        example.pods = until("the next pod to be ready on the other node", || {
            let ready = example.ready();
            let mut dbs = ready.iter().filter(|(name, _)| name.starts_with("db-"));
            let (_, at) = dbs.next()?;
            (*at == other && dbs.next().is_none() && ready.len() == 3).then_some(ready)
        });
    }
    let port = kubectl(&["get", "pnport", "-n", "ports", "db", "-o", "json"]).expect("the Port");
    let port: Value = serde_json::from_str(&port).expect("JSON");
    assert_eq!(port["status"]["epoch"], 3, "{port}");
    assert_eq!(condition(&port, "Ready"), Some("True"));
}

/// KEP-P2-2
#[test]
fn pods_of_two_nodes_read_their_networks_as_the_example_shows() {
    let example = Example::apply("downward-api.yaml", "downward", 2);
    example.assert_connected("", "data0");
    for pod in example.pods_of("") {
        until(&format!("{pod} to read its networks"), || {
            let read = example.shell(pod, "cat /etc/podnetinfo/networks");
            read.ok().filter(|text| text.contains("data0"))
        });
    }
    proof::of!("KEP-P2-2");
}
