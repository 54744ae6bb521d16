//! A switch and its ports.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use agent_common::addr::{GATEWAY_MAC, MacAddr};
use agent_common::cases::build::{Ipv4, ethernet};
use memif::{Address, ClientConfig, Event, Sent, Text};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use tempfile::TempDir;
use uswitch::control::Client;
use uswitch::{Ended, Error, Options, PortConfig, PortStatus, Switch};

/// Looks again and again.
///
/// # Panics
/// After half a minute.
pub(crate) fn until<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(Instant::now() < end, "waited in vain for {what}");
        thread::yield_now();
    }
}

/// A place for a switch, and who runs there.
pub(crate) struct Scene {
    _dir: TempDir,
    pub(crate) options: Options,
    running: Option<JoinHandle<Result<Ended, Error>>>,
}

impl Scene {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    /// A switch that is started with other options.
    pub(crate) fn with(change: impl FnOnce(&mut Options)) -> Self {
        let dir = TempDir::new().unwrap();
        let mut options = Options::new(dir.path().join("switch.sock"));
        change(&mut options);
        let mut scene = Self {
            _dir: dir,
            options,
            running: None,
        };
        scene.running = Some(scene.start());
        scene
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.options.socket.clone()
    }

    fn start(&self) -> JoinHandle<Result<Ended, Error>> {
        let switch = Switch::open(&self.options).unwrap();
        thread::spawn(move || switch.run())
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(&self.options.socket).unwrap()
    }

    /// A new switch takes over from the one that runs.
    pub(crate) fn replace(&mut self) {
        let next = self.start();
        let old = self.running.replace(next).unwrap();
        assert_eq!(old.join().unwrap().unwrap(), Ended::Replaced);
    }

    /// A port of the switch, without a client.
    pub(crate) fn port(&self, network: u32, host: u8) -> Pod {
        self.port_with(network, host, |_| {})
    }

    pub(crate) fn port_with(
        &self,
        network: u32,
        host: u8,
        change: impl FnOnce(&mut PortConfig),
    ) -> Pod {
        let mut config = config(network, host);
        change(&mut config);
        let pod = Pod::new(config);
        pod.add(&mut self.client());
        pod
    }

    /// The same, with a client that has its rings.
    pub(crate) fn pod(&self, network: u32, host: u8) -> Pod {
        let mut pod = self.port(network, host);
        pod.connect();
        pod
    }

    /// It was stopped by somebody else.
    pub(crate) fn gone(mut self) {
        let running = self.running.take().unwrap();
        assert_eq!(running.join().unwrap().unwrap(), Ended::Stopped);
    }

    pub(crate) fn status(&self, pod: &Pod) -> PortStatus {
        let ports = self.client().list().unwrap();
        let found = ports
            .into_iter()
            .find(|port| port.config.key == pod.config.key);
        found.expect("the port is there")
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if let Some(running) = self.running.take()
            && !thread::panicking()
        {
            self.client().stop().unwrap();
            assert_eq!(running.join().unwrap().unwrap(), Ended::Stopped);
        }
    }
}

pub(crate) fn config(network: u32, host: u8) -> PortConfig {
    PortConfig {
        key: format!("c{network}-{host}/net1"),
        name: "net1".to_owned(),
        network,
        port_id: u16::from(host),
        flags: 0,
        mac: MacAddr([2, 0, 0, 0, 0, host]),
        ips: vec![IpAddr::V4(Ipv4Addr::new(10, 0, 0, host))],
        mtu: 1500,
        fast: true,
        judged: false,
        trains: true,
        queues: 2,
        secret: None,
    }
}

/// Two ends of a device.
pub(crate) fn device() -> (OwnedFd, OwnedFd) {
    socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )
    .unwrap()
}

/// An address that no other test has.
pub(crate) fn address() -> Address {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let nth = NEXT.fetch_add(1, Ordering::Relaxed);
    Address::Abstract(format!("uswitch-test-{}-{nth}", std::process::id()).into_bytes())
}

/// A port, and what its pod has.
pub(crate) struct Pod {
    pub(crate) config: PortConfig,
    /// The kernel's end of the device, until the switch has it.
    pub(crate) theirs: OwnedFd,
    /// The kernel program's end of the device.
    pub(crate) kernel: OwnedFd,
    pub(crate) listener: OwnedFd,
    pub(crate) address: Address,
    pub(crate) client: Option<memif::Client>,
    pub(crate) rings: Option<memif::Port>,
    received: VecDeque<Vec<u8>>,
}

impl Pod {
    pub(crate) fn new(config: PortConfig) -> Self {
        let (theirs, kernel) = device();
        let address = address();
        Self {
            config,
            theirs,
            kernel,
            listener: address.listen().unwrap(),
            address,
            client: None,
            rings: None,
            received: VecDeque::new(),
        }
    }

    pub(crate) fn add(&self, switch: &mut Client) {
        let listeners = [self.listener.as_fd()];
        switch
            .add(&self.config, (self.theirs.as_fd(), false), &listeners)
            .unwrap();
    }

