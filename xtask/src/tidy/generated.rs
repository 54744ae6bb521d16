//! Files that the code writes: each must be what its command prints now.

use std::fs;

use anyhow::{Context, Result};

use crate::step::{capture, say};
use crate::workspace;

/// A file and the `cargo` arguments that print its content to standard output.
struct Generated {
    file: &'static str,
    command: &'static [&'static str],
}

/// Every generated file of the repository.
const FILES: &[Generated] = &[Generated {
    file: "README.md",
    // The tables of the run that the README names.
    command: &[
        "run",
        "--quiet",
        "--package",
        "bench",
        "--bin",
        "podnet-bench",
        "--",
        "readme",
    ],
}];

/// One line for each file that is not what its command prints.
pub(crate) fn check() -> Result<Vec<String>> {
    let mut findings = Vec::new();
    for generated in FILES {
        let now = content(generated)?;
        let file = workspace::root().join(generated.file);
        if fs::read_to_string(&file).unwrap_or_default() != now {
            findings.push(format!(
                "{}: stale, run `cargo xtask tidy --bless`",
                generated.file
            ));
        }
    }
    Ok(findings)
}

/// Writes every generated file anew.
pub(crate) fn bless() -> Result<()> {
    for generated in FILES {
        let now = content(generated)?;
        let file = workspace::root().join(generated.file);
        fs::write(&file, now).with_context(|| format!("writing {}", file.display()))?;
        say(format!("wrote {}", generated.file));
    }
    Ok(())
}

fn content(generated: &Generated) -> Result<String> {
    capture(&mut workspace::cargo(generated.command))
        .with_context(|| format!("generating {}", generated.file))
}
