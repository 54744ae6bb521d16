//! Handle Ctrl-C and SIGTERM: stop between two values and take the nodes down.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

static WANTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Takes the signals over.
///
/// # Errors
/// The kernel's.
pub fn listen() -> Result<()> {
    let wanted = WANTED.get_or_init(Arc::default);
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        flag::register(signal, Arc::clone(wanted)).context("taking over Ctrl-C")?;
    }
    Ok(())
}

/// Whether the measurement shall end.
pub fn wanted() -> bool {
    WANTED
        .get()
        .is_some_and(|wanted| wanted.load(Ordering::Relaxed))
}

/// To be asked before each value.
///
/// # Errors
/// The measurement shall end.
pub fn check() -> Result<()> {
    if wanted() {
        bail!("interrupted");
    }
    Ok(())
}
