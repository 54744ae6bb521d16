//! Finds the pod that a request is for.
//!
//! A copy has the needed fields of this node's pods, and one question to the API server serves when that
//! does not help.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ::addresses::LookupError;
use cluster::watch::{Kind, follow};
use cluster::{Work, brief};
use futures_util::FutureExt as _;
use k8s_openapi::api::core::v1::Pod as ApiPod;
use k8s_openapi::jiff::Timestamp;
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher;
use kube::{Api, Client};
use tokio::sync::{Notify, watch};
// The object that the API server has for a static pod; its UID is not the pod's own (NPWG-X6).
use cluster::access::MIRROR;

/// Annotations that somebody here reads begin like this.
const PREFIXES: [&str; 4] = [
    "k8s.v1.cni.cncf.io/",
    "v1.multus-cni.io/",
    "podnet.dev/",
    "kubernetes.io/",
];

/// How long the API server may take to answer; the runtime waits for it.
const PATIENCE: Duration = Duration::from_secs(5);

type Meta = PartialObjectMeta<ApiPod>;

/// A pod as the API server has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pod {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID of the object.
    pub uid: String,
    /// Its annotations, as far as networking reads them.
    pub annotations: BTreeMap<String, String>,
}

impl Pod {
    fn of(object: &Meta) -> Self {
        let meta = &object.metadata;
        let mut annotations = meta.annotations.clone().unwrap_or_default();
        annotations.retain(|key, _| is_read(key));
        Self {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            annotations,
        }
    }

    /// True when a request for this UID can only mean this pod.
    ///
    /// Without a UID in the request the name decides.
    pub(super) fn is(&self, uid: Option<&str>) -> bool {
        uid.is_none_or(|uid| uid == self.uid || self.is_mirror_of(uid))
    }

    /// True when a request for this UID means this mirror's static pod (NPWG-X6).
    ///
    /// The kubelet runs a static pod by a UID that it computes from the file, and writes that UID
    /// into the mirror's annotation. Any user can create an object with such an annotation, so it
    /// counts only for a UID that no pod of the API server can have: a user who knows the UID of a
    /// pod could otherwise put a mirror of it in its place.
    pub(super) fn is_mirror_of(&self, uid: &str) -> bool {
        let hash = self.annotations.get(MIRROR);
        hash.is_some_and(|hash| hash == uid) && !is_from_api(uid)
    }
}

