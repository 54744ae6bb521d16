//! Make Services as a cluster's proxy does: the node's stack translates addresses.
//!
//! Written to nf_tables with the bytes of linux/netfilter/nf_tables.h, because a VM has no tools.

use std::net::{IpAddr, SocketAddr};

use netdev::Netns;
use netlink_sys::protocols::NETLINK_NETFILTER;
use netlink_sys::{Socket, SocketAddr as NetlinkAddr};
use rustix::io::Errno;

const NESTED: u16 = 0x8000;
const TABLE: &str = "services";

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + value.len()).expect("a short attribute");
    let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn nested(kind: u16, parts: &[Vec<u8>]) -> Vec<u8> {
    attribute(kind | NESTED, &parts.concat())
}

fn text(kind: u16, text: &str) -> Vec<u8> {
    attribute(kind, format!("{text}\0").as_bytes())
}

fn number(kind: u16, number: u32) -> Vec<u8> {
    attribute(kind, &number.to_be_bytes())
}

fn expression(name: &str, data: &[Vec<u8>]) -> Vec<u8> {
    nested(1, &[text(1, name), nested(2, data)])
}

fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

/// Loads the source or the destination into register 1 and compares.
fn address_is(ip: IpAddr, source: bool) -> Vec<Vec<u8>> {
    let (offset, length) = match (ip, source) {
        (IpAddr::V4(_), true) => (12, 4),
        (IpAddr::V4(_), false) => (16, 4),
        (IpAddr::V6(_), true) => (8, 16),
        (IpAddr::V6(_), false) => (24, 16),
    };
    let load = [
        number(1, 1),
        number(2, 1),
        number(3, offset),
        number(4, length),
    ];
    let equal = [
        number(1, 1),
        number(2, 0),
        nested(3, &[attribute(1, &octets(ip))]),
    ];
    vec![expression("payload", &load), expression("cmp", &equal)]
}

/// Compares the destination port.
fn port_is(port: u16) -> Vec<Vec<u8>> {
    let load = [number(1, 1), number(2, 2), number(3, 2), number(4, 2)];
    let equal = [
        number(1, 1),
        number(2, 0),
        nested(3, &[attribute(1, &port.to_be_bytes())]),
    ];
    vec![expression("payload", &load), expression("cmp", &equal)]
}

fn immediate(register: u32, value: &[u8]) -> Vec<u8> {
    expression(
        "immediate",
        &[number(1, register), nested(2, &[attribute(1, value)])],
    )
}

fn destination_nat(to: SocketAddr) -> Vec<Vec<u8>> {
    // Registers of 16 bytes.
    let nat = [
        number(1, 1),
        number(2, family(to.ip()).into()),
        number(3, 1),
        number(5, 2),
    ];
    vec![
        immediate(1, &octets(to.ip())),
        immediate(2, &to.port().to_be_bytes()),
        expression("nat", &nat),
    ]
}

/// Family of tables and of translations, `NFPROTO_IPV4` or `NFPROTO_IPV6`.
fn family(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { 2 } else { 10 }
}

/// Messages of one batch.
struct Batch {
    family: u8,
    bytes: Vec<u8>,
    count: u32,
}

impl Batch {
    const fn of(family: u8) -> Self {
        Self {
            family,
            bytes: Vec::new(),
            count: 0,
        }
    }

    fn message(&mut self, kind: u16, flags: u16, family: u8, resource: u16, parts: &[Vec<u8>]) {
        self.count += 1;
        let parts = parts.concat();
        let length = u32::try_from(20 + parts.len()).expect("a short message");
        self.bytes.extend(length.to_ne_bytes());
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend(flags.to_ne_bytes());
        self.bytes.extend(self.count.to_ne_bytes());
        self.bytes.extend([0; 4]);
        self.bytes.extend([family, 0]);
        self.bytes.extend(resource.to_be_bytes());
        self.bytes.extend(parts);
    }

    /// Request, acknowledge, create, append.
    fn add(&mut self, kind: u16, parts: &[Vec<u8>]) {
        self.message(0x0a00 | kind, 1 | 4 | 0x400 | 0x800, self.family, 0, parts);
    }

    fn chain(&mut self, name: &str, hook: u32, priority: i32) {
        let hook = [number(1, hook), attribute(2, &priority.to_be_bytes())];
        let parts = [
            text(1, TABLE),
            text(3, name),
            nested(4, &hook),
            text(7, "nat"),
        ];
        self.add(3, &parts);
    }

