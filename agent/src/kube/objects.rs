//! The objects of the cluster that say which networks there are.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use api::nad::CONFIG_MAX;
use api::{
    AttachmentParameters, Given, IpamClaim, NetworkAttachmentDefinition, Object, Origin,
    PodNetwork, PodNetworkAttachment, PodNetworkParameters, Resource as ApiResource, Vpc,
    decided_transport,
};
use cluster::Work;
use cluster::copied::{self, Copier, Guarded, settled};
use kube::core::DeserializeGuard;
use kube::runtime::watcher::Config;
use kube::{Client, Resource};
use tokio::sync::Notify;
use world::lists::ListOptions;
use world::{Claim, DefaultNetwork, Definition, World};

/// Copies of all objects of the kinds that matter.
#[derive(Debug)]
pub(super) struct Objects {
    networks: Guarded<PodNetwork>,
    attachments: Guarded<PodNetworkAttachment>,
    network_parameters: Guarded<PodNetworkParameters>,
    attachment_parameters: Guarded<AttachmentParameters>,
    definitions: Guarded<NetworkAttachmentDefinition>,
    claims: Guarded<IpamClaim>,
    vpcs: Guarded<Vpc>,
    changed: Arc<Notify>,
}

impl Objects {
    /// The copies, and the work that fills them.
    pub(super) fn new(client: &Client) -> (Self, Vec<Work>) {
        let changed = Arc::new(Notify::new());
        let mut copier = Copier::new(client, &changed);
        let this = Self {
            networks: copier.needed("podnetworks"),
            attachments: copier.needed("podnetworkattachments"),
            network_parameters: copier.needed("podnetworkparameters"),
            attachment_parameters: copier.needed("attachmentparameters"),
            definitions: copier.copy(
                "network-attachment-definitions",
                true,
                Config::default(),
                trim_definition,
            ),
            claims: copier.optional("ipamclaims"),
            // Not there in a cluster whose definitions are of before.
            vpcs: copier.kept("vpcs"),
            changed,
        };
        (this, copier.work())
    }

    /// Waits for a change, and until what belongs to it has come too.
    pub(super) async fn changed(&self) {
        settled(&self.changed).await;
    }

    /// Makes a world of the copies, unread until all of them were read.
    ///
    /// A network whose parameters were not read yet would look like one without. `node_default` is the
    /// annotation of this node.
    pub(super) fn world(&self, node_default: Option<String>, lists: &ListOptions) -> World {
        let kinds = [
            &self.networks.kind,
            &self.attachments.kind,
            &self.network_parameters.kind,
            &self.attachment_parameters.kind,
            &self.definitions.kind,
            &self.claims.kind,
            &self.vpcs.kind,
        ];
        let unread = copied::unread(kinds);
        if !unread.is_empty() {
            return World::unread(unread);
        }
        let (mut objects, mut broken) = (Vec::new(), Vec::new());
        collect(&self.networks, &mut objects, &mut broken);
        collect(&self.attachments, &mut objects, &mut broken);
        collect(&self.network_parameters, &mut objects, &mut broken);
        collect(&self.attachment_parameters, &mut objects, &mut broken);
        collect(&self.vpcs, &mut objects, &mut broken);
        let definitions = self.definitions.map(&mut broken, |object| Definition {
            annotations: object.metadata.annotations.clone().unwrap_or_default(),
            config: object.spec.config.clone(),
        });
        let claims = self.claims.map(&mut broken, |object| Claim {
            network: object.spec.network.clone(),
            interface: object.spec.interface.clone(),
            ips: object
                .status
                .as_ref()
                .map(|status| status.ips.clone())
                .unwrap_or_default(),
        });
        broken.sort();
        let given = self.networks.map(&mut Vec::new(), PodNetwork::given);
        let given: BTreeMap<String, Given> = given
            .into_iter()
            .map(|((_, name), given)| (name, given))
            .collect();
        let numbers = given.iter();
        let numbers = numbers.filter_map(|(name, given)| Some((name.clone(), given.number?)));
        let mut world = World {
            definitions,
            claims,
            node_default,
            broken,
            ..World::default()
        };
        let mut resolved = world::resolve(objects, &world.definitions);
        if let Ok(DefaultNetwork::PodNetwork(name)) = world.default_network(lists) {
            resolved.route_for([name.as_str()], true);
        }
        resolved.number(&numbers.collect());
        resolved.transport(|network| {
            let given = given.get(&network.name).copied().unwrap_or_default();
            decided_transport(network, given)
        });
        world.resolved = resolved;
        world
    }
}

/// Cuts a configuration that is too long to the length that shows it.
///
/// Any user of a namespace who may write definitions has them in the memory of every agent.
fn trim_definition(object: &mut DeserializeGuard<NetworkAttachmentDefinition>) {
    copied::trim(object);
    if let Ok(definition) = &mut object.0 {
        cut(&mut definition.spec.config, CONFIG_MAX + 1);
    }
}

/// Cuts a text that is longer than `most` bytes.
///
/// A character at the cut stays whole.
fn cut(text: &mut String, most: usize) {
    if text.len() > most {
        text.truncate(text.ceil_char_boundary(most));
        text.shrink_to_fit();
    }
}

fn collect<K>(copied: &Guarded<K>, objects: &mut Vec<Object>, broken: &mut Vec<String>)
where
    K: Resource<DynamicType = ()> + Clone + Debug + 'static,
    for<'a> ApiResource: From<&'a K>,
{
    let readable = copied.map(broken, |object| ApiResource::from(object));
    objects.extend(readable.into_values().map(|resource| Object {
        origin: Origin::api_server(),
        resource,
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A text that is cut is still too long, and so refused.
    #[test]
    fn a_text_is_cut_behind_a_whole_character() {
        for (text, most, kept) in [
            ("abc", 3, 3),
            ("abcd", 3, 3),
            ("a\u{20ac}", 2, 4),
            ("", 1, 0),
        ] {
            let mut text = text.to_owned();
            cut(&mut text, most);
            assert_eq!(text.len(), kept);
        }
    }
}
