//! `podnet-demo`: a scratch node that shows podnet at work, or finds its faults.
//!
//! `cargo xtask demo` builds what it needs and starts it.

mod interrupt;
mod place;
mod reach;
mod report;
mod sockets;
mod spoof;
mod stage;
mod stream;

use std::fmt::Display;
use std::fs;
use std::net::IpAddr;
use std::panic;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Parser;
use testbed::Network;
use testbed::node::Binaries;

use self::interrupt::Interrupt;
use self::place::Place;
use self::report::Report;
use self::stage::Stage;
use self::stream::{Streams, Tally};

/// Pods and their networks, in the order they are attached.
const PODS: [(&str, &str); 8] = [
    ("blue1", "blue"),
    ("blue2", "blue"),
    ("blue3", "blue"),
    ("red1", "red"),
    ("red2", "red"),
    ("green1", "green"),
    ("green2", "green"),
    ("green3", "green"),
];
/// The agent's `--max-ports`, before and after the upgrade of its maps.
const MAX_PORTS: [u16; 2] = [256, 512];
/// Datagrams in each direction before, while and after the agent is away.
///
/// All must arrive.
const BURST: u64 = 400;
/// How long replaced programs and maps may stay pinned.
const RETIREMENT: Duration = Duration::from_secs(10);

#[derive(Parser)]
#[command(name = "podnet-demo", about = "Shows podnet at work on a scratch node")]
struct Options {
    /// Leave everything up at the end, and say what can be typed
    #[arg(long, conflicts_with = "teardown")]
    keep: bool,
    /// Only remove what demos have left
    #[arg(long)]
    teardown: bool,
}

fn main() -> ExitCode {
    run(&Options::parse()).unwrap_or_else(|error| {
        eprintln!("podnet: error: {error:#}");
        ExitCode::FAILURE
    })
}

/// Shows, takes down; fails if anything was not as it must be.
fn run(options: &Options) -> Result<ExitCode> {
    if !rustix::process::geteuid().is_root() {
        bail!("the demo makes network namespaces and loads eBPF programs: run it as root");
    }
    if options.teardown {
        return teardown();
    }
    let built = Binaries::find();
    take_down_on_panic();
    let interrupt = Interrupt::listen()?;
    let mut report = Report::new();
    let networks = [
        Network::l2("blue", &["10.10.0.0/24", "fd10:10::/64"]).id(1001),
        Network::l2("red", &["10.10.0.0/24", "fd10:10::/64"]).id(1002),
        Network::l3("green", &["10.20.0.0/24", "fd10:20::/64"]).id(1003),
    ];
    let mut stage = Stage::set(built, interrupt, &networks)?;
    sockets::prepare(&stage)?;
    attach(&mut stage, &mut report)?;
    reach::show(&stage, &mut report)?;
    spoof::show(&stage, &mut report)?;
    sockets::show(&mut stage, &mut report)?;
    survive(&mut stage, &mut report)?;
    upgrade(&mut stage, &mut report)?;
    if options.keep {
        let held = report.end();
        explain(&stage);
        stage.keep();
        return Ok(code(held));
    }
    leave(stage, &mut report)?;
    Ok(code(report.end()))
}

/// Removes the stage when a fixture panics.
///
/// Fixtures panic where something is not as it must be, and a panic of an optimised build ends the
/// process without unwinding, so without dropping the stage.
fn take_down_on_panic() {
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |why| {
        report(why);
        if let Err(error) = Place::own().remove() {
            eprintln!("podnet: {error:#}; `cargo xtask demo --teardown` removes what is left");
        }
    }));
}

/// Prints one progress line.
fn say(line: impl Display) {
    println!("podnet: {line}");
}

