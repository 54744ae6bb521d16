//! Documents that are made from the run of the current version.

use std::path::{Path, PathBuf};
use std::{fs, io};

use anyhow::{Context, Result, bail};

use super::{Report, highlights, picture, store, tables};

const BEGIN: &str = "<!-- bench:begin -->";
const END: &str = "<!-- bench:end -->";
/// The run of `cargo xtask bench --name bars`, in bench/results.
///
/// It has the cases of [`super::bars::CASES`], all of one commit, whatever the other run is of.
const BARS: &str = "bars.json";

/// A generated document.
#[derive(Debug)]
pub struct Document {
    /// Place in the repository.
    pub path: &'static str,
    /// Content as it should be.
    pub text: String,
}

/// Every document with the figures of the only run in bench/results.
///
/// # Errors
/// There is no run there or more than one, or a document has no place for its figures.
pub fn documents() -> Result<Vec<Document>> {
    let report = current()?;
    let bars = bars()?;
    let filled = |path: &'static str, section: &str| {
        let now = root().join(path);
        let now = fs::read_to_string(&now).with_context(|| format!("reading {}", now.display()))?;
        let text = fill(&now, section).with_context(|| format!("{path} cannot take figures"))?;
        anyhow::Ok(Document { path, text })
    };
    Ok(vec![
        filled("README.md", &highlights::readme(&report))?,
        filled(
            "docs/performance.md",
            &tables::markdown(&report, bars.as_ref()),
        )?,
        Document {
            path: "docs/performance.svg",
            text: picture::svg(&report),
        },
    ])
}

/// Writes the documents that are not as they should be; returns their places.
///
/// # Errors
/// As [`documents`], or a file cannot be written.
pub fn bless() -> Result<Vec<&'static str>> {
    let mut written = Vec::new();
    for document in stale()? {
        store::put(&root().join(document.path), &document.text)?;
        written.push(document.path);
    }
    Ok(written)
}

/// The documents that are not as they should be.
///
/// # Errors
/// As [`documents`], or a file cannot be read.
pub fn stale() -> Result<Vec<Document>> {
    let mut stale = documents()?;
    let mut failed = None;
    stale.retain(
        |document| match fs::read_to_string(root().join(document.path)) {
            Ok(text) => text != document.text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => true,
            Err(error) => {
                failed =
                    Some(anyhow::Error::from(error).context(format!("reading {}", document.path)));
                false
            }
        },
    );
    failed.map_or(Ok(stale), Err)
}

/// The run of the current version.
///
/// # Errors
/// bench/results has no run or more than one, or it cannot be read.
pub fn current() -> Result<Report> {
    let results = store::results();
    let entries =
        fs::read_dir(&results).with_context(|| format!("reading {}", results.display()))?;
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<io::Result<_>>()
        .with_context(|| format!("reading {}", results.display()))?;
    files.retain(|file| file.file_name().is_none_or(|name| name != BARS));
    files.sort();
    match &files[..] {
        [file] => store::read(file),
        _ => bail!(
            "bench/results has {} files beside {BARS}: keep the JSON of the current version's run and nothing else",
            files.len()
        ),
    }
}

/// The run that bars are judged by, if there is one.
fn bars() -> Result<Option<Report>> {
    let path = store::results().join(BARS);
    path.exists().then(|| store::read(&path)).transpose()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn fill(document: &str, section: &str) -> Result<String> {
    let parts = document
        .split_once(BEGIN)
        .and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let Some((before, after)) = parts else {
        bail!("there is no section between {BEGIN} and {END}");
    };
    Ok(format!("{before}{BEGIN}\n{section}{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const README: &str = "# podnet\n\n<!-- bench:begin -->\nold\n<!-- bench:end -->\n\nMore.\n";

    #[test]
    fn only_what_is_between_the_markers_is_replaced() {
        let text = fill(README, "\nnew\n\n").unwrap();
        assert_eq!(
            text,
            "# podnet\n\n<!-- bench:begin -->\n\nnew\n\n<!-- bench:end -->\n\nMore.\n"
        );
        assert_eq!(fill(&text, "\nnew\n\n").unwrap(), text, "stable");
    }

    #[test]
    fn a_document_without_markers_is_an_error() {
        let error = fill("# podnet\n", "").unwrap_err();
        assert!(error.to_string().contains(BEGIN), "{error}");
    }
}
