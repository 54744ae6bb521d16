//! Define the command line of `webhook`.

use std::net::SocketAddr;
use std::path::PathBuf;

use api::selection::SelectionRules;
use clap::Args;
use world::lists::{Feature, FeatureGates, ListOptions};

use super::access::AccessControl;
use super::callers::ClientOptions;
use super::inject::Injection;

const DAY: u64 = 24 * 60 * 60;
const CENTURY: u64 = 36_500 * DAY;

/// Options of `webhook`.
#[derive(Debug, Clone, Args)]
pub struct WebhookOptions {
    /// How to reach the API server; as a pod with a service account when not given
    #[arg(long, value_name = "FILE", env = "PODNET_KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,
    /// Address for reviews, HTTPS
    #[arg(long, env = "PODNET_WEBHOOK_LISTEN", default_value = "0.0.0.0:9443")]
    pub listen: SocketAddr,
    /// Address for /metrics, /livez and /readyz
    #[arg(long, env = "PODNET_ADMIN", default_value = "127.0.0.1:9466")]
    pub admin: SocketAddr,
    /// Namespace of the Service and of the Secret with the certificates
    #[arg(long, env = "POD_NAMESPACE", default_value = "podnet-system")]
    pub namespace: String,
    /// Service by which the API server calls
    #[arg(long, default_value = "podnet-webhook")]
    pub service_name: String,
    /// Secret with the certificates; made when it is not there
    #[arg(long, default_value = "podnet-webhook-certificates")]
    pub secret_name: String,
    /// The callers that are served.
    #[command(flatten)]
    pub clients: ClientOptions,
    /// Name of the MutatingWebhookConfiguration and ValidatingWebhookConfiguration
    /// whose caBundle is kept
    #[arg(long, default_value = "podnet-webhook")]
    pub configuration: String,
    /// Further DNS name or IP address by which the API server calls; can be repeated
    #[arg(long, value_name = "NAME")]
    pub server_name: Vec<String>,
    /// How the lists of pods are read, as the agents have it.
    #[command(flatten)]
    pub lists: ListOptions,
    /// The features that are switched.
    #[command(flatten)]
    pub features: FeatureGates,
    /// Subject that must have the verb `use` on a PodNetwork before a pod may list it
    #[arg(long, value_enum, default_value_t)]
    pub access_control: AccessControl,
    /// Additions to pods that list networks, separated by commas
    #[arg(
        long,
        value_enum,
        value_name = "WHAT",
        value_delimiter = ',',
        env = "PODNET_INJECT"
    )]
    pub inject: Vec<Injection>,
    /// Refuse a pod that names a missing object, when --inject adds resources or a
    /// node selector; without it the pod waits for its networks, but their needs are not added any more
    #[arg(long, env = "PODNET_REQUIRE_NETWORKS")]
    pub require_networks: bool,
    /// Seconds a serving certificate is valid; a new one is made when a third is left
    #[arg(long, value_name = "SECONDS", default_value_t = 30 * DAY, value_parser = clap::value_parser!(u64).range(..=CENTURY))]
    pub certificate_lifetime: u64,
    /// Seconds a certificate authority is valid; the next one is made after half of it
    #[arg(long, value_name = "SECONDS", default_value_t = 730 * DAY, value_parser = clap::value_parser!(u64).range(..=CENTURY))]
    pub ca_lifetime: u64,
    /// Log filter, as in `info,agent=debug`
    #[arg(long, env = "PODNET_LOG", default_value = "info")]
    pub log: String,
}

impl WebhookOptions {
    /// How the lists of pods are read, or `None` when they mean nothing (KEP-CTL-4).
    pub(super) fn rules(&self) -> Option<SelectionRules> {
        let is_on = self.features.has(Feature::MultiNetwork);
        is_on.then(|| self.lists.rules())
    }
}
