//! Set up pods on two nodes with a link, with podnet's tunnels or kernel VXLAN.
//!
//! The other is a bridge with the kernel's VXLAN device on either node, whose forwarding table is
//! filled by hand.

use std::net::{IpAddr, UdpSocket};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use netdev::Netns;
use tempfile::TempDir;
use testbed::host::{Host, connection};
use testbed::{Fabric, Network, Node, Setup};

use super::podnet_plugin;
use super::stage::{L2, L3, Path, Stage, switch_nf_call};
use crate::case::wait_promoted;
use crate::interrupt;
use crate::progress::Progress;
use crate::report::Absent;
use crate::sandbox::{Sandbox, Side};

/// A bridge with a VXLAN device.
pub(super) const KERNEL: &str = "bridge + kernel VXLAN";
/// Largest packet that fits into 1500 bytes with a tunnel over IPv4.
const MTU: u16 = 1450;
/// How long nodes may take to hear of each other's pods.
const PATIENCE: Duration = Duration::from_secs(20);

/// Nodes, hosts and files of the paths between nodes; pods are dropped before them.
#[derive(Debug, Default)]
pub(super) struct Ground {
    nodes: Vec<Node>,
    hosts: Vec<Host>,
    files: Option<TempDir>,
}

impl Stage {
    /// Sets up podnet on two nodes, and its peer on two others.
    ///
    /// # Errors
    /// podnet cannot be set up, or the run is interrupted. The peer that cannot is absent.
    pub fn across(dir: &TempDir, progress: &Progress) -> Result<Self> {
        let mut stage = Self::default();
        progress.say(&format!("setting up {KERNEL}"));
        if let Err(error) = stage.kernel(dir) {
            stage.absent.push(Absent {
                who: KERNEL.to_owned(),
                reason: format!("{error:#}"),
            });
        }
        interrupt::check()?;
        progress.say("setting up podnet on two nodes");
        stage.podnet_across(dir)?;
        Ok(stage)
    }

    fn podnet_across(&mut self, dir: &TempDir) -> Result<()> {
        let files = tempfile::tempdir()?;
        let shared = files.path().to_str().context("a path in UTF-8")?;
        for (number, host) in (1..).zip(Fabric::pair()) {
            // It would cost the peer a fifth.
            switch_nf_call(host.netns(), false)?;
            let vtep = Fabric::v4_of_pair(number).to_string();
            // Each node gives half of the addresses.
            let others = if number == 1 { 128 } else { 0 };
            let networks = [
                Network::l2("blue", &["10.10.0.0/24"]).exclude(&[&format!("10.10.0.{others}/25")]),
                Network::l3("green", &["10.20.0.0/24"]).exclude(&[&format!("10.20.0.{others}/25")]),
            ];
            let mut setup = Setup::empty().named(&format!("node-{number}"));
            setup = setup.args(&["--vtep", &vtep, "--endpoints", shared]);
            for (network, id) in networks.into_iter().zip(2001..) {
                setup = setup.network(&network.id(id).mtu(MTU.into()).vxlan());
            }
            self.ground.nodes.push(Node::start_on(setup, host));
        }
        for (who, network) in [(L2, "blue"), (L3, "green")] {
            let mut sides = Vec::new();
            for (number, node) in self.ground.nodes.iter().enumerate() {
                let pod = Sandbox::create(dir, &format!("across-{network}-{number}"))?;
                let plugin = podnet_plugin(who, node, network);
                let (_, result) = plugin.call("ADD", Some(&pod))?;
                sides.push(Side::of_result(&pod, &result)?);
                self.pods.push(pod);
            }
            self.join(who, sides)?;
        }
        for node in &self.ground.nodes {
            wait_promoted(node)?;
        }
        self.ground.files = Some(files);
        Ok(())
    }

    fn kernel(&mut self, dir: &TempDir) -> Result<()> {
        let hosts = Fabric::pair();
        let mut sides = Vec::new();
        for (number, host) in (1_u8..).zip(&hosts) {
            let (node, other) = (host.netns(), 3 - number);
            switch_nf_call(node, false)?;
            let (own, far) = (Fabric::v4_of_pair(number), Fabric::v4_of_pair(other));
            let pod = Sandbox::create(dir, &format!("across-kernel-{number}"))?;
            let mac = |number: u8| format!("02:00:00:00:42:{number:02x}");
            let mtu = MTU.to_string();
            for line in [
                "ip link add br0 type bridge".to_owned(),
                format!(
                    "ip link add vx0 mtu {mtu} type vxlan id 42 local {own} remote {far} dstport 4789 \
                     nolearning noudpcsum"
                ),
                "ip link set vx0 master br0 up".to_owned(),
                format!("bridge fdb replace {} dev vx0 dst {far}", mac(other)),
                format!("ip link set br0 mtu {mtu} up"),
            ] {
                on(node, &line)?;
            }
            let mut spec = netdev::VethSpec::new("pod", "net1");
            spec.peer_netns = Some(pod.netns().clone());
            spec.mtu = MTU.into();
            connection(node).create_veth(&spec)?;
            on(node, "ip link set pod master br0 up")?;
            let ip: IpAddr = [10, 70, 0, number].into();
            for line in [
                format!("ip link set net1 address {} up", mac(number)),
                format!("ip address add {ip}/24 dev net1"),
            ] {
                on(pod.netns(), &line)?;
            }
            let netns = pod.netns().clone();
            sides.push(Side { netns, ip });
            self.pods.push(pod);
        }
        self.ground.hosts.extend(hosts);
        self.join(KERNEL, sides)
    }

    /// A path between two pods that have met.
    fn join(&mut self, who: &str, sides: Vec<Side>) -> Result<()> {
        let [a, b] = <[Side; 2]>::try_from(sides).map_err(|_| anyhow::anyhow!("two pods"))?;
        meet(&a, &b)
            .and_then(|()| meet(&b, &a))
            .context(who.to_owned())?;
        self.paths.push(Path {
            who: who.to_owned(),
            a,
            b,
            nf: None,
        });
        Ok(())
    }
}

/// Waits until something gets there.
///
/// # Errors
/// Nothing does.
pub(crate) fn meet(from: &Side, to: &Side) -> Result<()> {
    let source = from.netns.run_in(|| UdpSocket::bind((from.ip, 0)))??;
    let sink = to.netns.run_in(|| UdpSocket::bind((to.ip, 0)))??;
    sink.set_read_timeout(Some(Duration::from_millis(50)))?;
    let target = sink.local_addr()?;
    let end = Instant::now() + PATIENCE;
    loop {
        // Refused as long as the address does not resolve.
        let _ = source.send_to(b"hello", target);
        if sink.recv(&mut [0; 8]).is_ok() {
            return Ok(());
        }
        interrupt::check()?;
        if Instant::now() >= end {
            bail!("{} does not reach {}", from.ip, to.ip);
        }
    }
}

/// Runs a program of iproute2 in a namespace.
fn on(netns: &Netns, line: &str) -> Result<()> {
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words);
    let output = netns.run_in(|| command.output())?;
    let output = output.with_context(|| format!("{line} (apt-get install iproute2)"))?;
    if !output.status.success() {
        bail!("{line}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
