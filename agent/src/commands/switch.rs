//! `switch`: the process that moves packets of ports of type Memif.

use uswitch::{Ended, Options, Switch};

use super::Failure;
use super::cleanup::stay;
use crate::cli::ServeOptions;
use crate::telemetry;

/// Is the switch, until it is asked to end or another one takes over.
///
/// # Errors
/// When it cannot be, see [`Switch::open`] and [`Switch::run`].
pub fn switch(options: &ServeOptions) -> Result<(), Failure> {
    telemetry::init(&options.log)?;
    if let Some(parent) = options.socket.parent() {
        std::fs::create_dir_all(parent)?;
    }
    let switch = Switch::open(&Options {
        socket: options.socket.clone(),
        workers: options.workers.into(),
        busy_poll: options.busy_poll,
        cpus: options.cpus.clone(),
    })?;
    tracing::info!(socket = %options.socket.display(), "the switch is ready");
    match switch.run()? {
        Ended::Stopped => tracing::info!("the switch was asked to end"),
        // It says itself that another one has taken over.
        Ended::Replaced if options.stay => {
            return stay("replaced by another switch; waiting for a signal to end");
        }
        Ended::Replaced => {}
    }
    Ok(())
}
