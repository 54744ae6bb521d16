//! Set up pods whose programs move packets themselves, each with a kernel's pod.

use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use agent_common::addr::MacAddr;
use anyhow::{Context, Result, bail};
use netdev::{Address, LinkChange, Neighbour, Netns, VethSpec};
use testbed::Port;
use testbed::host::connection;

use super::{Peer, Testpmd};
use crate::apps::{PORTS, Tally};
use crate::sandbox::{Sandbox, Side};
use crate::traffic::process::Process;

/// Addresses where podnet gives none: the application's, and the kernel's.
const IPS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 30, 0, 1), Ipv4Addr::new(10, 30, 0, 2)];
/// The MAC address of an application behind a TAP device.
const BEHIND: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x10]);
/// That device.
const TAP: &str = "dtap0";
/// Protocol of the route to an application (rtnetlink(7): static).
///
/// The interface in front of it has no addresses.
const STATIC: u8 = 4;
/// How long an application may take to be ready.
const PATIENCE: Duration = Duration::from_secs(10);

/// Role of an application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Sends datagrams of this size.
    Generate(usize),
    /// Counts what comes.
    Count,
    /// Answers.
    Echo,
}

/// How an application gets at packets.
#[derive(Debug)]
enum Kind {
    /// One of ours, by its name among the applications of this program.
    Own(&'static str),
    /// testpmd and its TAP device.
    Tap(Testpmd),
}

/// An application's pod, and the pod of the kernel that it talks to.
#[derive(Debug)]
pub(crate) struct Spot {
    /// For tables.
    pub(crate) who: String,
    /// The pod of the kernel.
    pub(crate) kernel: Side,
    /// The application's side.
    pub(crate) app: Side,
    kind: Kind,
    /// The application's, and the kernel's.
    macs: [MacAddr; 2],
    _pods: Vec<Sandbox>,
}

/// An application at work.
#[derive(Debug)]
pub(crate) struct Running {
    process: Process,
    is_testpmd: bool,
}

impl Spot {
    /// Two ports of one network of podnet.
    pub(crate) fn of_podnet(
        who: &str,
        application: &'static str,
        app: &Port,
        kernel: &Port,
    ) -> Self {
        Self {
            who: who.to_owned(),
            kernel: Side::of_port(kernel),
            app: Side::of_port(app),
            kind: Kind::Own(application),
            macs: [app.mac, kernel.mac],
            _pods: Vec::new(),
        }
    }

    /// Two pods with a veth pair between them; the application's end has no address.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn bare(who: &str, dir: &tempfile::TempDir) -> Result<Self> {
        let pods = vec![
            Sandbox::create(dir, "spot-app")?,
            Sandbox::create(dir, "spot-kernel")?,
        ];
        let mut spec = VethSpec::new("net1", "net1");
        spec.peer_netns = Some(pods[1].netns().clone());
        let mut netlink = connection(pods[0].netns());
        let pair = netlink.create_veth(&spec)?;
        netlink.set_up(pair.host_ifindex)?;
        let link = netlink.by_index(pair.host_ifindex)?;
        let mac = link.context("a link that was just made")?.mac;
        let mac = MacAddr(mac.context("an Ethernet device")?);
        let own = number(pods[1].netns(), "net1", mac)?;
        Ok(Self {
            who: who.to_owned(),
            kernel: side(&pods[1], IPS[1]),
            app: side(&pods[0], IPS[0]),
            kind: Kind::Own("packet"),
            macs: [mac, own],
            _pods: pods,
        })
    }

    /// testpmd with a TAP device that is the very interface of the kernel's pod.
    ///
    /// # Errors
    /// There is no testpmd.
    pub(crate) fn tap(who: &str, dir: &tempfile::TempDir) -> Result<Self> {
        let testpmd = Testpmd::find()?;
        let pod = Sandbox::create(dir, "spot-tap")?;
        Ok(Self {
            who: who.to_owned(),
            kernel: side(&pod, IPS[1]),
            app: side(&pod, IPS[0]),
            kind: Kind::Tap(testpmd),
            macs: [BEHIND, BEHIND],
            _pods: vec![pod],
        })
    }

    /// Starts the application on a processor, and waits until it is ready.
    ///
    /// # Errors
    /// It does not get ready.
    pub(crate) fn start(&self, role: Role, cpu: usize) -> Result<Running> {
        match &self.kind {
            Kind::Own(application) => self.start_own(application, role, cpu),
            Kind::Tap(testpmd) => self.start_testpmd(testpmd, role, cpu),
        }
    }

