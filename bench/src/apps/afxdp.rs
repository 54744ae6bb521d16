//! AF_XDP ports: the agent gives a socket, and puts it into the queue.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use rustix::net::{AddressFamily, SocketType, netdevice, socket};
use xsk::control::{Address, abstract_name};
use xsk::{Config, Control, Port, Verdict};

use super::{Fate, Place, Tally, Wire};

/// An AF_XDP port's queue.
#[derive(Debug, Args)]
pub struct AfXdp {
    /// The interface
    #[arg(long, default_value = "net1")]
    interface: String,
    /// Its queue
    #[arg(long, default_value_t = 0)]
    queue: u32,
    /// File of the control socket, instead of its name in the pod
    #[arg(long)]
    socket: Option<PathBuf>,
}

impl Place for AfXdp {
    type Port = Port;

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
}

impl Wire for Port {
    fn receive(&mut self, budget: u16, mut visit: impl FnMut(&mut [u8]) -> Fate) -> Result<u32> {
        Ok(Port::receive(self, budget.into(), |frame| {
            match visit(frame) {
                Fate::Returned => Verdict::Send,
                Fate::Read => Verdict::Done,
            }
        }))
    }

    fn send(&mut self, frame: &[u8]) -> Result<bool> {
        Ok(Port::send(self, frame))
    }

    fn flush(&mut self) -> Result<()> {
        Ok(Port::flush(self)?)
    }

    fn wait(&mut self, limit: Duration) -> Result<()> {
        Port::wait(self, limit)?;
        Ok(())
    }

    fn tally(&self) -> Result<Tally> {
        let (counters, kernel) = (self.counters(), self.statistics()?);
        Ok(Tally {
            received: counters.received,
            sent: counters.sent,
            full: counters.full,
            dropped: kernel
                .rx_dropped
                .saturating_add(kernel.rx_ring_full.unwrap_or_default()),
            ..Tally::default()
        })
    }
}
