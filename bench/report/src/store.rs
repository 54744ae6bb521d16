//! Reports as files.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::{FORMAT, Report};

/// Where named runs are kept.
pub fn results() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../results")
}

/// A name that is a file's name and nothing else.
///
/// # Errors
/// It is not; the message says what a name may have.
pub fn check_name(name: &str) -> Result<()> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.starts_with('.') || !name.chars().all(fits) {
        bail!("`{name}` is no name of a run: letters, digits, `-`, `_` and `.`, not first, only");
    }
    Ok(())
}

/// Writes a report.
///
/// # Errors
/// The file cannot be written.
pub fn write(report: &Report, path: &Path) -> Result<()> {
    let mut text = compact(&serde_json::to_string_pretty(report)?);
    text.push('\n');
    put(path, &text)
}

/// Writes a text, making its directory.
///
/// # Errors
/// The file cannot be written.
pub fn put(path: &Path, text: &str) -> Result<()> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
    }
    fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

/// Reads a report.
///
/// # Errors
/// The file cannot be read, is no report, or one of another layout.
pub fn read(path: &Path) -> Result<Report> {
    let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    parse(&text).with_context(|| format!("{} is no report of podnet-bench", path.display()))
}

fn parse(text: &str) -> Result<Report> {
    let report: Report = serde_json::from_str(text)?;
    if report.format != FORMAT {
        bail!(
            "its layout is {}, this harness reads {FORMAT}: measure again",
            report.format
        );
    }
    Ok(report)
}

/// Joins lists of numbers on one line each, as they have thousands of values.
fn compact(pretty: &str) -> String {
    let mut out = String::with_capacity(pretty.len());
    let mut lines = pretty.lines().peekable();
    while let Some(line) = lines.next() {
        out.push_str(line);
        let mut joined = line.ends_with('[');
        while joined {
            let number = |text: &str| {
                let text = text.trim().trim_end_matches(',');
                text == "null" || text.parse::<f64>().is_ok()
            };
            match lines.peek() {
                Some(next) if number(next) => {
                    let next = next.trim();
                    out.push_str(next);
                    if next.ends_with(',') {
                        out.push(' ');
                    }
                }
                Some(next) if next.trim().starts_with(']') => {
                    out.push_str(next.trim());
                    joined = false;
                }
                _ => break,
            }
            lines.next();
        }
        out.push('\n');
    }
    out.truncate(out.trim_end().len());
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::sample;

    #[test]
    fn a_report_is_read_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a").join("run.json");
        write(&sample(), &path).unwrap();
        assert_eq!(read(&path).unwrap(), sample());
    }

    #[test]
    fn the_values_of_a_row_are_on_one_line() {
        let text = compact(&serde_json::to_string_pretty(&sample()).unwrap());
        assert!(text.contains("\"values\": [10.0, 12.0, 11.0],"), "{text}");
        assert!(text.contains("[50.0, 10.0],"), "{text}");
    }

    #[test]
    fn another_layout_is_refused_with_a_way_out() {
        let mut report = sample();
        report.format = 7;
        let text = serde_json::to_string(&report).unwrap();
        let error = format!("{:#}", parse(&text).unwrap_err());
        assert!(
            error.contains("layout is 7") && error.contains("measure again"),
            "{error}"
        );
    }

    #[test]
    fn a_name_cannot_leave_the_directory() {
        for name in ["full", "2026-11-20_debian.a"] {
            check_name(name).unwrap();
        }
        for name in ["", "../x", "a/b", ".hidden", "a b"] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }
}
