//! Reads `NetworkAttachmentDefinition`s: networks of ours, or chains of plugins.
//!
//! NPWG §3.
//!
//! - No `spec.config`: the `PodNetwork` of the object's own name, or what the annotation
//!   [`CONFIG_ANNOTATION`] names. Where there is no such network, [`find_on_disk`] may find a
//!   configuration of that name (NPWG §3.4.1).
//! - A configuration of type `podnet`: the network its `podNetwork` or `podNetworkAttachment`
//!   names, else again the one of the object's own name.
//! - Any other configuration: the plugins to call, with the bytes of their configurations.
//!
//! [`network_parameters`] reads a definition as the parameters of a `PodNetwork` that names it.
//!
//! ```
//! use std::collections::BTreeMap;
//! use api::nad::{Definition, Meaning, NetworkRef, read_definition};
//!
//! let annotations = BTreeMap::new();
//! let definition = Definition {
//!     namespace: "shop",
//!     name: "blue",
//!     annotations: &annotations,
//!     config: r#"{"cniVersion": "1.0.0", "type": "macvlan", "master": "eth1"}"#,
//! };
//! let Meaning::Delegate(chain) = read_definition(&definition)?.meaning else {
//!     unreachable!("macvlan is not ours");
//! };
//! assert_eq!(chain.name, "blue");
//! assert_eq!(
//!     chain.config(),
//!     r#"{"cniVersion":"1.0.0","type":"macvlan","master":"eth1","name":"blue"}"#
//! );
//! # Ok::<(), api::nad::DefinitionError>(())
//! ```

mod allowed;
mod chain;
mod disk;
mod own;
mod parameters;
mod problem;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

pub use allowed::AllowedPlugins;
pub use chain::{CONFIG_MAX, Capability, Plugin, PluginChain};
pub use disk::{BrokenFile, OnDisk, find_on_disk};
pub use own::{CONFIG_ANNOTATION, NetworkRef, OwnNetwork, PLUGIN_TYPE};
pub use parameters::{DefinitionParameters, network_parameters};
pub use problem::{DefinitionError, DefinitionProblem};

/// Annotation with the device plugin's resource of a network.
///
/// An extension of multus (NPWG-X1).
pub const RESOURCE_NAME_ANNOTATION: &str = "k8s.v1.cni.cncf.io/resourceName";

/// The parts of a `NetworkAttachmentDefinition` that say something.
#[derive(Clone, Copy, Debug)]
pub struct Definition<'a> {
    /// The object's namespace.
    pub namespace: &'a str,
    /// The object's name.
    pub name: &'a str,
    /// The object's annotations.
    pub annotations: &'a BTreeMap<String, String>,
    /// `spec.config`; empty when there is none.
    pub config: &'a str,
}

/// The meaning of a definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkDefinition {
    /// The network, or who makes it.
    pub meaning: Meaning,
    /// [`RESOURCE_NAME_ANNOTATION`].
    pub resource_name: Option<String>,
}

/// A network of ours, or plugins of others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Nothing but its name says which network it is: a `PodNetwork` of this name, or a
    /// configuration on disk (NPWG-3.2a).
    ByName(String),
    /// A network of ours.
    Own(OwnNetwork),
    /// Plugins to be called in this order.
    Delegate(PluginChain),
}

/// Reads a definition.
///
/// # Errors
/// The configuration or an annotation cannot be understood; which, and what to write instead.
pub fn read_definition(definition: &Definition<'_>) -> Result<NetworkDefinition, DefinitionError> {
    let place = |problem| DefinitionError {
        namespace: definition.namespace.to_owned(),
        name: definition.name.to_owned(),
        problem,
    };
    let mut meaning = meaning(definition).map_err(place)?;
    let resource_name = definition
        .annotations
        .get(RESOURCE_NAME_ANNOTATION)
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty());
    if let Meaning::Delegate(chain) = &mut meaning {
        chain.resource_name.clone_from(&resource_name);
    }
    Ok(NetworkDefinition {
        meaning,
        resource_name,
    })
}

fn meaning(definition: &Definition<'_>) -> Result<Meaning, DefinitionProblem> {
    let annotation = definition
        .annotations
        .get(CONFIG_ANNOTATION)
        .map(|text| text.trim())
        .filter(|text| !text.is_empty());
    let annotated = annotation
        .map(|text| own::from_annotation(definition, text))
        .transpose()?;
    if definition.config.trim().is_empty() {
        return Ok(
            annotated.map_or_else(|| Meaning::ByName(definition.name.to_owned()), Meaning::Own)
        );
    }
    let chain = PluginChain::parse(definition.config, definition.name)?;
    match (chain.only_plugin(PLUGIN_TYPE), annotated) {
        (Some(plugin), None) => Ok(Meaning::Own(own::from_plugin(
            definition,
            &chain.name,
            plugin,
        )?)),
        (None, None) => Ok(Meaning::Delegate(chain)),
        (_, Some(_)) => Err(DefinitionProblem::ConfigAndAnnotation),
    }
}
