//! Why a network or attachment cannot be used.

use ipnet::IpNet;

use super::several::Told;
use crate::{
    listed::Listed,
    manifest::Origin,
    meta::{API_VERSION, Kind, PROVIDER, ParametersRef},
    nad::DefinitionProblem,
    parameters::Transport,
    validate::{Clash, FieldErrors, NetworkId},
};

/// The most `spec.parametersRefs` that the API server takes.
///
/// Each of them is named in an error.
const REFERENCES_MAX: usize = 16;

/// Why a network or attachment cannot be used, and what would mend it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// No such `PodNetwork`.
    #[error("PodNetwork {name} does not exist; create it, or correct the name")]
    NetworkNotFound {
        /// The name asked for.
        name: String,
    },
    /// `spec.enabled` is false.
    #[error("PodNetwork {name} is disabled; set spec.enabled to true to allow new attachments")]
    Disabled {
        /// The network.
        name: String,
    },
    /// `spec.provider` is not ours.
    #[error(
        "PodNetwork {name} has {}, and podnet serves {PROVIDER} only; name a PodNetwork of \
         that provider instead",
        if provider.is_empty() { "no spec.provider".to_owned() }
        else { format!("spec.provider {provider}") }
    )]
    ForeignProvider {
        /// The network.
        name: String,
        /// Its provider, empty when absent.
        provider: String,
    },
    /// `spec.parametersRefs` is empty.
    #[error(
        "PodNetwork {name} has no spec.parametersRefs; add {{group: podnet.dev, \
         kind: PodNetworkParameters, name: ...}}"
    )]
    ParametersMissing {
        /// The network.
        name: String,
    },
    /// Not all of several `spec.parametersRefs` can be read as one.
    #[error(
        "PodNetwork {name} has {} spec.parametersRefs, which make no network together: {}",
        told.len(),
        Listed::new(told).at_most(REFERENCES_MAX)
    )]
    ParametersRefused {
        /// The network.
        name: String,
        /// Each of the references, those that are wrong first.
        told: Vec<Told>,
    },
    /// Not all of several `spec.parametersRefs` of an attachment can be used together.
    #[error(
        "PodNetworkAttachment {name} has {} spec.parametersRefs, which cannot be used together: {}",
        told.len(),
        Listed::new(told).at_most(REFERENCES_MAX)
    )]
    RequestRefused {
        /// The attachment, with its namespace.
        name: String,
        /// Each of the references, those that are wrong first.
        told: Vec<Told>,
    },
    /// A reference to a kind that cannot be used there.
    #[error(
        "spec.parametersRefs names {reference}; only {wanted} of {API_VERSION}{} is read here",
        if *wanted == Kind::PodNetworkParameters {
            ", or NetworkAttachmentDefinition of k8s.cni.cncf.io with a configuration of type podnet,"
        } else { "" }
    )]
    KindNotSupported {
        /// The reference.
        reference: ParametersRef,
        /// The kind that is read there.
        wanted: Kind,
    },
    /// A reference with a namespace to a kind without one.
    #[error("spec.parametersRefs names {reference}; that kind is cluster-scoped, remove namespace")]
    NamespaceOnClusterScoped {
        /// The reference.
        reference: ParametersRef,
    },
    /// A reference to a definition, whose kind has a namespace, without one.
    #[error("spec.parametersRefs names {reference}; add namespace, that of the definition")]
    NamespaceMissing {
        /// The reference.
        reference: ParametersRef,
    },
    /// A definition that gives no parameters.
    #[error("spec.parametersRefs names {reference}, which cannot be used: {problem}")]
    DefinitionUnusable {
        /// The reference.
        reference: ParametersRef,
        /// The problem, and a configuration to write instead.
        problem: Box<DefinitionProblem>,
    },
    /// A reference across namespaces.
    #[error(
        "spec.parametersRefs names {reference}; only objects in the attachment's own namespace \
         {namespace} are permitted"
    )]
    RefNotPermitted {
        /// The reference.
        reference: ParametersRef,
        /// The attachment's namespace.
        namespace: String,
    },
    /// A reference to nothing.
    #[error("spec.parametersRefs names {reference}, which does not exist; create it")]
    ParametersNotFound {
        /// The reference.
        reference: ParametersRef,
    },
    /// The referenced parameters have errors.
    #[error("{kind} {name} ({origin}) is invalid: {errors}")]
    ParametersInvalid {
        /// Kind of the parameters.
        kind: Kind,
        /// Name of the parameters.
        name: String,
        /// Where they were read.
        origin: Origin,
        /// Each wrong field.
        errors: FieldErrors,
    },
    /// The parameters are right one by one and wrong together.
    #[error("the parameters together are invalid: {errors}")]
    RequestInvalid {
        /// All that were merged.
        references: Vec<ParametersRef>,
        /// Each wrong field.
        errors: FieldErrors,
    },
    /// Two parameters of one attachment set the same fields.
    #[error(
        "spec.parametersRefs: {reference} sets {} again; set a field in one object only",
        Listed::new(fields).separated_by(", ")
    )]
    ConflictingParameters {
        /// The later reference.
        reference: ParametersRef,
        /// The fields.
        fields: Vec<&'static str>,
    },
    /// The cluster has given the network no number yet.
    #[error(
        "PodNetwork {name} has no number yet: podnet-agent controller writes it to status.networkID; \
         where none runs, set spec.networkID of its PodNetworkParameters"
    )]
    NotNumbered {
        /// The network.
        name: String,
    },
    /// The cluster has not decided on the transport of the network yet.
    #[error(
        "PodNetwork {name} has no transport yet: podnet-agent controller writes it to \
         status.transport; where none runs, write spec.transport of its PodNetworkParameters"
    )]
    TransportPending {
        /// The network.
        name: String,
    },
    /// The parameters have another transport than the one the network was made with.
    #[error(
        "PodNetwork {name} was made with transport {decided}, and its PodNetworkParameters have {}; \
         write {decided} there, or make another PodNetwork",
        written.map_or("none", |it| it.as_str())
    )]
    TransportConflict {
        /// The network.
        name: String,
        /// The transport of the parameters, if they have one.
        written: Option<Transport>,
        /// `status.transport`, by which pods are attached.
        decided: Transport,
    },
    /// Two networks ask for one id.
    #[error(
        "PodNetwork {name} has networkID {id}, and so has {}; give each its own, or remove it \
         to have one allocated",
        Listed::new(others).beyond(*more).separated_by(", ")
    )]
    NetworkIdConflict {
        /// The network.
        name: String,
        /// The id.
        id: NetworkId,
        /// The other networks with it, at most [`PROBLEMS_MAX`](crate::PROBLEMS_MAX).
        others: Vec<String>,
        /// Number of the others.
        more: usize,
    },
    /// A second network that the node is to route for.
    #[error(
        "PodNetwork {name} has routing Node, and so has {first}; a node routes for one network: \
         write routing Isolated in one of them"
    )]
    RoutingConflict {
        /// The network.
        name: String,
        /// The one that has it.
        first: String,
    },
    /// A second network that wants the same of one uplink.
    #[error(
        "PodNetwork {name} wants {what} on uplink {uplink}, and PodNetwork {first} has that; give each \
         its own"
    )]
    UplinkConflict {
        /// The network.
        name: String,
        /// The one that has it.
        first: String,
        /// The interface.
        uplink: String,
        /// The share that both want.
        what: Clash,
    },
    /// No such `Vpc`.
    #[error(
        "PodNetwork {name} is of Vpc {vpc}, which does not exist; create it, or correct spec.vpc of its PodNetworkParameters"
    )]
    VpcNotFound {
        /// The network.
        name: String,
        /// Its VPC.
        vpc: String,
    },
    /// A VPC that has errors, or is defined twice.
    #[error("PodNetwork {name} is of Vpc {vpc}, which cannot be used: {source}")]
    VpcUnusable {
        /// The network.
        name: String,
        /// Its VPC.
        vpc: String,
        /// The reason.
        source: Box<ResolveError>,
    },
    /// A subnet that is in no prefix of the network's VPC.
    #[error(
        "PodNetwork {name} has the subnet {subnet}, which is in no prefix of its Vpc {vpc} ({}); choose one of these, or add one to spec.cidrs of the Vpc",
        Listed::new(cidrs).separated_by(", ")
    )]
    SubnetOutsideVpc {
        /// The network.
        name: String,
        /// Its VPC.
        vpc: String,
        /// The subnet.
        subnet: IpNet,
        /// Prefixes of the VPC.
        cidrs: Vec<IpNet>,
    },
    /// A prefix of a network that shares addresses with another one of its VPC.
    #[error(
        "PodNetwork {name} has {prefix}, and {other} of {first} overlaps it, to which its Vpc {vpc} leads too; choose another prefix"
    )]
    VpcOverlap {
        /// The network.
        name: String,
        /// Its VPC.
        vpc: String,
        /// The network's prefix: a subnet, or one of its Services.
        prefix: IpNet,
        /// Owner of the other prefix, in words.
        first: String,
        /// The other prefix.
        other: IpNet,
    },
    /// Tunnels end at an address, and this node has none for them.
    #[error(
        "PodNetwork {name} has transport {transport}, and this node has no address that other nodes \
         reach; give the agent --vtep ADDRESS, or make a PodNetwork with spec.transport of type Local"
    )]
    NoTunnelAddress {
        /// The network.
        name: String,
        /// Its transport.
        transport: Transport,
    },
    /// Nodes that do not know of each other would number it each in its own way.
    #[error(
        "PodNetwork {name} has spec.transport {transport}, and no controller gives it one number for all nodes; set spec.networkID of its PodNetworkParameters, the same on every node"
    )]
    NoSharedNumber {
        /// The network.
        name: String,
        /// Its transport.
        transport: Transport,
    },
    /// Two objects of one kind and name.
    #[error("{kind} {name} is defined twice, at {first} and at {second}; remove one")]
    Duplicate {
        /// The kind.
        kind: Kind,
        /// The name, with its namespace where it has one.
        name: String,
        /// Where the first was read.
        first: Origin,
        /// Where the second was read.
        second: Origin,
    },
    /// No such `PodNetworkAttachment`.
    #[error("PodNetworkAttachment {namespace}/{name} does not exist; create it, or correct it")]
    AttachmentNotFound {
        /// The namespace asked for.
        namespace: String,
        /// The name asked for.
        name: String,
    },
}

