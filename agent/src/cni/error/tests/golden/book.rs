//! Failures of the book: addresses, numbers, records.

use std::path::PathBuf;

use agent_common::addr::MacAddr;
use book::BookError;
use book::samples::key;
use ipam::{Family, IpamError};
use store::StoreError;

use super::requests::host_port;
use super::{Case, absent, denied, no_json, text};
use crate::error::AgentError;

pub(super) fn all() -> Vec<Case> {
    let mut all: Vec<Case> = ipam()
        .into_iter()
        .map(|(name, source)| {
            let network = text("blue");
            (
                name,
                AgentError::from(BookError::Address { network, source }),
            )
        })
        .collect();
    all.extend(networks());
    all.extend(attachments());
    all.extend(records());
    all.extend(stores());
    all
}

fn ipam() -> Vec<(&'static str, IpamError)> {
    let ip = "10.10.0.9".parse().unwrap();
    let subnet: api::Prefix = "10.10.0.0/24".parse().unwrap();
    let other: api::Prefix = "10.10.0.0/25".parse().unwrap();
    vec![
        (
            "address: exhausted",
            IpamError::Exhausted {
                family: Family::V4,
                subnets: vec![subnet],
                in_use: 253,
            },
        ),
        (
            "address: no room in the blocks",
            IpamError::NoRoom {
                family: Family::V6,
                blocks: 2,
            },
        ),
        ("address: held", IpamError::Held { ip }),
        (
            "address: out of the subnets",
            IpamError::OutOfSubnets {
                ip,
                subnets: vec![subnet, other],
            },
        ),
        (
            "address: reserved",
            IpamError::Reserved {
                ip,
                why: ipam::Reserved::Gateway,
            },
        ),
        (
            "address: length of the prefix",
            IpamError::PrefixLength {
                ip,
                asked: 8,
                subnet,
            },
        ),
        ("address: requested twice", IpamError::RequestedTwice { ip }),
        (
            "address: host bits",
            IpamError::HostBits {
                prefix: "10.10.0.1/24".parse().unwrap(),
            },
        ),
        (
            "address: gateway outside",
            IpamError::GatewayOutside {
                gateway: "10.9.0.1".parse().unwrap(),
                prefix: subnet,
            },
        ),
        (
            "address: exclude outside",
            IpamError::ExcludeOutside {
                exclude: other,
                prefix: "10.9.0.0/24".parse().unwrap(),
            },
        ),
        (
            "address: pools overlap",
            IpamError::PoolsOverlap {
                first: subnet,
                second: other,
            },
        ),
    ]
}

fn networks() -> Vec<Case> {
    let network = || text("blue");
    vec![
        (
            "network changed: networkID",
            BookError::IdChanged { network: network() }.into(),
        ),
        (
            "network changed: mode",
            BookError::ModeChanged { network: network() }.into(),
        ),
        (
            "network changed: routing",
            BookError::RoutingChanged { network: network() }.into(),
        ),
        (
            "network changed: transport",
            BookError::TransportChanged { network: network() }.into(),
        ),
        (
            "network changed: subnets",
            BookError::SubnetsChanged { network: network() }.into(),
        ),
        (
            "network id taken",
            AgentError::from(BookError::IdTaken {
                id: 7,
                network: network(),
                owner: text("red"),
            }),
        ),
        (
            "no network id",
            AgentError::from(BookError::NoId { network: network() }),
        ),
        (
            "MAC address held",
            AgentError::from(BookError::MacHeld {
                network: network(),
                mac: MacAddr([2, 0, 0, 0, 0, 9]),
            }),
        ),
        (
            "host port held",
            AgentError::from(BookError::HostPortHeld {
                port: host_port(),
                other: host_port(),
                holder: text("pod shop/till on network blue"),
            }),
        ),
        (
            "host port twice",
            AgentError::from(BookError::HostPortTwice {
                port: host_port(),
                other: host_port(),
            }),
        ),
        (
            "host port of another family",
            AgentError::from(BookError::HostPortFamily { port: host_port() }),
        ),
        (
            "too many host ports of a pod",
            AgentError::from(BookError::HostPortsOfPod {
                wanted: 17,
                max: 16,
            }),
        ),
        (
            "too many host ports of a network",
            AgentError::from(BookError::HostPortsOfNetwork {
                network: network(),
                wanted: 2,
                held: 47,
                max: 48,
            }),
        ),
        (
            "no host port",
            AgentError::from(BookError::NoHostPort {
                wanted: 2,
                held: 63,
                max: 64,
            }),
        ),
        ("no port", AgentError::from(BookError::NoPort { max: 1024 })),
        (
            "orphan",
            AgentError::from(BookError::Orphan {
                ip: "10.10.0.9".parse().unwrap(),
                network: network(),
            }),
        ),
        ("internal: allocator", BookError::NoAllocator.into()),
    ]
}

fn attachments() -> Vec<Case> {
    let key = || key("c1", "net1");
    vec![
        (
            "already attached: network namespace",
            AgentError::OtherNamespace { key: key() },
        ),
        (
            "already attached: configuration",
            AgentError::OtherConfiguration { key: key() },
        ),
        (
            "already attached: link",
            AgentError::LinkGone { key: key() },
        ),
        (
            "already attached: state",
            AgentError::BeingRemoved { key: key() },
        ),
        ("not attached", AgentError::NotAttached { key: key() }),
        (
            "damaged",
            AgentError::Damaged {
                key: key(),
                faults: vec![text("it is being removed"), text("PORTS has no entry")],
            },
        ),
        (
            "waiting",
            AgentError::Waiting {
                key: key(),
                why: text("the disk is full"),
            },
        ),
        ("impaired", AgentError::Impaired { ports: 2 }),
        (
            "collect",
            AgentError::Collect {
                errors: vec![
                    StoreError::Stopped.into(),
                    AgentError::Impaired { ports: 1 },
                ],
            },
        ),
        (
            "collect: nothing",
            AgentError::Collect { errors: Vec::new() },
        ),
    ]
}

fn records() -> Vec<Case> {
    vec![
        (
            "record",
            AgentError::from(BookError::Record {
                key: text("c1/net1"),
                source: no_json(),
            }),
        ),
        (
            "unreadable",
            AgentError::from(BookError::Unreadable {
                bad: 17,
                all: 20,
                key: text("c1/net1"),
                reason: text("no JSON"),
            }),
        ),
        (
            "boot",
            AgentError::from(BookError::Boot {
                path: PathBuf::from("/var/lib/podnet/boot-id"),
                source: denied(),
            }),
        ),
        (
            "tombstone",
            AgentError::Tombstone {
                path: PathBuf::from("/var/lib/podnet/del/1"),
                source: denied(),
            },
        ),
    ]
}

fn stores() -> Vec<Case> {
    let path = || PathBuf::from("/var/lib/podnet/attachments.redb");
    let stores = [
        ("store: in use", StoreError::InUse { path: path() }),
        (
            "store: format",
            StoreError::Format {
                path: path(),
                found: 9,
            },
        ),
        (
            "store: file",
            StoreError::File {
                operation: "open",
                path: path(),
                source: absent().into(),
            },
        ),
        (
            "store: thread",
            StoreError::Thread {
                source: denied().into(),
            },
        ),
        ("store: stopped", StoreError::Stopped),
        ("store: key", StoreError::KeyTooLong { size: 9000 }),
        ("store: value", StoreError::ValueTooLarge { size: 9000 }),
    ];
    stores
        .into_iter()
        .map(|(name, error)| (name, error.into()))
        .collect()
}
