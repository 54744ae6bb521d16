//! A CNI configuration as something to hand on: one plugin, or a list of them.

use std::{collections::BTreeMap, fmt};

use serde::de::DeserializeOwned;

use super::{disk::BrokenFile, problem::DefinitionProblem};
use crate::{
    json::{RawJson, RawObject, quote},
    selection::AttachmentOptions,
};

/// The place of a configuration in errors.
const PLACE: &str = "spec.config";
/// Most plugins of a definition.
///
/// Each gets the network's name, the pod's arguments and more.
const PLUGINS_MAX: usize = 32;
/// Longest configuration of a definition, bytes.
pub const CONFIG_MAX: usize = 64 << 10;

/// The plugins of one network, in the order of `ADD`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginChain {
    /// `name`: the network's name in CNI.
    ///
    /// It is the object's own name where the configuration has none (NPWG §3.4.2).
    pub name: String,
    /// True where the configuration's name differs from the object's.
    ///
    /// Two objects with one network name share the addresses of plugins that keep them by that name
    /// (NPWG-3.4.3).
    pub renamed: bool,
    /// `cniVersion` as written; absent means 0.1.0 (CNI-CONF-01).
    pub cni_version: Option<String>,
    /// `cniVersions` as written.
    pub cni_versions: Vec<String>,
    /// `disableCheck`.
    pub disable_check: bool,
    /// `disableGC`.
    pub disable_gc: bool,
    /// `loadOnlyInlinedPlugins`: no plugins from a directory of the network's name.
    pub only_inlined_plugins: bool,
    /// True for a configuration list, false for one plugin.
    pub is_list: bool,
    /// At least one; of a list on disk perhaps none, see [`Self::with_directory`].
    pub plugins: Vec<Plugin>,
    /// The device plugin's resource of the network, where its definition names one.
    pub resource_name: Option<String>,
    config: RawObject,
}

/// Treatment of a configuration that names no plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WithoutPlugins {
    /// It is an error.
    Refused,
    /// It is a list whose plugins are elsewhere.
    Taken,
}

/// One plugin of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plugin {
    /// `type`: the name of its binary.
    pub plugin_type: String,
    /// `capabilities`: what it takes at run time.
    pub capabilities: BTreeMap<String, bool>,
    /// All its keys, as written. Of one plugin alone, with the network's name.
    pub config: RawObject,
}

/// A wish of a pod's list that plugins can declare (CNI CONVENTIONS.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Capability {
    /// `ips` (NPWG §4.1.2.1.3.2).
    Ips,
    /// `mac` (NPWG §4.1.2.1.4.2).
    Mac,
    /// `portMappings` (NPWG §4.1.2.1.7.2).
    PortMappings,
    /// `bandwidth` (NPWG §4.1.2.1.8.2).
    Bandwidth,
    /// `infinibandGUID` (NPWG §4.1.2.1.10.2).
    InfinibandGuid,
}

