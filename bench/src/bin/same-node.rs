//! Pod to pod on one node: a bare veth pair, the reference `bridge` plugin, the same with
//! bridge-nf-call-iptables as Kubernetes nodes have it, and podnet, in alternating rounds.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bench::traffic::{self, Udp};
use bench::{Plugin, Sandbox, Side, Table, interrupt, machine};
use clap::Parser;
use netdev::{Address, Netns, VethSpec};
use serde_json::json;
use tempfile::TempDir;
use tests::host::{Host, connection};
use tests::{Network, Node, Setup};

const BARE: &str = "bare veth pair";
const BRIDGE: &str = "bridge";
const BRIDGE_NF: &str = "bridge + nf-call";
const BRIDGE_CT: &str = "bridge + nf-call + conntrack";
const PODNET: &str = "podnet L2";
const ROUTED: &str = "podnet L3";

const TCP: &str = "TCP Gbit/s";
const PPS: &str = "UDP 18 B kpps, 2 CPUs";
const COST: &str = "UDP 18 B ns/packet, 1 CPU";
const TRIP: &str = "UDP round trip us, 1 CPU";
const WHATS: [&str; 4] = [TCP, PPS, COST, TRIP];

/// How long small datagrams are sent to fill two CPUs.
const BURST: Duration = Duration::from_secs(1);

#[derive(Parser)]
struct Options {
    /// Rounds; each measures everything once
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Seconds of each TCP stream
    #[arg(long, default_value_t = 2)]
    seconds: u64,
    /// Name of the file in bench/results
    #[arg(long, default_value = "same-node")]
    name: String,
}

/// A path that is measured.
struct Path {
    who: &'static str,
    a: Side,
    b: Side,
    /// The bridge's node, and whether its bridge passes packets to iptables.
    nf: Option<(Netns, bool)>,
}

fn main() -> Result<()> {
    let options = Options::parse();
    interrupt::listen()?;
    let dir = tempfile::Builder::new().prefix("podnet-bench-").tempdir()?;
    let networks = [
        Network::l2("blue", &["10.10.0.0/24", "fd10:10::/64"]),
        Network::l3("green", &["10.20.0.0/24", "fd10:20::/64"]),
    ];
    let node = Node::start(networks.iter().fold(Setup::empty(), Setup::network));
    let machine = machine::describe(&node.binaries().agent);
    machine::print(&machine);

    // What has interfaces lives until the end, the pods longer than the paths.
    let mut pods = Vec::new();
    let hosts = [Host::create(), Host::create()];
    let mut paths = vec![bare(&dir, &mut pods)?];
    paths.extend(bridges(&dir, hosts[0].netns(), false, &mut pods)?);
    paths.extend(bridges(&dir, hosts[1].netns(), true, &mut pods)?);
    let on_podnet = podnet(&dir, &node, &mut pods)?;
    paths.extend(on_podnet);

    let mut table = Table::new();
    let stream = Duration::from_secs(options.seconds);
    for round in 0..options.rounds {
        eprintln!(
            "round {} of {}, load {}",
            round + 1,
            options.rounds,
            machine::load()
        );
        // All paths by one measure, then all by the next: the pairs of a ratio are close in time.
        for what in WHATS {
            for turn in 0..paths.len() {
                let path = &paths[(turn + round) % paths.len()];
                path.prepare()?;
                let (a, b) = (&path.a, &path.b);
                let value = match what {
                    TCP => traffic::tcp(a, b, stream),
                    PPS => traffic::udp(a, b, Udp::TwoCpus, BURST),
                    COST => traffic::udp(a, b, Udp::OneCpu, BURST / 2),
                    _ => traffic::udp(a, b, Udp::RoundTrip, BURST / 2),
                };
                table.add(path.who, what, value?);
            }
        }
    }

    println!("\n{table}");
    let mut ratios = Vec::new();
    println!("podnet L2 over the others, paired by round (for ns and us less is better)");
    for what in WHATS {
        for other in [BARE, BRIDGE, BRIDGE_NF, BRIDGE_CT] {
            if table.series(other, what).values().is_empty() {
                continue;
            }
            let ratio = table.ratio(what, PODNET, other);
            println!(
                "  {what:<28} {other:<30} {:>6.3}  (+- {:.1}%)",
                ratio.median(),
                ratio.spread() * 100.0
            );
            ratios.push(json!({"what": what, "over": other, "ratio": ratio.to_json()}));
        }
    }
    println!("load {} before, {} after", machine["load"], machine::load());
    machine::publish(
        &options.name,
        &json!({
            "machine": machine,
            "loadAfter": machine::load(),
            "rounds": options.rounds,
            "podnetL2Over": ratios,
            "rows": table.to_json(),
        }),
    )?;
    drop(paths);
    drop(pods);
    Ok(())
}

