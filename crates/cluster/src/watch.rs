//! A copy of all objects of a kind, as new as the API server lets it be.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::reflector::store::Writer;
use kube::runtime::utils::Backoff as _;
use kube::runtime::wait::{await_condition, conditions};
use kube::runtime::watcher::{Config, DefaultBackoff, Error, Event, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use telemetry::chain;
use tokio::sync::Notify;

use crate::brief;

/// Time after which a kind is asked for though no definition has come.
///
/// One that is built in has none.
const ABSENT: Duration = Duration::from_secs(300);

/// How far the copy of a kind is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// Never read yet; why not, once that is known.
    Unread(Option<String>),
    /// Read, and followed since.
    Read,
    /// The API server does not know the kind.
    Absent,
}

/// One kind that is followed.
#[derive(Debug)]
pub struct Kind {
    /// As in `kubectl get`.
    pub name: &'static str,
    /// A cluster may do without it.
    pub optional: bool,
    /// Objects that were read stay where the kind is not defined for a moment.
    kept: bool,
    progress: Mutex<Progress>,
    /// Told of each change of the copy or of the progress.
    changed: Arc<Notify>,
}

impl Kind {
    /// A kind of which nothing is read yet; `changed` is told of each change.
    pub fn new(name: &'static str, optional: bool, changed: &Arc<Notify>) -> Arc<Self> {
        Arc::new(Self {
            name,
            optional,
            kept: !optional,
            progress: Mutex::new(Progress::Unread(None)),
            changed: Arc::clone(changed),
        })
    }

    /// A kind that a cluster may do without, until it has been there.
    pub fn new_kept(name: &'static str, changed: &Arc<Notify>) -> Arc<Self> {
        Arc::new(Self {
            name,
            optional: true,
            kept: true,
            progress: Mutex::new(Progress::Unread(None)),
            changed: Arc::clone(changed),
        })
    }

    /// How far the copy is; the lock is not held across an await.
    pub fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why nothing can be said about objects of this kind, if so.
    pub fn unread(&self) -> Option<String> {
        match &*self.progress() {
            Progress::Read => None,
            Progress::Absent if self.optional => None,
            Progress::Absent => Some(format!(
                "{} are not defined in the cluster: apply podnet's CustomResourceDefinitions",
                self.name
            )),
            Progress::Unread(None) => Some(format!("{} are not read yet", self.name)),
            Progress::Unread(Some(why)) => Some(format!("{}: {why}", self.name)),
        }
    }

    fn set(&self, progress: Progress) {
        *self.progress() = progress;
        self.changed.notify_one();
    }

    /// The API server refused or broke off: the copy stays, and is as good as before.
    fn note(&self, error: &Error) {
        let why = why(error);
        let mut progress = self.progress();
        if matches!(&*progress, Progress::Unread(known) if known.as_ref() != Some(&why)) {
            tracing::warn!(
                kind = self.name,
                error = why,
                "objects of this kind cannot be read, trying again"
            );
            *progress = Progress::Unread(Some(why));
            self.changed.notify_one();
        } else {
            tracing::debug!(
                kind = self.name,
                error = why,
                "the watch of this kind was interrupted, trying again"
            );
        }
    }
}

/// Keeps a copy of the objects of `api` that `selection` selects, for ever.
///
/// `trim` removes the fields that are not read here.
pub async fn follow<K>(
    kind: Arc<Kind>,
    mut copy: Writer<K>,
    api: Api<K>,
    selection: Config,
    trim: fn(&mut K),
) where
    K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + Sync + 'static,
{
    let apply = move |event: &Event<K>| copy.apply_watcher_event(event);
    follow_into(kind, api, selection, trim, apply).await;
}

