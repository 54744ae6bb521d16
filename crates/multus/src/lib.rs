//! Read a configuration of Multus, and say what it is in podnet's words.
//!
//! The job: from the text of `00-multus.conf` or of the daemon's `daemon-config.json`, and of
//! NetworkAttachmentDefinitions where the default network is one, make podnet's options, files and objects, and a
//! line for each field: carried over, needs nothing, by hand, or not carried and why. No key is passed over in
//! silence, known or not.
//!
//! Refuses to know: where texts come from, and what is on the node. No IO at all.
//!
//! ```
//! let text = r#"{"type": "multus", "clusterNetwork": "/etc/cni/net.d", "namespaceIsolation": true, "mood": 1}"#;
//! let report = multus::import(text, &multus::Definitions::default())?;
//! let options: Vec<&str> = report.options.iter().map(String::as_str).collect();
//! assert!(options.contains(&"--namespace-isolation"));
//! let mood = report.findings.iter().find(|finding| finding.field == "mood").unwrap();
//! assert_eq!(mood.outcome, multus::Outcome::NotCarried);
//! # Ok::<(), multus::ImportError>(())
//! ```

mod default_network;
mod definitions;
mod error;
mod fields;
mod import;
mod read;
mod report;
#[cfg(test)]
mod tests;

pub use definitions::Definitions;
pub use error::ImportError;
pub use fields::{FIELDS, Field, Kind};
pub use import::import;
pub use report::{File, Finding, Outcome, Report};

/// Most bytes of one text that is read.
///
/// A configuration has some hundred, and a cluster's definitions 64 KiB each at most.
pub const TEXT_MAX: u64 = 1 << 20;
