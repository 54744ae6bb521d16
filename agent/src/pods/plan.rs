//! Plans the attachments of a pod, before any is made.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use api::nad::{
    Definition, DefinitionError, Meaning, NetworkRef, PLUGIN_TYPE, PluginChain, read_definition,
};
use api::selection::{
    Family, POD_NETWORKS_ANNOTATION, PodAnnotations, PodSelection, SelectedAttachment,
    SelectionErrors, SelectionNote, SelectionRules, Source, Target, parse_pod_networks,
};
use api::{RawJson, RawObject, ResolveError};
use book::ledger::Wanted;
use book::pods::PodChange;
use book::pods::record::{Maker, Member};
use book::record::{DefaultRoutes, ObjectRef, PodIdentity};
use cluster::access::Used;
use cni_spec::{AttachmentKey, CAP_POD_ANNOTATIONS, CniRequest, IfName};
use delegate::Delegation;
use delegate::error::DelegateError;
use delegate::prepare::{Wishes, prepare};
use delegate::{self, device_info};
use telemetry::Sparing;
use world::DefaultNetwork;
use world::World;
use world::WorldError;
use world::lists::InvalidAnnotation;

use crate::attach::doors::Authority as _;
use crate::error::AgentError;
use crate::node::Node;
use crate::request::{Asked, Native};

/// Where objects of a request without a pod are looked up.
const DEFAULT_NAMESPACE: &str = "default";
/// Capabilities that every plugin which declares them gets of the pod.
///
/// All others that a runtime passes are for the default network only (NPWG §7.5).
const CONTEXT: [&str; 2] = ["cgroupPath", CAP_POD_ANNOTATIONS];

/// Most bytes that all other plugins of a pod may read.
///
/// They are kept in the pod's record, and in memory, until its `DEL`, and there can be as many pods as
/// the node runs.
const HANDED_ON_MAX: usize = 1 << 20;

/// Time between two lines about the same errors of the same pod.
const IGNORED_EVERY: Duration = Duration::from_secs(10);

/// A member, and what this agent needs to make it, when it does.
#[derive(Debug)]
pub(super) struct Planned {
    pub(super) member: Member,
    pub(super) native: Option<(Wanted, api::Network)>,
}

/// Meaning of an element of a list.
#[derive(Debug)]
pub(super) enum Meant {
    Native(Box<Native>),
    Chain(PluginChain),
}

impl Meant {
    fn native(native: Native) -> Self {
        Self::Native(Box::new(native))
    }
}

impl Node {
    /// Everything the pod is to be attached to, first to last. Nothing is done.
    pub(super) async fn plan(&self, asked: Asked<'_>) -> Result<Vec<Planned>, AgentError> {
        let annotations = self.annotations(asked).await?;
        let world = self.world.get();
        world.check_read()?;
        let default = world.default_network(&self.rules.lists);
        let (mut selection, default) = self.selection(asked, &annotations, default)?;
        let mut meanings = Vec::new();
        for (index, selected) in selection.attachments.iter().enumerate() {
            let meant = self.meaning(&world, selected, &default);
            meanings.push(meant.map_err(|error| of_member(index, selected, error))?);
        }
        refuse_twice(&selection, &meanings)?;
        self.check_listed(asked, &selection, &meanings).await?;
        let assigning = self.assign_devices(&world, asked, &selection, &mut meanings);
        let shares = Box::pin(assigning).await?;
        let explicit = claim_default_gateway(&mut selection, &meanings, &annotations);
        let (mut planned, mut length) = (Vec::new(), 0_usize);
        for (index, (selected, meant)) in selection.attachments.iter().zip(&meanings).enumerate() {
            let routes = default_routes(&selection, &meanings, selected);
            let done = self.member(asked, selected, meant, routes, explicit, &mut length);
            let mut done = done.map_err(|error| of_member(index, selected, error))?;
            if let (Some((wanted, _)), Some(share)) = (&mut done.native, shares.get(index)) {
                share.give(wanted);
            }
            planned.push(done);
        }
        Ok(planned)
    }

