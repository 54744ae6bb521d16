//! Devices that the kubelet has given to a pod become its attachments'.

use api::selection::PodSelection;

use super::plan::{Asked, Planned};
use crate::devices::resource;
use crate::error::AgentError;
use crate::node::Node;
use crate::record::{Decision, Device};
use crate::world::World;

impl Node {
    /// In the order of the pod's list. An attachment without one has its socket where only the node
    /// sees the file.
    pub(super) async fn assign_devices(
        &self,
        world: &World,
        asked: Asked<'_>,
        selection: &PodSelection,
        planned: &mut [Planned],
    ) -> Result<(), AgentError> {
        let mut sockets: Vec<_> = selection
            .attachments
            .iter()
            .zip(planned)
            .filter_map(|(selected, planned)| {
                let (wanted, _) = planned.native.as_mut()?;
                let resource = resource::of_target(world, &selected.target)?;
                (!wanted.interface.is_veth()).then_some((wanted, resource))
            })
            .collect();
        let Some(pod) = asked.invocation.args.pod().filter(|_| !sockets.is_empty()) else {
            return Ok(());
        };
        let mut assigned = self.devices.of_pod(&pod.namespace, &pod.name).await?;
        for (wanted, resource) in &mut sockets {
            let Some(id) = assigned.take(resource) else {
                let because = format!("the pod has no more of {resource}");
                wanted
                    .decisions
                    .push(Decision::new("device", "none", &because));
                continue;
            };
            let because = format!("the kubelet has given it to the pod, of {resource}");
            wanted
                .decisions
                .push(Decision::new("device", &id, &because));
            wanted.device = Some(Device {
                resource: resource.clone(),
                id,
            });
        }
        Ok(())
    }
}
