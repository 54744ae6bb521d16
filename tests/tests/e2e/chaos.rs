//! Kill agents again and again while pods come and go.
//!
//! `cargo xtask cluster test` runs this by itself: the state at the end is compared with that at the
//! beginning.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::{Value, json};

use super::commands::{SYSTEM, in_pod, kubectl, on_node};
use super::corner::{Corner, IMAGE, KEP, NPWG_STATUS};
use super::objects::{DEPLOYMENT, Objects, POD, condition, until};
use super::removal::agent_of;
use super::restart::KILL;

const NODES: [&str; 2] = ["n1", "n2"];
/// Pods at a time.
const REPLICAS: usize = 20;
/// Running pods of each lot at which the lot is deleted.
const ROUNDS: [usize; 5] = [REPLICAS, 3, REPLICAS, 8, REPLICAS];
/// The interfaces of each.
const INTERFACES: [&str; 3] = ["eth0", "net1", "net2"];

/// Command of a container that checks at its start that it has its networks.
///
/// So no pod can run without them and be repaired before the check.
const LOOK: &str = "for i in eth0 net1 net2; do \
    ip -o -4 address show dev $i | grep -q inet || { echo \"no $i\"; exit 7; }; done; \
    exec sleep 1000000";

/// Command that prints the state of a node, one item a line.
///
/// Of host-local's files it has those that hold an address; of pinned links not those of the node's own
/// interfaces, which tunnels have needed: they stay until an agent starts that has no tunnels, as the
/// tunnel device does.
const INVENTORY: &str = "ip -o link | grep -v ': podnet-vxlan' | sed 's/^[0-9]*: \\([^:@]*\\).*/link \\1/'; \
    ls /run/netns | sed 's/^/namespace /'; \
    for pin in $(ls /sys/fs/bpf/podnet/links 2>/dev/null); do \
        ip -o link | grep \"^$pin: \" | grep -qv '^[0-9]*: pn' || echo pin $pin; done; \
    ls /run/podnet/pending-del 2>/dev/null | sed 's/^/waiting removal /'; \
    find /var/lib/cni/networks -type f ! -name 'last_reserved_ip*' ! -name lock 2>/dev/null; true";

/// All of it on all nodes, and what the agents know of.
fn inventory(objects: &Objects) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for node in NODES {
        let shown = on_node(node, INVENTORY);
        all.extend(shown.lines().map(|line| format!("{node}: {line}")));
        let agent = agent_of(objects, node);
        let program = ["/usr/bin/podnet-agent", "get", "attachments", "-o", "json"];
        let known = in_pod((SYSTEM, &agent), &program).expect("the agent answers");
        let known: Vec<Value> = serde_json::from_str(&known).expect("a JSON list");
        let names = known.iter().map(|one| {
            let (container, ifname) = (&one["container"], &one["ifname"]);
            format!("{node}: attachment {container} {ifname}")
        });
        all.extend(names);
    }
    all
}

/// The UID of a node's agent, once it is ready.
pub(super) fn ready_agent(objects: &Objects, node: &str) -> Option<(String, String)> {
    let pods = objects.list(POD, SYSTEM);
    let found = pods.into_iter().find(|pod| {
        let metadata = &pod["metadata"];
        metadata["labels"]["app.kubernetes.io/name"] == "podnet-agent"
            && pod["spec"]["nodeName"] == node
            && metadata.get("deletionTimestamp").is_none()
            && condition(pod, "Ready") == Some("True")
    })?;
    let text = |key: &str| found["metadata"][key].as_str().map(str::to_owned);
    Some((text("name")?, text("uid")?))
}

/// Kills agents in turn, each when the one before is back; returns the number.
fn kill_agents(stop: &AtomicBool) -> usize {
    let objects = Objects::connect();
    let mut killed = 0;
    for node in NODES.iter().cycle() {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let (name, uid) = until("an agent to kill", || ready_agent(&objects, node));
        // Another pod comes in its place at once. A container that is started anew in the same pod
        // would have to wait longer each time.
        let words = ["delete", "pod", "--namespace", SYSTEM, &name];
        let at_once = ["--force", "--grace-period=0", "--wait=false"];
        let deleted = kubectl(&[&words[..], &at_once].concat());
        assert!(deleted.is_ok(), "{deleted:?}");
        on_node(node, KILL);
        killed += 1;
        until("the next agent", || {
            ready_agent(&objects, node).filter(|(_, other)| *other != uid)
        });
    }
    killed
}

/// Ends the killing, also when the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The pods of the corner. None of them has ever run without its networks.
#[track_caller]
fn pods(corner: &Corner) -> Vec<Value> {
    let pods = corner.objects.list(POD, &corner.name);
    for pod in &pods {
        for container in pod["status"]["containerStatuses"]
            .as_array()
            .into_iter()
            .flatten()
        {
            let name = &pod["metadata"]["name"];
            for state in ["state", "lastState"] {
                let code = &container[state]["terminated"]["exitCode"];
                assert_ne!(*code, 7, "{name} ran without a network");
            }
        }
    }
    pods
}

fn is_ready(pod: &Value) -> bool {
    condition(pod, "Ready") == Some("True")
}

/// The interfaces that a pod's status tells of, with their addresses.
fn told(pod: &Value) -> Option<BTreeMap<String, Vec<String>>> {
    let text = pod["metadata"]["annotations"][NPWG_STATUS].as_str()?;
    let list: Vec<Value> = serde_json::from_str(text).expect("the status is a JSON list");
    let entries = list.iter().map(|one| {
        let ips = one["ips"].as_array().into_iter().flatten();
        let ips = ips.map(|ip| ip.as_str().unwrap_or_default().to_owned());
        let name = one["interface"].as_str().unwrap_or_default();
        (name.to_owned(), ips.collect())
    });
    Some(entries.collect())
}