    /// Checks that the pod may use what it names, before anything is made (KEP-P2-1).
    async fn check_listed(
        &self,
        asked: Asked<'_>,
        selection: &PodSelection,
        meanings: &[Meant],
    ) -> Result<(), AgentError> {
        let pod: Option<PodIdentity> = asked.invocation.args.pod().map(Into::into);
        let namespace = pod.as_ref().map(|pod| pod.namespace.as_str());
        let namespace = namespace.unwrap_or(DEFAULT_NAMESPACE);
        let pairs = selection.attachments.iter().zip(meanings);
        // What the operator gives to every pod is no pod's choice.
        let named = pairs.filter(|(selected, _)| !selected.is_given());
        let used = named.filter_map(|(selected, meant)| match meant {
            Meant::Native(native) => Some(Used::Network(native.network.name.clone())),
            Meant::Chain(_) => Used::chain(&selected.target, namespace),
        });
        let authority = self.attachments.authority();
        authority.allow(pod.as_ref(), used).await
    }

    /// All annotations of the pod: the runtime's snapshot, else what Kubernetes says.
    async fn annotations(&self, asked: Asked<'_>) -> Result<BTreeMap<String, String>, AgentError> {
        if let Some(annotations) = &asked.conf.runtime.pod_annotations {
            return Ok(annotations.clone());
        }
        match asked.invocation.args.pod() {
            Some(pod) => self.look_up(&pod.into()).await,
            // No runtime of Kubernetes: there is no pod that could have annotations.
            None => Ok(BTreeMap::new()),
        }
    }

    async fn look_up(&self, pod: &PodIdentity) -> Result<BTreeMap<String, String>, AgentError> {
        let Some(cluster) = &self.cluster else {
            return Err(AgentError::NoAnnotations {
                namespace: pod.namespace.clone(),
                name: pod.name.clone(),
            });
        };
        let uid = pod.uid.as_deref();
        let found = cluster.pod(&pod.namespace, &pod.name, uid).await?;
        Ok(found.annotations)
    }

    /// Reads the lists of the pod, and returns the default network with them.
    ///
    /// `default` is that of the node. Where it is not known, a pod that lists all of its networks is as on
    /// every other node.
    fn selection(
        &self,
        asked: Asked<'_>,
        annotations: &BTreeMap<String, String>,
        default: Result<DefaultNetwork, WorldError>,
    ) -> Result<(PodSelection, DefaultNetwork), AgentError> {
        let identity: Option<PodIdentity> = asked.invocation.args.pod().map(Into::into);
        let namespace = identity
            .as_ref()
            .map_or(DEFAULT_NAMESPACE, |pod| pod.namespace.as_str());
        let primary = asked.request.ifname.clone();
        let lists = &self.rules.lists;
        let known = default.as_ref().unwrap_or(&lists.default_network);
        let mut rules = SelectionRules {
            primary_interface: primary.try_into().map_err(|_| AgentError::InterfaceName)?,
            ..lists.rules_on(known)
        };
        // What is no pod of Kubernetes is in no namespace.
        if identity.is_none() {
            rules.default_networks.clear();
        }
        let pod = PodAnnotations {
            namespace,
            host_network: false,
            annotations,
        };
        let mut selection = match (PodSelection::read(&pod, &rules), self.rules.invalid) {
            (Ok(selection), _) => selection,
            (Err(errors), InvalidAnnotation::Fail) => return Err(errors.into()),
            (Err(errors), InvalidAnnotation::Ignore) => {
                note_ignored(namespace, asked, &errors);
                PodSelection::default_only(namespace, &rules)
            }
        };
        let has_default = self.rules.lists.default_network != DefaultNetwork::None;
        for note in &selection.notes {
            match (note, &identity) {
                (SelectionNote::DefaultMoved { .. }, Some(pod)) if has_default => {
                    self.book.pods().tell(PodChange::Warned {
                        pod: pod.clone(),
                        text: note.to_string(),
                    });
                }
                _ => {
                    tracing::debug!(%note, "the annotations of a pod have a part that is passed over");
                }
            }
        }
        let default = match default {
            Err(error) if selection.attachments.iter().any(is_implied) => return Err(error.into()),
            default => default.unwrap_or_else(|_| lists.default_network.clone()),
        };
        if default == DefaultNetwork::None {
            selection.attachments.retain(|one| !is_implied(one));
        }
        let has_primary = selection
            .attachments
            .iter()
            .any(|one| one.interface == rules.primary_interface);
        if has_primary {
            Ok((selection, default))
        } else {
            let interface = IfName::new(asked.request.ifname.as_str())?;
            Err(AgentError::NoPrimary { interface })
        }
    }

