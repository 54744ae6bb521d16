//! A node's way to the API server, which listens on the machine's loopback.
//!
//! A scratch node has a loopback of its own. Closing the door is what the node sees of a server that is
//! gone, holding it what it sees of one that does not answer.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use netdev::Netns;

/// Between two looks whether a door is held.
const LOOK: Duration = Duration::from_millis(10);

/// Forwards connections to a loopback port of the node to this process' loopback.
#[derive(Debug)]
pub struct Door {
    netns: Netns,
    /// Where it listens.
    port: u16,
    /// Where it leads.
    server: u16,
    held: Arc<AtomicBool>,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    listener: TcpListener,
    streams: Arc<Mutex<Vec<TcpStream>>>,
    accepting: JoinHandle<()>,
}

impl Door {
    /// Opens it, on the server's port.
    ///
    /// # Panics
    /// If the port is taken in the node.
    pub fn open(netns: &Netns, port: u16) -> Self {
        Self::between(netns, port, port)
    }

    /// Opens it on a free port of this process' loopback.
    ///
    /// # Panics
    /// If there is none.
    pub fn open_here(server: u16) -> Self {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port on loopback");
        let port = free.local_addr().expect("a bound socket").port();
        drop(free);
        let here = Netns::current().expect("this process has a namespace");
        Self::between(&here, port, server)
    }

    fn between(netns: &Netns, port: u16, server: u16) -> Self {
        let mut door = Self {
            netns: netns.clone(),
            port,
            server,
            held: Arc::default(),
            open: None,
        };
        door.open_again();
        door
    }

    /// Port at which it listens.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Forwards nothing until [`Self::release`].
    ///
    /// Connections stay, and new ones are taken.
    pub fn hold(&self) {
        self.held.store(true, Ordering::Release);
    }

    /// Forwards what was held, and what comes.
    pub fn release(&self) {
        self.held.store(false, Ordering::Release);
    }

    /// Opens it after [`Self::close`].
    ///
    /// # Panics
    /// If it is open, or the port is taken in the node.
    pub fn open_again(&mut self) {
        assert!(self.open.is_none(), "the door is open");
        let port = self.port;
        let listener = self
            .netns
            .run_in(|| TcpListener::bind((Ipv4Addr::LOCALHOST, port)))
            .expect("the node's namespace can be entered")
            .expect("the port is free in the node");
        let streams = Arc::new(Mutex::new(Vec::new()));
        let ours = listener.try_clone().expect("a listener");
        let (kept, server) = (Arc::clone(&streams), self.server);
        let held = Arc::clone(&self.held);
        let accepting = thread::spawn(move || {
            while let Ok((inside, _)) = ours.accept() {
                // A server that is gone is a connection that is closed.
                if let Ok(outside) = TcpStream::connect((Ipv4Addr::LOCALHOST, server)) {
                    connect(inside, outside, &kept, &held);
                }
            }
        });
        self.open = Some(Open {
            listener,
            streams,
            accepting,
        });
    }

    /// Cuts every connection, and refuses new ones.
    pub fn close(&mut self) {
        let Some(open) = self.open.take() else {
            return;
        };
        self.release();
        // Ends the accepting.
        let _ = rustix::net::shutdown(&open.listener, rustix::net::Shutdown::Both);
        let _ = open.accepting.join();
        let streams = open.streams.lock().unwrap_or_else(PoisonError::into_inner);
        for stream in &*streams {
            // It may have ended by itself.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.close();
    }
}

fn connect(
    inside: TcpStream,
    outside: TcpStream,
    kept: &Mutex<Vec<TcpStream>>,
    held: &Arc<AtomicBool>,
) {
    let clone = |stream: &TcpStream| stream.try_clone().expect("a stream");
    let pairs = [
        (clone(&inside), clone(&outside)),
        (clone(&outside), clone(&inside)),
    ];
    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    kept.extend([inside, outside]);
    for (mut from, mut to) in pairs {
        let held = Arc::clone(held);
        thread::spawn(move || {
            // However it ends, the other side is told.
            let _ = forward(&mut from, &mut to, &held);
            let _ = to.shutdown(Shutdown::Write);
        });
    }
}

/// Forwards until the end, and nothing while the door is held.
fn forward(from: &mut TcpStream, to: &mut TcpStream, held: &AtomicBool) -> io::Result<()> {
    let mut chunk = vec![0; 16 * 1024];
    loop {
        let count = match from.read(&mut chunk) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            done => done?,
        };
        while held.load(Ordering::Acquire) {
            thread::sleep(LOOK);
        }
        if count == 0 {
            return Ok(());
        }
        to.write_all(chunk.get(..count).unwrap_or_default())?;
    }
}
