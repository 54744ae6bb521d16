//! Provide others' code for the interop tests.
//!
//! It is the reference CNI plugins from Debian, and libcni's `cnitool`, built with Go where there is one,
//! and DPDK's testpmd.

mod dpdk;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::step::{capture, execute, say, succeeds};
use crate::{install, workspace};

/// Debian's packages of a reader of captures and of a shell for plugins.
const FOR_TESTS: [&str; 2] = ["tcpdump", "busybox-static"];
/// Debian's package of the reference plugins.
const PLUGINS: &str = "containernetworking-plugins";
/// Where the package puts them, and where everybody else does.
const PLACES: [&str; 2] = ["/usr/lib/cni/tuning", "/opt/cni/bin/tuning"];
/// The tool and its release; the release is libcni's.
const CNITOOL: &str = "github.com/containernetworking/cni/cnitool@v1.3.0";
/// The Go that release wants: 1.MINOR.
const GO_MINOR: u32 = 21;

/// The programs to test against.
pub(crate) struct Interop {
    cnitool: Result<PathBuf, String>,
    dpdk: PathBuf,
    dpdk_afxdp: PathBuf,
}

impl Interop {
    /// Tells a test where testpmd is, and `cnitool`, or why there is none.
    pub(crate) fn describe_to(&self, command: &mut Command) {
        command
            .env("PODNET_DPDK", &self.dpdk)
            .env("PODNET_DPDK_AFXDP", &self.dpdk_afxdp);
        match &self.cnitool {
            Ok(path) => command.env("PODNET_CNITOOL", path),
            Err(why) => command.env("PODNET_NO_CNITOOL", why),
        };
    }
}

/// Where DPDK's testpmd is, fetched if it is not there.
///
/// # Errors
/// Debian's packages cannot be had.
pub(crate) fn testpmd() -> Result<PathBuf> {
    dpdk::unpack()
}

/// Installs what is missing and can be had.
///
/// # Errors
/// apt or `go install` refuses. A missing or old Go is no error: that is said, and the tests skip.
pub(crate) fn install() -> Result<Interop> {
    if !PLACES.iter().any(|place| Path::new(place).is_file()) {
        install::apt(&[PLUGINS.to_owned()])?;
    }
    install::apt(&FOR_TESTS.map(String::from))?;
    let dpdk = dpdk::unpack()?;
    let dpdk_afxdp = dpdk::unpack_afxdp()?;
    let bin = workspace::tools().join("bin");
    let cnitool = bin.join("cnitool");
    if cnitool.is_file() {
        return Ok(Interop {
            cnitool: Ok(cnitool),
            dpdk,
            dpdk_afxdp,
        });
    }
    if let Err(why) = go() {
        say(format!("{why}: interop with libcni is skipped"));
        return Ok(Interop {
            cnitool: Err(why),
            dpdk,
            dpdk_afxdp,
        });
    }
    say(format!("installing {CNITOOL} into {}", bin.display()));
    execute(
        Command::new("go")
            .args(["install", CNITOOL])
            .env("CGO_ENABLED", "0")
            .env("GOBIN", &bin),
    )?;
    Ok(Interop {
        cnitool: Ok(cnitool),
        dpdk,
        dpdk_afxdp,
    })
}

/// Whether there is a Go that can build it; if not, why.
fn go() -> Result<(), String> {
    if !succeeds(Command::new("go").arg("version")) {
        return Err("no Go in PATH".to_owned());
    }
    let version = capture(Command::new("go").args(["env", "GOVERSION"]))
        .map_err(|error| format!("no Go that says its version ({error:#})"))?;
    if is_new_enough(&version) {
        Ok(())
    } else {
        let version = version.trim();
        Err(format!("no Go 1.{GO_MINOR} or newer ({version} is older)"))
    }
}

fn is_new_enough(version: &str) -> bool {
    // A version that is not `go1.x` is a development build.
    minor(version).is_none_or(|minor| minor >= GO_MINOR)
}

/// The x of `go1.x.y`.
fn minor(version: &str) -> Option<u32> {
    let rest = version.trim().strip_prefix("go1.")?;
    let digits = rest.find(|c: char| !c.is_ascii_digit());
    rest.get(..digits.unwrap_or(rest.len()))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_go_too_old_for_libcni_is_recognised() {
        for (version, enough) in [
            ("go1.19.8\n", false),
            ("go1.20", false),
            ("go1.21rc2", true),
            ("go1.26.8", true),
            ("devel +abc Mon", true),
        ] {
            assert_eq!(is_new_enough(version), enough, "{version}");
        }
    }
}