impl Path {
    /// Switches bridge-nf-call on or off for the bridges of its node.
    fn prepare(&self) -> Result<()> {
        let Some((node, on)) = &self.nf else {
            return Ok(());
        };
        let value = if *on { "1" } else { "0" };
        node.run_in(|| -> std::io::Result<()> {
            for family in ["iptables", "ip6tables", "arptables"] {
                let path = format!("/proc/sys/net/bridge/bridge-nf-call-{family}");
                // Without br_netfilter there is nothing to switch off.
                if std::path::Path::new(&path).exists() {
                    fs::write(&path, value)?;
                }
            }
            Ok(())
        })?
        .context("switching bridge-nf-call")
    }
}

/// Two pods with nothing between them.
fn bare(dir: &TempDir, pods: &mut Vec<Sandbox>) -> Result<Path> {
    let (a, b) = (
        Sandbox::create(dir, "bare-a")?,
        Sandbox::create(dir, "bare-b")?,
    );
    let mut here = connection(a.netns());
    let mut spec = VethSpec::new("net1", "net1");
    spec.peer_netns = Some(b.netns().clone());
    spec.queues = Some(1);
    let pair = here.create_veth(&spec)?;
    let side = |sandbox: &Sandbox, ifindex, ip: [u8; 4]| -> Result<Side> {
        let mut netlink = connection(sandbox.netns());
        netlink.add_address(ifindex, Address::new(ip.into(), 24))?;
        netlink.set_up(ifindex)?;
        Ok(Side {
            netns: sandbox.netns().clone(),
            ip: ip.into(),
        })
    };
    let path = Path {
        who: BARE,
        a: side(&a, pair.host_ifindex, [10, 30, 0, 1])?,
        b: side(&b, pair.peer_ifindex, [10, 30, 0, 2])?,
        nf: None,
    };
    pods.extend([a, b]);
    Ok(path)
}

/// The reference plugin's bridge; once plain and once with bridge-nf-call, or with one rule that
/// needs connection tracking, as kube-proxy has it.
fn bridges(
    dir: &TempDir,
    node: &Netns,
    conntrack: bool,
    pods: &mut Vec<Sandbox>,
) -> Result<Vec<Path>> {
    let has_nf = std::path::Path::new("/proc/sys/net/bridge/bridge-nf-call-iptables").exists();
    if conntrack {
        let rule = [
            "-A",
            "FORWARD",
            "-m",
            "conntrack",
            "--ctstate",
            "INVALID",
            "-j",
            "DROP",
        ];
        let added = node.run_in(|| Command::new("iptables").args(rule).output())?;
        let works = added.as_ref().is_ok_and(|output| output.status.success());
        if !has_nf || !works {
            println!("without {BRIDGE_CT}: no br_netfilter, or no iptables ({added:?})");
            return Ok(Vec::new());
        }
    } else if !has_nf {
        println!("without {BRIDGE_NF}: this kernel has no br_netfilter");
    }
    let label = if conntrack { "bridge ct" } else { "bridge" };
    let plugin = Plugin::bridge(label, node, &dir.path().join(label), &["10.40.0.0/24"])?;
    let (a, b) = attach(dir, &plugin, &plugin, pods)?;
    let path = |who, on| Path {
        who,
        a: a.clone(),
        b: b.clone(),
        nf: Some((node.clone(), on)),
    };
    Ok(match (conntrack, has_nf) {
        (true, _) => vec![path(BRIDGE_CT, true)],
        (false, true) => vec![path(BRIDGE, false), path(BRIDGE_NF, true)],
        (false, false) => vec![path(BRIDGE, false)],
    })
}

fn podnet(dir: &TempDir, node: &Node, pods: &mut Vec<Sandbox>) -> Result<Vec<Path>> {
    let mut paths = Vec::new();
    for (who, network) in [(PODNET, "blue"), (ROUTED, "green")] {
        let cni = &node.binaries().cni;
        let plugin = Plugin::new(network, cni, node.conf(network), node.netns());
        let (a, b) = attach(dir, &plugin, &plugin, pods)?;
        paths.push(Path {
            who,
            a,
            b,
            nf: None,
        });
    }
    wait_settled(node)?;
    Ok(paths)
}

fn attach(
    dir: &TempDir,
    first: &Plugin,
    second: &Plugin,
    pods: &mut Vec<Sandbox>,
) -> Result<(Side, Side)> {
    let mut side = |plugin: &Plugin, end: &str| -> Result<Side> {
        let name = format!("{}-{end}", plugin.label.replace(' ', "-"));
        let pod = Sandbox::create(dir, &name)?;
        let (_, result) = plugin.call("ADD", Some(&pod))?;
        let side = Side::of_result(&pod, &result)?;
        pods.push(pod);
        Ok(side)
    };
    Ok((side(first, "a")?, side(second, "b")?))
}

/// Ports get their TCX links when it is quiet; that is how they are most of their lives.
fn wait_settled(node: &Node) -> Result<()> {
    if tests::skip::without_tcx("waiting for TCX links") {
        return Ok(());
    }
    let end = Instant::now() + Duration::from_secs(30);
    while Instant::now() < end {
        if node
            .get("attachments")
            .iter()
            .all(|row| row["hook"] == "tcx")
        {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    bail!("the ports got no TCX links: {:?}", node.get("attachments"))
}
