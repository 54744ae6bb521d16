//! Running testpmd, and our end of the connection to it.

use std::env;
use std::fs::File;
use std::io::Read as _;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use memif::{
    Address, Client, ClientConfig, Closed, Door, Event, Listener, Name, Port, Rx, Sent,
    ServerConfig, ServerConnection, Text, Tx,
};
use netdev::Netns;
use rustix::event::{Timespec, epoll};
use tempfile::TempDir;
use testbed::{testpmd, wait};

/// One at a time: each keeps a core busy, and has half a gigabyte.
static ALONE: Mutex<()> = Mutex::new(());
/// Bytes that testpmd swaps: the first two addresses.
const MACS: usize = 12;

/// testpmd on this machine, and a namespace to run it in.
pub(crate) struct Place {
    root: PathBuf,
    pub(crate) netns: Netns,
    pub(crate) dir: TempDir,
    /// How many were started here.
    started: AtomicU32,
    _alone: MutexGuard<'static, ()>,
}

impl Place {
    /// Says so when testpmd is not there, or the caller is not root.
    pub(crate) fn find(test: &str) -> Option<Self> {
        if testbed::skip::without_root(test) {
            return None;
        }
        let Some(root) = env::var_os("PODNET_DPDK") else {
            testbed::skip::skip(test, "needs testpmd");
            return None;
        };
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        Some(Self {
            root: root.into(),
            netns: Netns::create().expect("a network namespace"),
            dir: tempfile::tempdir().expect("a directory"),
            started: AtomicU32::new(0),
            _alone: alone,
        })
    }

    /// Starts testpmd with these devices and options, as a reflector.
    ///
    /// It sends back what it gets, with the MAC addresses swapped.
    pub(crate) fn start(&self, device: &str, options: &[&str]) -> Testpmd {
        self.start_with(device, &[], options)
    }

    /// The same, with options of DPDK before those of testpmd.
    pub(crate) fn start_with(&self, device: &str, of_dpdk: &[&str], options: &[&str]) -> Testpmd {
        let nth = self.started.fetch_add(1, Ordering::Relaxed);
        let log = self.dir.path().join(format!("testpmd{nth}.log"));
        let output = File::create(&log).expect("a log can be written");
        let drivers = ["librte_net_memif", "librte_mempool_ring"];
        let prefix = format!("podnet{nth}");
        let mut command = testpmd::command(&self.root, &drivers, 0, (self.dir.path(), &prefix));
        command
            .arg("--log-level=pmd.net.memif:debug")
            .args(of_dpdk)
            .arg(format!("--vdev=net_memif0,{device}"))
            .args(["--", "--forward-mode=macswap", "--port-topology=loop"])
            // What comes before it forwards stays in the ring.
            .args(["--auto-start", "--no-flush-rx", "--total-num-mbufs=8192"])
            .args(options)
            // It ends when there is nothing more to read.
            .stdin(Stdio::piped())
            .stdout(output.try_clone().expect("a second handle"))
            .stderr(output);
        let child = self.netns.run_in(move || command.spawn());
        Testpmd {
            child: child.expect("entered").expect("testpmd can be started"),
            log,
        }
    }

    /// A socket of this name in the namespace.
    pub(crate) fn abstract_address(name: &str) -> Address {
        Address::Abstract(name.as_bytes().to_vec())
    }

    /// Listens in the namespace.
    pub(crate) fn listen(&self, address: &Address, config: ServerConfig) -> Listener {
        let socket = self.netns.run_in(|| address.listen()).expect("entered");
        Listener::new(socket.expect("a free address"), config).expect("a usual node")
    }

    /// A client that connects in the namespace.
    pub(crate) fn client(&self, address: Address, config: ClientConfig) -> Client {
        let netns = self.netns.clone();
        let connect = move || netns.run_in(|| address.connect()).expect("entered");
        Client::connecting_by(Box::new(connect), config, Instant::now())
            .expect("a usual node")
            .with_retry(wait::PATIENCE / 300)
    }
}

/// A running testpmd; ended when this is dropped.
pub(crate) struct Testpmd {
    child: Child,
    log: PathBuf,
}

