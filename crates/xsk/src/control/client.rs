//! The pod's end.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::socket::{Address, Datagram, Received, receive, send};
use super::words::{Answer, Request};
use crate::error::Error;

/// A conversation with the agent. Calls wait for its answers.
#[derive(Debug)]
pub struct Control {
    socket: OwnedFd,
    address: Address,
}

impl Control {
    /// Begins one.
    ///
    /// # Errors
    /// Nobody is there, or it is nobody for us.
    pub fn connect(address: &Address) -> Result<Self, Error> {
        let mut control = Self {
            socket: address.connect()?,
            address: address.clone(),
        };
        let name = rustix::system::uname();
        let name = name.nodename().to_string_lossy().into_owned();
        control.ask(&Request::Connect(&name), None, Answer::HostOk)?;
        control.ask(&Request::Version, None, Answer::Version)?;
        Ok(control)
    }

    /// Asks for a socket opened in the pod's namespace, to be bound and inserted.
    ///
    /// # Errors
    /// The agent refuses.
    pub fn new_socket(&mut self, ifname: &str) -> Result<OwnedFd, Error> {
        self.ask_fd(&Request::NewSocket { ifname })
    }

    /// The map of the interface's XDP program, for who inserts sockets himself.
    ///
    /// # Errors
    /// The agent refuses.
    pub fn map(&mut self, ifname: &str) -> Result<OwnedFd, Error> {
        self.ask_fd(&Request::Map { ifname })
    }

    /// Has a bound socket get what comes by this queue, instead of who had it before.
    ///
    /// # Errors
    /// The agent refuses, for example because the socket has no rings.
    pub fn insert(&mut self, ifname: &str, queue: u32, socket: impl AsFd) -> Result<(), Error> {
        let request = Request::Insert { ifname, queue };
        self.ask(&request, Some(socket.as_fd()), Answer::FdAck)?;
        Ok(())
    }

    /// Has reading a socket poll for what comes, this long and for this many frames.
    ///
    /// # Errors
    /// The agent refuses, or its kernel has no preferred busy polling (before Linux 5.11).
    pub fn busy_poll(&mut self, timeout: u32, budget: u32, socket: impl AsFd) -> Result<(), Error> {
        let request = Request::BusyPoll { timeout, budget };
        self.ask(&request, Some(socket.as_fd()), Answer::BusyPollAck)?;
        Ok(())
    }

    /// Ends it.
    ///
    /// # Errors
    /// The agent is gone.
    pub fn finish(mut self) -> Result<(), Error> {
        self.ask(&Request::Fin, None, Answer::FinAck)?;
        Ok(())
    }

    fn ask_fd(&mut self, request: &Request<'_>) -> Result<OwnedFd, Error> {
        let answer = self.ask(request, None, Answer::FdAck)?;
        answer.descriptor.ok_or_else(|| Error::Refused {
            request: request.to_string(),
            answer: "nothing with its `/fd_ack`".to_owned(),
        })
    }

    fn ask(
        &mut self,
        request: &Request<'_>,
        descriptor: Option<BorrowedFd<'_>>,
        wanted: Answer,
    ) -> Result<Datagram, Error> {
        let failed = |operation| {
            let address = self.address.to_string();
            move |source| Error::Control {
                operation,
                address,
                source,
            }
        };
        send(&self.socket, &request.to_string(), descriptor).map_err(failed("write to"))?;
        let datagram = loop {
            match receive(&self.socket).map_err(failed("read from"))? {
                Received::Datagram(datagram) => break datagram,
                Received::Nothing => {}
                Received::Hangup => {
                    let hung_up = io::Error::from(io::ErrorKind::ConnectionReset);
                    return Err(failed("read from")(hung_up));
                }
            }
        };
        if datagram.bytes == wanted.text().as_bytes() {
            return Ok(datagram);
        }
        Err(Error::Refused {
            request: request.to_string(),
            answer: String::from_utf8_lossy(&datagram.bytes).into_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{accept, listen};
    use rustix::event::{PollFd, PollFlags, poll};

    fn accepted(listener: &OwnedFd) -> OwnedFd {
        loop {
            readable(listener);
            if let Some(peer) = accept(listener.as_fd()).unwrap() {
                return peer;
            }
        }
    }

    fn readable(socket: &OwnedFd) {
        poll(&mut [PollFd::new(socket, PollFlags::IN)], None).unwrap();
    }

    #[test]
    fn a_client_asks_and_gets_what_is_answered() {
        let directory = tempfile::tempdir().unwrap();
        let address = Address::Path(directory.path().join("control"));
        let listener = listen(&address).unwrap();
        let taken = listen(&address).unwrap_err().to_string();
        assert!(taken.contains("listen on"), "{taken}");
        let served = std::thread::spawn(move || {
            let peer = accepted(&listener);
            let mut heard = Vec::new();
            loop {
                readable(&peer);
                let datagram = match receive(&peer).unwrap() {
                    Received::Datagram(datagram) => datagram,
                    Received::Nothing => continue,
                    Received::Hangup => return heard,
                };
                let text = String::from_utf8(datagram.bytes).unwrap();
                let word = text.split(',').next().unwrap();
                let (answer, fd) = match word {
                    "/connect" => ("/host_ok", None),
                    "/version" => ("0.1", None),
                    "/xsk_map_fd" => ("/fd_ack", Some(listener.as_fd())),
                    "/xsk_new_socket" => ("/fd_ack", None),
                    "/xsk_socket" if datagram.descriptor.is_some() => ("/fd_ack", None),
                    "/fin" => ("/fin_ack", None),
                    _ => ("/nak", None),
                };
                heard.push(word.to_owned());
                send(&peer, answer, fd).unwrap();
            }
        });
        let mut control = Control::connect(&address).unwrap();
        control.map("net1").unwrap();
        let nothing = control.new_socket("net1").unwrap_err().to_string();
        assert!(nothing.contains("nothing with"), "{nothing}");
        let file = std::fs::File::open("/dev/null").unwrap();
        control.insert("net1", 0, &file).unwrap();
        let refused = control.busy_poll(1, 1, &file).unwrap_err().to_string();
        assert!(refused.contains("/nak"), "{refused}");
        control.finish().unwrap();
        let heard = served.join().unwrap();
        assert_eq!(heard.len(), 7, "{heard:?}");
    }

    #[test]
    fn an_agent_that_hangs_up_is_told_from_one_that_says_no() {
        let directory = tempfile::tempdir().unwrap();
        let address = Address::Path(directory.path().join("control"));
        let absent = Control::connect(&address).unwrap_err();
        assert!(matches!(absent, Error::Control { .. }), "{absent}");
        let listener = listen(&address).unwrap();
        let served =
            std::thread::spawn(move || while accept(listener.as_fd()).unwrap().is_none() {});
        let gone = Control::connect(&address).unwrap_err();
        assert!(matches!(gone, Error::Control { .. }), "{gone}");
        served.join().unwrap();
    }
}
