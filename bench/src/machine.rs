//! Where a measurement was made, and where its figures go.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// Kernel, processor, load and versions, as far as they can be found out.
pub fn describe(agent: &Path) -> Value {
    let cpuinfo = read("/proc/cpuinfo");
    let model = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .map(|rest| rest.trim_start_matches([' ', '\t', ':']).to_owned());
    let cpus = cpuinfo
        .lines()
        .filter(|line| line.starts_with("processor"))
        .count();
    json!({
        "kernel": read("/proc/sys/kernel/osrelease"),
        "cpu": model,
        "cpus": cpus,
        "load": load(),
        "unixTime": SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs()),
        "podnet": said(Command::new(agent).arg("--version")),
        "iperf3": said(Command::new("iperf3").arg("--version")),
        "referencePlugins": reference_version(),
    })
}

/// The load averages of one, five and fifteen minutes.
pub fn load() -> String {
    read("/proc/loadavg")
        .split(' ')
        .take(3)
        .collect::<Vec<_>>()
        .join(" ")
}

fn reference_version() -> Option<String> {
    let bridge = crate::plugin::reference("bridge").ok()?;
    // It says so on stderr, whatever it is asked.
    let output = Command::new(bridge).output().ok()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    text.lines().next().map(ToOwned::to_owned)
}

fn said(command: &mut Command) -> Option<String> {
    let output = command.output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().next().map(ToOwned::to_owned)
}

fn read(path: &str) -> String {
    fs::read_to_string(path)
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// Prints and keeps what was found: `bench/results/<name>.json`.
///
/// # Errors
/// The file cannot be written.
pub fn publish(name: &str, figures: &Value) -> Result<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("results");
    fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
    let path = dir.join(format!("{name}.json"));
    let mut text = serde_json::to_string_pretty(figures)?;
    text.push('\n');
    fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    println!("figures: {}", path.display());
    Ok(path)
}

/// One line about the machine.
pub fn print(machine: &Value) {
    let word = |key: &str| machine[key].as_str().unwrap_or("?").to_owned();
    println!(
        "Linux {}, {} x {}, load {}; {}; {}; {}",
        word("kernel"),
        machine["cpus"],
        word("cpu"),
        word("load"),
        word("podnet"),
        word("referencePlugins"),
        word("iperf3"),
    );
}
