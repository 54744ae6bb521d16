//! How long CNI calls take from exec to exit: podnet's binary with its agent beside the reference
//! `bridge` with `host-local`, in alternating rounds, each pod in a fresh namespace.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bench::{Plugin, Sandbox, Table, interrupt, machine};
use clap::Parser;
use netdev::VethSpec;
use serde_json::json;
use tempfile::TempDir;
use tests::host::{Host, connection};
use tests::{Network, Node, Setup};

const V4: &str = "10.10.0.0/23";
const V6: &str = "fd10:10::/64";
/// Making and removing a veth pair by netlink alone, without any plugin.
const KERNEL: &str = "kernel alone (veth pair)";

/// Pods of each that are attached at once: enough that waiting for TCX links takes no longer than
/// all the rest.
const BATCH: usize = 10;

#[derive(Parser)]
struct Options {
    /// Pods attached and detached by each
    #[arg(long, default_value_t = 60)]
    rounds: usize,
    /// Name of the file in bench/results
    #[arg(long, default_value = "cni-latency")]
    name: String,
}

fn main() -> Result<()> {
    let options = Options::parse();
    interrupt::listen()?;
    let networks = [Network::l2("dual", &[V4, V6]), Network::l2("single", &[V4])];
    let setup = networks.iter().fold(Setup::empty(), Setup::network);
    let node = Node::start(setup);
    let before = machine::describe(&node.binaries().agent);
    machine::print(&before);
    let mut table = Table::new();
    measure(&node, options.rounds, &mut table)?;

    println!("\nmilliseconds, from exec to exit\n{table}");
    let mut ratios = serde_json::Map::new();
    let commands = ["ADD", "DEL", "DEL right after ADD", "DEL of the only pod"];
    for stack in ["dual", "single"] {
        for command in commands {
            let (us, them) = (format!("podnet {stack}"), format!("bridge {stack}"));
            let paired = table.ratio(command, &us, &them);
            if paired.values().is_empty() {
                continue;
            }
            let medians =
                table.series(&us, command).median() / table.series(&them, command).median();
            println!(
                "{command} {stack} stack: podnet takes {:.2} of the reference \
                 (ratio of medians {medians:.2})",
                paired.median()
            );
            let key = format!("{command} {stack}");
            let both = json!({"paired": paired.median(), "ofMedians": medians});
            ratios.insert(key, both);
        }
    }
    println!("load {} before, {} after", before["load"], machine::load());
    machine::publish(
        &options.name,
        &json!({
            "machine": before,
            "loadAfter": machine::load(),
            "unit": "ms",
            "rounds": options.rounds,
            "podnetOverReference": ratios,
            "rows": table.to_json(),
        }),
    )?;
    Ok(())
}

fn measure(node: &Node, rounds: usize, table: &mut Table) -> Result<()> {
    let dir = tempfile::Builder::new().prefix("podnet-bench-").tempdir()?;
    // Nodes of their own, so that nobody's interfaces are in anybody's way.
    let hosts = [Host::create(), Host::create()];
    let bare = Host::create();
    let podnet = |network: &str| {
        let label = format!("podnet {network}");
        Plugin::new(
            &label,
            &node.binaries().cni,
            node.conf(network),
            node.netns(),
        )
    };
    let plugins = [
        podnet("dual"),
        Plugin::bridge(
            "bridge dual",
            hosts[0].netns(),
            &dir.path().join("a"),
            &[V4, V6],
        )?,
        podnet("single"),
        Plugin::bridge(
            "bridge single",
            hosts[1].netns(),
            &dir.path().join("b"),
            &[V4],
        )?,
    ];

    // Namespaces stay to the end: their removal must not be at work while something is timed.
    let mut ended: Vec<Sandbox> = Vec::new();
    let mut round = 0;
    while round < rounds {
        let batch = BATCH.min(rounds - round);
        eprintln!(
            "rounds {} to {}: ADD, waiting for TCX links, DEL",
            round + 1,
            round + batch
        );
        let mut pods: Vec<Vec<Sandbox>> = Vec::new();
        for _ in 0..batch {
            let mut row = Vec::new();
            for number in 0..plugins.len() {
                row.push(Sandbox::create(&dir, &format!("pod-{number}-{round}"))?);
            }
            in_turn(&plugins, round, |number, plugin| {
                let (time, _) = plugin.call("ADD", Some(&row[number]))?;
                table.add(&plugin.label, "ADD", ms(time));
                Ok(())
            })?;
            kernel_alone(&bare, &dir, round, table)?;
            pods.push(row);
            round += 1;
        }
        wait_tcx(node, batch * 2)?;
        for (turn, row) in pods.iter().enumerate() {
            in_turn(&plugins, turn, |number, plugin| {
                let (time, _) = plugin.call("DEL", Some(&row[number]))?;
                table.add(&plugin.label, "DEL", ms(time));
                Ok(())
            })?;
        }
        ended.extend(pods.into_iter().flatten());
    }
    eprintln!("{rounds} rounds of DEL right after ADD");
    for round in 0..rounds {
        for turn in 0..2 {
            let plugin = &plugins[(turn + round) % 2];
            let pod = Sandbox::create(&dir, &format!("brief-{turn}-{round}"))?;
            pause();
            plugin.call("ADD", Some(&pod))?;
            let (time, _) = plugin.call("DEL", Some(&pod))?;
            table.add(&plugin.label, "DEL right after ADD", ms(time));
            ended.push(pod);
        }
    }
    eprintln!("{} rounds of DEL of the only pod on the node", rounds / 4);
    for round in 0..rounds / 4 {
        let pods = [0, 1].map(|number| Sandbox::create(&dir, &format!("only-{number}-{round}")));
        let [first, second] = pods;
        let pods = [first?, second?];
        for (plugin, pod) in plugins.iter().zip(&pods) {
            plugin.call("ADD", Some(pod))?;
        }
        wait_tcx(node, 1)?;
        in_turn(&plugins[..2], round, |number, plugin| {
            let (time, _) = plugin.call("DEL", Some(&pods[number]))?;
            table.add(&plugin.label, "DEL of the only pod", ms(time));
            Ok(())
        })?;
        ended.extend(pods);
    }
    for line in node_log(node)? {
        if let Some((command, time)) = served(&line) {
            table.add("podnet's agent's part", command, time);
        }
    }
    let status = &plugins[0];
    for _ in 0..rounds {
        let (time, _) = status.call("STATUS", None)?;
        table.add(&status.label, "STATUS", ms(time));
    }
    node.assert_empty();
    Ok(())
}

