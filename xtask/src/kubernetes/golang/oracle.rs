//! Build engines of others that judge network policies.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::{module, of_one_file};

/// The version of cyclonus.
pub const CYCLONUS: &str = "v0.5.6";
/// The version of kube-network-policies.
const KUBE_NETWORK_POLICIES: &str = "v1.1.1";

/// A program that answers questions about policies with the engine of cyclonus.
///
/// # Errors
/// No Go, no module proxy, or the compiler refuses.
pub fn cyclonus(under: &Path) -> Result<PathBuf> {
    let module = ("github.com/mattfenwick/cyclonus", CYCLONUS, "1.22.0");
    oracle(
        under,
        "cyclonus",
        module,
        include_str!("../policy_oracle.go"),
    )
}

/// A program that answers the same questions with that of kube-network-policies.
///
/// It knows ClusterNetworkPolicy, too.
///
/// # Errors
/// No Go, no module proxy, or the compiler refuses.
pub fn kube_network_policies(under: &Path) -> Result<PathBuf> {
    let module = (
        "sigs.k8s.io/kube-network-policies",
        KUBE_NETWORK_POLICIES,
        "1.26.0",
    );
    let source = include_str!("../kube_network_policies.go");
    oracle(under, "kube-network-policies", module, source)
}

/// Builds a program with a module, and with the others that this was built with.
///
/// Their sums are those of the module: a checksum database does not have each commit that it needs.
fn oracle(
    under: &Path,
    name: &str,
    (path, version, go): (&str, &str, &str),
    source: &str,
) -> Result<PathBuf> {
    let requirement = format!("module podnet.dev/oracle\n\ngo {go}\n\nrequire {path} {version}\n");
    let what = format!("the engine of {name} {version}");
    let dir = under.join(format!("{name}-{version}"));
    let program = dir.join("module");
    if !program.join("go.sum").exists() {
        let sums = fs::read(module(path, version)?.join("go.sum"))
            .with_context(|| format!("reading the sums of {path}"))?;
        fs::create_dir_all(&program).with_context(|| format!("creating {}", program.display()))?;
        fs::write(program.join("go.sum"), sums)?;
    }
    of_one_file(&dir, "oracle", (requirement.as_str(), source), &what)
}
