//! Connect two interfaces of one socket with each other.
//!
//! Packets that come in by one go out by the other. One thread polls; for measuring, with two DPDK
//! clients as the load.
//!
//! ```sh
//! cargo run --release --package memif --example cross_connect -- /tmp/memif.sock
//! ```
//!
//! Interfaces 0 and 1 are behind the socket. It runs until it is ended, and says every second what
//! went through.

use std::env;
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use memif::{
    Address, Door, Event, Listener, Name, Port, ServerConfig, ServerConnection, Text, Violation,
};

/// Packets of a ring before it is the next one's turn.
const BURST: u16 = 64;
/// Bytes that are copied to be looked at, and sent from the copy.
const HEADER: usize = 64;
/// Bursts between two looks at sockets.
const BURSTS: u32 = 1024;

struct Interface {
    connection: ServerConnection,
    port: Option<Port>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = env::args_os().nth(1).ok_or("give a path for the socket")?;
    let name: Name = Text::new("cross-connect")?;
    let mut config = ServerConfig::new(name, Door::new(0, Text::new("cross/0")?));
    config
        .doors
        .push(Arc::new(Door::new(1, Text::new("cross/1")?)));
    let listener = Listener::bind(&Address::Path(path.into()), config)?;
    let mut interfaces: Vec<Interface> = Vec::new();
    let mut shown = Instant::now();
    let mut before = 0;
    loop {
        let now = Instant::now();
        if let Some(connection) = listener.accept(now)? {
            interfaces.push(Interface {
                connection,
                port: None,
            });
        }
        interfaces.retain_mut(|interface| control(interface, now));
        let mut ports = interfaces
            .iter_mut()
            .filter_map(|interface| interface.port.as_mut());
        if let (Some(one), Some(other)) = (ports.next(), ports.next()) {
            for _ in 0..BURSTS {
                let moved = connect(one, other)? + connect(other, one)?;
                if moved == 0 {
                    std::thread::yield_now();
                }
            }
        } else {
            std::thread::sleep(Duration::from_millis(1));
        }
        if now.duration_since(shown) >= Duration::from_secs(1) {
            let rings = interfaces
                .iter()
                .filter_map(|interface| interface.port.as_ref());
            let all: u64 = rings
                .flat_map(|port| &port.rx)
                .map(|rx| rx.counters().packets)
                .sum();
            let rate = all.saturating_sub(before) / 1000;
            println!("{rate} kpps");
            before = all;
            shown = now;
        }
    }
}

/// Whether the connection is still there.
fn control(interface: &mut Interface, now: Instant) -> bool {
    match interface.connection.ready(now) {
        Ok(Event::Nothing) => true,
        Ok(Event::Connected(port)) => {
            println!("{} of {} is connected", port.peer, port.app);
            interface.port = Some(port);
            true
        }
        Ok(Event::Closed(why)) => {
            println!("{why}");
            false
        }
        Err(error) => {
            println!("{error}");
            false
        }
    }
}

/// A burst of each ring goes to the other side. Returns how many slots were taken.
fn connect(from: &mut Port, to: &mut Port) -> Result<u32, Violation> {
    let mut moved = 0;
    for (rx, tx) in from.rx.iter_mut().zip(&mut to.tx) {
        let mut outcome = Ok(());
        let taken = rx.burst(BURST, |packet| {
            let mut header = [0; HEADER];
            let len = packet.read(0, &mut header);
            let header = header.get(..len).unwrap_or_default();
            if let Err(violation) = tx.forward(header, &packet) {
                outcome = Err(violation);
            }
        })?;
        outcome?;
        tx.flush();
        moved += u32::from(taken);
    }
    Ok(moved)
}
