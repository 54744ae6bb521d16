//! Ask the API server, or copies, for the objects of one review.
//!
//! Each is asked for once, within limits.
//!
//! The author of a pod decides how many objects it names, and how many of those lead to the same.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use api::{
    AttachmentParameters, NetworkAttachmentDefinition, PodNetwork, PodNetworkAttachment,
    PodNetworkParameters,
};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::api::{Api, PostParams};
use prometheus::IntCounter;
use tokio::sync::{OnceCell, Semaphore, SemaphorePermit};

use super::copies::{self, Copies};

/// Questions of one review that are open at a time.
const AT_ONCE: usize = 8;
/// Open questions of all reviews together; each has a connection or a stream.
pub(super) const OPEN_MAX: usize = 32;
/// Most questions for each attachment that a pod may have.
///
/// They are about a definition, an attachment, a network, some parameters, and the right to use it.
const QUESTIONS_EACH: usize = 16;

/// A question that was not answered.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// The API server.
    #[error(transparent)]
    Api(#[from] kube::Error),
    /// Too many objects lead to one another.
    #[error(
        "the pod's networks lead to more than {limit} objects; list fewer networks, or networks with \
         fewer parameters"
    )]
    TooMany {
        /// How many may be asked about.
        limit: usize,
    },
}

/// The result of a question.
pub type Asked<T> = Result<T, AskError>;

/// An object that is there or not, or why it cannot be understood.
pub type Read<K> = Result<Option<Arc<K>>, String>;

/// Namespace, empty for what has none, and name.
type Key = (String, String);

/// Answers by what was asked about.
#[derive(Debug)]
struct Answers<T>(Mutex<BTreeMap<Key, Arc<OnceCell<T>>>>);

impl<T> Default for Answers<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Answers<T> {
    fn of(&self, namespace: &str, name: &str) -> Arc<OnceCell<T>> {
        let mut answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (namespace.to_owned(), name.to_owned());
        Arc::clone(answers.entry(key).or_default())
    }
}

/// The questions of one review.
pub struct Lookup {
    client: Client,
    copies: Arc<Copies>,
    /// End of the wait for the API server, where copies answer otherwise.
    live_until: Option<Instant>,
    /// Places for questions of the whole process.
    open: Arc<Semaphore>,
    limit: usize,
    asked: AtomicUsize,
    questions: IntCounter,
    definitions: Answers<Read<NetworkAttachmentDefinition>>,
    attachments: Answers<Read<PodNetworkAttachment>>,
    networks: Answers<Read<PodNetwork>>,
    network_metadata: Answers<Option<Arc<ObjectMeta>>>,
    network_parameters: Answers<Read<PodNetworkParameters>>,
    attachment_parameters: Answers<Read<AttachmentParameters>>,
}

impl std::fmt::Debug for Lookup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lookup")
            .field("asked", &self.asked)
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

