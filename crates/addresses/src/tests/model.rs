//! Both halves together: two nodes, one controller, a server in memory.
//!
//! The machines, the books and the controller's plans are the real ones. What passes between them
//! comes late, out of order between kinds, twice or not at all, and every process starts again at any
//! moment. Whatever happens, no address has two holders and a claim keeps its addresses; and when
//! everything has come to rest, every address of the subnet is held or can be.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::{IpamClaim, NetworkAttachmentDefinition};
use controller::pod::Pod;
use controller::view::{View, meaning};
use kube_core::ResourceExt as _;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{TestCaseError, TestRunner};
use serde_json::json;
use world::World;

use self::control::Control;
use self::host::{Bound, Fate, Host, Want};
use self::server::Server;
use self::steps::{Followed, Step, step};
use super::super::{Command, Object};

mod control;
mod host;
mod rest;
mod server;
mod steps;

/// The network of all pods.
const BLUE: &str = "blue";
/// How long a node keeps a block that it does not need.
const KEEP: Duration = Duration::from_secs(60);
/// Lengths of subnets: the nodes of a small one soon want the blocks of each other.
const SUBNETS: [u8; 3] = [29, 28, 27];
/// Delay of a copy at most, seconds: half of the time that a node has to answer.
const BEHIND: i64 = 5;
const HOSTS: usize = 2;
const CLAIMS: u8 = 2;

const NETWORKS: &str = r#"
apiVersion: podnet.dev/v1alpha1
kind: PodNetwork
metadata: {name: blue}
spec: {provider: podnet.dev/ebpf, parametersRefs: [{group: podnet.dev, kind: PodNetworkParameters, name: p}]}
---
apiVersion: podnet.dev/v1alpha1
kind: PodNetworkParameters
metadata: {name: p}
spec: {mode: L2, subnets: [SUBNET]}
"#;

fn subnet(len: u8) -> String {
    format!("10.10.0.0/{len}")
}

/// All addresses but the network's own and the broadcast address.
fn capacity(len: u8) -> usize {
    (1 << (32 - len)) - 2
}

fn numbered(last: u8) -> IpAddr {
    IpAddr::from([10, 10, 0, last])
}

/// Events of a walk, so that a test can see that it goes anywhere.
#[derive(Debug, Default)]
struct Tally {
    booked: u64,
    by_name: u64,
    by_claim: u64,
    granted_elsewhere: u64,
    given_back: u64,
    removed: u64,
    taken_back: u64,
    asked: u64,
    revoked: u64,
}

impl Tally {
    fn add(&mut self, other: &Self) {
        self.booked += other.booked;
        self.by_name += other.by_name;
        self.by_claim += other.by_claim;
        self.granted_elsewhere += other.granted_elsewhere;
        self.given_back += other.given_back;
        self.removed += other.removed;
        self.taken_back += other.taken_back;
        self.asked += other.asked;
        self.revoked += other.revoked;
    }
}

struct Cluster {
    /// Length of the subnet.
    len: u8,
    server: Server,
    hosts: Vec<Host>,
    control: Control,
    /// Writes that arrive after their clients have given up.
    late: Vec<(String, Command)>,
    /// When all had last heard of everything.
    fresh: i64,
    pods: u64,
    /// Addresses of claims, by UID, as they were first written.
    written: BTreeMap<String, Vec<String>>,
    /// Attachments that were seen, by UID of the pod.
    seen: BTreeSet<String>,
    tally: Tally,
}

impl Cluster {
    fn new(len: u8) -> Self {
        let manifests = NETWORKS.replace("SUBNET", &subnet(len));
        let objects: Vec<_> = api::parse_manifests("model", &manifests)
            .into_iter()
            .map(|object| object.unwrap())
            .collect();
        let world = Arc::new(World {
            resolved: api::resolve(objects),
            ..World::default()
        });
        let begin = Instant::now();
        let mut server = Server::new();
        let hosts = ["n1", "n2"].map(|name| {
            server.create(|it| &mut it.nodes, &node(name)).unwrap();
            Host::new(name, &world, begin)
        });
        Self {
            len,
            server,
            hosts: hosts.into(),
            control: Control::new(base(len)),
            late: Vec::new(),
            fresh: 0,
            pods: 0,
            written: BTreeMap::new(),
            seen: BTreeSet::new(),
            tally: Tally::default(),
        }
    }

