//! Problems of a definition or of a configuration on disk.

use crate::{meta::NameError, selection::NamespaceIsolated, validate::FieldErrors};

/// A definition and what is wrong with it; CNI code 7 for the pod that selects it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("NetworkAttachmentDefinition {namespace}/{name}: {problem}")]
pub struct DefinitionError {
    /// The object's namespace.
    pub namespace: String,
    /// The object's name.
    pub name: String,
    /// The problem.
    pub problem: DefinitionProblem,
}

/// A problem of a definition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DefinitionProblem {
    /// Not a JSON object.
    #[error("{place} is not a JSON object: {reason}")]
    NotJson {
        /// `spec.config`, or an annotation.
        place: &'static str,
        /// The JSON reader's message.
        reason: String,
    },
    /// A value of another type.
    #[error("{path} is {found}; write {expected}")]
    WrongType {
        /// Path of the key.
        path: String,
        /// The value as written.
        found: String,
        /// The expected value.
        expected: &'static str,
    },
    /// Neither one plugin nor a list of them (NPWG-3.4.2b).
    #[error("the configuration has neither type nor plugins; add type for one plugin, or plugins")]
    NoPlugin,
    /// A list without plugins (CNI-CONF-04).
    #[error("plugins is missing or empty; list at least one plugin")]
    NoPlugins,
    /// A plugin without a type.
    #[error("{path} is missing or empty; write the name of the plugin's binary")]
    TypeRequired {
        /// Path of the key.
        path: String,
    },
    /// A type that leads out of the directory of plugins.
    #[error("{path} \"{found}\" has a `/`; write the name of the plugin's binary alone")]
    TypeIsPath {
        /// Path of the key.
        path: String,
        /// The value.
        found: String,
    },
    /// A network name CNI does not allow (CNI-CONF-01).
    #[error(
        "name \"{found}\" is not a network name of CNI; begin with a letter or digit, then use \
         letters, digits, '_', '.' and '-'"
    )]
    BadNetworkName {
        /// The name as written.
        found: String,
    },
    /// Both ways to name a network of ours.
    #[error("{place} has podNetwork and podNetworkAttachment; keep one")]
    TwoNetworks {
        /// `spec.config`, or the annotation.
        place: &'static str,
    },
    /// Not a name of an object.
    #[error("{path}: {problem}")]
    BadName {
        /// Path of the key.
        path: String,
        /// The problem of the name.
        problem: NameError,
    },
    /// Parameters that cannot be meant.
    #[error("annotation {annotation}: {problem}")]
    BadParameters {
        /// The annotation.
        annotation: &'static str,
        /// The problems, by field.
        problem: FieldErrors,
    },
    /// Parameters for a network that a configuration describes.
    #[error(
        "spec.config and annotation podnet.dev/config both say which network it is; remove one"
    )]
    ConfigAndAnnotation,
    /// A plugin that the cluster does not let definitions name.
    #[error(
        "{path} is \"{found}\", which --delegates-allowed does not list ({allowed}); use one of those, \
         or add it there"
    )]
    PluginNotAllowed {
        /// Path of the key.
        path: String,
        /// The plugin.
        found: String,
        /// The plugins that are listed.
        allowed: String,
    },
    /// More text than a definition may have.
    #[error("spec.config is longer than {most} bytes; remove what its plugins do not need")]
    TooLong {
        /// Most bytes.
        most: usize,
    },
    /// More plugins than a definition may have.
    #[error("plugins has {found} elements, and a definition may have {most}; remove some")]
    TooManyPlugins {
        /// How many there are.
        found: usize,
        /// Most plugins.
        most: usize,
    },
    /// Configurations of plugins inside each other, too many to be followed.
    #[error("{path} has more than {most} configurations of plugins around it; remove some")]
    TooDeep {
        /// Path of the innermost one that was looked at.
        path: String,
        /// Most levels.
        most: usize,
    },
    /// Parameters of a network are asked for, and the configuration is of others.
    #[error(
        "its configuration is of {found}, and podnet reads parameters of type podnet only; write a \
         configuration of that type with the key parameters, or make another PodNetwork without this reference"
    )]
    PluginOfOthers {
        /// The first of the plugins.
        found: String,
    },
    /// Parameters of a network are asked for, and there are none.
    #[error(
        "the definition has no parameters; write a configuration of type podnet and add the key parameters to it, with \
         the fields of the spec of a PodNetworkParameters"
    )]
    NoParameters,
    /// The type or the key of parameters with an escaped letter.
    #[error(
        "type podnet or the key parameters is written with an escape; write both without escapes"
    )]
    Escaped,
    /// A value that is not that of its field.
    #[error("{path}: {reason}")]
    BadValue {
        /// Path of the field.
        path: String,
        /// The JSON reader's message.
        reason: String,
    },
    /// Parameters of a network with errors.
    #[error("the key parameters is invalid, as the spec of a PodNetworkParameters: {0}")]
    ParametersInvalid(FieldErrors),
    /// A reference into another namespace.
    #[error("podNetworkAttachment: {0}")]
    Isolated(#[from] Box<NamespaceIsolated>),
    /// A list in a file for one plugin, or the other way round.
    #[error("a file of this name holds {expected}; rename it to end in {ending}")]
    WrongEnding {
        /// The content that such a file has.
        expected: &'static str,
        /// The ending that fits the content.
        ending: &'static str,
    },
}
