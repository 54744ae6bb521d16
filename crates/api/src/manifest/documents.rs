//! Tell the documents of a text apart, once for all kinds of objects.

use super::{Fault, ManifestError, Object, Origin, TypeMeta, deserialize, parse_document, split};
use super::{definition, policy, service};
use crate::network_attachment_definition::NetworkAttachmentDefinition;
use crate::policy::PolicyObject;
use crate::service::{ServiceObject, ServiceSlice};

use super::NamespaceLabels;

/// A text in documents, each with what it says that it is.
///
/// YAML 1.2, of which JSON is a part; documents are separated by `---`. Empty ones are skipped. A text with objects of several
/// kinds is looked through once for all of them.
#[derive(Debug)]
pub struct Documents<'a> {
    source: &'a str,
    all: Vec<Typed<'a>>,
}

#[derive(Debug)]
struct Typed<'a> {
    chunk: split::Chunk<'a>,
    /// `None` for one that cannot be read as far as that.
    types: Option<TypeMeta>,
}

impl<'a> Documents<'a> {
    /// Divides a text; `source_name` is named in errors and origins.
    #[must_use]
    pub fn of(source_name: &'a str, text: &'a str) -> Self {
        let all = split::documents(text).map(|chunk| Typed {
            types: deserialize(&chunk).ok(),
            chunk,
        });
        Self {
            source: source_name,
            all: all.collect(),
        }
    }

    /// Reads every document of a kind that is for no other method of this type.
    ///
    /// The results are in the order of the documents.
    #[must_use]
    pub fn manifests(&self) -> Vec<Result<Object, ManifestError>> {
        let own = self.all.iter().enumerate().filter(|(_, it)| {
            let types = it.types.as_ref();
            !types.is_some_and(|it| definition::is_definition(it) || policy::is_of_others(it))
        });
        own.map(|(index, it)| {
            let origin = self.origin(index, it);
            parse_document(&it.chunk, it.types.as_ref(), &origin)
                .map(|resource| Object {
                    origin: origin.clone(),
                    resource,
                })
                .map_err(|fault| fault.at(origin))
        })
        .collect()
    }

    /// Reads every `NetworkAttachmentDefinition`.
    ///
    /// One without a namespace is in namespace `default`.
    #[must_use]
    pub fn definitions(&self) -> Vec<Result<NetworkAttachmentDefinition, ManifestError>> {
        self.read(definition::read)
    }

    /// Reads the policies: NetworkPolicy, MultiNetworkPolicy and ClusterNetworkPolicy.
    ///
    /// One without a namespace, of a kind that has them, is in namespace `default`.
    #[must_use]
    pub fn policies(&self) -> Vec<Result<PolicyObject, ManifestError>> {
        self.read(policy::read)
    }

    /// Reads the Namespaces.
    #[must_use]
    pub fn namespaces(&self) -> Vec<Result<NamespaceLabels, ManifestError>> {
        self.read(policy::read_namespace)
    }

    /// Reads the Services of networks and of the cluster.
    ///
    /// Those that podnet never serves are passed over. One without a namespace is in namespace `default`.
    #[must_use]
    pub fn services(&self) -> Vec<Result<ServiceObject, ManifestError>> {
        self.read(service::read)
    }

    /// Reads the EndpointSlices of networks and of the cluster, as [`Self::services`].
    #[must_use]
    pub fn service_slices(&self) -> Vec<Result<ServiceSlice, ManifestError>> {
        self.read(service::read_slice)
    }

    fn read<T>(
        &self,
        read: impl Fn(&split::Chunk<'_>, &TypeMeta) -> Option<Result<T, Fault>>,
    ) -> Vec<Result<T, ManifestError>> {
        let found = self.all.iter().enumerate().filter_map(|(index, it)| {
            let read = read(&it.chunk, it.types.as_ref()?)?;
            Some(read.map_err(|fault| fault.at(self.origin(index, it))))
        });
        found.collect()
    }

    fn origin(&self, index: usize, it: &Typed<'_>) -> Origin {
        Origin {
            file: self.source.to_owned(),
            document: index + 1,
            line: it.chunk.first_line,
        }
    }
}
