//! Text to objects. One bad document never hides the good ones next to it.

mod definition;
mod documents;
mod endpoint_slice;
mod policy;
mod service;
mod split;
#[cfg(test)]
mod tests;

pub use definition::parse_definitions;
pub use documents::Documents;
pub use endpoint_slice::parse_endpoint_slices;
pub use policy::NamespaceLabels;

use std::{cell::RefCell, fmt};

use serde::{
    Deserialize,
    de::{DeserializeOwned, IgnoredAny},
};

use crate::{
    attachment::{PodNetworkAttachment, PodNetworkAttachmentSpec},
    meta::{
        API_VERSION, Kind, Manifest, Metadata, NameError, ParametersRef, check_label,
        check_subdomain,
    },
    parameters::{
        AttachmentParameters, AttachmentParametersSpec, PodNetworkParameters,
        PodNetworkParametersSpec,
    },
    podnetwork::{PodNetwork, PodNetworkSpec, check_provider},
    policy::PolicyKind,
    validate::FieldErrors,
    vpc::{Vpc, VpcSpec},
};

/// Where an object was read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin {
    /// Name of the file, or of whatever the text came from.
    pub file: String,
    /// Number of the document in it, from 1.
    pub document: usize,
    /// Line the document begins at, from 1.
    pub line: u64,
}

impl Origin {
    /// Makes the origin of an object of the API server.
    ///
    /// There is no file, so document and line are 0.
    #[must_use]
    pub fn api_server() -> Self {
        Self {
            file: "API server".to_owned(),
            document: 0,
            line: 0,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.document == 0 {
            return f.write_str(&self.file);
        }
        write!(
            f,
            "{}:{} (document {})",
            self.file, self.line, self.document
        )
    }
}

/// An object together with the place it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Where it was read.
    pub origin: Origin,
    /// The object itself.
    pub resource: Resource,
}

/// One object of any kind of the group.
#[expect(
    clippy::large_enum_variant,
    reason = "each is read once, and lives as long as its object"
)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resource {
    /// A network.
    PodNetwork(Manifest<PodNetworkSpec>),
    /// A parameterised way to attach.
    PodNetworkAttachment(Manifest<PodNetworkAttachmentSpec>),
    /// A network's parameters.
    PodNetworkParameters(Manifest<PodNetworkParametersSpec>),
    /// An attachment's parameters.
    AttachmentParameters(Manifest<AttachmentParametersSpec>),
    /// Networks that are routed to each other.
    Vpc(Manifest<VpcSpec>),
}

impl Resource {
    /// The object's kind.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::PodNetwork(_) => Kind::PodNetwork,
            Self::PodNetworkAttachment(_) => Kind::PodNetworkAttachment,
            Self::PodNetworkParameters(_) => Kind::PodNetworkParameters,
            Self::AttachmentParameters(_) => Kind::AttachmentParameters,
            Self::Vpc(_) => Kind::Vpc,
        }
    }

    /// The object's name and namespace.
    #[must_use]
    pub const fn metadata(&self) -> &Metadata {
        match self {
            Self::PodNetwork(object) => &object.metadata,
            Self::PodNetworkAttachment(object) => &object.metadata,
            Self::PodNetworkParameters(object) => &object.metadata,
            Self::AttachmentParameters(object) => &object.metadata,
            Self::Vpc(object) => &object.metadata,
        }
    }
}

impl From<&PodNetwork> for Resource {
    fn from(object: &PodNetwork) -> Self {
        Self::PodNetwork(Manifest::of(object))
    }
}

impl From<&PodNetworkAttachment> for Resource {
    fn from(object: &PodNetworkAttachment) -> Self {
        Self::PodNetworkAttachment(Manifest::of(object))
    }
}

impl From<&PodNetworkParameters> for Resource {
    fn from(object: &PodNetworkParameters) -> Self {
        Self::PodNetworkParameters(Manifest::of(object))
    }
}

impl From<&AttachmentParameters> for Resource {
    fn from(object: &AttachmentParameters) -> Self {
        Self::AttachmentParameters(Manifest::of(object))
    }
}

impl From<&Vpc> for Resource {
    fn from(object: &Vpc) -> Self {
        Self::Vpc(Manifest::of(object))
    }
}

/// A document that is not one of our objects, and where it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{file}:{line} (document {document}){}{path}: {problem}",
    if path.is_empty() { "" } else { " " }
)]
pub struct ManifestError {
    /// Name of the file, or of whatever the text came from.
    pub file: String,
    /// Number of the document in it, from 1.
    pub document: usize,
    /// Line of the error, from 1: its own if the parser knows it, else the document's.
    ///
    /// Lines are those of the file.
    pub line: u64,
    /// Path of the field, as `spec.subnets[1]`; empty for the document as a whole.
    pub path: String,
    /// The problem, and a valid text to write instead.
    pub problem: ManifestProblem,
}

