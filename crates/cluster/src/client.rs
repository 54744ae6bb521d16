//! A client of the API server, from where it is told who it is.

use std::path::{Path, PathBuf};

use kube::config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};

/// How to reach the API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// As a pod with a service account.
    InCluster,
    /// As a kubeconfig file says.
    Kubeconfig(PathBuf),
}

impl Source {
    /// Chooses the credentials: those of the file, or those of the pod itself.
    pub fn new(kubeconfig: Option<&Path>) -> Self {
        kubeconfig.map_or(Self::InCluster, |path| Self::Kubeconfig(path.to_owned()))
    }
}

/// The API server cannot be asked anything.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Not in a cluster.
    #[error(
        "no API server is known: the process is in no pod with a service account; run it in one, or give --kubeconfig \
         FILE; `run` also takes --standalone DIR, for networks from files"
    )]
    NotInCluster(#[source] InClusterError),
    /// The file is wrong.
    #[error("--kubeconfig {} is not usable", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: Box<KubeconfigError>,
    },
    /// The credentials are wrong.
    #[error(
        "the API server's address or credentials are not usable; mend the kubeconfig or the pod's service account"
    )]
    Client(#[source] Box<kube::Error>),
}

impl Source {
    /// A client; nothing is asked yet.
    ///
    /// # Errors
    /// When the address of the API server, or the user to ask as, is unknown.
    pub async fn connect(&self) -> Result<Client, ConnectError> {
        let config = match self {
            Self::InCluster => Config::incluster().map_err(ConnectError::NotInCluster)?,
            Self::Kubeconfig(path) => from_file(path).await?,
        };
        Client::try_from(config).map_err(|error| ConnectError::Client(Box::new(error)))
    }
}

async fn from_file(path: &Path) -> Result<Config, ConnectError> {
    let unusable = |source| ConnectError::Kubeconfig {
        path: path.to_owned(),
        source: Box::new(source),
    };
    let file = Kubeconfig::read_from(path).map_err(unusable)?;
    Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
        .await
        .map_err(unusable)
}
