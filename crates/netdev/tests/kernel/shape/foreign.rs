//! Queues that somebody else made, changed or took away.

use netdev::{Discipline, Error, RootQueue};
use netlink_packet_core::{
    DefaultNla, NLM_F_ACK, NLM_F_CREATE, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use super::{FAST, SLOW, disciplines};
use crate::{Scene, chain, pair};

/// `tc` as others use it: one request, which must succeed.
fn tc(scene: &Scene, message: RouteNetlinkMessage, flags: u16) {
    let mut message = NetlinkMessage::from(message);
    message.header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    let socket = scene
        .node
        .run_in(|| Socket::new(NETLINK_ROUTE))
        .expect("entered")
        .expect("a socket");
    socket
        .send_to(&bytes, &SocketAddr::new(0, 0), 0)
        .expect("sent");
    let (answer, _) = socket.recv_from_full().expect("an answer");
    let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&answer).expect("readable");
    match answer.payload {
        NetlinkPayload::Error(error) => assert_eq!(error.code, None, "{error:?}"),
        other => panic!("{other:?}"),
    }
}

fn message(ifindex: u32, handle: u32, parent: u32) -> TcMessage {
    let mut message = TcMessage::default();
    message.header.index = i32::try_from(ifindex).expect("a small number");
    message.header.handle = TcHandle::from(handle);
    message.header.parent = TcHandle::from(parent);
    message
}

/// `tc qdisc replace … parent PARENT handle HANDLE KIND limit 10`, for the FIFOs.
pub(super) fn add_queue(scene: &Scene, ifindex: u32, parent: u32, handle: u32, kind: &str) {
    let mut message = message(ifindex, handle, parent);
    let limit = 10u32.to_ne_bytes().to_vec();
    message.attributes = vec![
        TcAttribute::Kind(kind.to_owned()),
        TcAttribute::Other(DefaultNla::new(2, limit)),
    ];
    let request = RouteNetlinkMessage::NewQueueDiscipline(message);
    tc(scene, request, NLM_F_CREATE | NLM_F_REPLACE);
}

/// `tc qdisc del … parent PARENT`.
pub(super) fn delete_queue(scene: &Scene, ifindex: u32, parent: u32) {
    let request = RouteNetlinkMessage::DelQueueDiscipline(message(ifindex, 0, parent));
    tc(scene, request, 0);
}

/// `tc class del … classid CLASS`.
pub(super) fn delete_class(scene: &Scene, ifindex: u32, class: u32) {
    let request = RouteNetlinkMessage::DelTrafficClass(message(ifindex, class, 0));
    tc(scene, request, 0);
}

/// One thing that is not as we left it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wreck {
    Queue(u32),
    Class(u32),
    Foreign(u32, &'static str),
}

impl Wreck {
    pub(super) fn queue(parent: u32) -> Self {
        Self::Queue(parent)
    }

    pub(super) fn class(class: u32) -> Self {
        Self::Class(class)
    }

    pub(super) fn foreign(parent: u32, kind: &'static str) -> Self {
        Self::Foreign(parent, kind)
    }

    pub(super) fn make(self, scene: &Scene, ifindex: u32) {
        match self {
            Self::Queue(parent) => delete_queue(scene, ifindex, parent),
            Self::Class(class) => delete_class(scene, ifindex, class),
            Self::Foreign(parent, kind) => add_queue(scene, ifindex, parent, 0x7777_0000, kind),
        }
    }
}

const ROOT: u32 = 0xffff_ffff;

#[test]
fn a_foreign_root_is_named_and_left_alone() {
    let Some(scene) = Scene::set() else { return };
    let mut node = scene.node();
    let end = pair(&mut node).host_ifindex;
    add_queue(&scene, end, ROOT, 0x0001_0000, "pfifo");
    let foreign = RootQueue::Foreign {
        kind: "pfifo".to_owned(),
    };
    assert_eq!(node.shape_of(end).expect("an answer"), foreign);
    for discipline in disciplines(&scene) {
        let error = node.shape(end, &SLOW, discipline).expect_err("refused");
        assert!(matches!(error, Error::ForeignQueue { .. }), "{error:?}");
        assert_eq!(
            chain(&error),
            format!(
                "cannot limit the rate of link {end}: it has a root queueing discipline, pfifo, \
                 that is not podnet's; remove it with `tc qdisc del dev … root`"
            )
        );
    }
    node.unshape(end).expect("nothing of ours");
    assert_eq!(node.shape_of(end).expect("an answer"), foreign);
    delete_queue(&scene, end, ROOT);
    node.shape(end, &SLOW, Discipline::Fifo)
        .expect("made when it is gone");
}

#[test]
fn a_foreign_root_in_the_place_of_ours_is_noticed() {
    let Some(scene) = Scene::set() else { return };
    let mut node = scene.node();
    let end = pair(&mut node).host_ifindex;
    node.shape(end, &FAST, Discipline::Fifo).expect("made");
    // Even under our own number.
    delete_queue(&scene, end, ROOT);
    add_queue(&scene, end, ROOT, 0x0f0f_0000, "bfifo");
    let foreign = RootQueue::Foreign {
        kind: "bfifo".to_owned(),
    };
    assert_eq!(node.shape_of(end).expect("an answer"), foreign);
    node.unshape(end).expect("nothing of ours");
    assert_eq!(node.shape_of(end).expect("an answer"), foreign);
}

#[test]
fn one_list_has_the_queue_of_every_device_as_a_look_at_each_has() {
    let Some(scene) = Scene::set() else { return };
    for discipline in disciplines(&scene) {
        let mut node = scene.node();
        let mut ends = Vec::new();
        for name in ["one", "two", "three"] {
            let spec = netdev::VethSpec::new(name, &format!("{name}p"));
            ends.push(node.create_veth(&spec).expect("a pair").host_ifindex);
        }
        node.shape(ends[0], &SLOW, discipline).expect("made");
        add_queue(&scene, ends[1], 0xffff_ffff, 0x0001_0000, "pfifo");
        let queues = node.root_queues().expect("a list");
        for end in &ends {
            let listed = queues.get(end).cloned().unwrap_or(RootQueue::Default);
            assert_eq!(listed, node.shape_of(*end).expect("an answer"));
        }
        assert_eq!(queues.keys().copied().collect::<Vec<_>>(), ends[..2]);
        for end in ends {
            node.delete(end).expect("deleted");
        }
    }
}
