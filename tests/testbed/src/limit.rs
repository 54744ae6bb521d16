//! Rate limits: requests for them, their queues, and traffic that exceeds them.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use agent_common::shape::{FLOW_MAJOR, FLOW_OTHER, FLOW_QUEUES};
use netdev::{Discipline, Flows, Netns, RootQueue, ShapeState};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_ECHO, NLM_F_EXCL, NLM_F_REPLACE, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage};
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::SndBufForce;
use serde_json::Value;

use crate::host::connection;
use crate::manifest;
use crate::netlink::{ask, change};
use crate::node::Node;
use crate::pod::{Pod, Port};
use crate::traffic;
use crate::wait::{self, PATIENCE};

/// Handle of a limit at the root of a link, by which podnet knows its own.
const LIMIT_MAJOR: u16 = 0x0f0f;
/// The attachment that a test makes for a limit.
const LIMITED: &str = "limited";
/// Headers of a datagram on the wire, IPv4: Ethernet, IP, UDP.
const UDP_HEADERS: u64 = 14 + 20 + 8;
/// UDP payload of a flood: 1,442 bytes with the headers of IPv4.
const DATAGRAM: usize = 1400;
/// Buffer of a flooding socket, bytes.
const BUFFER: usize = 32 << 20;

/// How this kernel limits rates; none if it cannot.
pub fn discipline() -> Option<Discipline> {
    static FOUND: OnceLock<Option<Discipline>> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let flows = Flows::new(FLOW_MAJOR, FLOW_QUEUES, FLOW_OTHER);
        netdev::shape_support(flows).expect("the kernel can be asked")
    })
}

/// The interfaces of a port in the node's namespace.
#[derive(Debug, Clone)]
pub struct Interfaces {
    /// Where what the pod receives waits.
    pub host: String,
    /// Where what the pod sends waits.
    pub near: String,
    /// Where it comes out.
    pub far: String,
}

impl Interfaces {
    /// By the names they are documented to have.
    ///
    /// # Panics
    /// If the host end is not there.
    pub fn of(node: &Node, port: &Port) -> Self {
        let ifindex = port.host_ifindex();
        let mut links = node.links().into_iter();
        let host = links.find(|link| link.ifindex == ifindex);
        Self::named(host.expect("the host end is there").name)
    }

    /// Of a port of any type, as the agent says.
    ///
    /// # Panics
    /// If it does not know the port.
    pub fn told(node: &Node, port: &Port) -> Self {
        let mut rows = node.get("attachments").into_iter();
        let row = rows.find(|row| {
            row["container"] == port.container.as_str() && row["ifname"] == port.ifname.as_str()
        });
        let row = row.expect("the agent has the attachment");
        let host = row["hostInterface"].as_str().expect("a name").to_owned();
        Self::named(host)
    }

    fn named(host: String) -> Self {
        let digits = host.strip_prefix("pn").expect("a host end's name");
        Self {
            near: format!("ps{digits}"),
            far: format!("pt{digits}"),
            host,
        }
    }
}

/// Index of a link of the node; none if there is no such link.
pub fn ifindex(node: &Node, name: &str) -> Option<u32> {
    let link = connection(node.netns()).by_name(name);
    link.expect("links can be read").map(|link| link.ifindex)
}

/// Returns the queue at the root of a link of the node.
///
/// # Panics
/// If there is no such link.
pub fn root(node: &Node, name: &str) -> RootQueue {
    let ifindex = ifindex(node, name).expect("the link is there");
    connection(node.netns())
        .shape_of(ifindex)
        .expect("queues can be read")
}

/// The limit of a link of the node.
///
/// # Panics
/// If it has none.
#[track_caller]
pub fn limit(node: &Node, name: &str) -> ShapeState {
    let root = root(node, name);
    let state = match &root {
        RootQueue::Ours(state) => Some(*state),
        RootQueue::Default | RootQueue::Foreign { .. } => None,
    };
    state.unwrap_or_else(|| unreachable!("{name} has no limit but {root:?}"))
}

/// A configuration with this `runtimeConfig.bandwidth`.
pub fn conf(node: &Node, network: &str, bandwidth: &Value) -> Value {
    let mut conf = node.conf(network);
    conf["runtimeConfig"]["bandwidth"] = bandwidth.clone();
    conf
}

