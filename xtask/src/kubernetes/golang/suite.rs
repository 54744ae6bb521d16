//! Build Kubernetes' own end-to-end tests, and the name server that they expect.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::{
    KUBERNETES, complete, go, go_mod, is_complete, of_one_file, source, staging_modules,
    version_flags,
};
use crate::step::{execute, say};

/// The release that `kubeadm` of this Kubernetes installs.
pub const COREDNS: &str = "v1.14.2";
/// The tests, as `go test -c` calls them.
pub const TESTS: &str = "e2e.test";
/// The program that runs them, several at a time.
pub const RUNNER: &str = "ginkgo";
/// The server, client and prober that their pods are made of.
pub const AGNHOST: &str = "agnhost";

/// A directory with the tests, their runner, and the program of their pods.
///
/// # Errors
/// No Go, no module proxy, or the compiler refuses.
pub fn tests(under: &Path) -> Result<PathBuf> {
    let dir = under.join(format!("e2e-{KUBERNETES}"));
    if is_complete(&dir) {
        return Ok(dir);
    }
    let module = dir.join("module");
    fs::create_dir_all(&module).with_context(|| format!("creating {}", module.display()))?;
    // The requirement of Kubernetes brings the runner in the version that its tests are made for.
    fs::write(module.join("go.mod"), go_mod(&staging_modules(&source()?)?))?;
    say(format!(
        "building the tests of Kubernetes {KUBERNETES} from its Go module (6 minutes on two cores, \
         2 GiB)"
    ));
    let flags = version_flags();
    let common = ["-mod=mod", "-buildvcs=false", "-trimpath", "-ldflags"];
    let mut build = go(&module);
    build
        .arg("build")
        .args(common)
        .arg(&flags)
        .arg("-o")
        .arg(&dir)
        .arg("github.com/onsi/ginkgo/v2/ginkgo")
        .arg("k8s.io/kubernetes/test/images/agnhost");
    execute(&mut build).context("building what the tests need")?;
    let mut build = go(&module);
    build
        .args(["test", "-c"])
        .args(common)
        .arg(&flags)
        .arg("-o")
        .arg(dir.join(TESTS))
        .arg("k8s.io/kubernetes/test/e2e");
    execute(&mut build).context("building the tests of Kubernetes")?;
    complete(&dir)
}

/// CoreDNS with the plugins that a cluster needs.
///
/// # Errors
/// As [`tests`].
pub fn coredns(under: &Path) -> Result<PathBuf> {
    let requirement = format!(
        "module podnet.dev/coredns\n\ngo 1.25.0\n\nrequire github.com/coredns/coredns {COREDNS}\n"
    );
    let sources = (requirement.as_str(), include_str!("../coredns.go"));
    let what = format!("CoreDNS {COREDNS}");
    of_one_file(
        &under.join(format!("coredns-{COREDNS}")),
        "coredns",
        sources,
        &what,
    )
}
