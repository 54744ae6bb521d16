//! What a pod's programs have to be told of a port that is a socket: a JSON file beside it.

use serde_json::{Value, json};
use world::resource;

use crate::record::{Attachment, Device};

/// The file, beside the socket: for an interface called net1, `net1.json`.
pub(crate) fn file(record: &Attachment) -> String {
    format!("{}.json", record.key.ifname)
}

/// Everything that a program needs, and what is to be typed for programs that are well known. Addresses
/// are for the program to use: a port without an interface has no stack of the kernel. `more` is what
/// its kind of port adds.
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

/// The socket file as the pod's container sees it; none where nothing is mounted for it.
pub(crate) fn path(record: &Attachment, file: &str) -> Option<String> {
    let device = record.device.as_ref()?;
    Some(format!("{}/{file}", mounted(device)))
}
