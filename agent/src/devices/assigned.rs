//! Which device is for which attachment.
//!
//! The kubelet knows which devices each container has, and says so in no order. Attachments take them in
//! one that is the same each time it is asked: containers as the pod lists them, and in each the devices
//! by their names, numbers in them counted (`2` before `10`). The first attachment of a resource takes
//! the first device.

use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};

use ::kubelet::CallError;
use ::kubelet::pod_resources::PodResources;
use api::{RawJson, RawObject};

/// The kubelet does not say which devices a pod has.
#[derive(Debug, thiserror::Error)]
#[error("the kubelet does not say which devices pod {namespace}/{name} has")]
pub struct AssignedError {
    /// Namespace of the pod.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Why not.
    pub source: CallError,
}

/// The devices of a pod that no attachment has taken yet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Assigned(BTreeMap<String, VecDeque<String>>);

impl Assigned {
    /// Devices of a pod by resource, in the order of the kubelet's answer.
    pub fn new(pod: &PodResources) -> Self {
        let mut all: BTreeMap<String, VecDeque<String>> = BTreeMap::new();
        for container in &pod.containers {
            let mut of_container: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
            for devices in &container.devices {
                let ids = of_container.entry(&devices.resource_name).or_default();
                ids.extend(devices.device_ids.iter().map(String::as_str));
            }
            for (resource, mut ids) in of_container {
                ids.sort_unstable_by(|one, other| in_order(one, other));
                let taken = all.entry(resource.to_owned()).or_default();
                for id in ids {
                    // A container gets what one before it, which has ended, had.
                    if !taken.iter().any(|known| known == id) {
                        taken.push_back(id.to_owned());
                    }
                }
            }
        }
        Self(all)
    }

    /// The next device of a resource.
    pub fn take(&mut self, resource: &str) -> Option<String> {
        self.0.get_mut(resource)?.pop_front()
    }

    /// Takes a named device of a resource; false when the pod does not have it.
    pub fn take_named(&mut self, resource: &str, id: &str) -> bool {
        let Some(left) = self.0.get_mut(resource) else {
            return false;
        };
        let before = left.len();
        left.retain(|known| known != id);
        left.len() < before
    }
}

/// Device that a configuration names, in `runtimeConfig` or at its top (NPWG-X2).
///
/// Another program that has asked the kubelet puts it there. It comes before the kubelet's own answer.
pub fn named(config: &RawObject) -> Option<String> {
    let text = |value: &RawJson| value.read().ok().filter(|id: &String| !id.is_empty());
    let of_runtime = config.get("runtimeConfig").and_then(|runtime| {
        let runtime: RawObject = runtime.read().ok()?;
        text(runtime.get("deviceID")?)
    });
    of_runtime.or_else(|| text(config.get("deviceID")?))
}

/// By parts: numbers by their value, everything else by its bytes.
pub(crate) fn in_order(one: &str, other: &str) -> Ordering {
    let (mut one, mut other) = (one, other);
    loop {
        let (first, second) = (part(&mut one), part(&mut other));
        let (Some(first), Some(second)) = (first, second) else {
            return first.cmp(&second);
        };
        let is_number = |part: &str| part.starts_with(|c: char| c.is_ascii_digit());
        let order = if is_number(first) && is_number(second) {
            let digits = |part: &str| part.trim_start_matches('0').len();
            let values = (
                first.trim_start_matches('0'),
                second.trim_start_matches('0'),
            );
            let by_length = digits(first).cmp(&digits(second));
            by_length
                .then(values.0.cmp(values.1))
                .then(first.cmp(second))
        } else {
            first.cmp(second)
        };
        if order.is_ne() {
            return order;
        }
    }
}

/// Takes the digits, or what is no digit, from the beginning of a name.
fn part<'a>(rest: &mut &'a str) -> Option<&'a str> {
    let is_digit = rest.chars().next()?.is_ascii_digit();
    let end = rest.find(|c: char| c.is_ascii_digit() != is_digit);
    let (part, left) = rest.split_at(end.unwrap_or(rest.len()));
    *rest = left;
    Some(part)
}

