//! Requests that are wrong by themselves, and networks that cannot be used.

use api::{Clash, Kind, Origin, ParametersRef, ResolveError, Transport};
use cni_spec::{CniVersion, Command, SpecError};
use ports::PortError;
use world::WorldError;

use super::{Case, denied, no_json, text};
use crate::error::AgentError;
use crate::error::ExplainError;

pub(super) fn all() -> Vec<Case> {
    let mut all: Vec<Case> = spec()
        .into_iter()
        .chain(frames())
        .map(|(name, error)| (name, error.into()))
        .collect();
    let resolved = resolve().into_iter().chain(conflicts());
    all.extend(resolved.map(|(name, source)| (name, of(source, &[]))));
    let missing = ResolveError::NetworkNotFound { name: text("blue") };
    all.push((
        "resolve: a manifest is not readable",
        of(missing, &["a.yaml: no YAML", "b.yaml: no YAML"]),
    ));
    all.extend(others());
    all
}

fn of(source: ResolveError, broken: &[&str]) -> AgentError {
    AgentError::from(WorldError::Resolve {
        source: Box::new(source),
        broken: broken.iter().map(|it| text(it)).collect(),
    })
}

fn spec() -> Vec<(&'static str, SpecError)> {
    let rule = "at most 15 bytes";
    vec![
        ("spec: no command", SpecError::NoCommand),
        (
            "spec: unknown command",
            SpecError::UnknownCommand { value: text("PUT") },
        ),
        (
            "spec: variables missing",
            SpecError::EnvMissing {
                names: vec!["CNI_NETNS", "CNI_IFNAME"],
            },
        ),
        (
            "spec: container id",
            SpecError::ContainerId { value: text("-a") },
        ),
        (
            "spec: interface name",
            SpecError::IfName {
                value: text("a/b"),
                rule,
            },
        ),
        (
            "spec: version",
            SpecError::IncompatibleVersion {
                requested: text("9"),
            },
        ),
        (
            "spec: command needs a version",
            SpecError::CommandNeedsVersion {
                command: Command::Gc,
                needed: CniVersion::LATEST,
                config: CniVersion::V0_4_0,
            },
        ),
        (
            "spec: no JSON",
            SpecError::ConfigSyntax { source: no_json() },
        ),
        (
            "spec: name of the network is missing",
            SpecError::NetworkName { value: None },
        ),
        (
            "spec: name of the network",
            SpecError::NetworkName {
                value: Some(text("-a")),
            },
        ),
        (
            "spec: type of a field",
            SpecError::FieldType {
                path: text("name"),
                expected: "text",
                found: text("a number"),
            },
        ),
        (
            "spec: value of a field",
            SpecError::FieldValue {
                path: text("podNetwork"),
                source: Box::new(SpecError::ObjectName {
                    value: text("A"),
                    rule: "a-z",
                }),
            },
        ),
        (
            "spec: burst without rate",
            SpecError::BurstWithoutRate {
                path: text("runtimeConfig.bandwidth.egressBurst"),
                rate: "egressRate",
            },
        ),
        (
            "spec: missing field",
            SpecError::FieldMissing { path: text("type") },
        ),
        ("spec: no network", SpecError::NoNetwork),
        ("spec: two networks", SpecError::TwoNetworks),
        (
            "spec: network of the pod and another",
            SpecError::FromPodAndNetwork { key: "podNetwork" },
        ),
        (
            "spec: object name",
            SpecError::ObjectName {
                value: text("A"),
                rule: "a-z",
            },
        ),
        (
            "spec: socket path",
            SpecError::SocketPath {
                value: text("x"),
                rule: "absolute",
            },
        ),
        (
            "spec: address",
            SpecError::Address {
                value: text("x"),
                rule: "unicast",
            },
        ),
        (
            "spec: MAC address",
            SpecError::Mac {
                value: text("x"),
                rule: "unicast",
            },
        ),
        (
            "spec: no previous result",
            SpecError::NoPrevResult {
                command: Command::Check,
            },
        ),
        (
            "spec: interface index",
            SpecError::InterfaceIndex {
                ip: 0,
                index: 3,
                interfaces: 2,
            },
        ),
        (
            "spec: result without addresses",
            SpecError::NoIpForVersion {
                version: CniVersion::V0_4_0,
            },
        ),
    ]
}

fn frames() -> Vec<(&'static str, SpecError)> {
    vec![
        (
            "frame: too large",
            SpecError::FrameTooLarge { length: 99_999_999 },
        ),
        (
            "frame: cut",
            SpecError::FrameCut {
                received: 1,
                expected: 2,
            },
        ),
        ("frame: transfer", SpecError::FrameIo { source: denied() }),
        ("frame: no JSON", SpecError::FrameJson { source: no_json() }),
        ("frame: version", SpecError::FrameVersion { found: 2 }),
        (
            "frame: kind",
            SpecError::FrameKind {
                expected: "request, shown",
            },
        ),
    ]
}