/// True for a UID in the API server's form: RFC 9562, section 4.
fn is_from_api(uid: &str) -> bool {
    let groups: Vec<&str> = uid.split('-').collect();
    let lengths = groups.iter().map(|group| group.len());
    lengths.eq([8, 4, 4, 4, 12])
        && groups
            .iter()
            .all(|group| group.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// The pods of this node.
#[derive(Clone)]
pub(super) struct Pods {
    store: Store<Meta>,
    api: Client,
    /// Counts the changes of a pod, and the readings of all.
    changes: watch::Receiver<u64>,
}

impl Pods {
    /// The copy, and the work that fills it.
    pub(super) fn new(client: &Client, node: &str) -> (Self, Work) {
        let writer = Writer::<Meta>::default();
        let store = writer.as_reader();
        let (count, changes) = watch::channel(0);
        let notify = Arc::new(Notify::new());
        let kind = Kind::new("pods of this node", false, &notify);
        let api: Api<Meta> = Api::all(client.clone());
        let work = follow(
            kind,
            writer,
            api,
            watcher::Config::default().fields(&format!("spec.nodeName={node}")),
            trim,
        );
        let counting = async move {
            loop {
                notify.notified().await;
                count.send_modify(|count| *count += 1);
            }
        };
        let both = async move {
            futures_util::future::select(Box::pin(work), Box::pin(counting)).await;
        };
        let this = Self {
            store,
            api: client.clone(),
            changes,
        };
        (this, both.boxed())
    }

    /// Waits until the pods of this node were read once.
    pub(super) async fn read(&self) {
        // The writer lives as long as the cluster is followed.
        let _ = self.store.wait_until_ready().await;
    }

    /// Tells of changes of pods.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.clone()
    }

    /// The pod in the copy.
    pub(super) fn cached(&self, namespace: &str, name: &str) -> Option<Pod> {
        let key = ObjectRef::new(name).within(namespace);
        self.store.get(&key).map(|object| Pod::of(&object))
    }

    /// The pods in the copy that were made within this time, and are not being deleted.
    pub(super) fn younger(&self, than: Duration) -> Vec<Pod> {
        let since = Timestamp::now()
            .checked_sub(than)
            .unwrap_or(Timestamp::UNIX_EPOCH);
        let pods = self.store.state();
        let younger = pods.iter().filter(|object| {
            let meta = &object.metadata;
            let made = meta.creation_timestamp.as_ref();
            meta.deletion_timestamp.is_none() && made.is_some_and(|made| made.0 > since)
        });
        younger.map(|object| Pod::of(object)).collect()
    }

    /// UIDs of the pods in the copy.
    pub(super) fn uids(&self) -> BTreeSet<String> {
        let pods = self.store.state().into_iter();
        pods.filter_map(|object| object.metadata.uid.clone())
            .collect()
    }

    /// See [`super::Cluster::pod`].
    pub(super) async fn find(
        &self,
        namespace: &str,
        name: &str,
        uid: Option<&str>,
    ) -> Result<Pod, LookupError> {
        if let Some(pod) = self.cached(namespace, name)
            && pod.is(uid)
        {
            return Ok(pod);
        }
        let pod = self.ask(namespace, name).await?;
        if pod.is(uid) {
            return Ok(pod);
        }
        Err(LookupError::Another {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            asked: uid.unwrap_or_default().to_owned(),
            found: pod.uid,
        })
    }

    async fn ask(&self, namespace: &str, name: &str) -> Result<Pod, LookupError> {
        let api: Api<Meta> = Api::namespaced(self.api.clone(), namespace);
        let unknown = |why| LookupError::Unknown {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            why,
        };
        match tokio::time::timeout(PATIENCE, api.get_opt(name)).await {
            Ok(Ok(Some(object))) => Ok(Pod::of(&object)),
            Ok(Ok(None)) => Err(LookupError::NotFound {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            }),
            Ok(Err(error)) => Err(unknown(brief(&error))),
            Err(_) => Err(unknown(format!(
                "no answer from the API server in {} s",
                PATIENCE.as_secs()
            ))),
        }
    }
}

impl std::fmt::Debug for Pods {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Pods")
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}

fn is_read(annotation: &str) -> bool {
    PREFIXES.iter().any(|prefix| annotation.starts_with(prefix))
}

/// Drops the fields of a pod that are not read here.
///
/// A node has hundreds of pods, with kilobytes of metadata each.
fn trim(object: &mut Meta) {
    let meta = &mut object.metadata;
    meta.managed_fields = None;
    meta.owner_references = None;
    meta.finalizers = None;
    meta.labels = None;
    if let Some(annotations) = &mut meta.annotations {
        annotations.retain(|key, _| is_read(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(annotations: &[(&str, &str)]) -> Pod {
        let annotations = annotations.iter();
        Pod {
            uid: "uid-1".to_owned(),
            annotations: annotations
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect(),
            ..Pod::default()
        }
    }

    /// NPWG-X6
    #[test]
    fn a_pod_is_the_one_with_the_uid_or_any_without_one() {
        assert!(pod(&[]).is(Some("uid-1")));
        assert!(pod(&[]).is(None));
        assert!(!pod(&[]).is(Some("uid-2")));
        proof::of!("NPWG-X6");
    }

    /// NPWG-X6: the UID that the kubelet gives a static pod is not that of its mirror.
    #[test]
    fn a_static_pod_has_the_uid_that_its_mirror_names() {
        let hash = "0d6b1f3f5c7f4f8a9b1c2d3e4f5a6b7c";
        let mirror = pod(&[("kubernetes.io/config.source", "file"), (MIRROR, hash)]);
        assert!(mirror.is(Some(hash)));
        assert!(mirror.is_mirror_of(hash));
        assert!(!mirror.is(Some("1d6b1f3f5c7f4f8a9b1c2d3e4f5a6b7c")));
        assert!(!mirror.is_mirror_of("uid-1"));
        proof::of!("NPWG-X6");
    }

    /// ATT-15c: annotations are written by users.
    #[test]
    fn annotations_of_a_user_do_not_switch_off_the_check_of_the_uid() {
        let other = "4f9a6f5e-1b2c-4000-8000-0123456789ab";
        for source in ["file", "http", "api"] {
            let claims = pod(&[("kubernetes.io/config.source", source)]);
            assert!(!claims.is(Some(other)), "{source}");
            assert!(claims.is(Some("uid-1")), "{source}");
        }
        // The UID of a pod that was deleted is known to its user, who can put this in its place.
        let claims = pod(&[(MIRROR, other)]);
        assert!(!claims.is(Some(other)));
        assert!(!claims.is_mirror_of(other));
        proof::of!("ATT-15c");
    }

    #[test]
    fn of_a_pod_only_what_networking_reads_is_kept() {
        let mut object: Meta = serde_json::from_value(serde_json::json!({
            "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
            "metadata": {
                "name": "a", "namespace": "b", "uid": "c",
                "labels": {"app": "web"},
                "annotations": {
                    "k8s.v1.cni.cncf.io/networks": "blue",
                    "podnet.dev/networks": "[]",
                    "kubernetes.io/config.source": "api",
                    "example.com/notes": "long",
                },
                "managedFields": [{"manager": "kubelet"}],
                "ownerReferences": [
                    {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u"},
                ],
            },
        }))
        .unwrap();
        trim(&mut object);
        let kept = serde_json::to_value(&object.metadata).unwrap();
        let keys: Vec<&str> = kept
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        assert_eq!(keys, ["annotations", "name", "namespace", "uid"]);
        let names: Vec<_> = Pod::of(&object).annotations.into_keys().collect();
        assert_eq!(
            names,
            [
                "k8s.v1.cni.cncf.io/networks",
                "kubernetes.io/config.source",
                "podnet.dev/networks"
            ]
        );
    }
}
