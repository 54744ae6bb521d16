//! The control socket: who may talk there, by which ways, and for how long.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use rustix::net::{AddressFamily, SocketType, socket};
use testbed::wait;
use xsk::control::{Address, Request, abstract_name};
use xsk::{Config, Control, Error, Port};

use super::scene::{assert_answers, attach, in_pod, open_by, setup, socket_path};

/// A program gets its sockets by file and by name, as often as it asks.
///
/// The file is mounted where DPDK looks for it; the name needs no mount. An application that is
/// restarted asks again.
#[test]
fn a_program_gets_its_sockets_by_file_and_by_name_as_often_as_it_asks() {
    let node = testbed::node!(setup());
    let (fast, plain) = (node.pod("fast"), node.pod("plain"));
    let (pf, pp) = (
        attach(&node, &fast, "blue", "fast-blue"),
        plain.attach("blue", "net1"),
    );
    let file = socket_path(&pf);
    assert!(
        file.exists() && file.ends_with("afxdp.sock"),
        "{}",
        file.display()
    );
    for address in [Address::Path(file.clone()), abstract_name("net1")] {
        for _ in 0..3 {
            assert_answers(open_by(&pf, 0, &address), &pf, &pp);
        }
    }
    fast.detach("blue", "net1");
    assert!(!file.exists(), "the file goes with the port");
    let gone = in_pod(&pf, || Control::connect(&abstract_name("net1")));
    assert!(matches!(gone, Err(Error::Control { .. })), "{gone:?}");
    plain.detach("blue", "net1");
    node.assert_empty();
}

/// Requests of another pod, shown the file, and of the node's programs are refused.
///
/// The socket itself tells the caller's namespace.
#[test]
fn nobody_but_the_pod_is_listened_to() {
    let node = testbed::node!(setup());
    let (fast, other) = (node.pod("fast"), node.pod("other"));
    let (pf, po) = (
        attach(&node, &fast, "blue", "fast-blue"),
        attach(&node, &other, "red", "fast-red"),
    );
    let address = Address::Path(socket_path(&pf));
    let refused = |control: Result<Control, Error>| {
        assert!(matches!(control, Err(Error::Control { .. })), "{control:?}");
    };
    refused(in_pod(&po, || Control::connect(&address)));
    refused(
        node.netns()
            .run_in(|| Control::connect(&address))
            .expect("entered"),
    );
    refused(in_pod(&po, || Control::connect(&abstract_name("net2"))));
    // Not its socket either, whoever brings it.
    let foreign = in_pod(&po, || {
        let mut control = Control::connect(&abstract_name("net1")).expect("its own");
        control.new_socket("net1").expect("a socket")
    });
    let ifindex = po.link().expect("the interface is there").ifindex;
    let foreign = Port::bind(foreign, ifindex, 0, &Config::default()).expect("bound there");
    in_pod(&pf, || {
        let mut control = Control::connect(&address).expect("let in");
        let insert = control.insert("net1", 0, &foreign);
        assert!(matches!(insert, Err(Error::Refused { .. })), "{insert:?}");
        control.map("net1").expect("its own map");
    });
    fast.detach("blue", "net1");
    other.detach("red", "net1");
    node.assert_empty();
}