    fn start_own(&self, application: &str, role: Role, cpu: usize) -> Result<Running> {
        let mut command = Command::new("/proc/self/exe");
        command.args(["app", application]);
        let cpu = cpu.to_string();
        let [app, kernel] = self.macs.map(|mac| mac.to_string());
        match role {
            Role::Generate(size) => {
                command.args(["generate", "--mac", &app, &kernel, "--ip"]);
                command.args([self.app.ip.to_string(), self.kernel.ip.to_string()]);
                command.args(["--size", &size.to_string()]);
            }
            Role::Count => {
                command.arg("count");
            }
            Role::Echo => {
                command.arg("echo");
            }
        }
        command.args(["--interface", "net1", "--cpu", &cpu]);
        let mut process = Process::start(command, &self.app.netns)?;
        process.wait_for("ready", PATIENCE)?;
        Ok(Running {
            process,
            is_testpmd: false,
        })
    }

    fn start_testpmd(&self, testpmd: &Testpmd, role: Role, cpu: usize) -> Result<Running> {
        let device = format!("net_tap0,iface={TAP},mac={BEHIND}");
        let ips = format!("--tx-ip={},{}", IPS[0], IPS[1]);
        let ports = format!("--tx-udp={},{}", PORTS.0, PORTS.1);
        let peer = format!("--eth-peer=0,{BEHIND}");
        let size;
        let options = match role {
            Role::Generate(payload) => {
                size = format!("--txpkts={}", payload + 14 + 20 + 8);
                vec!["--forward-mode=txonly", &ips, &ports, &peer, &size]
            }
            Role::Count => vec!["--forward-mode=rxonly"],
            Role::Echo => vec!["--forward-mode=5tswap", "--port-topology=loop"],
        };
        let place = ("podnet-tap", cpu);
        let mut process = testpmd.start(&self.app.netns, place, &[device], &options)?;
        let end = Instant::now() + PATIENCE;
        while connection(&self.app.netns).by_name(TAP)?.is_none() {
            if !process.runs()? || Instant::now() >= end {
                bail!(
                    "testpmd makes no TAP device: {}",
                    process.complaint().trim()
                );
            }
            thread::sleep(Duration::from_millis(5));
        }
        testpmd.wait(&mut process)?;
        number(&self.app.netns, TAP, BEHIND)?;
        Ok(Running {
            process,
            is_testpmd: true,
        })
    }
}

impl Running {
    /// Ends it; what it says came and went.
    ///
    /// # Errors
    /// It has failed.
    pub(crate) fn end(self) -> Result<Tally> {
        let text = self.process.interrupt()?;
        if self.is_testpmd {
            return Ok(Tally {
                received: super::testpmd::total(&text, "RX-packets:")?,
                sent: super::testpmd::total(&text, "TX-packets:")?,
                ..Tally::default()
            });
        }
        let line = text.lines().last().context("it said nothing")?;
        serde_json::from_str(line).with_context(|| format!("it said `{line}`"))
    }
}

fn side(pod: &Sandbox, ip: Ipv4Addr) -> Side {
    Side {
        netns: pod.netns().clone(),
        ip: ip.into(),
    }
}

/// Gives the kernel's interface its address and the application's as a neighbour.
///
/// Returns the interface's MAC address.
fn number(netns: &Netns, ifname: &str, mac: MacAddr) -> Result<MacAddr> {
    let mut netlink = connection(netns);
    let link = netlink.by_name(ifname)?.context("the interface is gone")?;
    netlink.reconfigure(link.ifindex, &LinkChange::updown(true))?;
    netlink.add_address(link.ifindex, Address::new(IPS[1].into(), 24))?;
    let application = Neighbour {
        address: IpAddr::V4(IPS[0]),
        mac: mac.0,
    };
    netlink.reach(link.ifindex, &[application], STATIC)?;
    Ok(MacAddr(link.mac.context("an Ethernet device")?))
}

/// Sets up the peers that are measured with podnet, as far as they are available.
pub(crate) fn others(peers: &[Peer], dir: &tempfile::TempDir) -> Vec<(String, Result<Spot>)> {
    let (bare, tap) = ("bare veth pair, AF_PACKET", "testpmd, TAP");
    let mut others = Vec::new();
    if peers.contains(&Peer::Veth) {
        others.push((bare.to_owned(), Spot::bare(bare, dir)));
    }
    if peers.contains(&Peer::Testpmd) {
        others.push((tap.to_owned(), Spot::tap(tap, dir)));
    }
    others
}
