//! Policies as they are written: which object, for which networks, and its spec.
//!
//! What a spec means is not known here.
//!
//! - Without an annotation, a NetworkPolicy and a ClusterNetworkPolicy are for the default networks of pods.
//! - `podnet.dev/networks: a, b` names PodNetworks instead, in each of the kinds.
//! - `k8s.v1.cni.cncf.io/policy-for: a, ns/b` names NetworkAttachmentDefinitions in a MultiNetworkPolicy,
//!   which without either annotation is for nothing.

use std::{collections::BTreeMap, fmt};

use serde_json::{Value, json};

use crate::{
    meta::{check_label, check_subdomain},
    selection::POD_NETWORKS_ANNOTATION,
};

/// Annotation of a MultiNetworkPolicy: definitions of networks that it is for.
pub const POLICY_FOR_ANNOTATION: &str = "k8s.v1.cni.cncf.io/policy-for";
/// Label that each namespace has: its own name.
pub const NAMESPACE_NAME_LABEL: &str = "kubernetes.io/metadata.name";
/// The most networks that one policy may name.
pub const POLICY_NETWORKS_MAX: usize = 64;
/// The most bytes of a policy's spec, as JSON.
pub const POLICY_SPEC_MAX: usize = 256 * 1024;

/// The kinds of policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PolicyKind {
    /// `networking.k8s.io` NetworkPolicy, namespaced.
    NetworkPolicy,
    /// `k8s.cni.cncf.io` MultiNetworkPolicy, namespaced.
    MultiNetworkPolicy,
    /// `policy.networking.k8s.io` ClusterNetworkPolicy, of the cluster.
    ClusterNetworkPolicy,
}

impl PolicyKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [
        Self::NetworkPolicy,
        Self::MultiNetworkPolicy,
        Self::ClusterNetworkPolicy,
    ];

    /// The word in a manifest's `kind`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NetworkPolicy => "NetworkPolicy",
            Self::MultiNetworkPolicy => "MultiNetworkPolicy",
            Self::ClusterNetworkPolicy => "ClusterNetworkPolicy",
        }
    }

    /// Its API group.
    #[must_use]
    pub const fn group(self) -> &'static str {
        match self {
            Self::NetworkPolicy => "networking.k8s.io",
            Self::MultiNetworkPolicy => "k8s.cni.cncf.io",
            Self::ClusterNetworkPolicy => "policy.networking.k8s.io",
        }
    }

    /// Versions of its group that are read, the best first.
    #[must_use]
    pub const fn versions(self) -> &'static [&'static str] {
        match self {
            Self::NetworkPolicy => &["v1"],
            Self::MultiNetworkPolicy => &["v1beta1", "v1beta2"],
            Self::ClusterNetworkPolicy => &["v1alpha2"],
        }
    }

    /// True for kinds that live in a namespace.
    #[must_use]
    pub const fn is_namespaced(self) -> bool {
        !matches!(self, Self::ClusterNetworkPolicy)
    }
}

impl fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The networks that a policy is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PolicyNetworks {
    /// The default network of each pod.
    Default,
    /// PodNetworks of these names, sorted.
    PodNetworks(Vec<String>),
    /// NetworkAttachmentDefinitions of these namespaces and names, sorted.
    Definitions(Vec<(String, String)>),
}

impl PolicyNetworks {
    /// True unless it is for the default network, or for nothing.
    #[must_use]
    pub const fn names_any(&self) -> bool {
        match self {
            Self::Default => false,
            Self::PodNetworks(names) => !names.is_empty(),
            Self::Definitions(names) => !names.is_empty(),
        }
    }
}

/// A policy as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyObject {
    /// Its kind.
    pub kind: PolicyKind,
    /// Its namespace; empty for kinds of the cluster.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The networks that it is for.
    pub networks: PolicyNetworks,
    /// `spec`, not interpreted; an empty object where there is none.
    pub spec: Value,
    /// Parts of its annotations that are not obeyed, each with the remedy.
    pub problems: Vec<String>,
}

impl PolicyObject {
    /// Reads an object of the API server or of a file.
    ///
    /// `namespace` is empty for a kind of the cluster. The rules of a spec that is too large are not read: what it
    /// selects is isolated, and a problem of the object says so.
    pub fn read(
        kind: PolicyKind,
        (namespace, name): (&str, &str),
        annotations: &BTreeMap<String, String>,
        spec: Value,
    ) -> Self {
        let mut spec = match spec {
            Value::Null => Value::Object(serde_json::Map::new()),
            spec => spec,
        };
        let mut problems = Vec::new();
        let bytes = json_len(&spec);
        if bytes > POLICY_SPEC_MAX {
            problems.push(format!(
                "the spec has {bytes} bytes as JSON: what it selects gets and sends nothing until the policy is \
                 divided into several of at most {POLICY_SPEC_MAX}"
            ));
            spec = isolating(&spec);
        }
        let networks = networks(kind, namespace, annotations, &mut problems);
        Self {
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            networks,
            spec,
            problems,
        }
    }

