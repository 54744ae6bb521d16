//! Ask many questions at once, by sockets of the pods.
//!
//! Each ends when it is answered or counted as dropped: what was sent is what was answered and what was dropped, so
//! that nothing is waited for in vain. Ears stay open from case to case: a question is found that comes after it was
//! counted.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use std::{fs, thread};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, connect, ipproto, listen, socket_with, sockopt,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use testbed::Port;
use testbed::wait::PATIENCE;

use super::expected::{Protocol, Question};

/// Time for which what is missing is waited for once all is counted.
///
/// Only a case that fails takes it, or one in whose time something else was dropped.
const GRACE: Duration = Duration::from_secs(5);
/// Looks in which nothing has come, after which nothing more is waited for.
const IDLE: u32 = 20;
/// Between two looks at all sockets.
const STEP: Duration = Duration::from_micros(500);
/// Bytes of a token.
const TOKEN: usize = 8;
/// Types of echo requests, by family (RFC 792, RFC 4443).
const ECHO: [u8; 2] = [8, 128];

/// Fate of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// It was not heard.
    Unheard,
    /// It was heard, and the answer was not.
    Unanswered,
    /// It was heard and answered.
    Answered,
}

/// Sockets of a pod's port that hear questions.
#[derive(Debug)]
pub(super) struct Ears {
    udp: Vec<UdpSocket>,
    tcp: Vec<TcpListener>,
}

impl Ears {
    /// Opens the ears of a port, for these numbers and both families.
    pub(super) fn open(port: &Port, numbers: &[u16]) -> Self {
        allow_sockets();
        let addresses = addresses(port);
        let inside = port.netns.run_in(|| {
            // Anybody may ping.
            fs::write("/proc/sys/net/ipv4/ping_group_range", "0 2147483647").expect("a setting");
            let mut ears = Self {
                udp: Vec::new(),
                tcp: Vec::new(),
            };
            for address in addresses {
                for number in numbers {
                    let at = SocketAddr::new(address, *number);
                    let udp = open(at, SocketType::DGRAM, None);
                    ears.udp.push(udp.into());
                    let tcp = open(at, SocketType::STREAM, None);
                    listen(&tcp, 64).expect("a listener");
                    ears.tcp.push(tcp.into());
                }
            }
            ears
        });
        inside.expect("the namespace can be entered")
    }
}

/// Lets this process have as many sockets as it may: most shells give it 1,024.
fn allow_sockets() {
    let files = getrlimit(Resource::Nofile);
    let most = Rlimit {
        current: files.maximum,
        ..files
    };
    setrlimit(Resource::Nofile, most)
        .expect("the limit of open files can be raised to its maximum");
}

/// The addresses of a port by family: IPv4, IPv6.
pub(super) fn addresses(port: &Port) -> [IpAddr; 2] {
    [port.v4().into(), port.v6().into()]
}

/// A bound socket that does not block.
fn open(at: SocketAddr, kind: SocketType, protocol: Option<rustix::net::Protocol>) -> OwnedFd {
    let family = match at {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, kind, flags, protocol).expect("a socket");
    let until = Instant::now() + PATIENCE;
    loop {
        match bind(&socket, &at) {
            // A program that another test starts has the last one's until it is executed.
            Err(Errno::ADDRINUSE) if Instant::now() < until => thread::sleep(STEP),
            bound => break bound.expect("a free address of the pod"),
        }
    }
    socket
}

/// The socket from which a question was asked.
#[derive(Debug)]
enum Mouth {
    Datagram(UdpSocket),
    Stream(TcpStream, bool),
}

#[derive(Debug)]
struct Asked {
    mouth: Option<Mouth>,
    fate: Fate,
}

/// Questions that were asked, and those before.
#[derive(Debug)]
pub(super) struct Asker {
    /// Token of the first question of this round.
    first: u64,
    accepted: Vec<TcpStream>,
}

impl Asker {
    /// Nothing was asked yet.
    pub(super) fn new() -> Self {
        Self {
            first: 1,
            accepted: Vec::new(),
        }
    }

