//! Objects of one kind at the server, and as one client has heard of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube_core::{Resource, ResourceExt as _};

use super::super::super::Object;

/// Change of one object: its time, its name, the object unless it was deleted.
type Change<K> = (i64, String, Option<Arc<K>>);

/// All objects of one kind, and all that ever happened to them.
#[derive(Debug)]
pub(super) struct Kind<K> {
    objects: BTreeMap<String, Arc<K>>,
    changes: Vec<Change<K>>,
    /// Number of changes that each client has heard of or will list.
    floor: usize,
}

impl<K: Resource<DynamicType = ()> + Clone> Kind<K> {
    pub(super) fn new() -> Self {
        Self {
            objects: BTreeMap::new(),
            changes: Vec::new(),
            floor: 0,
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&Arc<K>> {
        self.objects.get(name)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<K>> {
        self.objects.values()
    }

    pub(super) fn put(&mut self, now: i64, object: K) {
        let (name, object) = (object.name_any(), Arc::new(object));
        let change = (now, name.clone(), Some(Arc::clone(&object)));
        self.changes.push(change);
        self.objects.insert(name, object);
    }

    /// Deletes an object if it has this UID and this version, where they are named.
    pub(super) fn delete(&mut self, now: i64, object: &Object, version: Option<&str>) -> bool {
        let found = self.objects.get(&object.name);
        let is_it = found.is_some_and(|found| is_meant(&**found, object.uid.as_deref(), version));
        if is_it {
            self.objects.remove(&object.name);
            self.changes.push((now, object.name.clone(), None));
        }
        is_it
    }

    /// Lists every version that was the last one at some time since then.
    pub(super) fn since(&self, then: i64) -> impl Iterator<Item = &Arc<K>> {
        let mut before = BTreeMap::new();
        let mut versions = Vec::new();
        for (time, name, object) in &self.changes {
            if *time <= then {
                before.insert(name, object);
            } else {
                versions.push(object);
            }
        }
        before.into_values().chain(versions).flatten()
    }

    /// Keeps clients from listing what was before this moment.
    pub(super) fn advance(&mut self) {
        self.floor = self.changes.len();
    }
}

/// True for an object of this UID and version; what is not named is not compared.
pub(super) fn is_meant<K: Resource>(object: &K, uid: Option<&str>, version: Option<&str>) -> bool {
    let metadata = object.meta();
    uid.is_none_or(|uid| metadata.uid.as_deref() == Some(uid))
        && version.is_none_or(|version| metadata.resource_version.as_deref() == Some(version))
}

/// Objects of one kind as one client has heard of them.
#[derive(Debug)]
pub(super) struct Mirror<K> {
    objects: BTreeMap<String, Arc<K>>,
    heard: usize,
    pub(super) read: bool,
}

impl<K: Resource<DynamicType = ()> + Clone> Mirror<K> {
    pub(super) fn new() -> Self {
        Self {
            objects: BTreeMap::new(),
            heard: 0,
            read: false,
        }
    }

    /// Hears the next changes, in their order; true when there were any.
    pub(super) fn hear(&mut self, kind: &Kind<K>, count: usize) -> bool {
        if !self.read {
            return self.list(kind, 0);
        }
        let before = self.heard;
        let changes = kind.changes.iter().skip(self.heard).take(count);
        for change in changes {
            self.heard += 1;
            apply(&mut self.objects, change);
        }
        self.heard > before
    }

    /// Hears nothing of what happened, and what there was this many changes ago.
    ///
    /// A cache of the API server answers, so a client may see again what it knew to be gone.
    pub(super) fn list(&mut self, kind: &Kind<K>, back: usize) -> bool {
        self.heard = kind.changes.len().saturating_sub(back).max(kind.floor);
        self.objects.clear();
        for change in kind.changes.iter().take(self.heard) {
            apply(&mut self.objects, change);
        }
        self.read = true;
        true
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<K>> {
        self.objects.values()
    }
}

fn apply<K>(objects: &mut BTreeMap<String, Arc<K>>, (_, name, object): &Change<K>) {
    match object {
        Some(object) => objects.insert(name.clone(), Arc::clone(object)),
        None => objects.remove(name),
    };
}