    fn rule(&mut self, chain: &str, expressions: &[Vec<Vec<u8>>]) {
        let expressions = nested(4, &expressions.concat());
        self.add(6, &[text(1, TABLE), text(2, chain), expressions]);
    }
}

/// Removes every table of a namespace, as `nft flush ruleset` does.
///
/// # Panics
/// When the kernel refuses.
pub fn flush(netns: &Netns) {
    let mut batch = Batch::of(0);
    batch.message(0x10, 1, 0, 10, &[]);
    batch.message(0x0a02, 1 | 4, 0, 0, &[]);
    commit(netns, batch);
}

/// Keeps a table of family `inet` from all others until the socket is closed.
///
/// Its content goes. `None` where the kernel knows no owners of tables (before 5.12).
///
/// # Panics
/// When the kernel refuses for another reason.
pub fn own(netns: &Netns, table: &str) -> Option<Socket> {
    let mut batch = Batch::of(1);
    batch.message(0x10, 1, 0, 10, &[]);
    batch.message(0x0a02, 1 | 4, 1, 0, &[text(1, table)]);
    // `NFTA_TABLE_FLAGS` with `NFT_TABLE_F_OWNER`.
    batch.add(0, &[text(1, table), number(2, 2)]);
    match carry_out(netns, batch) {
        Ok(socket) => Some(socket),
        Err((_, code)) if code == -Errno::OPNOTSUPP.raw_os_error() => None,
        Err((message, code)) => unreachable!("message {message}: {code}"),
    }
}

/// Makes `service` of this namespace stand for `backend`.
///
/// It does so for senders that come by the node and for the node itself; a backend that asks for itself
/// is answered by an address of the node.
///
/// # Panics
/// When the kernel refuses.
pub fn service(netns: &Netns, service: SocketAddr, backend: SocketAddr) {
    let mut batch = Batch::of(family(service.ip()));
    batch.message(0x10, 1, 0, 10, &[]);
    batch.add(0, &[text(1, TABLE)]);
    // Prerouting, output, postrouting of linux/netfilter.h, at the priorities of NAT.
    for (name, hook, priority) in [("in", 0, -100), ("own", 3, -100), ("out", 4, 90)] {
        batch.chain(name, hook, priority);
    }
    for chain in ["in", "own"] {
        let translated = [
            address_is(service.ip(), false),
            port_is(service.port()),
            destination_nat(backend),
        ];
        batch.rule(chain, &translated);
    }
    let to_itself = [
        address_is(backend.ip(), true),
        address_is(backend.ip(), false),
        vec![expression("masq", &[])],
    ];
    batch.rule("out", &to_itself);
    commit(netns, batch);
}

/// Masquerades packets to this address, as rules for the outside do.
///
/// # Panics
/// When the kernel refuses.
pub fn masquerade(netns: &Netns, to: IpAddr) {
    let mut batch = Batch::of(family(to));
    batch.message(0x10, 1, 0, 10, &[]);
    batch.add(0, &[text(1, TABLE)]);
    batch.chain("out", 4, 90);
    batch.rule(
        "out",
        &[address_is(to, false), vec![expression("masq", &[])]],
    );
    commit(netns, batch);
}

/// Has the kernel carry it out.
fn commit(netns: &Netns, batch: Batch) {
    if let Err((message, code)) = carry_out(netns, batch) {
        unreachable!("message {message} of the service: {code}");
    }
}

/// Returns the socket, or else which message the kernel refused, and its code.
fn carry_out(netns: &Netns, mut batch: Batch) -> Result<Socket, (u32, i32)> {
    let last = batch.count;
    batch.message(0x11, 1, 0, 10, &[]);
    let sent = netns.run_in(|| {
        let socket = Socket::new(NETLINK_NETFILTER).expect("a netlink socket");
        socket
            .send_to(&batch.bytes, &NetlinkAddr::new(0, 0), 0)
            .expect("sent");
        loop {
            let (bytes, _) = socket.recv_from_full().expect("an answer");
            let word = |at: usize| {
                let bytes = bytes.get(at..at + 4).expect("an acknowledgement");
                <[u8; 4]>::try_from(bytes).expect("four bytes")
            };
            let (sequence, code) = (u32::from_ne_bytes(word(8)), i32::from_ne_bytes(word(16)));
            if code != 0 {
                return Err((sequence, code));
            }
            if sequence == last {
                return Ok(socket);
            }
        }
    });
    sent.expect("the namespace can be entered")
}