macro_rules! reads {
    ($($(#[$doc:meta])* $name:ident: $kind:ty, $api:expr;)*) => {
        $($(#[$doc])*
        ///
        /// # Errors
        /// When the API server does not answer, or too much was asked.
        pub async fn $name(&self, namespace: &str, name: &str) -> Asked<Read<$kind>> {
            let cell = self.$name.of(namespace, name);
            let live = async || {
                let _place = self.place().await;
                let make: fn(Client, &str) -> Api<$kind> = $api;
                let found = make(self.client.clone(), namespace).get_opt(name).await;
                Ok::<_, AskError>(readable(found)?.map(|found| found.map(Arc::new)))
            };
            let read = async || {
                self.count()?;
                let copy = || copies::find(&self.copies.$name, namespace, name);
                self.copies.answer(self.live_until, live(), copy).await
            };
            cell.get_or_try_init(read).await.cloned()
        })*
    };
}

impl Lookup {
    /// Makes the look-up of one review, of a pod with at most `max_attachments`.
    ///
    /// `open` has the places of the process, `questions` counts the questions.
    pub(super) fn new(
        client: Client,
        copies: Arc<Copies>,
        open: Arc<Semaphore>,
        questions: IntCounter,
        max_attachments: usize,
    ) -> Self {
        Self {
            client,
            live_until: copies.live_until(),
            copies,
            open,
            questions,
            limit: max_attachments.saturating_mul(QUESTIONS_EACH),
            asked: AtomicUsize::new(0),
            definitions: Answers::default(),
            attachments: Answers::default(),
            networks: Answers::default(),
            network_metadata: Answers::default(),
            network_parameters: Answers::default(),
            attachment_parameters: Answers::default(),
        }
    }

    reads! {
        /// A definition.
        definitions: NetworkAttachmentDefinition, |client, namespace| Api::namespaced(client, namespace);
        /// A parameterised attachment.
        attachments: PodNetworkAttachment, |client, namespace| Api::namespaced(client, namespace);
        /// A network; it has no namespace.
        networks: PodNetwork, |client, _| Api::all(client);
        /// Parameters of a network; they have no namespace.
        network_parameters: PodNetworkParameters, |client, _| Api::all(client);
        /// Parameters of an attachment.
        attachment_parameters: AttachmentParameters, |client, namespace| Api::namespaced(client, namespace);
    }

    /// The metadata of a network, so that one of a newer version is no error.
    ///
    /// # Errors
    /// When the API server does not answer, or too much was asked.
    pub async fn network_metadata(&self, name: &str) -> Asked<Option<Arc<ObjectMeta>>> {
        let cell = self.network_metadata.of("", name);
        let live = async || {
            let _place = self.place().await;
            let networks: Api<PodNetwork> = Api::all(self.client.clone());
            let found = networks.get_metadata_opt(name).await?;
            Ok::<_, AskError>(found.map(|found| Arc::new(found.metadata)))
        };
        let read = async || {
            self.count()?;
            let copy = || copies::metadata(&self.copies.networks, name);
            self.copies.answer(self.live_until, live(), copy).await
        };
        cell.get_or_try_init(read).await.cloned()
    }

    /// Whether somebody may do something. No copy answers this.
    ///
    /// # Errors
    /// When the API server does not answer, or too much was asked.
    pub async fn may(&self, review: &SubjectAccessReview) -> Asked<bool> {
        self.count()?;
        let _place = self.place().await;
        let reviews: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let answer = reviews.create(&PostParams::default(), review).await?;
        Ok(answer.status.is_some_and(|status| status.allowed))
    }

    /// Counts an object that is looked for, in a copy or at the server.
    fn count(&self) -> Asked<()> {
        if self.asked.fetch_add(1, Ordering::Relaxed) >= self.limit {
            return Err(AskError::TooMany { limit: self.limit });
        }
        Ok(())
    }

    /// Waits for a place, and counts the question to the API server.
    async fn place(&self) -> Option<SemaphorePermit<'_>> {
        self.questions.inc();
        // It is never closed.
        self.open.acquire().await.ok()
    }
}

/// Does all of this, [`AT_ONCE`] at a time; returns the results in order.
///
/// # Errors
/// The first that fails; the others are dropped.
pub(super) async fn all<T, F: Future<Output = Asked<T>>>(work: Vec<F>) -> Asked<Vec<T>> {
    stream::iter(work).buffered(AT_ONCE).try_collect().await
}

/// Splits an answer into the API server's failure and an unreadable object.
///
/// An object that exists and cannot be understood is no failure of the API server.
fn readable<T>(answer: kube::Result<T>) -> kube::Result<Result<T, String>> {
    match answer {
        Ok(object) => Ok(Ok(object)),
        Err(kube::Error::SerdeError(error)) => Ok(Err(format!("cannot be read: {error}"))),
        Err(error) => Err(error),
    }
}
