//! `cargo xtask tidy`: rules of this repository that rustc and clippy cannot check.

mod arrows;
mod examples;
mod layers;
mod rooms;
mod size;
mod tokens;
mod words;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::conformance;
use crate::crdgen;
use crate::manifests;
use crate::matrix;
use crate::step::say;
use crate::workspace;

/// A file longer than this is worth a second look.
const LINES_WARN: usize = 400;
/// A file longer than this has two jobs.
const LINES_MAX: usize = 600;

/// The only files that may hold an `unsafe` block, function or impl.
const UNSAFE_FILES: [&str; 20] = [
    "agent/src/heap.rs",
    "agent-ebpf/src/maps.rs",
    "agent-ebpf/src/maps/flows.rs",
    "agent-ebpf/src/maps/guard.rs",
    "agent-ebpf/src/maps/services.rs",
    "agent-ebpf/src/maps/sealed.rs",
    "agent-ebpf/src/skb.rs",
    "agent-ebpf/src/skb/route.rs",
    "agent-ebpf/src/skb/translate.rs",
    "agent-ebpf/src/skb/tunnel.rs",
    "agent-ebpf/src/tap.rs",
    "agent-ebpf/src/xdp.rs",
    "crates/datapath/src/pod.rs",
    "crates/memif/src/shm/region.rs",
    "crates/memif/src/shm/ring.rs",
    "crates/netdev/src/netns/of_socket.rs",
    "crates/netdev/src/tap.rs",
    "crates/ways/src/words.rs",
    "crates/xsk/src/shm.rs",
    "crates/xsk/src/umem.rs",
];

/// Macros that say "not done".
const UNFINISHED: [&str; 2] = ["todo", "unimplemented"];

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Write the generated files again instead of comparing them
    #[arg(long)]
    bless: bool,
    /// List first lines of documentation and errors whose words are not in order
    #[arg(long)]
    words: bool,
}

/// Checks everything, or with `--bless` first writes the generated files again.
pub(crate) fn run(options: &Options) -> Result<()> {
    if options.bless {
        crdgen::run(&crdgen::Options {})?;
        manifests::run(&manifests::Options {})?;
        conformance::run(&conformance::Options {})?;
        matrix::write()?;
    }
    if options.words {
        let (_, words) = read(&workspace::root())?;
        words.places().for_each(|place| println!("{place}"));
    }
    check()
}

/// Reads all Rust files: names and texts, and faults of first lines of docs.
fn read(root: &Path) -> Result<(Vec<(String, String)>, words::Count)> {
    let (mut files, mut texts, mut words) = (Vec::new(), Vec::new(), words::Count::default());
    rust_files(root, &mut files)?;
    for file in &files {
        let text =
            fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
        let name = file.strip_prefix(root).unwrap_or(file).to_string_lossy();
        words.add(&name, &text);
        texts.push((name.into_owned(), text));
    }
    Ok((texts, words))
}

/// Checks everything and prints every finding, not only the first.
///
/// # Errors
/// There was a finding.
pub(crate) fn check() -> Result<()> {
    let root = workspace::root();
    let mut findings = Vec::new();
    let (files, words) = read(&root)?;
    for (name, text) in &files {
        if let Some(warning) = inspect(name, text, &mut findings) {
            say(format!("tidy: warning: {warning}"));
        }
    }
    say(format!("tidy: {}", words.summary()));
    let largest = size::largest(&files, 3);
    let largest = largest
        .iter()
        .map(|(room, lines)| format!("{room} ({lines})"));
    say(format!(
        "tidy: largest rooms, lines without tests: {}",
        largest.collect::<Vec<_>>().join(", ")
    ));
    findings.extend(words.findings());
    findings.extend(rooms::check(&files));
    findings.extend(examples::check(&root, &files));
    let packages = workspace::packages()?;
    findings.extend(layers::check(&packages));
    findings.extend(layers::dead_rules(&packages));
    findings.extend(manifests::check()?);
    findings.extend(conformance::check()?);
    findings.extend(matrix::check()?);
    for finding in &findings {
        say(format!("tidy: {finding}"));
    }
    if !findings.is_empty() {
        bail!("tidy has {} findings", findings.len());
    }
    say(format!("tidy: {} files are in order", files.len()));
    Ok(())
}

