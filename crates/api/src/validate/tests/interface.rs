//! Ports that are sockets.

use super::*;
use crate::{Interface, InterfaceKind, InterfaceSpec};

fn asks(kind: InterfaceKind, queues: Option<i64>) -> PodNetworkParametersSpec {
    PodNetworkParametersSpec {
        interface: Some(InterfaceSpec { kind, queues }),
        ..l2(&["10.0.0.0/8"])
    }
}

#[test]
fn a_port_is_an_interface_of_the_kernel_unless_something_else_is_said() {
    let of = |spec: &PodNetworkParametersSpec| network("blue", spec).unwrap().interface;
    assert_eq!(of(&l2(&[])), Interface::VETH);
    for kind in [InterfaceKind::AfXdp, InterfaceKind::Memif] {
        assert_eq!(of(&asks(kind, None)), Interface { kind, queues: 1 });
        assert_eq!(of(&asks(kind, Some(8))), Interface { kind, queues: 8 });
    }
}

#[test]
fn an_attachment_may_have_another_port_than_its_network_says() {
    let spec = AttachmentParametersSpec {
        interface: Some(InterfaceSpec {
            kind: InterfaceKind::Veth,
            queues: None,
        }),
        ..AttachmentParametersSpec::default()
    };
    let asked = |spec| attachment_request(spec).unwrap().interface;
    assert_eq!(asked(&spec), Some(Interface::VETH));
    assert_eq!(asked(&AttachmentParametersSpec::default()), None);
}

#[test]
fn queues_are_those_of_a_socket_and_not_more_than_a_port_has() {
    assert_eq!(
        refusal(&asks(InterfaceKind::Veth, Some(2))),
        "spec.interface.queues: a Veth interface has one queue; write type AFXDP or Memif, or \
         remove this field"
    );
    for found in [0, 9, -1, 1 << 40] {
        assert_eq!(
            refusal(&asks(InterfaceKind::Memif, Some(found))),
            format!("spec.interface.queues: {found} is not a number of queues; write 1 to 8")
        );
    }
}

#[test]
fn the_node_reaches_pods_by_interfaces_only() {
    let spec = PodNetworkParametersSpec {
        mode: Mode::L3,
        routing: Routing::Node,
        ..asks(InterfaceKind::AfXdp, None)
    };
    assert_eq!(
        refusal(&spec),
        "spec.interface: AFXDP is for networks that the nodes do not route for; write type Veth, \
         or routing Isolated"
    );
}