    /// Key of the object, by which policies are sorted.
    #[must_use]
    pub fn key(&self) -> (PolicyKind, &str, &str) {
        (self.kind, &self.namespace, &self.name)
    }
}

impl fmt::Display for PolicyObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let separator = if self.namespace.is_empty() { "" } else { "/" };
        write!(
            f,
            "{} {}{separator}{}",
            self.kind, self.namespace, self.name
        )
    }
}

/// Returns a spec without rules for the pods of another.
///
/// It is for all pods that it may be for, if the selector is too large, too.
///
/// A spec of the cluster's kind that says no more is none, and isolates as one that cannot be read.
fn isolating(spec: &Value) -> Value {
    let pods = spec.get("podSelector");
    let pods = pods.filter(|it| json_len(it) <= POLICY_SPEC_MAX);
    json!({
        "podSelector": pods.cloned().unwrap_or_else(|| json!({})),
        "policyTypes": ["Ingress", "Egress"],
    })
}

/// Bytes of a value as JSON, without making the text.
fn json_len(value: &Value) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // A value of JSON can be written, and a counter takes everything.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}

fn networks(
    kind: PolicyKind,
    namespace: &str,
    annotations: &BTreeMap<String, String>,
    problems: &mut Vec<String>,
) -> PolicyNetworks {
    let multi = kind == PolicyKind::MultiNetworkPolicy;
    let definitions = annotations.get(POLICY_FOR_ANNOTATION).filter(|_| multi);
    if let Some(text) = annotations.get(POD_NETWORKS_ANNOTATION) {
        if definitions.is_some_and(|text| !text.trim().is_empty()) {
            problems.push(format!(
                "annotation {POLICY_FOR_ANNOTATION} is not obeyed next to {POD_NETWORKS_ANNOTATION}; write one \
                 of the two"
            ));
        }
        let names = names(POD_NETWORKS_ANNOTATION, text, problems, |name| {
            check_subdomain(name).map_err(|error| error.to_string())?;
            Ok(name.to_owned())
        });
        if names.is_empty() {
            problems.push(format!(
                "annotation {POD_NETWORKS_ANNOTATION} names no network, so the policy is for none; write names of \
                 PodNetworks, as a, b, or remove it"
            ));
        }
        return PolicyNetworks::PodNetworks(names);
    }
    if !multi {
        return PolicyNetworks::Default;
    }
    let text = definitions.map(String::as_str).unwrap_or_default();
    let names = names(POLICY_FOR_ANNOTATION, text, problems, |entry| {
        let (of, name) = entry.split_once('/').unwrap_or((namespace, entry));
        check_label(of).map_err(|error| error.to_string())?;
        check_subdomain(name).map_err(|error| error.to_string())?;
        Ok((of.to_owned(), name.to_owned()))
    });
    if names.is_empty() {
        problems.push(format!(
            "the policy is for no network; name NetworkAttachmentDefinitions in the annotation \
             {POLICY_FOR_ANNOTATION}, as a, ops/b, or PodNetworks in {POD_NETWORKS_ANNOTATION}"
        ));
    }
    PolicyNetworks::Definitions(names)
}

/// Reads a list with commas, sorted and each name once.
///
/// Those that are none are told and left out.
fn names<T: Ord>(
    annotation: &str,
    text: &str,
    problems: &mut Vec<String>,
    read: impl Fn(&str) -> Result<T, String>,
) -> Vec<T> {
    let entries = text.split(',').map(str::trim);
    let mut entries = entries.filter(|entry| !entry.is_empty());
    let mut names = Vec::new();
    for entry in entries.by_ref().take(POLICY_NETWORKS_MAX) {
        match read(entry) {
            Ok(name) => names.push(name),
            Err(error) => problems.push(format!("annotation {annotation}: {error}")),
        }
    }
    let more = entries.count();
    if more > 0 {
        problems.push(format!(
            "annotation {annotation} has {more} names too many, and the policy is not for those; divide it into \
             several of at most {POLICY_NETWORKS_MAX} names"
        ));
    }
    names.sort_unstable();
    names.dedup();
    names
}

#[cfg(test)]
mod tests;
