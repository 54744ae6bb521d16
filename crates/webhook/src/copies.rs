//! Copies of what pods name, to answer by when the API server does not in time.
//!
//! The API server is asked first, so that a pod may come right behind its network. It gets part of the
//! time of a review. Once it was too slow, reviews go by the copies at once, for some seconds.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use api::nad::CONFIG_MAX;
use api::{
    AttachmentParameters, NetworkAttachmentDefinition, PodNetwork, PodNetworkAttachment,
    PodNetworkParameters,
};
use cluster::Work;
use cluster::copied::{self, Copier, Guarded};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::DeserializeGuard;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher::Config;
use kube::{Client, Resource};
use prometheus::IntCounter;
use tokio::sync::Notify;

use super::lookup::{AskError, Asked, Read};

/// Time that the API server has for a review while there are copies.
const LIVE: Duration = Duration::from_secs(1);
/// Time for which a server that was too slow is not waited for.
const SLOW: Duration = Duration::from_secs(10);

/// Copies of all objects of the kinds that pods name.
#[derive(Debug)]
pub(super) struct Copies {
    pub(super) definitions: Guarded<NetworkAttachmentDefinition>,
    pub(super) attachments: Guarded<PodNetworkAttachment>,
    pub(super) networks: Guarded<PodNetwork>,
    pub(super) network_parameters: Guarded<PodNetworkParameters>,
    pub(super) attachment_parameters: Guarded<AttachmentParameters>,
    /// Until when the server is not waited for.
    slow: Mutex<Option<Instant>>,
    /// Answers that copies gave.
    answers: IntCounter,
}

impl Copies {
    /// The copies, and the work that fills them; `answers` counts what they answer.
    pub(super) fn new(client: &Client, answers: IntCounter) -> (Arc<Self>, Vec<Work>) {
        // Reviews look when they come; no change is waited for.
        let mut copier = Copier::new(client, &Arc::new(Notify::new()));
        let this = Self {
            definitions: copier.copy(
                "network-attachment-definitions",
                true,
                Config::default(),
                trim_definition,
            ),
            attachments: copier.needed("podnetworkattachments"),
            networks: copier.needed("podnetworks"),
            network_parameters: copier.needed("podnetworkparameters"),
            attachment_parameters: copier.needed("attachmentparameters"),
            slow: Mutex::new(None),
            answers,
        };
        (Arc::new(this), copier.work())
    }

    /// Why there is nothing to answer by, if so: a kind was never read.
    pub(super) fn unread(&self) -> Option<String> {
        let kinds = [
            &self.definitions.kind,
            &self.attachments.kind,
            &self.networks.kind,
            &self.network_parameters.kind,
            &self.attachment_parameters.kind,
        ];
        let unread = copied::unread(kinds);
        (!unread.is_empty()).then(|| unread.join("; "))
    }

    /// End of the wait for the API server of a review that begins now.
    ///
    /// Without complete copies there is none but that of the review.
    pub(super) fn live_until(&self) -> Option<Instant> {
        if self.unread().is_some() {
            return None;
        }
        let now = Instant::now();
        let slow = self.slow.lock().unwrap_or_else(PoisonError::into_inner);
        let is_slow = slow.is_some_and(|until| now < until);
        Some(if is_slow { now } else { now + LIVE })
    }

    /// The answer of the API server, or that of a copy when it has not come by `until`.
    ///
    /// # Errors
    /// When there are no copies to answer by, or too much was asked.
    pub(super) async fn answer<T>(
        &self,
        until: Option<Instant>,
        live: impl Future<Output = Asked<T>>,
        copy: impl FnOnce() -> T,
    ) -> Asked<T> {
        let Some(until) = until else {
            return live.await;
        };
        if until <= Instant::now() {
            self.answers.inc();
            return Ok(copy());
        }
        let why = match tokio::time::timeout_at(until.into(), live).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(AskError::Api(error))) => cluster::brief(&error),
            Ok(Err(error)) => return Err(error),
            Err(_) => "no answer in time".to_owned(),
        };
        self.note_slow(&why);
        self.answers.inc();
        Ok(copy())
    }

    fn note_slow(&self, why: &str) {
        let now = Instant::now();
        let mut slow = self.slow.lock().unwrap_or_else(PoisonError::into_inner);
        if slow.is_some_and(|until| now < until) {
            return;
        }
        *slow = Some(now + SLOW);
        tracing::warn!(
            error = why,
            "the API server does not say what a pod's networks are; reviews go by copies for {} s",
            SLOW.as_secs()
        );
    }
}

