//! Failures of descriptions of packets.

/// Candidates that an error lists.
const LISTED: usize = 8;

/// The text does not describe a packet.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExplainError {
    /// A value cannot be read, or does not fit the others.
    #[error("{argument} {value}: {fix}")]
    Invalid {
        /// The option.
        argument: &'static str,
        /// The value as written.
        value: String,
        /// Text to write instead.
        fix: &'static str,
    },
    /// No place matches the value.
    #[error("{argument} {value}: {why}; known here: {}", list(known))]
    Unknown {
        /// The option.
        argument: &'static str,
        /// The value as written.
        value: String,
        /// Reason, as a part of a sentence.
        why: &'static str,
        /// Known places that the person may mean.
        known: Vec<String>,
    },
    /// Several are meant.
    #[error("{argument} {value} is several: write one of {}", list(candidates))]
    Ambiguous {
        /// The option.
        argument: &'static str,
        /// The value as written.
        value: String,
        /// Places that match the value.
        candidates: Vec<String>,
    },
}

fn list(names: &[String]) -> String {
    if names.is_empty() {
        return "nothing".to_owned();
    }
    let mut text = names
        .iter()
        .take(LISTED)
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(", ");
    if let Some(more @ 1..) = names.len().checked_sub(LISTED) {
        text.push_str(&format!(" and {more} more"));
    }
    text
}
