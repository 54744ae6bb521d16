//! Failures of descriptions of packets.

/// Candidates that an error lists.
const LISTED: usize = 8;

/// What was written does not describe a packet.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExplainError {
    /// A value cannot be read, or does not fit the others.
    #[error("{argument} {value}: {fix}")]
    Invalid {
        /// The option.
        argument: &'static str,
        /// What was written.
        value: String,
        /// What to write instead.
        fix: &'static str,
    },
    /// Nobody is meant.
    #[error("{argument} {value}: {why}; known here: {}", list(known))]
    Unknown {
        /// The option.
        argument: &'static str,
        /// What was written.
        value: String,
        /// What there is none of.
        why: &'static str,
        /// Whom one could mean.
        known: Vec<String>,
    },
    /// Several are meant.
    #[error("{argument} {value} is several: write one of {}", list(candidates))]
    Ambiguous {
        /// The option.
        argument: &'static str,
        /// What was written.
        value: String,
        /// Whom it could be.
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
