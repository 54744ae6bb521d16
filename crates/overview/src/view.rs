//! The cluster at one moment, as plain data.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use api::nad::{
    Definition, DefinitionError, DefinitionParameters, Meaning, network_parameters, read_definition,
};
use api::selection::SelectionRules;
use api::{
    AttachmentParameters, IpBlock, IpReservation, IpamClaim, NODE_DEFAULT_ANNOTATION,
    NetworkAttachmentDefinition, Object, Origin, PodNetwork, PodNetworkAttachment,
    PodNetworkEndpointSlice, PodNetworkParameters, Port, Resolved, Resource, Routing, Vpc,
};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use kube::core::PartialObjectMeta;
use world::NodeDefaults;

use super::pod::Pod;
use super::transports;

/// Namespace and name.
pub type Key = (String, String);

/// All objects that the controller decides by.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// Networks by name.
    pub networks: BTreeMap<String, Arc<PodNetwork>>,
    /// Parameterised attachments.
    pub attachments: BTreeMap<Key, Arc<PodNetworkAttachment>>,
    /// Parameters of networks.
    pub network_parameters: Vec<Arc<PodNetworkParameters>>,
    /// Parameters of attachments.
    pub attachment_parameters: Vec<Arc<AttachmentParameters>>,
    /// Networks that are routed to each other.
    pub vpcs: Vec<Arc<Vpc>>,
    /// Meaning of each `NetworkAttachmentDefinition`.
    pub definitions: BTreeMap<Key, Result<Meaning, DefinitionError>>,
    /// Parameters of the definitions that networks name in their `parametersRefs`.
    pub definition_parameters: BTreeMap<Key, DefinitionParameters>,
    /// Pods of all namespaces and nodes.
    pub pods: BTreeMap<Key, Arc<Pod>>,
    /// Nodes: UID by name.
    pub nodes: BTreeMap<String, String>,
    /// Nodes with a default network of their own.
    pub node_defaults: NodeDefaults,
    /// Blocks of addresses.
    pub blocks: Vec<Arc<IpBlock>>,
    /// Reserved addresses.
    pub reservations: Vec<Arc<IpReservation>>,
    /// Metadata of the slices of members; it has the name of the node.
    pub slices: Vec<Arc<PartialObjectMeta<PodNetworkEndpointSlice>>>,
    /// Addresses of `IPAMClaim`s by UID; `None` when their kind is not there.
    ///
    /// A claim without any has none yet, or some that cannot be read.
    pub claims: Option<BTreeMap<String, BTreeSet<IpAddr>>>,
    /// `Port`s.
    pub ports: BTreeMap<Key, Arc<Port>>,
    /// Objects of podnet that this version cannot read, as `PodNetwork blue: why`.
    ///
    /// They may refer to anything.
    pub unreadable: Vec<String>,
    /// How pods' lists are read.
    pub rules: SelectionRules,
}

impl View {
    /// Adds a node.
    pub fn add_node(&mut self, node: &PartialObjectMeta<Node>) {
        let name = node.name_any();
        if let Some(text) = node.annotations().get(NODE_DEFAULT_ANNOTATION) {
            self.node_defaults.insert(name.clone(), text.clone());
        }
        self.nodes.insert(name, node.uid().unwrap_or_default());
    }

    /// Returns why pods without a list may get the network `default`, if they may.
    pub fn takes_default(&self) -> Option<String> {
        self.node_defaults.taking_default(self.nodes.keys())
    }

