//! One slice written, and what is noted of it until the copy has it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::PodNetworkEndpointSlice;
use cluster::brief;
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::{Api, ResourceExt as _};
use tokio::time::timeout;

use super::{Slices, Step, Unseen};
use crate::kube::home::MANAGER;

/// How long the API server may take for one answer.
const ANSWER: Duration = Duration::from_secs(3);

impl Slices {
    /// Does it; true when nothing is left to be done before something changes.
    pub(super) async fn carry_out(&self, step: Step) -> bool {
        match step {
            Step::Create(slice) => self.create(slice).await,
            Step::Replace(slice) => self.replace(slice).await,
            Step::Delete(slice) => self.delete(&slice).await,
        }
    }

    async fn create(&self, slice: PodNetworkEndpointSlice) -> bool {
        let name = slice.name_any();
        let sending = self.sending(&name, slice);
        let api = self.api();
        match timeout(ANSWER, api.create(&post(), &sending)).await {
            Ok(Ok(made)) => {
                self.note(&name, None, Some(made));
                true
            }
            Ok(Err(kube::Error::Api(status))) if status.reason == "AlreadyExists" => {
                self.find(&name, &sending).await
            }
            Ok(Err(error)) => self.fail(&name, &brief(&error)),
            Err(_) => self.fail(&name, "no answer from the API server"),
        }
    }

    /// Reads the object that has the name of a slice to be made.
    async fn find(&self, name: &str, wanted: &PodNetworkEndpointSlice) -> bool {
        let api = self.api();
        let found = match timeout(ANSWER, api.get_opt(name)).await {
            Ok(Ok(found)) => found,
            Ok(Err(error)) => return self.fail(name, &brief(&error)),
            Err(_) => return self.fail(name, "no answer from the API server"),
        };
        match found {
            Some(found)
                if (&found.spec.network, &found.spec.node)
                    == (&wanted.spec.network, &wanted.spec.node) =>
            {
                // An earlier attempt, whose answer did not arrive.
                self.note(name, None, Some(found));
            }
            Some(other) => {
                let node = other.spec.node;
                tracing::warn!(
                    slice = name,
                    node,
                    "the name of a slice belongs to another node, and another number is used"
                );
                let number = wanted.number().map(|it| (wanted.spec.network.clone(), it));
                self.state().others.extend(number);
            }
            None => {}
        }
        self.state().sending.remove(name);
        false
    }

    async fn replace(&self, slice: PodNetworkEndpointSlice) -> bool {
        let (name, version) = (slice.name_any(), slice.resource_version());
        let sending = self.sending(&name, slice);
        let api = self.api();
        match timeout(ANSWER, api.replace(&name, &post(), &sending)).await {
            Ok(Ok(now)) => {
                self.note(&name, version, Some(now));
                self.tell_withdrawn();
                true
            }
            // It is not as it was thought to be: the copy will say how it is.
            Ok(Err(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => {
                let mut state = self.state();
                state.unseen.remove(&name);
                state.sending.remove(&name);
                false
            }
            Ok(Err(error)) => self.fail(&name, &brief(&error)),
            Err(_) => self.fail(&name, "no answer from the API server"),
        }
    }

    async fn delete(&self, slice: &PodNetworkEndpointSlice) -> bool {
        let (name, version) = (slice.name_any(), slice.resource_version());
        let params = DeleteParams::default().preconditions(Preconditions {
            uid: slice.uid(),
            resource_version: version.clone(),
        });
        match timeout(ANSWER, self.api().delete(&name, &params)).await {
            // Somebody keeps it for now, so it may be read.
            Ok(Ok(answer)) if answer.is_left() => true,
            Ok(Ok(_)) => {
                self.note(&name, version, None);
                self.tell_withdrawn();
                true
            }
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => {
                self.note(&name, version, None);
                self.tell_withdrawn();
                true
            }
            Ok(Err(kube::Error::Api(status))) if status.code == 409 => {
                self.state().unseen.remove(&name);
                false
            }
            Ok(Err(error)) => self.fail(&name, &brief(&error)),
            Err(_) => self.fail(&name, "no answer from the API server"),
        }
    }

    fn api(&self) -> Api<PodNetworkEndpointSlice> {
        Api::all(self.client.clone())
    }

    /// Notes that a slice is on its way: from now on it may be read.
    fn sending(&self, name: &str, slice: PodNetworkEndpointSlice) -> Arc<PodNetworkEndpointSlice> {
        let slice = Arc::new(slice);
        let mut state = self.state();
        let sent = (Arc::clone(&slice), Instant::now());
        state.sending.insert(name.to_owned(), sent);
        slice
    }

    /// The API server has written a slice in place of this version.
    fn note(&self, name: &str, before: Option<String>, now: Option<PodNetworkEndpointSlice>) {
        let mut state = self.state();
        state.sending.remove(name);
        let known = state.unseen.remove(name);
        let mut replaced: BTreeSet<Option<String>> =
            known.map(|unseen| unseen.replaced).unwrap_or_default();
        replaced.insert(before);
        let unseen = Unseen {
            object: now.map(Arc::new),
            replaced,
            at: Instant::now(),
        };
        state.unseen.insert(name.to_owned(), unseen);
    }

    pub(super) fn tell_withdrawn(&self) {
        self.withdrawn.send_modify(|withdrawn| *withdrawn += 1);
    }

    /// Notes that a slice was not written, or is not known to be.
    ///
    /// Other nodes may read the slice until the API server says whether it is there.
    fn fail(&self, name: &str, why: &str) -> bool {
        let mut state = self.state();
        if state.failing.as_deref() != Some(why) {
            tracing::warn!(
                slice = name,
                error = why,
                "the members of this node are not published, trying again"
            );
            state.failing = Some(why.to_owned());
        }
        false
    }
}

fn post() -> PostParams {
    PostParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PostParams::default()
    }
}