/// Looks at one Rust file; returns a warning that is no finding yet.
fn inspect(name: &str, text: &str, findings: &mut Vec<String>) -> Option<String> {
    let lines = text.lines().count();
    let is_generated = text.lines().take(3).any(|line| line.contains("@generated"));
    let too_long = lines > LINES_MAX && !is_generated;
    if too_long {
        findings.push(format!(
            "{name}: {lines} lines, the limit is {LINES_MAX}: split it"
        ));
    }
    let code = tokens::code_only(text);
    if !UNSAFE_FILES.contains(&name) {
        for line in tokens::unsafe_lines(&code) {
            findings.push(format!(
                "{name}:{line}: `unsafe` outside the files listed in xtask/src/tidy.rs"
            ));
        }
    }
    if name.contains("/src/") {
        for line in tokens::open_tests_lines(&code) {
            findings.push(format!(
                "{name}:{line}: `mod tests` without `#[cfg(test)]` above it: no rule looks into files of this name"
            ));
        }
    }
    if name.starts_with("agent/src/") {
        for line in tokens::moved_files_lines(&code) {
            findings.push(format!(
                "{name}:{line}: a file from another place: put it where its module's name says, which the rules of rooms read"
            ));
        }
    }
    for unfinished in UNFINISHED {
        for line in tokens::macro_lines(&code, unfinished) {
            findings.push(format!("{name}:{line}: `{unfinished}!` left in the code"));
        }
    }
    (lines > LINES_WARN && !too_long && !is_generated)
        .then(|| format!("{name}: {lines} lines, more than {LINES_WARN}"))
}

/// Lists all `.rs` files of the repository, sorted.
///
/// Build output and hidden directories are left out.
pub(crate) fn rust_files(dir: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let mut entries: Vec<PathBuf> = fs::read_dir(dir)
        .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect())
        .with_context(|| format!("reading {}", dir.display()))?;
    entries.sort();
    for path in entries {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            // A directory with CACHEDIR.TAG is cargo's, whatever its name.
            let hidden = name.starts_with('.') || path.join("CACHEDIR.TAG").exists();
            if !hidden && !path.is_symlink() {
                rust_files(&path, files)?;
            }
        } else if name.ends_with(".rs") {
            files.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(name: &str, text: &str) -> Vec<String> {
        let mut findings = Vec::new();
        inspect(name, text, &mut findings);
        findings
    }

    #[test]
    fn unsafe_is_found_only_outside_the_listed_files() {
        let text = "fn f() {\n    unsafe { g() }\n}\n";
        assert_eq!(findings("crates/datapath/src/pod.rs", text), [""; 0]);
        let found = findings("agent/src/run.rs", text);
        assert!(
            found[0].starts_with("agent/src/run.rs:2: `unsafe`"),
            "{found:?}"
        );
    }

    #[test]
    fn a_file_over_the_limit_is_found_and_one_near_it_is_warned_about() {
        let long = "\n".repeat(LINES_MAX + 1);
        assert_eq!(findings("a.rs", &long).len(), 1);
        let near = "\n".repeat(LINES_WARN + 1);
        let mut none = Vec::new();
        assert!(
            inspect("a.rs", &near, &mut none)
                .unwrap()
                .contains("401 lines")
        );
        assert!(none.is_empty());
    }

    #[test]
    fn a_generated_file_may_be_long() {
        let text = format!("// @generated\n{}", "\n".repeat(LINES_MAX + 1));
        assert_eq!(findings("a.rs", &text), [""; 0]);
    }

    #[test]
    fn code_where_no_rule_looks_is_found() {
        let text = "pub mod tests;\n#[path = \"../node.rs\"]\nmod other;\n";
        let found = findings("agent/src/attach.rs", text);
        assert!(found[0].contains("attach.rs:1: `mod tests`"), "{found:?}");
        assert!(found[1].contains("attach.rs:2: a file from"), "{found:?}");
        assert_eq!(findings("agent/tests/docs.rs", text), [""; 0]);
    }

    #[test]
    fn unfinished_code_is_found() {
        let text = format!("fn f() {{\n    {}!()\n}}\n", "todo");
        assert!(findings("a.rs", &text)[0].contains("a.rs:2"));
    }

    #[test]
    fn the_files_of_this_repository_are_seen() {
        let mut files = Vec::new();
        rust_files(&workspace::root(), &mut files).unwrap();
        assert!(files.iter().any(|file| file.ends_with("xtask/src/tidy.rs")));
        assert!(
            !files
                .iter()
                .any(|file| file.starts_with(workspace::target()))
        );
    }
}
