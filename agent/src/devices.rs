//! Ports as devices of Kubernetes: counted by the scheduler, given to containers.
//!
//! A container gets the directory of its device, which has the socket of the port.
//!
//! - [`world::resource`] says which extended resources there are, and which one a network is counted by.
//! - [`crate::ports::directories`] has a directory of the node for each device.
//! - `plugin` answers the kubelet about the devices of a resource; [`kubelet`] keeps the kubelet told of
//!   all resources, whatever becomes of the kubelet or of networks.
//! - [`assigned`] asks the kubelet which devices a pod has, for its attachments to take.

pub mod assigned;
pub mod kubelet;
mod plugin;

use std::path::{Path, PathBuf};

use ::kubelet::{PodResourcesClient, device_plugin, pod_resources};
use api::RawObject;
use clap::Args;
use datapath::PinDir;
use tokio::sync::watch;
use world::resource;

use self::assigned::{Assigned, AssignedError};
use self::kubelet::Place;
use crate::error::AgentError;
use crate::ledger::Wanted;
use crate::node::Node;
use crate::ports::directories::Directories;
use crate::record::Device;

/// Ports that are sockets, as devices of Kubernetes.
#[derive(Debug, Clone, Args)]
pub struct DeviceOptions {
    /// Directory of the kubelet. With it, networks whose ports are sockets are resources that pods ask
    /// for and that the scheduler counts, and the devices that the kubelet gives to a pod are its
    /// attachments'
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
    /// Devices of these options, with their directories beside socket and pins.
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

/// Chooses the device of a port for a configuration that names its network.
///
/// It is the device that the configuration names, else the pod's first that no other port has.
///
/// # Errors
/// When the kubelet does not tell, or says that the device is not the pod's.
pub async fn choose(
    node: &Node,
    wanted: &mut Wanted,
    network: &str,
    config: &RawObject,
) -> Result<(), AgentError> {
    if wanted.interface.is_veth() {
        return Ok(());
    }
    let (Some(resource), Some(pod)) = (resource::of_network(network), &wanted.pod) else {
        return Ok(());
    };
    let mut assigned = node.devices.of_pod(&pod.namespace, &pod.name).await?;
    let device = if let Some(named) = assigned::named(config).filter(|_| node.devices.are_given()) {
        if !assigned.take_named(&resource, &named) {
            return Err(AgentError::NotItsDevice {
                resource,
                device: named,
            });
        }
        Some(named)
    } else {
        let is_taken = |device: &String| {
            let ledger = node.book.ledger();
            ledger.entries().any(|entry| {
                let held = entry.record.device.as_ref();
                entry.record.key != wanted.key
                    && held.is_some_and(|held| held.resource == resource && held.id == *device)
            })
        };
        std::iter::from_fn(|| assigned.take(&resource)).find(|device| !is_taken(device))
    };
    if let Some(id) = device {
        wanted.give(Device { resource, id });
    }
    Ok(())
}

/// Keeps the kubelet told of the node's devices, for ever.
///
/// # Errors
/// When the kernel does not let us watch its directory.
pub async fn serve(node: &Node) -> Result<(), notify::Error> {
    let Some(kubelet) = &node.devices.kubelet else {
        return std::future::pending().await;
    };
    let place = Place {
        plugins: kubelet.plugins.clone(),
        directories: node.devices.directories.clone(),
        number: node.devices.number,
    };
    let (wanted, wanting) = watch::channel(None);
    let tell = async {
        let (mut worlds, mut ready) = (node.world.changes(), node.readiness());
        loop {
            let now = resource::offers(&node.world.get(), node.is_ready());
            wanted.send_if_modified(|known| {
                let differs = *known != now;
                *known = now;
                differs
            });
            // Both senders live as long as the node.
            tokio::select! {
                _ = worlds.changed() => {}
                _ = ready.changed() => {}
            }
        }
    };
    tokio::select! {
        end = kubelet::follow(place, wanting) => end,
        () = tell => Ok(()),
    }
}
