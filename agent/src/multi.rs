//! Pods that say themselves what they are attached to: one request of the runtime, and as many
//! attachments as the pod's lists have (NPWG v1.3, KEP-3698).
//!
//! - [`plan`] finds out what to do, before anything is done: what the lists say, what the objects
//!   they name mean, who gets the default routes.
//! - [`add`] does it in order, and undoes all of it when one part fails.
//! - [`remove`] works from the record alone, whatever became of lists and objects: `DEL`, `GC`, and
//!   what a restart has to finish.
//! - [`check`] does the same for `CHECK`, and [`status`] tells Kubernetes.

use std::path::PathBuf;
use std::str::FromStr;

use crate::lists::ListOptions;

mod add;
mod check;
mod conf_dir;
mod defaults;
mod devices;
mod host_ports;
mod native;
mod plan;
mod remove;
mod status;

pub(crate) use plan::Asked;
pub(crate) use remove::ATTEMPTS;

/// What the node says about the lists of its pods.
#[derive(Debug, Clone)]
pub struct Rules {
    /// What becomes of a pod whose lists cannot be understood.
    pub invalid: InvalidAnnotation,
    /// How they are read.
    pub lists: ListOptions,
    /// Where the configurations of other plugins are, as the node has it.
    pub conf_dir: PathBuf,
}

/// What becomes of a pod whose lists cannot be understood (NPWG-G1).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum InvalidAnnotation {
    /// It does not start, and says why.
    #[default]
    Fail,
    /// It starts with the default network alone, which is the letter of NPWG §4.1.
    Ignore,
}

/// The default network of pods (NPWG §6).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DefaultNetwork {
    /// A PodNetwork of ours.
    PodNetwork(String),
    /// The first CNI configuration of the node that is not ours.
    Delegate,
    /// None: every pod must list its first network.
    None,
}

impl DefaultNetwork {
    /// The name by which a list of KEP-3698 means the default network.
    pub fn name(&self) -> &str {
        match self {
            Self::PodNetwork(name) => name,
            Self::Delegate | Self::None => "default",
        }
    }
}

/// Not a choice of a default network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is none of podnetwork:NAME, delegate, none")]
pub struct NoDefaultNetwork(String);

impl FromStr for DefaultNetwork {
    type Err = NoDefaultNetwork;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once(':') {
            Some(("podnetwork", name)) if api::check_subdomain(name).is_ok() => {
                Ok(Self::PodNetwork(name.to_owned()))
            }
            None if text == "delegate" => Ok(Self::Delegate),
            None if text == "none" => Ok(Self::None),
            _ => Err(NoDefaultNetwork(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NPWG-6
    #[test]
    fn the_default_network_is_ours_another_plugins_or_none() {
        let ours = DefaultNetwork::PodNetwork("blue".to_owned());
        assert_eq!("podnetwork:blue".parse(), Ok(ours.clone()));
        assert_eq!("delegate".parse(), Ok(DefaultNetwork::Delegate));
        assert_eq!("none".parse(), Ok(DefaultNetwork::None));
        assert_eq!(
            (ours.name(), DefaultNetwork::None.name()),
            ("blue", "default")
        );
        for bad in [
            "",
            "blue",
            "podnetwork:",
            "podnetwork:-",
            "delegate:x",
            "Delegate",
        ] {
            assert!(bad.parse::<DefaultNetwork>().is_err(), "{bad}");
        }
    }
}
