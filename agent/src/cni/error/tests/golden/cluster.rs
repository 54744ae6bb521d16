//! Failures of the cluster: missing objects, missing answers.

use agent_common::addr::MacAddr;
use book::ledger::{ClaimKind, ClaimRef};
use book::record::ObjectRef;
use book::{AddressError, BookError};
use cluster::access::Used;
use ipam::{Family, IpamError};
use world::{DefaultNetwork, WorldError};

use super::{Case, text};
use crate::error::AgentError;
use crate::kube::{AccessError, ClusterError, LookupError};

pub(super) fn all() -> Vec<Case> {
    let mut all = pods();
    all.extend(addresses().into_iter().map(|(name, it)| (name, it.into())));
    let booked = ClusterError::from(BookError::NoPort { max: 1024 });
    all.push(("no port, in a cluster", booked.into()));
    all
}

fn pods() -> Vec<Case> {
    let (namespace, name) = (|| text("shop"), || text("web-0"));
    let refused = |used| AccessError::Refused {
        who: text("system:serviceaccount:shop:web"),
        used,
        namespace: text("shop"),
    };
    vec![
        (
            "pod: not found",
            LookupError::NotFound {
                namespace: namespace(),
                name: name(),
            }
            .into(),
        ),
        (
            "pod: another",
            LookupError::Another {
                namespace: namespace(),
                name: name(),
                asked: text("a"),
                found: text("b"),
            }
            .into(),
        ),
        (
            "pod: unknown",
            LookupError::Unknown {
                namespace: namespace(),
                name: name(),
                why: text("no answer"),
            }
            .into(),
        ),
        (
            "annotation of the node",
            AgentError::from(WorldError::NodeDefault {
                source: "green".parse::<DefaultNetwork>().unwrap_err(),
            }),
        ),
        (
            "networks not read",
            AgentError::from(WorldError::NotSynced {
                unread: vec![text("podnetworks are not read yet")],
            }),
        ),
        (
            "access: network refused",
            refused(Used::Network(text("blue"))).into(),
        ),
        (
            "access: definition refused",
            refused(Used::Definition {
                namespace: text("other"),
                name: text("sriov"),
            })
            .into(),
        ),
        (
            "access: unknown",
            AccessError::Unknown {
                namespace: namespace(),
                name: name(),
                why: text("no answer"),
            }
            .into(),
        ),
        ("access: no pod", AccessError::NoPod.into()),
    ]
}

fn addresses() -> Vec<(&'static str, AddressError)> {
    let ip = "10.10.0.9".parse().unwrap();
    let network = || text("blue");
    let why = || text("no answer");
    let named = |kind, name| ClaimRef {
        kind,
        object: ObjectRef {
            namespace: text("shop"),
            name: text(name),
        },
    };
    let claim = || named(ClaimKind::IpamClaim, "web-0.blue");
    let port = || named(ClaimKind::Port, "db-0");
    vec![
        (
            "addresses: reserved",
            AddressError::Reserved {
                network: network(),
                ip,
                holder: text("pod shop/web-1 on node n2"),
            },
        ),
        (
            "addresses: in use",
            AddressError::InUse {
                network: network(),
                ip,
                message: text("pod shop/web-1 has it"),
            },
        ),
        (
            "addresses: not granted by a node",
            AddressError::NotGranted {
                network: network(),
                ip,
                node: Some(text("n2")),
            },
        ),
        (
            "addresses: not granted",
            AddressError::NotGranted {
                network: network(),
                ip,
                node: None,
            },
        ),
        (
            "addresses: no block",
            AddressError::NoBlock {
                network: network(),
                source: IpamError::NoRoom {
                    family: Family::V4,
                    blocks: 1,
                },
                why: text("the API server gave it none in time"),
            },
        ),
        ("addresses: no pod", AddressError::NoPod { ip }),
        (
            "addresses: have it granted",
            AddressError::GrantUnknown {
                ip,
                network: network(),
                why: why(),
            },
        ),
        (
            "addresses: reserve",
            AddressError::NotReserved {
                ip,
                network: network(),
                why: why(),
            },
        ),
        (
            "addresses: find the node",
            AddressError::NodeUnknown {
                ip,
                network: network(),
                why: why(),
            },
        ),
        (
            "addresses: write a claim",
            AddressError::ClaimContended {
                claim: claim(),
                why: why(),
            },
        ),
        (
            "addresses: read a claim",
            AddressError::ClaimUnread {
                claim: claim(),
                why: why(),
            },
        ),
        (
            "addresses: write the status of a claim",
            AddressError::ClaimUnwritten {
                claim: claim(),
                why: why(),
            },
        ),
        (
            "claim: absent",
            AddressError::ClaimAbsent { claim: claim() },
        ),
        (
            "claim: being deleted",
            AddressError::ClaimDeleted { claim: claim() },
        ),
        (
            "claim: of another network",
            AddressError::ClaimOfAnother {
                claim: claim(),
                found: text("red"),
                network: network(),
            },
        ),
        (
            "claim: no address",
            AddressError::ClaimUnparsed {
                claim: claim(),
                text: text("x"),
            },
        ),
        (
            "claim: other addresses",
            AddressError::ClaimDiffers { claim: claim(), ip },
        ),
        (
            "claim: network of the node",
            AddressError::ClaimOnNode {
                claim: claim(),
                network: network(),
            },
        ),
        (
            "port: in use",
            AddressError::PortInUse {
                claim: port(),
                user: text("pod web-0 on node n2"),
            },
        ),
        (
            "port: its pod is not known",
            AddressError::PortUserUnknown {
                claim: port(),
                user: text("pod web-0 on node n2"),
                why: why(),
            },
        ),
        (
            "port: wrong field",
            AddressError::PortInvalid {
                claim: port(),
                why: text("spec.macRequest: \"x\" is not a MAC address"),
            },
        ),
        (
            "port: another MAC address",
            AddressError::PortMacDiffers {
                claim: port(),
                found: MacAddr([2, 0, 0, 0, 0, 1]),
                asked: MacAddr([2, 0, 0, 0, 0, 2]),
                source_of: "AttachmentParameters",
            },
        ),
        (
            "port: no pod",
            AddressError::PortWithoutPod { port: text("db-0") },
        ),
        (
            "port: no cluster",
            AddressError::PortWithoutCluster { claim: port() },
        ),
    ]
}
