//! Places of a cluster's files, and names of its parts.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use netdev::{NamedNetns, Netns};
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::Pid;

use super::{binaries, cgroup, name};

/// Where `ip netns` looks for names.
const NAMES: &str = "/run/netns";
/// The control plane, as a part.
pub(super) const CONTROL: &str = "cp";

/// The name of a part's network namespace and control group.
pub(super) fn part(part: &str) -> String {
    format!("{}{part}", name::prefix())
}

/// The file of a part's network namespace.
pub(super) fn netns_path(name: &str) -> PathBuf {
    Path::new(NAMES).join(part(name))
}

/// The network namespace of a part.
///
/// # Errors
/// There is none.
pub(super) fn netns(name: &str) -> Result<Netns> {
    let path = netns_path(name);
    Netns::open(&path).with_context(|| format!("no {name} in this cluster; `cluster up` makes one"))
}

/// Directory of everything that is a file of the running cluster.
pub(super) fn dir() -> PathBuf {
    binaries::dir().join("run").join(name::chosen())
}

/// Directory of certificates and kubeconfigs.
pub(super) fn pki() -> PathBuf {
    dir().join("pki")
}

/// Log of one program of one part.
pub(super) fn log(part: &str, program: &str) -> PathBuf {
    dir().join("log").join(format!("{part}-{program}.log"))
}

/// Directory of a node: what survives its reboot.
pub(super) fn node(name: &str) -> PathBuf {
    dir().join("nodes").join(name)
}

/// Makes the directories of a new cluster.
///
/// # Errors
/// There is one already, or a directory cannot be made.
pub(super) fn create() -> Result<()> {
    name::check_owner()?;
    let left = contents();
    if !left.is_empty() {
        bail!(
            "a cluster of this name is there already, or what is left of one; `cargo xtask cluster down` \
             removes it, --name makes another: {}",
            left.join(", ")
        );
    }
    name::own()?;
    for path in [
        pki(),
        dir().join("log"),
        dir().join("images"),
        dir().join("nodes"),
    ] {
        fs::create_dir_all(&path).with_context(|| format!("creating {}", path.display()))?;
    }
    Ok(())
}

/// The nodes that were made, in order.
pub(super) fn nodes() -> Vec<String> {
    let entries = fs::read_dir(dir().join("nodes")).into_iter().flatten();
    let mut names: Vec<String> = entries
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    // n10 comes after n9.
    names.sort_by_key(|name| (name.len(), name.clone()));
    names
}

/// Everything there is of a cluster now, named for people.
pub(super) fn contents() -> Vec<String> {
    let mut found = Vec::new();
    let groups = cgroup::find(&name::prefix());
    let processes = cgroup::members(&groups).len();
    if processes > 0 {
        found.push(format!("{processes} processes"));
    }
    // One in each hierarchy of cgroup v1: the name is enough.
    let mut names: Vec<_> = groups.iter().filter_map(|path| path.file_name()).collect();
    names.sort();
    names.dedup();
    let names = names.iter().map(|name| name.to_string_lossy());
    found.extend(names.map(|name| format!("control group {name}")));
    found.extend(
        namespaces()
            .iter()
            .map(|path| format!("network namespace {}", path.display())),
    );
    found.extend(
        mounts()
            .iter()
            .map(|path| format!("mount {}", path.display())),
    );
    if dir().exists() {
        found.push(format!("directory {}", dir().display()));
    }
    found
}

/// Removes everything; what is gone already is no error.
///
/// # Errors
/// Something is left, and what.
pub(super) fn remove() -> Result<()> {
    // Mounts, BPF links and containers of a node go with its processes.
    cgroup::remove(&cgroup::find(&name::prefix()))?;
    for path in namespaces() {
        NamedNetns::remove(&path).with_context(|| format!("removing {}", path.display()))?;
    }
    // What is mounted below the directory must not be removed with it.
    for path in mounts() {
        unmount(&path, UnmountFlags::DETACH)
            .with_context(|| format!("unmounting {}", path.display()))?;
    }
    if dir().exists() {
        fs::remove_dir_all(dir()).with_context(|| format!("removing {}", dir().display()))?;
    }
    name::disown()?;
    let left = contents();
    if !left.is_empty() {
        bail!("still there: {}", left.join(", "));
    }
    Ok(())
}

/// The first process of a node, which is 1 in the node's own PID namespace.
///
/// # Errors
/// The node does not run.
pub(super) fn init_of(name: &str) -> Result<Pid> {
    let wanted = part(name);
    let groups: Vec<PathBuf> = cgroup::find(&wanted)
        .into_iter()
        .filter(|path| path.ends_with(&wanted))
        .collect();
    let found = cgroup::members(&groups).into_iter().find(|pid| {
        let status = format!("/proc/{}/status", pid.as_raw_nonzero());
        fs::read_to_string(status).is_ok_and(|text| is_init(&text))
    });
    found.with_context(|| format!("{name} does not run; `cluster status` shows what does"))
}

/// A command in all namespaces of a node.
///
/// # Errors
/// As [`init_of`].
pub(super) fn enter(name: &str) -> Result<Command> {
    let mut command = Command::new("nsenter");
    command
        .arg(format!("--target={}", init_of(name)?.as_raw_nonzero()))
        .args([
            "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--",
        ]);
    Ok(command)
}

/// Reports whether a process is 1 in a PID namespace directly below ours.
///
/// See proc_pid_status(5), `NSpid`; in containers of the node there is one more.
fn is_init(status: &str) -> bool {
    let numbers = status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))
        .map(|list| list.split_whitespace().collect::<Vec<_>>());
    matches!(numbers.as_deref(), Some([_, "1"]))
}

fn namespaces() -> Vec<PathBuf> {
    let entries = fs::read_dir(NAMES).into_iter().flatten().flatten();
    let prefix = name::prefix();
    let ours = entries.filter(|entry| {
        entry
            .file_name()
            .to_string_lossy()
            .starts_with(prefix.as_str())
    });
    ours.map(|entry| entry.path()).collect()
}

/// Lists mount points below the cluster's directory; the last made first.
///
/// They are those of this mount namespace.
fn mounts() -> Vec<PathBuf> {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let points = text.lines().filter_map(|line| line.split(' ').nth(4));
    let mut ours: Vec<PathBuf> = points
        .map(PathBuf::from)
        .filter(|path| path.starts_with(dir()))
        .collect();
    ours.reverse();
    ours
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_process_of_a_node_is_not_one_of_its_containers() {
        assert!(is_init("Name:\txtask\nNSpid:\t812\t1\nNSpgid:\t812\t1\n"));
        assert!(!is_init("Name:\tunshare\nNSpid:\t811\n"));
        assert!(!is_init("Name:\tkubelet\nNSpid:\t813\t9\n"));
        assert!(!is_init("Name:\tpause\nNSpid:\t900\t77\t1\n"));
    }
}
