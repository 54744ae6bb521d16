//! Definitions of networks that are ours.

use super::{
    Definition,
    chain::{self, Plugin, flag},
    problem::DefinitionProblem,
};
use crate::{
    json::RawObject,
    meta::{check_label, check_subdomain},
    parameters::AttachmentParametersSpec,
    validate::{AttachmentRequest, attachment_request},
};

/// `type` of a configuration that is ours.
pub const PLUGIN_TYPE: &str = "podnet";

/// Annotation of a `NetworkAttachmentDefinition` that names a network of ours.
///
/// `spec.config` is for CNI only (NPWG §3.2, last paragraph). Its value is a JSON object: `podNetwork` or
/// `podNetworkAttachment` names the network (default: the `PodNetwork` of the object's name),
/// `isDefaultGateway` is as in a configuration of type `podnet`, and every field of an
/// `AttachmentParameters`' `spec` can be there too.
pub const CONFIG_ANNOTATION: &str = "podnet.dev/config";

const CONFIG: &str = "spec.config";

/// A network of ours, and what the definition asks of every attachment to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnNetwork {
    /// The network.
    pub network: NetworkRef,
    /// `name` of the configuration; the annotation has none.
    ///
    /// An `IPAMClaim` may name the network so (NPWG §8.2).
    pub config_name: Option<String>,
    /// The pod's default routes go through it.
    pub is_default_gateway: bool,
    /// Rates, MAC and addresses; those of a pod's own list come first.
    pub request: AttachmentRequest,
}

/// Which network of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetworkRef {
    /// The `PodNetwork` of this name.
    PodNetwork(String),
    /// A `PodNetworkAttachment`.
    Attachment {
        /// Its namespace; the definition's own where it says none.
        namespace: String,
        /// Its name.
        name: String,
    },
}

/// Reads a plugin of type [`PLUGIN_TYPE`], without the plugin's own keys.
pub(super) fn from_plugin(
    definition: &Definition<'_>,
    config_name: &str,
    plugin: &Plugin,
) -> Result<OwnNetwork, DefinitionProblem> {
    Ok(OwnNetwork {
        network: network(definition, &plugin.config, CONFIG)?,
        config_name: Some(config_name.to_owned()),
        is_default_gateway: flag(&plugin.config, "isDefaultGateway")?,
        request: AttachmentRequest::default(),
    })
}

/// Reads the value of [`CONFIG_ANNOTATION`].
pub(super) fn from_annotation(
    definition: &Definition<'_>,
    text: &str,
) -> Result<OwnNetwork, DefinitionProblem> {
    let not_json = |reason: String| DefinitionProblem::NotJson {
        place: "annotation podnet.dev/config",
        reason,
    };
    let mut config: RawObject =
        serde_json::from_str(text).map_err(|error| not_json(error.to_string()))?;
    let network = network(definition, &config, "annotation podnet.dev/config")?;
    let is_default_gateway = flag(&config, "isDefaultGateway")?;
    for key in ["podNetwork", "podNetworkAttachment", "isDefaultGateway"] {
        config.remove(key);
    }
    let text = serde_json::to_string(&config).map_err(|error| not_json(error.to_string()))?;
    let mut reader = serde_json::Deserializer::from_str(&text);
    // What is left has other columns than the annotation, so the path says where it is.
    let spec: AttachmentParametersSpec =
        serde_path_to_error::deserialize(&mut reader).map_err(|error| {
            let path = error.path().to_string();
            let reason = error.into_inner().to_string();
            let reason = reason
                .rsplit_once(" at line ")
                .map_or(reason.as_str(), |(reason, _)| reason);
            not_json(format!("{path}: {reason}"))
        })?;
    let request = attachment_request(&spec)
        .and_then(|request| request.bandwidth.check_bursts().map(|()| request))
        .map_err(|problem| DefinitionProblem::BadParameters {
            annotation: CONFIG_ANNOTATION,
            problem,
        })?;
    Ok(OwnNetwork {
        network,
        config_name: None,
        is_default_gateway,
        request,
    })
}

fn network(
    definition: &Definition<'_>,
    config: &RawObject,
    place: &'static str,
) -> Result<NetworkRef, DefinitionProblem> {
    let name_at = |key: &str| {
        chain::value::<String>(config, "", key, "the name of an object")
            .map(|name| name.filter(|name| !name.is_empty()))
    };
    let network = name_at("podNetwork")?;
    let attachment = name_at("podNetworkAttachment")?;
    match (network, attachment) {
        (Some(_), Some(_)) => Err(DefinitionProblem::TwoNetworks { place }),
        (Some(name), None) => {
            check(place, "podNetwork", check_subdomain(&name))?;
            Ok(NetworkRef::PodNetwork(name))
        }
        (None, Some(reference)) => {
            let (namespace, name) = reference
                .split_once('/')
                .unwrap_or((definition.namespace, &reference));
            check(place, "podNetworkAttachment", check_label(namespace))?;
            check(place, "podNetworkAttachment", check_subdomain(name))?;
            Ok(NetworkRef::Attachment {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            })
        }
        (None, None) => Ok(NetworkRef::PodNetwork(definition.name.to_owned())),
    }
}

fn check(
    place: &str,
    key: &str,
    name: Result<(), crate::meta::NameError>,
) -> Result<(), DefinitionProblem> {
    name.map_err(|problem| DefinitionProblem::BadName {
        path: format!("{place} {key}"),
        problem,
    })
}