impl ResolveError {
    /// Returns the reason, one CamelCase word as in a Kubernetes condition.
    ///
    /// KEP-3698 status.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NetworkNotFound { .. } | Self::AttachmentNotFound { .. } => "NotFound",
            Self::Disabled { .. } => "AdministrativelyDisabled",
            Self::ForeignProvider { .. } => "ForeignProvider",
            Self::ParametersMissing { .. } | Self::ParametersNotFound { .. } => "ParamsNotFound",
            // In the order of the list: the first that is wrong.
            Self::ParametersRefused { told, .. } | Self::RequestRefused { told, .. } => {
                let mut reasons = told.iter().filter_map(|one| one.outcome.reason());
                reasons.next().unwrap_or("ParamsInvalid")
            }
            Self::ParametersInvalid { .. }
            | Self::RequestInvalid { .. }
            | Self::ConflictingParameters { .. } => "ParamsInvalid",
            Self::DefinitionUnusable { problem, .. } => match **problem {
                DefinitionProblem::PluginOfOthers { .. } => "ForeignPlugin",
                _ => "ParamsInvalid",
            },
            Self::KindNotSupported { .. } => "KindNotSupported",
            Self::NamespaceOnClusterScoped { .. }
            | Self::NamespaceMissing { .. }
            | Self::RefNotPermitted { .. } => "RefNotPermitted",
            Self::NotNumbered { .. } => "NetworkIDPending",
            Self::NetworkIdConflict { .. } => "NetworkIDConflict",
            Self::RoutingConflict { .. } => "RoutingConflict",
            Self::UplinkConflict { .. } => "UplinkConflict",
            Self::TransportPending { .. } => "TransportPending",
            Self::TransportConflict { .. } => "TransportConflict",
            Self::VpcNotFound { .. } => "VpcNotFound",
            Self::VpcUnusable { .. } => "VpcInvalid",
            Self::SubnetOutsideVpc { .. } => "SubnetOutsideVpc",
            Self::VpcOverlap { .. } => "VpcOverlap",
            Self::NoTunnelAddress { .. } => "NoTunnelAddress",
            Self::NoSharedNumber { .. } => "NetworkIDMissing",
            Self::Duplicate { .. } => "DuplicateObject",
        }
    }
}
