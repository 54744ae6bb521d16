//! memif ports: the switch listens, and this is its client.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use memif::{Address, Client, ClientConfig, Event, Port, Secret, Sent, Text, Violation};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use super::{Fate, Place, Tally, Wire};

/// How long the server may take to let us in.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between two attempts to connect.
const RETRY: Duration = Duration::from_millis(20);
/// First sleep, short as a server may just have missed the wish for a doorbell.
const NAP: Duration = Duration::from_millis(1);
/// Between two looks at the socket while packets come.
const LOOK: Duration = Duration::from_secs(1);
/// Calls between two looks at the clock.
const CALLS: u32 = 1024;
/// Longest frame.
const FRAME: usize = 2048;

/// A memif port.
#[derive(Debug, Args)]
pub struct Memif {
    /// The interface, as the network calls it
    #[arg(long, default_value = "net1")]
    interface: String,
    /// File of the socket, instead of its name in the pod
    #[arg(long)]
    socket: Option<PathBuf>,
    /// The number of the interface behind the socket
    #[arg(long, default_value_t = 0)]
    id: u32,
    /// The secret, if the server wants one
    #[arg(long)]
    secret: Option<String>,
    /// Slots of a ring, as a power of two
    #[arg(long, default_value_t = 10)]
    log2_ring_size: u8,
}

/// A port that connects again when it has to.
#[derive(Debug)]
pub struct Connection {
    client: Client,
    rings: Option<Port>,
    epoll: OwnedFd,
    /// Of the rings that are gone.
    before: Tally,
    buffer: Vec<u8>,
    nap: Duration,
    looked: Instant,
    calls: u32,
}

impl Memif {
    /// An interface behind a socket.
    pub fn behind(socket: &Path, id: u32) -> Self {
        Self {
            interface: String::new(),
            socket: Some(socket.to_owned()),
            id,
            secret: None,
            log2_ring_size: 10,
        }
    }
}

impl Place for Memif {
    type Port = Connection;

    fn open(&self) -> Result<Connection> {
        let address = match &self.socket {
            Some(path) => Address::Path(path.clone()),
            None => Address::Abstract(format!("podnet/{}", self.interface).into_bytes()),
        };
        let mut config = ClientConfig::new(Text::new("podnet-memif")?);
        config.id = self.id;
        config.log2_ring_size = self.log2_ring_size;
        if let Some(secret) = &self.secret {
            config.secret = Secret::new(secret)?;
        }
        let now = Instant::now();
        let client = Client::new(address, config, now)?.with_retry(RETRY);
        let mut connection = Connection {
            client,
            rings: None,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            before: Tally::default(),
            buffer: vec![0; FRAME],
            nap: NAP,
            looked: now,
            calls: 0,
        };
        let mut why = anyhow!("the server does not answer");
        while connection.rings.is_none() {
            if let Err(error) = connection.look() {
                why = error;
            }
            if now.elapsed() >= PATIENCE {
                return Err(why).context("connecting");
            }
            connection.sleep(RETRY)?;
        }
        Ok(connection)
    }
}

impl Connection {
    /// Looks at the socket and at the clock.
    fn look(&mut self) -> Result<()> {
        let now = Instant::now();
        self.looked = now;
        let event = self.client.poll(now);
        match event {
            Ok(Event::Nothing) => Ok(()),
            Ok(Event::Connected(rings)) => {
                self.rings = Some(rings);
                self.listen()
            }
            Ok(Event::Closed(why)) => {
                self.forget();
                bail!("{why}")
            }
            Err(error) => {
                self.forget();
                Err(error.into())
            }
        }
    }

    /// Polls the connection from time to time, and makes a lost one again.
    fn look_sometimes(&mut self) {
        self.calls = self.calls.wrapping_add(1);
        let due = match self.rings {
            Some(_) => self.calls.is_multiple_of(CALLS) && self.looked.elapsed() >= LOOK,
            None => self.looked.elapsed() >= RETRY,
        };
        if due && let Err(error) = self.look() {
            eprintln!("podnet-memif: {error:#}");
        }
    }

    /// Waits for the socket and for the rings of a connection that is new.
    fn listen(&mut self) -> Result<()> {
        // Files that are closed leave an epoll by themselves, but one of our own cannot be sure that the
        // peer has closed its copy.
        self.epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let edges = epoll::EventFlags::IN | epoll::EventFlags::ET;
        let bells = self.rings.iter().flat_map(|rings| &rings.rx);
        for file in bells.filter_map(memif::Rx::event).chain(self.client.fd()) {
            epoll::add(&self.epoll, file, epoll::EventData::new_u64(0), edges)
                .context("an epoll")?;
        }
        Ok(())
    }

    fn forget(&mut self) {
        if let Some(rings) = self.rings.take() {
            add(&mut self.before, &rings);
        }
    }

    fn violated(&mut self, violation: Violation) -> anyhow::Error {
        self.forget();
        let closed = self.client.violated(violation, Instant::now());
        anyhow!("{closed}")
    }

    fn sleep(&self, limit: Duration) -> Result<()> {
        let limit = Timespec::try_from(limit)?;
        let mut events = Vec::with_capacity(4);
        match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&limit)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno).context("waiting for packets"),
        }
    }
}

