//! `NetworkAttachmentDefinition` as the API server has it (NPWG v1.3 §3.1).

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_core::{NamespaceResourceScope, Resource};
use serde::Deserialize;

use crate::meta::null_as_default;

/// A network by the name of which pods attach (NPWG v1.3 §3).
///
/// podnet reads such objects and writes none.
///
/// Not derived like podnet's own kinds, because an object without `spec` is a valid one here.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct NetworkAttachmentDefinition {
    /// Name, namespace, annotations.
    pub metadata: ObjectMeta,
    /// Empty when the object has none.
    #[serde(default, deserialize_with = "null_as_default")]
    pub spec: NetworkAttachmentDefinitionSpec,
}

/// `spec` of a `NetworkAttachmentDefinition` (NPWG v1.3 §3.1).
///
/// Other fields are dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct NetworkAttachmentDefinitionSpec {
    /// A CNI configuration or list as JSON text.
    ///
    /// Empty means a network known by the object's name (NPWG v1.3 §3.2).
    #[serde(default, deserialize_with = "null_as_default")]
    pub config: String,
}

impl Resource for NetworkAttachmentDefinition {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "NetworkAttachmentDefinition".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "k8s.cni.cncf.io".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "network-attachment-definitions".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(spec: Value) -> NetworkAttachmentDefinition {
        let mut object = json!({
            "apiVersion": "k8s.cni.cncf.io/v1",
            "kind": "NetworkAttachmentDefinition",
            "metadata": {"name": "a-network", "namespace": "default"},
        });
        if !spec.is_null() {
            object["spec"] = spec;
        }
        serde_json::from_value(object).unwrap()
    }

    /// NPWG-3.1, NPWG-3.2a
    #[test]
    fn an_object_without_spec_or_config_has_an_empty_config() {
        for spec in [
            Value::Null,
            json!({}),
            json!({"config": null}),
            json!({"config": ""}),
        ] {
            assert_eq!(read(spec.clone()).spec.config, "", "{spec}");
        }
        proof::of!("NPWG-3.1", "NPWG-3.2a");
    }

    /// NPWG-3.2.1
    #[test]
    fn the_config_is_kept_as_it_was_written() {
        let config = "{ \"type\": \"bridge\",\n \"mtu\": 1e3 }";
        assert_eq!(
            read(json!({"config": config, "other": 1})).spec.config,
            config
        );
        proof::of!("NPWG-3.2.1");
    }
}
