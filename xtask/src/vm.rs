//! `cargo xtask vm <version>…`: the privileged tests on Debian's kernels, in QEMU.
//!
//! No disk image, no network, no ssh: kernel and modules come from a Debian package, the test
//! binaries ride in an initramfs, and results leave by the serial console. Emulation (TCG) is
//! used even where /dev/kvm exists, so that every machine runs the same thing.

mod boot;
mod cpio;
mod initramfs;
mod kernel;
mod modules;
mod session;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::build::{self, Built};
use crate::step::{capture, say};
use crate::test::{Place, Report, Tally, release_tests};
use crate::{install, workspace};

pub(crate) use self::initramfs::shared_libraries;

/// Packages whose integration tests (`<package>/tests/*.rs`) need a kernel to test against.
const PACKAGES: [&str; 3] = ["tests", "netdev", "datapath"];

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Kernel versions: 5.10, 6.1, 6.12, or sid for Debian's newest
    #[arg(required = true, value_name = "VERSION")]
    versions: Vec<String>,
    /// Arguments for every test binary, first of all a part of a test's name
    #[arg(last = true)]
    filter: Vec<String>,
}

/// Builds, then boots one kernel after the other.
pub(crate) fn run(options: &Options) -> crate::Done {
    for version in &options.versions {
        kernel::suite(version)?;
    }
    let built = build::everything(true)?;
    let binaries = test_binaries(&built)?;
    let mut report = Report::new()?;
    for version in &options.versions {
        let place = Place::Kernel(version.clone());
        report.stage(&format!("kernel {version}"), &place, |tally| {
            test_kernel(version, &built, &binaries, (&options.filter, None), tally)
        });
    }
    Ok(report.close())
}

/// How often a machine may be started for the programs that are left where its kernel or emulator stops
/// half-way. A program that has ended is not run again, whatever it said.
const BOOTS: u32 = 4;

/// Runs the privileged tests on one kernel and counts them. Test programs that are not begun by `until` are
/// left out, and that is said.
pub(crate) fn test_kernel(
    version: &str,
    built: &Built,
    binaries: &[TestBinary],
    (filter, until): (&[String], Option<Instant>),
    tally: &mut Tally,
) -> Result<()> {
    install::apt(&["qemu-system-x86".to_owned(), "busybox-static".to_owned()])?;
    let kernel = kernel::fetch(version)?;
    say(format!(
        "packing {} test binaries for Linux {}",
        binaries.len(),
        kernel.release
    ));
    let mut session = session::Session::default();
    let mut boots = 1;
    loop {
        let limit = until.map(|it| it.saturating_duration_since(Instant::now()));
        // A second machine goes on where the first one stopped.
        let left = &binaries[session.ended()..];
        let initramfs = initramfs::build(&kernel, built, left, filter, limit)?;
        let ended = boot::boot(&kernel, &initramfs, |line| {
            if session.line(line) {
                println!("[{version}] {line}");
            }
        });
        if session.is_done() {
            return ended.and(session.finish(binaries.len(), tally));
        }
        boot::show_kernel_log(&kernel);
        if boots == BOOTS {
            return ended.and(session.finish(binaries.len(), tally));
        }
        say("the machine stopped before the end; software emulation does that at times: once more");
        boots += 1;
    }
}

/// A test program and the name it gets in the virtual machine.
pub(crate) struct TestBinary {
    name: String,
    path: PathBuf,
}

/// Where the time is short, what asks most of a kernel comes first, and last what asks podnet more than the
/// kernel.
const LAST: [&str; 6] = [
    "tests-native",
    "tests-memif",
    "tests-crash",
    "tests-multi",
    "tests-model",
    "tests-cni",
];

fn order(name: &str) -> usize {
    let place = LAST.iter().position(|last| *last == name);
    place.map_or(0, |place| place + 1)
}

/// Builds the integration tests of [`PACKAGES`] and returns where cargo put them.
pub(crate) fn test_binaries(built: &Built) -> Result<Vec<TestBinary>> {
    let mut command = release_tests();
    command.args(["--no-run", "--message-format=json-render-diagnostics"]);
    let mut wanted = 0;
    for package in workspace::packages()? {
        let Some(name) = package["name"]
            .as_str()
            .filter(|name| PACKAGES.contains(name))
        else {
            continue;
        };
        let targets: Vec<&str> = test_targets(&package).collect();
        if !targets.is_empty() {
            command.args(["--package", name]);
        }
        for target in targets {
            command.args(["--test", target]);
            wanted += 1;
        }
    }
    if wanted == 0 {
        bail!("none of the packages {PACKAGES:?} has integration tests");
    }
    built.describe_to(&mut command);
    say("building the privileged tests");
    let mut found = Vec::new();
    for line in capture(&mut command)?.lines() {
        let message: Value = serde_json::from_str(line).context("cargo's JSON messages")?;
        found.extend(test_artifact(&message));
    }
    if found.len() < wanted {
        bail!("cargo built {} of {wanted} test binaries", found.len());
    }
    found.sort_by_key(|it| (order(&it.name), it.name.clone()));
    Ok(found)
}

/// Those that `cargo test` runs by itself: not what needs a whole cluster around it.
fn test_targets(package: &Value) -> impl Iterator<Item = &str> {
    package["targets"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|target| {
            let is_test = target["kind"].as_array()?.iter().any(|kind| kind == "test");
            let by_itself = target["test"] == true;
            target["name"].as_str().filter(|_| is_test && by_itself)
        })
}

fn test_artifact(message: &Value) -> Option<TestBinary> {
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let path = PathBuf::from(message["executable"].as_str()?);
    let target = message["target"]["name"].as_str()?;
    // `path+file:///…/crates/netdev#0.1.0`: the package's folder has its name.
    let id = message["package_id"].as_str()?;
    let package = id.split('#').next()?.rsplit('/').next()?;
    Some(TestBinary {
        name: format!("{package}-{target}"),
        path,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn test_binaries_are_found_in_cargo_messages() {
        let message = json!({
            "reason": "compiler-artifact",
            "package_id": "path+file:///repo/crates/netdev#0.1.0",
            "target": {"name": "kernel", "kind": ["test"]},
            "profile": {"test": true},
            "executable": "/repo/target/release/deps/kernel-0011",
        });
        let binary = test_artifact(&message).unwrap();
        assert_eq!(binary.name, "netdev-kernel");
        assert_eq!(
            binary.path,
            PathBuf::from("/repo/target/release/deps/kernel-0011")
        );
    }

    #[test]
    fn libraries_built_on_the_way_are_no_test_binaries() {
        let message = json!({
            "reason": "compiler-artifact",
            "package_id": "path+file:///repo/crates/netdev#0.1.0",
            "target": {"name": "netdev", "kind": ["lib"]},
            "profile": {"test": false},
            "executable": null,
        });
        assert!(test_artifact(&message).is_none());
    }
}
