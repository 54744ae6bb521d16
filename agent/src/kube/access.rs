//! Whether a pod may use its networks, asked once more when it is attached.
//!
//! For the pods that were bound to this node the answers are fetched ahead, and kept for a while, so
//! that an `ADD` finds them. What is not known is asked then; without an answer the `ADD` fails, and
//! the runtime tries again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use book::record::PodIdentity;
use cluster::access::{MIRROR, Used, of_account, user_name};
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::core::v1::Pod as ApiPod;
use kube::api::PostParams;
use kube::{Api, Client};
use world::lists::ListOptions;
use world::{DefaultNetwork, World};

use super::addresses::SOON;
use super::addresses::answer;
use super::error::{AccessError, ClusterError};
use super::home::Home;
use super::lookup::{Pod, Pods};

/// Time for which a permission counts.
///
/// A pod may still come up for so long after a grant was withdrawn.
const ALLOWED: Duration = Duration::from_secs(300);
/// How long a no counts: so long after a grant a pod may still be refused.
const REFUSED: Duration = Duration::from_secs(5);

/// Permissions of pods to use networks, as the API server grants them.
pub(super) struct Access {
    client: Client,
    pods: Pods,
    home: Home,
    known: Mutex<Known>,
}

/// Answers of the API server.
#[derive(Debug, Default)]
struct Known {
    /// User names of the service accounts of pods, by UID.
    accounts: BTreeMap<String, String>,
    answers: BTreeMap<Question, Answer>,
}

/// User name, namespace of the pod, what it uses.
type Question = (String, String, Used);

/// Whether it may, and since when that is known.
type Answer = (bool, Instant);

impl Known {
    fn answer(&self, question: &Question, now: Instant) -> Option<bool> {
        let (allowed, since) = self.answers.get(question)?;
        is_good((*allowed, *since), now).then_some(*allowed)
    }

    fn learn(&mut self, question: Question, allowed: bool, now: Instant) {
        self.answers.retain(|_, answer| is_good(*answer, now));
        self.answers.insert(question, (allowed, now));
    }
}

fn is_good((allowed, since): Answer, now: Instant) -> bool {
    let good_for = if allowed { ALLOWED } else { REFUSED };
    now.saturating_duration_since(since) < good_for
}