    /// Asks, and returns the fate of each question.
    ///
    /// The number is that of questions of rounds before which came now. `is_open` says which are to be answered. `drops` counts what policies have dropped so far.
    pub(super) fn ask(
        &mut self,
        ports: &BTreeMap<char, Port>,
        ears: &BTreeMap<char, Ears>,
        questions: &[(Question, bool)],
        drops: &dyn Fn() -> u64,
    ) -> (Vec<Fate>, u64) {
        let mut late = 0;
        let before = drops();
        let mut asked = self.send(ports, questions);
        let (mut until, mut is_counted, mut idle) = (Instant::now() + PATIENCE, false, 0);
        loop {
            late += self.hear(ears, &mut asked);
            let moved = self.listen(questions, &mut asked);
            let missing = is_missing(questions, &asked);
            if !missing || !moved {
                let dropped = drops().saturating_sub(before);
                // Those that came meanwhile count as well.
                late += self.hear(ears, &mut asked);
                self.listen(questions, &mut asked);
                let answered = asked.iter().filter(|it| it.fate == Fate::Answered).count();
                let all = answered as u64 + dropped >= questions.len() as u64;
                let missing = is_missing(questions, &asked);
                if all && !missing {
                    break;
                }
                if all && !is_counted {
                    is_counted = true;
                    until = until.min(Instant::now() + GRACE);
                }
            }
            idle = if moved { 0 } else { idle + 1 };
            // A machine that has no time for this thread has had none for what it waits for.
            if Instant::now() > until && idle > IDLE {
                break;
            }
            // Pacing; what is waited for is looked at by now.
            thread::sleep(STEP);
        }
        self.first += questions.len() as u64;
        self.accepted.clear();
        (asked.iter().map(|it| it.fate).collect(), late)
    }

    /// Sends all questions, those of one pod after the other.
    fn send(&self, ports: &BTreeMap<char, Port>, questions: &[(Question, bool)]) -> Vec<Asked> {
        let mut asked: Vec<Asked> = Vec::new();
        asked.resize_with(questions.len(), || Asked {
            mouth: None,
            fate: Fate::Unheard,
        });
        let targets: BTreeMap<char, [IpAddr; 2]> = ports
            .iter()
            .map(|(name, port)| (*name, addresses(port)))
            .collect();
        for (name, port) in ports {
            let own = targets[name];
            let places = asked.iter_mut().zip(questions).enumerate();
            let places = places.filter(|(_, (_, (question, _)))| question.from == *name);
            let first = self.first;
            let targets = &targets;
            let sent = port.netns.run_in(move || {
                for (index, (asked, (question, _))) in places {
                    let family = question.family();
                    let to = SocketAddr::new(targets[&question.to][family], question.number);
                    let token = (first + index as u64).to_be_bytes();
                    asked.mouth = Some(say(*question, own[family], to, token));
                }
            });
            sent.expect("the namespace can be entered");
        }
        asked
    }

    /// Takes what has come to ears, and answers.
    ///
    /// Returns the number of questions of rounds before.
    fn hear(&mut self, ears: &BTreeMap<char, Ears>, asked: &mut [Asked]) -> u64 {
        let mut late = 0;
        let first = self.first;
        let mut heard = |token: [u8; TOKEN]| {
            let number = u64::from_be_bytes(token).checked_sub(first);
            let place = number.and_then(|it| usize::try_from(it).ok());
            match place.and_then(|it| asked.get_mut(it)) {
                Some(asked) if asked.fate == Fate::Unheard => asked.fate = Fate::Unanswered,
                Some(_) => {}
                None => late += 1,
            }
        };
        for ears in ears.values() {
            for udp in &ears.udp {
                let mut token = [0; TOKEN];
                while let Ok((TOKEN, from)) = udp.recv_from(&mut token) {
                    heard(token);
                    // An answer that is not sent is one that does not come.
                    let _ = udp.send_to(&token, from);
                }
            }
            for tcp in &ears.tcp {
                while let Ok((stream, _)) = tcp.accept() {
                    stream.set_nonblocking(true).expect("a stream");
                    end_at_once(&stream);
                    self.accepted.push(stream);
                }
            }
        }
        for stream in &mut self.accepted {
            let mut token = [0; TOKEN];
            if stream.read_exact(&mut token).is_ok() {
                heard(token);
                let _ = stream.write_all(&token);
            }
        }
        late
    }

