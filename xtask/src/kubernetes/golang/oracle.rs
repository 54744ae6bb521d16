//! Build an engine of others that judges network policies.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::{complete, go, is_complete};
use crate::step::{execute, say};

/// The engine's version.
const CYCLONUS: &str = "v0.5.6";

/// A program that answers questions about policies with the engine of cyclonus.
///
/// # Errors
/// No Go, no module proxy, or the compiler refuses.
pub fn cyclonus(under: &Path) -> Result<PathBuf> {
    let dir = under.join(format!("cyclonus-{CYCLONUS}"));
    let program = dir.join("oracle");
    if is_complete(&dir) {
        return Ok(program);
    }
    let module = dir.join("module");
    fs::create_dir_all(&module).with_context(|| format!("creating {}", module.display()))?;
    let requirement = format!(
        "module podnet.dev/oracle\n\ngo 1.22.0\n\nrequire github.com/mattfenwick/cyclonus {CYCLONUS}\n"
    );
    fs::write(module.join("go.mod"), requirement)?;
    fs::write(module.join("main.go"), include_str!("../policy_oracle.go"))?;
    say(format!(
        "building the engine of cyclonus {CYCLONUS} from its Go module (2 minutes on two cores)"
    ));
    let mut build = go(&module);
    build
        .args(["build", "-mod=mod", "-buildvcs=false", "-trimpath"])
        .args(["-ldflags", "-s -w", "-o"])
        .arg(&program)
        .arg(".");
    execute(&mut build).context("building the engine of cyclonus")?;
    complete(&dir)?;
    Ok(program)
}
