//! One netlink socket and the request/answer rules of it.

use std::io;
use std::time::Duration;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use rustix::net::sockopt::{Timeout, set_socket_recv_buffer_size_force, set_socket_timeout};

use crate::error::{Error, Refusal};
use crate::wire;

/// Size of the receive buffer, bytes.
///
/// Netlink builds dump datagrams of up to 32 KiB for a reader that has the room (`netlink_dump`).
const RECEIVE_BUFFER: usize = 32 * 1024;
/// Longest wait for an answer.
///
/// The kernel answers before `send` returns, so this only ends a wait for an answer that was lost.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// How often a dump is restarted when the table changes under it.
pub(crate) const DUMP_ATTEMPTS: u32 = 10;
/// Upper half of a look's sequence number; monitors ignore looks ([`is_look`]).
const LOOK: u32 = 0xf00d_0000;
/// `RTNLGRP_LINK`: who hears of changes of links.
const RTNLGRP_LINK: u32 = 1;
/// Room for what is announced of a few hundred links.
const ANNOUNCEMENTS: usize = 2 * 1024 * 1024;
/// `MSG_TRUNC`: report the datagram's real length.
const MSG_TRUNC: i32 = 0x20;

/// One `NETLINK_ROUTE` socket, usable from any thread.
///
/// It is bound for life to the namespace of the thread that opened it.
///
/// The calls block, mostly for microseconds; [`Connection::delete`] for the milliseconds that the
/// kernel needs to take a device down. In async code use [`Netlink`](crate::Netlink).
#[derive(Debug)]
pub struct Connection {
    socket: Socket,
    sequence: u32,
    buffer: Vec<u8>,
    broken: bool,
}

/// A request to be sent.
#[derive(Debug)]
pub(crate) struct Request {
    message: RouteNetlinkMessage,
    flags: u16,
}

impl Request {
    /// `flags`: `NLM_F_*` besides `REQUEST` and `ACK`.
    pub(crate) fn new(message: RouteNetlinkMessage, flags: u16) -> Self {
        Self { message, flags }
    }
}

/// One message of an answer.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) kind: u16,
    pub(crate) body: Vec<u8>,
}

/// Reports whether the sequence number is that of a look.
///
/// The kernel tells everyone of a queue that somebody looked at (`RTM_GETQDISC`, net/sched/sch_api.c) in
/// the same words as of a new one, and repeats the request's number.
pub(crate) const fn is_look(sequence: u32) -> bool {
    sequence & 0xffff_0000 == LOOK
}

/// The kernel's answer to one request.
pub(crate) type Answer = Result<Vec<Message>, Refusal>;

impl Connection {
    /// Opens a socket in the calling thread's network namespace.
    ///
    /// # Errors
    /// [`Error::OpenSocket`].
    pub fn open() -> Result<Self, Error> {
        let socket = Self::open_socket().map_err(|source| Error::OpenSocket { source })?;
        Ok(Self {
            socket,
            sequence: 0,
            buffer: Vec::with_capacity(RECEIVE_BUFFER),
            broken: false,
        })
    }

