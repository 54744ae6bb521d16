//! Device plugins, `v1beta1`: register with the kubelet and serve its calls.
//!
//! A plugin listens on a socket in the kubelet's directory, tells the kubelet its name, and is asked
//! which devices there are, and what a container needs to use some.

use std::io;
use std::path::Path;
use std::sync::Arc;

use futures_util::StreamExt as _;
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;
use tonic::Status;

use crate::dial::{CallError, call};
pub use crate::messages::v1beta1::*;
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

/// The holder of a resource's devices.
pub trait DevicePlugin: Send + Sync + 'static {
    /// All devices, now and with each change.
    fn devices(&self) -> watch::Receiver<Vec<Device>>;

    /// Which of the free devices a container would best have.
    fn preferred(&self, request: &ContainerPreferredAllocationRequest) -> Vec<String>;

    /// Returns the needs of a container that uses these devices.
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

/// Registers the socket `endpoint` with the kubelet as the plugin of `resource`.
///
/// The kubelet's socket is `kubelet`, and `endpoint` is in its directory. The kubelet asks back at once.
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

/// Answers the kubelet until `stop` is set or gone; its watches end then.
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
            GET_DEVICE_PLUGIN_OPTIONS => server::unary(|_: Empty| Ok(options())),
            LIST_AND_WATCH => watch_devices(&*plugin, stop),
            GET_PREFERRED_ALLOCATION => server::unary(move |asked: PreferredAllocationRequest| {
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
                    .map(|one| plugin.allocate(&one.devices_ids))
                    .collect::<Result<_, String>>()
                    .map_err(Status::failed_precondition)?;
                Ok(AllocateResponse {
                    container_responses,
                })
            }),
            PRE_START_CONTAINER => {
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
