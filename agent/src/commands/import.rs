//! `import-multus`: reads the files, and prints what `multus` makes of them.

use std::fs::OpenOptions;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use multus::{Definitions, TEXT_MAX};
use rustix::fs::OFlags;

use super::dialogue::{Failure, print};
use crate::cli::{ImportOptions, Output};

/// Prints options for a configuration of Multus, and a line for each field.
///
/// # Errors
/// When a file cannot be read, or is not of Multus.
pub fn import(options: &ImportOptions) -> Result<(), Failure> {
    let mut definitions = Definitions::default();
    for file in &options.definitions {
        definitions.add(&file.display().to_string(), &text(file)?)?;
    }
    let report = multus::import(&text(&options.file)?, &definitions)
        .map_err(|error| format!("{}: {error}", options.file.display()))?;
    print(&match options.output {
        Output::Json => serde_json::to_string_pretty(&report)?,
        Output::Table => report.to_string(),
    })
}

/// Reads the text of a regular file, up to the limit.
///
/// A pipe could have no end, or no writer.
fn text(path: &Path) -> Result<String, Failure> {
    let name = path.display();
    let wrong = |error| format!("cannot read {name}: {error}; give the path of a file of Multus");
    // What was opened is what is looked at, and the opening of a pipe waits for no writer.
    let nonblock = OFlags::NONBLOCK.bits().cast_signed();
    let mut options = OpenOptions::new();
    let file = options
        .read(true)
        .custom_flags(nonblock)
        .open(path)
        .map_err(wrong)?;
    if !file.metadata().map_err(wrong)?.is_file() {
        return Err(
            format!("{name} is not a regular file; give the path of a file of Multus").into(),
        );
    }
    let mut bytes = Vec::new();
    file.take(TEXT_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(wrong)?;
    if bytes.len() as u64 > TEXT_MAX {
        return Err(format!(
            "{name} is longer than {TEXT_MAX} bytes, the most that is read of one file: give definitions in several files, \
             each with its own --definitions"
        )
        .into());
    }
    String::from_utf8(bytes)
        .map_err(|error| format!("{name} is no text in UTF-8: {error}; correct that byte").into())
}
