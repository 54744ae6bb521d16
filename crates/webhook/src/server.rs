//! Reviews over HTTPS, and the pages of the administrator over HTTP.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use api::selection::SelectionRules;
use api::{PROBLEMS_MAX, Shortened};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use k8s_openapi::api::core::v1::Pod;
use kube::core::DynamicObject;
use kube::core::admission::{AdmissionRequest, AdmissionResponse, AdmissionReview, Operation};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::Value;
use telemetry::chain;
use telemetry::{LOG_BYTES, Sparing};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use world::DefaultNetwork;

use super::access::{self, AccessControl};
use super::copies::Copies;
use super::downward;
use super::facts::Facts;
use super::inject::{self, Injection};
use super::intake::{Intake, Room};
use super::keeper::Readiness;
use super::lookup::{AskError, Lookup, OPEN_MAX};
use super::metrics::{Hook, Metrics, Timer};
use super::options::WebhookOptions;
use super::review::{self, Denial};
use super::services;
use super::tls::TlsListener;
use super::wants::Wants;

/// Time between two lines about the same.
const LINES_EVERY: Duration = Duration::from_secs(10);
/// How long a review may take; the API server waits longer than that.
const PATIENCE: Duration = Duration::from_secs(3);

/// Does reviews.
#[derive(Clone)]
pub(super) struct Reviewer {
    client: Client,
    copies: Arc<Copies>,
    control: AccessControl,
    /// None: lists mean nothing.
    rules: Option<SelectionRules>,
    injections: Injections,
    metrics: Arc<Metrics>,
    intake: Intake,
    /// Places for questions to the API server.
    open: Arc<Semaphore>,
}

/// Additions to new pods, as the options choose them.
#[derive(Debug, Clone)]
pub(super) struct Injections {
    all: Vec<Injection>,
    /// Pods do not wait for what does not exist.
    require_networks: bool,
    /// Network of pods without a list, where there is one.
    default_network: Option<String>,
}

impl Injections {
    /// Reads the options.
    pub(super) fn of(options: &WebhookOptions) -> Self {
        Self {
            all: options.inject.clone(),
            require_networks: options.require_networks,
            default_network: match &options.lists.default_network {
                DefaultNetwork::None => None,
                network => Some(network.name().to_owned()),
            },
        }
    }

    fn has(&self, injection: Injection) -> bool {
        self.all.contains(&injection)
    }
}

/// Patch and warnings for a new pod.
#[derive(Debug, Default)]
struct Mutation {
    operations: Vec<Value>,
    warnings: Vec<String>,
}

impl Reviewer {
    /// Reads a review, and the room that it takes up.
    ///
    /// # Errors
    /// With the answer when there is no room, or when it is no review of an object of this kind.
    async fn admit<K>(&self, request: Request) -> Result<(AdmissionRequest<K>, Room), Response>
    where
        K: Resource + DeserializeOwned,
    {
        let (review, room) = self.intake.take(request).await?.apart();
        let request = review.try_into().map_err(|_| not_a_request())?;
        Ok((request, room))
    }

