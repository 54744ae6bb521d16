//! Compares every answer of a failure to a CNI caller with a file, byte by byte.
//!
//! `BLESS=1 cargo test -p agent --lib golden` writes the file again. A change of it is a change of what
//! runtimes and people read: it belongs into the changelog.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::{env, fs};

use ::book::{AddressError, BookError};
use ::host::HostError;
use ::ports::PortError;
use ::ports::afxdp::AfXdpError;
use ::ports::sockets::PlaceError;
use ::ports::switch::SwitchError;
use ::reach::ReachError;
use ::reach::overlay::OverlayError;
use ::reach::uplink_networks::UplinkNetworkError;
use ::reach::uplinks::UplinkError;
use api::ResolveError;
use cni_spec::{CniVersion, Command, SpecError};
use delegate::error::DelegateError;
use ipam::IpamError;
use node_stack::egress::EgressError;
use world::WorldError;

use super::super::to_cni;
use crate::error::AgentError;
use crate::error::ExplainError;
use crate::kube::{AccessError, ClusterError, LookupError};

mod book;
mod cluster;
mod host;
mod plugins;
mod pods;
mod ports;
mod reach;
mod requests;

/// The file, below the package.
const FILE: &str = "src/cni/error/tests/answers.txt";
/// Commands that the agent answers.
const COMMANDS: [Command; 5] = [
    Command::Add,
    Command::Del,
    Command::Check,
    Command::Gc,
    Command::Status,
];

/// A name that stays, and the error.
type Case = (&'static str, AgentError);

fn text(text: &str) -> String {
    text.to_owned()
}

fn denied() -> std::io::Error {
    std::io::Error::from_raw_os_error(13)
}

fn absent() -> std::io::Error {
    std::io::Error::from_raw_os_error(2)
}

fn no_json() -> serde_json::Error {
    serde_json::from_str::<u8>("x").unwrap_err()
}

fn all() -> Vec<Case> {
    let mut all = requests::all();
    all.extend(book::all());
    all.extend(host::all());
    all.extend(ports::all());
    all.extend(reach::all());
    all.extend(cluster::all());
    all.extend(pods::all());
    all.extend(plugins::all());
    all
}

/// Answers to each command; commands with the same answer share a line.
fn answers(error: &AgentError) -> String {
    let mut answers: Vec<(Vec<&str>, String)> = Vec::new();
    for command in COMMANDS {
        let answer = to_cni(error, command, CniVersion::LATEST, 17);
        let answer = serde_json::to_string(&answer).unwrap();
        match answers.iter_mut().find(|(_, known)| *known == answer) {
            Some((commands, _)) => commands.push(command.as_str()),
            None => answers.push((vec![command.as_str()], answer)),
        }
    }
    let mut text = String::new();
    for (commands, answer) in answers {
        writeln!(text, "  {} {answer}", commands.join(",")).unwrap();
    }
    text
}

#[test]
fn the_answers_are_those_of_the_golden_file() {
    let mut found = String::new();
    let mut names = BTreeSet::new();
    for (name, error) in all() {
        assert!(names.insert(name), "{name} is there twice");
        write!(found, "{name}\n{}", answers(&error)).unwrap();
    }
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(FILE);
    if env::var_os("BLESS").is_some_and(|value| value == "1") {
        fs::write(&path, &found).unwrap();
    }
    let golden = fs::read_to_string(&path).unwrap();
    for (found, golden) in found.lines().zip(golden.lines()) {
        assert_eq!(found, golden);
    }
    assert_eq!(found, golden);
}

/// A list of the variants of an error, which does not compile when one is missing.
macro_rules! variants {
    ($function:ident, $error:ty: $($variant:ident)*) => {
        fn $function(error: &$error) -> &'static str {
            type Error = $error;
            match error {
                $(Error::$variant { .. } => concat!(stringify!($error), "::", stringify!($variant)),)*
            }
        }

        impl Variants for $error {
            const ALL: &'static [&'static str] =
                &[$(concat!(stringify!($error), "::", stringify!($variant))),*];
        }
    };
}

trait Variants {
    const ALL: &'static [&'static str];
}

