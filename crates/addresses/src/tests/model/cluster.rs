//! Two nodes, a controller and the server, and what passes between them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use api::IpamClaim;
use overview::pod::Pod;
use serde_json::json;
use world::World;

use super::super::super::{Command, Object};
use super::control::{Control, Write};
use super::host::{Fate, Host};
use super::network::{BLUE, Form, Shape};
use super::pods::{Bound, Want};
use super::server::{self, Server};
use super::steps::{Followed, Step};
use super::{BEHIND, HOSTS, Tally, numbered};

/// How long a write can be on its way, seconds; no client waits for longer.
const LATE: i64 = 30;
/// How long other nodes hear nothing of what is on a node, seconds.
///
/// The delays of the controller are longer.
const SAID: i64 = 30;
/// How long containers run whose pod was deleted by force, seconds.
const FORCED: i64 = 2;

/// A write that arrives after its client has given up.
pub(super) struct Late {
    since: i64,
    write: LateWrite,
}

enum LateWrite {
    Node(String, Command),
    Controller(Write),
}

impl Late {
    pub(super) fn of_node(since: i64, node: &str, command: Command) -> Self {
        Self {
            since,
            write: LateWrite::Node(node.to_owned(), command),
        }
    }
}

pub(super) struct Cluster {
    pub(super) shape: &'static Shape,
    /// The network in each of its forms, as agents read it.
    worlds: Vec<Arc<World>>,
    /// Form that the network has now.
    pub(super) form: usize,
    pub(super) server: Server,
    pub(super) hosts: Vec<Host>,
    pub(super) control: Control,
    pub(super) late: Vec<Late>,
    /// When all had last heard of everything.
    fresh: i64,
    pods: u64,
    /// Addresses of claims, by UID, as they were first written.
    pub(super) written: BTreeMap<String, Vec<String>>,
    /// Attachments that were seen, by UID of the pod.
    pub(super) seen: BTreeSet<String>,
    pub(super) tally: Tally,
}

impl Cluster {
    pub(super) fn new(shape: &'static Shape, spare: u32) -> Self {
        let worlds: Vec<Arc<World>> = shape.forms.iter().map(Form::world).collect();
        let begin = Instant::now();
        let mut server = Server::new();
        let hosts = ["n1", "n2"].map(|name| {
            server.create(|it| &mut it.nodes, &node(name)).unwrap();
            Host::new(name, &worlds[0], begin)
        });
        Self {
            shape,
            control: Control::new(shape.forms[0].view(), spare),
            worlds,
            form: 0,
            server,
            hosts: hosts.into(),
            late: Vec::new(),
            fresh: 0,
            pods: 0,
            written: BTreeMap::new(),
            seen: BTreeSet::new(),
            tally: Tally::default(),
        }
    }

    pub(super) fn play(&mut self, step: Step) {
        let now = self.server.now;
        match step {
            Step::Hear(who, what, count) => self.hear(who, what, count),
            Step::List(who, what, back) => self.list(who, what, back),
            Step::Catch(who) => {
                for what in Followed::ALL {
                    self.hear(who, what, usize::MAX);
                }
            }
            Step::Round(host) => self.hosts[host].look(now),
            Step::Work(host) => {
                self.hosts[host].look(now);
                self.settle(host);
                self.hosts[host].wake(now);
                self.settle(host);
            }
            Step::Turn(host) => {
                for _ in 0..2 {
                    self.play(Step::Catch(host));
                    self.play(Step::Work(host));
                }
            }
            Step::Serve(host, index, fate) => {
                self.hosts[host].serve(&mut self.server, &mut self.late, (index, fate));
            }
            Step::Settle(host) => self.settle(host),
            Step::Wake(host) => self.hosts[host].wake(now),
            Step::Late(index) => {
                if !self.late.is_empty() {
                    let late = self.late.remove(index % self.late.len());
                    self.arrive(&late.write);
                }
            }
            Step::Bind(host, want) => {
                self.bind(host, want);
            }
            Step::Add(host, index) => {
                let unattached = self.hosts[host].unattached();
                if let Some(pod) = pick(&unattached, index) {
                    self.hosts[host].add(pod, &self.shape.named, now);
                }
            }
            Step::Remove(host, index) => {
                if let Some(pod) = pick(&self.running(host), index) {
                    self.hosts[host].remove(pod, &mut self.late, now);
                }
            }
            Step::Detach(host, index) => {
                if let Some(pod) = pick(&self.running(host), index) {
                    self.hosts[host].detach(pod, &mut self.late, now);
                }
            }
            Step::Force(host, index) => {
                if let Some(pod) = pick(&self.running(host), index) {
                    self.force(host, pod);
                }
            }
            Step::Delete(host) => self.delete_ended(host),
            Step::Say(host) => self.hosts[host].say(now),
            Step::Tick(seconds) => self.tick(seconds),
            Step::Restart(host) => self.hosts[host].restart(&mut self.late, now),
            Step::Boot(host) => self.hosts[host].boot(&mut self.late, now),
            Step::Ready(host) => self.hosts[host].ready = true,
            Step::Start(host) => {
                if !self.hosts[host].is_read() || !self.hosts[host].ready {
                    self.play(Step::Catch(host));
                    self.play(Step::Ready(host));
                    self.play(Step::Work(host));
                }
            }
            Step::Register(host) => self.register(host),
            Step::Unregister(host) => self.unregister(host),
            Step::Replace(host) => {
                let pods: Vec<String> = self.hosts[host].bound.keys().cloned().collect();
                self.hosts[host].restart(&mut self.late, now);
                for pod in pods {
                    self.hosts[host].remove(&pod, &mut self.late, now);
                }
                self.hosts[host].say(now);
                self.delete_ended(host);
                self.register(host);
            }
            Step::MakeClaim(number) => {
                self.server.create(|it| &mut it.claims, &claim(number));
            }
            Step::DropClaim(number) => {
                let found = self.server.claims.get(&format!("claim-{number}"));
                if let Some(object) = found.map(|found| Object::of(&**found)) {
                    self.server.claims.delete(now, &object, None);
                }
            }
            Step::Plan => self.control.plan(now),
            Step::Act => {
                self.control.act(&mut self.server);
            }
            Step::RestartController => {
                let since = now;
                let late = match self.control.restart() {
                    // A node is not waited for any more: this one is bound to no version. It has to
                    // arrive before the next controller leads, see `election::Fence`.
                    Some(write @ Write::Revoke(_)) => {
                        self.control.write(&mut self.server, &write);
                        None
                    }
                    write => write.map(LateWrite::Controller),
                };
                self.late.extend(late.map(|write| Late { since, write }));
            }
            Step::Rewrite(form) => self.form = form % self.shape.forms.len(),
        }
    }

