//! Places: the repository, its target directory, and the verbs' files there.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

/// The repository's root directory.
pub fn root() -> PathBuf {
    // Cargo sets the variable for `cargo run`, of any package; the compile-time value serves a binary run
    // by hand.
    let manifest = env::var_os("CARGO_MANIFEST_DIR")
        .unwrap_or_else(|| OsString::from(env!("CARGO_MANIFEST_DIR")));
    let manifest = PathBuf::from(manifest);
    let root = manifest
        .ancestors()
        .find(|dir| dir.join("Cargo.lock").is_file());
    root.map_or_else(|| manifest.clone(), Path::to_path_buf)
}

/// Cargo's target directory; `CARGO_TARGET_DIR` is honoured.
pub fn target() -> PathBuf {
    match env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}

/// This program's file, to be started again.
///
/// Cargo puts a new file in its place when it builds the tests while xtask runs, and the kernel then
/// calls the running one deleted; the new one is of the same sources.
///
/// # Errors
/// There is no such file any more.
pub fn own_program() -> Result<PathBuf> {
    still_there(env::current_exe().context("the path of this program")?)
}

fn still_there(path: PathBuf) -> Result<PathBuf> {
    if path.exists() {
        return Ok(path);
    }
    // proc_pid_exe(5)
    let named = path.as_os_str().as_bytes();
    let replaced = named
        .strip_suffix(b" (deleted)")
        .map(|name| PathBuf::from(OsStr::from_bytes(name)))
        .filter(|path| path.exists());
    replaced.with_context(|| {
        format!(
            "{}: the file of this program is gone: run `cargo xtask` again",
            path.display()
        )
    })
}

/// Where xtask installs build tools: never outside the target directory.
pub fn tools() -> PathBuf {
    target().join("tools")
}

/// The eBPF object that `crates/datapath` embeds by `PODNET_EBPF_OBJECT`.
pub fn ebpf_object() -> PathBuf {
    target().join("podnet-ebpf.o")
}

/// A `cargo` command in the repository's root.
pub fn cargo(arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root());
    command
}

/// Lists the packages of the workspace, as `cargo metadata` describes them.
///
/// There is no dependency resolution, so no network.
pub fn packages() -> Result<Vec<Value>> {
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

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_program_that_was_built_again_meanwhile_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("xtask");
        let deleted = dir.path().join("xtask (deleted)");
        let error = still_there(deleted.clone()).unwrap_err().to_string();
        assert!(error.contains("run `cargo xtask` again"), "{error}");
        fs::write(&path, "").unwrap();
        assert_eq!(still_there(deleted.clone()).unwrap(), path);
        assert_eq!(still_there(path.clone()).unwrap(), path);
        // A file may have such a name.
        fs::write(&deleted, "").unwrap();
        assert_eq!(still_there(deleted.clone()).unwrap(), deleted);
    }
}
