//! Errors of pods that list their networks themselves, and of other plugins.

use std::path::PathBuf;

use api::selection::parse_networks;
use cni_spec::{CniError, CniVersion, Command, ErrorCode, IfName, SpecError};

use crate::error::AgentError;
use delegate::error::DelegateError;

fn said(code: u32) -> AgentError {
    DelegateError::Failed {
        plugin: "bridge".to_owned(),
        command: Command::Add,
        error: CniError::new(CniVersion::LATEST, ErrorCode(code), "no", "why"),
    }
    .into()
}

fn member(source: AgentError) -> AgentError {
    AgentError::Member {
        number: 2,
        member: "NetworkAttachmentDefinition ns/x as net1".to_owned(),
        source: Box::new(source),
    }
}

pub(super) fn all() -> Vec<(AgentError, Command, u32)> {
    let text = || "x".to_owned();
    let add = Command::Add;
    let definition = api::nad::read_definition(&api::nad::Definition {
        namespace: "ns",
        name: "x",
        annotations: &std::collections::BTreeMap::new(),
        config: "{}",
    });
    let broken = || api::nad::find_on_disk("x", [("x.conf", r#"{"name":"x"}"#)]).unwrap_err();
    let mut all = wrong_requests();
    all.extend([
        (definition.unwrap_err().into(), add, 7),
        (broken().into(), add, 7),
        (broken().into(), Command::Status, 50),
        (
            AgentError::NoAnnotations {
                namespace: text(),
                name: text(),
            },
            add,
            11,
        ),
        (
            AgentError::NoDefaultNetwork {
                path: PathBuf::from("/etc/cni/net.d"),
            },
            Command::Status,
            50,
        ),
        (
            AgentError::ConfDir {
                path: PathBuf::from("/etc/cni/net.d"),
                source: std::io::ErrorKind::PermissionDenied.into(),
            },
            add,
            11,
        ),
        (AgentError::NameTaken { ifname: text() }, add, 111),
        (
            AgentError::DeviceInfo {
                source: std::io::ErrorKind::PermissionDenied.into(),
            },
            add,
            130,
        ),
    ]);
    all.extend(of_plugins());
    all
}

fn wrong_requests() -> Vec<(AgentError, Command, u32)> {
    let text = || "x".to_owned();
    let errors = [
        parse_networks("{}").unwrap_err().into(),
        AgentError::NoPrimary {
            interface: IfName::new("eth0").unwrap(),
        },
        AgentError::NetworkTwice { network: text() },
        AgentError::GatewayOutside {
            gateway: "10.0.0.1".parse().unwrap(),
            network: text(),
        },
        AgentError::NoDefinition {
            namespace: text(),
            name: text(),
            broken: Vec::new(),
        },
        AgentError::OwnPluginInChain { network: text() },
    ];
    errors
        .into_iter()
        .map(|error| (member(error), Command::Add, 7))
        .collect()
}

fn of_plugins() -> Vec<(AgentError, Command, u32)> {
    let plugin = || "bridge".to_owned();
    let add = Command::Add;
    let no_json = || serde_json::from_str::<u8>("x").unwrap_err();
    let of_add: [(DelegateError, u32); 9] = [
        (
            DelegateError::Capability {
                key: "ips",
                network: plugin(),
                capability: "ips",
            },
            2,
        ),
        (DelegateError::Name { plugin: plugin() }, 7),
        (DelegateError::TooLong { most: 5 }, 7),
        (
            DelegateError::Version {
                network: plugin(),
                found: "9.9.9".to_owned(),
            },
            7,
        ),
        (
            DelegateError::Conf {
                plugin: plugin(),
                source: no_json(),
            },
            7,
        ),
        (
            DelegateError::Absent {
                plugin: plugin(),
                searched: Vec::new(),
            },
            130,
        ),
        (
            DelegateError::Start {
                plugin: plugin(),
                source: std::io::ErrorKind::PermissionDenied.into(),
            },
            130,
        ),
        (
            DelegateError::TimedOut {
                plugin: plugin(),
                command: add,
                seconds: 60,
            },
            130,
        ),
        (
            DelegateError::Result {
                plugin: plugin(),
                source: SpecError::NoNetwork,
            },
            130,
        ),
    ];
    let crashed = DelegateError::Crashed {
        plugin: plugin(),
        command: add,
        status: "exit status: 1".to_owned(),
        output: String::new(),
    };
    let mut all: Vec<(AgentError, Command, u32)> = of_add
        .into_iter()
        .map(|(error, code)| (error.into(), add, code))
        .collect();
    all.extend([
        (crashed.into(), add, 130),
        // What says when to come back is passed on; other numbers are the plugin's own.
        (member(said(11)), add, 11),
        (said(50), Command::Status, 50),
        (said(51), Command::Status, 51),
        (said(7), Command::Status, 50),
        (said(50), add, 130),
        // CNI-ERR-04: never 3, whoever says it.
        (said(3), add, 130),
        (said(999), Command::Del, 130),
    ]);
    all
}