/// Attaches to `blue` with a limit for each direction, by a manifest of its own.
///
/// # Panics
/// If it cannot be made.
pub fn attach_by_manifest(node: &Node, pod: &Pod<'_>, interface: &str, rate: u64) -> Port {
    write_manifest(node, interface, rate);
    let conf = node.attachment_conf("blue", &format!("default/{LIMITED}"));
    wait::until("the manifest to be read", || {
        let outcome = pod.add_conf(&conf, "net1");
        outcome
            .success
            .then(|| pod.port("blue", "net1", outcome.result()))
    })
}

/// Changes the limit of [`attach_by_manifest`], and waits until it is in force.
///
/// # Panics
/// If that does not happen.
pub fn change_by_manifest(node: &Node, port: &Port, interface: &str, rate: u64) {
    write_manifest(node, interface, rate);
    let names = Interfaces::told(node, port);
    wait::until_true("the new rate", || {
        let rates = [&names.near, &names.host].map(|name| limit(node, name).shape.rate * 8);
        rates == [rate; 2]
    });
}

fn write_manifest(node: &Node, interface: &str, rate: u64) {
    let spec =
        format!("{{interface: {{type: {interface}}}, ingressRate: {rate}, egressRate: {rate}}}");
    let text = manifest::attachment(LIMITED, "blue", &spec);
    node.write_manifest(&format!("{LIMITED}.yaml"), &text);
}

/// Bytes that got through, and the time they had at least.
#[derive(Debug, Clone, Copy)]
pub struct Delivered {
    /// Bytes on the wire.
    pub bytes: u64,
    /// Time from before the first was sent to after the last was received.
    ///
    /// A slow machine makes it longer and the rate only smaller.
    pub within: Duration,
}

impl Delivered {
    /// Fails the test if this is more than twice the bytes of a limit, `rate` in bit/s.
    ///
    /// That is far more than bursts and headers amount to, and far less than goes through without a
    /// limit.
    ///
    /// # Panics
    /// Then.
    #[track_caller]
    pub fn assert_limited(&self, rate: u64) {
        let bits = u128::from(self.bytes) * 8 * 1_000_000;
        let micros = self.within.as_micros();
        let found = bits / micros.max(1);
        assert!(
            found < 2 * u128::from(rate),
            "{found} bit/s of {rate}: {self:?}"
        );
    }
}

/// Floods a pod with datagrams until `bytes` have arrived.
///
/// # Panics
/// If nothing arrives any more.
#[track_caller]
pub fn flood(a: &Port, from: IpAddr, b: &Port, to: IpAddr, bytes: u64) -> Delivered {
    let (source, sink) = (traffic::udp(a, from), traffic::udp(b, to));
    let target = sink.local_addr().expect("a bound socket has an address");
    source.connect(target).expect("UDP can be connected");
    pour(&source, &sink, bytes)
}

/// The same to somebody who sends all of it back, until so much has come back.
///
/// # Panics
/// As [`flood`].
#[track_caller]
pub fn flood_echo(a: &Port, echo: SocketAddr, bytes: u64) -> Delivered {
    let socket = traffic::udp(a, a.v4().into());
    socket.connect(echo).expect("UDP can be connected");
    pour(&socket, &socket, bytes)
}

