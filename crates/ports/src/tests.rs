use api::{Interface, Mode};
use book::record::Device;
use book::samples;

use super::*;

fn describe(record: &Attachment) -> Value {
    sockets::describe(record, told(record))
}

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

/// A packet of the MTU has room in one buffer, whatever the MTU.
///
/// Nothing is said where that is the usual one.
#[test]
fn on_jumbo_networks_programs_are_told_the_size_of_a_buffer() {
    for (mtu, buffer) in [
        (68, 0),
        (1500, 0),
        (2030, 0),
        (2031, 4096),
        (9000, 10_240),
        (65_517, 65_535),
    ] {
        let mut record = record(InterfaceKind::Memif, None);
        record.network.mtu = mtu;
        let told = describe(&record);
        let [dpdk, vpp] = [&told["dpdk"], &told["vpp"][1]].map(|it| it.as_str().unwrap());
        if buffer == 0 {
            assert!(dpdk.ends_with(",mac=02:00:00:00:00:07"), "{mtu}: {dpdk}");
            assert!(!vpp.contains("buffer"), "{mtu}: {vpp}");
            assert_eq!(told["memif"]["bufferSize"], 2048, "{mtu}");
        } else {
            assert!(dpdk.ends_with(&format!(",bsize={buffer}")), "{mtu}: {dpdk}");
            let vpp_size = format!(" socket-id 1 buffer-size {buffer} slave ");
            assert!(vpp.contains(&vpp_size), "{mtu}: {vpp}");
            assert_eq!(told["memif"]["bufferSize"], buffer, "{mtu}");
        }
    }
}

#[test]
fn without_a_device_there_is_the_name_in_the_pods_namespace() {
    let told = describe(&record(InterfaceKind::Memif, None));
    assert_eq!(told["memif"]["path"], Value::Null);
    assert_eq!(told["memif"]["abstract"], "podnet/net1");
    let told = describe(&record(InterfaceKind::AfXdp, None));
    assert_eq!(told["dpdk"], Value::Null, "DPDK goes by a file");
    assert_eq!(
        sockets::file(&record(InterfaceKind::AfXdp, None)),
        "net1.json"
    );
}
