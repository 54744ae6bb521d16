//! Chooses the CNI code of every failure.
//!
//! A new failure does not compile until it has a code here.

use api::ResolveError;
use book::{AddressError, BookError};
use cni_spec::{CniError, CniVersion, Command, ErrorCode};
use delegate::error::DelegateError;
use host::HostError;
use ipam::IpamError;
use node_stack::egress::EgressError;
use ports::PortError;
use ports::afxdp::AfXdpError;
use reach::ReachError;
use reach::overlay::OverlayError;
use reach::uplink_networks::UplinkNetworkError;
use reach::uplinks::UplinkError;
use telemetry::chain;
use world::WorldError;

use crate::error::AgentError;
use crate::kube::{AccessError, ClusterError, LookupError};

/// A code, what it means, and what a person can do about it.
pub type Code = (u32, &'static str, &'static str);

/// Codes of CNI SPEC section 5 that podnet gives.
///
/// Code 8 is from libcni's skeleton, not from the specification.
pub const SPEC_CODES: &[Code] = &[
    (
        1,
        "the configuration's `cniVersion` is not spoken, or too old for the command",
        "use one of the versions that `VERSION` lists; CHECK needs 0.4.0, GC and STATUS need 1.1.0",
    ),
    (
        2,
        "the request asks for a thing that podnet does not do, or for a rate that this kernel cannot limit",
        "remove the key that the message names",
    ),
    (
        3,
        "`CHECK` of an attachment that does not exist, and nothing of it is left",
        "`ADD` the attachment again; there is nothing to clean up",
    ),
    (
        4,
        "a `CNI_*` variable is missing or wrong, or `CNI_NETNS` is no network namespace",
        "correct the variable that the message names",
    ),
    (
        5,
        "standard input, or the connection to the agent, broke",
        "try again; use `podnet` and `podnet-agent` of the same release",
    ),
    (
        6,
        "the network configuration is not JSON",
        "correct the file at the place that `details` names",
    ),
    (
        7,
        "the network configuration is not valid, or its network cannot be used",
        "correct the field that the message names; `podnet-agent get networks` says why a network is not ready",
    ),
    (
        8,
        "`CNI_NETNS` is the node's own network namespace",
        "give the container a namespace of its own",
    ),
    (
        11,
        "the agent is not running, is starting, did not answer, cannot write records, has yet to carry out an earlier `DEL`, or waits for the API server; or the network is disabled, or has no number yet",
        "the runtime tries again; make room on the disk that the message names, start `podnet-agent run` if it does not run, and enable the network, or start `podnet-agent controller`, if the message says so",
    ),
    (
        50,
        "`STATUS`: an `ADD` would not be served now",
        "see the message: no agent and no lease of it, no such network, or records that cannot be written",
    ),
    (
        51,
        "`STATUS`: as 50, and attachments may be cut off",
        "see the log for `the port of the attachment is damaged`; the audit repairs what it can within 30 s",
    ),
];

/// podnet's own codes (CNI SPEC section 5: 100 and up belong to the plugin).
pub const CODES: &[Code] = &[
    (
        100,
        "no address is left on the network",
        "add a subnet, or detach pods",
    ),
    (
        101,
        "a requested address is held by another attachment",
        "request another address; `podnet-agent get attachments` shows who has it",
    ),
    (
        102,
        "a requested address is outside the subnets, reserved or written wrongly",
        "request one that the message allows",
    ),
    (
        103,
        "a requested MAC address or host port is held by another attachment or by a program of the node",
        "request another, or none",
    ),
    (
        104,
        "the node has no port left, or no host port for the pod's network",
        "see the message; for a port raise `--max-ports`: a restart with another value loses no packet",
    ),
    (
        105,
        "the container interface is attached already, differently",
        "`DEL` it first",
    ),
    (
        110,
        "the kernel refused a change of a link, address or route",
        "see `details` for the kernel's reason",
    ),
    (
        111,
        "the interface name is taken in the container",
        "choose another `CNI_IFNAME`",
    ),
    (
        120,
        "the datapath refused: a map is full or a program does not attach",
        "see `details`; for a full map raise `--max-ports`",
    ),
    (
        130,
        "another plugin that was called for an attachment failed, is missing or did not end",
        "see the message: it has the plugin, its own code and its words",
    ),
    (
        140,
        "`DEL`: no record can be written, and the request could not be kept as a file either",
        "make room on the disk that the error names; the agent finds out by itself within 30 s",
    ),
    (
        150,
        "`CHECK` found the attachment damaged",
        "`DEL` and `ADD` again; the message lists what is wrong",
    ),
    (
        199,
        "an invariant of podnet is broken",
        "please report it, with the log and `/debug/state`",
    ),
];

