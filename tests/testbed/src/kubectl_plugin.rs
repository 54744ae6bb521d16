//! The plugin `kubectl podnet`, as tests run it.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use crate::skip;

/// Variable with the plugin's file; `cargo xtask test` builds it.
const PLUGIN: &str = "PODNET_KUBECTL_PLUGIN";

/// Returns the plugin's file; `None`, and said, when nobody has built it.
pub fn find(test: &str) -> Option<PathBuf> {
    let plugin = env::var_os(PLUGIN).map(PathBuf::from);
    if plugin.is_none() {
        skip::skip(
            test,
            "needs kubectl-podnet: PODNET_KUBECTL_PLUGIN names none",
        );
    }
    plugin
}

/// Output of a run of it.
#[derive(Debug)]
pub struct Answer {
    /// Exit code.
    pub code: i32,
    /// Standard output.
    pub text: String,
    /// Standard error.
    pub complaint: String,
}

/// Runs a prepared command.
///
/// # Panics
/// If it cannot be started, or is killed.
pub fn run(command: &mut Command) -> Answer {
    let output = command.output().expect("the plugin starts");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Answer {
        code: output.status.code().expect("it ends by itself"),
        text: text(output.stdout),
        complaint: text(output.stderr),
    }
}
