//! A kubelet for device plugins and agents: the real protocol over sockets.
//!
//! They are in a directory.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kubelet::device_plugin::{
    self, AllocateRequest, ContainerAllocateRequest, ContainerAllocateResponse, RegisterRequest,
};
use kubelet::peer::{self, Pods, Socket};
use kubelet::pod_resources::{self, ContainerDevices, ContainerResources, PodResources};
use tokio::runtime::Runtime;
use tokio::sync::mpsc::UnboundedReceiver;

/// Long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A kubelet that runs until it is dropped.
#[derive(Debug)]
pub struct Kubelet {
    dir: tempfile::TempDir,
    runtime: Runtime,
    pods: Arc<Pods>,
    heard: Mutex<UnboundedReceiver<RegisterRequest>>,
    _sockets: [Socket; 2],
}

impl Kubelet {
    /// Without pods.
    ///
    /// # Panics
    /// When its sockets cannot be made.
    #[expect(clippy::new_without_default, reason = "it starts something")]
    pub fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = { runtime }.worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let registry = dir.path().join(device_plugin::DIRECTORY);
        let registry = registry.join(device_plugin::KUBELET_SOCKET);
        let told = dir.path().join(pod_resources::SOCKET);
        for socket in [&registry, &told] {
            let around = socket.parent().expect("a directory");
            std::fs::create_dir_all(around).expect("a directory");
        }
        let pods = Arc::new(Pods::default());
        let guard = runtime.enter();
        let (registry, heard) = peer::registry(&registry).expect("a socket");
        let told = peer::pod_resources(&told, Arc::clone(&pods)).expect("a socket");
        drop(guard);
        Self {
            dir,
            runtime,
            pods,
            heard: Mutex::new(heard),
            _sockets: [registry, told],
        }
    }

    /// Its directory.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The resource that a device plugin registers next, and the plugin's socket.
    ///
    /// # Panics
    /// When none does.
    #[track_caller]
    pub fn registered(&self) -> (String, PathBuf) {
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let next = async { tokio::time::timeout(PATIENCE, heard.recv()).await };
        let request = self.runtime.block_on(next).expect("a registration");
        let request = request.expect("the socket is open");
        let socket = self
            .dir()
            .join(device_plugin::DIRECTORY)
            .join(request.endpoint);
        (request.resource_name, socket)
    }

    /// Gives devices to the container of a pod in namespace `default`.
    ///
    /// Its plugin says how.
    ///
    /// # Panics
    /// When the plugin does not.
    #[track_caller]
    pub fn allocate(
        &self,
        (resource, plugin): &(String, PathBuf),
        pod: &str,
        ids: &[&str],
    ) -> ContainerAllocateResponse {
        self.has(pod, resource, ids);
        let devices_ids = ids.iter().map(ToString::to_string).collect();
        let request = AllocateRequest {
            container_requests: vec![ContainerAllocateRequest { devices_ids }],
        };
        let answer = self.runtime.block_on(peer::allocate(plugin, request));
        let mut answers = answer.expect("devices").container_responses;
        answers.pop().expect("an answer for the container")
    }

    /// A pod in namespace `default` has devices from now on, of whatever plugin.
    pub fn has(&self, pod: &str, resource: &str, ids: &[&str]) {
        let devices = ContainerDevices {
            resource_name: resource.to_owned(),
            device_ids: ids.iter().map(ToString::to_string).collect(),
            topology: None,
        };
        let mut pods = self
            .pods
            .pods
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        pods.push(PodResources {
            name: pod.to_owned(),
            namespace: "default".to_owned(),
            containers: vec![ContainerResources {
                name: "c".to_owned(),
                devices: vec![devices],
                ..ContainerResources::default()
            }],
        });
    }
}