variants!(agent, AgentError: Request World Book Cluster Port Reach Host HostPortOfRuntime Ranges
    HostPortOfList HostPortKind HostPortServed HostPortAddress HostPortOfServices HostPortReserved HostPortLook InfiniBand InterfaceOfNodeNetwork Devices NotItsDevice NoGateway NotAttached Damaged
    NoNetns HostNetns NodeContainer Tombstone Waiting Explain Impaired Collect NoAnnotations Isolated
    Selection NoPrimary NetworkTwice NameTaken GatewayOutside NotOfVpc NetworkOfPlugins Routes NoDefinition Definition OnDisk
    ConfDir NoDefaultNetwork MultusInDefaultChain OwnPluginInChain DeviceInfo Delegate HostPorts Member OtherNamespace
    OtherConfiguration LinkGone BeingRemoved Starting DefaultNetworkWaits AddWithoutContainer
    NoContainer DeviceUntold InterfaceName);
variants!(world, WorldError: Resolve NodeDefault NotSynced);
variants!(book, BookError: IdChanged ModeChanged RoutingChanged TransportChanged SubnetsChanged
    UplinkTaken IdTaken NoId Address Refused MacHeld HostPortHeld HostPortTwice HostPortFamily HostPortsOfPod HostPortsOfNetwork NoHostPort NoPort Orphan NoAllocator Unreadable Boot Record
    Store);
variants!(cluster, ClusterError: Book Pod Access);
variants!(port, PortError: NoShaping AfXdp Switch MemifOnTrunk Place Book Host LinksUnwatched
    MendingDied SwitchUnwatched);
variants!(place, PlaceError: Make Remove Write);
variants!(reach, ReachError: Overlay Wire Egress Routing Uplinks Host);
variants!(host, HostError: Netdev Datapath OneSided);
variants!(spec, SpecError: NoCommand UnknownCommand EnvMissing ContainerId IfName IncompatibleVersion
    CommandNeedsVersion ConfigSyntax NetworkName FieldType FieldValue BurstWithoutRate FieldMissing
    NoNetwork TwoNetworks FromPodAndNetwork ObjectName SocketPath Address Mac NoPrevResult
    InterfaceIndex NoIpForVersion FrameTooLarge FrameCut FrameIo FrameJson FrameVersion FrameKind);
variants!(resolve, ResolveError: NetworkNotFound Disabled ForeignProvider ParametersMissing
    ParametersRefused RequestRefused NamespaceMissing DefinitionUnusable KindNotSupported NamespaceOnClusterScoped RefNotPermitted ParametersNotFound
    ParametersInvalid RequestInvalid ConflictingParameters NotNumbered TransportPending
    TransportConflict NetworkIdConflict RoutingConflict UplinkConflict NoTunnelAddress NoSharedNumber
    VpcNotFound VpcUnusable SubnetOutsideVpc VpcOverlap
    Duplicate AttachmentNotFound);
variants!(ipam, IpamError: Exhausted NoRoom Held OutOfSubnets Reserved PrefixLength RequestedTwice
    HostBits GatewayOutside ExcludeOutside PoolsOverlap);
variants!(overlay, OverlayError: NoAddress NotHere TooBig NameTaken NoFence PortTaken Host);
variants!(egress, EgressError: Refused Full Host);
variants!(wire, UplinkNetworkError: NoInterface Own NoEthernet TooBig NodeAddress Uplinks Host);
variants!(uplink, UplinkError: Several Host);
variants!(afxdp, AfXdpError: Mtu Program Control);
variants!(switch, SwitchError: Absent Start Silent Port Listen);
variants!(lookup, LookupError: NotFound Another Unknown);
variants!(access, AccessError: Refused Unknown NoPod);
variants!(addresses, AddressError: Reserved InUse NotGranted NoBlock NoPod GrantUnknown NotReserved
    NodeUnknown ClaimContended ClaimUnread ClaimUnwritten ClaimAbsent ClaimDeleted ClaimOfAnother
    ClaimUnparsed ClaimDiffers ClaimOnNode PortInUse PortUserUnknown PortInvalid PortMacDiffers
    PortWithoutPod PortWithoutCluster);
variants!(explain, ExplainError: Invalid Unknown Ambiguous);
variants!(delegate, DelegateError: Name Absent Start Speak TimedOut Failed Crashed Result Version
    Capability TooLong Conf);

