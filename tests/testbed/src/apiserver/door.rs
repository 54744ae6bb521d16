//! A node's way to the API server, which listens on the machine's loopback.
//!
//! A scratch node has a loopback of its own. Closing the door is what the node sees of a server that is
//! gone.

use std::io;
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use netdev::Netns;

/// Forwards connections to a loopback port of the node to this process' loopback.
///
/// The port is the same.
#[derive(Debug)]
pub struct Door {
    netns: Netns,
    port: u16,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    listener: TcpListener,
    streams: Arc<Mutex<Vec<TcpStream>>>,
    accepting: JoinHandle<()>,
}

impl Door {
    /// Opens it.
    ///
    /// # Panics
    /// If the port is taken in the node.
    pub fn open(netns: &Netns, port: u16) -> Self {
        let mut door = Self {
            netns: netns.clone(),
            port,
            open: None,
        };
        door.open_again();
        door
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
        let kept = Arc::clone(&streams);
        let accepting = thread::spawn(move || {
            while let Ok((inside, _)) = ours.accept() {
                // A server that is gone is a connection that is closed.
                if let Ok(outside) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) {
                    connect(inside, outside, &kept);
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

fn connect(inside: TcpStream, outside: TcpStream, kept: &Mutex<Vec<TcpStream>>) {
    let clone = |stream: &TcpStream| stream.try_clone().expect("a stream");
    let pairs = [
        (clone(&inside), clone(&outside)),
        (clone(&outside), clone(&inside)),
    ];
    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    kept.extend([inside, outside]);
    for (mut from, mut to) in pairs {
        thread::spawn(move || {
            // However it ends, the other side is told.
            let _ = io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Write);
        });
    }
}
