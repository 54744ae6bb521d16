//! Failures of what only a cluster has.

use super::access::AccessError;
use super::lookup::LookupError;
use crate::book::{AddressError, BookError};

/// The cluster does not give, or does not say, what an attachment needs.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The attachment cannot be booked.
    #[error(transparent)]
    Book(#[from] BookError),
    /// The pod could not be looked up.
    #[error(transparent)]
    Pod(#[from] LookupError),
    /// The pod may not use a network, or the API server does not say that it may.
    #[error(transparent)]
    Access(#[from] AccessError),
}

impl From<AddressError> for ClusterError {
    fn from(error: AddressError) -> Self {
        BookError::from(error).into()
    }
}
