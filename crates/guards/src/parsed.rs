//! Policies by network, read once for each change of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::nad::read_definition;
use api::{PolicyNetworks, PolicyObject};
use book::record::NetworkFacts;
use policy::{Policy, Read};
use policy_objects::{Known, Place};
use world::World;
use world::policies::PolicyWorld;

/// All policies, as they are compiled.
#[derive(Debug)]
pub(crate) struct Parsed {
    policies: Arc<PolicyWorld>,
    world: Arc<World>,
    read: Vec<Arc<Read>>,
    by_network: BTreeMap<String, Vec<Policy>>,
    /// Policies that name no network.
    by_default: Vec<Policy>,
    /// Networks of each policy, and problems with finding them.
    pub(crate) places: Vec<Place>,
}

impl Parsed {
    /// Reads all policies; those of `before` are not read again.
    pub(crate) fn new(
        policies: &Arc<PolicyWorld>,
        world: &Arc<World>,
        before: Option<&Self>,
    ) -> Self {
        let known: BTreeMap<_, _> = before
            .into_iter()
            .flat_map(|it| it.policies.policies.iter().zip(&it.read))
            .map(|(object, read)| (object.key(), (object, read)))
            .collect();
        let (mut read, mut places) = (Vec::new(), Vec::new());
        let mut by_network: BTreeMap<String, Vec<Policy>> = BTreeMap::new();
        let mut by_default = Vec::new();
        let networks = Known {
            resolved: &world.resolved,
            defaults: world
                .resolved
                .routed_by_node()
                .map(|network| network.name.clone())
                .into_iter()
                .collect(),
            meaning: &|namespace, name| {
                let key = (namespace.to_owned(), name.to_owned());
                let definition = world.definitions.get(&key)?.as_read(namespace, name);
                Some(read_definition(&definition).map(|read| read.meaning))
            },
        };
        for object in &policies.policies {
            let again = known.get(&object.key());
            let one = match again.filter(|(before, _)| *before == object) {
                Some((_, read)) => Arc::clone(read),
                None => Arc::new(policy_objects::read(object)),
            };
            let place = Place::of(object, &networks);
            if object.networks == PolicyNetworks::Default {
                by_default.push(one.policy.clone());
            }
            for network in &place.networks {
                let list = by_network.entry(network.clone()).or_default();
                list.push(one.policy.clone());
            }
            read.push(one);
            places.push(place);
        }
        Self {
            policies: Arc::clone(policies),
            world: Arc::clone(world),
            read,
            by_network,
            by_default,
            places,
        }
    }

    /// Reports whether it was made of these.
    pub(crate) fn is_of(&self, policies: &Arc<PolicyWorld>, world: &Arc<World>) -> bool {
        let same =
            Arc::ptr_eq(&self.policies, policies) || self.policies.policies == policies.policies;
        let networks = Arc::ptr_eq(&self.world, world)
            || self.world.definitions == world.definitions && self.world.resolved == world.resolved;
        same && networks
    }

    /// The policies of a network.
    ///
    /// One that the node routes for keeps them when its object is gone and pods of it are there still.
    pub(crate) fn of(&self, network: &NetworkFacts) -> &[Policy] {
        match self.by_network.get(&network.name) {
            Some(policies) => policies,
            None if network.by_node => &self.by_default,
            None => &[],
        }
    }

    /// Reports whether no policy is for any network of podnet.
    pub(crate) fn is_empty(&self) -> bool {
        self.by_network.is_empty()
    }

    /// All policies as they are written and as they are read, with their networks.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&PolicyObject, &Read, &Place)> {
        let objects = self.policies.policies.iter().map(|object| &**object);
        let read = self.read.iter().map(|read| &**read);
        let both = objects.zip(read).zip(&self.places);
        both.map(|((object, read), place)| (object, read, place))
    }
}
