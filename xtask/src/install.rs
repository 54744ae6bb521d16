//! Install the tools that the verbs need and a fresh machine lacks.
//!
//! What is there is skipped silently; every installation is announced before it starts.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::step::{capture, execute, is_root, say, succeeds};
use crate::workspace;

/// The linker's version; a newer one may need a newer LLVM than rustc's.
const BPF_LINKER: &str = "0.13.0";

/// The description that `rustc -vV` prints.
#[derive(Debug, PartialEq, Eq)]
pub struct Rustc {
    /// LLVM's major version: bpf-linker must read the bitcode this rustc writes.
    pub llvm: u32,
    /// The machine's architecture, as in `x86_64-unknown-linux-gnu`.
    pub arch: String,
}

impl Rustc {
    /// Asks the rustc that cargo would use here.
    pub fn query() -> Result<Self> {
        Self::parse(&capture(
            Command::new("rustc")
                .arg("-vV")
                .current_dir(workspace::root()),
        )?)
    }

    fn parse(text: &str) -> Result<Self> {
        let field = |name: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
                .with_context(|| format!("`rustc -vV` has no line `{name}`"))
        };
        let version = field("LLVM version")?;
        let major = version.split('.').next().unwrap_or(version);
        let arch = field("host")?.split('-').next().unwrap_or_default();
        Ok(Self {
            llvm: major
                .parse()
                .with_context(|| format!("LLVM version `{version}`"))?,
            arch: arch.to_owned(),
        })
    }
}

/// Everything `build-ebpf` needs: the core library's source and bpf-linker.
pub fn bpf_toolchain(rustc: &Rustc) -> Result<()> {
    rust_src()?;
    bpf_linker(rustc)
}

/// `PATH` with the installed build tools first.
pub fn path_with(first: &Path) -> Result<OsString> {
    let rest = env::var_os("PATH").unwrap_or_default();
    let all = std::iter::once(first.to_path_buf()).chain(env::split_paths(&rest));
    env::join_paths(all).context("PATH with the tools directory")
}

/// Installs the source of Rust's standard library.
///
/// # Errors
/// It is missing, and rustup is, too.
pub(crate) fn rust_src() -> Result<()> {
    let core = sysroot()?.join("lib/rustlib/src/rust/library/core");
    if core.is_dir() {
        return Ok(());
    }
    rustup(
        &["component", "add", "rust-src"],
        "rust-src (source of Rust's core library, for -Z build-std)",
        &core,
    )
}

/// Whether Rust's standard library for a target is installed.
///
/// # Errors
/// rustc does not say where it has its libraries.
pub fn has_rust_std(target: &str) -> Result<bool> {
    Ok(library_of(target)?.is_dir())
}

fn library_of(target: &str) -> Result<PathBuf> {
    Ok(sysroot()?.join("lib/rustlib").join(target).join("lib"))
}

/// Rust's standard library for a target.
pub fn rust_std(target: &str) -> Result<()> {
    let library = library_of(target)?;
    if library.is_dir() {
        return Ok(());
    }
    rustup(
        &["target", "add", target],
        &format!("Rust's standard library for {target}"),
        &library,
    )
}

fn sysroot() -> Result<PathBuf> {
    let sysroot = capture(
        Command::new("rustc")
            .args(["--print", "sysroot"])
            .current_dir(workspace::root()),
    )?;
    Ok(PathBuf::from(sysroot.trim()))
}

/// Installs what is missing at `place`.
fn rustup(arguments: &[&str], what: &str, place: &Path) -> Result<()> {
    if !succeeds(Command::new("rustup").arg("--version")) {
        bail!(
            "{what} is missing ({}) and there is no rustup to fetch it: install Rust with \
             https://rustup.rs, or put your distribution's there",
            place.display()
        );
    }
    say(format!("installing {what}"));
    execute(
        Command::new("rustup")
            .args(arguments)
            .current_dir(workspace::root()),
    )
}

