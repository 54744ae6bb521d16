//! Grounds of the table: nodes with two networks, and the pods of all cases.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;
use testbed::{MemifApp, Node, Pod, Port, wait};

use super::super::scene::{arrives, becomes};
use super::afxdp::Bridge;
use super::ask::{Asker, Ears, Fate, addresses};
use super::case::{Case, LAN, PODS, Step, WAN};
use super::expected::{Expected, Protocol, Question};
use super::objects::{FILE, Kind, OWN, conf, fence};
use super::tables;

/// Steps with wrong answers that are told.
const MOST: usize = 20;
/// A port at which nobody has an ear.
const MEETING: u16 = 9;
/// The first port of the fence.
const FENCE: u16 = 20_000;
/// Nodes with all pods.
pub(super) struct Ground<'a> {
    nodes: &'a [Node],
    kind: Kind,
    pods: BTreeMap<char, Pod<'a>>,
    /// Ports by their letters; their namespaces are those in which programs talk.
    ports: BTreeMap<char, Port>,
    ears: BTreeMap<char, Ears>,
    numbers: Vec<u16>,
    /// A sender and a receiver on each node, whose rule changes with each step.
    fences: Vec<[(Pod<'a>, Port); 2]>,
    asker: Asker,
    steps: Cell<u16>,
    /// Programs of ports that are no devices.
    memif: Vec<MemifApp>,
    bridges: Vec<Bridge>,
}

impl<'a> Ground<'a> {
    /// Attaches the pods to nodes that have the networks, one after the other.
    pub(super) fn new(nodes: &'a [Node], kind: Kind, cases: &[Case]) -> Self {
        let steps = cases.iter().flat_map(|case| &case.steps);
        let mut numbers: Vec<u16> = steps.flat_map(|step| step.ports.clone()).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let mut this = Self {
            nodes,
            kind,
            pods: BTreeMap::new(),
            ports: BTreeMap::new(),
            ears: BTreeMap::new(),
            numbers,
            fences: Vec::new(),
            asker: Asker::new(),
            steps: Cell::new(0),
            memif: Vec::new(),
            bridges: Vec::new(),
        };
        for (index, (letter, namespace, labels)) in PODS.into_iter().enumerate() {
            let node = &nodes[index % nodes.len()];
            let pod = node.pod(&letter.to_string());
            let port = this.attach(&pod, (letter, namespace, labels), "lan");
            this.join(letter, port);
            let other = letter.to_ascii_uppercase();
            if WAN.contains(other) {
                let port = this.attach(&pod, (letter, namespace, labels), "wan");
                this.join(other, port);
            }
            this.pods.insert(letter, pod);
        }
        for node in nodes {
            let fence = ["p", "q"].map(|name| {
                let pod = node.pod(name);
                let conf = conf(node, "lan", Kind::Veth, &format!("fence: {name}"));
                let port = add(&pod, &conf, ("fence", name), ("lan", "net1"));
                (pod, port)
            });
            this.fences.push(fence);
        }
        this
    }

    fn node_of(&self, letter: char) -> &'a Node {
        let mut pods = PODS.iter();
        let place = pods.position(|(pod, _, _)| *pod == letter);
        &self.nodes[place.expect("a pod") % self.nodes.len()]
    }

    fn attach(
        &self,
        pod: &Pod<'_>,
        (letter, namespace, labels): (char, &str, &str),
        network: &str,
    ) -> Port {
        let (kind, ifname) = match network {
            "lan" => (self.kind, "net1"),
            _ => (Kind::Veth, "net2"),
        };
        let labels = format!("name: {letter}, {labels}");
        let conf = conf(self.node_of(letter), network, kind, &labels);
        add(
            pod,
            &conf,
            (namespace, &letter.to_string()),
            (network, ifname),
        )
    }

    /// Starts the program of a port, if it needs one, and opens the ears.
    fn join(&mut self, letter: char, mut port: Port) {
        match self.kind {
            Kind::Memif if letter.is_lowercase() => self.memif.push(MemifApp::start(&port)),
            Kind::AfXdp if letter.is_lowercase() => {
                let bridge = Bridge::start(&port);
                port.netns = bridge.netns().clone();
                self.bridges.push(bridge);
            }
            Kind::Memif | Kind::AfXdp | Kind::Veth => {}
        }
        self.ears.insert(letter, Ears::open(&port, &self.numbers));
        self.ports.insert(letter, port);
    }

    /// Has a pod leave the network `lan` and come again with these labels.
    fn relabel(&mut self, letter: char, labels: &str) {
        let mut known = PODS.iter();
        let found = known.find(|(pod, _, _)| *pod == letter);
        let (_, namespace, _) = found.expect("a pod");
        self.ears.remove(&letter);
        let pod = self.pods.remove(&letter).expect("a pod");
        pod.detach("lan", "net1");
        let port = self.attach(&pod, (letter, namespace, labels), "lan");
        self.join(letter, port);
        self.pods.insert(letter, pod);
    }

    /// Goes through cases, and returns the wrong answers of each.
    ///
    /// It ends with the case that brings wrong steps to [`MOST`]: in a step that is wrong something is waited for.
    pub(super) fn go(&mut self, cases: &[Case]) -> Vec<String> {
        let mut wrong = Vec::new();
        for case in cases {
            for (index, step) in case.steps.iter().enumerate() {
                let found = self.step(step);
                if !found.is_empty() {
                    let found = found.join("\n    ");
                    wrong.push(format!("{} (step {}):\n    {found}", case.name, index + 1));
                }
            }
            if wrong.len() >= MOST {
                wrong.push("further cases were not asked".to_owned());
                break;
            }
        }
        wrong
    }

    fn step(&mut self, step: &Step) -> Vec<String> {
        if let Some((pod, labels)) = step.relabelled {
            self.relabel(pod, labels);
        }
        let mut wrong = self.apply(step);
        let expected = Expected::read(&step.answers);
        let questions = questions(step);
        let questions: Vec<_> = questions
            .into_iter()
            .map(|question| (question, expected.is_open(question)))
            .collect();
        let (nodes, ports, ears) = (self.nodes, &self.ports, &self.ears);
        let drops = || nodes.iter().map(tables::drops).sum();
        let mut ask = || self.asker.ask(ports, ears, &questions, &drops);
        let (mut fates, mut late) = ask();
        if step.relabelled.is_some() && nodes.len() > 1 {
            // The other node hears of the labels in its own time.
            let right = |fates: &[Fate]| {
                let mut both = questions.iter().zip(fates);
                both.all(|((_, is_open), fate)| is_right(*is_open, *fate))
            };
            wait::until_true("the other node to know", || {
                if !right(&fates) {
                    (fates, late) = ask();
                }
                right(&fates)
            });
        }
        if late > 0 {
            wrong.push(format!("{late} questions of steps before came late"));
        }
        for ((question, is_open), fate) in questions.iter().zip(fates) {
            if !is_right(*is_open, fate) {
                let wanted = if *is_open { "answered" } else { "unheard" };
                wrong.push(format!("{question}: {fate:?}, not {wanted}"));
            }
        }
        wrong
    }

    /// Puts the objects of a step in force.
    ///
    /// Returns lines about objects that the agents do not have.
    fn apply(&self, step: &Step) -> Vec<String> {
        let number = FENCE + self.steps.get();
        self.steps.set(self.steps.get() + 1);
        let mut text = fence(&[number]);
        for (name, labels) in &step.namespaces {
            let _ = write!(
                text,
                "---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}, labels: {{{labels}}}}}\n"
            );
        }
        for object in &step.objects {
            let _ = write!(text, "---\n{}", self.fill(object));
        }
        for node in self.nodes {
            node.write_manifest(FILE, &text);
        }
        let mut wrong = Vec::new();
        for (node, [(_, from), (_, to)]) in self.nodes.iter().zip(&self.fences) {
            // On a machine without time for them, agents take long.
            wait::until_within(wait::START, "the fence to open", || {
                arrives(from, to, number).then_some(())
            });
            // It waits for the change that is being made, all of it.
            let listed = tables::policies(node);
            if listed != step.objects.len() + 1 {
                wrong.push(format!("{} lists {listed} policies", node.name()));
            }
        }
        wrong
    }

    /// Writes addresses in place of their names.
    fn fill(&self, object: &str) -> String {
        let subnets = self.subnets();
        let mut text = object
            .replace("$net4", &subnets[0])
            .replace("$net6", &subnets[1]);
        for (letter, port) in &self.ports {
            for (address, family) in addresses(port).into_iter().zip([4, 6]) {
                text = text.replace(&format!("${letter}{family}"), &address.to_string());
            }
        }
        text
    }

    /// The subnets of `lan`, which any port of it has an address of.
    fn subnets(&self) -> [String; 2] {
        let port = &self.ports[&'s'];
        let [a, b, c, _] = port.v4().octets();
        let [first, ..] = port.v6().segments();
        [format!("{a}.{b}.{c}.0/24"), format!("{first:x}::/64")]
    }

    /// Waits until all nodes know the members of all others, with their labels.
    pub(super) fn meet(&self) {
        let known = "policyTypes: [Ingress], ingress: [{from: [{namespaceSelector: {}, \
                     podSelector: {matchExpressions: [{key: name, operator: Exists}]}}]}]";
        let metadata = |namespace: &str| {
            format!(
                "name: all, namespace: {namespace}, annotations: {{podnet.dev/networks: 'lan, wan'}}"
            )
        };
        let all = format!("{LAN}{WAN}");
        let case = OWN
            .into_iter()
            .fold(Case::new("all meet"), |case, namespace| {
                let spec = format!("podSelector: {{}}, {known}");
                case.object(super::case::object("v1beta1", &metadata(namespace), &spec))
            });
        let case = case.among(&all);
        for step in &case.steps {
            assert_eq!(self.apply(step), [""; 0]);
            for (from, to) in &step.pairs {
                becomes(&self.ports[from], &self.ports[to], MEETING, true);
            }
        }
    }
}

fn is_right(is_open: bool, fate: Fate) -> bool {
    fate == if is_open {
        Fate::Answered
    } else {
        Fate::Unheard
    }
}

fn questions(step: &Step) -> Vec<Question> {
    let mut questions = Vec::new();
    for (from, to) in step.pairs.iter().copied() {
        for is_v4 in [true, false] {
            let mut ask = |protocol, number| {
                questions.push(Question {
                    from,
                    to,
                    is_v4,
                    protocol,
                    number,
                });
            };
            ask(Protocol::Icmp, 0);
            for number in &step.ports {
                ask(Protocol::Tcp, *number);
                ask(Protocol::Udp, *number);
            }
        }
    }
    questions
}

fn add(
    pod: &Pod<'_>,
    conf: &Value,
    (namespace, name): (&str, &str),
    (network, ifname): (&str, &str),
) -> Port {
    let args = format!("IgnoreUnknown=1;K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={name}");
    let call = pod.call("ADD", ifname).env("CNI_ARGS", &args).conf(conf);
    pod.port(network, ifname, call.run().result())
}