impl Testpmd {
    /// Returns its output so far.
    pub(crate) fn log(&self) -> String {
        let mut text = Vec::new();
        let read = File::open(&self.log).and_then(|mut log| log.read_to_end(&mut text));
        read.expect("the log can be read");
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Fails the test when it has ended.
    pub(crate) fn assert_running(&mut self) {
        if let Some(status) = self.child.try_wait().expect("a child of ours") {
            panic!("testpmd ended: {status}\n{}", self.log());
        }
    }

    /// Stops it, and waits; returns its counts of packets received and sent.
    pub(crate) fn stop(mut self) -> [u64; 2] {
        drop(self.child.stdin.take());
        wait::until_true("testpmd to end", || {
            self.child.try_wait().expect("a child of ours").is_some()
        });
        let log = self.log();
        let (_, all) = log
            .split_once("Accumulated forward statistics")
            .expect("it says what it has forwarded");
        ["RX-packets:", "TX-packets:"].map(|name| {
            let count = all
                .split_once(name)
                .and_then(|(_, rest)| rest.split_whitespace().next());
            let count = count.and_then(|count| count.parse().ok());
            count.expect("a number of packets")
        })
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn name(text: &str) -> Name {
    Text::new(text).expect("a short name")
}

/// One interface, number 0.
pub(crate) fn server_config() -> ServerConfig {
    patient(ServerConfig::new(
        name("podnet"),
        Door::new(0, name("podnet/0")),
    ))
}

/// testpmd may have to wait for its core.
pub(crate) fn patient(mut config: ServerConfig) -> ServerConfig {
    config.patience = wait::PATIENCE;
    config
}

/// Our server with its client, until packets may flow.
pub(crate) fn serve(listener: &Listener, testpmd: &mut Testpmd) -> (ServerConnection, Port) {
    let mut connection = wait::until("testpmd to connect", || {
        testpmd.assert_running();
        listener.accept(Instant::now()).expect("accept")
    });
    let port = wait::until("the handshake", || {
        match connection.ready(Instant::now()).expect("no trouble") {
            Event::Connected(port) => Some(port),
            Event::Nothing => None,
            Event::Closed(why) => panic!("{why}\n{}", testpmd.log()),
        }
    });
    (connection, port)
}

/// Our server and a client that it does not let in: why.
pub(crate) fn refuse(listener: &Listener, testpmd: &mut Testpmd) -> Closed {
    let mut connection = wait::until("testpmd to connect", || {
        testpmd.assert_running();
        listener.accept(Instant::now()).expect("accept")
    });
    wait::until("the refusal", || {
        match connection.ready(Instant::now()).expect("no trouble") {
            Event::Connected(_) => panic!("let in"),
            Event::Nothing => None,
            Event::Closed(why) => Some(why),
        }
    })
}

/// Our client, until packets may flow. Attempts before the server listens fail.
pub(crate) fn connect(client: &mut Client, testpmd: &mut Testpmd) -> Port {
    wait::until("a connection to testpmd", || {
        testpmd.assert_running();
        match client.poll(Instant::now()) {
            Ok(Event::Connected(port)) => Some(port),
            // It lets clients in before it has started its ports, and has nothing for them then.
            Ok(Event::Nothing | Event::Closed(_)) | Err(_) => None,
        }
    })
}

/// A frame that differs from every other; its type is one that is for experiments.
pub(crate) fn frame(number: u32, len: usize) -> Vec<u8> {
    let mut frame = vec![0x02, 0, 0, 0, 0, 0x0a, 0x02, 0, 0, 0, 0, 0x0b, 0x88, 0xb5];
    frame.extend(number.to_be_bytes());
    let mut state = number.wrapping_mul(0x9E37_79B9) | 1;
    while frame.len() < len {
        // xorshift: no part of a frame is like another.
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        frame.extend(state.to_be_bytes());
    }
    frame.truncate(len);
    frame
}

/// Sends frames of these lengths repeatedly, and compares the ones that come back.
///
/// None may be lost, changed or come in another order.
///
/// # Panics
/// Then.
pub(crate) fn exchange(
    tx: &mut Tx,
    rx: &mut Rx,
    lens: &[usize],
    count: u32,
    testpmd: &mut Testpmd,
) {
    let (mut sent, mut back) = (0, 0);
    let at_once = u32::from(tx.size().min(rx.size()) / 2).clamp(1, 64);
    let len = |number: u32| lens[number as usize % lens.len()];
    wait::until("all frames to come back", || {
        testpmd.assert_running();
        // As long as frames come, nobody sleeps.
        let mut idle = 0;
        while idle < 1000 {
            while sent < count && sent - back < at_once && tx.free().expect("an honest peer") > 0 {
                assert_eq!(tx.push(&frame(sent, len(sent))), Ok(Sent::Yes));
                sent += 1;
            }
            tx.flush();
            let taken = rx.burst(64, |packet| {
                let mut bytes = vec![0; packet.len() as usize];
                packet.read(0, &mut bytes);
                let mut expected = frame(back, len(back));
                expected[..MACS].rotate_left(MACS / 2);
                assert!(bytes == expected, "frame {back} came back as {bytes:02x?}");
                back += 1;
            });
            if back == count {
                break;
            }
            if taken.expect("an honest peer") > 0 {
                idle = 0;
            } else {
                idle += 1;
                thread::yield_now();
            }
        }
        (back == count).then_some(())
    });
}

/// Asserts that frames that come back wake a sleeper, most of the time.
///
/// DPDK has no fence between its index and its look at our wish, so a single ring may be lost, and a
/// sleeper needs a time limit.
///
/// # Panics
/// If nothing ever wakes it.
pub(crate) fn assert_woken(port: &mut Port, testpmd: &mut Testpmd) {
    let (tx, rx) = (&mut port.tx[0], &mut port.rx[0]);
    exchange(tx, rx, &[60], 10, testpmd);
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).expect("an epoll");
    let bell = rx.event().expect("the ring has a bell");
    let edges = epoll::EventFlags::IN | epoll::EventFlags::ET;
    epoll::add(&epoll, bell, epoll::EventData::new_u64(0), edges).expect("a new one");
    let mut woken = 0;
    wait::until_true("three rings of the bell", || {
        testpmd.assert_running();
        assert_eq!(rx.arm(), Ok(true), "all frames were taken");
        assert_eq!(tx.push(&frame(7, 60)), Ok(Sent::Yes));
        tx.flush();
        let mut events = Vec::with_capacity(1);
        let limit = Timespec {
            tv_sec: 0,
            tv_nsec: 200_000_000,
        };
        let events = rustix::buffer::spare_capacity(&mut events);
        woken += epoll::wait(&epoll, events, Some(&limit)).expect("an epoll");
        rx.disarm();
        let mut back = false;
        wait::until_true("the frame", || {
            rx.burst(64, |_| back = true).expect("an honest peer");
            back
        });
        woken >= 3
    });
}
