//! Services of networks, and their endpoints.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use api::{ServiceObject, ServiceSlice};
use tokio::sync::watch;

/// All Services of networks at one moment, and their endpoints.
#[derive(Debug, Default, PartialEq)]
pub struct ServiceWorld {
    /// Services and slices of each network, by its name.
    ///
    /// Shared with the world before where they are the same.
    pub networks: BTreeMap<String, Arc<OfNetwork>>,
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

    /// Puts objects in the order in which equal worlds are equal.
    ///
    /// Of two objects of one name the first counts.
    pub fn of(
        mut services: Vec<Arc<ServiceObject>>,
        mut slices: Vec<Arc<ServiceSlice>>,
        mut broken: Vec<String>,
    ) -> Self {
        let mut twice = |later: String| {
            broken.push(format!(
                "{later} is written twice, and the first counts; remove one"
            ));
        };
        services.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        services.dedup_by(|later, first| {
            let same = (&later.namespace, &later.name) == (&first.namespace, &first.name);
            if same {
                twice(later.to_string());
            }
            same
        });
        slices.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        slices.dedup_by(|later, first| {
            let same = (&later.namespace, &later.name) == (&first.namespace, &first.name);
            if same {
                twice(later.to_string());
            }
            same
        });
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