    fn play(&mut self, step: Step) {
        let now = self.server.now;
        match step {
            Step::Hear(who, what, count) => self.hear(who, what, Some(count)),
            Step::List(who, what) => self.hear(who, what, None),
            Step::Catch(who) => {
                for what in Followed::ALL {
                    self.hear(who, what, Some(usize::MAX));
                }
            }
            Step::Round(host) => self.hosts[host].look(now),
            Step::Work(host) => {
                self.hosts[host].look(now);
                self.settle(host);
                self.hosts[host].wake(now);
                self.settle(host);
            }
            Step::Serve(host, index, fate) => {
                self.hosts[host].serve(&mut self.server, &mut self.late, (index, fate));
            }
            Step::Settle(host) => self.settle(host),
            Step::Wake(host) => self.hosts[host].wake(now),
            Step::Late(index) => {
                if !self.late.is_empty() {
                    let (node, command) = self.late.remove(index % self.late.len());
                    self.server.carry_out(&node, &command);
                }
            }
            Step::Bind(host, want) => self.bind(host, want),
            Step::Add(host, index) => {
                let unattached = self.hosts[host].unattached();
                if let Some(pod) = unattached.get(index % unattached.len().max(1)) {
                    self.hosts[host].add(pod, now);
                }
            }
            Step::Remove(host, index) => {
                let running = self.hosts[host].bound.values().filter(|it| !it.ended);
                let running: Vec<String> = running.map(|it| it.name.clone()).collect();
                if let Some(pod) = running.get(index % running.len().max(1)) {
                    self.hosts[host].remove(pod, &mut self.late, now);
                }
            }
            Step::Delete(host) => self.delete_ended(host),
            Step::Say(host) => self.hosts[host].say(),
            Step::Tick(seconds) => {
                self.server.now += seconds;
                self.hear_what_is_old();
            }
            Step::Restart(host) => self.hosts[host].restart(&mut self.late),
            Step::Ready(host) => self.hosts[host].ready = true,
            Step::Register(host) => self.register(host),
            Step::Unregister(host) => self.unregister(host),
            Step::Replace(host) => {
                let pods: Vec<String> = self.hosts[host].bound.keys().cloned().collect();
                self.hosts[host].restart(&mut self.late);
                for pod in pods {
                    self.hosts[host].remove(&pod, &mut self.late, now);
                }
                self.hosts[host].say();
                self.delete_ended(host);
                self.register(host);
            }
            Step::MakeClaim(number) => {
                self.server.create(|it| &mut it.claims, &claim(number));
            }
            Step::DropClaim(number) => {
                let found = self.server.claims.get(&format!("claim-{number}"));
                if let Some(object) = found.map(|found| Object::of(&**found)) {
                    self.server.claims.delete(&object, None);
                }
            }
            Step::Plan => self.control.plan(now),
            Step::Act => {
                self.control.act(&mut self.server);
            }
            Step::RestartController => self.control.restart(),
        }
    }

    /// Without a count a client lists.
    fn hear(&mut self, who: usize, what: Followed, count: Option<usize>) {
        let server = &self.server;
        macro_rules! hear {
            ($copy:expr, $kind:expr) => {
                match count {
                    Some(count) => $copy.hear($kind, count),
                    None => $copy.list($kind),
                }
            };
        }
        if let Some(host) = self.hosts.get_mut(who) {
            match what {
                Followed::Nodes => hear!(host.nodes, &server.nodes),
                Followed::Blocks => hear!(host.blocks, &server.blocks),
                Followed::Reservations => hear!(host.reservations, &server.reservations),
                Followed::Claims | Followed::Pods => {}
            }
            return;
        }
        let control = &mut self.control;
        match what {
            Followed::Nodes => hear!(control.nodes, &server.nodes),
            Followed::Blocks => hear!(control.blocks, &server.blocks),
            Followed::Reservations => hear!(control.reservations, &server.reservations),
            Followed::Claims => hear!(control.claims, &server.claims),
            Followed::Pods => hear!(control.pods, &server.pods),
        }
    }

