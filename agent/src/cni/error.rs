//! The CNI code of every failure, chosen here and nowhere else. A new failure does not compile
//! until somebody picks its code.

use cni_spec::{CniError, CniVersion, Command, ErrorCode};
use ipam::IpamError;

use crate::error::{AgentError, chain};

/// podnet's own codes (CNI SPEC section 5: 100 and up belong to the plugin), with their meaning.
pub const CODES: &[(u32, &str)] = &[
    (100, "no address is left on the network"),
    (101, "a requested address is held by another attachment"),
    (102, "a requested address is outside the subnets, reserved or written wrongly"),
    (103, "a requested MAC address is held by another attachment"),
    (104, "the node has no port left"),
    (105, "the container interface is attached already, differently"),
    (110, "the kernel refused a change of a link, address or route"),
    (111, "the interface name is taken in the container"),
    (120, "the datapath refused: a map is full or a program does not attach"),
    (140, "the attachment record could not be written"),
    (150, "CHECK found the attachment damaged"),
    (199, "an invariant of podnet is broken; please report it"),
];

/// The code of an error.
pub fn code(error: &AgentError, command: Command) -> ErrorCode {
    match error {
        AgentError::Request(error) => error.code(),
        AgentError::Resolve { .. }
        | AgentError::NoGateway { .. }
        | AgentError::NetworkChanged { .. }
        | AgentError::NetworkIdTaken { .. }
        | AgentError::NoNetworkId { .. } => {
            if command == Command::Status {
                ErrorCode::NOT_AVAILABLE
            } else {
                ErrorCode::INVALID_CONFIG
            }
        }
        AgentError::Unsupported { .. } => ErrorCode::UNSUPPORTED_FIELD,
        AgentError::Address { source, .. } => ErrorCode(address_code(source)),
        AgentError::MacHeld { .. } => ErrorCode(103),
        AgentError::NoPort { .. } => ErrorCode(104),
        AgentError::AlreadyAttached { .. } => ErrorCode(105),
        AgentError::NotAttached { .. } => ErrorCode::UNKNOWN_CONTAINER,
        AgentError::Damaged { .. } => ErrorCode(150),
        AgentError::NoNetns { .. } => ErrorCode::INVALID_ENV,
        AgentError::HostNetns { .. } => ErrorCode::INVALID_NETNS,
        AgentError::Netdev { source } if source.is_exists() => ErrorCode(111),
        AgentError::Netdev { .. } => ErrorCode(110),
        AgentError::Datapath { .. } => ErrorCode(120),
        AgentError::Store { .. } => ErrorCode(140),
        AgentError::NotReady { .. } => {
            if command == Command::Status {
                ErrorCode::NOT_AVAILABLE
            } else {
                ErrorCode::TRY_AGAIN_LATER
            }
        }
        AgentError::PoolEmpty { .. } => ErrorCode::NOT_AVAILABLE,
        AgentError::Impaired { .. } => ErrorCode::LIMITED_CONNECTIVITY,
        AgentError::Collect { errors } => {
            errors.first().map_or(ErrorCode(199), |first| code(first, command))
        }
        AgentError::Record { .. } | AgentError::Orphan { .. } | AgentError::Internal { .. } => {
            ErrorCode(199)
        }
    }
}

const fn address_code(error: &IpamError) -> u32 {
    match error {
        IpamError::Exhausted { .. } => 100,
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
    let details = format!("{}; podnet request {request}", chain(error));
    let answer = CniError::new(version, code(error, command), error.to_string(), details);
    if command == Command::Del { answer.worded_for_del() } else { answer }
}