impl Wire for Connection {
    fn receive(&mut self, budget: u16, mut visit: impl FnMut(&mut [u8]) -> Fate) -> Result<u32> {
        self.look_sometimes();
        let Some(Port { rx, tx, .. }) = &mut self.rings else {
            return Ok(0);
        };
        let (mut count, buffer) = (0_u32, &mut self.buffer);
        let mut outcome = Ok(());
        for rx in rx {
            let taken = rx.burst(budget, |packet| {
                count += 1;
                let len = packet.read(0, buffer);
                if visit(&mut buffer[..len]) == Fate::Returned
                    && let Some(tx) = tx.first_mut()
                    && outcome.is_ok()
                {
                    // What there is no room for is counted by the ring.
                    outcome = tx.push(&buffer[..len]).map(drop);
                }
            });
            if let Err(violation) = taken {
                outcome = Err(violation);
            }
        }
        if let Err(violation) = outcome {
            return Err(self.violated(violation));
        }
        if count > 0 {
            self.nap = NAP;
        }
        Ok(count)
    }

    fn send(&mut self, frame: &[u8]) -> Result<bool> {
        let ring = self.rings.as_mut().and_then(|rings| rings.tx.first_mut());
        let Some(tx) = ring else {
            return Ok(false);
        };
        match tx.push(frame) {
            Ok(sent) => Ok(sent == Sent::Yes),
            Err(violation) => Err(self.violated(violation)),
        }
    }

    fn flush(&mut self) -> Result<()> {
        for tx in self.rings.iter_mut().flat_map(|rings| &mut rings.tx) {
            tx.flush();
        }
        Ok(())
    }

    fn wait(&mut self, limit: Duration) -> Result<()> {
        let mut idle = true;
        for rx in self.rings.iter_mut().flat_map(|rings| &mut rings.rx) {
            match rx.arm() {
                Ok(empty) => idle &= empty,
                Err(violation) => return Err(self.violated(violation)),
            }
        }
        if idle {
            self.sleep(self.nap.min(limit))?;
            self.nap = (self.nap * 2).min(limit);
        }
        for rx in self.rings.iter_mut().flat_map(|rings| &mut rings.rx) {
            rx.disarm();
        }
        if let Err(error) = self.look() {
            eprintln!("podnet-memif: {error:#}");
        }
        Ok(())
    }

    fn tally(&self) -> Result<Tally> {
        let mut tally = self.before.clone();
        if let Some(rings) = &self.rings {
            add(&mut tally, rings);
        }
        Ok(tally)
    }
}

fn add(tally: &mut Tally, rings: &Port) {
    for rx in &rings.rx {
        let counters = rx.counters();
        tally.received += counters.packets;
        tally.dropped += counters.bad_chain + counters.bad_length;
    }
    for tx in &rings.tx {
        let counters = tx.counters();
        tally.sent += counters.packets;
        tally.full += counters.no_buffer + counters.too_long;
    }
}

#[cfg(test)]
mod unit {
    use agent_common::addr::MacAddr;
    use memif::{Door, Listener, Name, ServerConfig, ServerConnection};
    use testbed::frame::{ethernet, reflect, udp4};
    use testbed::wait;

    use super::*;

    fn name(text: &str) -> Name {
        Text::new(text).unwrap()
    }

    fn accept(listener: &Listener) -> (ServerConnection, Port) {
        let mut connection = wait::until("a client", || listener.accept(Instant::now()).unwrap());
        let port = wait::until("the handshake", || {
            match connection.ready(Instant::now()).unwrap() {
                Event::Connected(port) => Some(port),
                Event::Nothing => None,
                Event::Closed(why) => panic!("{why}"),
            }
        });
        (connection, port)
    }

    /// Sends datagrams and waits for their answers.
    fn ask(port: &mut Port, count: u8) {
        let (a, b) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        for number in 0..count {
            let packet = udp4(a, b, (1, 2), &[number; 30]);
            let mut frame = ethernet(MacAddr([2; 6]), MacAddr([4; 6]), 0x0800, &packet);
            // A client that is new has not lent its buffers yet.
            wait::until_true("room", || port.tx[0].push(&frame) == Ok(Sent::Yes));
            port.tx[0].flush();
            assert!(reflect(&mut frame));
            let mut back = Vec::new();
            wait::until_true("the answer", || {
                let taken = port.rx[0].burst(1, |packet| {
                    back.resize(packet.len() as usize, 0);
                    packet.read(0, &mut back);
                });
                taken.unwrap() > 0
            });
            assert_eq!(back, frame);
        }
    }

    /// One client for two servers: the second comes when the first is gone.
    #[test]
    fn a_port_is_connected_again_when_its_server_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("memif.sock");
        let config = || ServerConfig::new(name("test"), Door::new(0, name("test/0")));
        let listen = || Listener::bind(&Address::Path(path.clone()), config()).unwrap();
        let listener = listen();
        let place = Memif::behind(&path, 0);
        let application = std::thread::spawn(move || {
            let mut port = place.open().unwrap();
            let mut answered = 0;
            while answered < 30 {
                let came = port.receive(super::super::BURST, |frame| {
                    assert!(reflect(frame));
                    Fate::Returned
                });
                answered += came.unwrap();
                port.flush().unwrap();
                port.wait(Duration::from_millis(5)).unwrap();
            }
            port.tally().unwrap()
        });
        let (connection, mut port) = accept(&listener);
        ask(&mut port, 10);
        drop((connection, port, listener));
        let listener = listen();
        let (_connection, mut port) = accept(&listener);
        ask(&mut port, 20);
        let tally = application.join().unwrap();
        assert_eq!((tally.received, tally.sent, tally.full), (30, 30, 0));
    }

    #[test]
    fn without_a_server_it_is_said_why_it_cannot_be_opened() {
        let dir = tempfile::tempdir().unwrap();
        let place = Memif::behind(&dir.path().join("nobody.sock"), 0);
        let error = format!("{:#}", place.open().unwrap_err());
        assert!(error.contains("nobody.sock"), "{error}");
    }
}
