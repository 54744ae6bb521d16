//! Policies and namespaces among the documents of a text.

use std::collections::BTreeMap;

use serde::de::IgnoredAny;
use serde_json::Value;

use super::service::{is_service, is_slice};
use super::{
    Document, Fault, ManifestProblem, Metadata, TypeMeta, check_label, check_subdomain,
    deserialize, split,
};
use crate::policy::{NAMESPACE_NAME_LABEL, PolicyKind, PolicyObject};

/// Name and labels of a Namespace.
pub type NamespaceLabels = (String, BTreeMap<String, String>);

/// `apiVersion` of Namespace.
const CORE: &str = "v1";
/// `kind` of Namespace.
const NAMESPACE: &str = "Namespace";

/// Reads a document that says that it is a policy.
pub(super) fn read(
    chunk: &split::Chunk<'_>,
    types: &TypeMeta,
) -> Option<Result<PolicyObject, Fault>> {
    policy_kind(types).map(|kind| policy(chunk, types, kind))
}

/// Reads a document that says that it is a Namespace.
pub(super) fn read_namespace(
    chunk: &split::Chunk<'_>,
    types: &TypeMeta,
) -> Option<Result<NamespaceLabels, Fault>> {
    is_namespace(types).then(|| namespace(chunk))
}

/// True when a document is a policy, a Namespace, a Service or a slice.
pub(super) fn is_of_others(types: &TypeMeta) -> bool {
    let is_policy = policy_kind(types).is_some() || is_namespace(types);
    is_policy || is_service(types) || is_slice(types)
}

fn group_and_version(types: &TypeMeta) -> Option<(&str, &str)> {
    types.api_version.as_deref()?.split_once('/')
}

/// The kind of a policy, whatever its version.
fn policy_kind(types: &TypeMeta) -> Option<PolicyKind> {
    let (group, _) = group_and_version(types)?;
    let found = types.kind.as_deref()?;
    let mut kinds = PolicyKind::ALL.into_iter();
    kinds.find(|kind| kind.group() == group && kind.as_str() == found)
}

fn is_namespace(types: &TypeMeta) -> bool {
    types.api_version.as_deref() == Some(CORE) && types.kind.as_deref() == Some(NAMESPACE)
}

fn policy(
    chunk: &split::Chunk<'_>,
    types: &TypeMeta,
    kind: PolicyKind,
) -> Result<PolicyObject, Fault> {
    let version = group_and_version(types).map(|(_, version)| version);
    if !version.is_some_and(|version| kind.versions().contains(&version)) {
        let found = types.api_version.clone().unwrap_or_default();
        let problem = ManifestProblem::PolicyVersion { found, kind };
        return Err(Fault::new("apiVersion", problem));
    }
    let Document { metadata, spec, .. } = deserialize::<Document<Option<Value>>>(chunk)?;
    let Metadata {
        name,
        namespace,
        annotations,
        ..
    } = metadata;
    check_subdomain(&name).map_err(|error| Fault::new("metadata.name", error))?;
    let namespace = match (namespace, kind.is_namespaced()) {
        (namespace, true) => namespace.unwrap_or_else(|| "default".to_owned()),
        (None, false) => String::new(),
        (Some(_), false) => {
            let problem = ManifestProblem::PolicyNamespace { kind };
            return Err(Fault::new("metadata.namespace", problem));
        }
    };
    if kind.is_namespaced() {
        check_label(&namespace).map_err(|error| Fault::new("metadata.namespace", error))?;
    }
    let spec = spec.unwrap_or_default();
    Ok(PolicyObject::read(
        kind,
        (&namespace, &name),
        &annotations,
        spec,
    ))
}

