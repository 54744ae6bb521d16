//! Send from the namespace of a pod, as the pod could with raw sockets.

use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use agent_common::addr::MacAddr;
use netdev::{Netns, VethSpec};
use testbed::Tap;
use testbed::frame::{Arp, ethernet, router_advertisement, udp4};
use testbed::host::connection;

use super::{Aim, idle};
use crate::e2e::corner::Corner;
use crate::e2e::objects::until;

const IP: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
/// Frames between two pauses, as a pod has a part of its node's processors only.
const BURST: usize = 200;
const PAUSE: Duration = Duration::from_millis(20);
/// Where nodes have their tunnels.
const VXLAN: u16 = 4789;

/// Sleeping time of the next pod, by which its process is found on the machine.
static SECONDS: AtomicU32 = AtomicU32::new(86_413_000);

/// A pod that runs.
pub(super) struct Hostile {
    netns: Netns,
    mac: MacAddr,
    ip: Ipv4Addr,
}

impl Hostile {
    /// Makes one on a node, on a network.
    pub(super) fn make(corner: &Corner, name: &str, node: &str, network: &str) -> Self {
        let seconds = SECONDS.fetch_add(1, Ordering::Relaxed);
        corner.create(name, &idle(node, network, seconds));
        let found = corner.ready(name);
        let netns = until("the pod's process", || process(seconds));
        let mac = found[1].mac.parse().expect("a MAC address");
        let ip = found[1].ips[0].parse().expect("an IPv4 address");
        Self {
            netns: Netns::open(&netns).expect("the pod's namespace"),
            mac,
            ip,
        }
    }

    /// Spoofs, floods and forges tunnels until told to stop.
    ///
    /// Aimed at nothing, the same frames end at a link within the pod.
    pub(super) fn attack(&self, victims: &[String], aim: Aim, stop: &AtomicBool) {
        let ifname = match aim {
            Aim::Podnet => "net1",
            Aim::Nothing => self.aside(),
        };
        let tap = Tap::on(&self.netns, ifname);
        let frames = self.frames(victims);
        let mut all = frames.iter().cycle();
        while !stop.load(Ordering::Relaxed) {
            for frame in all.by_ref().take(BURST) {
                // A full queue is no reason to stop.
                let _ = tap.try_send(frame);
            }
            tap.drain();
            thread::sleep(PAUSE);
        }
    }

    /// A link of the pod that leads nowhere else.
    fn aside(&self) -> &'static str {
        let (name, other) = ("aside0", "aside1");
        let mut there = connection(&self.netns);
        let pair = there
            .create_veth(&VethSpec::new(name, other))
            .expect("a link within the pod");
        for ifindex in [pair.host_ifindex, pair.peer_ifindex] {
            there.set_up(ifindex).expect("up");
        }
        name
    }

    fn frames(&self, victims: &[String]) -> Vec<Vec<u8>> {
        let other = MacAddr([2, 0, 0, 0, 0, 0x66]);
        let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
        let here = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0x66);
        let ra = router_advertisement(here, all_nodes, &[]);
        let group = MacAddr([0x33, 0x33, 0, 0, 0, 1]);
        let mut frames = vec![ethernet(group, self.mac, IPV6, &ra)];
        for victim in victims.iter().filter_map(|ip| ip.parse::<Ipv4Addr>().ok()) {
            let packet = udp4(victim, self.ip, (9, 9), b"spoofed");
            frames.push(ethernet(MacAddr::BROADCAST, self.mac, IP, &packet));
            frames.push(ethernet(MacAddr::BROADCAST, other, IP, &packet));
            let arp = Arp::request((self.mac, victim), self.ip);
            frames.push(arp.frame(MacAddr::BROADCAST, self.mac, &[]));
            let flood = udp4(self.ip, Ipv4Addr::BROADCAST, (9, 9), b"flood");
            frames.push(ethernet(MacAddr::BROADCAST, self.mac, IP, &flood));
            let tunnel = udp4(
                self.ip,
                victim,
                (VXLAN, VXLAN),
                &[8, 0, 0, 0, 0x80, 0, 0, 0],
            );
            frames.push(ethernet(MacAddr::BROADCAST, self.mac, IP, &tunnel));
        }
        frames
    }
}

/// The namespace of the process that sleeps so long.
fn process(seconds: u32) -> Option<PathBuf> {
    let wanted = format!("sleep\0{seconds}\0");
    let all = fs::read_dir("/proc").expect("processes can be listed");
    let found = all.flatten().find(|entry| {
        let line = fs::read(entry.path().join("cmdline"));
        line.is_ok_and(|it| it == wanted.as_bytes())
    })?;
    Some(found.path().join("ns/net"))
}
