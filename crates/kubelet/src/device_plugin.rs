//! Device plugins, `v1beta1`: who has devices listens on a socket in the kubelet's directory, tells the
//! kubelet its name, and is asked which devices there are, and what a container needs to use some.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use futures_util::StreamExt as _;
use prost::Message;
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;
use tonic::Status;

use crate::dial::{CallError, call};
use crate::server::{self, Answer};

/// The only version there is.
pub const VERSION: &str = "v1beta1";
/// The kubelet's own socket in its directory of device plugins.
pub const KUBELET_SOCKET: &str = "kubelet.sock";
/// The directory of device plugins in the kubelet's directory.
pub const DIRECTORY: &str = "device-plugins";
/// A device that can be used.
pub const HEALTHY: &str = "Healthy";
/// A device that no container gets now.
pub const UNHEALTHY: &str = "Unhealthy";

pub(crate) const REGISTER: &str = "/v1beta1.Registration/Register";
pub(crate) const OPTIONS: &str = "/v1beta1.DevicePlugin/GetDevicePluginOptions";
pub(crate) const LIST_AND_WATCH: &str = "/v1beta1.DevicePlugin/ListAndWatch";
pub(crate) const PREFERRED: &str = "/v1beta1.DevicePlugin/GetPreferredAllocation";
pub(crate) const ALLOCATE: &str = "/v1beta1.DevicePlugin/Allocate";
pub(crate) const PRE_START: &str = "/v1beta1.DevicePlugin/PreStartContainer";

/// Nothing.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Empty {}

/// What the kubelet may ask beside the rest.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct DevicePluginOptions {
    /// `PreStartContainer` before each start of a container.
    #[prost(bool, tag = "1")]
    pub pre_start_required: bool,
    /// `GetPreferredAllocation` before each `Allocate`.
    #[prost(bool, tag = "2")]
    pub get_preferred_allocation_available: bool,
}

/// Who has devices, and of what.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct RegisterRequest {
    /// [`VERSION`].
    #[prost(string, tag = "1")]
    pub version: String,
    /// File name of the socket, in the directory of device plugins.
    #[prost(string, tag = "2")]
    pub endpoint: String,
    /// The extended resource, as in `podnet.dev/blue`.
    #[prost(string, tag = "3")]
    pub resource_name: String,
    /// As `GetDevicePluginOptions` says.
    #[prost(message, optional, tag = "4")]
    pub options: Option<DevicePluginOptions>,
}

/// A device.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Device {
    /// Its name, at most 63 bytes; no other device of the resource has it on this node.
    #[prost(string, tag = "1")]
    pub id: String,
    /// [`HEALTHY`] or [`UNHEALTHY`].
    #[prost(string, tag = "2")]
    pub health: String,
}

/// All devices of a resource; sent anew with each change.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ListAndWatchResponse {
    /// The devices.
    #[prost(message, repeated, tag = "1")]
    pub devices: Vec<Device>,
}

/// Which devices containers would best have.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct PreferredAllocationRequest {
    /// One for each container.
    #[prost(message, repeated, tag = "1")]
    pub container_requests: Vec<ContainerPreferredAllocationRequest>,
}

/// Which devices a container would best have.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ContainerPreferredAllocationRequest {
    /// Those that are free, in no order, with those it must have.
    #[prost(string, repeated, tag = "1")]
    pub available: Vec<String>,
    /// Those it must have.
    #[prost(string, repeated, tag = "2")]
    pub must_include: Vec<String>,
    /// How many in all.
    #[prost(int32, tag = "3")]
    pub allocation_size: i32,
}

/// The answer to [`PreferredAllocationRequest`], in its order.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct PreferredAllocationResponse {
    /// One for each container.
    #[prost(message, repeated, tag = "1")]
    pub container_responses: Vec<ContainerPreferredAllocationResponse>,
}

/// The answer to [`ContainerPreferredAllocationRequest`].
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ContainerPreferredAllocationResponse {
    /// The devices.
    #[prost(string, repeated, tag = "1")]
    pub device_ids: Vec<String>,
}

/// Containers get devices.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct AllocateRequest {
    /// One for each container.
    #[prost(message, repeated, tag = "1")]
    pub container_requests: Vec<ContainerAllocateRequest>,
}

/// A container gets devices. Which one is not said.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ContainerAllocateRequest {
    /// The devices, in no order.
    #[prost(string, repeated, tag = "1")]
    pub device_ids: Vec<String>,
}

