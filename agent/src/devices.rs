//! Count ports as devices of Kubernetes, and ask which of them a pod has.
//!
//! - [`world::resource`] says which extended resources there are, and which one a network is counted by.
//! - [`ports::directories`] has a directory of the node for each device.
//! - [`assigned`] reads from the kubelet's answer which devices a pod has, for its attachments to take.
//! - [`crate::device_plugin`] tells the kubelet of them.

pub mod assigned;

use std::path::{Path, PathBuf};

use ::kubelet::{PodResourcesClient, device_plugin, pod_resources};
use clap::Args;
use datapath::PinDir;
use ports::directories::Directories;

use self::assigned::{Assigned, AssignedError};

/// Ports that are sockets, as devices of Kubernetes.
#[derive(Debug, Clone, Args)]
pub struct DeviceOptions {
    /// Directory of the kubelet, for networks whose ports are devices
    ///
    /// With it, networks whose ports are sockets are resources that pods ask for and that the scheduler counts,
    /// and the devices that the kubelet gives to a pod are its attachments'.
    #[arg(long, value_name = "DIR", env = "PODNET_KUBELET_DIR")]
    pub kubelet_dir: Option<PathBuf>,
    /// Devices of each such resource on this node
    #[arg(
        long,
        value_name = "NUMBER",
        env = "PODNET_DEVICES_PER_NETWORK",
        default_value_t = 64,
        value_parser = clap::value_parser!(u16).range(1..=4096)
    )]
    pub devices_per_network: u16,
}

/// The devices of a node; nothing of it is done without a kubelet.
#[derive(Debug)]
pub struct Devices {
    directories: Directories,
    number: u16,
    kubelet: Option<Kubelet>,
}

#[derive(Debug)]
struct Kubelet {
    plugins: PathBuf,
    pods: PodResourcesClient,
}

impl Devices {
    /// Devices of these options, with their directories next to socket and pins.
    pub fn new(options: &DeviceOptions, socket: &Path, pins: &PinDir) -> Self {
        let kubelet = options.kubelet_dir.as_deref();
        Self {
            directories: Directories::new(socket, pins).with_file_systems(),
            number: options.devices_per_network,
            kubelet: kubelet.map(|kubelet| Kubelet {
                plugins: kubelet.join(device_plugin::DIRECTORY),
                pods: PodResourcesClient::new(kubelet.join(pod_resources::SOCKET)),
            }),
        }
    }

    /// The directories of devices.
    pub const fn directories(&self) -> &Directories {
        &self.directories
    }

    /// True where a kubelet gives devices to pods.
    pub const fn are_given(&self) -> bool {
        self.kubelet.is_some()
    }

    /// Directory of the kubelet's device plugins; none without a kubelet.
    pub fn plugins(&self) -> Option<&Path> {
        self.kubelet.as_ref().map(|it| it.plugins.as_path())
    }

    /// Devices of each resource.
    pub const fn number(&self) -> u16 {
        self.number
    }

    /// Asks the kubelet for the devices of a pod's containers; none without a kubelet.
    ///
    /// # Errors
    /// When the kubelet does not tell.
    pub async fn of_pod(&self, namespace: &str, name: &str) -> Result<Assigned, AssignedError> {
        let Some(kubelet) = &self.kubelet else {
            return Ok(Assigned::default());
        };
        let pod = kubelet.pods.pod(namespace, name).await;
        let pod = pod.map_err(|source| AssignedError {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            source,
        })?;
        Ok(Assigned::new(&pod))
    }
}
