//! A test's own corner of the shared API server.

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use testbed::apiserver::{self, ApiServer};

/// The server, a client of an administrator, and a runtime to run it.
#[derive(Debug)]
pub(crate) struct Scene {
    pub(crate) server: &'static ApiServer,
    runtime: tokio::runtime::Runtime,
}

impl Scene {
    /// `None`, and said, when there is no `kube-apiserver` here.
    pub(crate) fn set(test: &str) -> Option<Self> {
        Some(Self::on(apiserver::shared(test)?))
    }

    /// The same on a server of somebody's own.
    pub(crate) fn on(server: &'static ApiServer) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        Self { server, runtime }
    }

    /// Runs a test's steps, which get a client of an administrator.
    pub(crate) fn run<F: Future>(&self, steps: impl FnOnce(Client) -> F) -> F::Output {
        self.runtime.block_on(async {
            let client = client(self.server, "admin").await;
            steps(client).await
        })
    }
}

/// A client that is the user with this certificate.
pub(crate) async fn client(server: &ApiServer, user: &str) -> Client {
    let kubeconfig = Kubeconfig::read_from(server.pki().kubeconfig(user)).expect("a kubeconfig");
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    Client::try_from(config.expect("a usable kubeconfig")).expect("a client")
}

/// Makes a namespace and returns its name.
pub(crate) async fn namespace(client: &Client, name: &str) -> String {
    let mut object = Namespace::default();
    object.metadata.name = Some(name.to_owned());
    let made = Api::all(client.clone())
        .create(&PostParams::default(), &object)
        .await;
    made.expect("a namespace can be made");
    name.to_owned()
}