    /// Finds the meaning of an element.
    ///
    /// `default` is the first network of pods without a list on this node.
    fn meaning(
        &self,
        world: &World,
        selected: &SelectedAttachment,
        default: &DefaultNetwork,
    ) -> Result<Meant, AgentError> {
        let of_lists = &self.rules.lists.default_network;
        // By its name a list means the cluster's, on every node.
        let default = match selected.source {
            Source::Default => default,
            Source::Kep | Source::Npwg => of_lists,
        };
        match &selected.target {
            Target::PodNetwork(name)
                if *default == DefaultNetwork::Delegate && name == default.name() =>
            {
                Ok(Meant::Chain(self.default_chain()?))
            }
            Target::PodNetwork(name) => {
                let because = match selected.source {
                    Source::Default if default != of_lists => {
                        "annotation podnet.dev/default-network of the node"
                    }
                    Source::Default => "default network of the node",
                    Source::Kep | Source::Npwg => POD_NETWORKS_ANNOTATION,
                };
                Native::network(world, name, because).map(Meant::native)
            }
            Target::Attachment { namespace, name } => {
                let object = ObjectRef {
                    namespace: namespace.clone(),
                    name: name.clone(),
                };
                Native::attachment(world, object, POD_NETWORKS_ANNOTATION).map(Meant::native)
            }
            Target::Definition { namespace, name } => self.definition(world, namespace, name),
        }
    }

    fn definition(&self, world: &World, namespace: &str, name: &str) -> Result<Meant, AgentError> {
        let key = (namespace.to_owned(), name.to_owned());
        let Some(object) = world.definitions.get(&key) else {
            return Err(AgentError::NoDefinition {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                broken: world.broken.clone(),
            });
        };
        let definition = read_definition(&Definition {
            namespace,
            name,
            annotations: &object.annotations,
            config: &object.config,
        })?;
        let wrong = |problem| DefinitionError {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            problem,
        };
        let because = format!("NetworkAttachmentDefinition {namespace}/{name}");
        match definition.meaning {
            Meaning::ByName(network) => match Native::network(world, &network, &because) {
                Err(AgentError::World(WorldError::Resolve { source, broken }))
                    if is_absent(&source) =>
                {
                    match self.named_chain(&network)? {
                        Some(mut chain) => {
                            chain.resource_name = definition.resource_name;
                            whole(chain)
                        }
                        None => Err(WorldError::Resolve { source, broken }.into()),
                    }
                }
                found => found.map(Meant::native),
            },
            Meaning::Own(own) => {
                let native = match &own.network {
                    NetworkRef::PodNetwork(network) => Native::network(world, network, &because)?,
                    NetworkRef::Attachment {
                        namespace: other,
                        name: object,
                    } => {
                        let rules = self.rules.lists.rules();
                        let checked = rules.check_namespace(namespace, other);
                        checked.map_err(|isolated| wrong(Box::new(isolated).into()))?;
                        let object = ObjectRef {
                            namespace: other.clone(),
                            name: object.clone(),
                        };
                        Native::attachment(world, object, &because)?
                    }
                };
                Ok(Meant::native(native.defined(own)?))
            }
            Meaning::Delegate(chain) => {
                let allowed = self.rules.lists.rules().plugins;
                allowed.check(&chain).map_err(wrong)?;
                whole(chain)
            }
        }
    }

    /// One attachment; `length` counts what plugins of others read for all of them.
    fn member(
        &self,
        asked: Asked<'_>,
        selected: &SelectedAttachment,
        meant: &Meant,
        default_routes: DefaultRoutes,
        explicit: bool,
        length: &mut usize,
    ) -> Result<Planned, AgentError> {
        let ifname = IfName::new(selected.interface.as_str())?;
        let (maker, native) = match meant {
            Meant::Native(native) => {
                let routes = default_routes.clone();
                let explicit = explicit && selected.is_default_gateway;
                let wanted = native.wanted(asked, selected, &ifname, routes, explicit)?;
                (Maker::Podnet, Some((wanted, native.network.clone())))
            }
            Meant::Chain(chain) => {
                refuse_of_podnet(selected)?;
                let delegation = delegation(asked, selected, chain)?;
                *length = length.saturating_add(delegation.length());
                if *length > HANDED_ON_MAX {
                    let most = HANDED_ON_MAX;
                    return Err(DelegateError::TooLong { most }.into());
                }
                // Of what is not on the node no record is made, which only a DEL would end.
                delegate::check_installed(&self.delegates, &delegation)?;
                (Maker::Plugins(delegation), None)
            }
        };
        let member = Member {
            ifname,
            source: selected.source,
            target: selected.target.clone(),
            default_routes,
            asked_default_route: selected.options.default_route.clone(),
            maker,
        };
        Ok(Planned { member, native })
    }
}

