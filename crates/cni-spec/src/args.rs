//! `CNI_ARGS`: `KEY=value` pairs joined by `;`.

use std::collections::BTreeMap;

/// The pairs of `CNI_ARGS`, read leniently (CNI-ENV-09).
///
/// The first `=` ends the key, so a value may contain more of them; pieces without `=` are left
/// out; unknown keys are kept and never an error, wherever `IgnoreUnknown` stands; the last of two
/// equal keys wins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CniArgs {
    raw: String,
    pairs: BTreeMap<String, String>,
}

/// The pod that a Kubernetes runtime attaches, from `CNI_ARGS`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodRef {
    /// `K8S_POD_NAMESPACE`.
    pub namespace: String,
    /// `K8S_POD_NAME`.
    pub name: String,
    /// `K8S_POD_UID`; static pods have one that differs from their mirror pod.
    pub uid: Option<String>,
    /// `K8S_POD_INFRA_CONTAINER_ID`.
    pub infra_container: Option<String>,
}

impl CniArgs {
    /// Reads the variable; there is no text it refuses.
    #[must_use]
    pub fn parse(raw: &str) -> Self {
        let pairs = raw
            .split(';')
            .filter_map(|pair| pair.split_once('='))
            .map(|(key, value)| (key.trim(), value.trim()))
            .filter(|(key, _)| !key.is_empty())
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect();
        Self {
            raw: raw.to_owned(),
            pairs,
        }
    }

    /// The variable as it came.
    #[must_use]
    pub fn raw(&self) -> &str {
        &self.raw
    }

    /// The value of a key; empty counts as absent.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.pairs
            .get(key)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// The pod, when the caller is a Kubernetes runtime; cnitool names none.
    #[must_use]
    pub fn pod(&self) -> Option<PodRef> {
        let owned = |key| self.get(key).map(ToOwned::to_owned);
        Some(PodRef {
            namespace: owned("K8S_POD_NAMESPACE")?,
            name: owned("K8S_POD_NAME")?,
            uid: owned("K8S_POD_UID"),
            infra_container: owned("K8S_POD_INFRA_CONTAINER_ID"),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn kubernetes_keys_are_found_in_any_order() {
        let forward = "IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=p;K8S_POD_UID=u";
        let backward = "K8S_POD_UID=u;K8S_POD_NAME=p;K8S_POD_NAMESPACE=ns;IgnoreUnknown=1";
        let pod = CniArgs::parse(forward).pod().unwrap();
        assert_eq!(pod, CniArgs::parse(backward).pod().unwrap());
        assert_eq!((pod.namespace.as_str(), pod.name.as_str()), ("ns", "p"));
        assert_eq!(pod.uid.as_deref(), Some("u"));
        assert_eq!(pod.infra_container, None);
    }

    #[test]
    fn no_pod_without_namespace_and_name() {
        for raw in ["", "K8S_POD_NAME=p", "K8S_POD_NAMESPACE=ns;K8S_POD_NAME="] {
            assert_eq!(CniArgs::parse(raw).pod(), None, "{raw}");
        }
    }

    #[test]
    fn odd_pairs_are_read_leniently_cni_env_09() {
        let args = CniArgs::parse(";;A=1; B = x=y ;bare;=lost;C=;A=2;");
        assert_eq!(args.get("A"), Some("2"));
        assert_eq!(args.get("B"), Some("x=y"));
        assert_eq!(args.get("C"), None);
        assert_eq!(args.get("bare"), None);
        assert_eq!(args.raw(), ";;A=1; B = x=y ;bare;=lost;C=;A=2;");
        proof::of!("CNI-ENV-09");
    }

    proptest! {
        #[test]
        fn no_text_is_refused_and_the_raw_form_is_kept(raw in ".*") {
            let args = CniArgs::parse(&raw);
            prop_assert_eq!(args.raw(), raw.as_str());
        }

        #[test]
        fn joined_pairs_read_back(
            pairs in prop::collection::btree_map("[A-Z_]{1,8}", "[a-z0-9=./:-]{1,12}", 0..8),
        ) {
            let raw = pairs.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(";");
            let args = CniArgs::parse(&raw);
            for (key, value) in &pairs {
                prop_assert_eq!(args.get(key), Some(value.as_str()));
            }
        }
    }
}