/// Passes events of the objects of `api` that `selection` selects to `apply`.
///
/// [`follow`] keeps a copy of them in the same way.
pub async fn follow_into<K>(
    kind: Arc<Kind>,
    api: Api<K>,
    selection: Config,
    trim: fn(&mut K),
    mut apply: impl FnMut(&Event<K>),
) where
    K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + Sync + 'static,
{
    // One request instead of pages of lists, and no more of them in memory at once than one.
    let mut streaming = true;
    let mut pauses = DefaultBackoff::default();
    loop {
        let config = if streaming {
            selection.clone().streaming_lists()
        } else {
            selection.clone()
        };
        let mut events = watcher(api.clone(), config).default_backoff().boxed();
        while let Some(event) = events.next().await {
            match event {
                Ok(mut event) => {
                    if let Event::Apply(object) | Event::InitApply(object) = &mut event {
                        trim(object);
                    }
                    apply(&event);
                    match &event {
                        Event::InitDone => {
                            pauses.reset();
                            kind.set(Progress::Read);
                        }
                        Event::Apply(_) | Event::Delete(_) => kind.changed.notify_one(),
                        Event::Init | Event::InitApply(_) => {}
                    }
                }
                Err(error) if streaming && refuses_streaming(&error) => {
                    streaming = false;
                    break;
                }
                Err(error) if is_absent(&error) => {
                    absent(&kind, &mut apply);
                    if wait_defined(&api).await {
                        // The definition was there, but the kind was not served yet; or the account may not look.
                        tokio::time::sleep(pauses.next().unwrap_or_default()).await;
                    }
                    break;
                }
                Err(error) => kind.note(&error),
            }
        }
    }
}

/// Handles a kind that is not defined, or not any more.
///
/// Objects of a kind that podnet cannot do without are kept, and those that keep networks apart: somebody is replacing
/// definitions, and pods that start now should not suffer. The server deletes objects before their definition.
fn absent<K>(kind: &Kind, apply: &mut impl FnMut(&Event<K>)) {
    let known = kind.progress().clone();
    match known {
        Progress::Absent => {}
        Progress::Read if kind.kept => {
            tracing::error!(
                kind = kind.name,
                "the cluster does not define this kind any more; the objects read before are used"
            );
        }
        Progress::Read | Progress::Unread(_) => {
            tracing::info!(kind = kind.name, "the cluster does not define this kind");
            apply(&Event::Init);
            apply(&Event::InitDone);
            kind.set(Progress::Absent);
        }
    }
}

/// Waits until a kind is defined; false after [`ABSENT`] without a definition.
///
/// True also when definitions cannot be looked at.
async fn wait_defined<K: Resource<DynamicType = ()> + Clone>(api: &Api<K>) -> bool {
    let definitions: Api<CustomResourceDefinition> = Api::all(api.clone().into_client());
    let name = format!("{}.{}", K::plural(&()), K::group(&()));
    let defined = await_condition(definitions, &name, conditions::is_crd_established());
    tokio::time::timeout(ABSENT, defined).await.is_ok()
}

fn api_code(error: &Error) -> Option<u16> {
    match error {
        Error::InitialListFailed(kube::Error::Api(status))
        | Error::WatchStartFailed(kube::Error::Api(status)) => Some(status.code),
        Error::WatchError(status) => Some(status.code),
        _ => None,
    }
}

fn is_absent(error: &Error) -> bool {
    api_code(error) == Some(404)
}

/// A server without the feature `WatchList` finds the parameter invalid.
fn refuses_streaming(error: &Error) -> bool {
    matches!(error, Error::WatchStartFailed(_)) && matches!(api_code(error), Some(400 | 422))
}