    fn open_socket() -> io::Result<Socket> {
        let socket = Socket::new(NETLINK_ROUTE)?;
        socket.set_ext_ack(true)?;
        socket.set_cap_ack(true)?;
        // Without it the kernel ignores the filters of a dump (Linux 4.20).
        socket.set_netlink_get_strict_chk(true)?;
        set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER_TIMEOUT))?;
        Ok(socket)
    }

    /// True once an answer was lost: the socket should not be used again.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken
    }

    /// Sends one request and waits for its answer.
    pub(crate) fn ask(&mut self, request: Request) -> Result<Answer, Error> {
        let answers = self.ask_all(vec![request])?;
        answers
            .into_iter()
            .next()
            .ok_or(Error::Malformed { what: "no answer" })
    }

    /// [`ask_all`](Self::ask_all) for requests that change nothing and of which no
    /// [`LinkMonitor`](crate::LinkMonitor) shall tell; a handful of them.
    pub(crate) fn look_all(&mut self, requests: Vec<Request>) -> Result<Vec<Answer>, Error> {
        let next = self.sequence;
        self.sequence = LOOK | (next & 0x7fff);
        let answers = self.ask_all(requests);
        // Numbers go on where they were, with a gap for those that were used.
        self.sequence = next.wrapping_add(self.sequence.wrapping_sub(LOOK | (next & 0x7fff)));
        answers
    }

    /// Sends the requests in one datagram; returns their answers in the same order.
    ///
    /// The kernel carries them out in order and does not stop at a refusal.
    pub(crate) fn ask_all(&mut self, requests: Vec<Request>) -> Result<Vec<Answer>, Error> {
        let count = requests.len();
        if count == 0 {
            return Ok(Vec::new());
        }
        let first = self.sequence.wrapping_add(1);
        let mut datagram = Vec::with_capacity(256 * count);
        for request in requests {
            let flags = NLM_F_REQUEST | NLM_F_ACK | request.flags;
            self.encode(request.message, flags, &mut datagram);
        }
        self.send(&datagram)?;
        let mut answers: Vec<Answer> = (0..count).map(|_| Ok(Vec::new())).collect();
        let mut pending = count;
        while pending > 0 {
            self.receive()?;
            for raw in wire::messages(&self.buffer) {
                let slot = usize::try_from(raw.sequence.wrapping_sub(first)).unwrap_or(usize::MAX);
                // A slot out of range is the late answer to a request given up earlier.
                let Some(answer) = answers.get_mut(slot) else {
                    continue;
                };
                match raw.kind {
                    wire::NLMSG_ERROR => {
                        pending = pending.saturating_sub(1);
                        match wire::outcome(raw) {
                            Some(Ok(())) => {}
                            Some(Err(refusal)) => *answer = Err(refusal),
                            None => {
                                return Err(Error::Malformed {
                                    what: "acknowledgement",
                                });
                            }
                        }
                    }
                    kind if kind >= wire::NLMSG_MIN_TYPE => {
                        if let Ok(messages) = answer {
                            messages.push(Message {
                                kind,
                                body: raw.body.to_vec(),
                            });
                        }
                    }
                    _ => {}
                }
            }
        }
        Ok(answers)
    }

    /// Sends a request, and returns what is announced of links meanwhile.
    ///
    /// Announcements that others have caused are among them. The socket ends with its caller's use of it.
    pub(crate) fn ask_and_hear(&mut self, request: Request) -> Result<Answer, Error> {
        // What is announced is not always told from an answer.
        self.broken = true;
        // Needs CAP_NET_ADMIN; with the default size much of it is lost, which is an error below.
        let _ = set_socket_recv_buffer_size_force(&self.socket, ANNOUNCEMENTS);
        let refused = |source| Error::Receive { source };
        self.socket.add_membership(RTNLGRP_LINK).map_err(refused)?;
        let mut datagram = Vec::with_capacity(256);
        let flags = NLM_F_REQUEST | NLM_F_ACK | request.flags;
        let sequence = self.encode(request.message, flags, &mut datagram);
        self.send(&datagram)?;
        let mut heard = Vec::new();
        loop {
            self.receive()?;
            for raw in wire::messages(&self.buffer) {
                match raw.kind {
                    wire::NLMSG_ERROR if raw.sequence == sequence => {
                        self.socket.drop_membership(RTNLGRP_LINK).map_err(refused)?;
                        let outcome = wire::outcome(raw).ok_or(Error::Malformed {
                            what: "acknowledgement",
                        })?;
                        return Ok(outcome.map(|()| heard));
                    }
                    kind => heard.push(Message {
                        kind,
                        body: raw.body.to_vec(),
                    }),
                }
            }
        }
    }

    /// Lists a table. `what` names it in errors.
    pub(crate) fn dump(
        &mut self,
        what: &'static str,
        request: &RouteNetlinkMessage,
    ) -> Result<Vec<Message>, Error> {
        for _ in 0..DUMP_ATTEMPTS {
            let mut datagram = Vec::with_capacity(256);
            let sequence = self.encode(request.clone(), NLM_F_REQUEST | NLM_F_DUMP, &mut datagram);
            self.send(&datagram)?;
            let (answer, interrupted) = self.receive_dump(sequence)?;
            match answer {
                Err(source) => return Err(Error::List { what, source }),
                Ok(messages) if !interrupted => return Ok(messages),
                Ok(_) => {}
            }
        }
        Err(Error::DumpInterrupted {
            what,
            attempts: DUMP_ATTEMPTS,
        })
    }

    fn receive_dump(&mut self, sequence: u32) -> Result<(Answer, bool), Error> {
        let mut messages = Vec::new();
        let mut interrupted = false;
        loop {
            self.receive()?;
            for raw in wire::messages(&self.buffer).filter(|raw| raw.sequence == sequence) {
                interrupted |= raw.flags & wire::NLM_F_DUMP_INTR != 0;
                match raw.kind {
                    wire::NLMSG_DONE | wire::NLMSG_ERROR => {
                        let outcome = wire::outcome(raw).ok_or(Error::Malformed {
                            what: "end of dump",
                        })?;
                        return Ok((outcome.map(|()| messages), interrupted));
                    }
                    kind => messages.push(Message {
                        kind,
                        body: raw.body.to_vec(),
                    }),
                }
            }
        }
    }

    fn encode(&mut self, message: RouteNetlinkMessage, flags: u16, out: &mut Vec<u8>) -> u32 {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = flags;
        header.sequence_number = self.sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
        message.finalize();
        let start = out.len();
        out.resize(start + message.buffer_len(), 0);
        if let Some(space) = out.get_mut(start..) {
            message.serialize(space);
        }
        // Every rtnetlink body is a multiple of 4 long, so the next message starts aligned.
        self.sequence
    }

    fn send(&mut self, datagram: &[u8]) -> Result<(), Error> {
        let sent = send(&self.socket, datagram);
        self.broken |= sent.is_err();
        sent
    }

    /// Fills the buffer with the next datagram from the kernel.
    fn receive(&mut self) -> Result<(), Error> {
        let received = receive(&self.socket, &mut self.buffer);
        self.broken |= received.is_err();
        received
    }
}