fn code(held: bool) -> ExitCode {
    if held {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn attach(stage: &mut Stage, report: &mut Report) -> Result<()> {
    report.heading("A scratch node with an agent, and pods attached by the CNI binary");
    let ready = stage.start_agent(MAX_PORTS[0])?;
    report.check(
        true,
        format!("the agent is ready after {} ms", ready.as_millis()),
    );
    for (pod, network) in PODS {
        let took = stage.attach(pod, network)?;
        let ips: Vec<String> = stage
            .port(pod)?
            .ips
            .iter()
            .map(|(ip, _)| ip.to_string())
            .collect();
        report.check(
            ips.len() == 2,
            format!(
                "{pod:<7} on {network:<6} {:<28} ADD took {}",
                ips.join(" "),
                ms(took)
            ),
        );
    }
    let held = stage.get("attachments")?.len();
    report.check(
        held == PODS.len(),
        format!("the agent holds {held} attachments"),
    );
    Ok(())
}

/// The agent dies under traffic.
fn survive(stage: &mut Stage, report: &mut Report) -> Result<()> {
    report.heading(
        "The agent is killed under running streams (L2 over IPv4, L3 over IPv6, both ways)",
    );
    let tally = under_streams(stage, |stage, streams| {
        stage.kill_agent()?;
        report.check(
            true,
            "kill -9 of the agent; nothing runs but what is in the kernel",
        );
        streams.progress(BURST, stage.interrupt())?;
        let ready = stage.start_agent(MAX_PORTS[0])?;
        report.check(
            true,
            format!("started again, ready after {} ms", ready.as_millis()),
        );
        Ok(())
    })?;
    lossless(tally, report);
    let held = stage.get("attachments")?.len();
    report.check(
        held == PODS.len(),
        format!("the new agent holds the same {held} attachments"),
    );
    Ok(())
}

/// The agent comes back with maps of another layout.
fn upgrade(stage: &mut Stage, report: &mut Report) -> Result<()> {
    report.heading("The agent is upgraded to another map layout under the same streams");
    let before = generations(stage);
    let tally = under_streams(stage, |stage, streams| {
        let ended = stage.end_agent()?;
        report.check(
            ended,
            "SIGTERM: the agent ends and leaves the datapath forwarding",
        );
        streams.progress(BURST, stage.interrupt())?;
        let ready = stage.start_agent(MAX_PORTS[1])?;
        report.check(
            true,
            format!(
                "started with --max-ports {}, ready after {} ms",
                MAX_PORTS[1],
                ready.as_millis()
            ),
        );
        Ok(())
    })?;
    lossless(tally, report);
    // The old one is kept for as long as a packet may still be in its programs.
    let mut after = Vec::new();
    stage.interrupt().wait(RETIREMENT, || {
        after = generations(stage);
        Ok(after.len() == 1)
    })?;
    report.check(
        before.len() == 1 && after.len() == 1 && before != after,
        format!(
            "pinned generation {} replaced by {}",
            before.join(" "),
            after.join(" ")
        ),
    );
    Ok(())
}

fn under_streams(
    stage: &mut Stage,
    upheaval: impl FnOnce(&mut Stage, &Streams) -> Result<()>,
) -> Result<Tally> {
    let streams = {
        let (a, b) = (stage.port("blue1")?, stage.port("blue2")?);
        let (c, d) = (stage.port("green1")?, stage.port("green2")?);
        Streams::start(&[
            (a, IpAddr::V4(a.v4()), b, IpAddr::V4(b.v4())),
            (c, IpAddr::V6(c.v6()), d, IpAddr::V6(d.v6())),
        ])?
    };
    let started = Instant::now();
    streams.progress(BURST, stage.interrupt())?;
    upheaval(stage, &streams)?;
    streams.progress(BURST, stage.interrupt())?;
    streams.end(started)
}

fn lossless(tally: Tally, report: &mut Report) {
    let Tally {
        sent,
        received,
        lasted,
    } = tally;
    let lost = sent.saturating_sub(received);
    let seconds = lasted.as_secs_f64();
    let rate = u128::from(sent) * 1000 / lasted.as_millis().max(1);
    report.check(
        lost == 0 && received == sent,
        format!(
            "{sent} datagrams sent in {seconds:.1} s ({rate}/s), {received} received, {lost} lost"
        ),
    );
}

/// Directories of pinned maps and programs, one for each layout that is in use.
fn generations(stage: &Stage) -> Vec<String> {
    let entries = fs::read_dir(stage.place().bpffs())
        .into_iter()
        .flatten()
        .flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with('v'))
        .collect();
    names.sort();
    names
}

/// Takes everything apart and looks for what is left.
fn leave(mut stage: Stage, report: &mut Report) -> Result<()> {
    report.heading("Everything is detached, and podnet removed from the node");
    let mut times = stage.detach_all()?;
    times.sort();
    let median = times.get(times.len() / 2).copied().unwrap_or_default();
    report.check(
        times.len() == PODS.len(),
        format!(
            "{} pods detached by DEL, {} each (median)",
            times.len(),
            ms(median)
        ),
    );
    let held = stage.get("attachments")?;
    report.check(
        held.is_empty(),
        "the agent holds no attachment, and no address",
    );
    let links = stage.node_links()?;
    report.check(
        links.is_empty(),
        format!("{} links left on the node", links.len()),
    );
    stage.end_agent()?;
    let removed = stage.cleanup()?;
    report.check(
        !removed.trim().is_empty(),
        format!(
            "podnet-agent cleanup: {} things removed",
            removed.lines().count()
        ),
    );
    let place = stage.place().clone();
    for (what, path) in [("pins", place.bpffs()), ("records", place.file("state"))] {
        report.check(
            !path.exists(),
            format!("no {what} left ({} is gone)", path.display()),
        );
    }
    stage.remove()?;
    let left = place.contents();
    report.check(
        left.is_empty(),
        if left.is_empty() {
            "nothing left: no process, no namespace, no link, no pin, no file".to_owned()
        } else {
            format!("left: {}", left.join(", "))
        },
    );
    Ok(())
}

fn ms(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1000.0)
}

