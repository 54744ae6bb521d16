//! Control groups by the name of a cluster's part.
//!
//! They hold its processes together, so that they can be found and ended whoever started them, and are
//! the root of what a node's kubelet sees.
//!
//! With cgroup v1, the only one that was tried, each controller has a hierarchy of its own. A group
//! is made below the caller's: what the caller may use, its nodes share.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

/// Where they are mounted, on every distribution.
pub(super) const MOUNT: &str = "/sys/fs/cgroup";
/// File of the members; a write moves a process there.
const PROCS: &str = "cgroup.procs";
/// In the root of cgroup v2 only.
const CONTROLLERS: &str = "cgroup.controllers";
/// How long killed processes may take to be gone.
const PATIENCE: Duration = Duration::from_secs(20);

/// Whether nodes can have control groups here.
///
/// # Errors
/// All controllers are in cgroup v2. There a group with processes cannot share its controllers out,
/// so that a node's first process would need a group of its own.
pub(super) fn check() -> Result<()> {
    if Path::new(MOUNT).join(CONTROLLERS).is_file() {
        bail!(
            "nodes need cgroup v1, and {MOUNT} is cgroup v2: boot with \
             systemd.unified_cgroup_hierarchy=0, or use a cluster of another kind"
        );
    }
    Ok(())
}

/// Lists the controllers with a hierarchy of their own (cgroup v1), by directory.
///
/// # Errors
/// They cannot be read.
pub(super) fn controllers() -> Result<Vec<String>> {
    let entries = fs::read_dir(MOUNT).with_context(|| format!("reading {MOUNT}"))?;
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        // Those two have no controllers.
        let is_controller = !["systemd", "unified"].contains(&name.as_str());
        // A link is a second name: `cpu` for `cpu,cpuacct`.
        if is_controller && entry.file_type()?.is_dir() && entry.path().join(PROCS).is_file() {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// Makes the group `name` in every hierarchy.
///
/// # Errors
/// The kernel refuses.
pub(super) fn create(name: &str) -> Result<()> {
    for parent in parents()? {
        let group = parent.join(name);
        fs::create_dir_all(&group).with_context(|| format!("creating {}", group.display()))?;
        // Empty in a new group: nothing could run there.
        for file in ["cpuset.cpus", "cpuset.mems"] {
            if !group.join(file).is_file() {
                continue;
            }
            let value = fs::read_to_string(parent.join(file))?;
            fs::write(group.join(file), value.trim())
                .with_context(|| format!("{file} of {}", group.display()))?;
        }
    }
    Ok(())
}

/// Moves this process into the group `name`.
///
/// # Errors
/// There is no such group, or the kernel refuses.
pub(super) fn join(name: &str) -> Result<()> {
    for parent in parents()? {
        let file = parent.join(name).join(PROCS);
        // 0 is the process that writes.
        fs::write(&file, "0").with_context(|| format!("joining {}", file.display()))?;
    }
    Ok(())
}

/// All groups whose name starts so, wherever they were made.
pub(super) fn find(prefix: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    walk(Path::new(MOUNT), &mut |dir| {
        let name = dir.file_name().unwrap_or_default().to_string_lossy();
        let is_it = name.starts_with(prefix);
        if is_it {
            found.push(dir.to_owned());
        }
        !is_it
    });
    found
}

/// The processes in these groups and below.
pub(super) fn members(groups: &[PathBuf]) -> Vec<Pid> {
    let mut members = Vec::new();
    for group in groups {
        walk(group, &mut |dir| {
            let text = fs::read_to_string(dir.join(PROCS)).unwrap_or_default();
            let numbers = text.lines().filter_map(|line| line.parse().ok());
            members.extend(numbers.filter_map(Pid::from_raw));
            true
        });
    }
    members.sort_by_key(|pid| pid.as_raw_nonzero());
    members.dedup();
    members
}

/// Kills everything in these groups and removes them.
///
/// # Errors
/// Something does not end.
pub(super) fn remove(groups: &[PathBuf]) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    loop {
        let members = members(groups);
        if members.is_empty() {
            break;
        }
        if Instant::now() > end {
            let list: Vec<String> = members.iter().map(ToString::to_string).collect();
            bail!("these processes do not end: {}", list.join(" "));
        }
        for pid in members {
            // It may have ended at this very moment.
            let _ = kill_process(pid, Signal::KILL);
        }
        thread::sleep(Duration::from_millis(20));
    }
    for group in groups {
        loop {
            match remove_tree(group) {
                Ok(()) => break,
                // The last member is a zombie still.
                Err(error)
                    if error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < end =>
                {
                    thread::sleep(Duration::from_millis(20));
                }
                Err(error) => {
                    return Err(error).with_context(|| format!("removing {}", group.display()));
                }
            }
        }
    }
    Ok(())
}

/// Directories in which a group is made: one for each hierarchy.
fn parents() -> Result<Vec<PathBuf>> {
    let mount = Path::new(MOUNT);
    let own = fs::read_to_string("/proc/self/cgroup").context("reading /proc/self/cgroup")?;
    let controllers = controllers()?;
    let parents: Vec<PathBuf> = controllers
        .iter()
        .map(|name| {
            let path = own_group(&own, name).unwrap_or("/");
            mount.join(name).join(path.trim_start_matches('/'))
        })
        .collect();
    if parents.is_empty() {
        bail!("no cgroup controllers are mounted in {MOUNT}");
    }
    Ok(parents)
}

/// Returns the path of a process in one hierarchy, from `/proc/PID/cgroup`.
///
/// See cgroups(7). A process that is in a group of ours is taken to be in its parent.
fn own_group<'a>(text: &'a str, controllers: &str) -> Option<&'a str> {
    let path = text.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        (fields.next()? == controllers).then(|| fields.next())?
    })?;
    Some(
        path.split_once(&format!("/{}", super::name::prefix()))
            .map_or(path, |(up, _)| up),
    )
}

/// Calls `visit` for the directory and all below it, unless `visit` refuses one.
fn walk(dir: &Path, visit: &mut impl FnMut(&Path) -> bool) {
    if !visit(dir) {
        return;
    }
    // A group may go away while this looks.
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            walk(&entry.path(), visit);
        }
    }
}

fn remove_tree(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    match fs::remove_dir(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "9:name=systemd:/\n8:pids:/\n4:memory:/runner/c9d\n3:cpu,cpuacct:/a:b\n\
                       2:cpuset:/x/podnet-k8s-n1/init\n0::/\n";

    #[test]
    fn a_group_is_made_below_the_one_of_the_caller() {
        assert_eq!(own_group(OWN, "memory"), Some("/runner/c9d"));
        assert_eq!(own_group(OWN, "pids"), Some("/"));
        assert_eq!(own_group(OWN, "cpu,cpuacct"), Some("/a:b"));
        assert_eq!(own_group(OWN, "freezer"), None);
    }

    #[test]
    fn groups_of_a_cluster_are_not_nested() {
        assert_eq!(own_group(OWN, "cpuset"), Some("/x"));
    }
}
