//! Whether what was typed can be true of a node among others.

use std::net::IpAddr;
use std::path::PathBuf;

use api::NameError;
use clap::Args;

/// Options about networks that span nodes.
#[derive(Debug, Clone, Args)]
pub struct SpanningOptions {
    /// Address of this node at which tunnels end; once for each of IPv4 and IPv6
    ///
    /// In a cluster these are the InternalIPs of the Node when not given. Other nodes take an address that the
    /// Node does not have when its annotation podnet.dev/vteps names it.
    #[arg(
        long = "vtep",
        value_name = "ADDRESS",
        env = "PODNET_VTEP",
        value_delimiter = ','
    )]
    pub vteps: Vec<IpAddr>,
    /// Directory that the nodes share, without a cluster
    ///
    /// This node writes the members of its VXLAN networks there, as NODE.yaml, and follows the files of the
    /// others. They are believed: a program that can write there can draw the packets of any member to another
    /// place.
    #[arg(
        long,
        value_name = "DIR",
        env = "PODNET_ENDPOINTS",
        requires = "standalone"
    )]
    pub endpoints: Option<PathBuf>,
}

/// An option of networks across nodes does not fit.
#[derive(Debug, thiserror::Error)]
pub enum SpanningError {
    /// Two addresses where one is enough.
    #[error("--vtep {address} is a second one of its family; give one of IPv4 and one of IPv6")]
    SecondOfFamily {
        /// The later one.
        address: IpAddr,
    },
    /// No other node could send to the address.
    #[error("--vtep {address} is no unicast address that other nodes could reach; choose another")]
    NotUnicast {
        /// The address.
        address: IpAddr,
    },
    /// Other nodes would not read what a node of this name says.
    #[error("--endpoints needs a name that other nodes can read: give --node-name")]
    NodeName {
        /// Fault of the name.
        source: NameError,
    },
}

/// Succeeds when the node `name` can be reached and understood as the options say.
///
/// # Errors
/// When it cannot.
pub fn check(options: &SpanningOptions, name: &str) -> Result<(), SpanningError> {
    for (index, vtep) in options.vteps.iter().enumerate() {
        let address = *vtep;
        let mut earlier = options.vteps.iter().take(index);
        if earlier.any(|other| other.is_ipv4() == address.is_ipv4()) {
            return Err(SpanningError::SecondOfFamily { address });
        }
        if !api::is_pod_address(address) {
            return Err(SpanningError::NotUnicast { address });
        }
    }
    if options.endpoints.is_some() {
        api::check_subdomain(name).map_err(|source| SpanningError::NodeName { source })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use telemetry::chain;

    use super::*;

    fn refusal(vteps: &[&str], directory: Option<&str>, name: &str) -> Option<String> {
        let options = SpanningOptions {
            vteps: vteps.iter().map(|it| it.parse().unwrap()).collect(),
            endpoints: directory.map(Into::into),
        };
        check(&options, name).err().map(|error| chain(&error))
    }

    #[test]
    fn a_node_has_one_address_of_each_family_that_others_can_reach() {
        let both = ["192.0.2.1", "2001:db8::1"];
        assert_eq!(refusal(&both, Some("/shared"), "node-1"), None);
        assert_eq!(refusal(&[], None, "Not A Name"), None);
        for (vteps, words) in [
            (["192.0.2.1", "192.0.2.2"], "--vtep 192.0.2.2 is a second"),
            (["192.0.2.1", "fe80::1"], "--vtep fe80::1 is no unicast"),
            (
                ["127.0.0.1", "2001:db8::1"],
                "--vtep 127.0.0.1 is no unicast",
            ),
        ] {
            let found = refusal(&vteps, None, "node-1").unwrap();
            assert!(found.contains(words), "{found}");
        }
        let found = refusal(&both, Some("/shared"), "Node_1").unwrap();
        assert!(
            found.contains("--node-name") && found.contains("Node_1"),
            "{found}"
        );
    }
}
