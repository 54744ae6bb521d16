//! `switch`: the process that moves packets of ports of type Memif.

use uswitch::{Ended, Memory, Options, Switch};

use super::cleanup::stay;
use super::dialogue::Failure;
use crate::cli::ServeOptions;
use telemetry;

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
        user: Some((options.user.uid, options.user.gid)),
        workers: options.workers.into(),
        busy_poll: options.busy_poll,
        cpus: options.cpus.clone(),
        memory: Memory {
            ring_slots: options.ring_slots,
            pod: options.pod_memory << 20,
            switch: options.memory << 20,
        },
    })?;
    tracing::info!(socket = %options.socket.display(), "the switch is ready");
    match switch.run()? {
        Ended::Stopped => tracing::info!("the switch was asked to end"),
        // It says itself that another one has taken over.
        Ended::Replaced if options.stay => {
            return stay("another switch has taken over; the process waits for a signal to end");
        }
        Ended::Replaced => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ATT-03a: the switch of the manifests reaches its own limit before the kernel's.
    #[test]
    fn the_memory_limit_of_the_manifest_is_above_what_ports_may_lend() {
        let manifest = include_str!("../../../deploy/base/switch.yaml");
        let value = |name: &str| {
            let lines = manifest.lines().map(str::trim);
            let mut found = lines.filter_map(|line| line.strip_prefix(name));
            let value = found.next_back();
            value
                .unwrap_or_else(|| panic!("{name} is in the manifest"))
                .trim()
        };
        let limit = value("memory:");
        let limit: u64 = match limit.strip_suffix("Gi") {
            Some(number) => number.parse::<u64>().unwrap() << 30,
            None => limit.strip_suffix("Mi").unwrap().parse::<u64>().unwrap() << 20,
        };
        let is_set = |line: &str| {
            let line = line.trim();
            line.starts_with("- --memory") || line.contains("PODNET_SWITCH_MEMORY")
        };
        assert!(
            !manifest.lines().any(is_set),
            "the default is what is compared"
        );
        let lent = Memory::default().switch;
        let needed = lent + lent / 10 + Memory::OWN;
        assert!(
            needed <= limit,
            "{needed} bytes are needed, {limit} are the limit"
        );
        assert!(Memory::default().pod < lent);
        proof::of!("ATT-03a");
    }
}