fn reference(kind: &str, namespace: Option<&str>) -> ParametersRef {
    ParametersRef {
        group: text("podnet.dev"),
        kind: text(kind),
        name: text("blue-p"),
        namespace: namespace.map(text),
    }
}

fn resolve() -> Vec<(&'static str, ResolveError)> {
    let name = || text("blue");
    let errors = || api::FieldErrors(Vec::new());
    vec![
        (
            "resolve: no such network",
            ResolveError::NetworkNotFound { name: name() },
        ),
        ("resolve: disabled", ResolveError::Disabled { name: name() }),
        (
            "resolve: provider",
            ResolveError::ForeignProvider {
                name: name(),
                provider: text("other.example"),
            },
        ),
        (
            "resolve: no provider",
            ResolveError::ForeignProvider {
                name: name(),
                provider: String::new(),
            },
        ),
        (
            "resolve: parameters missing",
            ResolveError::ParametersMissing { name: name() },
        ),
        (
            "resolve: several parameters",
            ResolveError::ParametersRefused {
                name: name(),
                told: vec![
                    api::Told {
                        index: 1,
                        reference: reference("PodNetworkParameters", None),
                        outcome: api::Outcome::Conflict(vec!["spec.mtu"]),
                    },
                    api::Told {
                        index: 0,
                        reference: reference("PodNetworkParameters", None),
                        outcome: api::Outcome::Read,
                    },
                ],
            },
        ),
        (
            "resolve: several parameters of an attachment",
            ResolveError::RequestRefused {
                name: text("shop/fast"),
                told: vec![api::Told {
                    index: 1,
                    reference: reference("AttachmentParameters", None),
                    outcome: api::Outcome::Repeated,
                }],
            },
        ),
        (
            "resolve: definition without namespace",
            ResolveError::NamespaceMissing {
                reference: reference("NetworkAttachmentDefinition", None),
            },
        ),
        (
            "resolve: definition as parameters",
            ResolveError::DefinitionUnusable {
                reference: reference("NetworkAttachmentDefinition", Some("shop")),
                problem: Box::new(api::nad::DefinitionProblem::PluginOfOthers {
                    found: text("macvlan"),
                }),
            },
        ),
        (
            "resolve: kind of parameters",
            ResolveError::KindNotSupported {
                reference: reference("Other", None),
                wanted: Kind::PodNetworkParameters,
            },
        ),
        (
            "resolve: namespace of parameters",
            ResolveError::NamespaceOnClusterScoped {
                reference: reference("PodNetworkParameters", Some("shop")),
            },
        ),
        (
            "resolve: parameters of another namespace",
            ResolveError::RefNotPermitted {
                reference: reference("AttachmentParameters", Some("other")),
                namespace: text("shop"),
            },
        ),
        (
            "resolve: no such parameters",
            ResolveError::ParametersNotFound {
                reference: reference("PodNetworkParameters", None),
            },
        ),
        (
            "resolve: parameters not valid",
            ResolveError::ParametersInvalid {
                kind: Kind::PodNetworkParameters,
                name: text("blue-p"),
                origin: origin(),
                errors: errors(),
            },
        ),
        (
            "resolve: request not valid",
            ResolveError::RequestInvalid {
                references: vec![reference("AttachmentParameters", None)],
                errors: errors(),
            },
        ),
        (
            "resolve: parameters in conflict",
            ResolveError::ConflictingParameters {
                reference: reference("AttachmentParameters", None),
                fields: vec!["spec.macRequest"],
            },
        ),
        (
            "resolve: no number",
            ResolveError::NotNumbered { name: name() },
        ),
        (
            "resolve: no transport",
            ResolveError::TransportPending { name: name() },
        ),
    ]
}

fn origin() -> Origin {
    Origin {
        file: text("blue.yaml"),
        document: 1,
        line: 3,
    }
}

