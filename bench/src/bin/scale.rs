//! Whether a packet costs more where more networks and ports are, and what the agent needs for
//! them: by `BPF_PROG_TEST_RUN` on filled maps, by traffic beside 1,000 real ports, and by the
//! agent's memory.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use agent_common::addr::MacAddr;
use agent_common::endpoint::{Endpoint, EndpointKey, FdbKey};
use agent_common::flood::{FLOOD_CHUNK, FloodKey, FloodPorts};
use agent_common::port::Port;
use anyhow::{Context, Result, bail};
use bench::traffic::{self, Udp};
use bench::{Plugin, Sandbox, Side, Table, interrupt, machine};
use clap::Parser;
use datapath::{Datapath, Entries, Options as DatapathOptions, PinDir, Trial};
use netdev::Netns;
use serde_json::json;
use tempfile::TempDir;
use tests::frame::{ethernet, udp4};
use tests::{Network, Node, Setup};

/// `TC_ACT_REDIRECT` of `linux/pkt_cls.h`.
const REDIRECT: u32 = 7;
/// A test run's frames arrive by this interface.
const LOOPBACK: u32 = 1;
const TRIAL: &str = "BPF_PROG_TEST_RUN ns/packet";
const COST: &str = "UDP 18 B ns/packet, 1 CPU";
const TRIP: &str = "UDP round trip us, 1 CPU";
const PPS: &str = "UDP 18 B kpps, 2 CPUs";
const RSS: &str = "agent RSS MiB";
/// Frames of one test run: a few hundredths of a second, in which little else gets in between.
const REPEAT: u32 = 200_000;
/// Test runs for each round of traffic.
const TRIALS: usize = 4;
/// Interfaces in one namespace: a pod with that many is cheaper than that many pods.
const PER_POD: usize = 100;

#[derive(Parser)]
struct Options {
    /// Rounds of each measurement
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// Ports of the node with many
    #[arg(long, default_value_t = 1000)]
    ports: usize,
    /// Networks of the node with many
    #[arg(long, default_value_t = 2000)]
    networks: usize,
    /// The eBPF object
    #[arg(long, value_name = "PATH")]
    object: PathBuf,
    /// Name of the file in bench/results
    #[arg(long, default_value = "scale")]
    name: String,
}

fn main() -> Result<()> {
    let options = Options::parse();
    interrupt::listen()?;
    let mut table = Table::new();
    let machine = machine::describe(&tests::node::Binaries::find().agent);
    machine::print(&machine);
    let netns = Netns::create()?;
    netns.run_in(|| trials(&options, &mut table))??;
    println!("\n{table}");
    real(&options, &mut table)?;

    println!("\n{table}");
    let mut ratios = Vec::new();
    for (what, many, one) in comparisons(&options) {
        let ratio = table.ratio(what, &many, &one);
        if ratio.values().is_empty() {
            continue;
        }
        println!(
            "{what:<28} {many} over {one}: {:.3} (+- {:.1}%)",
            ratio.median(),
            ratio.spread() * 100.0
        );
        ratios.push(json!({"what": what, "who": many, "over": one, "ratio": ratio.to_json()}));
    }
    println!("load {} before, {} after", machine["load"], machine::load());
    let figures = json!({
        "machine": machine,
        "loadAfter": machine::load(),
        "ratios": ratios,
        "rows": table.to_json(),
    });
    machine::publish(&options.name, &figures)?;
    Ok(())
}

fn comparisons(options: &Options) -> Vec<(&'static str, String, String)> {
    let one = named(1, 2);
    let many = [
        named(options.networks, 2 * options.networks),
        named(1, options.ports),
    ];
    let mut list: Vec<_> = many
        .into_iter()
        .map(|many| (TRIAL, many, one.clone()))
        .collect();
    for what in [COST, TRIP, PPS] {
        list.push((what, named(1, options.ports), one.clone()));
        list.push((what, named(options.networks, options.ports), one.clone()));
    }
    list
}

fn named(networks: usize, ports: usize) -> String {
    let s = |count| if count == 1 { "" } else { "s" };
    format!(
        "{networks} network{}, {ports} port{}",
        s(networks),
        s(ports)
    )
}

