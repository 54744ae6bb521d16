//! Follow network policies of all kinds as the API server has them.
//!
//! The namespaces that they select by are read here, too.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;

use api::{NAMESPACE_NAME_LABEL, PolicyKind, PolicyObject};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::{Resource, ResourceExt as _};
use serde::Deserialize;
use serde_json::Value;

use crate::facts::{Facts, Follow};
use crate::watch::Kind;

/// The facts of the policies of all three kinds.
#[derive(Debug)]
pub struct PolicyFacts<T>([Facts<Arc<T>>; 3]);

impl<T> PolicyFacts<T>
where
    T: PartialEq + Send + Sync + 'static,
{
    /// Adds copies of what `of` makes of each policy and its metadata.
    ///
    /// Every cluster defines NetworkPolicies; it may do without the others.
    pub fn follow(follow: &mut Follow<'_>, of: fn(&ObjectMeta, PolicyObject) -> T) -> Self {
        Self([
            copy::<Namespaced, T>(follow, false, of),
            copy::<Multi, T>(follow, true, of),
            copy::<Cluster, T>(follow, true, of),
        ])
    }

    /// Returns how far the copy of each kind is.
    pub fn kinds(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.0.iter().map(|facts| &facts.kind)
    }

    /// Returns the facts of all policies that are known, one kind after the other.
    pub fn all(&self) -> Vec<Arc<T>> {
        let mut all = Vec::new();
        for facts in &self.0 {
            all.extend(facts.known().values().cloned());
        }
        all
    }
}

fn copy<M: Of, T>(
    follow: &mut Follow<'_>,
    optional: bool,
    of: fn(&ObjectMeta, PolicyObject) -> T,
) -> Facts<Arc<T>>
where
    T: PartialEq + Send + Sync + 'static,
{
    follow.copy(M::PLURAL, optional, move |object: &Written<M>| {
        Arc::new(of(&object.metadata, policy(object)))
    })
}

/// A policy as the API server has it, its spec not interpreted.
#[derive(Debug, Clone, Deserialize)]
#[serde(bound = "")]
struct Written<M> {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Value,
    #[serde(skip)]
    of: PhantomData<M>,
}

/// A kind of policies.
trait Of: Clone + std::fmt::Debug + Send + Sync + 'static {
    /// Whether its objects are of a namespace or of the cluster.
    type Scope;
    /// The kind.
    const KIND: PolicyKind;
    /// Its name in paths of the API.
    const PLURAL: &'static str;
}

/// NetworkPolicy.
#[derive(Debug, Clone)]
struct Namespaced;

impl Of for Namespaced {
    type Scope = NamespaceResourceScope;
    const KIND: PolicyKind = PolicyKind::NetworkPolicy;
    const PLURAL: &'static str = "networkpolicies";
}

/// MultiNetworkPolicy.
#[derive(Debug, Clone)]
struct Multi;

impl Of for Multi {
    type Scope = NamespaceResourceScope;
    const KIND: PolicyKind = PolicyKind::MultiNetworkPolicy;
    const PLURAL: &'static str = "multi-networkpolicies";
}

/// ClusterNetworkPolicy.
#[derive(Debug, Clone)]
struct Cluster;

impl Of for Cluster {
    type Scope = ClusterResourceScope;
    const KIND: PolicyKind = PolicyKind::ClusterNetworkPolicy;
    const PLURAL: &'static str = "clusternetworkpolicies";
}

impl<M: Of> Resource for Written<M> {
    type DynamicType = ();
    type Scope = M::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        M::KIND.as_str().into()
    }

    fn group((): &()) -> Cow<'_, str> {
        M::KIND.group().into()
    }

    fn version((): &()) -> Cow<'_, str> {
        M::KIND
            .versions()
            .first()
            .copied()
            .unwrap_or_default()
            .into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        M::PLURAL.into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// Reads a policy, whatever its spec says.
fn policy<M: Of>(object: &Written<M>) -> PolicyObject {
    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
    let annotations = object.annotations();
    let spec = object.spec.clone();
    PolicyObject::read(M::KIND, (&namespace, &name), annotations, spec)
}

/// Reads the labels of a namespace.
pub fn namespace(object: &Namespace) -> BTreeMap<String, String> {
    let mut labels = object.labels().clone();
    labels
        .entry(NAMESPACE_NAME_LABEL.to_owned())
        .or_insert_with(|| object.name_any());
    labels
}

#[cfg(test)]
mod tests {
    use api::PolicyNetworks;
    use serde_json::json;

    use super::*;

    fn read<M: Of>(object: Value) -> PolicyObject {
        policy::<M>(&serde_json::from_value(object).unwrap())
    }

    #[test]
    fn a_policy_is_kept_as_it_is_written_with_the_networks_it_names() {
        let policy = read::<Namespaced>(json!({
            "metadata": {
                "name": "web", "namespace": "ops",
                "annotations": {"podnet.dev/networks": "blue"}, "managedFields": [],
            },
            "spec": {"podSelector": {}, "ingress": [{"ports": [{"port": 80}]}]},
        }));
        assert_eq!(policy.to_string(), "NetworkPolicy ops/web");
        let blue = PolicyNetworks::PodNetworks(vec!["blue".to_owned()]);
        assert_eq!(policy.networks, blue);
        assert_eq!(policy.spec["ingress"][0]["ports"][0]["port"], 80);
        let bare = read::<Multi>(json!({"metadata": {"name": "web", "namespace": "ops"}}));
        assert_eq!(bare.spec, json!({}));
        let large = read::<Cluster>(json!({
            "metadata": {"name": "all"}, "spec": {"x": "y".repeat(api::POLICY_SPEC_MAX)},
        }));
        // It isolates, and says so.
        let problem = &large.problems[0];
        assert!(problem.starts_with("the spec has "), "{problem}");
        assert_eq!(
            Written::<Cluster>::url_path(&(), None),
            "/apis/policy.networking.k8s.io/v1alpha2/clusternetworkpolicies"
        );
        assert_eq!(
            Written::<Multi>::url_path(&(), None),
            "/apis/k8s.cni.cncf.io/v1beta1/multi-networkpolicies"
        );
        assert_eq!(
            Written::<Namespaced>::url_path(&(), None),
            "/apis/networking.k8s.io/v1/networkpolicies"
        );
    }

    #[test]
    fn a_namespace_has_its_name_as_a_label() {
        let object = json!({"metadata": {"name": "ops", "labels": {"team": "a"}}});
        let labels = namespace(&serde_json::from_value(object).unwrap());
        assert_eq!(
            serde_json::to_value(labels).unwrap(),
            json!({"kubernetes.io/metadata.name": "ops", "team": "a"})
        );
    }
}
