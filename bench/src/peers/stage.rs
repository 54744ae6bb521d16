//! Everybody's two pods, ready for traffic.

use std::fs;
use std::path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use netdev::{Address, Netns, VethSpec};
use tempfile::TempDir;
use testbed::host::{Host, connection};
use testbed::{Network, Node};

use super::across::Ground;
use super::ovs::Ovs;
use super::{Bed, Peer, podnet, podnet_plugin};
use crate::case::wait_promoted;
use crate::interrupt;
use crate::plugin::Plugin;
use crate::progress::Progress;
use crate::report::Absent;
use crate::sandbox::{Sandbox, Side};

/// podnet's L2 network.
pub const L2: &str = "podnet L2";
/// podnet's L3 network.
pub const L3: &str = "podnet L3";
const NF_CALL: &str = "/proc/sys/net/bridge/bridge-nf-call-iptables";

/// A way from one pod to another.
#[derive(Debug)]
pub struct Path {
    /// For tables.
    pub who: String,
    /// One end.
    pub a: Side,
    /// The other.
    pub b: Side,
    /// The bridge's node, and whether its bridge passes packets to iptables.
    pub(super) nf: Option<(Netns, bool)>,
}

impl Path {
    /// Switches bridge-nf-call on or off for the bridges of its node.
    ///
    /// # Errors
    /// The kernel's.
    pub fn prepare(&self) -> Result<()> {
        let Some((node, on)) = &self.nf else {
            return Ok(());
        };
        switch_nf_call(node, *on)
    }
}

/// Keeps packets of a node's bridges from iptables.
pub(crate) fn without_nf_call(node: &Netns) -> Result<()> {
    switch_nf_call(node, false)
}

/// Whether bridges of a node pass packets to iptables.
pub(super) fn switch_nf_call(node: &Netns, on: bool) -> Result<()> {
    let value = if on { "1" } else { "0" };
    node.run_in(|| -> std::io::Result<()> {
        for family in ["iptables", "ip6tables", "arptables"] {
            let path = format!("/proc/sys/net/bridge/bridge-nf-call-{family}");
            // Without br_netfilter there is nothing to switch off.
            if path::Path::new(&path).exists() {
                fs::write(&path, value)?;
            }
        }
        Ok(())
    })?
    .context("switching bridge-nf-call")
}

/// All ways. What has interfaces goes before what they are on.
#[derive(Debug, Default)]
pub struct Stage {
    /// Everybody's.
    pub paths: Vec<Path>,
    /// Peers without a path, with the reasons.
    pub absent: Vec<Absent>,
    pub(super) pods: Vec<Sandbox>,
    ovs: Option<Ovs>,
    beds: Vec<Bed>,
    bare: Vec<Host>,
    node: Option<Node>,
    /// For paths between nodes.
    pub(super) ground: Ground,
}

impl Stage {
    /// Sets up podnet and those peers that traffic can be sent through.
    ///
    /// # Errors
    /// podnet cannot be set up, or the run is interrupted. A peer that cannot is absent.
    pub fn set(peers: &[Peer], dir: &TempDir, progress: &Progress) -> Result<Self> {
        let mut stage = Self::default();
        for peer in peers {
            interrupt::check()?;
            progress.say(&format!("setting up {}", peer.label()));
            let made = match peer {
                Peer::Veth => stage.veth(dir),
                Peer::Bridge | Peer::BridgeNf | Peer::BridgeCt => stage.bridge(*peer, dir),
                Peer::Ptp | Peer::Macvlan => stage.plugin(*peer, dir),
                Peer::Ovs => stage.open_vswitch(dir),
                Peer::Bandwidth | Peer::Multus | Peer::Testpmd => continue,
            };
            if let Err(error) = made {
                stage.absent.push(Absent {
                    who: peer.label().to_owned(),
                    reason: format!("{error:#}"),
                });
            }
        }
        interrupt::check()?;
        progress.say("setting up podnet");
        stage.podnet(dir)?;
        Ok(stage)
    }

    fn add(&mut self, who: &str, (a, b): (Side, Side), nf: Option<(Netns, bool)>) {
        self.paths.push(Path {
            who: who.to_owned(),
            a,
            b,
            nf,
        });
    }

