//! Choose the device of a single attachment's port.

use api::RawObject;
use book::ledger::Wanted;
use book::record::Device;
use world::resource;

use crate::devices::assigned;
use crate::error::AgentError;
use crate::node::Node;

/// Choose the device for the port of a request that names one network.
///
/// It is the one that the configuration names, else the pod's first that no other port has.
///
/// # Errors
/// When the kubelet does not tell, or says that the device is not the pod's.
pub(super) async fn choose(
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
