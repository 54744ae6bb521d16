//! Copies of what is read of objects, without the objects.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt as _;
use futures_util::future::select;
use kube::runtime::watcher::{Config, Event};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::sync::Notify;

use crate::Work;
use crate::copied::Key;
use crate::watch::{Kind, follow_into};

/// The facts of all objects of a kind.
#[derive(Debug)]
pub struct Facts<T> {
    /// How far the copy is.
    pub kind: Arc<Kind>,
    known: Arc<Mutex<BTreeMap<Key, T>>>,
}

impl<T> Facts<T> {
    /// Returns the facts as they are known; the lock is not held across an await.
    pub fn known(&self) -> MutexGuard<'_, BTreeMap<Key, T>> {
        lock(&self.known)
    }
}

/// Makes copies, and the work that fills them.
pub struct Follow<'a> {
    client: &'a Client,
    changed: Arc<Notify>,
    work: Vec<Work>,
}

impl Debug for Follow<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kinds = self.work.len();
        out.debug_struct("Follow")
            .field("kinds", &kinds)
            .finish_non_exhaustive()
    }
}

impl<'a> Follow<'a> {
    /// One whose copies tell of their changes by `changed`.
    pub fn new(client: &'a Client, changed: &Arc<Notify>) -> Self {
        Self {
            client,
            changed: Arc::clone(changed),
            work: Vec::new(),
        }
    }

    /// Adds a copy of what `of` makes of each object.
    ///
    /// A change of anything else in an object tells nobody: most changes of pods are of their status.
    pub fn copy<K, T>(
        &mut self,
        name: &'static str,
        optional: bool,
        of: impl Fn(&K) -> T + Send + 'static,
    ) -> Facts<T>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + Sync + 'static,
        T: PartialEq + Send + 'static,
    {
        self.copy_some(name, optional, move |object: &K| Some(of(object)))
    }

    /// Adds a copy as [`Self::copy`], less objects of which `of` makes nothing.
    pub fn copy_some<K, T>(
        &mut self,
        name: &'static str,
        optional: bool,
        of: impl Fn(&K) -> Option<T> + Send + 'static,
    ) -> Facts<T>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + Sync + 'static,
        T: PartialEq + Send + 'static,
    {
        self.copy_of(name, optional, Config::default(), of)
    }

    /// Adds a copy as [`Self::copy_some`] of objects with labels.
    ///
    /// The selector matches them there: the API server sends no others.
    pub fn copy_labelled<K, T>(
        &mut self,
        name: &'static str,
        selector: &str,
        of: impl Fn(&K) -> Option<T> + Send + 'static,
    ) -> Facts<T>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + Sync + 'static,
        T: PartialEq + Send + 'static,
    {
        self.copy_of(name, false, Config::default().labels(selector), of)
    }

    fn copy_of<K, T>(
        &mut self,
        name: &'static str,
        optional: bool,
        config: Config,
        of: impl Fn(&K) -> Option<T> + Send + 'static,
    ) -> Facts<T>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + Sync + 'static,
        T: PartialEq + Send + 'static,
    {
        let events = Arc::new(Notify::new());
        let kind = Kind::new(name, optional, &events);
        let facts = Facts {
            kind: Arc::clone(&kind),
            known: Arc::default(),
        };
        let mut heard = Heard {
            known: Arc::clone(&facts.known),
            read: BTreeMap::new(),
            of,
        };
        let changed = Arc::clone(&self.changed);
        let apply = move |event: &Event<K>| {
            if heard.apply(event) {
                changed.notify_one();
            }
        };
        let api = Api::all(self.client.clone());
        let follow = follow_into(Arc::clone(&kind), api, config, |_| {}, apply);
        let changed = Arc::clone(&self.changed);
        let progress = async move {
            let mut before = kind.progress().clone();
            loop {
                events.notified().await;
                let now = kind.progress().clone();
                if now != before {
                    changed.notify_one();
                    before = now;
                }
            }
        };
        let both = async move {
            // Neither of them ends.
            select(Box::pin(follow), Box::pin(progress)).await;
        };
        self.work.push(both.boxed());
        facts
    }

    /// Returns the tasks that keep the copies up to date, to be polled all the time.
    pub fn work(self) -> Vec<Work> {
        self.work
    }
}