    fn veth(&mut self, dir: &TempDir) -> Result<()> {
        let pods = [
            Sandbox::create(dir, "bare-a")?,
            Sandbox::create(dir, "bare-b")?,
        ];
        let mut spec = VethSpec::new("net1", "net1");
        spec.peer_netns = Some(pods[1].netns().clone());
        spec.queues = Some(1);
        let pair = connection(pods[0].netns()).create_veth(&spec)?;
        let a = numbered(&pods[0], pair.host_ifindex, [10, 30, 0, 1])?;
        let b = numbered(&pods[1], pair.peer_ifindex, [10, 30, 0, 2])?;
        self.pods.extend(pods);
        self.add(Peer::Veth.label(), (a, b), None);
        Ok(())
    }

    fn bridge(&mut self, peer: Peer, dir: &TempDir) -> Result<()> {
        let has_nf = path::Path::new(NF_CALL).exists();
        if peer != Peer::Bridge && !has_nf {
            bail!("this kernel has no br_netfilter");
        }
        let bed = Bed::make(peer, peer.label(), dir, &["10.40.0.0/24"])?;
        let node = bed.host.netns().clone();
        if peer == Peer::BridgeCt {
            track_connections(&node)?;
        }
        let sides = self.attach(&bed.plugin, dir)?;
        self.beds.push(bed);
        let on = peer != Peer::Bridge;
        self.add(peer.label(), sides, Some((node, on)));
        Ok(())
    }

    fn plugin(&mut self, peer: Peer, dir: &TempDir) -> Result<()> {
        let bed = Bed::make(peer, peer.label(), dir, &["10.50.0.0/24"])?;
        let sides = self.attach(&bed.plugin, dir)?;
        self.beds.push(bed);
        self.add(peer.label(), sides, None);
        Ok(())
    }

    fn open_vswitch(&mut self, dir: &TempDir) -> Result<()> {
        let host = Host::create();
        let ovs = Ovs::start(host.netns(), &dir.path().join("ovs"))?;
        let mut sides = Vec::new();
        for (end, ip) in [("a", [10, 60, 0, 1]), ("b", [10, 60, 0, 2])] {
            let pod = Sandbox::create(dir, &format!("ovs-{end}"))?;
            let port = format!("port-{end}");
            let mut spec = VethSpec::new(&port, "net1");
            spec.peer_netns = Some(pod.netns().clone());
            let mut netlink = connection(host.netns());
            let pair = netlink.create_veth(&spec)?;
            netlink.set_up(pair.host_ifindex)?;
            sides.push(numbered(&pod, pair.peer_ifindex, ip)?);
            self.pods.push(pod);
            ovs.add_port(&port)?;
        }
        self.ovs = Some(ovs);
        self.bare.push(host);
        let (Some(b), Some(a)) = (sides.pop(), sides.pop()) else {
            bail!("two pods were made");
        };
        self.add(Peer::Ovs.label(), (a, b), None);
        Ok(())
    }

    fn podnet(&mut self, dir: &TempDir) -> Result<()> {
        let node = podnet(&[
            Network::l2("blue", &["10.10.0.0/24", "fd10:10::/64"]),
            Network::l3("green", &["10.20.0.0/24", "fd10:20::/64"]),
        ]);
        for (who, network) in [(L2, "blue"), (L3, "green")] {
            let sides = self.attach(&podnet_plugin(who, &node, network), dir)?;
            self.add(who, sides, None);
        }
        wait_promoted(&node)?;
        self.node = Some(node);
        Ok(())
    }

    fn attach(&mut self, plugin: &Plugin, dir: &TempDir) -> Result<(Side, Side)> {
        let mut side = |end: &str| -> Result<Side> {
            let name = format!("{}-{end}", plugin.label.replace([' ', '+'], "-"));
            let pod = Sandbox::create(dir, &name)?;
            let (_, result) = plugin.call("ADD", Some(&pod))?;
            let side = Side::of_result(&pod, &result)?;
            self.pods.push(pod);
            Ok(side)
        };
        Ok((side("a")?, side("b")?))
    }
}

fn numbered(pod: &Sandbox, ifindex: u32, ip: [u8; 4]) -> Result<Side> {
    let mut netlink = connection(pod.netns());
    netlink.add_address(ifindex, Address::new(ip.into(), 24))?;
    netlink.set_up(ifindex)?;
    Ok(Side {
        netns: pod.netns().clone(),
        ip: ip.into(),
    })
}

/// One rule that looks at the state of connections, as kube-proxy has it.
fn track_connections(node: &Netns) -> Result<()> {
    let rule = "-A FORWARD -m conntrack --ctstate INVALID -j DROP";
    let mut command = Command::new("iptables");
    command.args(rule.split(' '));
    let output = node.run_in(|| command.output())?;
    let output = output.context("starting iptables (apt-get install iptables)")?;
    if !output.status.success() {
        bail!(
            "iptables: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(())
}
