//! Provide others' programs for comparison with podnet.
//!
//! One that cannot be had here is told to the harness with the reason, and is then missing in the report,
//! not in silence.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::step::{capture, execute, say, succeeds};
use crate::{install, interop, kubernetes, workspace};

/// The load generator, the reference plugins, and tools for rules.
const PACKAGES: [&str; 4] = [
    "iperf3",
    "containernetworking-plugins",
    "iptables",
    "nftables",
];
/// Packages of Open vSwitch and its libraries that few systems have.
///
/// They are unpacked, not installed: the package would start a switch on the machine.
const OVS_PACKAGES: [&str; 2] = ["openvswitch-switch", "openvswitch-common"];
const OVS_LIBRARIES: [&str; 6] = [
    "libxdp1",
    "libbpf1",
    "libunbound8",
    "libunwind8",
    "libnuma1",
    "libcap-ng0",
];
const MULTUS: &str = "gopkg.in/k8snetworkplumbingwg/multus-cni.v4";
const MULTUS_VERSION: &str = "v4.3.0";

/// Installs what can be had and tells the harness where it is.
///
/// # Errors
/// What every case needs is missing.
pub(super) fn install(harness: &mut Command, with_api: bool) -> Result<()> {
    install_packages()?;
    tell(harness, "PODNET_OVS", open_vswitch);
    tell(harness, "PODNET_MULTUS", multus);
    tell(harness, "PODNET_DPDK", interop::testpmd);
    if with_api {
        tell(harness, "PODNET_KUBERNETES", kubernetes::for_tests);
    }
    tell(harness, "PODNET_CROSS_CONNECT", || {
        example("memif", "cross_connect")
    });
    tell(harness, "PODNET_SWITCH_FORWARD", || {
        example("uswitch", "switch_forward")
    });
    Ok(())
}

/// Installs only what Debian has: the load generator and the reference plugins.
///
/// # Errors
/// As for [`install`].
pub(super) fn install_packages() -> Result<()> {
    install::apt(&PACKAGES.map(String::from))
}

/// Sets `variable` to the path found, unless the caller's environment has it.
fn tell(harness: &mut Command, variable: &str, find: impl FnOnce() -> Result<PathBuf>) {
    if env::var_os(variable).is_some() {
        return;
    }
    match find() {
        Ok(path) => harness.env(variable, path),
        Err(error) => {
            let reason = format!("{error:#}");
            say(format!("{variable}: {reason}"));
            harness.env(variable.replacen("PODNET_", "PODNET_NO_", 1), reason)
        }
    };
}

/// An example of ours, built to be measured.
fn example(package: &str, name: &str) -> Result<PathBuf> {
    say(format!("building {name}"));
    let build = ["build", "--quiet", "--release", "--package", package];
    execute(workspace::cargo(build).args(["--example", name]))?;
    Ok(workspace::target().join("release/examples").join(name))
}

/// A directory with Open vSwitch's files as its packages have them.
fn open_vswitch() -> Result<PathBuf> {
    let root = workspace::tools().join("openvswitch");
    if starts(&root) {
        return Ok(root);
    }
    if !succeeds(Command::new("apt-get").arg("--version")) {
        bail!("its packages are taken from Debian, and there is no apt-get here");
    }
    let mut packages = OVS_PACKAGES.to_vec();
    packages.extend(OVS_LIBRARIES.iter().filter(|name| is_known(name)));
    say(format!(
        "unpacking {} into {}",
        packages.join(" "),
        root.display()
    ));
    let archives = root.join("archives");
    fs::create_dir_all(&archives).with_context(|| format!("making {}", archives.display()))?;
    let mut download = Command::new("apt-get");
    download
        .args(["download", "--quiet"])
        .args(&packages)
        .current_dir(&archives);
    execute(&mut download).context("downloading Open vSwitch")?;
    for entry in fs::read_dir(&archives)? {
        let archive = entry?.path();
        execute(Command::new("dpkg-deb").arg("-x").arg(&archive).arg(&root))?;
    }
    if !starts(&root) {
        bail!("its programs do not start on this system: a library is missing");
    }
    Ok(root)
}

fn starts(root: &Path) -> bool {
    let libraries = format!("usr/lib/{}-linux-gnu", env::consts::ARCH);
    [
        "usr/sbin/ovsdb-server",
        "usr/lib/openvswitch-switch/ovs-vswitchd",
    ]
    .iter()
    .all(|program| {
        succeeds(
            Command::new(root.join(program))
                .arg("--version")
                .env("LD_LIBRARY_PATH", root.join(&libraries)),
        )
    })
}

fn is_known(package: &str) -> bool {
    succeeds(Command::new("apt-cache").args(["show", "--no-all-versions", package]))
}

/// The thin plugin of Multus, built from its module.
///
/// # Errors
/// No Go, no module proxy, or the compiler refuses.
pub fn multus() -> Result<PathBuf> {
    let binary = workspace::tools().join("bin/multus");
    if binary.is_file() {
        return Ok(binary);
    }
    if !succeeds(Command::new("go").arg("version")) {
        bail!("it is built with Go, and there is no Go in PATH");
    }
    let module = format!("{MULTUS}@{MULTUS_VERSION}");
    say(format!("building {module} (a minute or two)"));
    // Not `go install`: it asks for the list of versions, which not every module proxy has.
    let text = capture(Command::new("go").args(["mod", "download", "-json", &module]))
        .context("downloading Multus")?;
    let found: Value = serde_json::from_str(&text).context("`go mod download` printed no JSON")?;
    let source = found["Dir"]
        .as_str()
        .context("`go mod download` names no directory")?;
    // What it answers to `--version`.
    let said = format!("-X {MULTUS}/pkg/multus.version={MULTUS_VERSION}");
    execute(
        Command::new("go")
            .args([
                "build",
                "-C",
                source,
                "-mod=readonly",
                "-buildvcs=false",
                "-o",
            ])
            .arg(&binary)
            .args(["-ldflags", &said, "./cmd/multus"])
            .env("CGO_ENABLED", "0"),
    )
    .context("building Multus")?;
    Ok(binary)
}
