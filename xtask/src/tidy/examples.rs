//! Find examples that no test runs, and libraries without any that are searched.
//!
//! Each library that cargo looks for examples in takes a second of every test run.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Line of a manifest by which cargo looks for no examples.
const OFF: &str = "doctest = false";
/// Blocks of code that rustdoc does not take for Rust.
const NO_RUST: [&str; 5] = ["text", "sh", "yaml", "console", "json"];
/// The same, and Rust that is compiled at most.
const UNTRIED: [&str; 6] = ["text", "sh", "yaml", "console", "json", "no_run"];

/// Lists libraries with examples that are off, and without any that are on.
pub(super) fn check(root: &Path, files: &[(String, String)]) -> Vec<String> {
    let libraries = files
        .iter()
        .filter_map(|(name, _)| name.strip_suffix("/src/lib.rs"));
    let libraries = libraries.filter_map(|package| {
        let manifest = fs::read_to_string(root.join(package).join("Cargo.toml")).ok()?;
        Some((package, manifest))
    });
    findings(&libraries.collect(), files)
}

fn findings(libraries: &BTreeMap<&str, String>, files: &[(String, String)]) -> Vec<String> {
    let all = libraries.iter().filter_map(|(package, manifest)| {
        let own = format!("{package}/src/");
        let mut sources = files.iter().filter(|(name, _)| name.starts_with(&own));
        if manifest.lines().any(|line| line.trim() == OFF) {
            let (name, _) = sources.find(|(_, text)| has_example(text, &UNTRIED))?;
            Some(format!(
                "{package}/Cargo.toml: {name} has an example, which no test runs: remove `{OFF}`"
            ))
        } else {
            let searched = sources.any(|(_, text)| has_example(text, &NO_RUST));
            (!searched).then(|| {
                format!(
                    "{package}/Cargo.toml: no file of the library has an example: write `{OFF}` below [lib]"
                )
            })
        }
    });
    all.collect()
}

/// True when documentation has a block of code of another kind than these.
fn has_example(text: &str, other: &[&str]) -> bool {
    let lines = text.lines().map(str::trim_start);
    let lines = lines.filter_map(|it| it.strip_prefix("///").or(it.strip_prefix("//!")));
    let mut inside = false;
    for line in lines {
        let Some(kind) = line.trim().strip_prefix("```") else {
            continue;
        };
        if !inside && !other.contains(&kind) {
            return true;
        }
        inside = !inside;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(manifest: &str, text: &str) -> Vec<String> {
        let files = [("crates/a/src/b.rs".to_owned(), text.to_owned())];
        findings(&[("crates/a", manifest.to_owned())].into(), &files)
    }

    #[test]
    fn an_example_is_run_and_a_library_without_one_is_not_looked_through() {
        let off = "[lib]\ndoctest = false\n";
        let example = "/// Adds.\n///\n/// ```\n/// a();\n/// ```\nfn a() {}\n";
        let picture = "//! ```text\n//! a -> b\n//! ```\nfn a() {}\n";
        assert_eq!(found(off, picture), [""; 0]);
        assert_eq!(found("", example), [""; 0]);
        let untried = example.replacen("```", "```no_run", 1);
        assert_eq!(found("", &untried), [""; 0], "it is compiled");
        assert_eq!(found(off, &untried), [""; 0], "of a library of tests");
        let [lost] = &found(off, example)[..] else {
            panic!("one finding");
        };
        assert!(lost.contains("crates/a/src/b.rs"), "{lost}");
        let [idle] = &found("[lib]\n", picture)[..] else {
            panic!("one finding");
        };
        assert!(idle.contains("crates/a/Cargo.toml"), "{idle}");
    }
}
