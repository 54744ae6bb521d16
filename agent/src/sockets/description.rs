//! What a pod's programs have to be told of a port that is a socket: a JSON file beside it.

use api::InterfaceKind;
use datapath::SHARED_MAP;
use serde_json::{Value, json};
use world::resource;

use crate::record::{Attachment, Device};
use crate::{afxdp, switch};

/// The file, beside the socket: for an interface called net1, `net1.json`.
pub(super) fn file(record: &Attachment) -> String {
    format!("{}.json", record.key.ifname)
}

/// Everything that a program needs, and what is to be typed for programs that are well known. Addresses
/// are for the program to use: a port without an interface has no stack of the kernel.
pub(super) fn describe(record: &Attachment) -> Value {
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
    let more = match record.interface.kind {
        InterfaceKind::Veth => json!({}),
        InterfaceKind::Memif => memif(record),
        InterfaceKind::AfXdp => af_xdp(record),
    };
    if let (Some(told), Value::Object(more)) = (told.as_object_mut(), more) {
        told.extend(more);
    }
    told
}

/// The directory of a device, as its container sees it.
fn mounted(device: &Device) -> String {
    resource::in_container(&device.resource, &device.id)
}

fn memif(record: &Attachment) -> Value {
    let (name, mac) = (switch::name_in_pod(&record.key.ifname), record.mac);
    json!({
        "memif": {"id": 0, "role": "client", "abstract": name, "path": path(record, switch::FILE)},
        "dpdk": format!("--vdev=net_memif0,role=client,id=0,socket={name},mac={mac}"),
        "vpp": [
            format!("create memif socket id 1 filename abstract:{name}"),
            format!("create interface memif id 0 socket-id 1 slave no-zero-copy hw-addr {mac}"),
        ],
    })
}

fn af_xdp(record: &Attachment) -> Value {
    let (ifname, path) = (&record.key.ifname, path(record, afxdp::FILE));
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

/// The socket file as the pod's container sees it; none where nothing is mounted for it.
pub(crate) fn path(record: &Attachment, file: &str) -> Option<String> {
    let device = record.device.as_ref()?;
    Some(format!("{}/{file}", mounted(device)))
}

#[cfg(test)]
mod tests {
    use api::{Interface, Mode};

    use super::*;
    use crate::samples;

    fn record(kind: InterfaceKind, device: Option<&str>) -> Attachment {
        let network = samples::network("blue", Mode::L3, &[("10.10.0.0/24", "10.10.0.1")]);
        samples::record(&network, |wanted| {
            wanted.mac = Some((agent_common::addr::MacAddr([2, 0, 0, 0, 0, 7]), "test"));
            wanted.interface = Interface { kind, queues: 2 };
            wanted.device = device.map(|id| Device {
                resource: "podnet.dev/blue".to_owned(),
                id: id.to_owned(),
            });
        })
    }

    #[test]
    fn programs_are_told_what_to_type_and_where_the_socket_is_in_their_container() {
        let told = describe(&record(InterfaceKind::Memif, Some("3")));
        assert_eq!(told["type"], "Memif");
        assert_eq!(told["addresses"], json!(["10.10.0.2/32"]));
        assert_eq!(told["memif"]["path"], "/run/podnet/blue/3/memif.sock");
        let dpdk = "--vdev=net_memif0,role=client,id=0,socket=podnet/net1,mac=02:00:00:00:00:07";
        assert_eq!(told["dpdk"], dpdk);
        let told = describe(&record(InterfaceKind::AfXdp, Some("3")));
        let dpdk = "--vdev=net_af_xdp0,iface=net1,use_cni=1,dp_path=/run/podnet/blue/3/afxdp.sock,\
                    start_queue=0,queue_count=2";
        assert_eq!(told["dpdk"], dpdk);
        assert_eq!(told["afxdp"]["map"], "/run/podnet/blue/3.map/xsks_map");
    }

    #[test]
    fn without_a_device_there_is_the_name_in_the_pods_namespace() {
        let told = describe(&record(InterfaceKind::Memif, None));
        assert_eq!(told["memif"]["path"], Value::Null);
        assert_eq!(told["memif"]["abstract"], "podnet/net1");
        let told = describe(&record(InterfaceKind::AfXdp, None));
        assert_eq!(told["dpdk"], Value::Null, "DPDK goes by a file");
        assert_eq!(file(&record(InterfaceKind::AfXdp, None)), "net1.json");
    }
}
