//! Run a switch with two ports of one network, loaded by two DPDK clients.
//!
//! It is an example to measure with.
//!
//! ```sh
//! cargo run --release --package uswitch --example switch_forward -- /tmp/memif
//! ```
//!
//! The ports are at `/tmp/memif.0` and `/tmp/memif.1`, both interface 0 there. A client of the first
//! must send from 02:00:00:00:00:10 to 02:00:00:00:00:11, one of the second the other way round, and
//! both from 198.18.0.1, as testpmd does with
//!
//! ```text
//! --vdev=net_memif0,role=client,id=0,socket=/tmp/memif.0,socket-abstract=no,mac=02:00:00:00:00:10
//! --vdev=net_memif1,role=client,id=0,socket=/tmp/memif.1,socket-abstract=no,mac=02:00:00:00:00:11
//! -- --eth-peer=0,02:00:00:00:00:11 --eth-peer=1,02:00:00:00:00:10 --tx-first
//! ```
//!
//! It runs until it is ended, and says every second what went through.

use std::env;
use std::error::Error;
use std::os::fd::{AsFd as _, OwnedFd};
use std::thread;
use std::time::Duration;

use agent_common::addr::MacAddr;
use memif::Address;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use uswitch::control::Client;
use uswitch::{Options, PortConfig, Switch};

fn main() -> Result<(), Box<dyn Error>> {
    let path = env::args().nth(1).ok_or("give a path for the sockets")?;
    let options = Options::new(format!("{path}.control").into());
    let switch = Switch::open(&options)?;
    let running = thread::spawn(move || switch.run());
    let mut client = Client::connect(&options.socket)?;
    // What goes to a device is a mistake of the load's, and is not read.
    let mut devices: Vec<OwnedFd> = Vec::new();
    for nth in 0..2_u8 {
        let config = PortConfig {
            key: format!("port{nth}"),
            name: format!("port{nth}"),
            network: 1,
            port_id: nth.into(),
            flags: 0,
            mac: MacAddr([2, 0, 0, 0, 0, 0x10 + nth]),
            ips: vec!["198.18.0.1".parse()?],
            mtu: 1500,
            fast: true,
            trains: true,
            queues: 1,
            secret: None,
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (device, kernel) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        let listener = Address::Path(format!("{path}.{nth}").into()).listen()?;
        client.add(&config, (device.as_fd(), false), &[listener.as_fd()])?;
        devices.push(kernel);
    }
    let mut before = 0;
    while !running.is_finished() {
        thread::sleep(Duration::from_secs(1));
        let ports = client.list()?;
        let now: u64 = ports.iter().map(|port| port.counters.fast_to.packets).sum();
        let dropped: u64 = ports
            .iter()
            .map(|port| port.counters.drops.no_buffer + port.counters.drops.device_full)
            .sum();
        let device: u64 = ports
            .iter()
            .map(|port| port.counters.device_from.packets)
            .sum();
        let rate = now.saturating_sub(before) / 1000;
        println!("{rate} kpps, {dropped} dropped, {device} to devices");
        before = now;
    }
    Ok(())
}
