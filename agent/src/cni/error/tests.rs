use std::collections::BTreeSet;
use std::path::PathBuf;

use agent_common::addr::MacAddr;
use api::ResolveError;
use book::samples::key;
use cni_spec::SpecError;
use datapath::DatapathError;
use ipam::Family;
use store::StoreError;
use world::WorldError;

use super::*;

mod cluster;
mod golden;
mod pods;

fn address(source: IpamError) -> AgentError {
    AgentError::from(BookError::Address {
        network: "blue".to_owned(),
        source,
    })
}

/// At least one error for each arm of [`code`], and more where an arm chooses.
fn all() -> Vec<(AgentError, Command, u32)> {
    let ip = "10.10.0.9".parse().unwrap();
    let subnet: api::Prefix = "10.10.0.0/24".parse().unwrap();
    let network = || "blue".to_owned();
    let no_json = || serde_json::from_str::<u8>("x").unwrap_err();
    let resolve = || {
        AgentError::from(WorldError::Resolve {
            source: Box::new(ResolveError::NetworkNotFound { name: network() }),
            broken: Vec::new(),
        })
    };
    let full = || DatapathError::MapFull {
        name: "PORTS",
        max_entries: 1,
    };
    let taken = netdev::Error::NameTaken {
        name: "net1".to_owned(),
        ifindex: 3,
    };
    let collect = AgentError::Collect {
        errors: vec![
            StoreError::Stopped.into(),
            AgentError::Impaired { ports: 1 },
        ],
    };
    let add = Command::Add;
    vec![
        (
            SpecError::IncompatibleVersion {
                requested: "9".to_owned(),
            }
            .into(),
            add,
            1,
        ),
        (SpecError::NoCommand.into(), add, 4),
        (SpecError::FrameVersion { found: 2 }.into(), add, 5),
        (SpecError::ConfigSyntax { source: no_json() }.into(), add, 6),
        (SpecError::NoNetwork.into(), add, 7),
        (resolve(), add, 7),
        (resolve(), Command::Status, 50),
        (AgentError::NoGateway { network: network() }, add, 7),
        (
            crate::error::ExplainError::Invalid {
                argument: "--from",
                value: network(),
                fix: "write NETWORK/ADDRESS",
            }
            .into(),
            Command::Check,
            4,
        ),
        (BookError::ModeChanged { network: network() }.into(), add, 7),
        (
            AgentError::from(BookError::IdTaken {
                id: 1,
                network: network(),
                owner: network(),
            }),
            add,
            7,
        ),
        (
            AgentError::from(BookError::NoId { network: network() }),
            add,
            7,
        ),
        (AgentError::Ranges { count: 1 }, add, 2),
        (
            AgentError::from(PortError::NoShaping {
                key: "k",
                rate: 1000,
            }),
            add,
            2,
        ),
        (
            address(IpamError::Exhausted {
                family: Family::V4,
                subnets: vec![subnet],
                in_use: 1,
            }),
            add,
            100,
        ),
        (address(IpamError::Held { ip }), add, 101),
        (
            address(IpamError::OutOfSubnets {
                ip,
                subnets: vec![subnet],
            }),
            add,
            102,
        ),
        (
            address(IpamError::Reserved {
                ip,
                why: ipam::Reserved::Gateway,
            }),
            add,
            102,
        ),
        (
            address(IpamError::PrefixLength {
                ip,
                asked: 8,
                subnet,
            }),
            add,
            102,
        ),
        (address(IpamError::RequestedTwice { ip }), add, 102),
        (address(IpamError::HostBits { prefix: subnet }), add, 199),
        (
            AgentError::from(BookError::MacHeld {
                network: network(),
                mac: MacAddr::BROADCAST,
            }),
            add,
            103,
        ),
        (AgentError::from(BookError::NoPort { max: 1 }), add, 104),
        (
            AgentError::OtherConfiguration {
                key: key("c1", "net1"),
            },
            add,
            105,
        ),
        (
            AgentError::NotAttached {
                key: key("c1", "net1"),
            },
            Command::Check,
            3,
        ),
        (
            AgentError::Damaged {
                key: key("c1", "net1"),
                faults: Vec::new(),
            },
            Command::Check,
            150,
        ),
        (
            AgentError::NoNetns {
                path: "/x".to_owned(),
            },
            add,
            4,
        ),
        (
            AgentError::HostNetns {
                path: "/x".to_owned(),
            },
            add,
            8,
        ),
        (taken.into(), add, 111),
        (netdev::Error::Malformed { what: "x" }.into(), add, 110),
        (full().into(), add, 120),
        (StoreError::Stopped.into(), add, 11),
        (StoreError::Stopped.into(), Command::Check, 11),
        (StoreError::Stopped.into(), Command::Del, 140),
        (StoreError::Stopped.into(), Command::Status, 50),
        (StoreError::KeyTooLong { size: 9 }.into(), add, 199),
        (
            AgentError::Waiting {
                key: key("c1", "net1"),
                why: "x".to_owned(),
            },
            add,
            11,
        ),
        (AgentError::Starting, add, 11),
        (AgentError::Starting, Command::Del, 11),
        (AgentError::Starting, Command::Status, 50),
        (AgentError::Impaired { ports: 2 }, Command::Status, 51),
        (collect, Command::Gc, 11),
        (AgentError::Collect { errors: Vec::new() }, Command::Gc, 199),
        (
            AgentError::from(BookError::Record {
                key: "k".to_owned(),
                source: no_json(),
            }),
            add,
            199,
        ),
        (
            AgentError::from(BookError::Orphan {
                ip,
                network: network(),
            }),
            add,
            199,
        ),
        (AgentError::NoContainer, add, 199),
    ]
}