/// A problem of a document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestProblem {
    /// Not YAML, a wrong type, an unknown, double or missing key.
    #[error("{detail}")]
    Malformed {
        /// The parser's words, with the keys it expected.
        detail: String,
    },
    /// `apiVersion` is of another group or version.
    #[error("\"{found}\" is not served; write {API_VERSION}")]
    ApiVersion {
        /// The document's value, empty if it has none.
        found: String,
    },
    /// `kind` is none of ours.
    #[error(
        "\"{found}\" is not a kind of {API_VERSION}; write one of PodNetwork, \
         PodNetworkAttachment, PodNetworkParameters, AttachmentParameters, Vpc"
    )]
    Kind {
        /// The document's value, empty if it has none.
        found: String,
    },
    /// Another kind where slices are read.
    #[error("\"{found}\" is not read here; write PodNetworkEndpointSlice")]
    NotASlice {
        /// The document's value, empty if it has none.
        found: String,
    },
    /// A name Kubernetes would not take.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A namespace on an object that has none.
    #[error("{kind} is cluster-scoped; remove the namespace")]
    ClusterScoped {
        /// The object's kind.
        kind: Kind,
    },
    /// A policy of a version that is not read.
    #[error(
        "\"{found}\" of {kind} is not read; write {}/{}",
        kind.group(), kind.versions().first().unwrap_or(&"v1")
    )]
    PolicyVersion {
        /// The document's value.
        found: String,
        /// The object's kind.
        kind: PolicyKind,
    },
    /// A namespace on a policy of the cluster.
    #[error("{kind} is cluster-scoped; remove the namespace")]
    PolicyNamespace {
        /// The object's kind.
        kind: PolicyKind,
    },
    /// `spec.provider` is not `domain/path` (KEP-3698).
    #[error("\"{found}\" is not domain/path; write podnet.dev/ebpf for networks of this agent")]
    Provider {
        /// The document's value.
        found: String,
    },
    /// A reference without a group or kind.
    #[error("a value is required; podnet's parameters are group podnet.dev")]
    EmptyReference,
    /// Fields that the API server would refuse.
    #[error(transparent)]
    Fields(#[from] FieldErrors),
}

/// Reads every document of `text`; `source_name` is named in errors and origins.
///
/// See [`Documents::manifests`].
#[must_use]
pub fn parse_manifests(source_name: &str, text: &str) -> Vec<Result<Object, ManifestError>> {
    Documents::of(source_name, text).manifests()
}

/// An error before the place it happened at is known.
struct Fault {
    line: Option<u64>,
    path: String,
    problem: ManifestProblem,
}

impl Fault {
    fn new(path: impl Into<String>, problem: impl Into<ManifestProblem>) -> Self {
        Self {
            line: None,
            path: path.into(),
            problem: problem.into(),
        }
    }

    fn at(self, origin: Origin) -> ManifestError {
        ManifestError {
            line: self.line.unwrap_or(origin.line),
            file: origin.file,
            document: origin.document,
            path: self.path,
            problem: self.problem,
        }
    }
}

/// Read first, so that a wrong kind is not reported as a wrong field.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct TypeMeta {
    #[serde(default)]
    api_version: Option<String>,
    #[serde(default)]
    kind: Option<String>,
}

/// The whole document. `status` is the API server's and not ours to read.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Document<S> {
    #[serde(rename = "apiVersion")]
    _api_version: IgnoredAny,
    #[serde(rename = "kind")]
    _kind: IgnoredAny,
    metadata: Metadata,
    spec: S,
    #[serde(default, rename = "status")]
    _status: IgnoredAny,
}

fn parse_document(
    chunk: &split::Chunk<'_>,
    types: Option<&TypeMeta>,
    origin: &Origin,
) -> Result<Resource, Fault> {
    let read;
    let types = match types {
        Some(types) => types,
        // Once more, for the reason.
        None => {
            read = deserialize::<TypeMeta>(chunk)?;
            &read
        }
    };
    let version = types.api_version.clone().unwrap_or_default();
    if version != API_VERSION {
        return Err(Fault::new(
            "apiVersion",
            ManifestProblem::ApiVersion { found: version },
        ));
    }
    let found = types.kind.clone().unwrap_or_default();
    let Some(kind) = Kind::from_name(&found) else {
        return Err(Fault::new("kind", ManifestProblem::Kind { found }));
    };
    let resource = match kind {
        Kind::PodNetwork => Resource::PodNetwork(manifest(chunk, kind)?),
        Kind::PodNetworkAttachment => Resource::PodNetworkAttachment(manifest(chunk, kind)?),
        Kind::PodNetworkParameters => Resource::PodNetworkParameters(manifest(chunk, kind)?),
        Kind::AttachmentParameters => Resource::AttachmentParameters(manifest(chunk, kind)?),
        Kind::Vpc => Resource::Vpc(manifest(chunk, kind)?),
    };
    debug_assert_eq!(resource.kind(), kind, "{origin}");
    check_fields(&resource)?;
    Ok(resource)
}

