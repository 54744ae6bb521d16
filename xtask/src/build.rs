//! `cargo xtask build`: the agent with its eBPF object, and the static CNI binary.

use std::env;
use std::fs;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, bail};

use crate::build_ebpf;
use crate::cross::Machine;
use crate::install::{self, Rustc};
use crate::step::{execute, say};
use crate::workspace;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Optimised binaries in target/release instead of target/debug
    #[arg(long)]
    release: bool,
    /// Machine to build for, as aarch64-unknown-linux-gnu; this one when not given
    ///
    /// The binaries are in target/TRIPLE then.
    #[arg(long, value_name = "TRIPLE")]
    target: Option<String>,
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
    /// The one that is shipped, or the one for development.
    fn of(release: bool) -> Self {
        if release { Self::Release } else { Self::Debug }
    }

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
    let machine = match &options.target {
        Some(target) => Machine::find(target)?,
        None => None,
    };
    match machine {
        None => everything(options.release),
        Some(machine) => for_machine(options.release, &machine),
    }
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
const SMALL: [&str; 5] = [
    "profile.release.panic=\"abort\"",
    "profile.release.lto=\"fat\"",
    "profile.release.codegen-units=1",
    "profile.release.opt-level=\"s\"",
    "profile.release.strip=\"symbols\"",
];

/// Cargo's arguments for the demo.
const DEMO: [&str; 4] = ["--package", "demo", "--bin", "podnet-demo"];

/// Builds everything for another machine.
///
/// The plugin is static there too, with the C library of the cross compiler: what glibc asks the processor
/// at its start costs time on x86-64 alone.
pub(crate) fn for_machine(release: bool, machine: &Machine) -> Result<Built> {
    let profile = Profile::of(release);
    // Little-endian BPF is the same for all machines; the object embeds no layout of registers.
    let object = workspace::ebpf_object();
    build_ebpf::object(&object)?;
    say(format!(
        "building podnet-agent, and podnet (static), for {}",
        machine.triple
    ));
    let mut agent = agent(profile, &object);
    machine.apply(&mut agent);
    execute(&mut agent)?;
    let folder = workspace::target()
        .join(machine.triple)
        .join(profile.directory());
    let static_one = |package, binary| {
        let mut command = static_binary(profile, package, binary);
        machine.apply(&mut command);
        let from = finish_static(command, machine.triple, profile, binary)?;
        let known = folder.join(binary);
        publish(&from, &known)?;
        Ok::<_, anyhow::Error>(known)
    };
    let cni = static_one("cni", "podnet")?;
    let agent = folder.join("podnet-agent");
    say(format!("built {} and {}", agent.display(), cni.display()));
    Ok(Built { agent, cni, object })
}

/// Builds everything, for `run` and for the verbs that use the result.
pub(crate) fn everything(release: bool) -> Result<Built> {
    let profile = Profile::of(release);
    by(profile, agent(profile, &workspace::ebpf_object()))
}

/// Builds everything, the agent and maybe more by this command of cargo.
pub(crate) fn by(profile: Profile, mut command: Command) -> Result<Built> {
    let object = workspace::ebpf_object();
    build_ebpf::object(&object)?;
    let target = plugin_target()?;
    say("building podnet-agent, and podnet (static)");
    command.env("PODNET_EBPF_OBJECT", &object);
    let ((), cni) = in_parallel(|| execute(&mut command), || plugin(profile, &target))?;
    Ok(built(profile, object, cni))
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
    let mut command = static_binary(profile, "cni", "podnet");
    command.args(["--target", target]);
    let built = finish_static(command, target, profile, "podnet")?;
    // Cargo puts a build for the machine itself under the name that people know.
    let known = profile.binary("podnet");
    publish(&built, &known)?;
    Ok(known)
}

/// Builds kubectl's plugin, static as the CNI plugin is.
///
/// It is for this machine when no other is given.
pub(crate) fn kubectl_plugin(machine: Option<&Machine>) -> Result<PathBuf> {
    let (profile, name) = (Profile::Release, "kubectl-podnet");
    let mut command = static_binary(profile, name, name);
    let target = match machine {
        Some(machine) => {
            machine.apply(&mut command);
            machine.triple.to_owned()
        }
        None => {
            let target = plugin_target()?;
            command.args(["--target", &target]);
            target
        }
    };
    finish_static(command, &target, profile, name)
}

/// The command that builds a binary without shared libraries, but for its target.
fn static_binary(profile: Profile, package: &str, binary: &str) -> Command {
    let mut command = workspace::cargo(["rustc", "--package", package, "--bin", binary]);
    command
        // Of its own: one cargo builds in a directory at a time.
        .arg("--target-dir")
        .arg(static_binaries())
        .args(profile.arguments())
        .env("CARGO_TERM_PROGRESS_WHEN", "never");
    if profile == Profile::Release {
        command.args(SMALL.iter().flat_map(|setting| ["--config", setting]));
    }
    command
}

fn static_binaries() -> PathBuf {
    workspace::target().join("plugin")
}

/// Builds, and makes sure that it needs no library.
fn finish_static(
    mut command: Command,
    target: &str,
    profile: Profile,
    binary: &str,
) -> Result<PathBuf> {
    execute(
        command
            .args(["--", "-C", "target-feature=+crt-static"])
            .args(["-C", "relocation-model=static"]),
    )?;
    let built = static_binaries()
        .join(target)
        .join(profile.directory())
        .join(binary);
    require_static(&built)?;
    Ok(built)
}

/// Copies a binary to its place in one step.
fn publish(built: &Path, known: &Path) -> Result<()> {
    let draft = known.with_extension("new");
    if let Some(parent) = known.parent() {
        fs::create_dir_all(parent)
            .with_context(|| format!("{} cannot be made", parent.display()))?;
    }
    fs::copy(built, &draft)
        .and_then(|_| fs::rename(&draft, known))
        .with_context(|| format!("{} cannot be written", known.display()))
}

/// Refuses a program that names an interpreter.
///
/// ldd knows programs of this machine alone.
fn require_static(binary: &Path) -> Result<()> {
    let bytes = fs::read(binary).with_context(|| format!("reading {}", binary.display()))?;
    match interpreter(&bytes) {
        Some(false) => Ok(()),
        Some(true) => bail!(
            "{} is not static, it names an interpreter",
            binary.display()
        ),
        None => bail!("{} is no 64-bit little-endian ELF file", binary.display()),
    }
}

/// Whether a program names an interpreter (ELF-64, `PT_INTERP`).
///
/// `None` when it is no such file.
fn interpreter(bytes: &[u8]) -> Option<bool> {
    const PT_INTERP: u32 = 3;
    if bytes.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let number = |at: usize, size: usize| -> Option<usize> {
        let bytes = bytes.get(at..at.checked_add(size)?)?;
        let value = bytes
            .iter()
            .rev()
            .fold(0_u64, |value, byte| (value << 8) | u64::from(*byte));
        usize::try_from(value).ok()
    };
    let (start, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    for header in 0..count {
        let at = start.checked_add(header.checked_mul(size)?)?;
        if number(at, 4)? == PT_INTERP as usize {
            return Some(true);
        }
    }
    Some(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_with_an_interpreter_is_not_static_whatever_its_machine() {
        let own = fs::read(env::current_exe().unwrap()).unwrap();
        assert_eq!(interpreter(&own), Some(true));
        // The same with no program headers.
        let mut without = own.clone();
        without[56..58].fill(0);
        assert_eq!(interpreter(&without), Some(false));
        assert_eq!(interpreter(b"#!/bin/sh"), None);
        assert_eq!(interpreter(&own[..60]), None);
    }
}