    fn arrive(&mut self, write: &LateWrite) {
        match write {
            LateWrite::Node(node, command) => {
                self.server.carry_out(node, command);
            }
            LateWrite::Controller(write) => {
                self.control.write(&mut self.server, write);
            }
        }
    }

    /// Names of the pods whose containers run or are to run.
    fn running(&self, host: usize) -> Vec<String> {
        let running = self.hosts[host].bound.values().filter(|it| !it.ended);
        running.map(|it| it.name.clone()).collect()
    }

    pub(super) fn hear(&mut self, who: usize, what: Followed, count: usize) {
        let server = &self.server;
        if let Some(host) = self.hosts.get_mut(who) {
            host.look |= match what {
                Followed::Nodes => host.nodes.hear(&server.nodes, count),
                Followed::Blocks => host.blocks.hear(&server.blocks, count),
                Followed::Reservations => host.reservations.hear(&server.reservations, count),
                Followed::Networks => {
                    let before =
                        std::mem::replace(&mut host.world, Arc::clone(&self.worlds[self.form]));
                    !Arc::ptr_eq(&before, &host.world)
                }
                Followed::Claims | Followed::Pods => false,
            };
            return;
        }
        let control = &mut self.control;
        match what {
            Followed::Nodes => control.nodes.hear(&server.nodes, count),
            Followed::Blocks => control.blocks.hear(&server.blocks, count),
            Followed::Reservations => control.reservations.hear(&server.reservations, count),
            Followed::Claims => control.claims.hear(&server.claims, count),
            Followed::Pods => control.pods.hear(&server.pods, count),
            Followed::Networks => {
                control.base = self.shape.forms[self.form].view();
                true
            }
        };
    }

    fn list(&mut self, who: usize, what: Followed, back: usize) {
        let server = &self.server;
        if let Some(host) = self.hosts.get_mut(who) {
            host.look |= match what {
                Followed::Nodes => host.nodes.list(&server.nodes, back),
                Followed::Blocks => host.blocks.list(&server.blocks, back),
                Followed::Reservations => host.reservations.list(&server.reservations, back),
                Followed::Claims | Followed::Pods | Followed::Networks => false,
            };
            return;
        }
        let control = &mut self.control;
        match what {
            Followed::Nodes => control.nodes.list(&server.nodes, back),
            Followed::Blocks => control.blocks.list(&server.blocks, back),
            Followed::Reservations => control.reservations.list(&server.reservations, back),
            Followed::Claims => control.claims.list(&server.claims, back),
            Followed::Pods => control.pods.list(&server.pods, back),
            Followed::Networks => false,
        };
    }