/// Takes over what a watch tells.
struct Heard<T, F> {
    known: Arc<Mutex<BTreeMap<Key, T>>>,
    /// Facts so far of the list that is being read.
    read: BTreeMap<Key, T>,
    of: F,
}

impl<T: PartialEq, F> Heard<T, F> {
    /// Takes an event over; true when the facts are others now.
    fn apply<K>(&mut self, event: &Event<K>) -> bool
    where
        K: Resource<DynamicType = ()>,
        F: Fn(&K) -> Option<T>,
    {
        let key = |object: &K| (object.namespace().unwrap_or_default(), object.name_any());
        match event {
            Event::Init => {
                self.read.clear();
                false
            }
            Event::InitApply(object) => {
                let fact = (self.of)(object);
                self.read.extend(fact.map(|fact| (key(object), fact)));
                false
            }
            Event::InitDone => {
                let mut read = std::mem::take(&mut self.read);
                let mut known = lock(&self.known);
                let differs = *known != read;
                // What is equal is shared with others, and stays the same.
                for (key, fact) in &mut read {
                    if let Some(before) = known.remove(key).filter(|it| it == fact) {
                        *fact = before;
                    }
                }
                *known = read;
                differs
            }
            Event::Apply(object) => {
                let mut known = lock(&self.known);
                match (self.of)(object) {
                    Some(fact) if known.get(&key(object)) == Some(&fact) => false,
                    Some(fact) => {
                        known.insert(key(object), fact);
                        true
                    }
                    None => known.remove(&key(object)).is_some(),
                }
            }
            Event::Delete(object) => lock(&self.known).remove(&key(object)).is_some(),
        }
    }
}

fn lock<T>(known: &Mutex<BTreeMap<Key, T>>) -> MutexGuard<'_, BTreeMap<Key, T>> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Namespace;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    use super::*;

    fn namespace(name: &str, team: &str) -> Namespace {
        let metadata = ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some([("team".to_owned(), team.to_owned())].into()),
            ..ObjectMeta::default()
        };
        Namespace {
            metadata,
            ..Namespace::default()
        }
    }

    /// One without a team has no facts.
    fn team(object: &Namespace) -> Option<String> {
        object
            .labels()
            .get("team")
            .filter(|it| !it.is_empty())
            .cloned()
    }

    #[test]
    fn only_a_change_of_facts_is_told() {
        let known: Arc<Mutex<BTreeMap<Key, String>>> = Arc::default();
        let mut heard = Heard {
            known: Arc::clone(&known),
            read: BTreeMap::new(),
            of: team,
        };
        let teams = || -> Vec<(String, String)> {
            let known = lock(&known);
            let known = known.iter();
            known
                .map(|((_, name), team)| (name.clone(), team.clone()))
                .collect()
        };
        let of = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            let pairs = pairs.iter();
            pairs
                .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
                .collect()
        };
        let list = |names: &[(&str, &str)]| {
            let all = names.iter();
            let mut events = vec![Event::Init];
            events.extend(all.map(|(name, team)| Event::InitApply(namespace(name, team))));
            events.push(Event::InitDone);
            events
        };
        let mut apply = |events: Vec<Event<Namespace>>| -> Vec<bool> {
            events.iter().map(|event| heard.apply(event)).collect()
        };
        let first = list(&[("a", "x"), ("b", "")]);
        assert_eq!(apply(first.clone()), [false, false, false, true]);
        assert_eq!(teams(), of(&[("a", "x")]));
        assert!(!apply(first).contains(&true), "the same, read again");
        assert_eq!(apply(vec![Event::Apply(namespace("a", "x"))]), [false]);
        assert_eq!(apply(vec![Event::Apply(namespace("a", "y"))]), [true]);
        assert_eq!(apply(vec![Event::Apply(namespace("b", "z"))]), [true]);
        assert_eq!(apply(vec![Event::Apply(namespace("a", ""))]), [true]);
        assert_eq!(teams(), of(&[("b", "z")]));
        assert_eq!(apply(vec![Event::Delete(namespace("a", ""))]), [false]);
        // While all is read again, what was known counts.
        assert_eq!(apply(vec![Event::Init]), [false]);
        assert_eq!(teams(), of(&[("b", "z")]));
        assert_eq!(apply(vec![Event::InitDone]), [true]);
        assert!(teams().is_empty());
    }
}