impl Capability {
    /// The key in `capabilities` and in `runtimeConfig`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ips => "ips",
            Self::Mac => "mac",
            Self::PortMappings => "portMappings",
            Self::Bandwidth => "bandwidth",
            Self::InfinibandGuid => "infinibandGUID",
        }
    }

    /// Returns the capabilities that `options` need.
    fn needed_by(options: &AttachmentOptions) -> impl Iterator<Item = Self> {
        [
            (Self::Ips, !options.ips.is_empty()),
            (Self::Mac, options.mac.is_some()),
            (Self::PortMappings, !options.port_mappings.is_empty()),
            (Self::Bandwidth, options.bandwidth.is_some()),
            (Self::InfinibandGuid, options.infiniband_guid.is_some()),
        ]
        .into_iter()
        .filter_map(|(capability, needed)| needed.then_some(capability))
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl PluginChain {
    /// Reads one plugin's configuration or a list; the default of its name is `name`.
    ///
    /// # Errors
    /// Not a JSON object, no plugin, more bytes or plugins than a definition may have, or a key that must
    /// be understood and is not.
    pub fn parse(text: &str, name: &str) -> Result<Self, DefinitionProblem> {
        if text.len() > CONFIG_MAX {
            return Err(DefinitionProblem::TooLong { most: CONFIG_MAX });
        }
        let config: RawObject = serde_json::from_str(text).map_err(|error| not_json(&error))?;
        let chain = Self::from_config(config, name, WithoutPlugins::Refused)?;
        let found = chain.plugins.len();
        if found > PLUGINS_MAX {
            return Err(DefinitionProblem::TooManyPlugins {
                found,
                most: PLUGINS_MAX,
            });
        }
        Ok(chain)
    }

    /// Reads a configuration on disk.
    ///
    /// A list may leave all its plugins to the directory of its network's name; it has none then until
    /// [`Self::with_directory`].
    ///
    /// # Errors
    /// As [`Self::parse`].
    pub fn parse_on_disk(text: &str, name: &str) -> Result<Self, DefinitionProblem> {
        let config: RawObject = serde_json::from_str(text).map_err(|error| not_json(&error))?;
        Self::from_config(config, name, WithoutPlugins::Taken)
    }

    /// Reports whether more plugins are in the directory of the network's name.
    ///
    /// They are in files that end in `.conf` (CNI-CONF-05).
    #[must_use]
    pub const fn has_directory(&self) -> bool {
        self.is_list && !self.only_inlined_plugins
    }

    /// Adds the plugins of the list's directory: pairs of a file's name and content.
    ///
    /// They come by name, after those in the list itself.
    ///
    /// # Errors
    /// A file that is no plugin, or no plugin at all.
    pub fn with_directory<'a>(
        mut self,
        files: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, BrokenFile> {
        let mut files: Vec<(&str, &str)> = files.into_iter().collect();
        files.sort_unstable();
        let broken = |file: String| move |problem| BrokenFile { file, problem };
        for (name, text) in files {
            let file = format!("{}/{name}", self.name);
            let config: RawObject = serde_json::from_str(text)
                .map_err(|error| DefinitionProblem::NotJson {
                    place: "the file",
                    reason: error.to_string(),
                })
                .map_err(broken(file.clone()))?;
            let plugin = Plugin::read(config, "").map_err(broken(file))?;
            self.plugins.push(plugin);
        }
        if self.plugins.is_empty() {
            return Err(broken(self.name)(DefinitionProblem::NoPlugins));
        }
        let plugins: Vec<&RawObject> = self.plugins.iter().map(|one| &one.config).collect();
        self.config
            .set("plugins", &plugins)
            .map_err(|error| not_json(&error))
            .map_err(broken(self.name.clone()))?;
        Ok(self)
    }

    pub(super) fn from_config(
        mut config: RawObject,
        object_name: &str,
        without_plugins: WithoutPlugins,
    ) -> Result<Self, DefinitionProblem> {
        let name = network_name(&config)?;
        let renamed = name.as_deref().is_some_and(|name| name != object_name);
        let name = match name {
            Some(name) => name,
            None => {
                config
                    .set("name", &object_name)
                    .map_err(|error| not_json(&error))?;
                object_name.to_owned()
            }
        };
        if !is_network_name(&name) {
            return Err(DefinitionProblem::BadNetworkName { found: name });
        }
        let only_inlined_plugins = flag(&config, "loadOnlyInlinedPlugins")?;
        let plugins: Option<Vec<RawJson>> = value(&config, "", "plugins", "a list of plugins")?;
        let is_one = present(&config, "type").is_some();
        let is_elsewhere = plugins.is_none() && !is_one && without_plugins == WithoutPlugins::Taken;
        Ok(Self {
            name,
            renamed,
            cni_version: value(&config, "", "cniVersion", "a version, as \"1.1.0\"")?,
            cni_versions: value(&config, "", "cniVersions", "a list of versions")?
                .unwrap_or_default(),
            disable_check: flag(&config, "disableCheck")?,
            disable_gc: flag(&config, "disableGC")?,
            only_inlined_plugins,
            is_list: plugins.is_some() || is_elsewhere,
            plugins: match plugins {
                Some(plugins) => listed_plugins(&plugins)?,
                None if only_inlined_plugins => return Err(DefinitionProblem::NoPlugins),
                None if is_elsewhere => Vec::new(),
                None if !is_one => return Err(DefinitionProblem::NoPlugin),
                None => vec![Plugin::read(config.clone(), "")?],
            },
            resource_name: None,
            config,
        })
    }

    /// The configuration to hand on: as written, with the network's name.
    #[must_use]
    pub fn config(&self) -> String {
        // Keys are strings and values are JSON already, so there is nothing to refuse.
        serde_json::to_string(&self.config).unwrap_or_default()
    }

    /// Returns the capabilities that `options` need and no plugin declares.
    ///
    /// An attachment that needs one of them must fail (NPWG §4.1.2.1.3.2 and its siblings).
    #[must_use]
    pub fn missing_capabilities(&self, options: &AttachmentOptions) -> Vec<Capability> {
        Capability::needed_by(options)
            .filter(|capability| !self.has_capability(capability.as_str()))
            .collect()
    }

    /// Adds `cni-args` of a pod's list to `args.cni` of every plugin, key by key.
    ///
    /// A value of the pod replaces the definition's (NPWG §4.1.2.1.6.2).
    ///
    /// # Errors
    /// A plugin's own `args`, or `cni` in it, is not an object.
    pub fn with_cni_args(mut self, cni_args: &RawObject) -> Result<Self, DefinitionProblem> {
        for (index, plugin) in self.plugins.iter_mut().enumerate() {
            let prefix = if self.is_list {
                format!("plugins[{index}].")
            } else {
                String::new()
            };
            let args: Option<RawObject> = value(&plugin.config, &prefix, "args", "an object")?;
            let mut args = args.unwrap_or_default();
            let prefix = format!("{prefix}args.");
            let cni: Option<RawObject> = value(&args, &prefix, "cni", "an object")?;
            let mut cni = cni.unwrap_or_default();
            for (key, value) in cni_args.iter() {
                cni.set(key, value).map_err(|error| not_json(&error))?;
            }
            args.set("cni", &cni).map_err(|error| not_json(&error))?;
            plugin
                .config
                .set("args", &args)
                .map_err(|error| not_json(&error))?;
        }
        if self.is_list {
            let plugins: Vec<&RawObject> = self.plugins.iter().map(|one| &one.config).collect();
            self.config
                .set("plugins", &plugins)
                .map_err(|error| not_json(&error))?;
        } else if let Some(plugin) = self.plugins.first() {
            self.config = plugin.config.clone();
        }
        Ok(self)
    }

    /// Whether a plugin declares `capability`.
    #[must_use]
    pub fn has_capability(&self, capability: &str) -> bool {
        self.plugins
            .iter()
            .any(|plugin| plugin.capabilities.get(capability) == Some(&true))
    }

    /// The plugin of this type, when it is the only one.
    pub(super) fn only_plugin(&self, plugin_type: &str) -> Option<&Plugin> {
        match self.plugins.as_slice() {
            [plugin] if plugin.plugin_type == plugin_type => Some(plugin),
            _ => None,
        }
    }
}

fn not_json(error: &serde_json::Error) -> DefinitionProblem {
    DefinitionProblem::NotJson {
        place: PLACE,
        reason: error.to_string(),
    }
}

fn listed_plugins(plugins: &[RawJson]) -> Result<Vec<Plugin>, DefinitionProblem> {
    if plugins.is_empty() {
        return Err(DefinitionProblem::NoPlugins);
    }
    plugins
        .iter()
        .enumerate()
        .map(|(index, plugin)| {
            let path = format!("plugins[{index}]");
            let config = plugin
                .read()
                .map_err(|_| wrong_type(path.clone(), plugin, "an object with a type"))?;
            Plugin::read(config, &format!("{path}."))
        })
        .collect()
}

impl Plugin {
    fn read(config: RawObject, prefix: &str) -> Result<Self, DefinitionProblem> {
        let plugin_type: Option<String> = value(&config, prefix, "type", "a string")?;
        let path = format!("{prefix}type");
        let plugin_type = match plugin_type {
            Some(found) if found.contains('/') => {
                return Err(DefinitionProblem::TypeIsPath { path, found });
            }
            Some(plugin_type) if !plugin_type.is_empty() => plugin_type,
            _ => return Err(DefinitionProblem::TypeRequired { path }),
        };
        let capabilities = value(
            &config,
            prefix,
            "capabilities",
            "an object with true and false",
        )?;
        Ok(Self {
            plugin_type,
            capabilities: capabilities.unwrap_or_default(),
            config,
        })
    }
}

/// `name` where it says something: an empty one counts as missing (NPWG-3.4.2).
pub(super) fn network_name(config: &RawObject) -> Result<Option<String>, DefinitionProblem> {
    let name: Option<String> = value(config, "", "name", "a string")?;
    Ok(name.filter(|name| !name.is_empty()))
}

/// `^[a-zA-Z0-9][a-zA-Z0-9_.-]*$` (CNI-CONF-01).
fn is_network_name(name: &str) -> bool {
    name.bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b))
        && name.starts_with(|first: char| first.is_ascii_alphanumeric())
}