fn namespace(chunk: &split::Chunk<'_>) -> Result<NamespaceLabels, Fault> {
    let Document { metadata, .. } = deserialize::<Document<Option<IgnoredAny>>>(chunk)?;
    let Metadata {
        name, mut labels, ..
    } = metadata;
    check_label(&name).map_err(|error| Fault::new("metadata.name", error))?;
    labels
        .entry(NAMESPACE_NAME_LABEL.to_owned())
        .or_insert_with(|| name.clone());
    Ok((name, labels))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::manifest::{Documents, parse_definitions, parse_manifests};
    use crate::policy::PolicyNetworks;

    const TEXT: &str = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\n\
        metadata: {name: web, annotations: {podnet.dev/networks: blue}}\n\
        spec: {podSelector: {matchLabels: {port: '80'}}, ingress: [{ports: [{port: 80}, {port: http}]}]}\n---\n\
        apiVersion: k8s.cni.cncf.io/v1beta1\nkind: MultiNetworkPolicy\n\
        metadata: {name: web, namespace: ops, annotations: {k8s.v1.cni.cncf.io/policy-for: lan}}\n---\n\
        apiVersion: policy.networking.k8s.io/v1alpha2\nkind: ClusterNetworkPolicy\n\
        metadata: {name: all}\nspec: {tier: Admin}\nstatus: {}\n---\n\
        apiVersion: v1\nkind: Namespace\nmetadata: {name: ops, labels: {team: a}}\n---\n\
        apiVersion: podnet.dev/v1alpha1\nkind: PodNetwork\nmetadata: {name: blue}\nspec: {}\n";

    /// Such objects stand next to those of podnet, in one file too.
    #[test]
    fn policies_and_namespaces_are_read_from_among_other_documents() {
        let read: Vec<PolicyObject> = Documents::of("net.yaml", TEXT)
            .policies()
            .into_iter()
            .collect::<Result<_, _>>()
            .unwrap();
        let names: Vec<String> = read.iter().map(ToString::to_string).collect();
        assert_eq!(
            names,
            [
                "NetworkPolicy default/web",
                "MultiNetworkPolicy ops/web",
                "ClusterNetworkPolicy all"
            ]
        );
        let named = PolicyNetworks::PodNetworks(vec!["blue".to_owned()]);
        assert_eq!(read[0].networks, named);
        // Numbers stay numbers, and texts texts.
        assert_eq!(
            read[0].spec,
            json!({
                "podSelector": {"matchLabels": {"port": "80"}},
                "ingress": [{"ports": [{"port": 80}, {"port": "http"}]}],
            })
        );
        let lan = PolicyNetworks::Definitions(vec![("ops".to_owned(), "lan".to_owned())]);
        assert_eq!((&read[1].networks, &read[1].spec), (&lan, &json!({})));
        assert_eq!(read[2].networks, PolicyNetworks::Default);

        let namespaces = Documents::of("net.yaml", TEXT).namespaces();
        let [Ok((name, labels))] = namespaces.as_slice() else {
            panic!("{namespaces:?}")
        };
        let labels: Vec<_> = labels
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        assert_eq!(name, "ops");
        assert_eq!(labels, ["kubernetes.io/metadata.name=ops", "team=a"]);

        let ours = parse_manifests("net.yaml", TEXT);
        assert_eq!(ours.len(), 1);
        assert_eq!(ours[0].as_ref().unwrap().origin.document, 5);
        assert!(parse_definitions("net.yaml", TEXT).is_empty());
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        for (text, words) in [
            (
                "apiVersion: policy.networking.k8s.io/v1alpha1\nkind: ClusterNetworkPolicy\nmetadata: {name: a}\n",
                "p.yaml:1 (document 1) apiVersion: \"policy.networking.k8s.io/v1alpha1\" of ClusterNetworkPolicy is \
                 not read; write policy.networking.k8s.io/v1alpha2",
            ),
            (
                "apiVersion: policy.networking.k8s.io/v1alpha2\nkind: ClusterNetworkPolicy\n\
                 metadata: {name: a, namespace: b}\n",
                "metadata.namespace: ClusterNetworkPolicy is cluster-scoped; remove the namespace",
            ),
            (
                "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: -a}\n",
                "metadata.name: \"-a\" is not",
            ),
            (
                "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: a}\nspce: {}\n",
                "spce",
            ),
        ] {
            let read = Documents::of("p.yaml", text).policies();
            let error = read[0].as_ref().unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
            assert!(parse_manifests("p.yaml", text).is_empty());
        }
        let long = format!(
            "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{name: a}}\nspec: {{x: {}}}\n",
            "y".repeat(crate::POLICY_SPEC_MAX)
        );
        let read = Documents::of("p.yaml", &long).policies();
        let problem = &read[0].as_ref().unwrap().problems[0];
        assert!(
            problem.contains("the spec has") && problem.len() < 300,
            "{problem}"
        );
        let bad = "apiVersion: v1\nkind: Namespace\nmetadata: {name: a.b}\n";
        let error = Documents::of("n.yaml", bad).namespaces()[0]
            .as_ref()
            .unwrap_err()
            .to_string();
        assert!(error.contains("metadata.name: \"a.b\" is not"), "{error}");
    }
}
