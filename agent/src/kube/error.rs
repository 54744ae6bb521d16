//! Failures of what only a cluster has.

use addresses::{LookupError, RequestError};
use book::{AddressError, BookError};
use cluster::access::Used;

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

impl From<RequestError> for ClusterError {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::Book(error) => error.into(),
            RequestError::Pod(error) => error.into(),
        }
    }
}

impl From<AddressError> for ClusterError {
    fn from(error: AddressError) -> Self {
        BookError::from(error).into()
    }
}

/// A pod may not use a network, or nobody says that it may.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// It may not.
    #[error(
        "{who} may not use {used}; grant the verb use on {}, by a RoleBinding in namespace {} for \
         example",
        used.resource(),
        used.asked_in(namespace)
    )]
    Refused {
        /// The service account's user name.
        who: String,
        /// The network, or the definition.
        used: Used,
        /// The pod's namespace.
        namespace: String,
    },
    /// The API server did not say whether the pod may use its networks.
    #[error(
        "cannot check whether pod {namespace}/{name} may use its networks: {why}; try again later"
    )]
    Unknown {
        /// The pod's namespace.
        namespace: String,
        /// The pod's name.
        name: String,
        /// Why not.
        why: String,
    },
    /// The cluster controls access, and the request is for nobody.
    #[error(
        "the cluster controls access to networks, and the request names no pod: give \
         K8S_POD_NAMESPACE, K8S_POD_NAME and K8S_POD_UID in CNI_ARGS"
    )]
    NoPod,
}
