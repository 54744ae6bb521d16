//! Problems of a pod's list of networks: the place, and the text to write instead.

use std::{fmt, net::IpAddr};

use super::{
    NamespaceIsolated,
    ifname::{InterfaceName, InterfaceNameError},
};
use crate::{
    listed::{Listed, PROBLEMS_MAX},
    meta::NameError,
    validate::FieldProblem,
};

/// A place in an annotation and what is wrong there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{annotation}{place}: {problem}")]
pub struct SelectionError {
    /// Name of the annotation.
    pub annotation: &'static str,
    /// Where in its value.
    pub place: Place,
    /// The problem.
    pub problem: SelectionProblem,
}

/// The errors of a pod's lists, at least one, in the order of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectionErrors {
    /// The first of them, at most [`PROBLEMS_MAX`].
    pub first: Vec<SelectionError>,
    /// Number of the others.
    pub more: usize,
}

impl fmt::Display for SelectionErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Listed::new(&self.first).beyond(self.more).fmt(f)
    }
}

impl std::error::Error for SelectionErrors {}

/// A place in the value of an annotation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// The value as a whole.
    Whole,
    /// An item of the comma-delimited format.
    Item {
        /// Its place in the list, from 1.
        number: usize,
        /// Where it begins, in characters from 1.
        character: usize,
    },
    /// A value in the JSON format.
    Element {
        /// Its place in the list, from 0.
        index: usize,
        /// Key inside the element, as `bandwidth.ingressRate`; empty for the element.
        path: String,
    },
}

impl Place {
    /// The place of a key of the element at this place.
    pub(super) fn below(&self, key: &str) -> Self {
        match self {
            Self::Element { index, path } if path.is_empty() => Self::Element {
                index: *index,
                path: key.to_owned(),
            },
            place => place.clone(),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole => Ok(()),
            Self::Item { number, character } => {
                write!(f, ", item {number} at character {character}")
            }
            Self::Element { index, path } if path.is_empty() => write!(f, "[{index}]"),
            Self::Element { index, path } => write!(f, "[{index}].{path}"),
        }
    }
}