/// Programs on filled maps, one set after the other in each round.
fn trials(options: &Options, table: &mut Table) -> Result<()> {
    let sizes = [
        (1, 2),
        (options.networks, 2 * options.networks),
        (1, options.ports),
    ];
    let mut sets = Vec::new();
    for (number, (networks, ports)) in sizes.into_iter().enumerate() {
        let name = format!("podnet-bench-{}-{number}", std::process::id());
        let path = datapath::bpffs::find(&Path::new("/sys/fs/bpf").join(name))?;
        let pins = Pins(path.clone());
        let object = Some(options.object.clone());
        let mut datapath = Datapath::open(&DatapathOptions {
            object,
            ..DatapathOptions::new(path)
        })?;
        let (entries, frame) = world(networks, ports)?;
        datapath.tables().apply(&Entries::default(), &entries)?;
        sets.push((named(networks, ports), datapath, frame, pins));
    }
    for round in 0..options.rounds * TRIALS {
        for turn in 0..sets.len() {
            let (who, datapath, frame, _) = &sets[(turn + round) % sets.len()];
            let result = datapath.try_frame(&Trial {
                frame,
                repeat: REPEAT,
            })?;
            if result.verdict != REDIRECT {
                bail!("the frame was not delivered: verdict {}", result.verdict);
            }
            table.add(who, TRIAL, result.duration.as_secs_f64() * 1e9);
        }
    }
    Ok(())
}

/// Pins that go when the measurement ends.
struct Pins(PathBuf);

impl Drop for Pins {
    fn drop(&mut self) {
        if let Err(error) = PinDir::new(self.0.clone()).remove() {
            eprintln!("{error}");
        }
    }
}

/// L2 networks with the same subnet and as many ports each; the sender is on the last network.
fn world(networks: usize, ports: usize) -> Result<(Entries, Vec<u8>)> {
    let mut entries = Entries::default();
    let each = ports / networks;
    let mut frame = Vec::new();
    for network in 0..networks {
        let mut first = None;
        let mut members = Vec::new();
        for place in 0..each {
            let number = u32::try_from(network * each + place)?;
            let is_sender = network + 1 == networks && place == 0;
            let ifindex = if is_sender { LOOPBACK } else { number + 10 };
            let [a, b, c, d] = number.to_be_bytes();
            let mac = MacAddr([2, 0, a, b, c, d]);
            let [.., high, low] = u32::try_from(place + 1)?.to_be_bytes();
            let ip4 = Ipv4Addr::new(10, 10, high, low);
            let ip6 = Ipv6Addr::new(0xfd10, 0x10, 0, 0, 0, 0, 0, u16::from_be_bytes([high, low]));
            let network = u32::try_from(network + 1)?;
            let port_id = u16::try_from(number % 4096)?;
            let port = Port {
                network,
                flags: 0,
                mac,
                mtu: 1500,
                ip4: ip4.octets(),
                port_id,
                reserved: 0,
                ip6: IpAddr::V6(ip6).into(),
                link_local: IpAddr::V6(mac.link_local()).into(),
                reserved2: 0,
            };
            let endpoint = Endpoint {
                ifindex,
                flags: 0,
                mac,
                port_id,
            };
            entries.ports.insert(ifindex, port);
            entries.fdb.insert(FdbKey::new(network, mac), endpoint);
            for ip in [IpAddr::V4(ip4).into(), IpAddr::V6(ip6).into()] {
                entries
                    .endpoints
                    .insert(EndpointKey { network, ip }, endpoint);
            }
            members.push(ifindex);
            if let Some((to, from)) = first.filter(|_| place + 1 == each) {
                frame = ethernet(mac, to, 0x0800, &udp4(from, ip4, (5000, 9), &[0; 18]));
            }
            first.get_or_insert((mac, ip4));
        }
        for (chunk, ports) in members.chunks(FLOOD_CHUNK).enumerate() {
            let mut ifindexes = [0; FLOOD_CHUNK];
            ifindexes[..ports.len()].copy_from_slice(ports);
            let key = FloodKey {
                network: u32::try_from(network + 1)?,
                chunk: u32::try_from(chunk)?,
            };
            let count = u32::try_from(ports.len())?;
            entries.flood.insert(key, FloodPorts { count, ifindexes });
        }
    }
    Ok((entries, frame))
}

/// A node with two pods that are measured, and whatever else there is on it.
struct Real {
    who: String,
    // Before the node: namespaces take their links along, all at once.
    pods: Vec<Sandbox>,
    a: Side,
    b: Side,
    node: Node,
}

