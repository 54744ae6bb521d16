//! `cargo xtask build`: the agent with its eBPF object inside, and the static CNI binary.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::build_ebpf;
use crate::install::{self, Rustc};
use crate::step::{execute, say};
use crate::workspace;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Optimised binaries in target/release instead of target/debug
    #[arg(long)]
    release: bool,
}

/// What a build leaves; all paths are absolute.
pub(crate) struct Built {
    /// `podnet-agent`, the eBPF object embedded.
    pub(crate) agent: PathBuf,
    /// `podnet`, the CNI binary, without an interpreter: it must run in any host's file system.
    pub(crate) cni: PathBuf,
    /// The object by itself, for tests that load it without the agent.
    pub(crate) object: PathBuf,
}

impl Built {
    /// Tells a test where the binaries are.
    pub(crate) fn describe_to(&self, command: &mut Command) {
        command
            .env("PODNET_AGENT", &self.agent)
            .env("PODNET_CNI", &self.cni)
            .env("PODNET_EBPF_OBJECT", &self.object);
    }
}

/// Builds everything.
pub(crate) fn run(options: &Options) -> Result<Built> {
    everything(options.release)
}

/// The plugin lives for a few milliseconds, of which loading and relocating it would be a tenth.
const SMALL: [&str; 4] = [
    "profile.release.lto=\"fat\"",
    "profile.release.codegen-units=1",
    "profile.release.opt-level=\"s\"",
    "profile.release.strip=\"symbols\"",
];

/// Builds everything, for `run` and for the verbs that test the result.
pub(crate) fn everything(release: bool) -> Result<Built> {
    let object = workspace::ebpf_object();
    build_ebpf::object(&object)?;
    let profile: &[&str] = if release { &["--release"] } else { &[] };
    say("building podnet-agent");
    execute(
        workspace::cargo(["build", "--package", "agent", "--bin", "podnet-agent"])
            .args(profile)
            .env("PODNET_EBPF_OBJECT", &object),
    )?;
    let kind = if release { "release" } else { "debug" };
    let built = Built {
        agent: workspace::target().join(kind).join("podnet-agent"),
        cni: plugin(profile, kind)?,
        object,
    };
    say(format!(
        "built {} and {}",
        built.agent.display(),
        built.cni.display()
    ));
    Ok(built)
}

/// The plugin, with the C library of [musl](https://musl.libc.org): glibc's start asks the processor
/// some forty times what it can do, and in a virtual machine each answer is the hypervisor's and
/// takes microseconds. That was half of the time from exec to exit.
fn plugin(profile: &[&str], kind: &str) -> Result<PathBuf> {
    let target = format!("{}-unknown-linux-musl", Rustc::query()?.arch);
    install::rust_std(&target)?;
    say("building podnet (static)");
    execute(
        workspace::cargo(["rustc", "--package", "cni", "--bin", "podnet"])
            .args(["--target", &target])
            .args(profile)
            .args(SMALL.iter().flat_map(|setting| ["--config", setting]))
            .args(["--", "-C", "target-feature=+crt-static"])
            .args(["-C", "relocation-model=static"]),
    )?;
    let built = workspace::target().join(target).join(kind).join("podnet");
    require_static(&built)?;
    // Cargo puts a build for the machine itself under the name that people know.
    let known = workspace::target().join(kind).join("podnet");
    let draft = known.with_extension("new");
    fs::copy(&built, &draft)
        .and_then(|_| fs::rename(&draft, &known))
        .with_context(|| format!("{} cannot be written", known.display()))?;
    Ok(known)
}

fn require_static(binary: &Path) -> Result<()> {
    let libraries = crate::vm::shared_libraries(binary)?;
    if !libraries.is_empty() {
        bail!("{} is not static, it needs {libraries:?}", binary.display());
    }
    Ok(())
}
