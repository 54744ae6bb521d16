//! Description of an AF_XDP port for programs.

use book::record::Attachment;
use datapath::SHARED_MAP;
use serde_json::{Value, json};
use world::resource;

use crate::sockets::path_in_pod;

/// Name of the control socket in the directory of its port.
pub(crate) const FILE: &str = "afxdp.sock";

/// The part of the file next to the socket that is of this type.
pub(crate) fn describe(record: &Attachment) -> Value {
    let (ifname, path) = (&record.key.ifname, path_in_pod(record, FILE));
    let dpdk = path.as_ref().map(|path| {
        let queues = record.interface.queues;
        format!("--vdev=net_af_xdp0,iface={ifname},use_cni=1,dp_path={path},start_queue=0,queue_count={queues}")
    });
    let name = xsk::control::abstract_name(ifname.as_str()).to_string();
    let device = record.device.as_ref();
    let map = device.map(|device| {
        let directory = resource::map_in_container(&device.resource, &device.id);
        format!("{directory}/{SHARED_MAP}")
    });
    let pinned = map
        .as_ref()
        .map(|map| format!("--vdev=net_af_xdp0,iface={ifname},use_pinned_map=1,dp_path={map}"));
    json!({
        "afxdp": {"abstract": name, "path": path, "map": map},
        "dpdk": dpdk,
        "dpdkPinnedMap": pinned,
    })
}
