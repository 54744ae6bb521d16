//! Read the differences of the chart's templates from the manifests.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde::Deserialize;

const TABLE: &str = include_str!("seams.yaml");

/// A difference between a document of the manifests and the chart.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub(super) enum Change {
    /// A value instead of a text in a line.
    Within {
        line: String,
        text: String,
        /// Of the values, as `agent.resources`.
        value: String,
        /// Function of Helm that the value goes through, or none.
        #[serde(default)]
        filter: String,
    },
    /// Another line.
    Line { line: String, with: String },
    /// A value instead of all lines below a key.
    ///
    /// The key is its whole line, as the document has it.
    Block { block: String, value: String },
    /// Lines that are nothing unless a value asks for them.
    After { after: String, insert: String },
    /// Lines that are the same with the values' defaults.
    Lines { lines: String, with: String },
}

/// A template, and the manifest that it is made of.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) source: String,
    /// Condition of its objects in a release; always, when not given.
    #[serde(default = "always", rename = "if")]
    pub(super) condition: String,
    #[serde(default)]
    pub(super) documents: Vec<Document>,
}

/// The one document of a kind in a file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Document {
    pub(super) kind: String,
    #[serde(default)]
    component: String,
    #[serde(default)]
    priority: String,
    #[serde(default)]
    port: u16,
    /// Names of changes that others have too.
    #[serde(default)]
    common: Vec<String>,
    #[serde(default)]
    pub(super) changes: Vec<Change>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    common: BTreeMap<String, Vec<Change>>,
    files: Vec<File>,
}

fn always() -> String {
    "true".to_owned()
}

impl File {
    /// Path of the template in the chart.
    pub(super) fn template(&self) -> String {
        let name = self.source.rsplit('/').next().unwrap_or(&self.source);
        format!("templates/{name}")
    }
}

/// Returns all templates, each document with all of its changes.
///
/// # Errors
/// The table is wrong.
pub(super) fn files() -> Result<Vec<File>> {
    let Table { common, mut files } =
        serde_saphyr::from_str(TABLE).context("reading xtask/src/manifests/chart/seams.yaml")?;
    for document in files.iter_mut().flat_map(|file| &mut file.documents) {
        let mut changes = Vec::new();
        for name in &document.common {
            let named = common
                .get(name)
                .with_context(|| format!("seams.yaml has no changes named {name}"))?;
            changes.extend(named.iter().map(|change| change.of(document)));
        }
        changes.append(&mut document.changes);
        document.changes = changes;
    }
    Ok(files)
}

impl Change {
    /// The change with a document's own words.
    fn of(&self, document: &Document) -> Self {
        let port = document.port.to_string();
        let own = |text: &str| {
            text.replace("COMPONENT", &document.component)
                .replace("PRIORITY", &document.priority)
                .replace("PORT", &port)
        };
        match self {
            Self::Within {
                line,
                text,
                value,
                filter,
            } => Self::Within {
                line: own(line),
                text: own(text),
                value: own(value),
                filter: own(filter),
            },
            Self::Line { line, with } => Self::Line {
                line: own(line),
                with: own(with),
            },
            Self::Block { block, value } => Self::Block {
                block: own(block),
                value: own(value),
            },
            Self::After { after, insert } => Self::After {
                after: own(after),
                insert: own(insert),
            },
            Self::Lines { lines, with } => Self::Lines {
                lines: own(lines),
                with: own(with),
            },
        }
    }
}
