//! Where things are: the repository, its target directory, what the verbs put there.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

/// The repository's root directory.
pub(crate) fn root() -> PathBuf {
    // Cargo sets the variable for `cargo run`; the compile-time value serves a binary run by hand.
    let manifest = env::var_os("CARGO_MANIFEST_DIR")
        .unwrap_or_else(|| OsString::from(env!("CARGO_MANIFEST_DIR")));
    let manifest = PathBuf::from(manifest);
    manifest
        .parent()
        .map_or_else(|| manifest.clone(), Path::to_path_buf)
}

/// Cargo's target directory; `CARGO_TARGET_DIR` is honoured.
pub(crate) fn target() -> PathBuf {
    match env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}

/// Where xtask installs build tools: never outside the target directory.
pub(crate) fn tools() -> PathBuf {
    target().join("tools")
}

/// The eBPF object that `crates/datapath` embeds when `PODNET_EBPF_OBJECT` names it.
pub(crate) fn ebpf_object() -> PathBuf {
    target().join("podnet-ebpf.o")
}

/// A `cargo` command in the repository's root.
pub(crate) fn cargo(arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root());
    command
}

/// The packages of the workspace as `cargo metadata` describes them (no dependency resolution,
/// so no network).
pub(crate) fn packages() -> Result<Vec<Value>> {
    let text = crate::step::capture(&mut cargo([
        "metadata",
        "--no-deps",
        "--format-version",
        "1",
    ]))?;
    let mut metadata: Value = serde_json::from_str(&text).context("cargo metadata: not JSON")?;
    match metadata["packages"].take() {
        Value::Array(packages) => Ok(packages),
        _ => anyhow::bail!("cargo metadata: no `packages` array"),
    }
}
