//! Description of a port of type Memif for programs.

use api::RawJson;
use book::record::Attachment;
use cni_spec::IfName;
use serde_json::{Value, json};

use crate::sockets::path_in_pod;

/// Of the socket of a port.
pub(crate) const FILE: &str = "memif.sock";

/// The name that a pod's own programs connect to, without a file: `podnet/IFNAME`.
pub(super) fn name_in_pod(ifname: &IfName) -> String {
    format!("podnet/{ifname}")
}

/// The part of the file next to the socket that is of this type.
pub(crate) fn describe(record: &Attachment) -> Value {
    let (name, mac) = (name_in_pod(&record.key.ifname), record.mac);
    json!({
        "memif": {"id": 0, "role": "client", "abstract": name, "path": path_in_pod(record, FILE)},
        "dpdk": format!("--vdev=net_memif0,role=client,id=0,socket={name},mac={mac}"),
        "vpp": [
            format!("create memif socket id 1 filename abstract:{name}"),
            format!("create interface memif id 0 socket-id 1 slave no-zero-copy hw-addr {mac}"),
        ],
    })
}

/// Describes the port as `device-info` of its status does (device-info 1.1.0).
///
/// The path is as the pod's programs see it, and without a device the name without a file, as libmemif
/// writes it; the role is that of the pod.
pub(crate) fn device_info(record: &Attachment) -> Option<RawJson> {
    record.is_switched().then_some(())?;
    let by_name = || format!("@{}", name_in_pod(&record.key.ifname));
    let info = json!({
        "type": "memif",
        "version": "1.1.0",
        "memif": {
            "role": "slave",
            "path": path_in_pod(record, FILE).unwrap_or_else(by_name),
            "mode": "ethernet",
        },
    });
    // It is JSON by its type.
    RawJson::parse(&info.to_string()).ok()
}