/// Refuses what only a network of podnet has, for one of other plugins.
fn refuse_of_podnet(selected: &SelectedAttachment) -> Result<(), AgentError> {
    let options = &selected.options;
    let what = match (&options.port, &options.vpc) {
        (Some(port), _) => format!("Port {port}"),
        (None, Some(vpc)) => format!("Vpc {vpc}"),
        (None, None) => return Ok(()),
    };
    Err(AgentError::NetworkOfPlugins { what })
}

/// Logs that lists have no effect, once per [`IGNORED_EVERY`] for the same errors.
fn note_ignored(namespace: &str, asked: Asked<'_>, errors: &SelectionErrors) {
    static IGNORED: Sparing = Sparing::new(IGNORED_EVERY);
    let name = asked.invocation.args.pod().map(|pod| pod.name);
    let errors = errors.to_string();
    if let Some(unsaid) = IGNORED.admit(&(namespace, &name, &errors)) {
        tracing::warn!(
            namespace,
            pod = name,
            errors,
            unsaid,
            "the pod's networks are ignored"
        );
    }
}

/// True for the default network of a pod that says nothing of it.
fn is_implied(selected: &SelectedAttachment) -> bool {
    selected.source == Source::Default && matches!(selected.target, Target::PodNetwork(_))
}

fn is_absent(error: &ResolveError) -> bool {
    matches!(error, ResolveError::NetworkNotFound { .. })
}

fn whole(chain: PluginChain) -> Result<Meant, AgentError> {
    // Also by a plugin of it: the requests of one container wait for each other.
    if chain.leads_to(PLUGIN_TYPE) {
        return Err(AgentError::OwnPluginInChain {
            network: chain.name,
        });
    }
    Ok(Meant::Chain(chain))
}

fn of_member(index: usize, selected: &SelectedAttachment, error: AgentError) -> AgentError {
    AgentError::Member {
        number: index + 1,
        member: format!("{} as {}", selected.target, selected.interface),
        source: Box::new(error),
    }
}

/// KEP-POD-12: a network is in the list once, attachments of it counted too.
fn refuse_twice(selection: &PodSelection, meanings: &[Meant]) -> Result<(), AgentError> {
    let mut seen = BTreeSet::new();
    for (selected, meant) in selection.attachments.iter().zip(meanings) {
        if let (Source::Kep, Meant::Native(native)) = (selected.source, meant)
            && !seen.insert(&native.network.name)
        {
            return Err(AgentError::NetworkTwice {
                network: native.network.name.clone(),
            });
        }
    }
    Ok(())
}

/// Takes `isDefaultGateway` of a definition for the wish of `default-route: []`.
///
/// A pod that expresses a wish of its own is left alone. True when the list of KEP-3698 has such a
/// wish.
fn claim_default_gateway(
    selection: &mut PodSelection,
    meanings: &[Meant],
    annotations: &BTreeMap<String, String>,
) -> bool {
    // NICs have no such key.
    let listed = annotations.get(POD_NETWORKS_ANNOTATION);
    let listed = listed.and_then(|text| parse_pod_networks(text).ok());
    let explicit = listed
        .iter()
        .flatten()
        .any(|element| element.is_default_gateway);
    let claimed = selection
        .attachments
        .iter()
        .any(|selected| selected.options.default_route.is_some());
    if explicit || claimed {
        return explicit;
    }
    let mut pairs = selection.attachments.iter_mut().zip(meanings);
    let wanting = pairs
        .find(|(_, meant)| matches!(meant, Meant::Native(native) if native.is_default_gateway));
    if let Some((selected, _)) = wanting {
        selected.options.default_route = Some(Vec::new());
    }
    false
}