/// The code of an error.
pub fn code(error: &AgentError, command: Command) -> ErrorCode {
    match error {
        AgentError::Request(error) => error.code(),
        AgentError::World(error) => world_code(error, command),
        AgentError::Book(error) => book_code(error, command),
        AgentError::Cluster(error) => cluster_code(error, command),
        AgentError::Port(error) => port_code(error, command),
        AgentError::Reach(error) => reach_code(error, command),
        AgentError::Host(error) => host_code(error),
        AgentError::NoGateway { .. }
        | AgentError::Isolated { .. }
        | AgentError::Selection { .. }
        | AgentError::NoPrimary { .. }
        | AgentError::NetworkTwice { .. }
        | AgentError::GatewayOutside { .. }
        | AgentError::NotOfVpc { .. }
        | AgentError::NetworkOfPlugins { .. }
        | AgentError::HostPortAddress { .. }
        | AgentError::HostPortOfServices { .. }
        | AgentError::HostPortReserved { .. }
        | AgentError::Routes { .. }
        | AgentError::NoDefinition { .. }
        | AgentError::Definition { .. }
        | AgentError::OnDisk { .. }
        | AgentError::OwnPluginInChain { .. } => unless_status(ErrorCode::INVALID_CONFIG, command),
        AgentError::HostPortOfRuntime { .. }
        | AgentError::Ranges { .. }
        | AgentError::HostPortOfList { .. }
        | AgentError::HostPortKind { .. }
        | AgentError::InfiniBand { .. }
        | AgentError::InterfaceOfNodeNetwork { .. } => ErrorCode::UNSUPPORTED_FIELD,
        AgentError::OtherNamespace { .. }
        | AgentError::OtherConfiguration { .. }
        | AgentError::LinkGone { .. }
        | AgentError::BeingRemoved { .. } => ErrorCode(105),
        AgentError::HostPortServed { .. } => unless_status(ErrorCode(103), command),
        AgentError::NotAttached { .. } => ErrorCode::UNKNOWN_CONTAINER,
        AgentError::Damaged { .. } => ErrorCode(150),
        // No CNI command asks this; what is wrong is a parameter.
        AgentError::NoNetns { .. } | AgentError::Explain(_) | AgentError::NodeContainer => {
            ErrorCode::INVALID_ENV
        }
        AgentError::HostNetns { .. } => ErrorCode::INVALID_NETNS,
        AgentError::NameTaken { .. } => ErrorCode(111),
        AgentError::Waiting { .. } | AgentError::Tombstone { .. } => ErrorCode::TRY_AGAIN_LATER,
        AgentError::Starting
        | AgentError::HostPortLook { .. }
        | AgentError::DefaultNetworkWaits
        | AgentError::Devices(_)
        | AgentError::NoAnnotations { .. }
        | AgentError::NoDefaultNetwork { .. }
        | AgentError::MultusInDefaultChain { .. }
        | AgentError::ConfDir { .. } => unless_status(ErrorCode::TRY_AGAIN_LATER, command),
        AgentError::Delegate { source } | AgentError::HostPorts { source } => {
            delegate_code(source, command)
        }
        AgentError::Member { source, .. } => code(source, command),
        AgentError::DeviceInfo { .. } => ErrorCode(130),
        AgentError::NotItsDevice { .. } => ErrorCode::INVALID_CONFIG,
        AgentError::Impaired { .. } => ErrorCode::LIMITED_CONNECTIVITY,
        AgentError::Collect { errors } => errors
            .first()
            .map_or(ErrorCode(199), |first| code(first, command)),
        AgentError::AddWithoutContainer
        | AgentError::NoContainer
        | AgentError::DeviceUntold
        | AgentError::InterfaceName => ErrorCode(199),
    }
}

/// `STATUS` has one code for all that keeps an `ADD` from being served.
fn unless_status(code: ErrorCode, command: Command) -> ErrorCode {
    if command == Command::Status {
        ErrorCode::NOT_AVAILABLE
    } else {
        code
    }
}

fn world_code(error: &WorldError, command: Command) -> ErrorCode {
    let code = match error {
        WorldError::Resolve { source, .. } => match **source {
            ResolveError::Disabled { .. }
            | ResolveError::NotNumbered { .. }
            | ResolveError::TransportPending { .. } => ErrorCode::TRY_AGAIN_LATER,
            _ => ErrorCode::INVALID_CONFIG,
        },
        WorldError::NodeDefault { .. } | WorldError::NotSynced { .. } => ErrorCode::TRY_AGAIN_LATER,
    };
    unless_status(code, command)
}