/// Sends a datagram to the kernel.
pub(crate) fn send(socket: &Socket, datagram: &[u8]) -> Result<(), Error> {
    let sent = socket.send_to(datagram, &SocketAddr::new(0, 0), 0);
    sent.map(|_| ()).map_err(|source| Error::Send { source })
}

/// Fills a buffer with the next datagram from the kernel.
pub(crate) fn receive(socket: &Socket, buffer: &mut Vec<u8>) -> Result<(), Error> {
    loop {
        buffer.clear();
        match socket.recv_from(buffer, MSG_TRUNC) {
            // Root of a pod's namespace can send to our socket there: only port 0, the kernel, is
            // heard.
            Ok((_, from)) if from.port_number() != 0 => {}
            Ok((length, _)) if length > buffer.len() => {
                return Err(Error::Malformed {
                    what: "datagram longer than the buffer",
                });
            }
            Ok(_) => return Ok(()),
            Err(source) if source.kind() == io::ErrorKind::Interrupted => {}
            Err(source) => return Err(Error::Receive { source }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Link;
    use netlink_packet_route::link::LinkMessage;

    fn get(ifindex: u32) -> Request {
        let mut message = LinkMessage::default();
        message.header.index = ifindex;
        Request::new(RouteNetlinkMessage::GetLink(message), 0)
    }

    #[test]
    fn answers_come_in_the_order_of_the_requests() {
        let mut connection = Connection::open().expect("a netlink socket");
        let answers = connection
            .ask_all(vec![get(1), get(0x7fff_fff0), get(1)])
            .expect("three answers");
        let names: Vec<_> = answers
            .iter()
            .map(|answer| {
                answer
                    .as_ref()
                    .ok()
                    .and_then(|m| Link::parse(&m.first()?.body))
            })
            .map(|link| link.map(|link| link.name))
            .collect();
        assert_eq!(names, [Some("lo".to_owned()), None, Some("lo".to_owned())]);
        let refusal = answers[1].as_ref().expect_err("no such link");
        assert_eq!(refusal.errno(), rustix::io::Errno::NODEV);
    }

    #[test]
    fn an_empty_batch_is_not_sent() {
        let mut connection = Connection::open().expect("a netlink socket");
        assert!(
            connection
                .ask_all(Vec::new())
                .expect("no answers")
                .is_empty()
        );
    }
}
