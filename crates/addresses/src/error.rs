//! Failures of a request for addresses of a cluster.

use book::{AddressError, BookError};

/// The cluster does not give the addresses that an attachment asks for.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The attachment cannot be booked.
    #[error(transparent)]
    Book(#[from] BookError),
    /// The pod could not be looked up.
    #[error(transparent)]
    Pod(#[from] LookupError),
}

impl From<AddressError> for RequestError {
    fn from(error: AddressError) -> Self {
        BookError::from(error).into()
    }
}

/// A pod could not be looked up.
#[derive(Debug, thiserror::Error)]
pub enum LookupError {
    /// There is none. A static pod's may come later.
    #[error("the API server has no pod {namespace}/{name}; try again later")]
    NotFound {
        /// Namespace.
        namespace: String,
        /// Name.
        name: String,
    },
    /// The name is another pod's by now.
    #[error(
        "K8S_POD_UID of CNI_ARGS is {asked} and pod {namespace}/{name} has UID {found}: the request is for a pod that is gone"
    )]
    Another {
        /// Namespace.
        namespace: String,
        /// Name.
        name: String,
        /// The UID in the request.
        asked: String,
        /// The UID of the pod that is there.
        found: String,
    },
    /// The API server does not tell.
    #[error("pod {namespace}/{name} cannot be looked up: {why}; try again later")]
    Unknown {
        /// Namespace.
        namespace: String,
        /// Name.
        name: String,
        /// Error of the API server or of the connection to it.
        why: String,
    },
}
