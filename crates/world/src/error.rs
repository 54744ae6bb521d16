//! Say why an object that users wrote cannot be used.

use std::fmt;

use api::{Listed, ResolveError};

use crate::NoDefaultNetwork;

/// An object cannot be used, or is not known yet.
#[derive(Debug, thiserror::Error)]
pub enum WorldError {
    /// The network or the attachment object cannot be used.
    #[error("{source}{}", Unread(broken))]
    Resolve {
        /// Why not.
        source: Box<ResolveError>,
        /// Manifests that could not be read, which may be where the object is.
        broken: Vec<String>,
    },
    /// The node's annotation about its default network cannot be understood.
    #[error(
        "annotation {} of this Node: {source}; correct it, or remove it for the network of \
         --default-network",
        api::NODE_DEFAULT_ANNOTATION
    )]
    NodeDefault {
        /// Why not.
        source: NoDefaultNetwork,
    },
    /// Which networks there are was not read yet.
    #[error(
        "podnet-agent does not know the cluster's networks yet: {}; try again later",
        Listed::new(unread)
    )]
    NotSynced {
        /// The missing object, with the reason.
        unread: Vec<String>,
    },
}

/// Writes which manifests are unreadable, after the error about a missing object.
#[derive(Debug, Clone, Copy)]
pub struct Unread<'a>(pub &'a [String]);

impl fmt::Display for Unread<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return Ok(());
        }
        let listed = Listed::new(self.0);
        write!(out, " (these manifests could not be read: {listed})")
    }
}
