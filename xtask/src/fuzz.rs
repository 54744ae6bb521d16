//! `cargo xtask fuzz`: runs the fuzz targets, with the stable compiler.
//!
//! They are built as cargo-fuzz does, and without it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use clap::builder::PossibleValuesParser;

use crate::install::Rustc;
use crate::step::{execute, say};
use crate::workspace;

/// One program of a fuzz crate.
struct Target {
    name: &'static str,
    /// The crate whose folder `fuzz` has it.
    of: &'static str,
    /// Longest input in bytes.
    longest: u32,
}

const TARGETS: [Target; 5] = [
    target("annotations", "crates/api", 8192),
    target("arrivals", "agent-common", 1024),
    target("control", "crates/memif", 8192),
    target("descriptors", "crates/memif", 4096),
    target("input", "crates/cni-spec", 65536),
];

const fn target(name: &'static str, of: &'static str, longest: u32) -> Target {
    Target { name, of, longest }
}

/// Coverage for libFuzzer, and the address sanitizer.
const FLAGS: &str = "--cfg fuzzing -Zsanitizer=address -Ccodegen-units=1 \
    -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Targets to run, one after the other; all when none is named
    #[arg(value_name = "TARGET", value_parser = PossibleValuesParser::new(TARGETS.map(|one| one.name)))]
    targets: Vec<String>,
    /// How long each target runs, in seconds; 0 for not at all
    #[arg(long, value_name = "N", default_value_t = 60)]
    seconds: u32,
    /// Then write the corpora in the repository again: the fewest inputs that reach all
    /// that was reached
    #[arg(long)]
    keep: bool,
}

/// Builds and runs each target, until one has a finding.
pub(crate) fn run(options: &Options) -> Result<()> {
    for target in &TARGETS {
        let named = options.targets.iter().any(|name| name == target.name);
        if !named && !options.targets.is_empty() {
            continue;
        }
        let program = target.build()?;
        if options.seconds > 0 {
            target.fuzz(&program, options.seconds)?;
        }
        if options.keep {
            target.keep(&program)?;
        }
    }
    Ok(())
}

/// Where targets are built, and keep what they find.
fn place() -> PathBuf {
    workspace::target().join("fuzz")
}

impl Target {
    fn folder(&self) -> PathBuf {
        workspace::root().join(self.of).join("fuzz")
    }

    /// The corpus in the repository, which `tests/corpus.rs` of the crate replays.
    fn kept(&self) -> PathBuf {
        self.folder().join("corpus").join(self.name)
    }

    /// The corpus that grows from run to run.
    fn grown(&self) -> PathBuf {
        place().join("corpus").join(self.name)
    }

    fn build(&self) -> Result<PathBuf> {
        let host = format!("{}-unknown-linux-gnu", Rustc::query()?.arch);
        say(format!("building the fuzz target {}", self.name));
        execute(
            workspace::cargo(["build", "--release", "--bin", self.name])
                .args(["--target", &host, "--target-dir"])
                .arg(place())
                .current_dir(self.folder())
                // The flags are those of a nightly compiler.
                .env("RUSTC_BOOTSTRAP", "1")
                .env("RUSTFLAGS", FLAGS),
        )?;
        Ok(place().join(host).join("release").join(self.name))
    }

    fn fuzz(&self, program: &Path, seconds: u32) -> Result<()> {
        let (grown, findings) = (self.grown(), place().join("artifacts"));
        for dir in [&grown, &findings] {
            fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
        }
        let prefix = format!("{}-", findings.join(self.name).display());
        execute(
            Command::new(program)
                .arg(format!("-max_total_time={seconds}"))
                .arg(format!("-max_len={}", self.longest))
                .args(["-timeout=20", "-rss_limit_mb=3000", "-print_final_stats=1"])
                .arg(format!("-artifact_prefix={prefix}"))
                .args([&grown, &self.kept()]),
        )
        .with_context(|| format!("{}: the input is in {}", self.name, findings.display()))
    }

    /// Whatever reaches a place that another input reaches already is left out.
    fn keep(&self, program: &Path) -> Result<()> {
        let (kept, draft) = (self.kept(), place().join("kept").join(self.name));
        for dir in [&kept, &self.grown()] {
            fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
        }
        empty(&draft)?;
        execute(
            Command::new(program)
                .args(["-set_cover_merge=1", "-use_counters=0"])
                .arg(format!("-max_len={}", self.longest))
                .args([&draft, &self.grown(), &kept]),
        )?;
        empty(&kept)?;
        let inputs = fs::read_dir(&draft).with_context(|| format!("{}", draft.display()))?;
        for input in inputs {
            let input = input.with_context(|| format!("{}", draft.display()))?;
            let path = kept.join(input.file_name());
            fs::copy(input.path(), &path).with_context(|| format!("writing {}", path.display()))?;
        }
        Ok(())
    }
}

fn empty(dir: &Path) -> Result<()> {
    if dir.exists() {
        fs::remove_dir_all(dir).with_context(|| format!("removing {}", dir.display()))?;
    }
    fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_is_in_its_crate_and_has_a_corpus() {
        for target in &TARGETS {
            let source = target.folder().join("fuzz_targets").join(target.name);
            assert!(source.with_extension("rs").exists(), "{}", target.name);
            let replay = target.folder().join("../tests/corpus.rs");
            let replay = fs::read_to_string(replay).unwrap();
            assert!(replay.contains(&format!("\"{}\"", target.name)));
            assert!(fs::read_dir(target.kept()).unwrap().next().is_some());
        }
    }
}
