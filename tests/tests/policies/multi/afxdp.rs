//! A program of a pod that joins its AF_XDP port to a stack.
//!
//! The stack is in a namespace of its own, as that of a virtual machine.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use netdev::{Connection, LinkChange, Netns, Route, Sysctl, TapSpec, sysctl};
use rustix::io::{Errno, read, write};
use testbed::{Port, afxdp, wait};
use xsk::Verdict;

/// A frame of the largest MTU that tests have.
const FRAME: usize = 10_000;
/// Frames that are taken at once.
const BURST: u32 = 64;
/// The longest sleep.
const NAP: Duration = Duration::from_micros(500);

/// The running program; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Bridge {
    netns: Netns,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Bridge {
    /// Starts it on a port with one queue.
    pub(super) fn start(port: &Port) -> Self {
        let netns = Netns::create().expect("a network namespace");
        let device = netns.run_in(|| stack(port));
        let device = device.expect("the namespace can be entered");
        let mut socket = afxdp::open(port, 0);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut frame = vec![0; FRAME];
            while !stopped.load(Ordering::Acquire) {
                let received = socket.receive(BURST, |bytes| {
                    // A device without room drops, as any.
                    let _ = write(&device, bytes);
                    Verdict::Done
                });
                let mut sent = 0;
                while sent < BURST {
                    let length = match read(&device, &mut *frame) {
                        Err(Errno::AGAIN) => break,
                        read => read.expect("the TAP device"),
                    };
                    while !socket.send(&frame[..length]) {
                        socket.flush().expect("the port is there");
                    }
                    sent += 1;
                }
                socket.flush().expect("the port is there");
                if received == 0 && sent == 0 {
                    socket.wait(NAP).expect("the port is there");
                }
            }
        });
        Self {
            netns,
            stop,
            thread: Some(thread),
        }
    }

    /// The namespace of the stack.
    pub(super) fn netns(&self) -> &Netns {
        &self.netns
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || thread::panicking(), "the program died");
        }
    }
}

/// An interface with the name, the addresses and the routes of the pod's.
fn stack(port: &Port) -> OwnedFd {
    let mut here = Connection::open().expect("a netlink socket");
    let ifindex = here
        .create_tap(&TapSpec {
            name: port.ifname.clone(),
            mtu: 1500,
            alias: "afxdp".to_owned(),
        })
        .expect("a TAP device");
    // A process that another test is just starting has the file by which it was made for a moment more.
    let device = wait::until("the file of the TAP device", || {
        here.open_tap(&port.ifname, ifindex, false).ok()
    });
    let mac = LinkChange {
        mac: Some(port.mac.0),
        ..LinkChange::default()
    };
    here.reconfigure(ifindex, &mac).expect("its MAC address");
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
    for route in port.result["routes"].as_array().into_iter().flatten() {
        let text = |key: &str| route[key].as_str();
        let to = text("dst").and_then(|text| text.split_once('/'));
        let (to, length) = to.expect("a prefix");
        let via = text("gw").map(|text| text.parse().expect("an address"));
        let (to, length) = (
            to.parse().expect("an address"),
            length.parse().expect("a length"),
        );
        let route = Route {
            onlink: via.is_some(),
            ..Route::new(to, length, via, ifindex)
        };
        here.add_route(&route).expect("its routes");
    }
    device
}