/// The value of `key`; `null` is an absent one.
pub(super) fn present<'a>(config: &'a RawObject, key: &str) -> Option<&'a RawJson> {
    config.get(key).filter(|value| !value.is_null())
}

pub(super) fn value<T: DeserializeOwned>(
    config: &RawObject,
    prefix: &str,
    key: &str,
    expected: &'static str,
) -> Result<Option<T>, DefinitionProblem> {
    let Some(raw) = present(config, key) else {
        return Ok(None);
    };
    raw.read()
        .map(Some)
        .map_err(|_| wrong_type(format!("{prefix}{key}"), raw, expected))
}

/// Reads a boolean, or one of the strings "true" and "false".
///
/// Definitions in use have such strings (CNI-CONF-02).
pub(super) fn flag(config: &RawObject, key: &str) -> Result<bool, DefinitionProblem> {
    let Some(raw) = present(config, key) else {
        return Ok(false);
    };
    let word = raw
        .read::<String>()
        .unwrap_or_else(|_| raw.get().to_owned());
    if word.eq_ignore_ascii_case("true") {
        Ok(true)
    } else if word.eq_ignore_ascii_case("false") {
        Ok(false)
    } else {
        Err(wrong_type(key.to_owned(), raw, "true or false"))
    }
}

pub(super) fn wrong_type(
    path: String,
    found: &RawJson,
    expected: &'static str,
) -> DefinitionProblem {
    DefinitionProblem::WrongType {
        path,
        found: quote(found.get()),
        expected,
    }
}
