//! Keep the certificates in a shared Secret and in the webhook configurations.
//!
//! There is no leader. Each replica that finds a step due takes it, and writes the Secret only when it
//! is still the version that was read; a replica that comes second reads again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::json;
use telemetry::chain;
use tokio::sync::watch;

use super::certificates::{CertificateError, Certificates, Lifetimes, Names};
use super::metrics::Metrics;
use super::tls::Identity;

/// Field manager of the webhook's writes.
const MANAGER: &str = "podnet-webhook";
/// The one key of the Secret.
const KEY: &str = "certificates.json";
/// Steps that can be due at once, and then some.
const STEPS: usize = 16;

/// Where certificates are kept and shown.
#[derive(Debug)]
pub(super) struct Place {
    /// Of the Secret.
    pub(super) namespace: String,
    /// Name of the Secret.
    pub(super) secret: String,
    /// Name of both webhook configurations.
    pub(super) configuration: String,
}

#[derive(Debug, thiserror::Error)]
enum KeepError {
    #[error("cannot {operation}")]
    Api {
        operation: String,
        source: Box<kube::Error>,
    },
    #[error(
        "{kind} {name} does not exist; apply podnet's manifests, or name another with --configuration"
    )]
    NoConfiguration { kind: String, name: String },
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    #[error(
        "the certificate in Secret {secret} is not usable; delete the Secret, and the webhook makes another"
    )]
    Unusable {
        secret: String,
        source: tokio_rustls::rustls::Error,
    },
    #[error("Secret {secret} keeps changing; let no other program write it")]
    Restless { secret: String },
}

/// Why reviews cannot be done yet; `None` when they can.
pub(super) type Readiness = watch::Receiver<Option<String>>;

pub(super) struct Keeper {
    client: Client,
    place: Place,
    names: Names,
    lifetimes: Lifetimes,
    identity: Arc<Identity>,
    metrics: Arc<Metrics>,
    ready: watch::Sender<Option<String>>,
}