/// Returns the networks' addresses in all namespaces of all nodes.
fn addresses_in_use(subnets: &[&str]) -> Vec<String> {
    let script = "cd /run/netns; for n in *; do \
        nsenter --net=/run/netns/$n ip -o -4 address 2>/dev/null; done; true";
    let shown = NODES.map(|node| on_node(node, script)).concat();
    let addresses = shown.split_whitespace().filter_map(|word| {
        let (ip, _) = word.split_once('/')?;
        subnets
            .iter()
            .any(|net| ip.starts_with(net))
            .then(|| ip.to_owned())
    });
    addresses.collect()
}

/// A lot of pods as people make them, from a template.
fn deployment(name: &str, list: &str) -> Value {
    json!({"spec": {
        "replicas": REPLICAS,
        "selector": {"matchLabels": {"app": name}},
        "template": {
            "metadata": {"labels": {"app": name}, "annotations": {KEP: list}},
            "spec": {
                "automountServiceAccountToken": false,
                "terminationGracePeriodSeconds": 1,
                "containers": [{
                    "name": "busybox",
                    "image": IMAGE,
                    "imagePullPolicy": "Never",
                    "command": ["sh", "-c", LOOK],
                }],
            },
        },
    }})
}

/// A hundred pods, made and deleted while the agents are killed.
fn churn(corner: &Corner, list: &str, subnets: &[&str]) {
    for (round, wanted) in ROUNDS.into_iter().enumerate() {
        let name = format!("lot-{round}");
        let place = (corner.name.as_str(), name.as_str());
        corner
            .objects
            .make(DEPLOYMENT, place, deployment(&name, list));
        until(&format!("{wanted} pods of {name} to be ready"), || {
            let ready = pods(corner).iter().filter(|pod| is_ready(pod)).count();
            (ready >= wanted).then_some(())
        });
        if wanted == REPLICAS {
            all_are_told(corner, subnets);
        }
        corner.objects.delete_wait(DEPLOYMENT, place);
        until(&format!("the pods of {name} to be gone"), || {
            pods(corner).is_empty().then_some(())
        });
        eprintln!("{name}: {REPLICAS} pods have come and gone, {wanted} or more of them ran");
    }
}

/// Asserts that each pod has its status, and no address is there twice.
///
/// No pod starts or ends meanwhile.
fn all_are_told(corner: &Corner, subnets: &[&str]) {
    let statuses = until("the statuses of all pods", || {
        let statuses: Vec<_> = pods(corner).iter().filter_map(told).collect();
        (statuses.len() == REPLICAS).then_some(statuses)
    });
    let mut said = BTreeSet::new();
    for status in &statuses {
        let names: Vec<&str> = status.keys().map(String::as_str).collect();
        assert_eq!(names, INTERFACES, "{status:?}");
        for ip in status.values().flatten() {
            assert!(
                said.insert(ip.clone()),
                "{ip} is in two statuses: {statuses:?}"
            );
        }
    }
    let in_use = addresses_in_use(subnets);
    let once: BTreeSet<String> = in_use.iter().cloned().collect();
    assert_eq!(
        once.len(),
        in_use.len(),
        "an address is in two pods: {in_use:?}"
    );
    assert_eq!(once.len(), REPLICAS * subnets.len(), "{in_use:?}");
    assert!(
        once.is_subset(&said),
        "{in_use:?} are not those of {said:?}"
    );
}

/// KEP-POD-14, PAIN-BOOT-2, PAIN-IP-1: pods are whole while agents die.
///
/// No pod runs without all its networks, no address has two holders, and nothing is left at the end.
#[test]
fn agents_die_while_a_hundred_pods_come_and_go() {
    let corner = Corner::new("chaos");
    let (blue, red) = (
        corner.network("blue", "10.112.0.0/24"),
        corner.network("red", "10.113.0.0/24"),
    );
    let subnets = ["10.112.0.", "10.113.0."];
    let list = json!([
        {"name": "default", "isDefaultGW": true},
        {"name": blue, "interfaceName": "net1"},
        {"name": red, "interfaceName": "net2"},
    ]);
    for node in NODES {
        until("both agents", || ready_agent(&corner.objects, node));
    }
    let before = inventory(&corner.objects);
    let stop = AtomicBool::new(false);
    let killed = thread::scope(|scope| {
        let killer = scope.spawn(|| kill_agents(&stop));
        let stopping = Stop(&stop);
        churn(&corner, &list.to_string(), &subnets);
        drop(stopping);
        killer
            .join()
            .expect("agents come back after they were killed")
    });
    eprintln!("{killed} agents were killed");
    assert!(
        killed >= ROUNDS.len(),
        "only {killed} agents were killed, not one for each lot of pods"
    );

    let mut seen = BTreeSet::new();
    until("nothing to be left", || {
        let now = inventory(&corner.objects);
        let left: BTreeSet<String> = now.symmetric_difference(&before).cloned().collect();
        if left != seen {
            eprintln!("differs from the beginning: {left:?}");
        }
        seen = left;
        seen.is_empty().then_some(())
    });
    proof::of!("KEP-POD-14", "PAIN-BOOT-2", "PAIN-IP-1");
}
