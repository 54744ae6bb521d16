//! Run programs in pods with an AF_XDP port: threads without privileges.
//!
//! They are in the pod's namespace.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::process::{Gid, Resource, Rlimit, Uid, getrlimit, setrlimit};
use rustix::thread::{
    CapabilitySet, capabilities, set_no_new_privs, set_thread_gid, set_thread_groups,
    set_thread_uid,
};
use xsk::control::{Address, abstract_name};
use xsk::{Config, Control, Port, Verdict};

use crate::{frame, pod};

/// Memory that a user may lock, bytes, as current kernels have it; 5.10 has less.
const LOCKED: u64 = 8 << 20;

/// Returns a user and a group that no other process has.
///
/// The kernel counts what a user has locked, and a socket that was closed counts for a while.
fn nobody() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(100_000);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Runs a program of the pod with a user of its own and without privileges.
///
/// # Panics
/// If privileges cannot be given up.
pub fn in_pod<T: Send>(port: &pod::Port, program: impl FnOnce() -> T + Send) -> T {
    let limit = Rlimit {
        current: Some(LOCKED),
        maximum: getrlimit(Resource::Memlock)
            .maximum
            .map(|it| it.max(LOCKED)),
    };
    setrlimit(Resource::Memlock, limit).expect("a limit that may be set");
    let inside = port.netns.run_in(|| {
        set_thread_groups(&[]).expect("groups");
        let nobody = nobody();
        set_thread_gid(Gid::from_raw(nobody)).expect("a group");
        set_thread_uid(Uid::from_raw(nobody)).expect("a user");
        set_no_new_privs(true).expect("no new privileges");
        let sets = capabilities(None).expect("capabilities can be read");
        assert_eq!(sets.permitted | sets.effective, CapabilitySet::empty());
        program()
    });
    inside.expect("the namespace can be entered")
}

/// Opens a port's queue as such a program, by the pod's own control socket.
///
/// The socket is in the pod without a mount.
pub fn open(port: &pod::Port, queue: u32) -> Port {
    open_by(port, queue, &abstract_name(&port.ifname))
}

/// The same, by this control socket.
///
/// # Panics
/// If the agent or the kernel refuses.
pub fn open_by(port: &pod::Port, queue: u32, address: &Address) -> Port {
    let ifindex = port.link().expect("the interface is there").ifindex;
    let ifname = &port.ifname;
    in_pod(port, || {
        let mut control = Control::connect(address).expect("the agent listens");
        let socket = control.new_socket(ifname).expect("a socket");
        let open = Port::bind(socket, ifindex, queue, &Config::default()).expect("bound");
        control.insert(ifname, queue, &open).expect("inserted");
        control.finish().expect("finished");
        open
    })
}

/// A program that sends every UDP datagram and ping over IPv4 back to its sender.
#[derive(Debug)]
pub struct Echo {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl Echo {
    /// Starts it on these queues.
    pub fn start(mut ports: Vec<Port>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let (mut answered, mut unfinished) = (0, 0);
            while !stopped.load(Ordering::Acquire) {
                if let [port] = &ports[..] {
                    port.wait(Duration::from_millis(10))
                        .expect("the port is there");
                } else {
                    thread::yield_now();
                }
                for port in &mut ports {
                    port.receive(64, |bytes| {
                        let is_finished =
                            bytes.get(23) != Some(&17) || frame::has_udp_checksum(bytes);
                        unfinished += u64::from(!is_finished);
                        if frame::reflect(bytes) {
                            answered += 1;
                            Verdict::Send
                        } else {
                            Verdict::Done
                        }
                    });
                    port.flush().expect("the port is there");
                }
            }
            assert_eq!(unfinished, 0, "datagrams without a finished checksum");
            answered
        });
        Self { stop, thread }
    }

    /// Ends it; how many it has answered.
    ///
    /// # Panics
    /// If the port went away, or a datagram came with an unfinished checksum.
    pub fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Release);
        self.thread.join().expect("the program does not panic")
    }
}