fn book_code(error: &BookError, command: Command) -> ErrorCode {
    match error {
        BookError::IdChanged { .. }
        | BookError::ModeChanged { .. }
        | BookError::RoutingChanged { .. }
        | BookError::TransportChanged { .. }
        | BookError::SubnetsChanged { .. }
        | BookError::UplinkTaken { .. }
        | BookError::IdTaken { .. }
        | BookError::NoId { .. } => unless_status(ErrorCode::INVALID_CONFIG, command),
        BookError::Address { source, .. } => ErrorCode(address_code(source)),
        BookError::Refused(error) => refusal_code(error),
        BookError::MacHeld { .. } => ErrorCode(103),
        BookError::HostPortHeld { .. } => ErrorCode(103),
        BookError::HostPortTwice { .. } | BookError::HostPortFamily { .. } => {
            unless_status(ErrorCode::INVALID_CONFIG, command)
        }
        BookError::HostPortsOfPod { .. } => ErrorCode::UNSUPPORTED_FIELD,
        BookError::NoPort { .. }
        | BookError::NoHostPort { .. }
        | BookError::HostPortsOfNetwork { .. } => ErrorCode(104),
        // Of one batch, not of the store.
        BookError::Store { source } if source.is_refusal() => ErrorCode(199),
        // The plugin keeps the request, and tells its runtime that it is done (CNI-DEL-05).
        BookError::Store { .. } if command == Command::Del => ErrorCode::NOT_RECORDED,
        BookError::Store { .. } => unless_status(ErrorCode::TRY_AGAIN_LATER, command),
        BookError::Boot { .. } => ErrorCode::TRY_AGAIN_LATER,
        BookError::Record { .. }
        | BookError::Unreadable { .. }
        | BookError::Orphan { .. }
        | BookError::NoAllocator => ErrorCode(199),
    }
}

fn cluster_code(error: &ClusterError, command: Command) -> ErrorCode {
    match error {
        ClusterError::Book(error) => book_code(error, command),
        ClusterError::Pod(LookupError::Another { .. }) => ErrorCode::INVALID_ENV,
        ClusterError::Pod(LookupError::NotFound { .. } | LookupError::Unknown { .. }) => {
            unless_status(ErrorCode::TRY_AGAIN_LATER, command)
        }
        ClusterError::Access(error) => access_code(error),
    }
}

fn port_code(error: &PortError, command: Command) -> ErrorCode {
    match error {
        PortError::NoShaping { .. }
        | PortError::MemifOnTrunk
        | PortError::AfXdp(AfXdpError::Mtu { .. }) => ErrorCode::UNSUPPORTED_FIELD,
        PortError::AfXdp(AfXdpError::Program { .. } | AfXdpError::Control { .. })
        | PortError::Place(_)
        | PortError::Switch(_) => ErrorCode(110),
        PortError::Book(error) => book_code(error, command),
        PortError::Host(error) => host_code(error),
        PortError::LinksUnwatched | PortError::MendingDied | PortError::SwitchUnwatched => {
            ErrorCode(199)
        }
    }
}

fn reach_code(error: &ReachError, command: Command) -> ErrorCode {
    match error {
        ReachError::Overlay(OverlayError::Host(error))
        | ReachError::Wire(UplinkNetworkError::Host(error))
        | ReachError::Egress(EgressError::Host(error))
        | ReachError::Host(error) => host_code(error),
        ReachError::Uplinks(error) | ReachError::Wire(UplinkNetworkError::Uplinks(error)) => {
            uplink_code(error)
        }
        ReachError::Overlay(_) | ReachError::Wire(_) => {
            unless_status(ErrorCode::INVALID_CONFIG, command)
        }
        ReachError::Egress(_) => ErrorCode(110),
        ReachError::Routing(_) => unless_status(ErrorCode::TRY_AGAIN_LATER, command),
    }
}

fn uplink_code(error: &UplinkError) -> ErrorCode {
    match error {
        UplinkError::Several { errors } => errors.first().map_or(ErrorCode(199), host_code),
        UplinkError::Host(error) => host_code(error),
    }
}

fn host_code(error: &HostError) -> ErrorCode {
    match error {
        HostError::Netdev(error) if error.is_exists() => ErrorCode(111),
        HostError::Netdev(_) | HostError::OneSided { .. } => ErrorCode(110),
        HostError::Datapath(_) => ErrorCode(120),
    }
}