impl Access {
    pub(super) fn new(client: Client, pods: Pods, home: Home) -> Self {
        Self {
            client,
            pods,
            home,
            known: Mutex::default(),
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Succeeds when the pod's service account may use all of these.
    ///
    /// # Errors
    /// When it may not use one, or when nobody says so.
    pub(super) async fn check(
        &self,
        pod: Option<&PodIdentity>,
        all: &BTreeSet<Used>,
    ) -> Result<(), ClusterError> {
        if all.is_empty() {
            return Ok(());
        }
        let pod = pod.ok_or(AccessError::NoPod)?;
        let uid = pod.uid.as_deref();
        let pod = self.pods.find(&pod.namespace, &pod.name, uid).await?;
        if uid.is_some_and(|uid| pod.is_mirror_of(uid)) {
            // Files of the node are root's, who may do anything there.
            return Ok(());
        }
        let unknown = |why| AccessError::Unknown {
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            why,
        };
        let user = self.account(&pod).await.map_err(unknown)?;
        for used in all {
            let asked = self.may_use(&user, &pod.namespace, used).await;
            if !asked.map_err(unknown)? {
                return Err(AccessError::Refused {
                    who: user,
                    used: used.clone(),
                    namespace: pod.namespace.clone(),
                }
                .into());
            }
        }
        Ok(())
    }

    /// User name of a pod's service account, which never changes.
    async fn account(&self, pod: &Pod) -> Result<String, String> {
        if let Some(known) = self.known().accounts.get(&pod.uid) {
            return Ok(known.clone());
        }
        let api: Api<ApiPod> = Api::namespaced(self.client.clone(), &pod.namespace);
        let found = answer(api.get(&pod.name)).await?;
        if found.metadata.uid.as_deref() != Some(pod.uid.as_str()) {
            return Err("it is another pod by now".to_owned());
        }
        let spec = found.spec.unwrap_or_default();
        let user = user_name(&pod.namespace, spec.service_account_name.as_deref());
        let mut known = self.known();
        known.accounts.insert(pod.uid.clone(), user.clone());
        Ok(user)
    }

    async fn may_use(&self, user: &str, namespace: &str, used: &Used) -> Result<bool, String> {
        let question = (user.to_owned(), namespace.to_owned(), used.clone());
        if let Some(known) = self.known().answer(&question, Instant::now()) {
            return Ok(known);
        }
        let reviews: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let review = of_account(user.to_owned(), used, namespace);
        // Counted from before the question: what it says may be as old.
        let now = Instant::now();
        let review = answer(reviews.create(&PostParams::default(), &review)).await?;
        let allowed = review.status.is_some_and(|status| status.allowed);
        self.known().learn(question, allowed, now);
        Ok(allowed)
    }

    /// Asks ahead about the pods that are about to be attached, for ever.
    pub(super) async fn work(&self) {
        let mut pods = self.pods.changes();
        loop {
            self.forget_gone();
            let world = self.home.world.get();
            for pod in self.pods.younger(SOON) {
                if self.known().accounts.contains_key(&pod.uid) {
                    continue;
                }
                let lists = &self.home.lists;
                let mut networks = super::addresses::networks(&pod, lists, &world);
                let everybodys = everybodys(&world, lists);
                networks.retain(|network| !everybodys.contains(network));
                if networks.is_empty() || pod.annotations.contains_key(MIRROR) {
                    continue;
                }
                // What fails is asked again by the ADD.
                let Ok(user) = self.account(&pod).await else {
                    continue;
                };
                for network in networks {
                    let used = Used::Network(network);
                    let asked = self.may_use(&user, &pod.namespace, &used).await;
                    if let Err(why) = asked {
                        tracing::debug!(%used, why, "the pod's access to networks is not known yet");
                    }
                }
            }
            if pods.changed().await.is_err() {
                return;
            }
        }
    }

    fn forget_gone(&self) {
        let there = self.pods.uids();
        let mut known = self.known();
        known.accounts.retain(|uid, _| there.contains(uid));
    }
}

/// Names the default networks, the cluster's and this node's own.
///
/// Every pod may use them. A list means the cluster's by its name on every node, and the webhook knows no node.
pub(crate) fn everybodys(world: &World, lists: &ListOptions) -> BTreeSet<String> {
    let own = world.default_network(lists).ok();
    let own = own.as_ref().map(DefaultNetwork::name);
    let all = own.into_iter().chain([lists.default_network.name()]);
    all.map(ToOwned::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// KEP-P2-1: what was granted or withdrawn meanwhile counts in bounded time.
    #[test]
    fn a_yes_counts_for_minutes_and_a_no_for_seconds() {
        let begin = Instant::now();
        let question = |network: &str| {
            let user = user_name("shop", Some("web"));
            (user, "shop".to_owned(), Used::Network(network.to_owned()))
        };
        let mut known = Known::default();
        known.learn(question("blue"), true, begin);
        known.learn(question("red"), false, begin);
        let at = |known: &Known, age| {
            let of = |network| known.answer(&question(network), begin + age);
            (of("blue"), of("red"), of("green"))
        };
        assert_eq!(at(&known, Duration::ZERO), (Some(true), Some(false), None));
        assert_eq!(at(&known, REFUSED), (Some(true), None, None));
        assert_eq!(at(&known, ALLOWED), (None, None, None));
        // What is out of date is not kept for ever.
        known.learn(question("green"), true, begin + ALLOWED);
        assert_eq!(known.answers.len(), 1);
        proof::of!("KEP-P2-1");
    }

    #[test]
    fn an_answer_is_for_one_account_in_one_namespace() {
        let now = Instant::now();
        let mut known = Known::default();
        let question = |namespace: &str, account| {
            let user = user_name(namespace, account);
            (user, namespace.to_owned(), Used::Network("blue".to_owned()))
        };
        known.learn(question("shop", None), true, now);
        assert_eq!(
            known.answer(&question("shop", Some("default")), now),
            Some(true)
        );
        assert_eq!(known.answer(&question("shop", Some("web")), now), None);
        assert_eq!(known.answer(&question("bank", None), now), None);
    }
}