#[track_caller]
fn pour(source: &UdpSocket, sink: &UdpSocket, bytes: u64) -> Delivered {
    // Else the socket waits with its sender, and the queue never overflows.
    setsockopt(source, SndBufForce, &BUFFER).expect("a larger buffer");
    let done = AtomicBool::new(false);
    let started = Instant::now();
    let mut arrived = 0;
    thread::scope(|scope| {
        scope.spawn(|| {
            let datagram = [0; DATAGRAM];
            while !done.load(Ordering::Relaxed) {
                // With its buffer full the sender waits or is refused, as the kernel likes.
                let _ = source.send(&datagram);
            }
        });
        let mut buffer = [0; DATAGRAM];
        while arrived < bytes {
            let Ok(length) = sink.recv(&mut buffer) else {
                break;
            };
            arrived += u64::try_from(length).expect("a length") + UDP_HEADERS;
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(arrived >= bytes, "the flood ran dry after {arrived} bytes");
    Delivered {
        bytes: arrived,
        within: started.elapsed(),
    }
}

/// Sends so many bytes over one TCP connection.
///
/// # Panics
/// If they do not arrive.
#[track_caller]
pub fn tcp(a: &Port, b: &Port, to: IpAddr, bytes: usize) -> Delivered {
    let started = Instant::now();
    let sent = transfer(a, b, to, bytes);
    assert!(sent.is_ok(), "TCP to {to}: {sent:?}");
    Delivered {
        bytes: u64::try_from(bytes).expect("a length"),
        within: started.elapsed(),
    }
}

fn transfer(a: &Port, b: &Port, to: IpAddr, bytes: usize) -> io::Result<()> {
    let inside = "the pod's namespace can be entered";
    let listener = b.netns.run_in(|| TcpListener::bind((to, 0)));
    let listener = listener.expect(inside)?;
    let target = listener.local_addr()?;
    let connected = a
        .netns
        .run_in(|| TcpStream::connect_timeout(&target, PATIENCE));
    let mut stream = connected.expect(inside)?;
    let (mut sink, _) = listener.accept()?;
    sink.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    thread::scope(|scope| {
        let sender = scope.spawn(move || stream.write_all(&vec![7; bytes]));
        let mut received = vec![0; bytes];
        sink.read_exact(&mut received)?;
        assert!(
            received.iter().all(|byte| *byte == 7),
            "TCP carries what was sent"
        );
        sender.join().expect("the sender does not panic")
    })
}

/// Puts a `pfifo` at the root of a link: `tc qdisc add dev NAME root pfifo`.
///
/// # Panics
/// When the kernel refuses.
pub fn add_foreign_queue(netns: &Netns, ifindex: u32) {
    let mut message = root_of(ifindex);
    message.attributes = vec![TcAttribute::Kind("pfifo".to_owned())];
    let flags = NLM_F_CREATE | NLM_F_EXCL;
    change(
        netns,
        RouteNetlinkMessage::NewQueueDiscipline(message),
        flags,
    );
}

/// Replaces the root queue of a link by a `pfifo`.
///
/// As `tc qdisc replace dev NAME root pfifo` does: in one request, so that no other gets between.
///
/// # Panics
/// When the kernel refuses.
pub fn add_foreign_queue_instead(netns: &Netns, ifindex: u32) {
    let mut message = root_of(ifindex);
    message.attributes = vec![TcAttribute::Kind("pfifo".to_owned())];
    let flags = NLM_F_CREATE | NLM_F_REPLACE;
    change(
        netns,
        RouteNetlinkMessage::NewQueueDiscipline(message),
        flags,
    );
}

/// Removes the queue inside a limit at a link's root; packets are dropped then.
///
/// # Panics
/// When the kernel refuses.
pub fn remove_inner_queue(netns: &Netns, ifindex: u32) {
    let mut message = root_of(ifindex);
    message.header.parent = TcHandle {
        major: LIMIT_MAJOR,
        minor: 1,
    };
    change(netns, RouteNetlinkMessage::DelQueueDiscipline(message), 0);
}

/// Takes away what is at the root of a link, as `tc qdisc del dev NAME root` does.
///
/// # Panics
/// When the kernel refuses.
pub fn remove_queue(netns: &Netns, ifindex: u32) {
    change(
        netns,
        RouteNetlinkMessage::DelQueueDiscipline(root_of(ifindex)),
        0,
    );
}

/// Packets that have left what is at the root of a link, whatever that is.
///
/// # Panics
/// When the kernel does not tell.
pub fn sent_through(netns: &Netns, ifindex: u32) -> u64 {
    let mut message = root_of(ifindex);
    message.header.info = 0;
    let echo = RouteNetlinkMessage::GetQueueDiscipline(message);
    let answer = ask(netns, echo, NLM_F_ECHO);
    let NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewQueueDiscipline(found)) = answer
    else {
        unreachable!("no queueing discipline but {answer:?}");
    };
    let counts = found
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            TcAttribute::Stats(counts) => Some(counts.packets),
            _ => None,
        });
    counts.expect("a queueing discipline counts").into()
}

fn root_of(ifindex: u32) -> TcMessage {
    let mut message = TcMessage::default();
    message.header.index = i32::try_from(ifindex).expect("a small index");
    message.header.parent = TcHandle::ROOT;
    message
}
