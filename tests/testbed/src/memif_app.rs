//! A pod's program that joins a port of type Memif to the stack of its namespace.
//!
//! A TAP device has the name and the addresses of the interface a pod would have otherwise. So all that
//! talks to kernel ports can talk to this one.

use std::net::IpAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use memif::{Address, Client, ClientConfig, Event, Port as Rings, Sent, Text};
use netdev::{Connection, LinkChange, Netns, Route, Sysctl, TapSpec, sysctl};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, read, write};
use serde_json::Value;

use crate::pod::Port;
use crate::wait;

/// A frame of the largest MTU that tests have.
const FRAME: usize = 10_000;
/// Frames that are taken at once.
const BURST: u16 = 64;
/// The longest sleep: a peer may miss that somebody sleeps.
const NAP: Duration = Duration::from_millis(2);

/// The running program; it ends when this is dropped.
#[derive(Debug)]
pub struct MemifApp {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    connected: AtomicBool,
    /// Connections so far.
    connections: AtomicU64,
}

impl MemifApp {
    /// Starts it on a port, and waits until it is connected.
    ///
    /// The port goes by the name in the pod's namespace.
    ///
    /// # Panics
    /// If that cannot be.
    #[track_caller]
    pub fn start(port: &Port) -> Self {
        let name = format!("podnet/{}", port.ifname);
        Self::start_at(port, Address::Abstract(name.into_bytes()))
    }

    /// The same, at this address.
    ///
    /// # Panics
    /// As [`Self::start`].
    #[track_caller]
    pub fn start_at(port: &Port, address: Address) -> Self {
        let inside = port.clone();
        let device = port.netns.run_in(move || stack(&inside));
        let device = device.expect("the namespace can be entered");
        let client = client(&port.netns, address);
        let shared = Arc::new(Shared::default());
        let known = Arc::clone(&shared);
        let thread = thread::Builder::new().name(format!("memif {}", port.container));
        let thread = thread.spawn(move || work(client, &device, &known));
        let app = Self {
            shared,
            thread: Some(thread.expect("a thread")),
        };
        app.wait_connected();
        app
    }

    /// Waits until it is connected.
    ///
    /// # Panics
    /// If it has ended, or is not in time.
    #[track_caller]
    pub fn wait_connected(&self) {
        wait::until_true("the memif client to be connected", || {
            let running = self.thread.as_ref().is_some_and(|it| !it.is_finished());
            assert!(running, "the memif client ended");
            self.shared.connected.load(Ordering::Acquire)
        });
    }

    /// How often it has connected.
    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::Acquire)
    }
}

impl Drop for MemifApp {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(
                ended.is_ok() || thread::panicking(),
                "the memif client died"
            );
        }
    }
}

/// A client that connects in the namespace, again and again.
fn client(netns: &Netns, address: Address) -> Client {
    let netns = netns.clone();
    let connect = move || netns.run_in(|| address.connect()).expect("entered");
    let config = ClientConfig::new(Text::new("app").expect("a short name"));
    Client::connecting_by(Box::new(connect), config, Instant::now())
        .expect("a usual node")
        .with_retry(NAP)
}

/// The interface that a pod would have, with its addresses and routes.
fn stack(port: &Port) -> OwnedFd {
    let mut here = Connection::open().expect("a netlink socket");
    let mtu = port.result["interfaces"][0]["mtu"].as_u64().unwrap_or(1500);
    let ifindex = here
        .create_tap(&TapSpec {
            name: port.ifname.clone(),
            mtu: u32::try_from(mtu).expect("an MTU"),
            alias: "memif".to_owned(),
        })
        .expect("a TAP device in the pod");
    // A process that another test is just starting has the file by which it was made for a moment more.
    let device = wait::until("the file of the TAP device", || {
        here.open_tap(&port.ifname, ifindex, false).ok()
    });
    let mac = LinkChange {
        mac: Some(port.mac.0),
        ..LinkChange::default()
    };
    here.reconfigure(ifindex, &mac).expect("its MAC address");
    // No solicitations of its own, and addresses that can be used at once.
    let settings = [
        Sysctl::v6("disable_ipv6", "0"),
        Sysctl::v6("accept_dad", "0"),
    ];
    sysctl::write(&port.ifname, &settings).expect("its settings");
    here.set_up(ifindex).expect("it goes up");
    for (ip, length) in &port.ips {
        here.add_address(ifindex, netdev::Address::new(*ip, *length))
            .expect("its addresses");
    }
    let link_local = netdev::link_local(port.mac.0);
    here.add_address(ifindex, netdev::Address::new(link_local.into(), 64))
        .expect("its link-local address");
    for route in port.result["routes"].as_array().into_iter().flatten() {
        here.add_route(&as_route(route, ifindex))
            .expect("its routes");
    }
    device
}