    pub(super) fn new(
        client: Client,
        copies: Arc<Copies>,
        rules: Option<SelectionRules>,
        control: AccessControl,
        injections: Injections,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            client,
            copies,
            control,
            rules,
            injections,
            metrics,
            intake: Intake::default(),
            open: Arc::new(Semaphore::new(OPEN_MAX)),
        }
    }

    fn lookup(&self, rules: &SelectionRules) -> Lookup {
        let open = Arc::clone(&self.open);
        let questions = self.metrics.questions.clone();
        let copies = Arc::clone(&self.copies);
        Lookup::new(
            self.client.clone(),
            copies,
            open,
            questions,
            rules.max_attachments,
        )
    }

    async fn validate(&self, request: &AdmissionRequest<Pod>) -> Result<Vec<String>, Denial> {
        let Some(rules) = &self.rules else {
            return Ok(Vec::new());
        };
        let Some(selection) = review::read(request, rules)? else {
            return Ok(Vec::new());
        };
        let lookup = self.lookup(rules);
        let asking = async {
            let facts = Facts::read(&lookup, &selection).await?;
            let default = &rules.default_network;
            let checked = review::check_deletion(&selection, &facts)
                .and_then(|()| review::check_definitions(&selection, &facts, rules));
            let verdict = match checked {
                Err(denial) => Err(denial),
                Ok(()) => access::questions(self.control, request, &selection, &facts, default),
            };
            Ok::<_, AskError>(match verdict {
                Err(denial) => Err(denial),
                Ok(questions) => {
                    access::check(request, &access::ask(&lookup, request, questions).await?)
                }
            })
        };
        let why = match tokio::time::timeout(PATIENCE, asking).await {
            Ok(Ok(verdict)) => return verdict.map(|()| review::warnings(&selection)),
            Ok(Err(error)) => chain(&error),
            Err(_) => format!("no answer within {} s", PATIENCE.as_secs()),
        };
        static UNANSWERED: Sparing = Sparing::new(LINES_EVERY);
        if let Some(unsaid) = UNANSWERED.admit(&why) {
            tracing::warn!(
                error = %Shortened(&why, LOG_BYTES), unsaid,
                "the API server does not answer a question about a pod"
            );
        }
        if self.control == AccessControl::Off {
            // The agent looks at the networks again.
            Ok(review::warnings(&selection))
        } else {
            Err(Denial::NotChecked { why })
        }
    }
}

impl Reviewer {
    /// Adds what the networks of a new pod need, by the objects of the cluster.
    async fn inject(&self, request: &AdmissionRequest<Pod>) -> Result<Mutation, Denial> {
        let mut mutation = Mutation::default();
        let Some((rules, pod)) = self.rules.as_ref().zip(request.object.as_ref()) else {
            return Ok(mutation);
        };
        let is_new = request.operation == Operation::Create && !access::is_mirror(request);
        // Lists that are wrong are refused by the validation.
        let selection = is_new.then(|| review::read(request, rules).ok().flatten());
        let Some(selection) = selection.flatten() else {
            return Ok(mutation);
        };
        if review::named(&selection).next().is_none() {
            return Ok(mutation);
        }
        let injections = &self.injections;
        if injections.has(Injection::ContextUid) {
            let patch =
                inject::context_uid(pod).map_err(|error| Denial::NotRead { why: chain(&error) })?;
            mutation.operations.extend(patch);
        }
        let [devices, nodes] =
            [Injection::Resources, Injection::NodeSelector].map(|one| injections.has(one));
        if !devices && !nodes {
            return Ok(mutation);
        }
        let lookup = self.lookup(rules);
        let reading = tokio::time::timeout(PATIENCE, Wants::read(&lookup, &selection));
        let wants = match reading.await {
            Ok(Ok(wants)) => wants,
            Ok(Err(error)) => return Err(Denial::NotRead { why: chain(&error) }),
            Err(_) => {
                let why = format!("no answer within {} s", PATIENCE.as_secs());
                return Err(Denial::NotRead { why });
            }
        };
        for (index, target) in wants.absent.iter().enumerate() {
            if injections.require_networks {
                let target = target.clone();
                return Err(Denial::Absent { target });
            }
            if index == PROBLEMS_MAX {
                let more = wants.absent.len() - index;
                mutation
                    .warnings
                    .push(format!("and {more} more do not exist"));
                break;
            }
            mutation.warnings.push(format!(
                "{target} does not exist: no device is asked for and no node chosen for it"
            ));
        }
        if devices {
            let patch = inject::resources(pod, &selection, &wants);
            mutation.operations.extend(patch);
        }
        if nodes {
            mutation
                .operations
                .extend(inject::node_selector(pod, &selection, &wants)?);
        }
        Ok(mutation)
    }
}

