//! Describes a port that is a socket to the pod's programs: a JSON file next to it.

use book::record::{Attachment, Device};
use serde_json::{Value, json};
use world::resource;

/// The file next to the socket: for an interface called net1, `net1.json`.
pub(crate) fn file(record: &Attachment) -> String {
    format!("{}.json", record.key.ifname)
}

/// Describes all that a program needs, with commands for well-known programs.
///
/// Addresses are for the program to use: a port without an interface has no stack of the kernel. `more` has
/// the fields of its kind of port.
pub(crate) fn describe(record: &Attachment, more: Value) -> Value {
    let addresses: Vec<String> = record
        .leases
        .iter()
        .map(|lease| format!("{}/{}", lease.address, record.prefix_len(lease)))
        .collect();
    let routes: Vec<Value> = record
        .routes()
        .iter()
        .map(|route| json!({"dst": route.to, "gw": route.via}))
        .collect();
    let mut told = json!({
        "interface": record.key.ifname,
        "network": record.network.name,
        "type": record.interface.kind,
        "queues": record.interface.queues,
        "mac": record.mac.to_string(),
        "mtu": record.network.mtu,
        "addresses": addresses,
        "routes": routes,
    });
    if let (Some(told), Value::Object(more)) = (told.as_object_mut(), more) {
        told.extend(more);
    }
    told
}

/// The directory of a device, as its container sees it.
fn mounted(device: &Device) -> String {
    resource::in_container(&device.resource, &device.id)
}

/// Path of the socket file in the pod's container; none where nothing is mounted.
pub(crate) fn path(record: &Attachment, file: &str) -> Option<String> {
    let device = record.device.as_ref()?;
    Some(format!("{}/{file}", mounted(device)))
}
