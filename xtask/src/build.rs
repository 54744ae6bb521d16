//! `cargo xtask build`: the agent with its eBPF object, and the static CNI binary.

use std::env;
use std::fs;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

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

/// The files of a build; all paths are absolute.
pub(crate) struct Built {
    /// `podnet-agent`, the eBPF object embedded.
    pub(crate) agent: PathBuf,
    /// `podnet`, the CNI binary, static: it must run in any host's file system.
    ///
    /// It has no interpreter.
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

/// How everything is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Profile {
    /// For development.
    Debug,
    /// For a first look: less optimised, and sooner there.
    Demo,
    /// As it is shipped.
    Release,
}

impl Profile {
    /// Arguments of cargo.
    pub(crate) fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Debug => &[],
            Self::Demo => &["--profile", "demo"],
            Self::Release => &["--release"],
        }
    }

    /// The directory of its binaries.
    pub(crate) fn directory(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Demo => "demo",
            Self::Release => "release",
        }
    }

    /// A binary that it has built.
    pub(crate) fn binary(self, name: &str) -> PathBuf {
        workspace::target().join(self.directory()).join(name)
    }
}

/// Builds everything.
pub(crate) fn run(options: &Options) -> Result<Built> {
    everything(options.release)
}

/// The binaries that `PODNET_AGENT` and `PODNET_CNI` name, as for the tests.
pub(crate) fn named() -> Option<Built> {
    let named = |variable| env::var_os(variable).map(PathBuf::from);
    let (agent, cni) = (named("PODNET_AGENT")?, named("PODNET_CNI")?);
    say(format!("using {} and {}", agent.display(), cni.display()));
    Some(Built {
        agent,
        cni,
        object: workspace::ebpf_object(),
    })
}

/// As [`named`], else a fresh release.
pub(crate) fn named_or_built() -> Result<Built> {
    named().map_or_else(|| everything(true), Ok)
}

/// Options for a small plugin.
///
/// It lives for a few milliseconds, of which loading and relocating it would be a tenth.
const SMALL: [&str; 4] = [
    "profile.release.lto=\"fat\"",
    "profile.release.codegen-units=1",
    "profile.release.opt-level=\"s\"",
    "profile.release.strip=\"symbols\"",
];

/// Cargo's arguments for the demo.
const DEMO: [&str; 4] = ["--package", "demo", "--bin", "podnet-demo"];

/// Builds everything, for `run` and for the verbs that test the result.
pub(crate) fn everything(release: bool) -> Result<Built> {
    let profile = if release {
        Profile::Release
    } else {
        Profile::Debug
    };
    let object = workspace::ebpf_object();
    build_ebpf::object(&object)?;
    products(profile, object)
}

/// Builds everything for the demo, and the demo itself.
///
/// The plugin needs no eBPF object and is built while that is made. The demo and the agent are one build:
/// in two, the libraries that both use with different features would be built twice.
pub(crate) fn with_demo() -> Result<Built> {
    let profile = Profile::Demo;
    let object = workspace::ebpf_object();
    let target = plugin_target()?;
    let (cni, ()) = in_parallel(|| plugin(profile, &target), || build_ebpf::object(&object))?;
    say("building podnet-agent and podnet-demo");
    execute(agent(profile, &object).args(DEMO))?;
    Ok(built(profile, object, cni))
}

/// Builds `podnet-demo`.
pub(crate) fn demo(profile: Profile) -> Result<PathBuf> {
    say("building podnet-demo");
    execute(
        workspace::cargo(["build"])
            .args(DEMO)
            .args(profile.arguments()),
    )?;
    Ok(profile.binary("podnet-demo"))
}

/// Builds the agent around an object, and the plugin.
fn products(profile: Profile, object: PathBuf) -> Result<Built> {
    let target = plugin_target()?;
    say("building podnet-agent, and podnet (static)");
    let ((), cni) = in_parallel(
        || execute(&mut agent(profile, &object)),
        || plugin(profile, &target),
    )?;
    Ok(built(profile, object, cni))
}

/// The command that builds the agent around an object.
fn agent(profile: Profile, object: &Path) -> Command {
    let mut command = workspace::cargo(["build", "--package", "agent", "--bin", "podnet-agent"]);
    command
        .args(profile.arguments())
        .env("PODNET_EBPF_OBJECT", object);
    command
}

fn built(profile: Profile, object: PathBuf, cni: PathBuf) -> Built {
    let agent = profile.binary("podnet-agent");
    say(format!("built {} and {}", agent.display(), cni.display()));
    Built { agent, cni, object }
}

/// The target of the plugin, its standard library installed.
///
/// Asked for before builds that run side by side: rustup has one lock.
fn plugin_target() -> Result<String> {
    let target = format!("{}-unknown-linux-musl", Rustc::query()?.arch);
    install::rust_std(&target)?;
    Ok(target)
}

/// Runs two steps at a time, the second one on a thread of its own.
fn in_parallel<T, U: Send>(
    one: impl FnOnce() -> Result<T>,
    other: impl FnOnce() -> Result<U> + Send,
) -> Result<(T, U)> {
    thread::scope(|scope| {
        let other = scope.spawn(other);
        let one = one();
        let other = other.join().unwrap_or_else(|panic| resume_unwind(panic));
        Ok((one?, other?))
    })
}

/// Builds the plugin, with the C library of [musl](https://musl.libc.org).
///
/// glibc's start asks the processor some forty times what it can do, and in a virtual machine each answer
/// is the hypervisor's and takes microseconds. That was half of the time from exec to exit.
fn plugin(profile: Profile, target: &str) -> Result<PathBuf> {
    // Of its own: one cargo builds in a directory at a time.
    let directory = workspace::target().join("plugin");
    let mut command = workspace::cargo(["rustc", "--package", "cni", "--bin", "podnet"]);
    command
        .args(["--target", target])
        .arg("--target-dir")
        .arg(&directory)
        .args(profile.arguments())
        .env("CARGO_TERM_PROGRESS_WHEN", "never");
    if profile == Profile::Release {
        command.args(SMALL.iter().flat_map(|setting| ["--config", setting]));
    }
    execute(
        command
            .args(["--", "-C", "target-feature=+crt-static"])
            .args(["-C", "relocation-model=static"]),
    )?;
    let built = directory
        .join(target)
        .join(profile.directory())
        .join("podnet");
    require_static(&built)?;
    // Cargo puts a build for the machine itself under the name that people know.
    let known = profile.binary("podnet");
    let draft = known.with_extension("new");
    if let Some(parent) = known.parent() {
        fs::create_dir_all(parent)
            .with_context(|| format!("{} cannot be made", parent.display()))?;
    }
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
