//! Find objects that must not be left on a node when podnet is gone.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use netdev::{LinkFilter, Netns};
use rustix::mount::{MountFlags, mount};
use serde_json::Value;

use crate::host::{UPLINK, connection};
use crate::node::Node;
use crate::wait;

const BPFFS: &str = "/sys/fs/bpf";
/// `BPF_FS_MAGIC` (linux/magic.h).
const BPF_FS_MAGIC: u64 = 0xcafe_4a11;

/// The BPF file system, mounted if it was not; the mount stays.
///
/// # Panics
/// If it cannot be mounted.
pub fn bpffs() -> PathBuf {
    static MOUNTING: Mutex<()> = Mutex::new(());
    let _guard = MOUNTING.lock();
    let mounted =
        rustix::fs::statfs(BPFFS).is_ok_and(|stat| u64::try_from(stat.f_type) == Ok(BPF_FS_MAGIC));
    if !mounted {
        mount("bpf", BPFFS, "bpf", MountFlags::empty(), c"mode=0700")
            .expect("a BPF file system on /sys/fs/bpf");
    }
    BPFFS.into()
}

/// Fails the test when a node whose agent was cleaned up is not as it was before.
///
/// # Panics
/// Then, naming everything that is left.
pub fn assert_none(node: &Node) {
    let mut left = Vec::new();
    for link in node.links() {
        if link.name != "lo" && link.name != UPLINK {
            left.push(format!("link {} ({:?})", link.name, link.alias));
        }
    }
    let netfilter = node.netns().run_in(netdev::Netfilter::open);
    // A kernel without netfilter has no table.
    if let Ok(mut netfilter) = netfilter.expect("the node's namespace can be entered") {
        for table in ["podnet", "podnet-egress", "podnet-tunnels"] {
            if netfilter.has(table).unwrap_or(false) {
                left.push(format!("nf_tables table inet {table}"));
            }
        }
    }
    // The kernel takes a program off when it gets to it.
    wait::until_true("no XDP program at the uplink", || {
        let mut there = connection(node.netns());
        let uplink = there.by_name(UPLINK).expect("links can be read");
        let programs = uplink.map(|link| there.xdp_programs(link.ifindex));
        programs.is_none_or(|it| it.expect("programs can be read").any().is_none())
    });
    for path in [
        node.bpffs().to_owned(),
        node.path("state"),
        node.path("run"),
    ] {
        files(&path, &mut left);
    }
    if node.bpffs().exists() {
        left.push(format!("{}", node.bpffs().display()));
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mounts can be read");
    let state = node.path("state");
    let run = node.path("run");
    for line in mounts.lines() {
        let point = line.split(' ').nth(4).map(Path::new);
        if point.is_some_and(|point| point.starts_with(&state) || point.starts_with(&run)) {
            left.push(format!("mount {line}"));
        }
    }
    assert!(left.is_empty(), "residue: {left:#?}");
}

/// Links of a pod other than its loopback.
///
/// # Panics
/// If they cannot be read.
pub fn links_of_pod(netns: &Netns) -> Vec<String> {
    let links = connection(netns).list(&LinkFilter::default());
    let names = links.expect("links can be read").into_iter();
    names
        .map(|link| link.name)
        .filter(|name| name != "lo")
        .collect()
}

/// Endpoints that are not a network's own gateway.
pub fn endpoints_of_pods(endpoints: Vec<Value>) -> Vec<Value> {
    let is_pod = |endpoint: &Value| {
        endpoint["container"]
            .as_str()
            .is_some_and(|id| !id.is_empty())
    };
    endpoints.into_iter().filter(is_pod).collect()
}

fn files(path: &Path, left: &mut Vec<String>) {
    let Ok(entries) = fs::read_dir(path) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            files(&path, left);
        } else {
            left.push(format!("{}", path.display()));
        }
    }
}
