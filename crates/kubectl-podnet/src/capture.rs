//! Capture the packets of a pod's port.

use std::fs::File;
use std::io::{self, IsTerminal as _};
use std::process::{ExitCode, Stdio};

use crate::agents;
use crate::cli::CaptureOptions;
use crate::error::PluginError;
use crate::kubectl::Kubectl;
use crate::pod::Place;

/// Captures on the pod's node, and passes the bytes on as they come.
///
/// # Errors
/// There is no such pod, its node has no agent, or the capture would be written to a terminal.
pub(crate) fn run(kubectl: &Kubectl, options: &CaptureOptions) -> Result<ExitCode, PluginError> {
    if options.write.is_none() && io::stdout().is_terminal() {
        return Err(PluginError::Terminal);
    }
    let place = agents::place(kubectl, &options.pod)?;
    let agent = agents::at(kubectl, &place)?;
    let words = words(&place, options);
    let command = agent.exec(kubectl, &agents::borrow(&words));
    let output = match &options.write {
        None => Stdio::inherit(),
        Some(path) => File::create(path)
            .map(Stdio::from)
            .map_err(|source| PluginError::File {
                operation: "create",
                path: path.display().to_string(),
                source,
            })?,
    };
    let mut command = kubectl.command(&agents::borrow(&command));
    // The agent says on standard error how much it has captured.
    command.stdin(Stdio::null()).stdout(output);
    let status = kubectl
        .spawn(&mut command)?
        .wait()
        .map_err(|source| PluginError::Start {
            program: "kubectl".to_owned(),
            source,
        })?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.unwrap_or(1)))
}

/// The command of the agent.
fn words(place: &Place, options: &CaptureOptions) -> Vec<String> {
    let mut words = vec!["capture".to_owned(), format!("--pod={place}")];
    let mut option = |name: &str, value: Option<String>| {
        words.extend(value.map(|value| format!("--{name}={value}")));
    };
    option("ifname", options.pod.interface.clone());
    option("network", options.network.clone());
    option("packets", options.packets.map(|it| it.to_string()));
    option("seconds", options.seconds.map(|it| it.to_string()));
    option("snaplen", options.snaplen.map(|it| it.to_string()));
    words.extend(options.rest.iter().cloned());
    words
}
