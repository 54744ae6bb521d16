//! Complete the configurations that plugins read on stdin for one attachment. Pure.
//!
//! Values that are not touched keep their bytes (CNI-CONF-07). Keys of the reserved objects are
//! matched without regard to case, as Go does it (CNI-CONF-08).

use std::collections::BTreeMap;

use api::nad::{Plugin, PluginChain};
use api::selection::AttachmentOptions;
use api::{RawJson, RawObject};
use cni_spec::CniVersion;
use serde::Serialize;
use serde_json::json;

use super::error::DelegateError;
use crate::{Delegation, PluginConf};

/// How keys begin that are a runtime's to set (CNI SPEC section 1).
const RESERVED: &str = "cni.dev/";

/// Values that an attachment offers to and demands of its plugins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wishes {
    /// Values the pod demands: place in its list, capability and value.
    ///
    /// Without a plugin that takes each of them the attachment must fail.
    pub demanded: Vec<(&'static str, &'static str, RawJson)>,
    /// Known of the pod: for the plugins that declare it.
    pub offered: BTreeMap<String, RawJson>,
    /// `cni-args` of the element, for `args.cni`.
    pub cni_args: Option<RawObject>,
}

impl Wishes {
    /// Returns the wishes of an element of a pod's list (NPWG §4.1.2.1).
    pub fn of(options: &AttachmentOptions) -> Self {
        let mut wishes = Self {
            cni_args: options.cni_args.clone(),
            ..Self::default()
        };
        let mut demand = |place, capability, value: Option<serde_json::Value>| {
            let raw = value.and_then(|value| RawJson::parse(&value.to_string()).ok());
            wishes
                .demanded
                .extend(raw.map(|raw| (place, capability, raw)));
        };
        let ips: Vec<String> = options.ips.iter().map(ToString::to_string).collect();
        demand("ips", "ips", (!ips.is_empty()).then(|| json!(ips)));
        demand("mac", "mac", options.mac.map(|mac| json!(mac.to_string())));
        let bandwidth = options.bandwidth.map(|bandwidth| {
            let (ingress, egress) = (bandwidth.ingress, bandwidth.egress);
            let pairs = [
                ("ingressRate", ingress.rate),
                ("ingressBurst", ingress.burst),
                ("egressRate", egress.rate),
                ("egressBurst", egress.burst),
            ];
            let set = pairs.into_iter().filter_map(|(key, value)| {
                let value = value?;
                Some((key.to_owned(), json!(value)))
            });
            serde_json::Value::Object(set.collect())
        });
        demand("bandwidth", "bandwidth", bandwidth);
        let mappings = &options.port_mappings;
        let mappings = (!mappings.is_empty()).then(|| json!(mappings));
        demand("portMappings", "portMappings", mappings);
        let guid = options.infiniband_guid.map(|guid| json!(guid.to_string()));
        demand("infiniband-guid", "infinibandGUID", guid);
        wishes
    }
}

/// Completes the configurations of a chain for one attachment.
///
/// That sets `cniVersion`, `name`, `runtimeConfig` and `args`. Only `prevResult` is left to be added.
///
/// # Errors
/// A version that is not spoken here, or a demand that no plugin takes.
pub fn prepare(chain: &PluginChain, wishes: &Wishes) -> Result<Delegation, DelegateError> {
    let version = version(chain)?;
    for (key, capability, _) in &wishes.demanded {
        let taken = chain.plugins.iter().any(|plugin| takes(plugin, capability));
        if !taken {
            return Err(DelegateError::Capability {
                key,
                network: chain.name.clone(),
                capability,
            });
        }
    }
    let plugins = chain
        .plugins
        .iter()
        .map(|plugin| {
            let conf = complete(plugin, &chain.name, version, wishes);
            let config = conf.and_then(|conf| RawJson::parse(&serde_json::to_string(&conf)?));
            let config = config.map_err(|source| DelegateError::Conf {
                plugin: plugin.plugin_type.clone(),
                source,
            })?;
            Ok(PluginConf {
                plugin: plugin.plugin_type.clone(),
                config,
                settled: false,
            })
        })
        .collect::<Result<_, DelegateError>>()?;
    Ok(Delegation {
        network: chain.name.clone(),
        version,
        disable_check: chain.disable_check,
        disable_gc: chain.disable_gc,
        plugins,
        args: String::new(),
        path: String::new(),
        device_info_file: None,
        device_plugin_file: None,
        device_info: None,
        result: None,
    })
}