fn bpf_linker(rustc: &Rustc) -> Result<()> {
    let tools = workspace::tools();
    let expected = format!("bpf-linker {BPF_LINKER}");
    let mut installed = Command::new(tools.join("bin/bpf-linker"));
    installed
        .arg("--version")
        .stderr(std::process::Stdio::null());
    // Running it also proves that the LLVM library it was linked with is still there.
    if installed
        .output()
        .is_ok_and(|output| output.stdout.starts_with(expected.as_bytes()))
    {
        return Ok(());
    }
    let llvm = rustc.llvm;
    let mut packages = vec![
        format!("llvm-{llvm}-dev"),
        format!("libpolly-{llvm}-dev"),
        "zlib1g-dev".into(),
    ];
    packages.extend(["libzstd-dev", "libxml2-dev"].map(String::from));
    if !succeeds(Command::new("cc").arg("--version")) {
        packages.extend(["gcc", "libc6-dev"].map(String::from));
    }
    apt(&packages)?;
    say(format!(
        "installing {expected} into {} (half a minute)",
        tools.display()
    ));
    execute(
        workspace::cargo(["install", "bpf-linker", "--locked", "--force", "--version"])
            .args([
                BPF_LINKER,
                "--no-default-features",
                "--features",
                &format!("llvm-{llvm}"),
            ])
            .arg("--root")
            .arg(&tools)
            // Its time is LLVM's: optimisation and debug information of its own code are minutes of building.
            .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0")
            .env("CARGO_PROFILE_RELEASE_DEBUG", "0")
            // llvm-sys asks the first llvm-config in PATH.
            .env(
                "PATH",
                path_with(Path::new(&format!("/usr/lib/llvm-{llvm}/bin")))?,
            ),
    )
}

/// Installs the Debian packages that are missing.
///
/// # Errors
/// Not root, not a Debian-like system, or apt refuses; the message has the command to type.
pub fn apt(packages: &[String]) -> Result<()> {
    let missing = missing(packages);
    if missing.is_empty() {
        return Ok(());
    }
    let list = missing
        .iter()
        .map(|package| package.as_str())
        .collect::<Vec<_>>()
        .join(" ");
    if !succeeds(Command::new("apt-get").arg("--version")) {
        bail!("these Debian packages (or your system's equivalents) are needed: {list}");
    }
    if !is_root() {
        bail!("missing packages; run as root: apt-get update && apt-get install -y {list}");
    }
    if !missing.iter().all(|package| has_candidate(package)) {
        say("updating apt's package lists");
        execute(Command::new("apt-get").args(["update", "--quiet"]))?;
    }
    say(format!("installing {list}"));
    let mut install = Command::new("apt-get");
    install
        .args(["install", "--yes", "--quiet", "--no-install-recommends"])
        .args(["-o", "DPkg::Lock::Timeout=300"])
        .args(&missing)
        .env("DEBIAN_FRONTEND", "noninteractive");
    execute(&mut install).or_else(|_| {
        // The lists were there but stale: the versions they name are gone from the mirror.
        say("updating apt's package lists, then trying once more");
        execute(Command::new("apt-get").args(["update", "--quiet"]))?;
        execute(&mut install)
    })
}

/// Lists the packages that are not installed.
pub fn missing(packages: &[String]) -> Vec<&String> {
    let missing = packages.iter().filter(|package| !is_installed(package));
    missing.collect()
}

fn is_installed(package: &str) -> bool {
    Command::new("dpkg-query")
        .args(["--show", "--showformat=${db:Status-Status}", package])
        .output()
        .is_ok_and(|output| output.stdout == b"installed")
}

fn has_candidate(package: &str) -> bool {
    Command::new("apt-cache")
        .args(["show", "--no-all-versions", package])
        .output()
        .is_ok_and(|output| output.status.success() && !output.stdout.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn llvm_major_and_architecture_are_read_from_rustc() {
        let text = "rustc 1.95.0 (59807616e 2026-04-14)\nhost: x86_64-unknown-linux-gnu\n\
                    release: 1.95.0\nLLVM version: 22.1.2\n";
        let rustc = Rustc::parse(text).unwrap();
        assert_eq!(
            rustc,
            Rustc {
                llvm: 22,
                arch: "x86_64".to_owned()
            }
        );
    }

    #[test]
    fn a_rustc_without_llvm_is_named_as_the_problem() {
        let error = Rustc::parse("host: x86_64-unknown-linux-gnu\n").unwrap_err();
        assert!(error.to_string().contains("LLVM version"), "{error}");
    }
}
