//! Run a switch with one port, whose client floods the kernel with datagrams.
//!
//! It is an example to measure with: its standard input is the file of the port's TAP device, opened with headers
//! or without.
//!
//! ```sh
//! switch_to_device headers 18 5 <&3
//! ```
//!
//! It sends datagrams with 18 bytes of payload from 198.18.0.1 to 198.18.0.2 at 02:00:00:00:00:11 for five seconds, and says
//! how many the device was given.

use std::env;
use std::error::Error;
use std::os::fd::AsFd as _;
use std::thread;
use std::time::{Duration, Instant};

use agent_common::addr::MacAddr;
use memif::{Address, ClientConfig, Event, Sent, Text};
use uswitch::control::Client;
use uswitch::{Options, PortConfig, Switch};

const SOURCE: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x10]);
const TO: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x11]);

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = env::args().skip(1);
    let headers = words.next().as_deref() == Some("headers");
    let payload: usize = words.next().ok_or("give bytes of payload")?.parse()?;
    let seconds: u64 = words.next().ok_or("give seconds")?.parse()?;
    let place = env::temp_dir().join(format!("switch-to-device.{}", std::process::id()));
    let options = Options::new(place.clone());
    let switch = Switch::open(&options)?;
    let running = thread::spawn(move || switch.run());
    let mut control = Client::connect(&options.socket)?;
    let config = PortConfig {
        key: "port".to_owned(),
        name: "port".to_owned(),
        network: 1,
        port_id: 0,
        flags: 0,
        mac: SOURCE,
        ips: vec!["198.18.0.1".parse()?],
        mtu: 1500,
        fast: true,
        judged: false,
        trains: true,
        queues: 1,
        secret: None,
    };
    let address = Address::Abstract(place.to_string_lossy().into_owned().into_bytes());
    let listener = address.listen()?;
    let device = std::io::stdin();
    control.add(&config, (device.as_fd(), headers), &[listener.as_fd()])?;
    let now = Instant::now();
    let mut client = memif::Client::new(address, ClientConfig::new(Text::new("load")?), now)?;
    let mut rings = loop {
        match client.poll(Instant::now())? {
            Event::Connected(rings) => break rings,
            Event::Closed(why) => return Err(why.to_string().into()),
            Event::Nothing => thread::yield_now(),
        }
    };
    let mut frames: Vec<Vec<u8>> = (0..=u16::MAX).map(|id| frame(payload, id)).collect();
    let tx = rings.tx.first_mut().ok_or("there is no ring")?;
    let started = Instant::now();
    let mut id = 0;
    while started.elapsed() < Duration::from_secs(seconds) {
        for _ in 0..64 {
            let Some(frame) = frames.get_mut(id) else {
                continue;
            };
            if tx.push(frame)? != Sent::Yes {
                break;
            }
            id = (id + 1) % 65_536;
        }
        tx.flush();
        if tx.free()? == 0 {
            thread::yield_now();
        }
    }
    let took = started.elapsed().as_secs_f64();
    let ports = control.list()?;
    let counters = ports.first().ok_or("there is no port")?.counters;
    let packets = counters.device_from.packets;
    let lost = counters.drops.device_full + counters.drops.device_down;
    println!("{:.0} packets/s, {lost} lost", packets as f64 / took);
    control.stop()?;
    drop(running.join());
    Ok(())
}

/// A datagram with an identification.
fn frame(payload: usize, id: u16) -> Vec<u8> {
    let length = |of: usize| u16::try_from(of).unwrap_or(u16::MAX).to_be_bytes();
    let addresses = [198, 18, 0, 1, 198, 18, 0, 2];
    let mut ip = [&[0x45, 0], &length(28 + payload)[..]].concat();
    ip.extend(id.to_be_bytes());
    ip.extend([0x40, 0, 64, 17, 0, 0]);
    ip.extend(addresses);
    let sum = checksum(&ip);
    ip.splice(10..12, sum);
    let mut udp = [&[0x13, 0x88, 0x13, 0x89], &length(8 + payload)[..], &[0, 0]].concat();
    udp.extend(vec![0x5a; payload]);
    let pseudo = [&addresses[..], &[0, 17], &length(8 + payload)].concat();
    let sum = checksum(&[&pseudo[..], &udp].concat());
    udp.splice(6..8, sum);
    [&TO.0[..], &SOURCE.0, &[8, 0], &ip, &udp].concat()
}

fn checksum(bytes: &[u8]) -> [u8; 2] {
    let mut sum: u32 = bytes
        .chunks(2)
        .map(|pair| match pair {
            [a, b] => u32::from(u16::from_be_bytes([*a, *b])),
            [a] => u32::from(*a) << 8,
            _ => 0,
        })
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!u16::try_from(sum).unwrap_or_default()).to_be_bytes()
}
