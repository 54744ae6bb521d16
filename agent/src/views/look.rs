//! Names networks, and waits for looks that take their time.

use tokio::task::JoinError;

/// The name of a network, or its number.
pub(super) fn network_name(name: Option<&str>, id: u32) -> String {
    name.map_or_else(
        || {
            if id == 0 {
                String::new()
            } else {
                format!("#{id}")
            }
        },
        ToOwned::to_owned,
    )
}

/// Returns what a look on a thread of its own has found.
pub(super) fn joined<T>(work: Result<T, JoinError>) -> T {
    match work {
        Ok(found) => found,
        Err(died) => std::panic::resume_unwind(died.into_panic()),
    }
}