/// A problem of a list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectionProblem {
    /// Not JSON although it begins like a list.
    #[error("the value is not a JSON list: {reason}; write it as [{{\"name\": \"net-a\"}}]")]
    NotJson {
        /// The JSON reader's message, with line and column.
        reason: String,
    },
    /// One object instead of a list of them.
    #[error("a single object is not a list; put it in brackets: [{{…}}]")]
    NotAList,
    /// A value of another type.
    #[error("{found} is not {expected}")]
    WrongType {
        /// The value as written.
        found: String,
        /// The expected value.
        expected: &'static str,
    },
    /// The same key twice in one object, however it is spelled.
    #[error("key \"{key}\" is there twice; remove one")]
    RepeatedKey {
        /// The key.
        key: String,
    },
    /// A key this object does not have.
    #[error("\"{key}\" is not a key here; write one of {known}")]
    UnknownKey {
        /// The key as written.
        key: String,
        /// The keys there are.
        known: &'static str,
    },
    /// A comma with nothing before or after it.
    #[error("a name is missing here; remove the comma or write a name")]
    EmptyItem,
    /// An element without a name.
    #[error("a name is required; write {example}")]
    NameRequired {
        /// An example to write instead.
        example: &'static str,
    },
    /// Both ways to name a network at once.
    #[error("name and attachmentName exclude each other; keep one")]
    NameAndAttachment,
    /// `name` and its alias disagree.
    #[error("name is \"{name}\" and podNetworkName is \"{alias}\"; keep name")]
    AliasDiffers {
        /// `name`.
        name: String,
        /// `podNetworkName`.
        alias: String,
    },
    /// More or fewer parts than a name, or a namespace and a name.
    #[error(
        "\"{found}\" is not a reference; write name, namespace/name or namespace/name@interface"
    )]
    BadReference {
        /// The text as written.
        found: String,
    },
    /// Not a name of an object or of a namespace.
    #[error(transparent)]
    BadName(#[from] NameError),
    /// Not a name of an interface.
    #[error(transparent)]
    BadInterface(#[from] InterfaceNameError),
    /// Not an address, a MAC address, a rate or a burst.
    #[error(transparent)]
    BadField(#[from] FieldProblem),
    /// An empty list or object where one value at least is needed.
    #[error("the key needs at least one {what}; add it or remove the key")]
    Empty {
        /// The missing value.
        what: &'static str,
    },
    /// An IPv4 address in the clothes of IPv6.
    #[error("\"{found}\" is an IPv4 address written as IPv6; write {address}")]
    MappedAddress {
        /// The text as written.
        found: String,
        /// The IPv4 address.
        address: IpAddr,
    },
    /// Not a gateway.
    #[error("\"{found}\" is not the address of a gateway; write one as 10.10.0.1 or fd10:10::1")]
    BadGateway {
        /// The text as written.
        found: String,
    },
    /// Not a port.
    #[error("{found} is not a port; write a whole number from 1 to 65535")]
    PortRange {
        /// The value as written.
        found: String,
    },
    /// Not a protocol with ports.
    #[error("\"{found}\" is not a protocol; write tcp, udp or sctp")]
    BadProtocol {
        /// The text as written.
        found: String,
    },
    /// A rate or a burst of 0, a fraction, or one too large for readers of JSON.
    #[error("{found} is not a whole number from 1 to 9007199254740991; 0 is not allowed here")]
    NotCountable {
        /// The value as written.
        found: String,
    },
    /// A burst that limits nothing.
    #[error("a burst without a rate limits nothing; set {rate} too, or remove it")]
    BurstWithoutRate {
        /// The key of the rate.
        rate: &'static str,
    },
    /// Not a GUID of an InfiniBand port.
    #[error("\"{found}\" is not a GUID; write eight hex pairs, as 24:8a:07:03:00:8d:ae:2f")]
    BadGuid {
        /// The text as written.
        found: String,
    },
    /// Two elements with `default-route`.
    #[error("only one element may have default-route, and [{first}] has it; remove one")]
    SecondDefaultRoute {
        /// The first element that has it.
        first: usize,
    },
    /// Two elements with `isDefaultGW: true`.
    #[error("only one element may have isDefaultGW, and [{first}] has it; remove one")]
    SecondDefaultGateway {
        /// The first element that has it.
        first: usize,
    },
    /// `isDefaultGW` in one list and `default-route` in the other.
    #[error(
        "podnet.dev/networks gives the default route to another network by isDefaultGW; remove \
         one of them"
    )]
    DefaultRouteGivenAway,
    /// `ips` and `ipam-claim-reference` together, where that is not wanted.
    #[error("ips and ipam-claim-reference exclude each other; the claim says the addresses")]
    ClaimWithIps,
    /// A `Port` and a wish that it says already.
    #[error("the Port says what {key} says; remove {key}, or the Port")]
    SaidByPort {
        /// The key.
        key: &'static str,
    },
    /// No VPC, or not the name of one.
    #[error(
        "the NICs of a pod are in one VPC: write its name into annotation podnet.dev/vpc: {error}"
    )]
    BadVpc {
        /// The fault of the name.
        error: NameError,
    },
    /// A VPC without NICs.
    #[error(
        "a pod in a VPC has at least one NIC: write [{{\"subnetName\": \"web\"}}] into annotation podnet.dev/nics"
    )]
    NoNics,
    /// NICs and networks.
    #[error(
        "the pod has annotation podnet.dev/networks too, which names all its networks; remove one of them"
    )]
    NicsAndNetworks,
    /// A NIC without a network.
    #[error("subnetName is required: the name of a PodNetwork of the VPC")]
    SubnetRequired,
    /// Two spellings of one key.
    #[error("{key} says the same; remove {short}")]
    SpelledTwice {
        /// The one spelling.
        key: &'static str,
        /// The other one.
        short: &'static str,
    },
    /// The same network twice.
    #[error("network \"{name}\" is there already, as [{first}]; a pod attaches to it once")]
    PodNetworkTwice {
        /// The network.
        name: String,
        /// The first element.
        first: usize,
    },
    /// Two attachments with one interface name.
    #[error("interface {name} is used by {holder} already; choose another name")]
    InterfaceTwice {
        /// The name.
        name: InterfaceName,
        /// The attachment that has it.
        holder: String,
    },
    /// No interface for the address of the pod.
    #[error(
        "the pod's first interface must be {primary}, not {found}; remove interfaceName, or give \
         {primary} to another network"
    )]
    PrimaryName {
        /// The name as written.
        found: InterfaceName,
        /// The name there must be.
        primary: InterfaceName,
    },
    /// The same address on two attachments to one network.
    #[error("{found} is requested by {holder} too, on the same network; remove one")]
    RequestedTwice {
        /// The address or the MAC address.
        found: String,
        /// The attachment that has it.
        holder: String,
    },
    /// One `Port` for two attachments.
    #[error("Port {port} is that of {holder} too; name another Port")]
    PortTwice {
        /// The Port.
        port: String,
        /// The attachment that has it.
        holder: String,
    },
    /// One port of the node for two attachments.
    #[error("host port {port}/{protocol} is mapped by {holder} too; choose another one")]
    HostPortTwice {
        /// The port.
        port: u16,
        /// The protocol.
        protocol: &'static str,
        /// The attachment that has it.
        holder: String,
    },
    /// More attachments than a pod may have.
    #[error(
        "the pod asks for {found} attachments{}, and the limit of a pod is {limit}; list fewer networks, or \
         raise --max-attachments-per-pod of agent, webhook and controller",
        beside(*before)
    )]
    TooManyAttachments {
        /// How many the annotation asks for.
        found: usize,
        /// How many the pod has by another annotation, or by default.
        before: usize,
        /// How many there may be together.
        limit: usize,
    },
    /// More values than one element may have.
    #[error("the list has {found} items, and the limit is {limit}; remove some")]
    TooManyItems {
        /// How many there are.
        found: usize,
        /// How many there may be.
        limit: usize,
    },
    /// A value that is too long.
    #[error("the value is {found} bytes long, and the limit is {limit}; shorten it")]
    TooLong {
        /// Bytes.
        found: usize,
        /// How many there may be.
        limit: usize,
    },
    /// A pod in the network of its node has no networks of its own.
    #[error("a pod with hostNetwork: true has the node's network; remove the list or hostNetwork")]
    HostNetwork,
    /// A definition of another namespace.
    #[error(transparent)]
    Isolated(#[from] NamespaceIsolated),
    /// The annotation is not for every cluster.
    #[error("a pod may not choose its default network on this cluster; remove the annotation")]
    DefaultOverrideRefused,
    /// A pod has one default network.
    #[error("the annotation names {found} networks, and a pod has one default network; name one")]
    DefaultOverrideCount {
        /// How many there are.
        found: usize,
    },
}