/// Agents with few and with many real ports, and traffic between two of them.
fn real(options: &Options, table: &mut Table) -> Result<()> {
    let dir = tempfile::Builder::new().prefix("podnet-bench-").tempdir()?;
    let mut reals = [
        Real::start(&dir, "few", 1)?,
        Real::start(&dir, "ports", 1)?,
        Real::start(&dir, "nets", options.networks)?,
    ];
    let agents: Vec<u32> = reals
        .iter()
        .map(|real| agent_of(&real.node))
        .collect::<Result<_>>()?;
    table.add(&named(1, 2), RSS, rss(agents[0])?);
    for (index, networks) in [(1, 1), (2, options.networks)] {
        table.add(&named(networks, 2), RSS, rss(agents[index])?);
        let real = &mut reals[index];
        real.attach_more(&dir, 250, networks)?;
        settle(&real.node)?;
        table.add(&named(networks, 250), RSS, rss(agents[index])?);
        real.attach_more(&dir, options.ports, networks)?;
        settle(&real.node)?;
        table.add(&named(networks, options.ports), RSS, rss(agents[index])?);
        real.who = named(networks, options.ports);
    }
    settle(&reals[0].node)?;
    for round in 0..options.rounds {
        eprintln!(
            "round {} of {}, load {}",
            round + 1,
            options.rounds,
            machine::load()
        );
        for (what, how, time) in [
            (COST, Udp::OneCpu, 400),
            (TRIP, Udp::RoundTrip, 300),
            (PPS, Udp::TwoCpus, 500),
        ] {
            for turn in 0..reals.len() {
                let real = &reals[(turn + round) % reals.len()];
                let time = Duration::from_millis(time);
                table.add(&real.who, what, traffic::udp(&real.a, &real.b, how, time)?);
            }
        }
    }
    Ok(())
}

impl Real {
    fn start(dir: &TempDir, label: &str, networks: usize) -> Result<Self> {
        let setup = (0..networks).fold(Setup::empty(), |setup, number| {
            setup.network(&Network::l2(
                &network_name(number),
                &["10.10.0.0/20", "fd10:10::/64"],
            ))
        });
        let node = Node::start(setup);
        let (mut pods, mut sides) = (Vec::new(), Vec::new());
        for end in ["a", "b"] {
            let pod = Sandbox::create(dir, &format!("{label}-{end}"))?;
            let plugin = plugin(&node, &network_name(0));
            let (_, result) = plugin.call("ADD", Some(&pod))?;
            sides.push(Side::of_result(&pod, &result)?);
            pods.push(pod);
        }
        let (Some(b), Some(a)) = (sides.pop(), sides.pop()) else {
            bail!("two pods were attached");
        };
        Ok(Self {
            who: named(1, 2),
            node,
            a,
            b,
            pods,
        })
    }

    /// Attaches until there are that many ports, spread over the networks.
    fn attach_more(&mut self, dir: &TempDir, ports: usize, networks: usize) -> Result<()> {
        let held = self.node.attachments().len();
        eprintln!("attaching {} ports", ports - held);
        let mut place: Option<Sandbox> = None;
        for number in held..ports {
            if number % PER_POD == 0 || place.is_none() {
                let name = format!("{}-{number}", self.pods[0].name());
                self.pods
                    .extend(place.replace(Sandbox::create(dir, &name)?));
            }
            let pod = place.as_ref().context("a pod was just made")?;
            let network = network_name(number % networks);
            plugin(&self.node, &network).call_as("ADD", pod, &format!("net{number}"))?;
        }
        self.pods.extend(place);
        Ok(())
    }
}

fn network_name(number: usize) -> String {
    format!("n{number}")
}

fn plugin(node: &Node, network: &str) -> Plugin {
    Plugin::new(
        network,
        &node.binaries().cni,
        node.conf(network),
        node.netns(),
    )
}

/// Waits until nothing is being done for the ports any more.
fn settle(node: &Node) -> Result<()> {
    if tests::skip::without_tcx("waiting for TCX links") {
        return Ok(());
    }
    let end = Instant::now() + Duration::from_secs(180);
    while Instant::now() < end {
        if node
            .get("attachments")
            .iter()
            .all(|row| row["hook"] == "tcx")
        {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(500));
    }
    bail!("not all ports got their TCX links")
}

/// The agent's process: it was started with the node's directory as an argument.
fn agent_of(node: &Node) -> Result<u32> {
    let manifests = node.path("manifests").to_string_lossy().into_owned();
    for entry in std::fs::read_dir("/proc")? {
        let Ok(pid) = entry?.file_name().to_string_lossy().parse::<u32>() else {
            continue;
        };
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        if String::from_utf8_lossy(&command).contains(&manifests) {
            return Ok(pid);
        }
    }
    bail!("the agent's process was not found")
}

/// `VmRSS` in MiB.
fn rss(pid: u32) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib: f64 = line
        .and_then(|line| line.trim().strip_suffix(" kB"))
        .context("no VmRSS")?
        .trim()
        .parse()?;
    Ok(kib / 1024.0)
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn a_world_has_the_ports_it_is_asked_for() {
        let (entries, frame) = world(20, 40).unwrap();
        assert_eq!((entries.ports.len(), entries.fdb.len()), (40, 40));
        assert_eq!(entries.endpoints.len(), 80);
        assert_eq!(entries.flood.len(), 20);
        let sender = &entries.ports[&LOOPBACK];
        assert_eq!(
            (sender.network, &frame[6..12]),
            (20, sender.mac.0.as_slice())
        );
    }
}
