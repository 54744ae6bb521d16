//! Which devices the containers of a node's pods have (`v1`).

use std::path::PathBuf;

use crate::dial::{CallError, call};
pub use crate::messages::v1::*;

/// The kubelet's socket, in its directory.
pub const SOCKET: &str = "pod-resources/kubelet.sock";

/// Asks the kubelet what pods have.
#[derive(Debug, Clone)]
pub struct PodResourcesClient {
    socket: PathBuf,
}

impl PodResourcesClient {
    /// Asks on this socket; nothing is asked yet.
    pub const fn new(socket: PathBuf) -> Self {
        Self { socket }
    }

    /// Returns a pod's devices; none for a pod that the kubelet does not know.
    ///
    /// # Errors
    /// When the kubelet does not answer.
    pub async fn pod(&self, namespace: &str, name: &str) -> Result<PodResources, CallError> {
        let request = GetPodResourcesRequest {
            pod_name: name.to_owned(),
            pod_namespace: namespace.to_owned(),
        };
        match call::<_, GetPodResourcesResponse>(&self.socket, GET, request).await {
            Ok(answer) => Ok(answer.pod_resources.unwrap_or_default()),
            // Before Kubernetes 1.34 this call is off. A pod that is not known is told the same way.
            Err(error) if error.is_unsupported() => {
                let request = ListPodResourcesRequest {};
                let answer: ListPodResourcesResponse = call(&self.socket, LIST, request).await?;
                let mut pods = answer.pod_resources.into_iter();
                let found = pods.find(|pod| pod.namespace == namespace && pod.name == name);
                Ok(found.unwrap_or_default())
            }
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use prost::Message as _;

    use super::*;
    use crate::device_plugin as v1beta1;
    use crate::peer;

    fn pod(name: &str, id: &str) -> PodResources {
        PodResources {
            name: name.to_owned(),
            namespace: "shop".to_owned(),
            containers: vec![ContainerResources {
                name: "c".to_owned(),
                devices: vec![ContainerDevices {
                    resource_name: "podnet.dev/blue".to_owned(),
                    device_ids: vec![id.to_owned()],
                    topology: None,
                }],
                ..ContainerResources::default()
            }],
        }
    }

    /// DP-6: also by a kubelet before Kubernetes 1.34, which tells of all pods only.
    #[tokio::test]
    async fn a_pods_devices_are_found_whatever_the_kubelet_can_be_asked() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("kubelet.sock");
        let client = PodResourcesClient::new(socket.clone());
        assert!(client.pod("shop", "web").await.is_err(), "no kubelet");
        for all_only in [false, true] {
            let pods = Mutex::new(vec![pod("other", "0"), pod("web", "1")]);
            let told = peer::pod_resources(&socket, Arc::new(peer::Pods { pods, all_only }));
            let told = told.unwrap();
            assert_eq!(client.pod("shop", "web").await.unwrap(), pod("web", "1"));
            let absent = client.pod("elsewhere", "web").await.unwrap();
            assert_eq!(absent, PodResources::default(), "that is another pod");
            told.close().await;
        }
        proof::of!("DP-6");
    }

    /// The bytes of a message as `api.proto` of the kubelet numbers its fields.
    #[test]
    fn fields_have_the_numbers_of_the_kubelets_protocol() {
        let text = |field: u8, text: &str| {
            let length = u8::try_from(text.len()).unwrap();
            [&[field << 3 | 2, length], text.as_bytes()].concat()
        };
        let inner = |field: u8, parts: &[Vec<u8>]| {
            let body = parts.concat();
            [
                &[field << 3 | 2, u8::try_from(body.len()).unwrap()],
                &body[..],
            ]
            .concat()
        };
        let devices = inner(2, &[text(1, "podnet.dev/blue"), text(2, "1")]);
        let container = inner(3, &[text(1, "c"), devices]);
        let expected = [text(1, "web"), text(2, "shop"), container].concat();
        assert_eq!(pod("web", "1").encode_to_vec(), expected);

        let request = v1beta1::RegisterRequest {
            version: "v1beta1".to_owned(),
            endpoint: "a.sock".to_owned(),
            resource_name: "podnet.dev/a".to_owned(),
            options: Some(v1beta1::DevicePluginOptions {
                pre_start_required: true,
                get_preferred_allocation_available: true,
            }),
        };
        let options = inner(4, &[vec![1 << 3, 1], vec![2 << 3, 1]]);
        let texts = [
            text(1, "v1beta1"),
            text(2, "a.sock"),
            text(3, "podnet.dev/a"),
            options,
        ];
        assert_eq!(request.encode_to_vec(), texts.concat());
        let list = v1beta1::ListAndWatchResponse {
            devices: vec![v1beta1::Device {
                id: "0".to_owned(),
                health: v1beta1::HEALTHY.to_owned(),
                topology: None,
            }],
        };
        assert_eq!(
            list.encode_to_vec(),
            inner(1, &[text(1, "0"), text(2, "Healthy")])
        );
        let given = v1beta1::AllocateResponse {
            container_responses: vec![v1beta1::ContainerAllocateResponse {
                envs: [("A".to_owned(), "0".to_owned())].into(),
                mounts: vec![v1beta1::Mount {
                    container_path: "/in".to_owned(),
                    host_path: "/out".to_owned(),
                    read_only: true,
                }],
                ..v1beta1::ContainerAllocateResponse::default()
            }],
        };
        let environment = inner(1, &[text(1, "A"), text(2, "0")]);
        let mount = inner(2, &[text(1, "/in"), text(2, "/out"), vec![3 << 3, 1]]);
        assert_eq!(given.encode_to_vec(), inner(1, &[environment, mount]));
    }
}
