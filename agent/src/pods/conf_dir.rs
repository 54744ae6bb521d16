//! Configurations of other plugins on the node's disk.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use api::nad::{BrokenFile, PLUGIN_TYPE, PluginChain, find_on_disk};

use crate::error::AgentError;
use crate::node::Node;

/// Plugins of Multus, which look for the default network by themselves.
const MULTUS: [&str; 2] = ["multus", "multus-shim"];
/// Extensions of files that runtimes read in such a directory (RT-CD-01).
const ENDINGS: [&str; 3] = ["conf", "conflist", "json"];

impl Node {
    /// The directory as this process sees it.
    fn conf_dir(&self) -> PathBuf {
        self.delegates.seen(&self.rules.conf_dir)
    }

    /// First configuration that is not ours, as a runtime without podnet takes it.
    ///
    /// The order is that of the files' names. A file that cannot be understood is an error: with the
    /// next one, pods would come up on another network.
    pub(crate) fn default_chain(&self) -> Result<PluginChain, AgentError> {
        for (file, text) in self.conf_files(&self.conf_dir())? {
            let runtimes_read = Path::new(&file)
                .extension()
                .is_some_and(|ending| ENDINGS.iter().any(|known| ending == *known));
            if !runtimes_read {
                continue;
            }
            let chain = PluginChain::parse_on_disk(&text, "").map_err(|problem| BrokenFile {
                file: file.clone(),
                problem,
            })?;
            // One of podnet's own may have anything beside it.
            if has_our_plugin(&chain) {
                continue;
            }
            refuse_multus(&file, &chain)?;
            let chain = self.with_directory(chain)?;
            if !has_our_plugin(&chain) {
                refuse_multus(&file, &chain)?;
                tracing::debug!(file, network = chain.name, "the default network is chosen");
                return Ok(chain);
            }
        }
        Err(AgentError::NoDefaultNetwork {
            path: self.rules.conf_dir.clone(),
        })
    }

    /// The configuration whose network has this name (NPWG §3.4.1), if there is one.
    pub(super) fn named_chain(&self, network: &str) -> Result<Option<PluginChain>, AgentError> {
        let files = self.conf_files(&self.conf_dir())?;
        let files = files
            .iter()
            .map(|(file, text)| (file.as_str(), text.as_str()));
        let found = find_on_disk(network, files)?;
        for broken in &found.broken {
            tracing::debug!(%broken, "a CNI configuration is passed over");
        }
        let found = found.found.map(|(_, chain)| chain);
        found.map(|chain| self.with_directory(chain)).transpose()
    }

    /// Adds the plugins of the directory named as the network (CNI-CONF-05).
    fn with_directory(&self, chain: PluginChain) -> Result<PluginChain, AgentError> {
        if !chain.has_directory() {
            return Ok(chain);
        }
        let files = self.conf_files(&self.conf_dir().join(&chain.name))?;
        let files = files.iter().filter(|(file, _)| file.ends_with(".conf"));
        let files = files.map(|(file, text)| (file.as_str(), text.as_str()));
        Ok(chain.with_directory(files)?)
    }

    /// Names and contents of all files, by name.
    fn conf_files(&self, directory: &Path) -> Result<Vec<(String, String)>, AgentError> {
        let fail = |source| AgentError::ConfDir {
            path: self.rules.conf_dir.clone(),
            source,
        };
        let entries = match fs::read_dir(directory) {
            Ok(entries) => entries,
            // Nothing is installed yet.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(fail(error)),
        };
        let mut files = Vec::new();
        for entry in entries {
            let entry = entry.map_err(fail)?;
            let path = entry.path();
            if !path.is_file() {
                continue;
            }
            let name = entry.file_name().to_string_lossy().into_owned();
            match fs::read_to_string(&path) {
                Ok(text) => files.push((name, text)),
                // Gone since it was listed, or no text: no configuration.
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::NotFound | io::ErrorKind::InvalidData
                    ) => {}
                Err(error) => return Err(fail(error)),
            }
        }
        files.sort();
        Ok(files)
    }
}

/// True when the chain would lead back to this agent (PAIN-CONF-1).
fn has_our_plugin(chain: &PluginChain) -> bool {
    chain
        .plugins
        .iter()
        .any(|plugin| plugin.plugin_type == PLUGIN_TYPE)
}

/// Refuses a chain that leads to Multus, whose own default network may be podnet.
///
/// Each would call the other for the same pod, until the runtime's patience ends. Plugins of a plugin count:
/// some hand a configuration on.
fn refuse_multus(file: &str, chain: &PluginChain) -> Result<(), AgentError> {
    let types = chain.plugin_types().unwrap_or_default();
    let is_named = |plugin: &&&str| types.iter().any(|(_, found)| found == **plugin);
    let found = MULTUS.iter().find(is_named);
    found.map_or(Ok(()), |plugin| {
        Err(AgentError::MultusInDefaultChain {
            file: file.to_owned(),
            plugin,
        })
    })
}
