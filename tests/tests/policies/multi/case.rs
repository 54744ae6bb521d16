//! Cases: policies, and the answers of pods while they are in force.

/// Letters of the pods on the network `lan`.
pub(super) const LAN: &str = "sabcdefg";
/// Letters of ports on the network `wan`, of the pods with small letters.
pub(super) const WAN: &str = "SAD";

/// Pods of all cases: letter, namespace, labels.
///
/// Each has the label `name`, its letter, too.
pub(super) const PODS: [(char, &str, &str); 8] = [
    ('s', "red", "role: server, tier: backend"),
    ('a', "red", "role: friend, tier: frontend"),
    ('b', "red", "role: foe, tier: database"),
    ('c', "red", "role: friend, tier: monitoring"),
    ('d', "blue", "role: friend, tier: external"),
    ('e', "blue", "role: foe"),
    ('f', "green", "role: other"),
    ('g', "green", "role: foe, tier: frontend"),
];

/// Labels of their namespaces, where a step says nothing else.
const NAMESPACES: [(&str, &str); 3] = [
    ("red", "env: production"),
    ("blue", "env: staging"),
    ("green", "env: test"),
];

/// Pairs that are asked of most cases, next to all with `s`.
///
/// No policy of most cases is about them.
const OTHERS: [(char, char); 10] = [
    ('a', 'b'),
    ('b', 'd'),
    ('c', 'a'),
    ('d', 'f'),
    ('e', 'c'),
    ('f', 'g'),
    ('g', 'e'),
    ('S', 'A'),
    ('A', 'S'),
    ('D', 'S'),
];

/// Policies, and the answers while they are in force, one step after the other.
#[derive(Debug, Clone)]
pub(super) struct Case {
    /// A sentence.
    pub(super) name: String,
    /// Steps; the last is the one that is being written.
    pub(super) steps: Vec<Step>,
}

/// Objects that are there together, and the answers then.
#[derive(Debug, Clone)]
pub(super) struct Step {
    /// Documents of YAML.
    ///
    /// `$a4` and `$a6` are addresses of pod `a`, `$net4` and `$net6` the subnets of `lan`.
    pub(super) objects: Vec<String>,
    /// Labels of namespaces.
    pub(super) namespaces: Vec<(&'static str, &'static str)>,
    /// Ports that are asked.
    pub(super) ports: Vec<u16>,
    /// Pairs of pods that ask.
    pub(super) pairs: Vec<(char, char)>,
    /// A pod that leaves and comes again with these labels, before the questions.
    pub(super) relabelled: Option<(char, &'static str)>,
    /// Lines of [`Expected`](super::expected::Expected).
    pub(super) answers: Vec<&'static str>,
}

impl Step {
    fn new() -> Self {
        let with_s = LAN.chars().filter(|pod| *pod != 's');
        let with_s = with_s.flat_map(|pod| [(pod, 's'), ('s', pod)]);
        Self {
            objects: Vec::new(),
            namespaces: NAMESPACES.to_vec(),
            ports: vec![80, 5555],
            pairs: with_s.chain(OTHERS).collect(),
            relabelled: None,
            answers: Vec::new(),
        }
    }
}

/// All pairs of these pods that are on one network.
fn pairs(pods: &str) -> Vec<(char, char)> {
    let one = |pod: char| pods.chars().map(move |other| (pod, other));
    let all = pods.chars().flat_map(one);
    all.filter(|(pod, other)| pod != other && pod.is_uppercase() == other.is_uppercase())
        .collect()
}

/// A MultiNetworkPolicy of namespace `red` for `default/lan`.
fn policy(name: &str, pods: &str, spec: &str) -> String {
    let metadata = format!(
        "name: {name}, namespace: red, annotations: {{k8s.v1.cni.cncf.io/policy-for: default/lan}}"
    );
    object(
        "v1beta1",
        &metadata,
        &format!("podSelector: {{{pods}}}, {spec}"),
    )
}

/// A MultiNetworkPolicy of this version.
///
/// Metadata and spec are flow YAML without braces.
pub(super) fn object(version: &str, metadata: &str, spec: &str) -> String {
    format!(
        "apiVersion: k8s.cni.cncf.io/{version}\nkind: MultiNetworkPolicy\n\
         metadata: {{{metadata}}}\nspec: {{{spec}}}\n"
    )
}

impl Case {
    /// A case without policies.
    pub(super) fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            steps: vec![Step::new()],
        }
    }

    fn step(&mut self) -> &mut Step {
        self.steps.last_mut().expect("a step")
    }

    /// With a policy of namespace `red` for `lan` and pod `s`.
    ///
    /// The spec is flow YAML without braces.
    #[must_use]
    pub(super) fn policy(self, spec: &str) -> Self {
        self.selecting("matchLabels: {name: s}", spec)
    }

    /// The same for pods that this selector of `red` selects.
    #[must_use]
    pub(super) fn selecting(mut self, pods: &str, spec: &str) -> Self {
        let name = format!("p{}", self.step().objects.len());
        let text = policy(&name, pods, spec);
        self.step().objects.push(text);
        self
    }

    /// With any other object.
    #[must_use]
    pub(super) fn object(mut self, text: impl Into<String>) -> Self {
        self.step().objects.push(text.into());
        self
    }

    /// With other labels of a namespace.
    #[must_use]
    pub(super) fn namespace(mut self, name: &'static str, labels: &'static str) -> Self {
        let step = self.step();
        step.namespaces.retain(|(known, _)| *known != name);
        step.namespaces.push((name, labels));
        self
    }

    /// Asks these ports, in place of 80 and 5555.
    #[must_use]
    pub(super) fn ports(mut self, ports: &[u16]) -> Self {
        self.step().ports = ports.to_vec();
        self
    }

    /// Has all of these pods ask each other, and no others.
    #[must_use]
    pub(super) fn among(mut self, pods: &str) -> Self {
        self.step().pairs = pairs(pods);
        self
    }

    /// Has a pod leave and come again with these labels.
    #[must_use]
    pub(super) fn relabelled(mut self, pod: char, labels: &'static str) -> Self {
        self.step().relabelled = Some((pod, labels));
        self
    }

    /// Says what is closed and what is open.
    #[must_use]
    pub(super) fn expects(mut self, answers: &[&'static str]) -> Self {
        self.step().answers = answers.to_vec();
        self
    }

    /// Begins a step without objects, with the ports and pairs of the one before.
    #[must_use]
    pub(super) fn then(mut self) -> Self {
        let mut next = Step::new();
        let before = self.step();
        next.ports.clone_from(&before.ports);
        next.pairs.clone_from(&before.pairs);
        self.steps.push(next);
        self
    }
}
