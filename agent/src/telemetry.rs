//! The log: one line an event on stderr, filtered as the user asks.

use tracing_subscriber::EnvFilter;

/// The log filter does not parse.
#[derive(Debug, thiserror::Error)]
#[error("--log {filter} is not a filter; write for example info,agent=debug")]
pub struct FilterError {
    filter: String,
    source: tracing_subscriber::filter::ParseError,
}

/// Starts logging.
///
/// # Errors
/// When the filter does not parse.
pub fn init(filter: &str) -> Result<(), FilterError> {
    let parsed = EnvFilter::try_new(filter).map_err(|source| FilterError {
        filter: filter.to_owned(),
        source,
    })?;
    tracing_subscriber::fmt()
        .with_env_filter(parsed)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .init();
    Ok(())
}
