//! Keep what other plugins are told and what they answered, as it is recorded.

use std::path::PathBuf;

use api::RawJson;
use cni_spec::{CniResult, CniVersion, SpecError};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Inputs of the other plugins of an attachment, and the results they gave.
///
/// It has enough to call them again in every way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Delegation {
    /// `name` of their configuration.
    pub network: String,
    /// `cniVersion` they are spoken to in.
    pub version: CniVersion,
    /// `disableCheck`.
    pub disable_check: bool,
    /// `disableGC`.
    pub disable_gc: bool,
    /// In the order of `ADD`.
    pub plugins: Vec<PluginConf>,
    /// `CNI_ARGS`.
    pub args: String,
    /// `CNI_PATH`.
    pub path: String,
    /// The file in which they may describe a device, for plugins that take one.
    #[serde(default)]
    pub device_info_file: Option<PathBuf>,
    /// File in which a device plugin described the device; the copy starts with it.
    #[serde(default)]
    pub device_plugin_file: Option<PathBuf>,
    /// Description of the device that the plugins left in the file.
    #[serde(default)]
    pub device_info: Option<RawJson>,
    /// The last result of `ADD`, in their version; absent until they have succeeded.
    pub result: Option<RawJson>,
}

impl Delegation {
    /// Bytes that its plugins read.
    pub fn length(&self) -> usize {
        let plugins = self.plugins.iter();
        plugins.map(|plugin| plugin.config.get().len()).sum()
    }

    /// Notes that nothing is left of plugins from this one on, in the order of `ADD`.
    pub fn settle_from(&mut self, index: usize) {
        for plugin in self.plugins.iter_mut().skip(index) {
            plugin.settled = true;
        }
    }

    /// Lists the plugins that are still to succeed in `DEL`, in the order of `ADD`.
    pub fn unsettled(&self) -> impl Iterator<Item = &str> {
        let plugins = self.plugins.iter().filter(|plugin| !plugin.settled);
        plugins.map(|plugin| plugin.plugin.as_str())
    }

    /// True when nothing is left of any of the plugins.
    pub fn is_settled(&self) -> bool {
        self.unsettled().next().is_none()
    }

    /// Returns the result of `ADD`, empty for an attachment without one.
    ///
    /// Such an attachment has neither interfaces nor addresses.
    ///
    /// # Errors
    /// When it is not a result; the stored one was checked.
    pub fn result(&self) -> Result<CniResult, SpecError> {
        let Some(result) = &self.result else {
            return Ok(CniResult::default());
        };
        let value: Value = result
            .read()
            .map_err(|source| SpecError::ConfigSyntax { source })?;
        CniResult::parse(&value, self.version)
    }
}

/// One plugin with its configuration, complete but for `prevResult`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginConf {
    /// `type`: the name of its binary.
    pub plugin: String,
    /// Configuration that the plugin reads on stdin, values as they were written.
    pub config: RawJson,
    /// True when nothing of the plugin is left: it never ran, or `DEL` has succeeded.
    ///
    /// In the record before any plugin is called it is false, so that a crash leaves no plugin without
    /// its `DEL`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub settled: bool,
}