/// Collects the problems of one annotation, to be mended in one go.
///
/// The first [`PROBLEMS_MAX`] are kept: an annotation has room for tens of thousands.
pub(super) struct Findings {
    pub(super) annotation: &'static str,
    first: Vec<SelectionError>,
    more: usize,
}

impl Findings {
    pub(super) fn new(annotation: &'static str) -> Self {
        Self {
            annotation,
            first: Vec::new(),
            more: 0,
        }
    }

    /// How many problems were found.
    pub(super) fn count(&self) -> usize {
        self.first.len().saturating_add(self.more)
    }

    /// Succeeds when nothing is wrong with any of these annotations.
    pub(super) fn verdict(all: impl IntoIterator<Item = Self>) -> Result<(), SelectionErrors> {
        let mut errors = SelectionErrors {
            first: Vec::new(),
            more: 0,
        };
        for findings in all {
            let room = PROBLEMS_MAX.saturating_sub(errors.first.len());
            let kept = findings.first.len().min(room);
            errors.more = errors.more.saturating_add(findings.count() - kept);
            errors.first.extend(findings.first.into_iter().take(room));
        }
        if errors.first.is_empty() {
            Ok(())
        } else {
            Err(errors)
        }
    }

    pub(super) fn push(&mut self, place: Place, problem: impl Into<SelectionProblem>) {
        if self.first.len() == PROBLEMS_MAX {
            self.more = self.more.saturating_add(1);
            return;
        }
        self.first.push(SelectionError {
            annotation: self.annotation,
            place,
            problem: problem.into(),
        });
    }

    /// The value, with the error noted and swallowed.
    pub(super) fn take<T, E: Into<SelectionProblem>>(
        &mut self,
        place: Place,
        value: Result<T, E>,
    ) -> Option<T> {
        value.map_err(|problem| self.push(place, problem)).ok()
    }
}

fn beside(before: usize) -> String {
    match before {
        0 => String::new(),
        before => format!(" besides {before} that the pod has by default or by its other list"),
    }
}
