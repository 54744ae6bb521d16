//! Ctrl-C: the demo takes down what it has put up, then ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

/// Between two looks at something that is waited for.
const STEP: Duration = Duration::from_millis(5);

/// Whether somebody wants the demo to end.
#[derive(Debug, Clone)]
pub(crate) struct Interrupt {
    wanted: Arc<AtomicBool>,
}

impl Interrupt {
    /// Takes the signals over.
    pub(crate) fn listen() -> Result<Self> {
        let wanted = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            flag::register(signal, Arc::clone(&wanted)).context("taking over Ctrl-C")?;
        }
        Ok(Self { wanted })
    }

    /// # Errors
    /// The demo shall end.
    pub(crate) fn check(&self) -> Result<()> {
        if self.wanted.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        Ok(())
    }

    /// Looks until `probe` holds or the time is over; tells whether it did.
    ///
    /// # Errors
    /// The demo shall end, or the probe's own.
    pub(crate) fn wait(
        &self,
        patience: Duration,
        mut probe: impl FnMut() -> Result<bool>,
    ) -> Result<bool> {
        let end = Instant::now() + patience;
        loop {
            self.check()?;
            if probe()? {
                return Ok(true);
            }
            if Instant::now() >= end {
                return Ok(false);
            }
            thread::sleep(STEP);
        }
    }
}
