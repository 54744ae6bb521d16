//! Where a measurement was made.

use std::fs;
use std::path::Path;
use std::process::Command;

use bench_report::machine::Machine;
use bench_report::revision::Revision;

/// Describes this machine; `agent` is the binary under test.
pub fn describe(agent: &Path) -> Machine {
    let cpuinfo = read("/proc/cpuinfo");
    let processors = || cpuinfo.lines().filter(|line| line.starts_with("processor"));
    let field = |text: &str, key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key));
        line.map(|rest| rest.trim_start_matches([' ', '\t', ':']).trim().to_owned())
            .unwrap_or_default()
    };
    let memory = field(&read("/proc/meminfo"), "MemTotal");
    let kib: u64 = memory
        .trim_end_matches(" kB")
        .trim()
        .parse()
        .unwrap_or_default();
    let versions = [
        ("podnet", said(Command::new(agent).arg("--version"))),
        ("iperf3", said(Command::new("iperf3").arg("--version"))),
        ("reference plugins", reference()),
        ("Open vSwitch", crate::peers::open_vswitch_version()),
        ("Multus", multus()),
    ];
    let versions = versions
        .into_iter()
        .filter_map(|(name, version)| Some((name.to_owned(), version?)))
        .collect();
    Machine {
        kernel: read("/proc/sys/kernel/osrelease"),
        cpu: field(&cpuinfo, "model name"),
        cpus: processors().count(),
        memory: kib / 1024,
        congestion: crate::traffic::congestion().to_owned(),
        versions,
    }
}

/// Returns the commit of this tree, and whether files that git knows have changed.
///
/// A word takes the hash's place where git does not tell.
pub fn revision() -> Revision {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let git = |arguments: &[&str]| {
        Command::new("git")
            .arg("-C")
            .arg(here)
            .args(arguments)
            .output()
    };
    let output = git(&["rev-parse", "--short=12", "HEAD"]);
    let hash = output.ok().filter(|output| output.status.success());
    let Some(hash) = hash else {
        return Revision::parse("unknown");
    };
    let changes = git(&["status", "--porcelain", "--untracked-files=no"]);
    Revision {
        commit: String::from_utf8_lossy(&hash.stdout).trim().to_owned(),
        dirty: changes.is_ok_and(|output| !output.stdout.is_empty()),
    }
}

/// The load averages of one, five and fifteen minutes.
pub fn load() -> String {
    let text = read("/proc/loadavg");
    text.split(' ').take(3).collect::<Vec<_>>().join(" ")
}

/// Debian's package knows the version; the binary of the package does not.
fn reference() -> Option<String> {
    let bridge = crate::plugin::reference("bridge").ok()?;
    let package = "containernetworking-plugins";
    let from_package = bridge.starts_with("/usr/lib/cni").then(|| {
        said(Command::new("dpkg-query").args(["--show", "--showformat=${Version}", package]))
    });
    from_package.flatten().or_else(|| {
        // It says so on stderr, whatever it is asked.
        let output = Command::new(bridge).output().ok()?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        text.lines().next().map(ToOwned::to_owned)
    })
}

/// The version in `multus: version:v4.3.0(…), commit:…`.
fn multus() -> Option<String> {
    let binary = crate::peers::provided("PODNET_MULTUS").ok()?;
    let line = said(Command::new(binary).arg("--version"))?;
    let (_, version) = line.split_once("version:")?;
    version.split('(').next().map(ToOwned::to_owned)
}

/// The first line a program prints, if it succeeds.
pub fn said(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|done| done.status.success())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines()
        .next()
        .filter(|line| !line.is_empty())
        .map(ToOwned::to_owned)
}

fn read(path: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.trim().to_owned()
}
