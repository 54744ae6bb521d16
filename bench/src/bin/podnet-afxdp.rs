//! `podnet-afxdp`: two small applications for an AF_XDP port, to be run in its pod by anybody: an echo, and
//! a generator.

use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use agent_common::addr::MacAddr;
use anyhow::{Context, Result};
use bench::interrupt;
use clap::{Args, Parser, Subcommand};
use rustix::net::{AddressFamily, SocketType, netdevice, socket};
use tests::frame::{ethernet, reflect, udp4};
use xsk::control::{Address, abstract_name};
use xsk::{Config, Control, Port, Verdict};

/// Frames that are visited or sent at once.
const BURST: u32 = 64;
/// How long nothing may come before somebody is looked for who wants us to end.
const IDLE: Duration = Duration::from_millis(100);

#[derive(Parser)]
#[command(
    name = "podnet-afxdp",
    about = "An echo and a generator for AF_XDP ports"
)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Answer UDP datagrams and pings over IPv4
    Echo(Place),
    /// Send UDP datagrams, and count what comes
    Generate(Generate),
}

#[derive(Args)]
struct Place {
    /// The interface
    #[arg(long, default_value = "net1")]
    interface: String,
    /// Its queue
    #[arg(long, default_value_t = 0)]
    queue: u32,
    /// File of the control socket, instead of its name in the pod
    #[arg(long)]
    socket: Option<std::path::PathBuf>,
    /// End after so many seconds, instead of when told to
    #[arg(long)]
    seconds: Option<u64>,
}

#[derive(Args)]
struct Generate {
    #[command(flatten)]
    place: Place,
    /// MAC addresses: ours, and whom to send to
    #[arg(long, num_args = 2, required = true)]
    mac: Vec<MacAddr>,
    /// Addresses: ours, and whom to send to
    #[arg(long, num_args = 2, required = true)]
    ip: Vec<Ipv4Addr>,
    /// Bytes of a datagram
    #[arg(long, default_value_t = 18)]
    size: usize,
}

fn main() -> ExitCode {
    let verb = Cli::parse().verb;
    let done = interrupt::listen().and_then(|()| match verb {
        Verb::Echo(place) => echo(&place),
        Verb::Generate(order) => generate(&order),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("podnet-afxdp: {error:#}");
            ExitCode::FAILURE
        }
    }
}

impl Place {
    /// Asks the agent for a socket, and gives it memory and its queue.
    fn open(&self) -> Result<Port> {
        let name = &self.interface;
        let any = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
        let ifindex = netdevice::name_to_index(&any, name)
            .with_context(|| format!("there is no interface {name}"))?;
        let address = self
            .socket
            .as_ref()
            .map_or_else(|| abstract_name(name), |path| Address::Path(path.clone()));
        let mut control = Control::connect(&address)?;
        let socket = control.new_socket(name)?;
        let port = Port::bind(socket, ifindex, self.queue, &Config::default())?;
        control.insert(name, self.queue, &port)?;
        control.finish()?;
        Ok(port)
    }

    /// Goes on until it is told to end, or the time is over.
    fn until_told(&self, mut step: impl FnMut() -> Result<()>) -> Result<()> {
        let limit = self.seconds.map(Duration::from_secs);
        let start = Instant::now();
        while !interrupt::wanted() && limit.is_none_or(|limit| start.elapsed() < limit) {
            step()?;
        }
        Ok(())
    }
}

fn echo(place: &Place) -> Result<()> {
    let mut port = place.open()?;
    println!("ready");
    place.until_told(|| {
        port.wait(IDLE)?;
        port.receive(BURST, |frame| {
            if reflect(frame) {
                Verdict::Send
            } else {
                Verdict::Done
            }
        });
        Ok(port.flush()?)
    })?;
    say(&port)
}

fn generate(order: &Generate) -> Result<()> {
    let mut port = order.place.open()?;
    let packet = udp4(
        order.ip[0],
        order.ip[1],
        (4242, 4242),
        &vec![0x5a; order.size],
    );
    let frame = ethernet(order.mac[1], order.mac[0], 0x0800, &packet);
    println!("ready");
    order.place.until_told(|| {
        for _ in 0..BURST {
            port.send(&frame);
        }
        port.flush()?;
        port.receive(BURST, |_| Verdict::Done);
        Ok(())
    })?;
    say(&port)
}

fn say(port: &Port) -> Result<()> {
    let (counters, kernel) = (port.counters(), port.statistics()?);
    println!(
        "received {} sent {} full {} dropped {}",
        counters.received, counters.sent, counters.full, kernel.rx_dropped
    );
    Ok(())
}
