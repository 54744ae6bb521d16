//! Services of networks, and their endpoints.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use api::{OF_CLUSTER, ServiceObject, ServiceSlice};
use tokio::sync::watch;

/// All Services of networks at one moment, and their endpoints.
#[derive(Debug, Default, PartialEq)]
pub struct ServiceWorld {
    /// Services and slices of each network, by its name, and those of [`OF_CLUSTER`].
    ///
    /// Shared with the world before where they are the same.
    pub networks: BTreeMap<String, Arc<OfNetwork>>,
    /// Zone of this node, where it has one.
    pub zone: Option<String>,
    /// One line for each document that could not be read, sorted.
    pub broken: Vec<String>,
    /// Sources that were never read yet.
    ///
    /// While there are any, what is in force stays.
    pub unread: Vec<String>,
}

/// Services of one network, and their endpoints.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct OfNetwork {
    /// The Services, by namespace and name.
    pub services: Vec<Arc<ServiceObject>>,
    /// Their slices, by namespace and name.
    pub slices: Vec<Arc<ServiceSlice>>,
}

impl ServiceWorld {
    /// A world of which nothing is known, for these reasons.
    pub fn unread(reasons: Vec<String>) -> Self {
        Self {
            unread: reasons,
            ..Self::default()
        }
    }

    /// True when some Service is of a network.
    ///
    /// Members have to be said with their pods then.
    pub fn names_networks(&self) -> bool {
        let mut networks = self.networks.iter();
        networks.any(|(name, of)| name != OF_CLUSTER && !of.services.is_empty())
    }

    /// Puts objects in the order in which equal worlds are equal.
    ///
    /// Of two objects of one name the first counts.
    pub fn of(
        mut services: Vec<Arc<ServiceObject>>,
        mut slices: Vec<Arc<ServiceSlice>>,
        mut broken: Vec<String>,
    ) -> Self {
        once(&mut services, |it| (&it.namespace, &it.name), &mut broken);
        once(&mut slices, |it| (&it.namespace, &it.name), &mut broken);
        let mut networks: BTreeMap<String, OfNetwork> = BTreeMap::new();
        for service in services {
            let of = networks.entry(service.network.clone()).or_default();
            of.services.push(service);
        }
        for slice in slices {
            let of = networks.entry(slice.network.clone()).or_default();
            of.slices.push(slice);
        }
        broken.sort();
        broken.dedup();
        Self {
            networks: networks
                .into_iter()
                .map(|(name, of)| (name, Arc::new(of)))
                .collect(),
            zone: None,
            broken,
            unread: Vec::new(),
        }
    }

    /// Logs what is not obeyed.
    pub fn complain(&self) {
        for problem in &self.broken {
            tracing::warn!(%problem, "a Service or its endpoints cannot be read as they are written: correct them");
        }
    }
}

/// Sorts objects by namespace and name, and tells of those that are written twice.
fn once<T: fmt::Display>(
    objects: &mut Vec<Arc<T>>,
    name: impl Fn(&T) -> (&String, &String),
    broken: &mut Vec<String>,
) {
    objects.sort_by(|a, b| name(a).cmp(&name(b)));
    objects.dedup_by(|later, first| {
        let same = name(later) == name(first);
        if same {
            broken.push(format!(
                "{later} is written twice, and the first counts; remove one"
            ));
        }
        same
    });
}

/// The current Services, shared and replaced as a whole.
#[derive(Debug)]
pub struct ServiceCurrent {
    world: RwLock<Arc<ServiceWorld>>,
    /// How often it was replaced by another.
    version: watch::Sender<u64>,
}

impl Default for ServiceCurrent {
    /// Nothing is known yet.
    fn default() -> Self {
        let world = ServiceWorld::unread(vec!["Services were not read yet".to_owned()]);
        Self {
            world: RwLock::new(Arc::new(world)),
            version: watch::Sender::default(),
        }
    }
}

impl ServiceCurrent {
    /// The Services as they are now.
    pub fn get(&self) -> Arc<ServiceWorld> {
        Arc::clone(&self.world.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces them; true when that is a change.
    pub fn set(&self, mut world: ServiceWorld) -> bool {
        let mut current = self.world.write().unwrap_or_else(PoisonError::into_inner);
        if **current == world {
            return false;
        }
        for (name, of) in &mut world.networks {
            if let Some(before) = current.networks.get(name).filter(|it| *it == of) {
                *of = Arc::clone(before);
            }
        }
        *current = Arc::new(world);
        drop(current);
        self.version.send_modify(|version| *version += 1);
        true
    }

    /// Tells of each replacement by others from now on.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(name: &str, network: &str) -> Arc<ServiceObject> {
        Arc::new(ServiceObject {
            namespace: "shop".to_owned(),
            name: name.to_owned(),
            network: network.to_owned(),
            ips: Vec::new(),
            ports: Vec::new(),
            affinity_s: 0,
            local: false,
            problems: Vec::new(),
        })
    }

    #[test]
    fn of_two_services_of_one_name_the_first_counts() {
        let written = vec![
            service("web", "blue"),
            service("db", "red"),
            service("web", "red"),
        ];
        let world = ServiceWorld::of(written, Vec::new(), Vec::new());
        let names: Vec<_> = world
            .networks
            .iter()
            .map(|(network, of)| (network.as_str(), of.services[0].name.as_str()))
            .collect();
        assert_eq!(names, [("blue", "web"), ("red", "db")]);
        assert_eq!(world.networks["red"].services.len(), 1);
        assert_eq!(
            world.broken,
            ["Service shop/web is written twice, and the first counts; remove one"]
        );
    }

    #[test]
    fn a_network_that_stays_as_it_was_is_shared_with_the_world_before() {
        let current = ServiceCurrent::default();
        assert!(!current.get().unread.is_empty());
        let of = |other: &str| {
            let services = vec![service("web", "blue"), service(other, "red")];
            ServiceWorld::of(services, Vec::new(), Vec::new())
        };
        assert!(current.set(of("db")));
        let before = current.get();
        assert!(!current.set(of("db")));
        assert!(current.set(of("cache")));
        let after = current.get();
        let same = |network: &str| Arc::ptr_eq(&before.networks[network], &after.networks[network]);
        assert!(same("blue") && !same("red"));
    }
}