/// Each wrong request is answered, and the next one is served.
///
/// Words, interfaces, queues and descriptors can be wrong. Requests of DPDK get the answers that DPDK
/// expects.
#[test]
fn what_is_not_understood_is_refused_and_the_conversation_goes_on() {
    let node = testbed::node!(setup());
    let fast = node.pod("fast");
    let pf = attach(&node, &fast, "blue", "fast-blue");
    let udp: OwnedFd = socket(AddressFamily::INET, SocketType::DGRAM, None).expect("a socket");
    let null = OwnedFd::from(std::fs::File::open("/dev/null").expect("a file"));
    in_pod(&pf, || {
        let unbound = {
            let mut control = Control::connect(&abstract_name("net1")).expect("let in");
            control.new_socket("net1").expect("a socket")
        };
        let mut talk = Talk::new();
        let dpdk = [
            (
                "/connect,some-pod-0123456789012345678901234567890123456789012345",
                "/host_ok",
            ),
            ("/version", "0.1"),
        ];
        for (asked, answer) in dpdk {
            assert_eq!(talk.ask(asked, None), (answer.to_owned(), false));
        }
        assert_eq!(
            talk.ask("/xsk_map_fd,net1", None),
            ("/fd_ack".to_owned(), true)
        );
        for (asked, fd, answer) in [
            ("/xsk_map_fd,eth0", None, "/fd_nak"),
            ("/xsk_socket,net1,0", None, "/fd_nak"),
            ("/xsk_socket,net1,0", Some(&udp), "/fd_nak"),
            ("/xsk_socket,net1,0", Some(&null), "/fd_nak"),
            ("/xsk_socket,net1,1", Some(&unbound), "/fd_nak"),
            (
                "/config_busy_poll,20,64",
                Some(&udp),
                "/config_busy_poll_nak",
            ),
            ("/xsk_socket,net1", Some(&unbound), "/nak"),
            ("nonsense", Some(&udp), "/nak"),
            (&"x".repeat(4000), None, "/nak"),
            ("/xsk_new_socket,net2", None, "/fd_nak"),
        ] {
            assert_eq!(talk.ask(asked, fd), (answer.to_owned(), false), "{asked}");
        }
        assert_eq!(
            talk.ask("/xsk_new_socket,net1", None),
            ("/fd_ack".to_owned(), true)
        );
        assert_eq!(talk.ask("/fin", None), ("/fin_ack".to_owned(), false));
        assert!(talk.is_over());
    });
    fast.detach("blue", "net1");
    node.assert_empty();
}

/// Words as they are, without the client's manners.
struct Talk(OwnedFd);

impl Talk {
    fn new() -> Self {
        let name = rustix::net::SocketAddrUnix::new_abstract_name(b"podnet/afxdp/net1");
        let it = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).expect("a socket");
        rustix::net::connect(&it, &name.expect("a name")).expect("connected");
        let stream = UnixStream::from(it);
        stream
            .set_read_timeout(Some(wait::PATIENCE))
            .expect("a timeout");
        Self(stream.into())
    }

    fn ask(&mut self, text: &str, fd: Option<&OwnedFd>) -> (String, bool) {
        let fd = fd.map(std::os::fd::AsFd::as_fd);
        xsk::control::send(&self.0, text, fd).expect("sent");
        match xsk::control::receive(&self.0).expect("an answer") {
            xsk::control::Received::Datagram(it) => {
                let text = String::from_utf8(it.bytes).expect("text");
                (text, it.descriptor.is_some())
            }
            other => panic!("{other:?}"),
        }
    }

    fn is_over(&self) -> bool {
        let heard = xsk::control::receive(&self.0).expect("the end");
        matches!(heard, xsk::control::Received::Hangup)
    }
}

/// Busy polling takes a privilege, which the agent has (Linux 5.11).
#[test]
fn the_agent_has_a_socket_polled_where_the_kernel_can() {
    let node = testbed::node!(setup());
    let fast = node.pod("fast");
    let pf = attach(&node, &fast, "blue", "fast-blue");
    let port = super::scene::open(&pf, 0);
    in_pod(&pf, || {
        let mut control = Control::connect(&abstract_name("net1")).expect("let in");
        match control.busy_poll(20, 64, &port) {
            Ok(()) => {}
            // The kernel does not have it, and it is said.
            Err(Error::Refused { answer, .. }) if before_5_11() => {
                assert_eq!(answer, "/config_busy_poll_nak");
            }
            other => panic!("{other:?}"),
        }
        let request = Request::BusyPoll {
            timeout: 20,
            budget: 60_000,
        };
        let refused = control.busy_poll(20, 60_000, &port);
        assert!(matches!(refused, Err(Error::Refused { .. })), "{request}");
    });
    fast.detach("blue", "net1");
    node.assert_empty();
}

fn before_5_11() -> bool {
    let release = rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned();
    let mut numbers = release
        .split(['.', '-'])
        .map_while(|it| it.parse::<u32>().ok());
    (numbers.next(), numbers.next()) < (Some(5), Some(11))
}
