//! What the cluster does not give, or does not say.

use cluster::access::Used;
use ipam::{Family, IpamError};
use world::WorldError;

use super::{Case, text};
use crate::error::AgentError;
use crate::kube::{AccessError, AddressError, LookupError};

pub(super) fn all() -> Vec<Case> {
    let mut all = pods();
    all.extend(addresses().into_iter().map(|(name, it)| (name, it.into())));
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
            "networks not read",
            AgentError::World(WorldError::NotSynced {
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
    let api = |what: &str| AddressError::ApiServer {
        what: text(what),
        why: text("no answer"),
    };
    let no_claim = |what| AddressError::NoClaim {
        namespace: text("shop"),
        name: text("web-0.blue"),
        what,
    };
    let claim = |why: &str| AddressError::Claim {
        namespace: text("shop"),
        name: text("web-0.blue"),
        why: text(why),
    };
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
            api("have 10.10.0.9 of network blue granted"),
        ),
        (
            "addresses: reserve",
            api("reserve 10.10.0.9 on network blue"),
        ),
        (
            "addresses: find the node",
            api("find out which node holds the block of 10.10.0.9 on network blue"),
        ),
        (
            "addresses: write a claim",
            api("write the addresses of IPAMClaim shop/web-0.blue"),
        ),
        (
            "addresses: read a claim",
            api("read IPAMClaim shop/web-0.blue"),
        ),
        (
            "addresses: write the status of a claim",
            api("write status.ips of IPAMClaim shop/web-0.blue"),
        ),
        (
            "claim: absent",
            no_claim("does not exist; create it, and the pod will start with its next attempt"),
        ),
        (
            "claim: being deleted",
            no_claim("is being deleted; create it anew"),
        ),
        (
            "claim: of another network",
            claim(
                "spec.network is red and the attachment is to network blue; refer to a claim of that network",
            ),
        ),
        (
            "claim: no address",
            claim("\"x\" in status.ips is no address; correct it, or remove all"),
        ),
        (
            "claim: other addresses",
            claim(
                "10.10.0.9 is asked for beside it, and the claim has other addresses; remove ips",
            ),
        ),
        (
            "claim: network of the node",
            claim(
                "addresses of network blue are those of the node and cannot move: remove the claim, or use a network without routing Node",
            ),
        ),
    ]
}