fn every() -> Vec<(AgentError, Command, u32)> {
    let mut every = all();
    every.extend(pods::all());
    every
}

#[test]
fn every_failure_has_the_code_it_is_documented_with() {
    for (error, command, expected) in every() {
        assert_eq!(code(&error, command), ErrorCode(expected), "{error}");
    }
}

#[test]
fn documented_codes_are_those_that_are_given() {
    let given: BTreeSet<u32> = every().iter().map(|(.., code)| *code).collect();
    let documented: BTreeSet<u32> = SPEC_CODES
        .iter()
        .chain(CODES)
        .map(|(number, ..)| *number)
        .collect();
    assert_eq!(given, documented);
    assert_eq!(
        documented.len(),
        SPEC_CODES.len() + CODES.len(),
        "each number is there once"
    );
}

/// CNI-ERR-03: the spec's own numbers end at 99, and 999 is libcni's.
#[test]
fn our_own_codes_are_in_the_plugins_range() {
    for (number, ..) in CODES {
        assert!(
            (ErrorCode::PLUGIN_FIRST.0..999).contains(number),
            "{number}"
        );
    }
    assert!(
        SPEC_CODES
            .iter()
            .all(|(number, ..)| *number < ErrorCode::PLUGIN_FIRST.0)
    );
    proof::of!("CNI-ERR-03");
}

/// CNI-ERR-04: 3 lets a runtime skip `DEL`, so nothing but `CHECK` may give it.
#[test]
fn unknown_container_is_for_check_alone() {
    for (error, command, expected) in every() {
        assert!(expected != 3 || command == Command::Check, "{error}");
    }
    proof::of!("CNI-ERR-04");
}

#[test]
fn the_answer_has_version_message_chain_and_request_number() {
    let path = PathBuf::from("/sys/fs/bpf/podnet/root/ROOT");
    let source = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
    let error = AgentError::from(DatapathError::Pin {
        operation: "use",
        path,
        source,
    });
    let answer = to_cni(&error, Command::Add, CniVersion::V0_4_0, 17);
    assert_eq!(
        (answer.code, answer.cni_version),
        (ErrorCode(120), CniVersion::V0_4_0)
    );
    assert_eq!(answer.msg, "cannot use /sys/fs/bpf/podnet/root/ROOT");
    let details = "permission denied; podnet request 17";
    assert_eq!(answer.details, details);
}

/// CNI-ERR-06: runtimes take some words in the error of a `DEL` for success.
#[test]
fn no_error_of_del_reads_like_success() {
    let path = PathBuf::from("/var/lib/podnet/attachments.redb");
    let source = std::sync::Arc::new(std::io::Error::from_raw_os_error(2));
    let error = AgentError::from(StoreError::File {
        operation: "open",
        path,
        source,
    });
    let answer = to_cni(&error, Command::Del, CniVersion::LATEST, 1);
    let text = format!("{} {}", answer.msg, answer.details).to_lowercase();
    assert!(
        !text.contains("no such file or directory") && !text.contains("not found"),
        "{text}"
    );
    let other = to_cni(&error, Command::Add, CniVersion::LATEST, 1);
    assert!(
        other.details.contains("No such file or directory"),
        "{}",
        other.details
    );
    proof::of!("CNI-ERR-06");
}
