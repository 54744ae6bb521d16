//! Errors of the crate, named by operation and object.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

use rustix::io::Errno;
use thiserror::Error;

use crate::netns::NetnsId;
use crate::reach::RouteMatch;

/// A link as an error names it: by the word the caller used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkId {
    /// The kernel's index, in the namespace of the request.
    Index(u32),
    /// The interface name.
    Name(String),
}

impl From<u32> for LinkId {
    fn from(ifindex: u32) -> Self {
        Self::Index(ifindex)
    }
}

impl From<&str> for LinkId {
    fn from(name: &str) -> Self {
        Self::Name(name.to_owned())
    }
}

impl fmt::Display for LinkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Index(ifindex) => write!(f, "link {ifindex}"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

/// Refusal of a netlink request: the errno and, if given, the explanation.
///
/// The explanation is `NLMSGERR_ATTR_MSG` (Linux 4.12).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    errno: Errno,
    message: Option<String>,
}

impl Refusal {
    pub(crate) fn new(errno: Errno, message: Option<String>) -> Self {
        Self { errno, message }
    }

    /// The error number.
    pub fn errno(&self) -> Errno {
        self.errno
    }

    /// The kernel's own words, if it had any.
    pub fn message(&self) -> Option<&str> {
        self.message.as_deref()
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", io::Error::from(self.errno))?;
        match &self.message {
            Some(message) => write!(f, ": {message}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Refusal {}

/// Every failure of this crate, with operation and object.
///
/// The kernel's reason is the [`source`](std::error::Error::source), so print the chain.
#[derive(Debug, Error)]
pub enum Error {
    /// The name breaks the kernel's rules (`dev_valid_name`).
    #[error("interface name {name:?} cannot be used: {reason}")]
    InvalidName {
        /// The name as given.
        name: String,
        /// The rule it breaks.
        reason: &'static str,
    },
    /// Frames of an interface cannot be read.
    #[error("cannot open a packet socket on {interface}")]
    PacketSocket {
        /// Its name.
        interface: String,
        /// Why not.
        source: io::Error,
    },
    /// A link of that name is there already; nothing was changed.
    #[error("interface name {name} is taken in the target namespace (by link {ifindex})")]
    NameTaken {
        /// The wanted name.
        name: String,
        /// The link that has it.
        ifindex: u32,
    },
    /// The alias is longer than the kernel's 255 bytes or holds a NUL.
    #[error("link alias {alias:?} cannot be used: at most 255 bytes, none of them NUL")]
    InvalidAlias {
        /// The alias as given.
        alias: String,
    },
    /// A change that no single request can make.
    #[error("cannot change {link}: {reason}")]
    InvalidChange {
        /// The link.
        link: LinkId,
        /// The remedy.
        reason: &'static str,
    },
    /// `socket(2)` or one of its options.
    #[error("cannot open a netlink socket")]
    OpenSocket {
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The request did not reach the kernel.
    #[error("cannot send a netlink request")]
    Send {
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The answer did not arrive; whether the request was carried out is unknown.
    #[error("cannot receive a netlink answer")]
    Receive {
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The kernel's answer could not be read.
    #[error("netlink answer not understood: {what}")]
    Malformed {
        /// Which part.
        what: &'static str,
    },
    /// The table kept changing while it was read (`NLM_F_DUMP_INTR`).
    #[error("cannot list {what}: the table changed during each of {attempts} attempts")]
    DumpInterrupted {
        /// Which table.
        what: &'static str,
        /// How often it was tried.
        attempts: u32,
    },
    /// `RTM_NEWLINK` for a veth pair.
    #[error("cannot create veth pair {host} and {peer}")]
    CreateVeth {
        /// Name of the host end.
        host: String,
        /// Name of the other end.
        peer: String,
        /// The kernel's reason.
        #[source]
        source: Refusal,
    },
    /// `RTM_NEWLINK` for a VXLAN device.
    #[error("cannot create VXLAN device {name}")]
    CreateVxlan {
        /// Its name.
        name: String,
        /// The kernel's reason.
        #[source]
        source: Refusal,
    },
    /// There are no TAP devices on this node, or none for this process.
    #[error("cannot open /dev/net/tun, which ports of type Memif need: load the module tun")]
    OpenTun {
        /// Why.
        #[source]
        source: Errno,
    },
    /// `TUNSETIFF` or `TUNSETPERSIST`.
    #[error("cannot create or open TAP device {name}")]
    CreateTap {
        /// Its name.
        name: String,
        /// The kernel's reason.
        #[source]
        source: Errno,
    },
    /// `ETHTOOL_MSG_FEATURES_SET` and what belongs to it.
    #[error("cannot {operation} the interface with index {ifindex}")]
    Offload {
        /// The link.
        ifindex: u32,
        /// The operation.
        operation: &'static str,
        /// The kernel's reason.
        #[source]
        source: Refusal,
    },
    /// `RTM_SETLINK`.
    #[error("cannot change {link} ({change})")]
    ChangeLink {
        /// The link.
        link: LinkId,
        /// The change.
        change: String,
        /// The kernel's reason.
        #[source]
        source: Refusal,
    },
    /// `RTM_DELLINK`.
    #[error("cannot delete {link}")]
    DeleteLink {
        /// The link.
        link: LinkId,
        /// The kernel's reason.
        #[source]
        source: Refusal,
    },
    /// `RTM_GETLINK` for one link.
    #[error("cannot look up {link}")]
    GetLink {
        /// The link.
        link: LinkId,
        /// The kernel's reason.
        #[source]
        source: Refusal,
    },
    /// The link was there a moment ago.
    #[error("{link} disappeared while it was being configured")]
    LinkVanished {
        /// The link.
        link: LinkId,
    },
    /// A dump of links, addresses or routes.
    #[error("cannot list {what}")]
    List {
        /// Which table.
        what: &'static str,
        /// The kernel's reason.
        #[source]
        source: Refusal,
    },
    /// `RTM_NEWADDR`.
    #[error("cannot add address {address} to {link}")]
    AddAddress {
        /// Address and prefix length.
        address: String,
        /// The link.
        link: LinkId,
        /// The kernel's reason.
        #[source]
        source: Refusal,
    },
    /// `RTM_NEWROUTE`.
    #[error("cannot add route {route} on {link}")]
    AddRoute {
        /// The route, in the words of `ip route`.
        route: String,
        /// The link.
        link: LinkId,
        /// The kernel's reason.
        #[source]
        source: Refusal,
    },
    /// `RTM_NEWRULE`, `RTM_DELRULE`.
    #[error("cannot change the rule for the host's own packets to table {table}")]
    Rule {
        /// The table.
        table: u32,
        /// The kernel's reason.
        #[source]
        source: Refusal,
    },
    /// `RTM_NEWNEIGH`.
    #[error("cannot tell {link} where {address} is")]
    AddNeighbour {
        /// The address.
        address: IpAddr,
        /// The link.
        link: LinkId,
        /// The kernel's reason.
        #[source]
        source: Refusal,
    },
    /// `RTM_GETROUTE` for one address.
    #[error("cannot look up the route to {address}")]
    FindRoute {
        /// The address.
        address: IpAddr,
        /// The kernel's reason.
        #[source]
        source: Refusal,
    },
    /// The node has the address or a route to this very address; nothing was changed.
    #[error(
        "the node has a route of its own to {address}, {found}: remove that, or exclude the \
         address from the network"
    )]
    Routed {
        /// The address.
        address: IpAddr,
        /// The route that is there.
        found: RouteMatch,
    },
    /// A batch or a listing of nf_tables.
    #[error("cannot {step} the nf_tables table {table}")]
    Netfilter {
        /// The step that failed.
        step: &'static str,
        /// With which table.
        table: &'static str,
        /// The kernel's reason.
        #[source]
        source: Refusal,
    },
    /// `RTM_NEWQDISC` or `RTM_NEWTFILTER`.
    #[error("cannot {step} {link}; load the kernel's modules sch_ingress and cls_bpf")]
    Filter {
        /// The link.
        link: LinkId,
        /// The step that failed.
        step: &'static str,
        /// The kernel's reason.
        #[source]
        source: Refusal,
    },
    /// The kernel refused to remove a route.
    #[error("cannot remove route {route} out of {link}")]
    RemoveRoute {
        /// The route, in the words of `ip route`.
        route: String,
        /// The link.
        link: LinkId,
        /// The kernel's reason.
        #[source]
        source: Refusal,
    },
    /// A step of making, looking at or removing a rate limit.
    #[error("cannot limit the rate of {link}: {step}")]
    Shape {
        /// The link.
        link: LinkId,
        /// The step that failed.
        step: String,
        /// The kernel's reason.
        #[source]
        source: Refusal,
    },
    /// The place of the rate limit is taken; nothing was changed.
    #[error(
        "cannot limit the rate of {link}: it has a root queueing discipline, {kind}, that is not podnet's; remove it with `tc qdisc del dev … root`"
    )]
    ForeignQueue {
        /// The link.
        link: LinkId,
        /// The kind of the queueing discipline that is there.
        kind: String,
    },
    /// No packet socket, by which we wait for what is being sent.
    #[error("cannot open a packet socket, by which packets in flight are waited for")]
    Quiesce {
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// A rate limit that lets nothing pass.
    #[error("cannot limit the rate of {link}: {reason}")]
    InvalidShape {
        /// The link.
        link: LinkId,
        /// The fault of the shape.
        reason: &'static str,
    },
    /// The setting's name is not one of `net.ipv*.conf.*`.
    #[error("sysctl {key:?} cannot be used: only a-z, 0-9 and _ may occur in it")]
    InvalidSysctl {
        /// The name as given.
        key: String,
    },
    /// Reading or writing below `/proc/sys/net`.
    #[error("cannot {action} {}", path.display())]
    Sysctl {
        /// `read` or `write VALUE to`.
        action: String,
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The descriptor is of something else.
    #[error("the descriptor is not a network namespace: {what}")]
    NotNetns {
        /// The object it is instead.
        what: &'static str,
    },
    /// The namespace file cannot be opened.
    #[error("cannot open network namespace {}", path.display())]
    OpenNetns {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// `fstat(2)` and the like on a namespace descriptor.
    #[error("cannot inspect a network namespace descriptor")]
    InspectNetns {
        /// Why.
        #[source]
        source: io::Error,
    },
    /// `setns(2)`.
    #[error("cannot enter network namespace {netns}")]
    EnterNetns {
        /// The namespace.
        netns: NetnsId,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// `unshare(2)`.
    #[error("cannot create a network namespace")]
    CreateNetns {
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Binding a namespace to a file, or undoing it.
    #[error("cannot {action} {}", path.display())]
    NameNetns {
        /// The step.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// No thread to enter the namespace with.
    #[error("cannot start a thread to enter a network namespace")]
    SpawnThread {
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The tokio runtime is going down and takes no more work.
    #[error("the runtime is shutting down; the netlink request was not started")]
    ShuttingDown,
}

impl Error {
    /// Returns the errno of a system call or of the kernel's answer, if there is one.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::CreateVeth { source, .. }
            | Self::CreateVxlan { source, .. }
            | Self::ChangeLink { source, .. }
            | Self::Offload { source, .. }
            | Self::DeleteLink { source, .. }
            | Self::GetLink { source, .. }
            | Self::List { source, .. }
            | Self::AddAddress { source, .. }
            | Self::AddRoute { source, .. }
            | Self::RemoveRoute { source, .. }
            | Self::AddNeighbour { source, .. }
            | Self::Rule { source, .. }
            | Self::Netfilter { source, .. }
            | Self::FindRoute { source, .. }
            | Self::Filter { source, .. }
            | Self::Shape { source, .. } => Some(source.errno()),
            Self::OpenSocket { source }
            | Self::Quiesce { source }
            | Self::Send { source }
            | Self::Receive { source }
            | Self::Sysctl { source, .. }
            | Self::OpenNetns { source, .. }
            | Self::InspectNetns { source }
            | Self::EnterNetns { source, .. }
            | Self::CreateNetns { source }
            | Self::NameNetns { source, .. }
            | Self::PacketSocket { source, .. }
            | Self::SpawnThread { source } => Errno::from_io_error(source),
            Self::CreateTap { source, .. } => Some(*source),
            // Not "gone": nothing was to be used.
            Self::OpenTun { .. }
            | Self::InvalidName { .. }
            | Self::NameTaken { .. }
            | Self::InvalidAlias { .. }
            | Self::InvalidChange { .. }
            | Self::Malformed { .. }
            | Self::DumpInterrupted { .. }
            | Self::LinkVanished { .. }
            | Self::ForeignQueue { .. }
            | Self::InvalidShape { .. }
            | Self::Routed { .. }
            | Self::InvalidSysctl { .. }
            | Self::NotNetns { .. }
            | Self::ShuttingDown => None,
        }
    }

    /// Reports whether the link, address, route or namespace file exists already.
    pub fn is_exists(&self) -> bool {
        let taken_tap = matches!(
            self,
            Self::CreateTap {
                source: Errno::BUSY,
                ..
            }
        );
        taken_tap || matches!(self, Self::NameTaken { .. }) || self.errno() == Some(Errno::EXIST)
    }

    /// Reports whether the object is missing.
    pub fn is_gone(&self) -> bool {
        // A kind of queue that the kernel does not know is NOENT too.
        if let Self::Shape { source, .. } = self {
            return source.errno() == Errno::NODEV;
        }
        matches!(self, Self::LinkVanished { .. })
            || matches!(
                self.errno(),
                Some(Errno::NODEV | Errno::NOENT | Errno::SRCH)
            )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_operation_object_and_reason() {
        let error = Error::AddAddress {
            address: "10.1.2.3/24".to_owned(),
            link: "net1".into(),
            source: Refusal::new(Errno::EXIST, Some("Address already assigned".to_owned())),
        };
        assert_eq!(error.to_string(), "cannot add address 10.1.2.3/24 to net1");
        let reason = std::error::Error::source(&error)
            .expect("a source")
            .to_string();
        assert!(reason.starts_with("File exists"), "{reason}");
        assert!(reason.ends_with(": Address already assigned"), "{reason}");
        assert!(error.is_exists() && !error.is_gone());
    }

    #[test]
    fn a_taken_name_counts_as_existing() {
        let error = Error::NameTaken {
            name: "net1".to_owned(),
            ifindex: 2,
        };
        assert!(error.is_exists());
        assert_eq!(error.errno(), None);
    }

    #[test]
    fn a_missing_device_counts_as_gone() {
        let source = Refusal::new(Errno::NODEV, None);
        assert!(
            Error::DeleteLink {
                link: 7.into(),
                source
            }
            .is_gone()
        );
        assert!(Error::LinkVanished { link: 7.into() }.is_gone());
    }
}