/// Returns the newest version that is spoken here (CNI-CONF-03).
///
/// Newer ones in `cniVersions` are passed over.
fn version(chain: &PluginChain) -> Result<CniVersion, DelegateError> {
    let single = chain.cni_version.as_deref();
    let listed = chain.cni_versions.iter().map(String::as_str);
    let newest = listed
        .map(|text| CniVersion::parse(Some(text)))
        .chain(
            (single.is_some() || chain.cni_versions.is_empty()).then(|| CniVersion::parse(single)),
        )
        .filter_map(Result::ok)
        .max();
    newest.ok_or_else(|| DelegateError::Version {
        network: chain.name.clone(),
        found: single.unwrap_or_default().to_owned(),
    })
}

fn takes(plugin: &Plugin, capability: &str) -> bool {
    plugin.capabilities.get(capability) == Some(&true)
}

fn complete(
    plugin: &Plugin,
    network: &str,
    version: CniVersion,
    wishes: &Wishes,
) -> Result<RawObject, serde_json::Error> {
    let mut conf = plugin.config.clone();
    // For the runtime only (CNI-CAP-02), and a leftover that would be taken for a plugin's result.
    for key in ["capabilities", "prevResult"] {
        take(&mut conf, key);
    }
    // Only a runtime says these (CNI-CONF-06).
    let reserved: Vec<String> = conf
        .iter()
        .map(|(key, _)| key.to_owned())
        .filter(|key| key.to_ascii_lowercase().starts_with(RESERVED))
        .collect();
    for key in reserved {
        conf.remove(&key);
    }
    conf.set("cniVersion", &version)?;
    conf.set("name", &network)?;
    let mut runtime = object(take(&mut conf, "runtimeConfig"));
    let demanded = wishes.demanded.iter().map(|(_, key, value)| (*key, value));
    let offered = wishes
        .offered
        .iter()
        .map(|(key, value)| (key.as_str(), value));
    // What the element says comes last, and so counts.
    for (key, value) in offered.chain(demanded) {
        if takes(plugin, key) {
            replace(&mut runtime, key, value)?;
        }
    }
    if !runtime.is_empty() {
        conf.set("runtimeConfig", &runtime)?;
    }
    if let Some(wanted) = &wishes.cni_args {
        let mut args = object(take(&mut conf, "args"));
        let mut cni = object(take(&mut args, "cni"));
        for (key, value) in wanted.iter() {
            cni.set(key, value)?;
        }
        args.set("cni", &cni)?;
        conf.set("args", &args)?;
    }
    Ok(conf)
}

/// Takes a key out, however it is spelled; its value, the exact spelling first.
fn take(object: &mut RawObject, key: &str) -> Option<RawJson> {
    let exact = object.remove(key);
    let spelled: Vec<String> = object
        .iter()
        .filter(|(name, _)| name.eq_ignore_ascii_case(key))
        .map(|(name, _)| name.to_owned())
        .collect();
    spelled
        .iter()
        .fold(exact, |found, name| {
            let other = object.remove(name);
            found.or(other)
        })
        .filter(|value| value.get() != "null")
}

/// An object to add to; of another value nothing can be kept.
fn object(value: Option<RawJson>) -> RawObject {
    value
        .and_then(|value| value.read().ok())
        .unwrap_or_default()
}

fn replace(
    object: &mut RawObject,
    key: &str,
    value: &impl Serialize,
) -> Result<(), serde_json::Error> {
    take(object, key);
    object.set(key, value)
}

#[cfg(test)]
mod tests;
