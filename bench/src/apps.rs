//! Run small applications on ports that are sockets, in the pods of the ports.
//!
//! They are an echo, a counter, a generator and a ping, the same for every kind of port; a kind only
//! defines how it is opened.

mod afxdp;
mod memif;
mod packet;
mod tally;
mod through;
mod verbs;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};

pub use self::afxdp::AfXdp;
pub use self::memif::Memif;
pub use self::packet::Packet;
pub use self::tally::{Tally, Trips};
pub use self::through::{Passed, Through};
pub(crate) use self::verbs::PORTS;
use self::verbs::{Manner, Target};
use crate::interrupt;

/// Frames that are visited or sent at once.
pub const BURST: u16 = 64;

/// Where a kind of port is found.
pub trait Place: Args {
    /// An open port.
    type Port: Wire;

    /// Opens it, in the namespace of this process.
    ///
    /// # Errors
    /// It is not there, or is refused.
    fn open(&self) -> Result<Self::Port>;
}

/// A port as an application sees it.
pub trait Wire {
    /// Visits up to `budget` received frames, and returns their number.
    ///
    /// A frame whose visit returns [`Fate::Returned`] is sent with the next [`Self::flush`], as the
    /// visit left it.
    ///
    /// # Errors
    /// The port is gone.
    fn receive(&mut self, budget: u16, visit: impl FnMut(&mut [u8]) -> Fate) -> Result<u32>;

    /// Has a frame sent by the next [`Self::flush`]. False when there is no room now.
    ///
    /// # Errors
    /// The port is gone.
    fn send(&mut self, frame: &[u8]) -> Result<bool>;

    /// Sends what waits.
    ///
    /// # Errors
    /// The port is gone.
    fn flush(&mut self) -> Result<()>;

    /// Sleeps until something has come, or the time is over.
    ///
    /// # Errors
    /// The port is gone.
    fn wait(&mut self, limit: Duration) -> Result<()>;

    /// Returns the port's counters of frames.
    ///
    /// # Errors
    /// The kernel does not tell.
    fn tally(&self) -> Result<Tally>;
}

/// Fate of a frame that was visited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It goes back where it came from.
    Returned,
    /// It was read, and that is all.
    Read,
}

/// An application for one kind of port.
#[derive(Debug, Parser)]
pub struct Cli<P: Place> {
    #[command(subcommand)]
    verb: Verb<P>,
}

/// The operation.
#[derive(Debug, Subcommand)]
pub enum Verb<P: Place> {
    /// Answer UDP datagrams and pings over IPv4
    Echo {
        /// The port
        #[command(flatten)]
        place: P,
        /// How long, and where
        #[command(flatten)]
        manner: Manner,
    },
    /// Count what comes
    Count {
        /// The port
        #[command(flatten)]
        place: P,
        /// How long, and where
        #[command(flatten)]
        manner: Manner,
    },
    /// Send UDP datagrams as fast as they go, and count what comes
    Generate {
        /// The port
        #[command(flatten)]
        place: P,
        /// How long, and where
        #[command(flatten)]
        manner: Manner,
        /// Payload and destination
        #[command(flatten)]
        target: Target,
    },
    /// Send one UDP datagram after the other, each when the last one was answered
    Ping {
        /// The port
        #[command(flatten)]
        place: P,
        /// How long, and where
        #[command(flatten)]
        manner: Manner,
        /// Payload and destination
        #[command(flatten)]
        target: Target,
    },
}

/// Every kind of port, for one program that has all.
#[derive(Debug, Subcommand)]
pub enum Application {
    /// A memif port
    #[command(subcommand)]
    Memif(Verb<Memif>),
    /// An AF_XDP port
    #[command(subcommand)]
    AfXdp(Verb<AfXdp>),
    /// An interface of the kernel, by AF_PACKET
    #[command(subcommand)]
    Packet(Verb<Packet>),
    /// Two memif ports, from one to the other
    Through(Through),
}

impl Application {
    /// Runs the application.
    ///
    /// It prints `ready` when the port is open, and its tally at the end.
    ///
    /// # Errors
    /// The port cannot be opened, or went away.
    pub fn run(&self) -> Result<()> {
        match self {
            Self::Memif(verb) => verb.run(),
            Self::AfXdp(verb) => verb.run(),
            Self::Packet(verb) => verb.run(),
            Self::Through(through) => through.run(),
        }
    }
}

impl<P: Place> Verb<P> {
    fn run(&self) -> Result<()> {
        interrupt::listen()?;
        let tally = match self {
            Self::Echo { place, manner } => manner.with(place, verbs::echo),
            Self::Count { place, manner } => manner.with(place, verbs::count),
            Self::Generate {
                place,
                manner,
                target,
            } => manner.with(place, |port, manner| target.generate(port, manner)),
            Self::Ping {
                place,
                manner,
                target,
            } => manner.with(place, |port, manner| target.ping(port, manner)),
        };
        println!("{}", serde_json::to_string(&tally?)?);
        Ok(())
    }
}

/// A program that has one kind.
pub fn main<P: Place>(name: &str) -> ExitCode {
    match Cli::<P>::parse().verb.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[derive(Parser)]
    struct Every {
        #[command(subcommand)]
        _application: Application,
    }

    #[test]
    fn options_of_an_application_do_not_contradict_each_other() {
        Every::command().debug_assert();
        Cli::<Memif>::command().debug_assert();
        Cli::<AfXdp>::command().debug_assert();
    }
}