#[cfg(test)]
mod tests {
    use ::kubelet::pod_resources::{ContainerDevices, ContainerResources};

    use super::*;

    fn container(devices: &[(&str, &[&str])]) -> ContainerResources {
        ContainerResources {
            name: "c".to_owned(),
            devices: devices
                .iter()
                .map(|(resource, ids)| ContainerDevices {
                    resource_name: (*resource).to_owned(),
                    device_ids: ids.iter().map(ToString::to_string).collect(),
                    topology: None,
                })
                .collect(),
            ..ContainerResources::default()
        }
    }

    fn pod(containers: Vec<ContainerResources>) -> PodResources {
        PodResources {
            name: "web".to_owned(),
            namespace: "shop".to_owned(),
            containers,
        }
    }

    fn all(mut assigned: Assigned, resource: &str) -> Vec<String> {
        std::iter::from_fn(|| assigned.take(resource)).collect()
    }

    /// DP-6, S003-09: the kubelet keeps devices in a set.
    #[test]
    fn attachments_take_devices_in_the_same_order_whatever_the_kubelets_is() {
        let first = container(&[
            ("podnet.dev/blue", &["10", "2"]),
            ("podnet.dev/red", &["0"]),
            ("podnet.dev/blue", &["1"]),
        ]);
        let second = container(&[("podnet.dev/blue", &["0", "10"])]);
        let assigned = Assigned::new(&pod(vec![first, second]));
        assert_eq!(
            all(assigned.clone(), "podnet.dev/blue"),
            ["1", "2", "10", "0"]
        );
        assert_eq!(all(assigned.clone(), "podnet.dev/red"), ["0"]);
        assert_eq!(all(assigned, "podnet.dev/green"), [""; 0]);
        proof::of!("DP-6", "S003-09", "PAIN-DEV-1");
    }

    #[test]
    fn a_device_that_is_taken_by_its_name_is_not_given_again() {
        let mut assigned = Assigned::new(&pod(vec![container(&[("r", &["0", "1", "2"])])]));
        assert!(assigned.take_named("r", "1"));
        assert!(!assigned.take_named("r", "1"));
        assert!(!assigned.take_named("other", "0"));
        assert_eq!(all(assigned, "r"), ["0", "2"]);
    }

    #[test]
    fn numbers_in_names_are_counted() {
        let mut ids = [
            "a",
            "0000:04:10.0",
            "0000:04:02.10",
            "0000:04:02.2",
            "0000:04:02",
            "",
            "7b",
        ];
        ids.sort_unstable_by(|one, other| in_order(one, other));
        let expected = [
            "",
            "0000:04:02",
            "0000:04:02.2",
            "0000:04:02.10",
            "0000:04:10.0",
            "7b",
            "a",
        ];
        assert_eq!(ids, expected);
        // Two names are never the same.
        assert_eq!(in_order("007", "7"), Ordering::Less);
        let huge = "1".repeat(40);
        assert_eq!(
            in_order("9", &huge),
            Ordering::Less,
            "no number is too long"
        );
    }

    /// NPWG-X2: what Multus has found is not looked for again.
    #[test]
    fn a_device_that_the_configuration_names_comes_first() {
        let of = |text: &str| named(&serde_json::from_str(text).unwrap());
        let both = r#"{"deviceID": "top", "runtimeConfig": {"deviceID": "7"}}"#;
        assert_eq!(of(both).as_deref(), Some("7"));
        assert_eq!(of(r#"{"deviceID": "3"}"#).as_deref(), Some("3"));
        assert_eq!(of(r#"{"deviceID": "", "runtimeConfig": {}}"#), None);
        assert_eq!(of(r#"{"deviceID": 3}"#), None);
        proof::of!("NPWG-X2");
    }
}
