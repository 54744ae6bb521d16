//! `cargo xtask build-ebpf`: the kernel programs, as object files with BTF.
//!
//! There are three: the node's, the one of an AF_XDP port, and the one of a capture.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::install::{self, Rustc};
use crate::step::{execute, say};
use crate::workspace;

/// Little-endian BPF, the byte order of every machine podnet runs on.
const TARGET: &str = "bpfel-unknown-none";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Where to put the object (default: target/podnet-ebpf.o)
    #[arg(long, value_name = "PATH")]
    out: Option<PathBuf>,
}

/// Installs what is missing, builds, and returns the object's absolute path.
pub(crate) fn run(options: &Options) -> Result<PathBuf> {
    let out = options.out.clone().unwrap_or_else(workspace::ebpf_object);
    let out = std::path::absolute(&out).with_context(|| format!("path {}", out.display()))?;
    object(&out)?;
    Ok(out)
}

/// Builds the object into `out`, and the other two next to it.
pub(crate) fn object(out: &Path) -> Result<()> {
    let rustc = Rustc::query()?;
    install::bpf_toolchain(&rustc)?;
    say("building the eBPF object");
    execute(cargo_bpf("build", &rustc)?.args(["--release", "--package", "agent-ebpf"]))?;
    let built = target_dir().join(TARGET).join("release");
    // Beside it, where the build script of `crates/datapath` looks for them.
    let port = out.with_file_name("podnet-xsk.o");
    let tap = out.with_file_name("podnet-tap.o");
    for (name, out) in [
        ("podnet-ebpf", out),
        ("podnet-xsk", &port),
        ("podnet-tap", &tap),
    ] {
        let size = publish(&built.join(name), out)?;
        say(format!("{} ({} KiB)", out.display(), size / 1024));
    }
    Ok(())
}

/// Clippy over the kernel programs; the host's clippy cannot see them.
pub(crate) fn clippy() -> Result<()> {
    let rustc = Rustc::query()?;
    install::bpf_toolchain(&rustc)?;
    execute(cargo_bpf("clippy", &rustc)?.args([
        "--release",
        "--package",
        "agent-ebpf",
        "--",
        "-D",
        "warnings",
    ]))
}

fn target_dir() -> PathBuf {
    workspace::target().join("ebpf")
}

fn cargo_bpf(subcommand: &str, rustc: &Rustc) -> Result<Command> {
    let flags = [
        // .BTF is made from debug info; the loader drops what an old kernel would not take.
        "-Cdebuginfo=2".to_owned(),
        "-Clink-arg=--btf".to_owned(),
        // aya-ebpf picks the pt_regs layout by it.
        format!("--cfg=bpf_target_arch=\"{}\"", rustc.arch),
    ];
    let mut command = workspace::cargo([subcommand, "--target", TARGET, "-Z", "build-std=core"]);
    command
        .arg("--target-dir")
        .arg(target_dir())
        // -Z on the stable compiler: one toolchain for both sides of the ABI.
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"))
        .env("PATH", install::path_with(&workspace::tools().join("bin"))?)
        // The workspace's release profile is made for the agent's binary.
        .env("CARGO_PROFILE_RELEASE_LTO", "fat")
        // Incremental builds inline less, and functions that are called take stack.
        .env("CARGO_INCREMENTAL", "0")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1")
        .env("CARGO_PROFILE_RELEASE_STRIP", "none")
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "3")
        .env("CARGO_PROFILE_RELEASE_PANIC", "abort");
    Ok(command)
}

/// Copies `built` to `out` in one step; returns its size in bytes.
///
/// So a build script never embeds half an object. An equal file is left alone, so that it is not embedded
/// again.
fn publish(built: &Path, out: &Path) -> Result<usize> {
    let bytes = fs::read(built).with_context(|| format!("reading {}", built.display()))?;
    if fs::read(out).is_ok_and(|old| old == bytes) {
        return Ok(bytes.len());
    }
    if let Some(parent) = out.parent() {
        fs::create_dir_all(parent).with_context(|| format!("creating {}", parent.display()))?;
    }
    let mut name = out.as_os_str().to_owned();
    name.push(".tmp");
    fs::write(&name, &bytes).with_context(|| format!("writing {}", name.display()))?;
    fs::rename(&name, out).with_context(|| format!("renaming to {}", out.display()))?;
    Ok(bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_equal_object_is_not_rewritten() {
        let dir = std::env::temp_dir().join(format!("podnet-publish-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let (built, out) = (dir.join("built"), dir.join("out.o"));
        fs::write(&built, b"object").unwrap();
        publish(&built, &out).unwrap();
        let before = rustix::fs::stat(&out).unwrap().st_ino;
        publish(&built, &out).unwrap();
        let after = rustix::fs::stat(&out).unwrap().st_ino;
        fs::write(&built, b"changed").unwrap();
        publish(&built, &out).unwrap();
        let changed = fs::read(&out).unwrap();
        fs::remove_dir_all(&dir).unwrap();
        assert_eq!(before, after);
        assert_eq!(changed, b"changed");
    }
}
