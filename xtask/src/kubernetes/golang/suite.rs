//! Build tests of clusters that others wrote, and the name server that they expect.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::oracle::CYCLONUS;
use super::{
    KUBERNETES, build_from, complete, go, go_mod, is_complete, module, of_one_file, source,
    staging_modules, version_flags,
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

/// The version of the tests of ClusterNetworkPolicy, and of the API that they use.
pub const NETWORK_POLICY_API: &str = "v0.2.0";
/// Its module.
const NETWORK_POLICY_API_MODULE: &str = "sigs.k8s.io/network-policy-api";

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

/// The program of the pods alone, for tests that are not Kubernetes' own.
///
/// # Errors
/// As [`tests`].
pub fn agnhost(under: &Path) -> Result<PathBuf> {
    let all = under.join(format!("e2e-{KUBERNETES}"));
    if is_complete(&all) {
        return Ok(all.join(AGNHOST));
    }
    let dir = under.join(format!("{AGNHOST}-{KUBERNETES}"));
    if is_complete(&dir) {
        return Ok(dir.join(AGNHOST));
    }
    let module = dir.join("module");
    fs::create_dir_all(&module).with_context(|| format!("creating {}", module.display()))?;
    fs::write(module.join("go.mod"), go_mod(&staging_modules(&source()?)?))?;
    say(format!(
        "building {AGNHOST} of Kubernetes {KUBERNETES} from its Go module"
    ));
    let mut build = go(&module);
    build
        .args(["build", "-mod=mod", "-buildvcs=false", "-trimpath"])
        .args(["-ldflags", &version_flags(), "-o"])
        .arg(dir.join(AGNHOST))
        .arg("k8s.io/kubernetes/test/images/agnhost");
    execute(&mut build).with_context(|| format!("building {AGNHOST}"))?;
    complete(&dir)?;
    Ok(dir.join(AGNHOST))
}

/// The commands of the pods' program that cyclonus needs.
///
/// It starts in a tenth of the time.
///
/// # Errors
/// As [`tests`].
pub fn agnhost_connect(under: &Path) -> Result<PathBuf> {
    let requirement = go_mod(&staging_modules(&source()?)?);
    of_one_file(
        &under.join(format!("{AGNHOST}-connect-{KUBERNETES}")),
        AGNHOST,
        (&requirement, include_str!("../agnhost_connect.go")),
        &format!("some commands of {AGNHOST} of Kubernetes {KUBERNETES}"),
    )
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

/// Builds the tests of ClusterNetworkPolicy, and returns the program.
///
/// # Errors
/// As [`tests`].
pub fn network_policy_api(under: &Path) -> Result<PathBuf> {
    let dir = under.join(format!("network-policy-api-{NETWORK_POLICY_API}"));
    let program = dir.join("conformance.test");
    if is_complete(&dir) {
        return Ok(program);
    }
    let source = network_policy_api_source()?;
    fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
    say(format!(
        "building the tests of network-policy-api {NETWORK_POLICY_API} from its Go module \
         (2 minutes on two cores)"
    ));
    let mut build = go(&source);
    build
        .args([
            "test",
            "-c",
            "-mod=readonly",
            "-buildvcs=false",
            "-trimpath",
        ])
        .args(["-ldflags", "-s -w", "-o"])
        .arg(&program)
        .arg("./conformance");
    execute(&mut build).context("building the tests of network-policy-api")?;
    complete(&dir)?;
    Ok(program)
}

/// The source of these tests: definitions of the API, manifests, names.
///
/// # Errors
/// No Go, no module proxy.
pub fn network_policy_api_source() -> Result<PathBuf> {
    module(NETWORK_POLICY_API_MODULE, NETWORK_POLICY_API)
}

/// Place and text of cyclonus' switch for batches, and the text in its place.
///
/// Its option for batches is commented out. Without batches each of 324 connections of a step is an `exec` by the
/// API server. A case took 30 to 35 s so; with batches 31 s, and with [`agnhost_connect`] 18 s, most
/// of which are waits.
const BATCHES: (&str, &str, &str) = (
    "pkg/cli/generate.go",
    "batchJobs := false // args.BatchJobs",
    "batchJobs := true",
);

/// Builds cyclonus, which asks each pod once for all its connections.
///
/// Returns a directory with `cyclonus`, and `worker` for its pods.
///
/// # Errors
/// As [`tests`], or its source is not as expected.
pub fn cyclonus(under: &Path) -> Result<PathBuf> {
    let name = ("github.com/mattfenwick/cyclonus", CYCLONUS);
    // Without the suffix it is the directory of its engine.
    let dir = under.join(format!("cyclonus-{CYCLONUS}-batches"));
    if is_complete(&dir) {
        return Ok(dir);
    }
    fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
    // Files of the cache of modules cannot be replaced.
    let source = dir.join("source");
    fs::create_dir_all(&source).with_context(|| format!("creating {}", source.display()))?;
    execute(
        Command::new("cp")
            .args(["--recursive", "--no-preserve=mode", "--no-target-directory"])
            .arg(module(name.0, name.1)?)
            .arg(&source),
    )?;
    let (file, one_by_one, batches) = BATCHES;
    let path = source.join(file);
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    if text.matches(one_by_one).count() != 1 {
        bail!(
            "{} has no line `{one_by_one}`: see how this version of cyclonus is told to work in batches",
            path.display()
        );
    }
    fs::write(&path, text.replace(one_by_one, batches))
        .with_context(|| format!("writing {}", path.display()))?;
    build_from(
        &source,
        &dir,
        name,
        &["-ldflags", "-s -w"],
        &["./cmd/cyclonus", "./cmd/worker"],
    )
}
