//! Run a hostile pod, a hostile tenant and a full disk next to honest pods.
//!
//! The honest pods exchange a stream.
//!
//! `cargo xtask cluster test -- hostile` runs it, by its name only: it takes ten minutes, or as many as
//! `PODNET_HOSTILE_MINUTES` says.

mod disk;
mod pod;
mod tenant;

use std::collections::BTreeMap;
use std::env;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::commands::SYSTEM;
use super::corner::{Corner, KEP, pod_fields};
use super::objects::{Objects, POD, condition, until};

const NODES: [&str; 2] = ["n1", "n2"];
/// Honest pods that are there from the beginning to the end, two of them a pair.
const HONEST: usize = 20;
/// Pods that come and go under the same load aimed at nothing.
///
/// The slowest of them defines "usual": there are so many that it is no luck.
const USUAL: usize = 40;
/// Pods that come and go in peace, to be printed for comparison.
const CALM: usize = 10;
/// How much longer than usual a pod may need under attack.
const PATIENCE_FACTOR: u32 = 2;

/// Target of the hostile pods and the hostile tenant.
///
/// The nodes, the API server and the attackers share the processors of one machine, so that any load makes
/// every pod slower. Aimed at nothing, the same pods send the same frames and the same tenant makes
/// as many pods with annotations as long, and none of it concerns podnet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Aim {
    Podnet,
    Nothing,
}

/// How long the attacks last.
fn duration() -> Duration {
    let minutes = env::var("PODNET_HOSTILE_MINUTES").ok();
    let minutes = minutes.map_or(10, |text| text.parse().expect("a number of minutes"));
    Duration::from_secs(minutes * 60)
}

/// Ends the attacks, also when the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn list(network: &str) -> String {
    json!([{"name": "default", "isDefaultGW": true}, {"name": network}]).to_string()
}

/// Name, UID and starts of each container of podnet.
fn containers(objects: &Objects) -> BTreeMap<String, u64> {
    let pods = objects.list(POD, SYSTEM);
    let containers = pods.iter().flat_map(|pod| {
        let (name, uid) = (&pod["metadata"]["name"], &pod["metadata"]["uid"]);
        let statuses = pod["status"]["containerStatuses"].as_array();
        statuses.into_iter().flatten().map(move |one| {
            let starts = one["restartCount"].as_u64().unwrap_or(u64::MAX);
            (format!("{name} {uid} {}", one["name"]), starts)
        })
    });
    containers.collect()
}

/// Makes a pod, waits until it is ready, deletes it. How long it took to be ready.
fn comes_and_goes(corner: &Corner, name: &str, node: &str, network: &str) -> Duration {
    let begun = Instant::now();
    corner.pod(name, node, &[(KEP, list(network))]);
    until(&format!("pod {name} to be ready"), || {
        let pod = corner.objects.get(POD, (&corner.name, name))?;
        (condition(&pod, "Ready")? == "True").then_some(())
    });
    let took = begun.elapsed();
    corner.delete(name);
    took
}

/// Starts to ping a partner, ten times a second.
fn begin_stream(corner: &Corner, pod: &str, to: &str) {
    until(&format!("{pod} to reach {to}"), || {
        corner.reaches(pod, to).then_some(())
    });
    let ping = format!("ping -i 0.1 {to} </dev/null >/tmp/ping 2>&1 & echo $! >/tmp/pid");
    corner.run(pod, &["sh", "-c", &ping]);
}

/// Packets sent and received by the stream of a pod, which ends.
fn end_stream(corner: &Corner, pod: &str) -> (u64, u64) {
    corner.run(pod, &["sh", "-c", "kill -INT $(cat /tmp/pid)"]);
    let said = until("ping to count", || {
        let said = corner.run(pod, &["tail", "-n", "3", "/tmp/ping"]);
        said.contains("packet loss").then_some(said)
    });
    let summary = said.lines().find(|line| line.contains("packet loss"));
    let words = summary
        .unwrap_or_default()
        .split(|c: char| !c.is_ascii_digit());
    let mut numbers = words.filter_map(|word| word.parse().ok());
    let (sent, received) = (numbers.next(), numbers.next());
    (sent.expect("a count"), received.expect("a count"))
}

/// An honest pod, and the address that its partner sends to.
struct Honest {
    name: String,
    ip: String,
}

/// Pairs on one node and pairs on two.
fn honest_pods(corner: &Corner, network: &str) -> Vec<Honest> {
    let place = |index: usize| match index % 4 {
        0 | 1 => NODES[index / 4 % 2],
        2 => NODES[0],
        _ => NODES[1],
    };
    let name = |index: usize| format!("honest-{index}");
    for index in 0..HONEST {
        corner.pod(&name(index), place(index), &[(KEP, list(network))]);
    }
    let pods = (0..HONEST).map(|index| {
        let found = corner.ready(&name(index));
        Honest {
            name: name(index),
            ip: found[1].ips[0].clone(),
        }
    });
    pods.collect()
}