    pub(crate) fn ip(&self) -> Ipv4Addr {
        match self.config.ips.first() {
            Some(IpAddr::V4(ip)) => *ip,
            other => panic!("{other:?}"),
        }
    }

    /// Becomes the port's client.
    pub(crate) fn connect(&mut self) {
        self.begin(&self.address.clone());
        until("the handshake", || {
            self.poll();
            self.rings.is_some().then_some(())
        });
    }

    /// Connects there, and does nothing more.
    pub(crate) fn begin(&mut self, address: &Address) {
        self.begin_with(address, |_| {});
    }

    /// The same, as another client than the usual one.
    pub(crate) fn begin_with(&mut self, address: &Address, change: impl FnOnce(&mut ClientConfig)) {
        let mut config = ClientConfig::new(Text::new("app").unwrap());
        config.log2_ring_size = 8;
        change(&mut config);
        if let Some(secret) = &self.config.secret {
            config.secret = memif::Secret::new(secret).unwrap();
        }
        let client = memif::Client::new(address.clone(), config, Instant::now()).unwrap();
        self.client = Some(client);
        self.poll();
    }

    /// Looks at what the switch says. Returns why the connection is no more.
    pub(crate) fn poll(&mut self) -> Option<String> {
        let client = self.client.as_mut().expect("it was begun");
        match client.poll(Instant::now()).unwrap() {
            Event::Nothing => None,
            Event::Connected(port) => {
                self.rings = Some(port);
                None
            }
            Event::Closed(why) => {
                self.rings = None;
                Some(why.to_string())
            }
        }
    }

    pub(crate) fn rings(&mut self) -> &mut memif::Port {
        self.rings.as_mut().expect("it is connected")
    }

    /// Sends a frame, as soon as there is room.
    pub(crate) fn send(&mut self, frame: &[u8]) {
        let tx = &mut self.rings().tx[0];
        until("room in the ring", || {
            (tx.free().unwrap() > 0).then_some(())
        });
        assert_eq!(tx.push(frame).unwrap(), Sent::Yes);
        tx.flush();
    }

    /// All that is there for now.
    pub(crate) fn receive_all(&mut self) -> Vec<Vec<u8>> {
        self.fetch();
        self.received.drain(..).collect()
    }

    fn fetch(&mut self) {
        let Self {
            rings, received, ..
        } = self;
        for rx in &mut rings.as_mut().expect("it is connected").rx {
            rx.burst(256, |packet| {
                let mut bytes = vec![0; packet.len() as usize];
                packet.read(0, &mut bytes);
                received.push_back(bytes);
            })
            .unwrap();
        }
    }

    /// The next frame for the pod.
    pub(crate) fn receive(&mut self) -> Vec<u8> {
        until("a frame for the pod", || {
            self.fetch();
            self.received.pop_front()
        })
    }

    /// The next frame for the kernel program.
    pub(crate) fn at_kernel(&self) -> Vec<u8> {
        until("a frame for the kernel", || next(self.kernel.as_fd()))
    }

    /// Nothing is there for the kernel program.
    pub(crate) fn assert_kernel_has_nothing(&self) {
        assert_eq!(next(self.kernel.as_fd()), None);
    }

    /// The kernel program delivers a frame.
    pub(crate) fn deliver(&self, frame: &[u8]) {
        until("room in the device", || {
            match rustix::io::write(&self.kernel, frame) {
                Ok(len) => {
                    assert_eq!(len, frame.len());
                    Some(())
                }
                Err(Errno::AGAIN) => None,
                Err(errno) => panic!("{errno}"),
            }
        });
    }

    /// A frame to another port that may be sent, and differs from all others.
    pub(crate) fn frame_to(&self, to: &Self, number: u32) -> Vec<u8> {
        let frame = Ipv4::new(self.ip(), to.ip());
        let mut frame = frame.udp(to.config.mac, self.config.mac, (1, 2));
        frame.truncate(42);
        frame.extend(number.to_be_bytes());
        frame.resize(64, 7);
        // The lengths in its headers do not say more than there is.
        frame
    }

    /// The same through the gateway of an L3 network.
    pub(crate) fn frame_by_gateway(&self, to: &Self) -> Vec<u8> {
        Ipv4::new(self.ip(), to.ip()).udp(GATEWAY_MAC, self.config.mac, (1, 2))
    }

    /// A frame to everybody.
    pub(crate) fn broadcast(&self, number: u8) -> Vec<u8> {
        ethernet(MacAddr::BROADCAST, self.config.mac, 0x88b5, &[number; 50])
    }
}

fn next(device: BorrowedFd<'_>) -> Option<Vec<u8>> {
    let mut frame = vec![0; 65536];
    match rustix::io::read(device, &mut frame) {
        Ok(len) => {
            frame.truncate(len);
            Some(frame)
        }
        Err(Errno::AGAIN) => None,
        Err(errno) => panic!("{errno}"),
    }
}

/// The number in a frame of [`Pod::frame_to`].
pub(crate) fn number(frame: &[u8]) -> u32 {
    u32::from_be_bytes(frame[42..46].try_into().unwrap())
}
