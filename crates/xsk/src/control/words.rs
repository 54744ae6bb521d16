//! The words. Pure.

use std::fmt;
use std::str;

/// Version of the words.
pub const VERSION: &str = "0.1";

/// A request of the control protocol, from pod to agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// Begins. The host name may be cut off, and is anything the pod likes.
    Connect(&'a str),
    /// Which version of the words.
    Version,
    /// The map of the interface's XDP program.
    Map {
        /// The interface.
        ifname: &'a str,
    },
    /// A socket that may be bound to the interface.
    NewSocket {
        /// The interface.
        ifname: &'a str,
    },
    /// The socket that comes with it shall get what comes by this queue.
    Insert {
        /// The interface.
        ifname: &'a str,
        /// The queue.
        queue: u32,
    },
    /// The socket that comes with it shall be polled when it is read.
    BusyPoll {
        /// For how long, in microseconds.
        timeout: u32,
        /// How many frames at once.
        budget: u32,
    },
    /// Ends.
    Fin,
}

impl<'a> Request<'a> {
    /// Reads a datagram; none if it is no request.
    pub fn parse(datagram: &'a [u8]) -> Option<Self> {
        let text = str::from_utf8(datagram).ok()?;
        // Some end it as strings in C.
        let mut fields = text.trim_end_matches('\0').split(',').map(str::trim);
        let word = fields.next()?;
        let request = match word {
            "/connect" => Self::Connect(fields.next().unwrap_or_default()),
            "/version" => Self::Version,
            "/xsk_map_fd" => Self::Map {
                ifname: fields.next()?,
            },
            "/xsk_new_socket" => Self::NewSocket {
                ifname: fields.next()?,
            },
            "/xsk_socket" => Self::Insert {
                ifname: fields.next()?,
                queue: fields.next()?.parse().ok()?,
            },
            "/config_busy_poll" => Self::BusyPoll {
                timeout: fields.next()?.parse().ok()?,
                budget: fields.next()?.parse().ok()?,
            },
            "/fin" => Self::Fin,
            _ => return None,
        };
        fields.next().is_none().then_some(request)
    }
}

impl fmt::Display for Request<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(name) => write!(out, "/connect,{name}"),
            Self::Version => out.write_str("/version"),
            Self::Map { ifname } => write!(out, "/xsk_map_fd,{ifname}"),
            Self::NewSocket { ifname } => write!(out, "/xsk_new_socket,{ifname}"),
            Self::Insert { ifname, queue } => write!(out, "/xsk_socket,{ifname},{queue}"),
            Self::BusyPoll { timeout, budget } => {
                write!(out, "/config_busy_poll,{timeout},{budget}")
            }
            Self::Fin => out.write_str("/fin"),
        }
    }
}

/// An answer of the control protocol, from agent to pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To `/connect`.
    HostOk,
    /// To `/version`.
    Version,
    /// Here it is, or it is done.
    FdAck,
    /// It is not.
    FdNak,
    /// It is polled.
    BusyPollAck,
    /// It is not.
    BusyPollNak,
    /// To `/fin`.
    FinAck,
    /// To what is no request, or not now.
    Nak,
    /// Something broke here.
    Error,
}

impl Answer {
    /// The datagram.
    pub const fn text(self) -> &'static str {
        match self {
            Self::HostOk => "/host_ok",
            Self::Version => VERSION,
            Self::FdAck => "/fd_ack",
            Self::FdNak => "/fd_nak",
            Self::BusyPollAck => "/config_busy_poll_ack",
            Self::BusyPollNak => "/config_busy_poll_nak",
            Self::FinAck => "/fin_ack",
            Self::Nak => "/nak",
            Self::Error => "/error",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_dpdk_and_others_send_is_understood() {
        let parse = |text: &'static str| Request::parse(text.as_bytes()).expect(text);
        assert_eq!(parse("/connect,pod-1"), Request::Connect("pod-1"));
        // The Go client puts a space after the comma.
        assert_eq!(parse("/connect, pod-1"), Request::Connect("pod-1"));
        assert_eq!(parse("/connect"), Request::Connect(""));
        assert_eq!(parse("/version"), Request::Version);
        assert_eq!(parse("/version\0"), Request::Version);
        assert_eq!(parse("/xsk_map_fd,net1"), Request::Map { ifname: "net1" });
        assert_eq!(parse("/fin"), Request::Fin);
        let busy = Request::BusyPoll {
            timeout: 20,
            budget: 64,
        };
        assert_eq!(parse("/config_busy_poll, 20, 64"), busy);
        let insert = Request::Insert {
            ifname: "net1",
            queue: 3,
        };
        assert_eq!(parse("/xsk_socket,net1,3"), insert);
    }

    #[test]
    fn anything_else_is_no_request() {
        for text in [
            "",
            ",",
            "connect",
            "/Connect,a",
            "/xsk_map_fd",
            "/xsk_socket,net1",
            "/xsk_socket,net1,-1",
            "/xsk_socket,net1,4294967296",
            "/xsk_socket,net1,1,2",
            "/config_busy_poll,20",
            "/fin,now",
            "/version,0.2",
        ] {
            assert_eq!(Request::parse(text.as_bytes()), None, "{text}");
        }
        assert_eq!(Request::parse(&[0x2f, 0xff, 0xfe]), None);
    }

    #[test]
    fn what_is_asked_is_read_as_it_was_meant() {
        let all = [
            Request::Connect("host"),
            Request::Version,
            Request::Map { ifname: "net1" },
            Request::NewSocket { ifname: "net1" },
            Request::Insert {
                ifname: "net1",
                queue: 7,
            },
            Request::BusyPoll {
                timeout: 1,
                budget: 2,
            },
            Request::Fin,
        ];
        for request in all {
            let text = request.to_string();
            assert_eq!(Request::parse(text.as_bytes()), Some(request), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_datagram_breaks_the_parser(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            let _ = Request::parse(&bytes);
        }
    }
}