/// Creates and deletes pods under attack; returns their times to be ready.
///
/// They are on the node with room on its disk.
fn churn(corner: &Corner, network: &str, until: Instant) -> Vec<Duration> {
    let mut took = Vec::new();
    while Instant::now() < until {
        let name = format!("guest-{}", took.len());
        took.push(comes_and_goes(corner, &name, NODES[0], network));
    }
    took
}

/// SECURITY.md: an attack costs honest pods no packet and at most twice the time.
///
/// The time is that to be ready. No part of podnet is restarted.
#[test]
fn honest_pods_lose_nothing_to_a_hostile_pod_a_hostile_tenant_and_a_full_disk() {
    let corner = Corner::new("hostile");
    let tunnelled =
        |subnet: &str| json!({"mode": "L2", "subnets": [subnet], "transport": {"type": "VXLAN"}});
    let good = corner.network_with("good", tunnelled("10.120.0.0/24"));
    let bad = corner.network_with("bad", tunnelled("10.121.0.0/24"));
    // Before anything is counted: the agent of the node starts on it.
    let small = disk::Small::make(&corner.objects, NODES[1]);

    let honest = honest_pods(&corner, &good);
    for pair in honest.chunks(2) {
        begin_stream(&corner, &pair[0].name, &pair[1].ip);
        begin_stream(&corner, &pair[1].name, &pair[0].ip);
    }
    let calm =
        (0..CALM).map(|index| comes_and_goes(&corner, &format!("calm-{index}"), NODES[0], &good));
    let calm = calm.max().unwrap_or_default();
    let before = containers(&corner.objects);
    // One of the attacker's network, and one that is on the honest pods' own.
    let hostile = [("mallory", &bad), ("eve", &good)];
    let hostile =
        hostile.map(|(name, network)| pod::Hostile::make(&corner, name, NODES[0], network));
    let victims: Vec<String> = honest.iter().map(|one| one.ip.clone()).collect();

    let stop = AtomicBool::new(false);
    let usual = thread::scope(|scope| {
        let _stopping = Stop(&stop);
        for pod in &hostile {
            scope.spawn(|| pod.attack(&victims, Aim::Nothing, &stop));
        }
        scope.spawn(|| tenant::attack(&bad, Aim::Nothing, &stop));
        let usual = (0..USUAL)
            .map(|index| comes_and_goes(&corner, &format!("usual-{index}"), NODES[0], &good));
        usual.max().unwrap_or_default()
    });

    stop.store(false, Ordering::Relaxed);
    let end = Instant::now() + duration();
    let took = thread::scope(|scope| {
        let stopping = Stop(&stop);
        for pod in &hostile {
            scope.spawn(|| pod.attack(&victims, Aim::Podnet, &stop));
        }
        let tenant = scope.spawn(|| tenant::attack(&bad, Aim::Podnet, &stop));
        let disk = scope.spawn(|| small.fill_again_and_again(&stop));
        let took = churn(&corner, &good, end);
        drop(stopping);
        let lists = tenant.join().expect("the tenant's requests end");
        let fills = disk.join().expect("the disk gets its room back");
        eprintln!("the tenant made {lists} objects, the disk was full {fills} times");
        assert!(lists > 0 && fills > 0, "nothing was attacked");
        took
    });
    let worst = took.iter().max().copied().unwrap_or_default();
    eprintln!(
        "{} pods came and went under attack: slowest {worst:?}; {USUAL} beside the same load aimed at nothing: \
         slowest {usual:?}; {CALM} in peace: slowest {calm:?}",
        took.len()
    );

    let streams = honest
        .iter()
        .map(|one| (&one.name, end_stream(&corner, &one.name)));
    let streams: Vec<_> = streams.collect();
    let sent: u64 = streams.iter().map(|(_, (sent, _))| sent).sum();
    eprintln!("the streams sent {sent} packets");
    // One may be under way when a stream is stopped.
    let lost = streams
        .iter()
        .filter(|(_, (sent, received))| sent - received > 1);
    assert_eq!(
        lost.collect::<Vec<_>>(),
        Vec::<&(&String, (u64, u64))>::new()
    );
    assert_eq!(
        containers(&corner.objects),
        before,
        "a part of podnet started again"
    );
    assert!(
        worst <= usual * PATIENCE_FACTOR,
        "a pod took {worst:?}, beside the same load aimed at nothing {usual:?}: {took:?}"
    );
    small.remove(&corner.objects);
}

/// A pod of these fields that does nothing but be there.
fn idle(node: &str, network: &str, seconds: u32) -> Value {
    let mut pod = pod_fields(node, &[(KEP, list(network))]);
    pod["spec"]["containers"][0]["command"] = json!(["sleep", seconds.to_string()]);
    pod
}