/// Calls each plugin once, in another order in each round.
fn in_turn(
    plugins: &[Plugin],
    round: usize,
    mut call: impl FnMut(usize, &Plugin) -> Result<()>,
) -> Result<()> {
    for turn in 0..plugins.len() {
        let number = (turn + round) % plugins.len();
        pause();
        call(number, &plugins[number])?;
    }
    Ok(())
}

/// Lets the kernel finish what it puts off: the next call must not pay for the last one.
fn pause() {
    std::thread::sleep(Duration::from_millis(50));
}

/// What of ADD and DEL is the kernel's own: the same link made in a pod and removed, nothing else.
fn kernel_alone(host: &Host, dir: &TempDir, round: usize, table: &mut Table) -> Result<()> {
    let pod = Sandbox::create(dir, &format!("bare-{round}"))?;
    let mut netlink = connection(host.netns());
    let mut spec = VethSpec::new("bench0", "net1");
    spec.peer_netns = Some(pod.netns().clone());
    spec.queues = Some(1);
    let started = Instant::now();
    let pair = netlink.create_veth(&spec)?;
    netlink.set_up(pair.host_ifindex)?;
    table.add(KERNEL, "ADD", ms(started.elapsed()));
    connection(pod.netns()).set_up(pair.peer_ifindex)?;
    pause();
    let started = Instant::now();
    netlink.delete(pair.host_ifindex)?;
    table.add(KERNEL, "DEL", ms(started.elapsed()));
    Ok(())
}

/// Waits until all ports have their TCX links, where the kernel has those.
fn wait_tcx(node: &Node, ports: usize) -> Result<()> {
    if tests::skip::without_tcx("waiting for TCX links") {
        return Ok(());
    }
    let end = Instant::now() + Duration::from_secs(60);
    while Instant::now() < end {
        let attachments = node.get("attachments");
        let settled = attachments.iter().filter(|row| row["hook"] == "tcx");
        if settled.count() == ports {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    bail!("not all of {ports} ports got a TCX link")
}

fn node_log(node: &Node) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(node.path("agent.log")).context("the agent's log")?;
    Ok(text.lines().map(ToOwned::to_owned).collect())
}

/// Command and milliseconds of a log line that says how long a request took.
fn served(line: &str) -> Option<(&'static str, f64)> {
    let (_, elapsed) = line.split_once("served elapsed=")?;
    let command = ["ADD", "DEL"]
        .into_iter()
        .find(|command| line.contains(&format!("command=\"{command}\"")))?;
    let number = elapsed.trim_end_matches(|c: char| !c.is_ascii_digit());
    let time: f64 = number.parse().ok()?;
    let unit = elapsed.get(number.len()..)?.trim();
    let scale = match unit {
        "s" => 1000.0,
        "ms" => 1.0,
        _ => 0.001,
    };
    Some((command, time * scale))
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn the_time_of_a_request_is_read_from_the_log() {
        let line =
            r#"INFO cni{request=1 command="ADD" container="a"}: agent::cni: served elapsed=3.5ms"#;
        assert_eq!(served(line), Some(("ADD", 3.5)));
        assert_eq!(
            served(r#"command="DEL"}: served elapsed=1.25s"#),
            Some(("DEL", 1250.0))
        );
        assert_eq!(served("elapsed=1ms"), None);
    }
}
