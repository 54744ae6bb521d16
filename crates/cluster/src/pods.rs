//! Read what several processes need of a pod.

use k8s_openapi::api::core::v1::{ContainerPort, PodSpec};

/// Returns name, protocol and number of a pod's named ports.
///
/// Init containers have ports if they run beside the others.
pub fn named_ports(spec: &PodSpec) -> impl Iterator<Item = (&str, &str, u16)> {
    let init = spec.init_containers.iter().flatten();
    let init = init.filter(|it| it.restart_policy.as_deref() == Some("Always"));
    let containers = spec.containers.iter().chain(init);
    let ports = containers.flat_map(|it| it.ports.iter().flatten());
    ports.filter_map(|port: &ContainerPort| {
        let number = u16::try_from(port.container_port).ok()?;
        let protocol = port.protocol.as_deref().unwrap_or("TCP");
        Some((port.name.as_deref()?, protocol, number))
    })
}
