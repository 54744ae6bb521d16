//! Description of a port of type Memif for programs.

use api::RawJson;
use book::record::Attachment;
use cni_spec::IfName;
use serde_json::{Value, json};

use crate::sockets::path_in_pod;

/// Of the socket of a port.
pub(crate) const FILE: &str = "memif.sock";

/// Bytes of a buffer that DPDK, VPP and libmemif have by default.
const BUFFER: u32 = 2048;
/// Bytes of a frame besides its packet: Ethernet header and tag.
const AROUND: u32 = 18;
/// Bytes of the longest buffer that they can have: a field of 16 bits.
const BUFFER_MAX: u32 = 65_535;

/// Returns the bytes of a buffer that has room for each frame of a network.
///
/// A multiple of the usual ones, as far as the field goes.
fn buffer(mtu: u32) -> u32 {
    let frame = mtu.saturating_add(AROUND);
    frame.next_multiple_of(BUFFER).min(BUFFER_MAX)
}

/// The name that a pod's own programs connect to, without a file: `podnet/IFNAME`.
pub(super) fn name_in_pod(ifname: &IfName) -> String {
    format!("podnet/{ifname}")
}

/// The part of the file next to the socket that is of this type.
pub(crate) fn describe(record: &Attachment) -> Value {
    let (name, mac) = (name_in_pod(&record.key.ifname), record.mac);
    let buffer = buffer(record.network.mtu.into());
    // Nothing that is usual, where it is enough.
    let (dpdk, vpp) = if buffer > BUFFER {
        (format!(",bsize={buffer}"), format!(" buffer-size {buffer}"))
    } else {
        (String::new(), String::new())
    };
    json!({
        "memif": {
            "id": 0,
            "role": "client",
            "abstract": name,
            "path": path_in_pod(record, FILE),
            "bufferSize": buffer,
        },
        "dpdk": format!("--vdev=net_memif0,role=client,id=0,socket={name},mac={mac}{dpdk}"),
        "vpp": [
            format!("create memif socket id 1 filename abstract:{name}"),
            format!("create interface memif id 0 socket-id 1{vpp} slave no-zero-copy hw-addr {mac}"),
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