fn conflicts() -> Vec<(&'static str, ResolveError)> {
    let (name, first) = (|| text("blue"), || text("red"));
    vec![
        (
            "resolve: number of two networks",
            ResolveError::NetworkIdConflict {
                name: name(),
                id: api::NetworkId::new(7).unwrap(),
                others: vec![first()],
                more: 2,
            },
        ),
        (
            "resolve: two networks with routing Node",
            ResolveError::RoutingConflict {
                name: name(),
                first: first(),
            },
        ),
        (
            "resolve: uplink of two networks",
            ResolveError::UplinkConflict {
                name: name(),
                first: first(),
                uplink: text("eth1"),
                what: Clash::Vlan(100),
            },
        ),
        (
            "resolve: no such VPC",
            ResolveError::VpcNotFound {
                name: name(),
                vpc: text("shop"),
            },
        ),
        (
            "resolve: a VPC that cannot be used",
            ResolveError::VpcUnusable {
                name: name(),
                vpc: text("shop"),
                source: Box::new(ResolveError::Disabled { name: first() }),
            },
        ),
        (
            "resolve: a subnet outside of the VPC",
            ResolveError::SubnetOutsideVpc {
                name: name(),
                vpc: text("shop"),
                subnet: "192.168.0.0/24".parse().unwrap(),
                cidrs: vec!["10.0.0.0/8".parse().unwrap()],
            },
        ),
        (
            "resolve: a subnet of another network of the VPC",
            ResolveError::VpcOverlap {
                name: name(),
                vpc: text("shop"),
                prefix: "10.1.0.0/24".parse().unwrap(),
                first: text("PodNetwork red"),
                other: "10.1.0.0/16".parse().unwrap(),
            },
        ),
        (
            "resolve: made with another transport",
            ResolveError::TransportConflict {
                name: name(),
                written: Some(Transport::Local),
                decided: Transport::Vxlan,
            },
        ),
        (
            "resolve: no address for tunnels",
            ResolveError::NoTunnelAddress {
                name: name(),
                transport: Transport::Vxlan,
            },
        ),
        (
            "resolve: no shared number",
            ResolveError::NoSharedNumber {
                name: name(),
                transport: Transport::Vxlan,
            },
        ),
        (
            "resolve: defined twice",
            ResolveError::Duplicate {
                kind: Kind::PodNetwork,
                name: name(),
                first: origin(),
                second: origin(),
            },
        ),
        (
            "resolve: no such attachment",
            ResolveError::AttachmentNotFound {
                namespace: text("shop"),
                name: text("fast"),
            },
        ),
    ]
}

fn others() -> Vec<Case> {
    let (host, container) = (80, 8080);
    vec![
        (
            "unsupported: host ports of a single attachment",
            AgentError::HostPortOfRuntime { host, container },
        ),
        (
            "unsupported: ranges of addresses",
            AgentError::Ranges { count: 2 },
        ),
        (
            "unsupported: host ports in the pod's list",
            AgentError::HostPortOfList { host, container },
        ),
        (
            "unsupported: kind of a host port",
            AgentError::HostPortKind {
                host,
                container,
                reason: "port 0: write ports from 1 to 65535",
            },
        ),
        (
            "host port in use on the node",
            AgentError::HostPortServed { port: host_port() },
        ),
        (
            "host port of no address of the node",
            AgentError::HostPortAddress { port: host_port() },
        ),
        (
            "host port of addresses of Services",
            AgentError::HostPortOfServices {
                port: host_port(),
                link: "kube-ipvs0",
            },
        ),
        (
            "host port that the operator keeps",
            AgentError::HostPortReserved {
                port: host_port(),
                range: text("8000-8999 of --reserved-host-ports"),
            },
        ),
        (
            "host port of which the node tells nothing",
            AgentError::HostPortLook {
                port: host_port(),
                source: std::io::ErrorKind::PermissionDenied.into(),
            },
        ),
        (
            "unsupported: InfiniBand",
            AgentError::InfiniBand {
                guid: text("c2:11:22:33:44:55:66:77"),
            },
        ),
        (
            "unsupported: Memif on a trunk",
            PortError::MemifOnTrunk.into(),
        ),
        (
            "unsupported: type of an interface of a network with routing Node",
            AgentError::InterfaceOfNodeNetwork {
                kind: api::InterfaceKind::AfXdp,
            },
        ),
        (
            "explain: not valid",
            ExplainError::Invalid {
                argument: "--from",
                value: text("blue"),
                fix: "write NETWORK/ADDRESS",
            }
            .into(),
        ),
        (
            "explain: unknown",
            ExplainError::Unknown {
                argument: "--from",
                value: text("blue/10.0.0.1"),
                why: "no port of this node has it",
                known: vec![text("red/10.0.0.2")],
            }
            .into(),
        ),
        (
            "explain: several",
            ExplainError::Ambiguous {
                argument: "--from",
                value: text("10.0.0.1"),
                candidates: vec![text("red/10.0.0.1"), text("blue/10.0.0.1")],
            }
            .into(),
        ),
    ]
}

pub(super) fn host_port() -> book::host_ports::HostPort {
    book::host_ports::HostPort {
        protocol: book::host_ports::HostProtocol::Tcp,
        host_ip: Some([192, 0, 2, 1].into()),
        host_port: 8080,
        container_port: 80,
    }
}