    pub(super) fn tick(&mut self, seconds: i64) {
        let now = self.server.now + seconds;
        while let Some(late) = self.late.iter().position(|it| it.since + LATE <= now) {
            let late = self.late.remove(late);
            self.arrive(&late.write);
        }
        self.server.now = now;
        for host in 0..HOSTS {
            let bound = self.hosts[host].bound.values();
            let forced = bound.filter(|it| it.forced.is_some_and(|since| since + FORCED <= now));
            for pod in forced.map(|it| it.name.clone()).collect::<Vec<_>>() {
                self.hosts[host].remove(&pod, &mut self.late, now);
                self.hosts[host].bound.remove(&pod);
                self.hosts[host].say(now);
            }
            if self.hosts[host].said_at + SAID <= now {
                self.hosts[host].say(now);
            }
        }
        if now >= self.fresh + BEHIND {
            self.catch_up();
        }
    }

    /// Makes each node that lives hear of nodes and blocks, and go by it.
    ///
    /// The delays of the protocol take for granted that this is so within half of one. Of reservations
    /// a node may hear as late as can be.
    fn catch_up(&mut self) {
        let now = self.server.now;
        self.fresh = now;
        // An agent that is away while it is asked for a block may lose one that is in use.
        let asked = self.server.blocks.all().any(|block| {
            let status = block.status.as_ref();
            status.is_some_and(|status| status.reclaim_after.is_some())
        });
        for host in 0..HOSTS {
            if asked && !self.hosts[host].is_read() {
                self.hear(host, Followed::Reservations, 1);
            } else if !self.hosts[host].is_read() {
                continue;
            }
            for what in [Followed::Nodes, Followed::Blocks] {
                self.hear(host, what, usize::MAX);
            }
            if asked {
                self.hosts[host].ready = true;
                self.hosts[host].say(now);
            }
            self.settle(host);
            self.hosts[host].look(now);
            self.settle(host);
        }
        for what in Followed::ALL {
            self.hear(HOSTS, what, usize::MAX);
        }
        self.server.nodes.advance();
        self.server.blocks.advance();
        self.server.reservations.advance();
        self.server.claims.advance();
        self.server.pods.advance();
    }

    pub(super) fn settle(&mut self, host: usize) {
        // A round has as many commands as there are blocks and reservations, and a few.
        for _ in 0..1000 {
            let served = (0, Fate::Served);
            if !self.hosts[host].serve(&mut self.server, &mut self.late, served) {
                return;
            }
        }
        unreachable!("a job without an end");
    }

    /// Binds a new pod to a node; returns its name.
    pub(super) fn bind(&mut self, host: usize, want: Want) -> String {
        self.pods += 1;
        let name = match want {
            // The next one of its name has another UID.
            Want::Named(index) if !self.is_there(&format!("web-{index}")) => format!("web-{index}"),
            _ => format!("pod-{}", self.pods),
        };
        let element = match want {
            Want::Any => json!({"name": BLUE}),
            Want::Named(index) => {
                let ip = numbered(self.shape.named[usize::from(index)]);
                json!({"name": BLUE, "ips": [ip.to_string()]})
            }
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
            ended: false,
            forced: None,
        };
        self.hosts[host].bound.insert(name.clone(), bound);
        self.hosts[host].look = true;
        name
    }

    /// True when a pod of this name is at the server or on a node.
    fn is_there(&self, name: &str) -> bool {
        let mut hosts = self.hosts.iter();
        self.server.pods.get(name).is_some() || hosts.any(|host| host.bound.contains_key(name))
    }

    pub(super) fn delete_ended(&mut self, host: usize) {
        let ended = self.hosts[host].bound.values().filter(|it| it.ended);
        for pod in ended.cloned().collect::<Vec<_>>() {
            self.hosts[host].bound.remove(&pod.name);
            self.delete_pod(&pod);
        }
        self.hosts[host].look = true;
    }

    fn force(&mut self, host: usize, pod: &str) {
        let now = self.server.now;
        let Some(bound) = self.hosts[host].bound.get_mut(pod) else {
            return;
        };
        if bound.forced.replace(now).is_none() {
            let bound = bound.clone();
            self.delete_pod(&bound);
        }
    }

    fn delete_pod(&mut self, pod: &Bound) {
        let object = Object {
            name: pod.name.clone(),
            uid: Some(pod.uid.clone()),
        };
        self.server.pods.delete(self.server.now, &object, None);
    }

    pub(super) fn register(&mut self, host: usize) {
        self.unregister(host);
        let name = self.hosts[host].name.clone();
        self.server.create(|it| &mut it.nodes, &node(&name));
    }

    fn unregister(&mut self, host: usize) {
        let object = self.server.nodes.get(&self.hosts[host].name);
        if let Some(object) = object.map(|object| Object::of(&**object)) {
            self.server.nodes.delete(self.server.now, &object, None);
        }
    }
}

fn pick(names: &[String], index: usize) -> Option<&String> {
    names.get(index % names.len().max(1))
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