impl Keeper {
    pub(super) fn new(
        client: Client,
        place: Place,
        names: Names,
        lifetimes: Lifetimes,
        identity: Arc<Identity>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            client,
            place,
            names,
            lifetimes,
            identity,
            metrics,
            ready: watch::Sender::new(Some("no certificate yet".to_owned())),
        }
    }

    pub(super) fn readiness(&self) -> Readiness {
        self.ready.subscribe()
    }

    /// Keeps them, for ever.
    pub(super) async fn run(&self) {
        let mut told = None;
        loop {
            let problem = self.keep().await.err().map(|error| chain(&error));
            if problem != told {
                match &problem {
                    Some(error) => tracing::warn!(
                        error,
                        "the certificates could not be looked after, trying again"
                    ),
                    None => tracing::info!("the certificates are looked after"),
                }
                told.clone_from(&problem);
            }
            // Who served once can go on serving while the API server is away.
            self.ready.send_if_modified(|ready| {
                let changes = ready.is_some() && *ready != problem;
                if changes {
                    ready.clone_from(&problem);
                }
                changes
            });
            tokio::time::sleep(self.lifetimes.look_every()).await;
        }
    }

    /// Takes all steps that are due, and shows what came of it.
    async fn keep(&self) -> Result<(), KeepError> {
        for _ in 0..STEPS {
            let (certificates, version) = match self.read().await? {
                Found::Usable(certificates, version) => (certificates, version),
                Found::Absent => {
                    let first = Certificates::new(now(), self.lifetimes, &self.names)?;
                    self.write(&first, None).await?;
                    continue;
                }
                Found::Broken(version) => {
                    tracing::error!(
                        secret = self.place.secret,
                        "the Secret cannot be read; all certificates are made again"
                    );
                    let first = Certificates::new(now(), self.lifetimes, &self.names)?;
                    self.write(&first, Some(version)).await?;
                    continue;
                }
            };
            let published = self.publish(&certificates.bundle()).await;
            // Read after the requests, which may have taken their time.
            let now = now();
            let due = certificates.due(now, self.lifetimes, &self.names, published.is_ok());
            if let Some(step) = due {
                let after = certificates.after(step, now, self.lifetimes, &self.names)?;
                if self.write(&after, Some(version)).await? {
                    tracing::info!(?step, "the certificates are replaced");
                }
                continue;
            }
            let serving = certificates.serving();
            self.identity
                .show(serving)
                .map_err(|source| KeepError::Unusable {
                    secret: self.place.secret.clone(),
                    source,
                })?;
            self.metrics
                .expiry(certificates.authority_expires(), serving.expires);
            return published;
        }
        Err(KeepError::Restless {
            secret: self.place.secret.clone(),
        })
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), &self.place.namespace)
    }

    async fn read(&self) -> Result<Found, KeepError> {
        let found = self.secrets().get_opt(&self.place.secret).await;
        let Some(mut secret) = found.map_err(failure("read Secret", &self.place.secret))? else {
            return Ok(Found::Absent);
        };
        let version = secret.resource_version().unwrap_or_default();
        let text = secret.data.as_mut().and_then(|data| data.remove(KEY));
        let read = text.and_then(|text| serde_json::from_slice(&text.0).ok());
        Ok(read.map_or(Found::Broken(version.clone()), |certificates| {
            Found::Usable(Box::new(certificates), version)
        }))
    }

    /// Writes the Secret if it is still at `version`, or still absent.
    ///
    /// Returns false if it is not.
    async fn write(
        &self,
        certificates: &Certificates,
        version: Option<String>,
    ) -> Result<bool, KeepError> {
        let text = serde_json::to_vec(certificates).unwrap_or_default();
        let mut secret = Secret {
            data: Some(BTreeMap::from([(KEY.to_owned(), ByteString(text))])),
            ..Secret::default()
        };
        let name = &self.place.secret;
        secret.metadata.name = Some(name.clone());
        secret.metadata.resource_version.clone_from(&version);
        let params = PostParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PostParams::default()
        };
        let written = if version.is_some() {
            self.secrets().replace(name, &params, &secret).await
        } else {
            self.secrets().create(&params, &secret).await
        };
        match written {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
            Err(error) => Err(failure("write Secret", name)(error)),
        }
    }

    /// Lets both configurations say `bundle`.
    async fn publish(&self, bundle: &str) -> Result<(), KeepError> {
        let validating =
            self.publish_in::<ValidatingWebhookConfiguration>(bundle, |configuration| {
                let webhooks = configuration.webhooks.into_iter().flatten();
                webhooks
                    .map(|webhook| (webhook.name, webhook.client_config.ca_bundle))
                    .collect()
            });
        let mutating = self.publish_in::<MutatingWebhookConfiguration>(bundle, |configuration| {
            let webhooks = configuration.webhooks.into_iter().flatten();
            webhooks
                .map(|webhook| (webhook.name, webhook.client_config.ca_bundle))
                .collect()
        });
        let (validating, mutating) = tokio::join!(validating, mutating);
        validating.and(mutating)
    }

    async fn publish_in<K>(
        &self,
        bundle: &str,
        webhooks: impl Fn(K) -> Vec<(String, Option<ByteString>)> + Send,
    ) -> Result<(), KeepError>
    where
        K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
    {
        let configurations: Api<K> = Api::all(self.client.clone());
        let name = &self.place.configuration;
        let kind = K::kind(&()).into_owned();
        let found = configurations.get_opt(name).await;
        let Some(found) = found.map_err(failure(&format!("read {kind}"), name))? else {
            let name = name.clone();
            return Err(KeepError::NoConfiguration { kind, name });
        };
        let webhooks = webhooks(found);
        let bundle = ByteString(bundle.as_bytes().to_vec());
        if webhooks
            .iter()
            .all(|(_, found)| found.as_ref() == Some(&bundle))
        {
            return Ok(());
        }
        // Nothing but the bundles is ours.
        let patch = json!({
            "apiVersion": K::api_version(&()),
            "kind": kind,
            "metadata": { "name": name },
            "webhooks": webhooks
                .iter()
                .map(|(webhook, _)| json!({ "name": webhook, "clientConfig": { "caBundle": bundle } }))
                .collect::<Vec<_>>(),
        });
        let params = PatchParams::apply(MANAGER).force();
        configurations
            .patch(name, &params, &Patch::Apply(patch))
            .await
            .map_err(failure(&format!("write caBundle of {kind}"), name))?;
        tracing::info!(kind, name, "the caBundle of the configuration is written");
        Ok(())
    }
}

enum Found {
    Absent,
    Broken(String),
    Usable(Box<Certificates>, String),
}

fn failure(operation: &str, name: &str) -> impl FnOnce(kube::Error) -> KeepError {
    let operation = format!("{operation} {name}");
    move |source| KeepError::Api {
        operation,
        source: Box::new(source),
    }
}

/// Seconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}
