//! Problems for which nothing is imported.

/// The input says nothing that could be imported.
///
/// A field of a known name and the wrong type is one: Multus would refuse the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// Not a JSON object, or a key that is there twice.
    #[error(
        "the configuration is not a JSON object with each key once: {reason}; correct the file, of a repeated key \
         keep the value that is meant"
    )]
    NotJson {
        /// The JSON reader's message, with the line.
        reason: String,
    },
    /// A value of another type.
    #[error("{path} is {found}; write {expected}")]
    WrongType {
        /// Path of the field.
        path: String,
        /// The value as written, shortened.
        found: String,
        /// The expected value.
        expected: &'static str,
    },
    /// More than a configuration has.
    #[error(
        "{path} has {found} elements, and {most} is the most that are read; give fewer, or correct the file"
    )]
    TooMany {
        /// Path of the array or object.
        path: String,
        /// How many it has.
        found: usize,
        /// The limit.
        most: usize,
    },
    /// Another plugin's configuration.
    #[error(
        "type is \"{found}\"; give the file whose type is multus or multus-shim, 00-multus.conf as a rule, or the \
         daemon's daemon-config.json"
    )]
    NotMultus {
        /// The type as written.
        found: String,
    },
    /// A list of plugins without Multus.
    #[error(
        "none of the plugins has the type multus or multus-shim; give the file that has one, 00-multus.conf as a rule"
    )]
    NoMultusInList,
    /// Nothing that Multus knows.
    #[error(
        "the configuration has no field of Multus; give 00-multus.conf or the daemon's daemon-config.json"
    )]
    NoField,
    /// Multus refuses such a file.
    #[error(
        "neither clusterNetwork nor delegates names a network, and Multus refuses that; give the file that the \
         node's Multus runs with"
    )]
    NoNetwork,
    /// A namespace that Kubernetes would not take.
    #[error("{path} has \"{found}\", which is not the name of a namespace: {reason}; correct it")]
    Namespace {
        /// Path of the field.
        path: String,
        /// The name as written, shortened.
        found: String,
        /// The problem of the name.
        reason: String,
    },
    /// Definitions that cannot be read.
    #[error(
        "{source_name} is not YAML or JSON: {reason}; give what `kubectl get network-attachment-definitions -A -o yaml` prints"
    )]
    NotYaml {
        /// Name of the file.
        source_name: String,
        /// The reader's message, with the line.
        reason: String,
    },
    /// An object that is not a definition.
    #[error(
        "{place}: {reason}; give NetworkAttachmentDefinitions of apiVersion k8s.cni.cncf.io/v1, or a List of them, alone"
    )]
    NotADefinition {
        /// The file and the number of the object in it.
        place: String,
        /// The problem.
        reason: String,
    },
    /// One name twice.
    #[error(
        "{place}: NetworkAttachmentDefinition {namespace}/{name} was there before; remove one of them"
    )]
    Twice {
        /// The file and the number of the object in it.
        place: String,
        /// The object's namespace.
        namespace: String,
        /// The object's name.
        name: String,
    },
}
