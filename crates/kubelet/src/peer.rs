//! The kubelet's side, for tests: takes registrations, asks device plugins.
//!
//! It tells what pods have, too.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::net::UnixListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tonic::{Status, Streaming};

use crate::device_plugin::{
    ALLOCATE, AllocateRequest, AllocateResponse, DevicePluginOptions, Empty,
    GET_DEVICE_PLUGIN_OPTIONS, GET_PREFERRED_ALLOCATION, LIST_AND_WATCH, ListAndWatchResponse,
    PreferredAllocationRequest, PreferredAllocationResponse, REGISTER, RegisterRequest,
};
use crate::dial::{CallError, call, follow};
use crate::pod_resources::{
    GET, GetPodResourcesRequest, GetPodResourcesResponse, LIST, ListPodResourcesRequest,
    ListPodResourcesResponse, PodResources,
};
use crate::server::{self, Answer};

/// A socket of the kubelet's; gone with this value.
#[derive(Debug)]
pub struct Socket {
    stop: watch::Sender<bool>,
    served: JoinHandle<io::Result<()>>,
}

impl Socket {
    /// Ends the kubelet; returns when no call is answered any more.
    ///
    /// The file stays, as with a kubelet that was killed.
    pub async fn close(self) {
        // Nobody can be left to hear it only if it is closed already.
        let _ = self.stop.send(true);
        self.served.abort();
        let _ = self.served.await;
    }
}

fn listen(
    socket: &Path,
    route: impl Fn(&str) -> Answer + Clone + Send + Sync + 'static,
) -> io::Result<Socket> {
    match std::fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(socket)?;
    let (stop, stopping) = watch::channel(false);
    let served = tokio::spawn(server::serve(listener, route, stopping));
    Ok(Socket { stop, served })
}

/// Takes registrations on `socket`, and passes them on.
///
/// # Errors
/// When the socket cannot be made.
pub fn registry(socket: &Path) -> io::Result<(Socket, mpsc::UnboundedReceiver<RegisterRequest>)> {
    let (heard, hear) = mpsc::unbounded_channel();
    let route = move |path: &str| {
        let heard = heard.clone();
        match path {
            REGISTER => server::unary(move |request: RegisterRequest| {
                let gone = |_| Status::unavailable("the receiver of registrations has ended");
                heard.send(request).map(|()| Empty {}).map_err(gone)
            }),
            _ => Answer::Unknown,
        }
    };
    Ok((listen(socket, route)?, hear))
}

/// Devices of the pods of a node, as a kubelet tells them.
#[derive(Debug, Default)]
pub struct Pods {
    /// Devices of each pod.
    pub pods: Mutex<Vec<PodResources>>,
    /// It can only be asked for all, as before Kubernetes 1.34.
    pub all_only: bool,
}

/// Tells on `socket` what pods have.
///
/// # Errors
/// When the socket cannot be made.
pub fn pod_resources(socket: &Path, pods: Arc<Pods>) -> io::Result<Socket> {
    let route = move |path: &str| {
        let pods = Arc::clone(&pods);
        let all_only = pods.all_only;
        let all = move || {
            pods.pods
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone()
        };
        match path {
            GET if all_only => server::unary(|_: GetPodResourcesRequest| {
                let off = Status::unknown("PodResources API Get method disabled");
                Err::<GetPodResourcesResponse, _>(off)
            }),
            GET => server::unary(move |asked: GetPodResourcesRequest| {
                let found = all()
                    .into_iter()
                    .find(|pod| pod.name == asked.pod_name && pod.namespace == asked.pod_namespace);
                let pod_resources = found.ok_or_else(|| Status::unknown("not found"))?;
                Ok(GetPodResourcesResponse {
                    pod_resources: Some(pod_resources),
                })
            }),
            LIST => server::unary(move |_: ListPodResourcesRequest| {
                Ok(ListPodResourcesResponse {
                    pod_resources: all(),
                })
            }),
            _ => Answer::Unknown,
        }
    };
    listen(socket, route)
}

/// Asks the device plugin at `socket` what it can do.
///
/// # Errors
/// When it does not answer.
pub async fn options(socket: &Path) -> Result<DevicePluginOptions, CallError> {
    call(socket, GET_DEVICE_PLUGIN_OPTIONS, Empty {}).await
}

/// Follows the devices of the device plugin at `socket`.
///
/// # Errors
/// When it does not answer.
pub async fn list_and_watch(socket: &Path) -> Result<Streaming<ListAndWatchResponse>, CallError> {
    follow(socket, LIST_AND_WATCH, Empty {}).await
}

/// Asks the device plugin at `socket` which devices would be best.
///
/// # Errors
/// When it does not answer.
pub async fn preferred(
    socket: &Path,
    request: PreferredAllocationRequest,
) -> Result<PreferredAllocationResponse, CallError> {
    call(socket, GET_PREFERRED_ALLOCATION, request).await
}

/// Gives devices of the device plugin at `socket` to containers.
///
/// # Errors
/// When it does not answer, or refuses.
pub async fn allocate(
    socket: &Path,
    request: AllocateRequest,
) -> Result<AllocateResponse, CallError> {
    call(socket, ALLOCATE, request).await
}
