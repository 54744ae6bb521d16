//! Report a configuration: options, files, objects, a line for each field.

use std::fmt::{self, Write as _};

use serde::Serialize;
use serde_json::Value;

use crate::read::is_hostile;

/// Result of an import.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Options of `podnet-agent run`, and of `webhook` and `controller` as well.
    pub options: Vec<String>,
    /// Options of `podnet-agent run` alone.
    pub agent_options: Vec<String>,
    /// Files that the node needs.
    pub files: Vec<File>,
    /// Objects that the cluster needs, to be applied as they are.
    pub objects: Vec<Value>,
    /// A line for each field, in the order of the input.
    ///
    /// Then defaults of Multus that podnet does not share, and definitions.
    pub findings: Vec<Finding>,
}

/// A file to write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct File {
    /// Its path on the node.
    pub path: String,
    /// Its content.
    pub text: String,
}

/// The fate of one field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Path of the field, as written.
    pub field: String,
    /// The value, shortened.
    pub value: String,
    /// Its fate.
    pub outcome: Outcome,
    /// The counterpart, the step to take, or why there is none.
    pub text: String,
}

/// Fate of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// An option, a file or an object of the report says the same.
    Carried,
    /// podnet does so without any option, or Multus itself does nothing with it.
    NeedsNothing,
    /// The text names a step that this program cannot take.
    ByHand,
    /// podnet has no counterpart.
    NotCarried,
}

impl Outcome {
    /// The words of the report.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Carried => "carried over",
            Self::NeedsNothing => "needs nothing",
            Self::ByHand => "by hand",
            Self::NotCarried => "not carried",
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Report {
    /// Counts the findings of one fate.
    #[must_use]
    pub fn count(&self, outcome: Outcome) -> usize {
        let found = self.findings.iter();
        found.filter(|finding| finding.outcome == outcome).count()
    }
}

/// Writes a JSON text with escapes for what a terminal would not show as it is.
///
/// Outside of strings JSON has no such characters but white space, which inside is escaped already.
fn escaped(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for character in json.chars() {
        if matches!(character, '\n' | '\t') || !is_hostile(character) {
            out.push(character);
        } else if character == '\r' {
            out.push(' ');
        } else {
            for unit in character.encode_utf16(&mut [0; 2]) {
                // Writing to a string cannot fail.
                let _ = write!(out, "\\u{unit:04x}");
            }
        }
    }
    out
}

/// Leaves out what could end a line or be shown as something else.
fn harmless(text: &str) -> String {
    text.chars().filter(|it| !is_hostile(*it)).collect()
}

impl fmt::Display for Report {
    /// Writes the report for people; a line that is no comment can be used as it is.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "# Options of podnet-agent run, the same for webhook and controller"
        )?;
        for option in &self.options {
            writeln!(f, "{option}")?;
        }
        if !self.agent_options.is_empty() {
            writeln!(f, "\n# Options of podnet-agent run alone")?;
            for option in &self.agent_options {
                writeln!(f, "{option}")?;
            }
        }
        for file in &self.files {
            writeln!(f, "\n# File {}", file.path)?;
            writeln!(f, "{}", escaped(&file.text))?;
        }
        for object in &self.objects {
            writeln!(f, "\n# Object, for kubectl apply -f")?;
            writeln!(f, "{}", escaped(&format!("{object:#}")))?;
        }
        writeln!(f, "\n# Fields")?;
        for finding in &self.findings {
            let Finding {
                field,
                value,
                outcome,
                text,
            } = finding;
            writeln!(f, "# {outcome:<13} {field}: {value}")?;
            writeln!(f, "#               {}", harmless(text))?;
        }
        let all = [
            Outcome::Carried,
            Outcome::NeedsNothing,
            Outcome::ByHand,
            Outcome::NotCarried,
        ];
        let counts = all.map(|outcome| format!("{} {outcome}", self.count(outcome)));
        write!(f, "# {} fields: {}", self.findings.len(), counts.join(", "))
    }
}