/// Chooses the code of a plugin's failure; passes on its codes for a later try.
///
/// A code for a later try, or about the plugin's readiness, is passed on. Other codes are about the
/// plugin's own configuration or actions, and mean something else as ours: the message has them. No
/// code says that nothing is left to clean up (CNI-ERR-04).
fn delegate_code(error: &DelegateError, command: Command) -> ErrorCode {
    match error {
        DelegateError::Capability { .. } => ErrorCode::UNSUPPORTED_FIELD,
        DelegateError::Name { .. }
        | DelegateError::Version { .. }
        | DelegateError::TooLong { .. }
        | DelegateError::Conf { .. } => ErrorCode::INVALID_CONFIG,
        DelegateError::Failed { error, .. } if passed_on(error.code, command) => error.code,
        DelegateError::Absent { .. }
        | DelegateError::Start { .. }
        | DelegateError::Speak { .. }
        | DelegateError::TimedOut { .. }
        | DelegateError::Failed { .. }
        | DelegateError::Crashed { .. }
        | DelegateError::Result { .. } => unless_status(ErrorCode(130), command),
    }
}

fn passed_on(code: ErrorCode, command: Command) -> bool {
    match command {
        Command::Status => {
            [ErrorCode::NOT_AVAILABLE, ErrorCode::LIMITED_CONNECTIVITY].contains(&code)
        }
        Command::Add | Command::Del | Command::Check | Command::Gc | Command::Version => {
            code == ErrorCode::TRY_AGAIN_LATER
        }
    }
}

const fn access_code(error: &AccessError) -> ErrorCode {
    match error {
        AccessError::Refused { .. } => ErrorCode::INVALID_CONFIG,
        AccessError::Unknown { .. } => ErrorCode::TRY_AGAIN_LATER,
        AccessError::NoPod => ErrorCode::INVALID_ENV,
    }
}

const fn refusal_code(error: &AddressError) -> ErrorCode {
    match error {
        AddressError::Reserved { .. } | AddressError::InUse { .. } => ErrorCode(101),
        // It is free when the other pod has ended, which may be a matter of moments.
        AddressError::PortInUse { .. } | AddressError::PortUserUnknown { .. } => {
            ErrorCode::TRY_AGAIN_LATER
        }
        AddressError::NotGranted { .. }
        | AddressError::NoBlock { .. }
        | AddressError::GrantUnknown { .. }
        | AddressError::NotReserved { .. }
        | AddressError::NodeUnknown { .. }
        | AddressError::ClaimContended { .. }
        | AddressError::ClaimUnread { .. }
        | AddressError::ClaimUnwritten { .. }
        | AddressError::ClaimAbsent { .. }
        | AddressError::ClaimDeleted { .. } => ErrorCode::TRY_AGAIN_LATER,
        AddressError::NoPod { .. } | AddressError::PortWithoutPod { .. } => ErrorCode::INVALID_ENV,
        AddressError::ClaimOfAnother { .. }
        | AddressError::ClaimUnparsed { .. }
        | AddressError::ClaimDiffers { .. }
        | AddressError::PortInvalid { .. }
        | AddressError::PortMacDiffers { .. }
        | AddressError::PortWithoutCluster { .. }
        | AddressError::ClaimOnNode { .. } => ErrorCode::INVALID_CONFIG,
    }
}

const fn address_code(error: &IpamError) -> u32 {
    match error {
        IpamError::Exhausted { .. } | IpamError::NoRoom { .. } => 100,
        IpamError::Held { .. } => 101,
        IpamError::OutOfSubnets { .. }
        | IpamError::Reserved { .. }
        | IpamError::PrefixLength { .. }
        | IpamError::RequestedTwice { .. } => 102,
        // Networks are validated before a pool is made of them.
        IpamError::HostBits { .. }
        | IpamError::GatewayOutside { .. }
        | IpamError::ExcludeOutside { .. }
        | IpamError::PoolsOverlap { .. } => 199,
    }
}

/// The error as the runtime gets it; `request` finds the log lines.
pub fn to_cni(error: &AgentError, command: Command, version: CniVersion, request: u64) -> CniError {
    let msg = error.to_string();
    // Runtimes print both, so the causes only.
    let causes = chain(error);
    let causes = causes
        .strip_prefix(msg.as_str())
        .unwrap_or(&causes)
        .trim_start_matches(": ");
    let number = format!("podnet request {request}");
    let details = if causes.is_empty() {
        number
    } else {
        format!("{causes}; {number}")
    };
    let answer = CniError::new(version, code(error, command), msg, details);
    if command == Command::Del {
        answer.worded_for_del()
    } else {
        answer
    }
}

#[cfg(test)]
mod tests;
