//! Set up podnet's peers, each on a node of its own.
//!
//! So the interfaces of one are not in the way of another.

mod across;
mod ovs;
mod sockets;
mod stage;
mod testpmd;

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use netdev::VethSpec;
use serde_json::json;
use tempfile::TempDir;
use testbed::host::{Host, connection};
use testbed::{Network, Node, Setup};

pub(crate) use self::across::meet;
pub(crate) use self::ovs::version as open_vswitch_version;
pub(crate) use self::sockets::{Role, Spot, others as other_sockets};
pub(crate) use self::stage::without_nf_call;
pub use self::stage::{L2, L3, Path as TrafficPath, Stage};
pub(crate) use self::testpmd::{Testpmd, rates as forwarded};
use crate::plugin::{Plugin, reference};

/// Somebody to be compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Peer {
    /// Two pods with nothing but a veth pair between them: the limit
    Veth,
    /// The reference bridge plugin with host-local
    Bridge,
    /// The same with bridge-nf-call-iptables, as Kubernetes nodes have it
    BridgeNf,
    /// The same with a rule that needs connection tracking
    BridgeCt,
    /// The reference ptp plugin: routed by the node
    Ptp,
    /// The reference macvlan plugin
    Macvlan,
    /// Open vSwitch with its userspace datapath
    Ovs,
    /// The reference bandwidth plugin behind bridge
    Bandwidth,
    /// Multus calling bridge
    Multus,
    /// DPDK's testpmd: its TAP device, and its io forwarder
    Testpmd,
}

impl Peer {
    /// For tables.
    pub fn label(self) -> &'static str {
        match self {
            Peer::Veth => "bare veth pair",
            Peer::Bridge => "bridge",
            Peer::BridgeNf => "bridge + nf-call",
            Peer::BridgeCt => "bridge + nf-call + conntrack",
            Peer::Ptp => "ptp",
            Peer::Macvlan => "macvlan",
            Peer::Ovs => "Open vSwitch (userspace)",
            Peer::Bandwidth => "bridge + bandwidth",
            Peer::Multus => "Multus + bridge",
            Peer::Testpmd => "testpmd",
        }
    }
}

/// A peer's plugin and the node it works on.
#[derive(Debug)]
pub struct Bed {
    /// The plugin.
    pub plugin: Plugin,
    /// Its node; links go with it.
    pub host: Host,
}

impl Bed {
    /// A fresh node with the peer's plugin for these subnets; `name` is for its files.
    ///
    /// # Errors
    /// The plugin is not here, or the peer is none that a plugin makes.
    pub fn make(peer: Peer, name: &str, dir: &TempDir, subnets: &[&str]) -> Result<Self> {
        let host = Host::create();
        let files = dir.path().join(name);
        let (label, node) = (peer.label(), host.netns());
        let bridge = || Plugin::bridge(label, node, &files, subnets);
        let plugin = match peer {
            Peer::Bridge | Peer::BridgeNf | Peer::BridgeCt => bridge()?,
            Peer::Ptp => Plugin::reference((label, "ptp"), node, &files, subnets, &json!({}))?,
            Peer::Macvlan => {
                // A dummy link is not in every kernel; any Ethernet device can be the master.
                let mut netlink = connection(node);
                let pair = netlink.create_veth(&VethSpec::new("mv0", "mv1"))?;
                netlink.set_up(pair.host_ifindex)?;
                netlink.set_up(pair.peer_ifindex)?;
                let more = json!({"master": "mv0", "mode": "bridge"});
                Plugin::reference((label, "macvlan"), node, &files, subnets, &more)?
            }
            Peer::Bandwidth => {
                let binary = reference("bandwidth")?;
                let conf = json!({
                    "cniVersion": "1.0.0", "name": "bridge-bandwidth", "type": "bandwidth",
                });
                bridge()?.then(&binary, conf)
            }
            Peer::Multus => {
                let delegate = bridge()?;
                let binary = provided("PODNET_MULTUS")?;
                let conf = json!({
                    "cniVersion": "1.0.0",
                    "name": "multus",
                    "type": "multus",
                    "cniDir": files.join("multus"),
                    "multusConfigFile": "",
                    "delegates": [delegate.conf()],
                });
                let place = reference("bridge")?;
                let place = place.parent().context("the plugin's directory")?;
                Plugin::new(label, &binary, conf, node).looking_in(place)
            }
            Peer::Veth | Peer::Ovs | Peer::Testpmd => bail!("{label} has no CNI plugin"),
        };
        Ok(Self { plugin, host })
    }
}

/// Returns the path of an installed peer, from `PODNET_X`.
///
/// `cargo xtask bench` sets it. `PODNET_NO_X` has the reason for which a peer is not installed.
pub(crate) fn provided(variable: &str) -> Result<PathBuf> {
    if let Some(path) = env::var_os(variable) {
        return Ok(path.into());
    }
    let why = variable.replacen("PODNET_", "PODNET_NO_", 1);
    match env::var(&why) {
        Ok(reason) => bail!("{reason}"),
        Err(_) => bail!("{variable} does not say where it is: start it by `cargo xtask bench`"),
    }
}

/// A node with an agent and these networks.
///
/// # Panics
/// If the agent does not start.
pub fn podnet(networks: &[Network]) -> Node {
    Node::start(networks.iter().fold(Setup::empty(), Setup::network))
}

/// podnet's plugin for a network of a node.
pub fn podnet_plugin(label: &str, node: &Node, network: &str) -> Plugin {
    let cni: &Path = &node.binaries().cni;
    Plugin::new(label, cni, node.conf(network), node.netns())
}