    /// Follows all references, and decides on transports.
    ///
    /// The code is that of the agents. Disabled networks count as enabled, so that their other problems
    /// are known, too.
    pub fn resolve(&self) -> Resolved {
        let networks = self.networks.values().map(|network| {
            let mut resource = Resource::from(&**network);
            if let Resource::PodNetwork(manifest) = &mut resource {
                manifest.spec.enabled = true;
            }
            resource
        });
        let attachments = self.attachments.values().map(|it| Resource::from(&**it));
        let network_parameters = self.network_parameters.iter();
        let network_parameters = network_parameters.map(|it| Resource::from(&**it));
        let attachment_parameters = self.attachment_parameters.iter();
        let attachment_parameters = attachment_parameters.map(|it| Resource::from(&**it));
        let vpcs = self.vpcs.iter().map(|it| Resource::from(&**it));
        let all = networks
            .chain(attachments)
            .chain(network_parameters)
            .chain(attachment_parameters)
            .chain(vpcs);
        let all = all.map(|resource| Object {
            origin: Origin::api_server(),
            resource,
        });
        let mut resolved = api::resolve_with(all, |namespace, name| {
            let key = (namespace.to_owned(), name.to_owned());
            self.definition_parameters.get(&key).cloned()
        });
        let own = self.node_defaults.networks();
        let routed = own.iter().chain([&self.rules.default_network]);
        resolved.route_for(routed.map(String::as_str), false);
        resolved.transport(|network| {
            let object = self.networks.get(&network.name)?;
            Some(transports::decide(network, object.given()))
        });
        resolved
    }

    /// Names of default networks with routing by nodes, of any node.
    ///
    /// Pods without a list are on them. `resolved` is that of [`Self::resolve`].
    pub fn routed_defaults(&self, resolved: &Resolved) -> Vec<String> {
        let own = self.node_defaults.networks();
        let names = own.iter().chain([&self.rules.default_network]);
        let routed = names.filter_map(|name| {
            let network = resolved.network(name).ok();
            let network = network.filter(|network| network.routing == Routing::Node);
            // A node whose default network has no routes has those of the network that holds them.
            network.or_else(|| resolved.routed_by_node())
        });
        let names: BTreeSet<&String> = routed.map(|network| &network.name).collect();
        names.into_iter().cloned().collect()
    }
}

/// Reads the addresses of a claim; none when one of them cannot be read.
pub fn addresses_of(claim: &IpamClaim) -> BTreeSet<IpAddr> {
    let status = claim.status.as_ref();
    read_addresses(status.map_or(&[], |status| &status.ips))
}

/// Reads the addresses of a Port; none when one of them cannot be read.
pub fn addresses_of_port(port: &Port) -> BTreeSet<IpAddr> {
    let status = port.status.as_ref();
    read_addresses(status.map_or(&[], |status| &status.ips))
}

fn read_addresses(texts: &[String]) -> BTreeSet<IpAddr> {
    let ips = texts.iter();
    let ips = ips.map(|text| text.split('/').next().unwrap_or(text).parse());
    ips.collect::<Result<_, _>>().unwrap_or_default()
}

/// Reads a definition as its pods would.
///
/// # Errors
/// It cannot be understood.
pub fn meaning(object: &NetworkAttachmentDefinition) -> Result<Meaning, DefinitionError> {
    with_definition(object, |definition| {
        read_definition(definition).map(|read| read.meaning)
    })
}

/// Reads a definition as a network would that names it in its `parametersRefs`.
///
/// # Errors
/// The reason for which it has no parameters.
pub fn parameters(object: &NetworkAttachmentDefinition) -> DefinitionParameters {
    with_definition(object, network_parameters)
}

fn with_definition<T>(
    object: &NetworkAttachmentDefinition,
    read: impl FnOnce(&Definition<'_>) -> T,
) -> T {
    let metadata = &object.metadata;
    let none = BTreeMap::new();
    read(&Definition {
        namespace: metadata.namespace.as_deref().unwrap_or_default(),
        name: metadata.name.as_deref().unwrap_or_default(),
        annotations: metadata.annotations.as_ref().unwrap_or(&none),
        config: &object.spec.config,
    })
}

/// Returns the definitions that networks of podnet name in their `parametersRefs`.
pub fn named_definitions(networks: &BTreeMap<String, Arc<PodNetwork>>) -> BTreeSet<Key> {
    let ours = networks.iter().filter(|(name, it)| it.spec.is_ours(name));
    let references = ours.flat_map(|(_, network)| &network.spec.parameters_refs);
    let definitions = references.filter(|reference| reference.names_definition());
    let keys = definitions.filter_map(|it| Some((it.namespace.clone()?, it.name.clone())));
    keys.collect()
}