fn why(error: &Error) -> String {
    match error {
        Error::InitialListFailed(source)
        | Error::WatchStartFailed(source)
        | Error::WatchFailed(source) => brief(source),
        Error::WatchError(status) => format!("{} ({})", status.message, status.code),
        Error::NoResourceVersion => chain(error),
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use api::IpamClaim;
    use http::{Request, Response};
    use kube::Client;
    use kube::client::Body;
    use serde_json::{Value, json};
    use tower::service_fn;

    use super::*;

    const CLAIMS: &str = "/apis/k8s.cni.cncf.io/v1alpha1/ipamclaims";
    const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

    fn answer(code: u16, lines: &[Value]) -> Response<Body> {
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let answer = Response::builder().status(code);
        answer
            .body(Body::from(text.into_bytes()))
            .expect("an answer")
    }

    fn definition() -> Value {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "ipamclaims.k8s.cni.cncf.io", "resourceVersion": "6"},
            "spec": {
                "group": "k8s.cni.cncf.io", "scope": "Namespaced", "versions": [],
                "names": {"kind": "IPAMClaim", "plural": "ipamclaims"},
            },
            "status": {"conditions": [{"type": "Established", "status": "True"}]},
        })
    }

    /// A server that defines the kind when its definition is watched.
    ///
    /// It does not when that is listed. It keeps paths and queries that it was asked for. With `hidden` definitions are
    /// forbidden, and the kind is there when it is asked for a third time.
    fn server(asked: &Arc<Mutex<Vec<String>>>, hidden: bool) -> Client {
        let asked = Arc::clone(asked);
        let serve = move |request: Request<Body>| {
            let uri = request.uri().clone();
            let query = uri.query().unwrap_or_default();
            let is_list = !query.contains("watch=true");
            let mut all = asked.lock().expect("the paths");
            let claims = all.iter().filter(|path| path.starts_with(CLAIMS)).count();
            all.push(uri.to_string());
            let status = |code: u16, reason: &str| {
                let status = json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": ""});
                answer(code, &[status])
            };
            let end = json!({"k8s.io/initial-events-end": "true"});
            let metadata = json!({"resourceVersion": "6", "annotations": end});
            let bookmark = json!({"type": "BOOKMARK", "object": {
                "apiVersion": "k8s.cni.cncf.io/v1alpha1", "kind": "IPAMClaim", "metadata": metadata,
            }});
            let is_known = claims >= if hidden { 2 } else { 1 };
            let found = match uri.path() {
                CLAIMS if is_known => answer(200, &[bookmark]),
                CLAIMS => status(404, "NotFound"),
                _ if hidden => status(403, "Forbidden"),
                _ if is_list => answer(
                    200,
                    &[json!({"metadata": {"resourceVersion": "5"}, "items": []})],
                ),
                _ => answer(200, &[json!({"type": "ADDED", "object": definition()})]),
            };
            async { Ok::<_, Infallible>(found) }
        };
        Client::new(service_fn(serve), "default")
    }

    /// Follows a kind until it is read; returns the requests, and the time.
    ///
    /// The clock goes by waiting.
    async fn read(hidden: bool) -> (Vec<String>, Duration) {
        let (asked, changed) = (Arc::default(), Arc::new(Notify::new()));
        let kind = Kind::new("ipamclaims", true, &changed);
        let api: Api<IpamClaim> = Api::all(server(&asked, hidden));
        let begun = tokio::time::Instant::now();
        let follow = follow_into(Arc::clone(&kind), api, Config::default(), |_| {}, |_| {});
        let read = async {
            while *kind.progress() != Progress::Read {
                changed.notified().await;
            }
        };
        tokio::select! {
            () = follow => {}
            () = read => {}
        }
        let asked = asked.lock().expect("the paths").clone();
        (asked, begun.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn a_kind_that_is_not_there_is_read_as_soon_as_it_is_defined() {
        let (asked, took) = read(false).await;
        let paths: Vec<&str> = asked
            .iter()
            .filter_map(|uri| uri.split('?').next())
            .collect();
        // The watch may go on while nobody looks.
        assert_eq!(paths[..4], [CLAIMS, DEFINITIONS, DEFINITIONS, CLAIMS]);
        for uri in &asked[1..3] {
            assert!(
                uri.contains("metadata.name%3Dipamclaims.k8s.cni.cncf.io"),
                "{uri}"
            );
        }
        assert!(took < Duration::from_secs(5), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_kind_is_asked_for_ever_more_seldom_where_definitions_may_not_be_seen() {
        let (asked, took) = read(true).await;
        let claims = asked.iter().filter(|uri| uri.starts_with(CLAIMS));
        assert!(claims.count() >= 3, "{asked:?}");
        assert!(took > Duration::from_millis(800), "{took:?}");
        assert!(took < Duration::from_secs(10), "{took:?}");
    }
}