/// Explains what to type when everything stays up.
fn explain(stage: &Stage) {
    let place = stage.place();
    let agent = stage.built().agent.display();
    let socket = place.socket();
    let inside = |pod: &str| format!("ip netns exec {}", place.netns_name(pod));
    let ip = |pod: &str| {
        stage
            .port(pod)
            .map_or_else(|_| String::new(), |port| port.v4().to_string())
    };
    let ip6 = |pod: &str| {
        stage
            .port(pod)
            .map_or_else(|_| String::new(), |port| port.v6().to_string())
    };
    println!("\nEverything is left up. Try:");
    println!(
        "  {} ping -c 3 {}      # blue1 -> blue2",
        inside("blue1"),
        ip("blue2")
    );
    println!(
        "  {} ping -c 3 {}     # green1 -> green2, routed",
        inside("green1"),
        ip6("green2")
    );
    println!(
        "  {} ping -c 3 -W 1 {}  # blue1 -> green1: nothing",
        inside("blue1"),
        ip("green1")
    );
    for what in ["networks", "attachments", "endpoints", "drops"] {
        println!("  {agent} get {what} --socket {}", socket.display());
    }
    println!(
        "  {agent} explain --container blue1 --socket {}",
        socket.display()
    );
    println!(
        "  {agent} explain --from blue1 --to {} --socket {}",
        ip("blue2"),
        socket.display()
    );
    println!("  {} curl -s http://127.0.0.1:9464/metrics", inside("node"));
    println!("  less {}", place.file("agent.log").display());
    println!("Remove it with: cargo xtask demo --teardown");
}

/// Removes what demos have left, but for those still at work.
fn teardown() -> Result<ExitCode> {
    let mut found = 0;
    for place in Place::all()? {
        if place.is_busy() {
            say(format!(
                "a demo is at work in {}: left alone",
                place.dir().display()
            ));
            continue;
        }
        for what in place.contents() {
            found += 1;
            say(format!("removing {what}"));
        }
        place.remove()?;
    }
    if found == 0 {
        say("no demo has left anything");
    }
    Ok(ExitCode::SUCCESS)
}
