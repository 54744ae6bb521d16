//! Pods whose lists cannot be followed.

use std::path::PathBuf;

use api::selection::{NamespaceIsolated, parse_networks};
use cni_spec::IfName;

use super::{Case, denied, text};
use crate::error::AgentError;

pub(super) fn all() -> Vec<Case> {
    let definition = api::nad::read_definition(&api::nad::Definition {
        namespace: "shop",
        name: "sriov",
        annotations: &std::collections::BTreeMap::new(),
        config: "{}",
    });
    let on_disk = api::nad::find_on_disk("x", [("x.conf", r#"{"name":"x"}"#)]);
    let isolated = NamespaceIsolated {
        namespace: text("other"),
        own: text("shop"),
        global: text("default"),
    };
    let mut all: Vec<Case> = vec![
        ("definition", definition.unwrap_err().into()),
        ("configuration on disk", on_disk.unwrap_err().into()),
        ("namespace isolated", isolated.into()),
        (
            "selection",
            parse_networks(r#"{"a":1}"#).unwrap_err().into(),
        ),
    ];
    all.extend(lists());
    all.extend(nodes());
    all
}

fn lists() -> Vec<Case> {
    let no_definition = |broken| AgentError::NoDefinition {
        namespace: text("shop"),
        name: text("sriov"),
        broken,
    };
    let twice = AgentError::NetworkTwice {
        network: text("blue"),
    };
    let twice = AgentError::Member {
        number: 2,
        member: text("PodNetwork blue as net1"),
        source: Box::new(twice),
    };
    vec![
        (
            "no gateway",
            AgentError::NoGateway {
                network: text("blue"),
            },
        ),
        (
            "no primary",
            AgentError::NoPrimary {
                interface: IfName::new("eth0").unwrap(),
            },
        ),
        (
            "network twice",
            AgentError::NetworkTwice {
                network: text("blue"),
            },
        ),
        ("member", twice),
        (
            "name taken",
            AgentError::NameTaken {
                ifname: text("net1"),
            },
        ),
        (
            "gateway outside",
            AgentError::GatewayOutside {
                gateway: "10.0.0.1".parse().unwrap(),
                network: text("blue"),
            },
        ),
        (
            "not of the VPC",
            AgentError::NotOfVpc {
                network: text("blue"),
                vpc: text("shop"),
            },
        ),
        (
            "a Port of a network of other plugins",
            AgentError::NetworkOfPlugins {
                what: text("Port db-0"),
            },
        ),
        (
            "routes",
            AgentError::Routes {
                network: text("blue"),
                errors: api::FieldErrors(Vec::new()),
            },
        ),
        ("no definition", no_definition(Vec::new())),
        (
            "no definition: a manifest is not readable",
            no_definition(vec![text("a.yaml: no YAML")]),
        ),
        (
            "own plugin in a chain",
            AgentError::OwnPluginInChain {
                network: text("blue"),
            },
        ),
    ]
}

fn nodes() -> Vec<Case> {
    vec![
        (
            "no annotations",
            AgentError::NoAnnotations {
                namespace: text("shop"),
                name: text("web-0"),
            },
        ),
        (
            "no default network",
            AgentError::NoDefaultNetwork {
                path: PathBuf::from("/etc/cni/net.d"),
            },
        ),
        (
            "default network is Multus'",
            AgentError::MultusInDefaultChain {
                file: text("00-multus.conf"),
                plugin: "multus",
            },
        ),
        (
            "directory of configurations",
            AgentError::ConfDir {
                path: PathBuf::from("/etc/cni/net.d"),
                source: denied(),
            },
        ),
        ("device info", AgentError::DeviceInfo { source: denied() }),
        ("default network waits", AgentError::DefaultNetworkWaits),
        (
            "internal: a request without a container",
            AgentError::NoContainer,
        ),
        (
            "internal: device in a configuration",
            AgentError::DeviceUntold,
        ),
        ("internal: CNI_IFNAME", AgentError::InterfaceName),
    ]
}
