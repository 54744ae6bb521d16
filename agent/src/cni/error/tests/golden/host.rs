//! Failures of the kernel.

use std::path::PathBuf;

use datapath::DatapathError;
use ports::PortError;
use rustix::io::Errno;

use super::{Case, absent, denied, text};
use crate::error::AgentError;

pub(super) fn all() -> Vec<Case> {
    let netdev = netdev().into_iter().map(|(name, it)| (name, it.into()));
    let datapath = datapath().into_iter().map(|(name, it)| (name, it.into()));
    netdev.chain(datapath).chain(others()).collect()
}

fn netdev() -> Vec<(&'static str, netdev::Error)> {
    use netdev::Error;
    vec![
        (
            "netdev: invalid name",
            Error::InvalidName {
                name: text("a/b"),
                reason: "it has a slash",
            },
        ),
        (
            "netdev: name taken",
            Error::NameTaken {
                name: text("net1"),
                ifindex: 3,
            },
        ),
        (
            "netdev: TAP device taken",
            Error::CreateTap {
                name: text("pn0"),
                source: Errno::BUSY,
            },
        ),
        (
            "netdev: TAP device refused",
            Error::CreateTap {
                name: text("pn0"),
                source: Errno::PERM,
            },
        ),
        (
            "netdev: no TAP devices",
            Error::OpenTun {
                source: Errno::NOENT,
            },
        ),
        ("netdev: send", Error::Send { source: denied() }),
        ("netdev: malformed", Error::Malformed { what: "no index" }),
        (
            "netdev: interrupted",
            Error::DumpInterrupted {
                what: "links",
                attempts: 8,
            },
        ),
        ("netdev: vanished", Error::LinkVanished { link: 7.into() }),
        (
            "netdev: route of the node",
            Error::Routed {
                address: "10.10.0.9".parse().unwrap(),
                found: netdev::RouteMatch {
                    kind: netdev::RouteKind::Unicast,
                    prefix_len: 24,
                    gateway: None,
                    ifindex: 2,
                    mtu: None,
                },
            },
        ),
        (
            "netdev: foreign queue",
            Error::ForeignQueue {
                link: 7.into(),
                kind: text("htb"),
            },
        ),
        (
            "netdev: sysctl",
            Error::Sysctl {
                action: text("write 1 to"),
                path: PathBuf::from("/proc/sys/net/ipv4/ip_forward"),
                source: denied(),
            },
        ),
        (
            "netdev: namespace",
            Error::OpenNetns {
                path: PathBuf::from("/run/netns/x"),
                source: absent(),
            },
        ),
        ("netdev: shutting down", Error::ShuttingDown),
    ]
}

fn datapath() -> Vec<(&'static str, DatapathError)> {
    vec![
        ("datapath: no object", DatapathError::NoObject),
        (
            "datapath: no BPF file system",
            DatapathError::NotBpffs {
                path: PathBuf::from("/sys/fs/bpf/podnet"),
            },
        ),
        (
            "datapath: pin",
            DatapathError::Pin {
                operation: "use",
                path: PathBuf::from("/sys/fs/bpf/podnet/root/ROOT"),
                source: denied(),
            },
        ),
        (
            "datapath: no program",
            DatapathError::NoProgram { name: "from_pod" },
        ),
        ("datapath: no map", DatapathError::NoMap { name: "PORTS" }),
        (
            "datapath: foreign map",
            DatapathError::ForeignMap {
                path: PathBuf::from("/sys/fs/bpf/podnet/PORTS"),
            },
        ),
        (
            "datapath: map full",
            DatapathError::MapFull {
                name: "PORTS",
                max_entries: 1024,
            },
        ),
    ]
}

fn others() -> Vec<Case> {
    vec![
        (
            "no namespace",
            AgentError::NoNetns {
                path: text("/run/netns/x"),
            },
        ),
        (
            "namespace of the node",
            AgentError::HostNetns {
                path: text("/proc/1/ns/net"),
            },
        ),
        ("container of the node", AgentError::NodeContainer),
        ("starting", AgentError::Starting),
        (
            "internal: ADD without a container",
            AgentError::AddWithoutContainer,
        ),
        (
            "internal: watching the links",
            PortError::LinksUnwatched.into(),
        ),
    ]
}