/// Serves until `stop` says so.
///
/// # Errors
/// When the listener fails.
pub(super) async fn serve_reviews(
    listener: TlsListener,
    reviewer: Reviewer,
    stop: watch::Receiver<bool>,
) -> io::Result<()> {
    let routes = Router::new()
        .route("/validate-pods", post(validate_pods))
        .route("/mutate-pods", post(mutate_pods))
        .route("/populate-pods", post(populate_pods))
        .route("/mutate-services", post(mutate_services))
        .with_state(reviewer);
    axum::serve(listener, routes)
        .with_graceful_shutdown(stopped(stop))
        .await
}

async fn validate_pods(State(reviewer): State<Reviewer>, request: Request) -> Response {
    let (request, _room) = match reviewer.admit(request).await {
        Ok(admitted) => admitted,
        Err(refusal) => return refusal,
    };
    let timer = reviewer.metrics.start(Hook::Validate);
    let (response, outcome) = match reviewer.validate(&request).await {
        Ok(warnings) => {
            let mut response = AdmissionResponse::from(&request);
            response.warnings = (!warnings.is_empty()).then_some(warnings);
            (response, "allowed")
        }
        Err(denial) => {
            note_refusal(&request, &denial);
            (denial.respond(&request), denial.label())
        }
    };
    timer.end(outcome);
    Json(response.into_review()).into_response()
}

async fn mutate_pods(State(reviewer): State<Reviewer>, request: Request) -> Response {
    let (request, _room) = match reviewer.admit(request).await {
        Ok(admitted) => admitted,
        Err(refusal) => return refusal,
    };
    let timer = reviewer.metrics.start(Hook::Mutate);
    let mut response = AdmissionResponse::from(&request);
    let injected = match reviewer.inject(&request).await {
        Ok(injected) => injected,
        Err(denial) => {
            note_refusal(&request, &denial);
            timer.end(denial.label());
            return Json(denial.respond(&request).into_review()).into_response();
        }
    };
    let rules = reviewer.rules.as_ref();
    let gate = rules.and_then(|rules| review::gate(&request, rules));
    let volume = rules.and_then(|_| {
        let is_for_all = reviewer.injections.has(Injection::Podnetinfo);
        downward::volume(&request, is_for_all)
    });
    let done = if gate.is_some() { "gated" } else { "changed" };
    let changes: Vec<Value> = [gate, volume]
        .into_iter()
        .flatten()
        .flat_map(operations)
        .chain(injected.operations)
        .collect();
    if !injected.warnings.is_empty() {
        response.warnings = Some(injected.warnings);
    }
    let outcome = if changes.is_empty() {
        "unchanged"
    } else {
        done
    };
    answer(response, changes, timer, outcome)
}

/// Writes the network of a pod that lists none into its list.
async fn populate_pods(State(reviewer): State<Reviewer>, request: Request) -> Response {
    let (request, _room) = match reviewer.admit(request).await {
        Ok(admitted) => admitted,
        Err(refusal) => return refusal,
    };
    let timer = reviewer.metrics.start(Hook::Populate);
    let default = reviewer.injections.default_network.as_deref();
    let default = default.filter(|_| reviewer.rules.is_some());
    let changes = default.map_or_else(Vec::new, |network| inject::populated(&request, network));
    let outcome = if changes.is_empty() {
        "unchanged"
    } else {
        "populated"
    };
    answer(AdmissionResponse::from(&request), changes, timer, outcome)
}

/// Gives a Service of a network the label by which kube-proxy leaves it alone.
async fn mutate_services(State(reviewer): State<Reviewer>, request: Request) -> Response {
    let (request, _room) = match reviewer.admit(request).await {
        Ok(admitted) => admitted,
        Err(refusal) => return refusal,
    };
    let timer = reviewer.metrics.start(Hook::Services);
    let mut response = AdmissionResponse::from(&request);
    let (changes, warning) = services::labelled(&request);
    response.warnings = warning.map(|it| vec![it]);
    let outcome = if changes.is_empty() {
        "unchanged"
    } else {
        "labelled"
    };
    answer(response, changes, timer, outcome)
}