/// Default routes of the pod that go through this attachment.
///
/// The routes of another plugin's chain are known only when it has run; see [`Node::settle_defaults`].
fn default_routes(
    selection: &PodSelection,
    meanings: &[Meant],
    selected: &SelectedAttachment,
) -> DefaultRoutes {
    let mut routes = DefaultRoutes::default();
    for v4 in [true, false] {
        let family = if v4 { Family::V4 } else { Family::V6 };
        let supplies = |one: &SelectedAttachment| match meanings.get(one.position_in(selection)) {
            Some(Meant::Native(native)) => native.supplies_default(v4),
            Some(Meant::Chain(_)) | None => false,
        };
        let owner = selection.default_route(family, supplies);
        if owner.is_some_and(|owner| owner.position == selected.position) {
            let asked = selected.options.default_route.iter().flatten();
            let of_family = asked.filter(|gateway| gateway.is_ipv4() == v4);
            *routes.of_mut(v4) = Some(of_family.copied().collect());
        }
    }
    routes
}

/// Where an attachment is in the list, which may have lost its first.
trait PositionIn {
    fn position_in(&self, selection: &PodSelection) -> usize;
}

impl PositionIn for SelectedAttachment {
    fn position_in(&self, selection: &PodSelection) -> usize {
        let found = selection
            .attachments
            .iter()
            .position(|one| one.position == self.position);
        found.unwrap_or(usize::MAX)
    }
}

fn delegation(
    asked: Asked<'_>,
    selected: &SelectedAttachment,
    chain: &PluginChain,
) -> Result<Delegation, AgentError> {
    let mut wishes = Wishes::of(&selected.options);
    wishes.offered = runtime_config(asked.request);
    let is_default = selected.interface.as_str() == asked.request.ifname;
    if !is_default {
        wishes
            .offered
            .retain(|key, _| CONTEXT.iter().any(|known| known.eq_ignore_ascii_case(key)));
    }
    let file = device_info_file(asked, selected, chain)?;
    if let Some(file) = &file {
        let raw = RawJson::parse(&serde_json::json!(file).to_string());
        wishes.offered.extend(
            raw.ok()
                .map(|raw| (device_info::CAPABILITY.to_owned(), raw)),
        );
    }
    let mut delegation = prepare(chain, &wishes)?;
    delegation.device_info_file = file;
    delegation.device_plugin_file = device_info::of_device_plugin(chain);
    delegation.path.clone_from(&asked.request.path);
    delegation.args = if is_default {
        asked.request.args.clone()
    } else {
        without_requests(&asked.request.args)
    };
    Ok(delegation)
}

/// The file in which plugins that take one may describe a device (NPWG-DI-3).
fn device_info_file(
    asked: Asked<'_>,
    selected: &SelectedAttachment,
    chain: &PluginChain,
) -> Result<Option<PathBuf>, AgentError> {
    let Some(primary) = asked.invocation.call.key() else {
        return Ok(None);
    };
    // What the device plugin says of the device is worth telling without any plugin's help.
    let is_described = device_info::of_device_plugin(chain).is_some();
    if !is_described && !chain.has_capability(device_info::CAPABILITY) {
        return Ok(None);
    }
    let key = AttachmentKey {
        container: primary.container.clone(),
        ifname: IfName::new(selected.interface.as_str())?,
    };
    Ok(Some(device_info::path(&chain.name, &key)))
}

/// The `runtimeConfig` of the request, values as they came.
fn runtime_config(request: &CniRequest) -> BTreeMap<String, RawJson> {
    let conf: RawObject = serde_json::from_str(request.config.get()).unwrap_or_default();
    let runtime = conf
        .iter()
        .find(|(key, _)| key.eq_ignore_ascii_case("runtimeConfig"));
    let runtime: RawObject = runtime
        .and_then(|(_, value)| value.read().ok())
        .unwrap_or_default();
    runtime
        .iter()
        .map(|(key, value)| (key.to_owned(), value.clone()))
        .collect()
}

/// `CNI_ARGS` without address and MAC address of the runtime's own interface.
fn without_requests(args: &str) -> String {
    let kept = args.split(';').filter(|pair| {
        let key = pair.split('=').next().unwrap_or_default().trim();
        !matches!(key, "IP" | "MAC")
    });
    kept.collect::<Vec<_>>().join(";")
}
