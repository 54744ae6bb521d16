//! The devices of one resource, as the kubelet asks about them.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;

use ::kubelet::DevicePlugin;
use ::kubelet::device_plugin::{
    ContainerAllocateResponse, ContainerPreferredAllocationRequest, Device, HEALTHY, Mount,
    UNHEALTHY,
};
use ports::directories::Directories;
use tokio::sync::watch;
use world::resource;

use crate::devices::assigned::in_order;

/// Devices of one resource, numbered from 0.
///
/// A port is made on request, so devices differ in nothing.
pub(super) fn devices(number: u16, is_healthy: bool) -> Vec<Device> {
    let health = if is_healthy { HEALTHY } else { UNHEALTHY };
    let device = |id: u16| Device {
        id: id.to_string(),
        health: health.to_owned(),
        topology: None,
    };
    (0..number).map(device).collect()
}

/// The devices of a resource.
#[derive(Debug)]
pub(super) struct Plugin {
    pub(super) resource: String,
    pub(super) devices: watch::Receiver<Vec<Device>>,
    pub(super) directories: Directories,
    /// A container gets the directory of their maps too.
    pub(super) has_maps: bool,
}

impl Plugin {
    fn mounts(&self, device: &str) -> Result<Vec<Mount>, String> {
        if !self.devices.borrow().iter().any(|known| known.id == device) {
            return Err(format!("{} has no device {device}", self.resource));
        }
        let (resource, directories) = (&self.resource, &self.directories);
        let made = directories.renew(resource, device);
        let mut mounts = vec![Mount {
            container_path: resource::in_container(resource, device),
            host_path: text(made, || directories.path(resource, device))?,
            read_only: false,
        }];
        if self.has_maps {
            let made = directories.renew_map(resource, device);
            mounts.push(Mount {
                container_path: resource::map_in_container(resource, device),
                host_path: text(made, || directories.of_map(resource, device))?,
                // A map is opened for writing where it is pinned, which takes a mount that can be written;
                // what is in it only the agent can change.
                read_only: false,
            });
        }
        Ok(mounts)
    }
}

fn text(made: io::Result<PathBuf>, path: impl FnOnce() -> PathBuf) -> Result<String, String> {
    let made =
        made.map_err(|error| format!("cannot make directory {}: {error}", path().display()))?;
    let text = made.into_os_string().into_string();
    text.map_err(|path| format!("{} is no text", path.display()))
}

impl DevicePlugin for Plugin {
    fn devices(&self) -> watch::Receiver<Vec<Device>> {
        self.devices.clone()
    }

    /// The lowest numbers, so that what a pod gets can be foreseen.
    fn preferred(&self, request: &ContainerPreferredAllocationRequest) -> Vec<String> {
        let mut free: Vec<&String> = request
            .available_device_ids
            .iter()
            .filter(|id| !request.must_include_device_ids.contains(id))
            .collect();
        free.sort_unstable_by(|one, other| in_order(one, other));
        let number = usize::try_from(request.allocation_size).unwrap_or(0);
        let all = request.must_include_device_ids.iter().chain(free);
        all.take(number).cloned().collect()
    }

    fn allocate(&self, devices: &[String]) -> Result<ContainerAllocateResponse, String> {
        let mut devices: Vec<&str> = devices.iter().map(String::as_str).collect();
        devices.sort_unstable_by(|one, other| in_order(one, other));
        let mounts: Result<Vec<_>, String> = devices.iter().map(|id| self.mounts(id)).collect();
        let mounts = mounts.inspect_err(|why| {
            tracing::error!(
                resource = self.resource,
                why,
                "the devices are not given to the container"
            );
        })?;
        tracing::info!(
            resource = self.resource,
            ?devices,
            "the devices are given to a container"
        );
        Ok(ContainerAllocateResponse {
            envs: HashMap::from([(resource::variable(&self.resource), devices.join(","))]),
            mounts: mounts.into_iter().flatten().collect(),
            ..ContainerAllocateResponse::default()
        })
    }
}