/// The answer to [`AllocateRequest`], in its order.
#[derive(Clone, PartialEq, Message)]
pub struct AllocateResponse {
    /// One for each container.
    #[prost(message, repeated, tag = "1")]
    pub container_responses: Vec<ContainerAllocateResponse>,
}

/// What a container needs to use its devices.
#[derive(Clone, PartialEq, Message)]
pub struct ContainerAllocateResponse {
    /// Its environment.
    #[prost(map = "string, string", tag = "1")]
    pub envs: HashMap<String, String>,
    /// Directories and files of the node.
    #[prost(message, repeated, tag = "2")]
    pub mounts: Vec<Mount>,
}

/// A directory or file of the node in a container.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Mount {
    /// Where the container has it.
    #[prost(string, tag = "1")]
    pub container_path: String,
    /// Where the node has it.
    #[prost(string, tag = "2")]
    pub host_path: String,
    /// The container cannot change it.
    #[prost(bool, tag = "3")]
    pub read_only: bool,
}

/// A container is about to start.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct PreStartContainerRequest {
    /// Its devices.
    #[prost(string, repeated, tag = "1")]
    pub device_ids: Vec<String>,
}

/// It may.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct PreStartContainerResponse {}

/// Who has the devices of a resource.
pub trait DevicePlugin: Send + Sync + 'static {
    /// All devices, now and with each change.
    fn devices(&self) -> watch::Receiver<Vec<Device>>;

    /// Which of the free devices a container would best have.
    fn preferred(&self, request: &ContainerPreferredAllocationRequest) -> Vec<String>;

    /// What a container needs to use these devices.
    ///
    /// # Errors
    /// Why it cannot have them, as the pod's Event will say.
    fn allocate(&self, devices: &[String]) -> Result<ContainerAllocateResponse, String>;
}

const fn options() -> DevicePluginOptions {
    DevicePluginOptions {
        pre_start_required: false,
        get_preferred_allocation_available: true,
    }
}

/// Tells the kubelet, whose socket is `kubelet`, that the devices of `resource` are had by whom listens
/// on the socket of this name beside it. The kubelet asks back at once.
///
/// # Errors
/// When the kubelet cannot be reached, or refuses.
pub async fn register(kubelet: &Path, resource: &str, endpoint: &str) -> Result<(), CallError> {
    let request = RegisterRequest {
        version: VERSION.to_owned(),
        endpoint: endpoint.to_owned(),
        resource_name: resource.to_owned(),
        options: Some(options()),
    };
    call::<_, Empty>(kubelet, REGISTER, request).await?;
    Ok(())
}

/// Answers the kubelet until `stop` says so or is gone; watches of the kubelet end then.
///
/// # Errors
/// When the socket fails.
pub async fn serve(
    listener: UnixListener,
    plugin: Arc<dyn DevicePlugin>,
    stop: watch::Receiver<bool>,
) -> io::Result<()> {
    let ending = stop.clone();
    let route = move |path: &str| {
        let (plugin, stop) = (Arc::clone(&plugin), ending.clone());
        match path {
            OPTIONS => server::unary(|_: Empty| Ok(options())),
            LIST_AND_WATCH => watch_devices(&*plugin, stop),
            PREFERRED => server::unary(move |asked: PreferredAllocationRequest| {
                let all = asked.container_requests.iter();
                let container_responses = all
                    .map(|one| ContainerPreferredAllocationResponse {
                        device_ids: plugin.preferred(one),
                    })
                    .collect();
                Ok(PreferredAllocationResponse {
                    container_responses,
                })
            }),
            ALLOCATE => server::unary(move |asked: AllocateRequest| {
                let all = asked.container_requests.iter();
                let container_responses = all
                    .map(|one| plugin.allocate(&one.device_ids))
                    .collect::<Result<_, String>>()
                    .map_err(Status::failed_precondition)?;
                Ok(AllocateResponse {
                    container_responses,
                })
            }),
            PRE_START => {
                server::unary(|_: PreStartContainerRequest| Ok(PreStartContainerResponse {}))
            }
            _ => Answer::Unknown,
        }
    };
    server::serve(listener, route, stop).await
}

fn watch_devices(plugin: &dyn DevicePlugin, mut stop: watch::Receiver<bool>) -> Answer {
    let lists = WatchStream::new(plugin.devices())
        .map(|devices| Ok(ListAndWatchResponse { devices }))
        .take_until(async move {
            // Either way it is time to stop.
            let _ = stop.wait_for(|stop| *stop).await;
        });
    server::stream::<Empty, _>(lists.boxed())
}
