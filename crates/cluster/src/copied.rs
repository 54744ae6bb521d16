//! Copies of the kinds of objects that are followed, and what of them can be read.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use kube::core::DeserializeGuard;
use kube::runtime::reflector::Store;
use kube::runtime::reflector::store::Writer;
use kube::runtime::watcher::{Config, Event};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::sync::Notify;

use crate::Work;
use crate::watch::{Kind, follow, follow_into};

/// Objects that are applied together come in one after the other.
const SETTLE: Duration = Duration::from_millis(20);
/// An annotation that can be long and that podnet does not read.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Namespace, empty where there is none, and name.
pub type Key = (String, String);

/// All objects of one kind.
#[derive(Debug)]
pub struct Copied<K: Resource<DynamicType = ()> + 'static> {
    /// How far the copy is.
    pub kind: Arc<Kind>,
    /// The copy.
    pub store: Store<K>,
}

/// All objects of one kind; the reason takes the place of an unreadable one.
pub type Guarded<K> = Copied<DeserializeGuard<K>>;

/// Makes copies, and the work that fills them.
pub struct Copier<'a> {
    client: &'a Client,
    changed: Arc<Notify>,
    work: Vec<Work>,
}

impl Debug for Copier<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kinds = self.work.len();
        out.debug_struct("Copier")
            .field("kinds", &kinds)
            .finish_non_exhaustive()
    }
}

impl<'a> Copier<'a> {
    /// One whose copies tell of their changes by `changed`.
    pub fn new(client: &'a Client, changed: &Arc<Notify>) -> Self {
        Self {
            client,
            changed: Arc::clone(changed),
            work: Vec::new(),
        }
    }

    /// Adds a copy of the objects that `selection` selects, reduced by `trim`.
    pub fn copy<K>(
        &mut self,
        name: &'static str,
        optional: bool,
        selection: Config,
        trim: fn(&mut K),
    ) -> Copied<K>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + Sync + 'static,
    {
        self.copy_kind(Kind::new(name, optional, &self.changed), selection, trim)
    }

    fn copy_kind<K>(&mut self, kind: Arc<Kind>, selection: Config, trim: fn(&mut K)) -> Copied<K>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + Sync + 'static,
    {
        let writer = Writer::<K>::default();
        let store = writer.as_reader();
        let api = Api::all(self.client.clone());
        let follow = follow(Arc::clone(&kind), writer, api, selection, trim);
        self.work.push(follow.boxed());
        Copied { kind, store }
    }

    /// Adds a copy of all objects of a kind; `heard` gets each event as it comes.
    pub fn told<K>(
        &mut self,
        name: &'static str,
        trim: fn(&mut K),
        mut heard: impl FnMut(&Event<K>) + Send + 'static,
    ) -> Copied<K>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + Sync + 'static,
    {
        let kind = Kind::new(name, false, &self.changed);
        let mut writer = Writer::<K>::default();
        let store = writer.as_reader();
        let api = Api::all(self.client.clone());
        let apply = move |event: &Event<K>| {
            writer.apply_watcher_event(event);
            heard(event);
        };
        let follow = follow_into(Arc::clone(&kind), api, Config::default(), trim, apply);
        self.work.push(follow.boxed());
        Copied { kind, store }
    }

    /// Of all objects of a kind.
    pub fn needed<K>(&mut self, name: &'static str) -> Copied<K>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + Sync + 'static,
    {
        self.copy(name, false, Config::default(), trim)
    }

    /// Of all objects of a kind that a cluster may do without.
    pub fn optional<K>(&mut self, name: &'static str) -> Copied<K>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + Sync + 'static,
    {
        self.copy(name, true, Config::default(), trim)
    }

    /// Of all objects of a kind that a cluster may do without, until it has been there.
    pub fn kept<K>(&mut self, name: &'static str) -> Copied<K>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + Sync + 'static,
    {
        self.copy_kind(Kind::new_kept(name, &self.changed), Config::default(), trim)
    }

    /// Returns the tasks that keep the copies up to date, to be polled all the time.
    pub fn work(self) -> Vec<Work> {
        self.work
    }
}

impl<K> Guarded<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + 'static,
{
    /// Returns `f` of every readable object; the reasons of others go to `unreadable`.
    pub fn map<T>(&self, unreadable: &mut Vec<String>, f: impl Fn(&K) -> T) -> BTreeMap<Key, T> {
        let mut found = BTreeMap::new();
        for object in self.store.state() {
            let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
            match &object.0 {
                Ok(object) => {
                    found.insert((namespace, name), f(object));
                }
                Err(invalid) => {
                    let separator = if namespace.is_empty() { "" } else { "/" };
                    let kind = K::kind(&());
                    unreadable.push(format!("{kind} {namespace}{separator}{name}: {invalid}"));
                }
            }
        }
        found
    }
}

/// Returns the kinds that were never read, each with the reason.
pub fn unread<'a>(kinds: impl IntoIterator<Item = &'a Arc<Kind>>) -> Vec<String> {
    let kinds = kinds.into_iter();
    kinds.filter_map(|kind| kind.unread()).collect()
}

/// Waits for a change, and until what belongs to it has come too.
pub async fn settled(changed: &Notify) {
    changed.notified().await;
    tokio::time::sleep(SETTLE).await;
}

/// Removes the metadata that is not read here.
///
/// The managed fields are most of a small object.
pub fn trim<K: Resource>(object: &mut K) {
    let meta = object.meta_mut();
    meta.managed_fields = None;
    meta.owner_references = None;
    meta.labels = None;
    if let Some(annotations) = &mut meta.annotations {
        annotations.remove(LAST_APPLIED);
    }
}

/// Leaves of the metadata what says which object it is.
pub fn trim_all<K: Resource>(object: &mut K) {
    trim(object);
    object.meta_mut().annotations = None;
}
