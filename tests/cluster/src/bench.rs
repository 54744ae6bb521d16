//! `cargo xtask cluster bench`: measures starts of pods with two more networks.
//!
//! It compares podnet with Multus and the reference plugins, one after the other in one cluster. Both
//! have the default network, and a NetworkAttachmentDefinition names each of the two.

mod multus;
mod pods;

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use self::pods::{Observer, Times};
use super::test::{self, NODES};
use super::{Cni, Up, kubectl, place, up};
use xtask::step::{execute, say};

/// Namespace of the measured pods.
const NAMESPACE: &str = "bench";
/// Names of the two definitions.
const NETWORKS: [&str; 2] = ["one", "two"];

#[derive(clap::Args)]
pub(super) struct Options {
    /// Pods that are made at once, after those that are made one by one
    #[arg(long, default_value_t = 30)]
    burst: usize,
    /// Pods that are made one by one
    #[arg(long, default_value_t = 10)]
    single: usize,
    #[command(flatten)]
    podnet: test::Install,
}

/// Times of one of the two.
struct Row {
    name: &'static str,
    single: Times,
    burst: Times,
}

/// Measures and prints the table.
///
/// # Errors
/// There is a cluster already, something cannot be built, or a pod does not get ready.
pub(super) fn run(options: &Options) -> xtask::Done {
    if !place::nodes().is_empty() {
        bail!("it needs a cluster of its own; `cargo xtask cluster down` ends the one that is up");
    }
    let archive = options.podnet.archive()?;
    let plugin = xtask::bench::multus()?;
    up(&Up {
        nodes: NODES,
        cni: Cni::Reference,
        image: None,
    })?;
    let rows = both(options, &archive, &plugin);
    place::remove()?;
    print(options, &rows?);
    Ok(ExitCode::SUCCESS)
}

fn both(options: &Options, archive: &Path, plugin: &Path) -> Result<[Row; 2]> {
    test::definitions()?;
    apply(&json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": NAMESPACE},
    }))?;
    say("Multus, with a bridge and host-local for each network");
    multus::install(plugin)?;
    for (name, number) in NETWORKS.into_iter().zip(1..) {
        definition(name, &multus::network(name, number))?;
    }
    let others = measure("Multus + bridge + host-local", options)?;
    multus::remove()?;

    say("podnet, with an L2 network for each");
    test::install(archive, &options.podnet.manifest())?;
    for (name, number) in NETWORKS.into_iter().zip(1..) {
        podnet(name, number)?;
        let config = json!({"cniVersion": "1.0.0", "type": "podnet", "podNetwork": name});
        definition(name, &config)?;
    }
    let ours = measure("podnet", options)?;
    Ok([ours, others])
}

fn measure(name: &'static str, options: &Options) -> Result<Row> {
    let mut observer = Observer::start(NAMESPACE, &NETWORKS)?;
    // Bridges, blocks of addresses and page caches, on both nodes.
    observer.round("warm", 4)?;
    let mut single = Times::default();
    for _ in 0..options.single {
        single.add(observer.round("single", 1)?);
    }
    let burst = observer.round("burst", options.burst)?;
    Ok(Row {
        name,
        single,
        burst,
    })
}

fn print(options: &Options, rows: &[Row]) {
    println!(
        "Time to Ready: median, 90 %, worst; mean time of the plugins of an ADD\n\n\
         | two more networks | 1 pod, {} times | {} pods at once |\n|---|---|---|",
        options.single, options.burst
    );
    for row in rows {
        println!("| {} | {} | {} |", row.name, row.single, row.burst);
    }
}

/// A network of podnet with the subnet of its number.
fn podnet(name: &str, number: u8) -> Result<()> {
    apply(&json!({
        "apiVersion": "podnet.dev/v1alpha1",
        "kind": "PodNetworkParameters",
        "metadata": {"name": name},
        "spec": {
            "mode": "L2", "subnets": [format!("10.{}.0.0/16", 120 + number)],
            // As the bridges that it is compared with.
            "transport": {"type": "Local"},
        },
    }))?;
    let refs = json!([{"group": "podnet.dev", "kind": "PodNetworkParameters", "name": name}]);
    apply(&json!({
        "apiVersion": "podnet.dev/v1alpha1",
        "kind": "PodNetwork",
        "metadata": {"name": name},
        "spec": {"provider": "podnet.dev/ebpf", "parametersRefs": refs},
    }))?;
    let network = format!("podnetwork/{name}");
    let wait = ["wait", &network, "--for=condition=Ready", "--timeout=60s"];
    execute(kubectl()?.args(wait))
}

fn definition(name: &str, config: &Value) -> Result<()> {
    apply(&json!({
        "apiVersion": "k8s.cni.cncf.io/v1",
        "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"config": config.to_string()},
    }))
}

fn apply(object: &Value) -> Result<()> {
    let file = place::dir().join("bench.json");
    fs::write(&file, object.to_string()).with_context(|| format!("writing {}", file.display()))?;
    execute(kubectl()?.args(["apply", "-f"]).arg(&file))
}
