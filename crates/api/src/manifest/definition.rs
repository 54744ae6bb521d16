//! `NetworkAttachmentDefinition`s among the documents of a text.

use super::{
    Documents, Fault, ManifestError, TypeMeta, check_label, check_subdomain, deserialize, split,
};
use crate::network_attachment_definition::NetworkAttachmentDefinition;

/// `apiVersion` of the kind (NPWG v1.3 §3.1).
const API_VERSION: &str = "k8s.cni.cncf.io/v1";
/// `kind`.
const KIND: &str = "NetworkAttachmentDefinition";

/// Reads every `NetworkAttachmentDefinition` of `text`.
///
/// See [`Documents::definitions`].
#[must_use]
pub fn parse_definitions(
    source_name: &str,
    text: &str,
) -> Vec<Result<NetworkAttachmentDefinition, ManifestError>> {
    Documents::of(source_name, text).definitions()
}

/// Reads a document that says that it is one.
pub(super) fn read(
    chunk: &split::Chunk<'_>,
    types: &TypeMeta,
) -> Option<Result<NetworkAttachmentDefinition, Fault>> {
    is_definition(types).then(|| definition(chunk))
}

/// True when a document says that it is one.
pub(super) fn is_definition(types: &TypeMeta) -> bool {
    types.api_version.as_deref() == Some(API_VERSION) && types.kind.as_deref() == Some(KIND)
}

fn definition(chunk: &split::Chunk<'_>) -> Result<NetworkAttachmentDefinition, Fault> {
    let mut object: NetworkAttachmentDefinition = deserialize(chunk)?;
    let name = object.metadata.name.as_deref().unwrap_or_default();
    check_subdomain(name).map_err(|error| Fault::new("metadata.name", error))?;
    let namespace = object
        .metadata
        .namespace
        .get_or_insert_with(|| "default".to_owned());
    check_label(namespace).map_err(|error| Fault::new("metadata.namespace", error))?;
    Ok(object)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::parse_manifests;

    const TEXT: &str = "apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\n\
        metadata: {name: lan, annotations: {a: b}}\nspec:\n  config: '{\"type\": \"bridge\"}'\n---\n\
        apiVersion: podnet.dev/v1alpha1\nkind: PodNetwork\nmetadata: {name: blue}\nspec: {}\n---\n\
        apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\n\
        metadata: {name: -bad, namespace: ops}\n";

    /// Such objects stand next to those of podnet, in one file too.
    #[test]
    fn definitions_are_read_from_among_other_documents() {
        let read = parse_definitions("net.yaml", TEXT);
        let first = read[0].as_ref().unwrap();
        assert_eq!(first.metadata.namespace.as_deref(), Some("default"));
        assert_eq!(first.spec.config, "{\"type\": \"bridge\"}");
        let error = read[1].as_ref().unwrap_err();
        assert_eq!((error.document, error.path.as_str()), (3, "metadata.name"));
        assert_eq!(read.len(), 2);
        let ours = parse_manifests("net.yaml", TEXT);
        assert_eq!(ours.len(), 1);
        assert_eq!(ours[0].as_ref().unwrap().origin.document, 2);
    }
}
