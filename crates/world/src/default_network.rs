//! Name the first network of pods whose lists leave it out (NPWG v1.3 section 6).

use std::str::FromStr;

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
    /// The name of the `PodNetwork` that it is.
    pub fn pod_network(&self) -> Option<&str> {
        match self {
            Self::PodNetwork(name) => Some(name),
            Self::Delegate | Self::None => None,
        }
    }

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