fn as_route(route: &Value, ifindex: u32) -> Route {
    let (to, length) = route["dst"]
        .as_str()
        .and_then(|text| text.split_once('/'))
        .expect("a prefix");
    let via = route["gw"].as_str();
    let via: Option<IpAddr> = via.map(|text| text.parse().expect("an address"));
    let to: IpAddr = to.parse().expect("an address");
    Route {
        onlink: via.is_some(),
        ..Route::new(to, length.parse().expect("a length"), via, ifindex)
    }
}

fn work(mut client: Client, device: &OwnedFd, shared: &Shared) {
    let mut rings: Option<Rings> = None;
    let mut frame = vec![0; FRAME];
    while !shared.stop.load(Ordering::Acquire) {
        match client.poll(Instant::now()) {
            Ok(Event::Connected(port)) => {
                rings = Some(port);
                shared.connections.fetch_add(1, Ordering::AcqRel);
                shared.connected.store(true, Ordering::Release);
            }
            Ok(Event::Closed(_)) => {
                shared.connected.store(false, Ordering::Release);
                rings = None;
            }
            // It tries again by itself.
            Ok(Event::Nothing) | Err(_) => {}
        }
        let moved = rings.as_mut().is_some_and(|rings| {
            let received = to_stack(rings, device);
            let sent = to_network(rings, device, &mut frame);
            received | sent
        });
        if !moved {
            nap(&client, rings.as_mut(), device);
        }
    }
}

/// Moves packets of the network to the pod.
fn to_stack(rings: &mut Rings, device: &OwnedFd) -> bool {
    let mut moved = false;
    for rx in &mut rings.rx {
        let taken = rx.burst(BURST, |packet| {
            let mut frame = vec![0; packet.len() as usize];
            packet.read(0, &mut frame);
            // A device that is gone is one whose pod is.
            let _ = write(device, &frame);
        });
        moved |= taken.expect("the switch keeps to the protocol") > 0;
    }
    moved
}

/// Moves packets of the pod to the network.
fn to_network(rings: &mut Rings, device: &OwnedFd, frame: &mut [u8]) -> bool {
    let Some(tx) = rings.tx.first_mut() else {
        return false;
    };
    let mut moved = false;
    for _ in 0..BURST {
        // Taken only when there is room: nothing is lost here.
        if tx.free().expect("the switch keeps to the protocol") == 0 {
            break;
        }
        let length = match read(device, &mut *frame) {
            Err(Errno::AGAIN) => break,
            read => read.expect("the TAP device of the pod"),
        };
        let sent = tx.push(&frame[..length]);
        assert_eq!(sent, Ok(Sent::Yes), "there was room");
        moved = true;
    }
    tx.flush();
    moved
}

/// Sleeps until something comes, but not for long.
fn nap(client: &Client, rings: Option<&mut Rings>, device: &OwnedFd) {
    let mut files = vec![device.as_fd()];
    files.extend(client.fd());
    let mut idle = true;
    if let Some(rings) = rings {
        for rx in &mut rings.rx {
            idle &= rx.arm().expect("the switch keeps to the protocol");
        }
    }
    if !idle {
        return;
    }
    let mut waiting: Vec<PollFd<'_>> = files
        .iter()
        .map(|file| PollFd::new(file, PollFlags::IN))
        .collect();
    let limit = Timespec::try_from(NAP).expect("not long");
    // What woke it is looked at in any case.
    let _ = poll(&mut waiting, Some(&limit));
}