/// Finds an object in a copy.
pub(super) fn find<K>(copy: &Guarded<K>, namespace: &str, name: &str) -> Read<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + 'static,
{
    match copy.store.get(&reference(namespace, name)) {
        None => Ok(None),
        Some(found) => match &found.0 {
            Ok(object) => Ok(Some(Arc::new(object.clone()))),
            Err(invalid) => Err(format!("cannot be read: {invalid}")),
        },
    }
}

/// Finds the metadata of an object in a copy, also of one that cannot be read.
pub(super) fn metadata<K>(copy: &Guarded<K>, name: &str) -> Option<Arc<ObjectMeta>>
where
    K: Resource<DynamicType = ()> + Clone + Debug + 'static,
{
    let found = copy.store.get(&reference("", name))?;
    Some(Arc::new(found.meta().clone()))
}

fn reference<K>(namespace: &str, name: &str) -> ObjectRef<DeserializeGuard<K>>
where
    K: Resource<DynamicType = ()>,
{
    let reference = ObjectRef::new(name);
    match namespace {
        "" => reference,
        namespace => reference.within(namespace),
    }
}

/// Cuts a configuration that is too long.
///
/// Any user who may write definitions has them in the memory of every webhook.
fn trim_definition(object: &mut DeserializeGuard<NetworkAttachmentDefinition>) {
    copied::trim(object);
    if let Ok(definition) = &mut object.0 {
        let config = &mut definition.spec.config;
        // A character at the cut stays whole, and what is cut stays too long.
        config.truncate(config.ceil_char_boundary(CONFIG_MAX + 1));
        config.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use kube::Config;

    use super::*;

    /// Copies that nothing fills.
    fn copies() -> Arc<Copies> {
        // No connection is made before there is a question.
        let url = "http://127.0.0.1:1".parse().unwrap();
        let client = Client::try_from(Config::new(url)).unwrap();
        let answers = IntCounter::new("answers", "answers").unwrap();
        Copies::new(&client, answers).0
    }

    fn refused() -> AskError {
        let status = kube::core::Status {
            code: 503,
            message: "etcd is busy".to_owned(),
            ..kube::core::Status::default()
        };
        AskError::Api(kube::Error::Api(status.boxed()))
    }

    fn too_many() -> AskError {
        AskError::TooMany { limit: 16 }
    }

    fn soon() -> Option<Instant> {
        Some(Instant::now() + Duration::from_secs(60))
    }

    #[tokio::test]
    async fn the_api_server_is_believed_when_it_answers() {
        let copies = copies();
        let answer = copies.answer(soon(), ready(Ok(1)), || 2).await.unwrap();
        assert_eq!((answer, copies.answers.get()), (1, 0));
    }

    #[tokio::test]
    async fn a_copy_answers_where_the_api_server_does_not() {
        let copies = copies();
        let past = Some(Instant::now());
        let answer = copies.answer(past, pending(), || 2).await.unwrap();
        assert_eq!(answer, 2);
        let answer = copies.answer(soon(), ready(Err(refused())), || 3).await;
        assert_eq!((answer.unwrap(), copies.answers.get()), (3, 2));
        // What was asked too much stays too much.
        let error = copies.answer(soon(), ready(Err(too_many())), || 4).await;
        assert!(matches!(error, Err(AskError::TooMany { limit: 16 })));
    }

    /// Before the copies were read, the API server alone can say something.
    #[tokio::test]
    async fn copies_that_were_not_read_answer_nothing() {
        let copies = copies();
        let why = copies.unread().unwrap();
        assert!(why.contains("podnetworks are not read yet"), "{why}");
        assert_eq!(copies.live_until(), None);
        let answer = copies.answer(None, ready(Err::<u8, _>(refused())), || 2);
        assert!(matches!(answer.await, Err(AskError::Api(_))));
        assert_eq!(copies.answers.get(), 0);
    }
}
