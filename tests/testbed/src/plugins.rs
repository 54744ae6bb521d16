//! Plugins of others that write down their calls, and answer as the test wants.
//!
//! They are shell scripts, so that they are programs like any other to the agent.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;

const SCRIPT: &str = r#"#!/bin/sh
log=LOG; me=${0##*/}
echo "$me $CNI_COMMAND $CNI_IFNAME" >> "$log/order"
cat > "$log/$me.$CNI_COMMAND.stdin"
env > "$log/$me.$CNI_COMMAND.env"
run=$log/$me.$CNI_COMMAND.run
if [ -e "$run" ]; then . "$run"; fi
"#;

/// A directory of such plugins and of what they wrote.
#[derive(Debug)]
pub struct Plugins {
    dir: TempDir,
}

impl Plugins {
    /// With plugins of these names.
    ///
    /// # Panics
    /// If they cannot be written.
    pub fn new(names: &[&str]) -> Self {
        let dir = tempfile::tempdir().expect("a directory for plugins");
        let plugins = Self { dir };
        for name in ["bin", "log", "net.d"] {
            fs::create_dir(plugins.dir.path().join(name)).expect("a directory for plugins");
        }
        for name in names {
            plugins.install(name);
        }
        plugins
    }

    /// Adds a plugin.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn install(&self, name: &str) {
        let log = self.dir.path().join("log");
        let text = SCRIPT.replace("LOG", log.to_str().expect("a path in UTF-8"));
        let path = self.dir.path().join("bin").join(name);
        fs::write(&path, text).expect("a plugin can be written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a program");
    }

    /// Removes a plugin.
    ///
    /// # Panics
    /// If it cannot be removed.
    pub fn remove(&self, name: &str) {
        fs::remove_file(self.dir.path().join("bin").join(name)).expect("the plugin was there");
    }

    /// Sets a plugin's answer to a command, as a shell script; `me` is its name.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn on(&self, plugin: &str, command: &str, run: &str) {
        let path = self.log(&format!("{plugin}.{command}.run"));
        fs::write(path, run).expect("a script can be written");
    }

    /// A plugin prints this for a command from now on.
    pub fn answer(&self, plugin: &str, command: &str, printed: &Value) {
        self.on(plugin, command, &format!("echo '{printed}'"));
    }

    /// A plugin fails a command from now on, with this code and message.
    pub fn fail(&self, plugin: &str, command: &str, code: u32, msg: &str) {
        let error = serde_json::json!({"code": code, "msg": msg});
        self.on(plugin, command, &format!("echo '{error}'; exit 1"));
    }

    /// `CNI_PATH` with them, and with the directory of the reference plugins behind.
    pub fn path(&self) -> String {
        format!(
            "{}:/usr/lib/cni:/opt/cni/bin",
            self.dir.path().join("bin").display()
        )
    }

    /// Where the node's CNI configurations are.
    pub fn conf_dir(&self) -> PathBuf {
        self.dir.path().join("net.d")
    }

    /// Calls so far, as `plugin COMMAND ifname`.
    pub fn calls(&self) -> Vec<String> {
        let text = fs::read_to_string(self.log("order")).unwrap_or_default();
        text.lines().map(|line| line.trim().to_owned()).collect()
    }

    /// Forgets the calls so far.
    pub fn forget_calls(&self) {
        // There may have been none.
        let _ = fs::remove_file(self.log("order"));
    }

    /// Returns the last input of a plugin for a command, as text.
    ///
    /// # Panics
    /// If it was not called so.
    pub fn stdin_text(&self, plugin: &str, command: &str) -> String {
        let path = self.log(&format!("{plugin}.{command}.stdin"));
        fs::read_to_string(path).expect("the plugin was called with this command")
    }

    /// Returns the last input of a plugin for a command.
    ///
    /// # Panics
    /// If it was not called so.
    pub fn stdin(&self, plugin: &str, command: &str) -> Value {
        serde_json::from_str(&self.stdin_text(plugin, command)).expect("a configuration in JSON")
    }

    /// A variable of a plugin's environment the last time.
    pub fn env(&self, plugin: &str, command: &str, variable: &str) -> Option<String> {
        let text = fs::read_to_string(self.log(&format!("{plugin}.{command}.env"))).ok()?;
        let mut pairs = text.lines().filter_map(|line| line.split_once('='));
        let found = pairs.find(|(name, _)| *name == variable);
        found.map(|(_, value)| value.to_owned())
    }

    fn log(&self, name: &str) -> PathBuf {
        self.dir.path().join("log").join(name)
    }

    /// The directory of all of it.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }
}
