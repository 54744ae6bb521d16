//! Devices that the kubelet has given to a pod become its attachments' (NPWG-DI-5).

use api::RawObject;
use api::nad::PluginChain;
use api::selection::PodSelection;
use book::ledger::Wanted;
use book::record::{Decision, Device};
use delegate::device_info;
use world::World;
use world::resource;

use super::plan::Meant;
use crate::devices::assigned::Assigned;
use crate::error::AgentError;
use crate::node::Node;
use crate::request::Asked;

/// Device of an attachment that is counted by a resource, if the pod has one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Share {
    resource: Option<String>,
    device: Option<Device>,
}

impl Node {
    /// Assigns a device to each attachment that is counted, in the list's order.
    ///
    /// The kubelet is asked only about pods that could have some. Chains of other plugins get their
    /// device in their configurations.
    pub(super) async fn assign_devices(
        &self,
        world: &World,
        asked: Asked<'_>,
        selection: &PodSelection,
        meanings: &mut [Meant],
    ) -> Result<Vec<Share>, AgentError> {
        let targets = selection.attachments.iter().map(|one| &one.target);
        let resources: Vec<Option<String>> = targets
            .map(|target| resource::of_target(world, target))
            .collect();
        let pod = asked.invocation.args.pod();
        let Some(pod) = pod.filter(|_| resources.iter().any(Option::is_some)) else {
            return Ok(vec![Share::default(); resources.len()]);
        };
        let assigned = self.devices.of_pod(&pod.namespace, &pod.name).await?;
        let named = meanings.iter().map(|meant| match meant {
            Meant::Chain(chain) => device_info::device(chain),
            Meant::Native(_) => None,
        });
        let shares = share(assigned, resources.into_iter().zip(named));
        for (meant, share) in meanings.iter_mut().zip(&shares) {
            if let (Meant::Chain(chain), Some(device)) = (meant, &share.device) {
                tell(chain, device).map_err(|_| AgentError::DeviceUntold)?;
            }
        }
        Ok(shares)
    }
}

/// Gives attachments their devices.
///
/// An attachment whose configuration names a device has that one; the others take the rest, in order.
fn share(
    mut assigned: Assigned,
    wishes: impl Iterator<Item = (Option<String>, Option<String>)>,
) -> Vec<Share> {
    let wishes: Vec<_> = wishes.collect();
    for (resource, named) in &wishes {
        if let (Some(resource), Some(id)) = (resource, named) {
            assigned.take_named(resource, id);
        }
    }
    let device = |(resource, named): (Option<String>, Option<String>)| {
        let id = named.or_else(|| assigned.take(resource.as_deref()?));
        let device = resource.clone().zip(id);
        Share {
            resource,
            device: device.map(|(resource, id)| Device { resource, id }),
        }
    };
    wishes.into_iter().map(device).collect()
}

impl Share {
    /// Makes the port one of this device.
    ///
    /// An interface of the kernel needs none, and a device of another plugin has no directory here. A
    /// socket without a device has its file where only the node sees it.
    pub(super) fn give(&self, wanted: &mut Wanted) {
        let Some(resource) = self
            .resource
            .as_ref()
            .filter(|name| resource::is_ours(name))
        else {
            return;
        };
        if wanted.interface.is_veth() {
            return;
        }
        if let Some(device) = &self.device {
            wanted.give(device.clone());
        } else {
            let because = format!("the pod has no more of {resource}");
            let decision = Decision::new("device", "none", &because);
            wanted.decisions.push(decision);
        }
    }
}

/// Adds the device to configurations of plugins, as Multus does (NPWG-X2).
///
/// A key that the configuration has stays.
fn tell(chain: &mut PluginChain, device: &Device) -> Result<(), serde_json::Error> {
    for plugin in &mut chain.plugins {
        for key in device_info::DEVICE_KEYS {
            if plugin.config.get(key).is_none() {
                plugin.config.set(key, &device.id)?;
            }
        }
        if plugin.capabilities.get(device_info::DEVICE_CAPABILITY) == Some(&true) {
            let runtime = plugin.config.get("runtimeConfig");
            let mut runtime: RawObject = runtime
                .and_then(|value| value.read().ok())
                .unwrap_or_default();
            if runtime.get(device_info::DEVICE_CAPABILITY).is_none() {
                runtime.set(device_info::DEVICE_CAPABILITY, &device.id)?;
            }
            plugin.config.set("runtimeConfig", &runtime)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use ::kubelet::pod_resources::{ContainerDevices, ContainerResources, PodResources};
    use serde_json::{Value, json};

    use super::*;

    fn has(resource: &str, ids: &[&str]) -> Assigned {
        let devices = ContainerDevices {
            resource_name: resource.to_owned(),
            device_ids: ids.iter().map(ToString::to_string).collect(),
            topology: None,
        };
        Assigned::new(&PodResources {
            containers: vec![ContainerResources {
                name: "c".to_owned(),
                devices: vec![devices],
                ..ContainerResources::default()
            }],
            ..PodResources::default()
        })
    }

    /// NPWG-DI-5, S003-09
    #[test]
    fn attachments_get_devices_in_the_order_of_the_list_but_for_those_that_are_named() {
        let is = |text: &str| Some(text.to_owned());
        let wishes = [
            (is("r"), None),
            (None, None),
            (is("r"), is("2")),
            (is("other"), None),
            (is("r"), None),
            (is("r"), None),
        ];
        let given = share(has("r", &["10", "2", "1"]), wishes.into_iter());
        let given: Vec<Option<&str>> = given
            .iter()
            .map(|share| share.device.as_ref().map(|device| device.id.as_str()))
            .collect();
        assert_eq!(given, [Some("1"), None, Some("2"), None, Some("10"), None]);
        proof::of!("NPWG-DI-5", "S003-09");
    }

    /// NPWG-X2
    #[test]
    fn every_plugin_of_a_chain_is_told_its_device() {
        let list = r#"{"cniVersion": "1.0.0", "plugins": [
            {"type": "a"},
            {"type": "b", "pciBusID": "own", "capabilities": {"deviceID": true}},
            {"type": "c", "capabilities": {"deviceID": false}}]}"#;
        let mut chain = PluginChain::parse(list, "fast").unwrap();
        let device = Device {
            resource: "r".to_owned(),
            id: "0000:04:00.5".to_owned(),
        };
        tell(&mut chain, &device).unwrap();
        let told: Vec<Value> = chain
            .plugins
            .iter()
            .map(|plugin| serde_json::to_value(&plugin.config).unwrap())
            .collect();
        let id = json!("0000:04:00.5");
        assert_eq!(
            told[0],
            json!({"type": "a", "deviceID": id, "pciBusID": id})
        );
        assert_eq!(told[1]["pciBusID"], "own");
        assert_eq!(told[1]["runtimeConfig"], json!({"deviceID": id}));
        assert_eq!(told[2]["deviceID"], id);
        assert_eq!(told[2]["runtimeConfig"], Value::Null);
        proof::of!("NPWG-X2");
    }
}