/// Answers with a patch of these operations, if there are any.
fn answer(
    mut response: AdmissionResponse,
    changes: Vec<Value>,
    timer: Timer,
    outcome: &str,
) -> Response {
    if !changes.is_empty() {
        let patched = serde_json::from_value(Value::Array(changes))
            .map_err(|error| chain(&error))
            .and_then(|patch| response.with_patch(patch).map_err(|error| chain(&error)));
        response = match patched {
            Ok(response) => response,
            Err(why) => {
                timer.end("failed");
                return (StatusCode::INTERNAL_SERVER_ERROR, why).into_response();
            }
        };
    }
    timer.end(outcome);
    Json(response.into_review()).into_response()
}

/// Logs the reason for which a pod is refused.
///
/// A controller that makes a wrong pod makes it again and again, each with another name: the same
/// reason in the same namespace is a line every [`LINES_EVERY`].
fn note_refusal(request: &AdmissionRequest<Pod>, denial: &Denial) {
    static REFUSALS: Sparing = Sparing::new(LINES_EVERY);
    let namespace = review::namespace(request);
    let reason = denial.to_string();
    if let Some(unsaid) = REFUSALS.admit(&(namespace, &reason)) {
        let reason = Shortened(&reason, LOG_BYTES);
        tracing::info!(
            namespace, pod = name(request), user = request.user_info.username, %reason, unsaid,
            "the pod is refused"
        );
    }
}

/// Returns the operations of a JSON patch, in order.
fn operations(patch: Value) -> Vec<Value> {
    match patch {
        Value::Array(operations) => operations,
        one => vec![one],
    }
}

/// A name, or what a name is made of.
fn name(request: &AdmissionRequest<Pod>) -> &str {
    let generated = || request.object.as_ref()?.metadata.generate_name.as_deref();
    match request.name.as_str() {
        "" => generated().unwrap_or_default(),
        name => name,
    }
}

fn not_a_request() -> Response {
    let review: AdmissionReview<DynamicObject> =
        AdmissionResponse::invalid("an AdmissionReview without a request").into_review();
    (StatusCode::BAD_REQUEST, Json(review)).into_response()
}

/// Serves `/metrics`, `/livez` and `/readyz` until `stop` says so.
///
/// # Errors
/// When the listener fails.
pub(super) async fn serve_admin(
    listener: TcpListener,
    metrics: Arc<Metrics>,
    readiness: Readiness,
    copies: Arc<Copies>,
    stop: watch::Receiver<bool>,
) -> io::Result<()> {
    let routes = Router::new()
        .route("/metrics", get(move || async move { page(&metrics) }))
        .route("/livez", get(|| async { "ok\n" }))
        .route(
            "/readyz",
            get(move || async move { readyz(&readiness, &copies) }),
        );
    axum::serve(listener, routes)
        .with_graceful_shutdown(stopped(stop))
        .await
}

fn page(metrics: &Metrics) -> Response {
    match metrics.render() {
        Ok(text) => ([("content-type", "text/plain; version=0.0.4")], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, chain(&error)).into_response(),
    }
}

/// Fails until there are certificates and copies.
///
/// The API server asks another replica meanwhile.
fn readyz(readiness: &Readiness, copies: &Copies) -> Response {
    let why = readiness.borrow().clone().or_else(|| copies.unread());
    match why {
        None => "ok\n".into_response(),
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response(),
    }
}

async fn stopped(mut stop: watch::Receiver<bool>) {
    // Either way it is time to stop.
    let _ = stop.wait_for(|stop| *stop).await;
}