fn manifest<S: DeserializeOwned>(
    chunk: &split::Chunk<'_>,
    kind: Kind,
) -> Result<Manifest<S>, Fault> {
    let Document {
        mut metadata, spec, ..
    } = deserialize::<Document<S>>(chunk)?;
    check_subdomain(&metadata.name).map_err(|error| Fault::new("metadata.name", error))?;
    match (&metadata.namespace, kind.is_namespaced()) {
        (Some(_), false) => {
            return Err(Fault::new(
                "metadata.namespace",
                ManifestProblem::ClusterScoped { kind },
            ));
        }
        (Some(namespace), true) => {
            check_label(namespace).map_err(|error| Fault::new("metadata.namespace", error))?;
        }
        (None, true) => metadata.namespace = Some("default".to_owned()),
        (None, false) => {}
    }
    Ok(Manifest { metadata, spec })
}

/// Checks the rules that a CRD schema has and the types do not.
fn check_fields(resource: &Resource) -> Result<(), Fault> {
    match resource {
        Resource::PodNetwork(network) => {
            if let Some(provider) = &network.spec.provider
                && !check_provider(provider)
            {
                let problem = ManifestProblem::Provider {
                    found: provider.clone(),
                };
                return Err(Fault::new("spec.provider", problem));
            }
            check_references(&network.spec.parameters_refs)
        }
        Resource::PodNetworkAttachment(attachment) => {
            check_subdomain(&attachment.spec.pod_network_name)
                .map_err(|error| Fault::new("spec.podNetworkName", error))?;
            check_references(&attachment.spec.parameters_refs)
        }
        Resource::PodNetworkParameters(_)
        | Resource::AttachmentParameters(_)
        | Resource::Vpc(_) => Ok(()),
    }
}

fn check_references(references: &[ParametersRef]) -> Result<(), Fault> {
    for (index, reference) in references.iter().enumerate() {
        let path = |field: &str| format!("spec.parametersRefs[{index}].{field}");
        for (field, value) in [("group", &reference.group), ("kind", &reference.kind)] {
            if value.is_empty() {
                return Err(Fault::new(path(field), ManifestProblem::EmptyReference));
            }
        }
        check_subdomain(&reference.name).map_err(|error| Fault::new(path("name"), error))?;
        if let Some(namespace) = &reference.namespace {
            check_label(namespace).map_err(|error| Fault::new(path("namespace"), error))?;
        }
    }
    Ok(())
}

fn deserialize<T: DeserializeOwned>(chunk: &split::Chunk<'_>) -> Result<T, Fault> {
    // The parser lends its deserializer to a closure, and takes back only its own error type.
    let path = RefCell::new(String::new());
    serde_saphyr::with_deserializer_from_str(chunk.text, |deserializer| {
        let mut track = serde_path_to_error::Track::new();
        let tracked = serde_path_to_error::Deserializer::new(deserializer, &mut track);
        T::deserialize(tracked).inspect_err(|_| *path.borrow_mut() = track.path().to_string())
    })
    .map_err(|error| {
        let located = error
            .location()
            .map(|location| chunk.first_line + location.line() - 1);
        Fault {
            line: located,
            path: field_path(path.into_inner()),
            problem: ManifestProblem::Malformed {
                detail: without_location(&error),
            },
        }
    })
}

/// Returns a path without the parser's endings.
///
/// Its path tracker writes `.` for the root and ends in `?` where a key could not be read.
fn field_path(path: String) -> String {
    match path.trim_end_matches('?').trim_end_matches('.') {
        trimmed if trimmed.len() == path.len() => path,
        trimmed => trimmed.to_owned(),
    }
}

/// Returns the parser's message without line and column.
///
/// The parser counts lines from the start of the document; ours count from the start of the file.
fn without_location(error: &serde_saphyr::Error) -> String {
    let text = error.without_snippet().to_string();
    match error.location() {
        Some(location) => {
            let suffix = format!(" at line {}, column {}", location.line(), location.column());
            text.strip_suffix(&suffix)
                .map(str::to_owned)
                .unwrap_or(text)
        }
        None => text,
    }
}