    /// Looks for answers, and has connections say their word.
    ///
    /// Reports whether anything came.
    fn listen(&self, questions: &[(Question, bool)], asked: &mut [Asked]) -> bool {
        let mut moved = false;
        for (index, (asked, (question, _))) in asked.iter_mut().zip(questions).enumerate() {
            if asked.fate == Fate::Answered {
                continue;
            }
            let token = (self.first + index as u64).to_be_bytes();
            let mut answer = [0; 64];
            let length = match &mut asked.mouth {
                Some(Mouth::Datagram(socket)) => socket.recv(&mut answer),
                Some(Mouth::Stream(stream, has_said)) => {
                    if !*has_said && stream.peer_addr().is_ok() {
                        moved = true;
                        *has_said = stream.write_all(&token).is_ok();
                    }
                    stream.read(&mut answer)
                }
                None => continue,
            };
            let length = length.unwrap_or(0);
            let head = if question.protocol == Protocol::Icmp {
                8
            } else {
                0
            };
            if answer.get(head..length) == Some(token.as_slice()) {
                asked.fate = Fate::Answered;
                // It is not asked again, and a connection ends.
                asked.mouth = None;
                moved = true;
            }
        }
        moved
    }
}

/// Reports whether one is not answered that is to be.
fn is_missing(questions: &[(Question, bool)], asked: &[Asked]) -> bool {
    let mut both = questions.iter().zip(asked);
    both.any(|((_, is_open), it)| *is_open && it.fate != Fate::Answered)
}

/// Has a stream end by a reset, when it is dropped.
///
/// Nothing of it goes on in the next case.
fn end_at_once(stream: &TcpStream) {
    sockopt::set_socket_linger(stream, Some(Duration::ZERO)).expect("an option");
}

/// Asks from a new socket of the calling thread's pod.
fn say(question: Question, own: IpAddr, to: SocketAddr, token: [u8; TOKEN]) -> Mouth {
    let at = SocketAddr::new(own, 0);
    match question.protocol {
        Protocol::Tcp => {
            let socket = open(at, SocketType::STREAM, None);
            let begun = connect(&socket, &to);
            let begun = begun.is_ok() || begun == Err(Errno::INPROGRESS);
            assert!(begun, "{question} cannot be asked");
            let stream = TcpStream::from(socket);
            end_at_once(&stream);
            Mouth::Stream(stream, false)
        }
        Protocol::Udp => {
            let socket = UdpSocket::from(open(at, SocketType::DGRAM, None));
            send(&socket, question, to, &token);
            Mouth::Datagram(socket)
        }
        Protocol::Icmp => {
            let family = question.family();
            let protocol = [ipproto::ICMP, ipproto::ICMPV6][family];
            // The kernel's own numbers would be those of another pod's now and then.
            let [.., high, low] = token;
            let at = SocketAddr::new(own, u16::from_be_bytes([high, low]).max(1));
            let socket = UdpSocket::from(open(at, SocketType::DGRAM, Some(protocol)));
            let mut echo = vec![ECHO[family], 0, 0, 0, 0, 0, 0, 1];
            echo.extend(token);
            send(&socket, question, SocketAddr::new(to.ip(), 0), &echo);
            Mouth::Datagram(socket)
        }
    }
}

fn send(socket: &UdpSocket, question: Question, to: SocketAddr, bytes: &[u8]) {
    let until = Instant::now() + PATIENCE;
    loop {
        match socket.send_to(bytes, to) {
            // The queue of a neighbour that is being looked for is full.
            Err(error) if error.kind() == ErrorKind::WouldBlock && Instant::now() < until => {
                thread::sleep(STEP);
            }
            sent => {
                assert!(sent.is_ok(), "{question}: {sent:?}");
                break;
            }
        }
    }
}
