//! Measure the removal of pods that are older than a minute.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use netdev::VethSpec;
use testbed::host::{Host, connection};
use testbed::{Network, Node, Setup};

use super::{KERNEL, PODNET, V4};
use crate::cases::{Bench, millis, pause, wait_promoted};
use crate::interrupt;
use crate::peers::podnet_plugin;
use crate::plugin::Plugin;
use crate::report::{Better, Case};
use crate::sandbox::Sandbox;

/// Pods of each, all of them attached at once.
const PODS: usize = 20;

/// Attaches pods of podnet and of a rival, and detaches them when they are old.
///
/// # Errors
/// A call fails, or the run is interrupted.
pub(super) fn run(bench: &Bench<'_>, rival: Option<&Plugin>, case: &mut Case) -> Result<()> {
    bench.progress.stage("DEL of a pod older than a minute");
    let age = Duration::from_secs(bench.size(60, 1));
    let network = Network::l2("old", &[V4]);
    let after = age.as_secs().to_string();
    let setup = Setup::empty().network(&network);
    let node = Node::start(setup.env("PODNET_TCX_AFTER", &after));
    let own = podnet_plugin(PODNET, &node, "old");
    let plugins: Vec<&Plugin> = std::iter::once(&own).chain(rival).collect();
    let bare = Host::create();
    let count = bench.calls(PODS, 2);
    let mut rows = Vec::new();
    for round in 0..count {
        let mut pods = Vec::new();
        for (number, plugin) in plugins.iter().enumerate() {
            let pod = Sandbox::create(bench.dir, &format!("old-{number}-{round}"))?;
            plugin.call("ADD", Some(&pod))?;
            pods.push(pod);
        }
        let pod = Sandbox::create(bench.dir, &format!("old-bare-{round}"))?;
        let link = link(&bare, &pod, round)?;
        pods.push(pod);
        rows.push((pods, link));
    }
    let attached = Instant::now();
    while attached.elapsed() < age {
        interrupt::check()?;
        thread::sleep(Duration::from_millis(100));
    }
    wait_promoted(&node)?;
    for (round, (pods, link)) in rows.iter().enumerate() {
        for turn in 0..=plugins.len() {
            let number = (turn + round) % (plugins.len() + 1);
            pause();
            let (who, time) = match plugins.get(number) {
                Some(plugin) => {
                    let (time, _) = plugin.call("DEL", Some(&pods[number]))?;
                    (plugin.label.as_str(), time)
                }
                None => (KERNEL, removed(&bare, *link)?),
            };
            case.measure("", "DEL of a pod older than a minute", "ms", Better::Less)
                .put(who, round, millis(time));
        }
    }
    node.assert_empty();
    Ok(())
}

/// Makes the link that a plugin would, without one.
fn link(host: &Host, pod: &Sandbox, number: usize) -> Result<u32> {
    let mut netlink = connection(host.netns());
    let mut spec = VethSpec::new(&format!("old{number}"), "net1");
    spec.peer_netns = Some(pod.netns().clone());
    spec.queues = Some(1);
    let pair = netlink.create_veth(&spec)?;
    netlink.set_up(pair.host_ifindex)?;
    connection(pod.netns()).set_up(pair.peer_ifindex)?;
    Ok(pair.host_ifindex)
}

fn removed(host: &Host, link: u32) -> Result<Duration> {
    let mut netlink = connection(host.netns());
    let started = Instant::now();
    netlink.delete(link).context("removing a link")?;
    Ok(started.elapsed())
}