    /// Makes each client that lives hear of everything, and each node go by it.
    ///
    /// The delays of the protocol take for granted that this is so within half of one.
    fn hear_what_is_old(&mut self) {
        let now = self.server.now;
        if now < self.fresh + BEHIND {
            return;
        }
        self.fresh = now;
        for who in 0..=HOSTS {
            for what in Followed::ALL {
                let is_read = self.hosts.get(who).is_none_or(Host::is_read);
                if is_read {
                    self.hear(who, what, Some(usize::MAX));
                }
            }
        }
        for host in 0..HOSTS {
            self.settle(host);
            self.hosts[host].look(now);
            self.settle(host);
        }
    }

    fn settle(&mut self, host: usize) {
        // A round has as many commands as there are blocks and reservations, and a few.
        for _ in 0..1000 {
            let served = (0, Fate::Served);
            if !self.hosts[host].serve(&mut self.server, &mut self.late, served) {
                return;
            }
        }
        unreachable!("a job without an end");
    }

    fn bind(&mut self, host: usize, want: Want) {
        self.pods += 1;
        let name = format!("pod-{}", self.pods);
        let element = match want {
            Want::Any => json!({"name": BLUE}),
            Want::Named(last) => json!({"name": BLUE, "ips": [numbered(last).to_string()]}),
            Want::Claim(number) => {
                json!({"name": BLUE, "ipam-claim-reference": format!("claim-{number}")})
            }
        };
        let pod = serde_json::from_value::<Pod>(json!({
            "metadata": {
                "name": name,
                "namespace": "shop",
                "annotations": {"k8s.v1.cni.cncf.io/networks": json!([element]).to_string()},
            },
            "spec": {"nodeName": self.hosts[host].name},
        }));
        let pod = self
            .server
            .create(|it| &mut it.pods, &pod.unwrap())
            .unwrap();
        let bound = Bound {
            name: name.clone(),
            uid: pod.uid().to_owned(),
            want,
            claim: None,
            ended: false,
        };
        self.hosts[host].bound.insert(name, bound);
    }

    fn delete_ended(&mut self, host: usize) {
        let ended = self.hosts[host].bound.values().filter(|it| it.ended);
        for pod in ended.cloned().collect::<Vec<_>>() {
            self.hosts[host].bound.remove(&pod.name);
            let object = Object {
                name: pod.name,
                uid: Some(pod.uid),
            };
            self.server.pods.delete(&object, None);
        }
    }

    fn register(&mut self, host: usize) {
        self.unregister(host);
        let name = self.hosts[host].name.clone();
        self.server.create(|it| &mut it.nodes, &node(&name));
    }

    fn unregister(&mut self, host: usize) {
        let object = self.server.nodes.get(&self.hosts[host].name);
        if let Some(object) = object.map(|object| Object::of(&**object)) {
            self.server.nodes.delete(&object, None);
        }
    }

    /// Checks that an address has one holder, and that a claim keeps its own.
    fn check(&mut self) -> Result<(), TestCaseError> {
        let mut holders: BTreeMap<IpAddr, &str> = BTreeMap::new();
        let held = self.held();
        for (host, ip, bound) in &held {
            let holder = bound.claim.as_deref().unwrap_or(&bound.uid);
            let other = *holders.entry(*ip).or_insert(holder);
            prop_assert_eq!(other, holder, "{} has two holders", ip);
            if let Want::Named(last) = bound.want {
                prop_assert_eq!(*ip, numbered(last));
            }
            if self.seen.insert(bound.uid.clone()) {
                self.tally.booked += 1;
                self.tally.by_name += u64::from(matches!(bound.want, Want::Named(_)));
                self.tally.by_claim += u64::from(bound.claim.is_some());
                let mut blocks = self.server.blocks.all();
                let of_ip = |cidr: &str| cidr.parse::<api::Prefix>().unwrap().contains(ip);
                let block = blocks.find(|block| of_ip(&block.spec.cidr));
                let elsewhere = block.is_some_and(|block| block.spec.node != *host);
                self.tally.granted_elsewhere += u64::from(elsewhere);
            }
        }
        for claim in self.server.claims.all() {
            let ips = claim.status.iter().flat_map(|status| &status.ips);
            let ips: Vec<String> = ips.cloned().collect();
            if !ips.is_empty() {
                let uid = claim.uid().unwrap();
                let first = self.written.entry(uid).or_insert_with(|| ips.clone());
                prop_assert_eq!(&*first, &ips, "{} has other addresses", claim.name_any());
            }
        }
        for (_, ip, bound) in &held {
            let Some(uid) = &bound.claim else { continue };
            let written = self.written.get(uid).map_or(&[][..], Vec::as_slice);
            let text = format!("{ip}/{}", self.len);
            prop_assert!(
                written.contains(&text),
                "{} has {}, its claim {:?}",
                bound.name,
                ip,
                written
            );
        }
        Ok(())
    }

