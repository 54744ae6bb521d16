//! Build an engine of others that judges network policies.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::of_one_file;

/// The engine's version.
const CYCLONUS: &str = "v0.5.6";

/// A program that answers questions about policies with the engine of cyclonus.
///
/// # Errors
/// No Go, no module proxy, or the compiler refuses.
pub fn cyclonus(under: &Path) -> Result<PathBuf> {
    let requirement = format!(
        "module podnet.dev/oracle\n\ngo 1.22.0\n\nrequire github.com/mattfenwick/cyclonus {CYCLONUS}\n"
    );
    let sources = (requirement.as_str(), include_str!("../policy_oracle.go"));
    let what = format!("the engine of cyclonus {CYCLONUS}");
    of_one_file(
        &under.join(format!("cyclonus-{CYCLONUS}")),
        "oracle",
        sources,
        &what,
    )
}