/// Variants of an error, with those of the errors of rooms inside it.
fn names(error: &AgentError) -> Vec<&'static str> {
    let mut names = vec![agent(error)];
    match error {
        AgentError::Request(error) => names.push(spec(error)),
        AgentError::World(error) => {
            names.push(world(error));
            if let WorldError::Resolve { source, .. } = error {
                names.push(resolve(source));
            }
        }
        AgentError::Book(error) => of_book(error, &mut names),
        AgentError::Cluster(error) => {
            names.push(cluster(error));
            match error {
                ClusterError::Book(error) => of_book(error, &mut names),
                ClusterError::Pod(error) => names.push(lookup(error)),
                ClusterError::Access(error) => names.push(access(error)),
            }
        }
        AgentError::Port(error) => {
            names.push(port(error));
            match error {
                PortError::AfXdp(error) => names.push(afxdp(error)),
                PortError::Switch(error) => names.push(switch(error)),
                PortError::Place(error) => names.push(place(error)),
                PortError::Book(error) => of_book(error, &mut names),
                PortError::Host(error) => names.push(host(error)),
                PortError::NoShaping { .. }
                | PortError::MemifOnTrunk
                | PortError::LinksUnwatched
                | PortError::MendingDied
                | PortError::SwitchUnwatched => {}
            }
        }
        AgentError::Reach(error) => of_reach(error, &mut names),
        AgentError::Host(error) => names.push(host(error)),
        AgentError::Explain(error) => names.push(explain(error)),
        AgentError::Delegate { source } | AgentError::HostPorts { source } => {
            names.push(delegate(source));
        }
        _ => {}
    }
    names
}

fn of_book(error: &BookError, names: &mut Vec<&'static str>) {
    names.push(book(error));
    match error {
        BookError::Address { source, .. } => names.push(ipam(source)),
        BookError::Refused(error) => names.push(addresses(error)),
        _ => {}
    }
}

fn of_reach(error: &ReachError, names: &mut Vec<&'static str>) {
    names.push(reach(error));
    match error {
        ReachError::Overlay(error) => {
            names.push(overlay(error));
            if let OverlayError::Host(error) = error {
                names.push(host(error));
            }
        }
        ReachError::Egress(error) => {
            names.push(egress(error));
            if let EgressError::Host(error) = error {
                names.push(host(error));
            }
        }
        ReachError::Wire(error) => {
            names.push(wire(error));
            match error {
                UplinkNetworkError::Uplinks(error) => of_uplinks(error, names),
                UplinkNetworkError::Host(error) => names.push(host(error)),
                _ => {}
            }
        }
        ReachError::Host(error) => names.push(host(error)),
        ReachError::Uplinks(error) => of_uplinks(error, names),
        ReachError::Routing(_) => {}
    }
}

fn of_uplinks(error: &UplinkError, names: &mut Vec<&'static str>) {
    names.push(uplink(error));
    match error {
        UplinkError::Several { errors } => names.extend(errors.iter().map(host)),
        UplinkError::Host(error) => names.push(host(error)),
    }
}

fn listed<T: Variants>() -> impl Iterator<Item = &'static str> {
    T::ALL.iter().copied()
}

#[test]
fn every_variant_is_in_the_golden_file() {
    let there: BTreeSet<&str> = all().iter().flat_map(|(_, error)| names(error)).collect();
    let missing: Vec<&str> = listed::<AgentError>()
        .chain(listed::<WorldError>())
        .chain(listed::<BookError>())
        .chain(listed::<ClusterError>())
        .chain(listed::<PortError>())
        .chain(listed::<PlaceError>())
        .chain(listed::<ReachError>())
        .chain(listed::<HostError>())
        .chain(listed::<SpecError>())
        .chain(listed::<ResolveError>())
        .chain(listed::<IpamError>())
        .chain(listed::<OverlayError>())
        .chain(listed::<EgressError>())
        .chain(listed::<UplinkNetworkError>())
        .chain(listed::<UplinkError>())
        .chain(listed::<AfXdpError>())
        .chain(listed::<SwitchError>())
        .chain(listed::<LookupError>())
        .chain(listed::<AccessError>())
        .chain(listed::<AddressError>())
        .chain(listed::<ExplainError>())
        .chain(listed::<DelegateError>())
        .filter(|name| !there.contains(name))
        .collect();
    assert_eq!(missing, Vec::<&str>::new());
}