    fn held(&self) -> Vec<(String, IpAddr, Bound)> {
        let hosts = self.hosts.iter();
        let held = hosts.flat_map(|host| {
            let held = host.held().into_iter();
            held.map(move |(ip, bound)| (host.name.clone(), ip, bound.clone()))
        });
        held.collect()
    }

    fn tally(mut self) -> Tally {
        self.tally.given_back = self.hosts.iter().map(|host| host.given_back).sum();
        self.tally.removed = self.control.removed;
        self.tally.taken_back = self.control.taken_back;
        self.tally.asked = self.control.asked;
        self.tally.revoked = self.control.revoked;
        self.tally
    }
}

fn node(name: &str) -> server::Node {
    let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
    serde_json::from_value(object).unwrap()
}

fn claim(number: u8) -> IpamClaim {
    let object = json!({
        "apiVersion": "k8s.cni.cncf.io/v1alpha1",
        "kind": "IPAMClaim",
        "metadata": {"name": format!("claim-{number}"), "namespace": "shop"},
        "spec": {"network": BLUE, "interface": "net1"},
    });
    serde_json::from_value(object).unwrap()
}

/// The network as the controller has it.
fn base(len: u8) -> View {
    let reference = json!({"group": "podnet.dev", "kind": "PodNetworkParameters", "name": "p"});
    let network = json!({
        "apiVersion": "podnet.dev/v1alpha1",
        "kind": "PodNetwork",
        "metadata": {"name": BLUE, "uid": "blue-uid", "resourceVersion": "1", "generation": 1},
        "spec": {"provider": "podnet.dev/ebpf", "parametersRefs": [reference]},
    });
    let parameters = json!({
        "apiVersion": "podnet.dev/v1alpha1",
        "kind": "PodNetworkParameters",
        "metadata": {"name": "p", "uid": "p-uid", "resourceVersion": "1", "generation": 1},
        "spec": {"mode": "L2", "subnets": [subnet(len)]},
    });
    let definition: NetworkAttachmentDefinition = serde_json::from_value(json!({
        "apiVersion": "k8s.cni.cncf.io/v1",
        "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": BLUE, "namespace": "shop"},
        "spec": {"config": ""},
    }))
    .unwrap();
    View {
        networks: [(
            BLUE.to_owned(),
            Arc::new(serde_json::from_value(network).unwrap()),
        )]
        .into(),
        network_parameters: vec![Arc::new(serde_json::from_value(parameters).unwrap())],
        definitions: [(("shop".to_owned(), BLUE.to_owned()), meaning(&definition))].into(),
        ..View::default()
    }
}

fn walk(len: u8, steps: &[Step]) -> Result<Tally, TestCaseError> {
    let mut cluster = Cluster::new(len);
    for who in 0..=HOSTS {
        cluster.play(Step::Catch(who));
    }
    for step in steps {
        cluster.play(*step);
        cluster.check()?;
    }
    cluster.rest(3)?;
    cluster.check_rest()?;
    Ok(cluster.tally())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// PAIN-IP-2, NPWG-8-T2
    #[test]
    fn no_address_has_two_holders_or_none_for_ever(
        len in prop::sample::select(&SUBNETS[..]),
        steps in prop::collection::vec(step(), 0..250),
    ) {
        walk(len, &steps)?;
        proof::of!("NPWG-8-T2", "PAIN-IP-2");
    }
}

/// The walks come by everything that could go wrong.
#[test]
fn walks_book_ask_give_back_and_reclaim() {
    let mut runner = TestRunner::deterministic();
    let mut all = Tally::default();
    for len in SUBNETS.into_iter().cycle().take(24) {
        let steps = prop::collection::vec(step(), 250)
            .new_tree(&mut runner)
            .unwrap();
        all.add(&walk(len, &steps.current()).unwrap());
    }
    let counts = [
        all.booked,
        all.by_name,
        all.by_claim,
        all.granted_elsewhere,
        all.given_back,
        all.removed,
        all.taken_back,
        all.asked,
    ];
    assert!(counts.iter().all(|count| *count > 0), "{all:?}");
}
